"""CTL-06 to CTL-08: steer, update and limits.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentsession.conformance.looking import of
from agentsession.conformance.scene import NotApplicable, Scene, Stage, scenario
from agentsession.conformance.script import Call, Calls, Hold, Refuse, Say, Step, Stop
from agentsession.protocol import (
    AgentSession,
    AgentSessionError,
    ConfigurationError,
    Constraints,
    Event,
    ExecutionOptions,
    Grace,
    Message,
    SessionConfig,
    SessionUpdate,
    StreamEnd,
    Thought,
    ToolDescriptor,
)

# -- steer ------------------------------------------------------------------------------------------------------------


@scenario("CTL-06", needs=("steering",))
async def a_steer_is_injected_once(scene: Scene) -> None:
    """Steers that are queued while the model works are in the record once each, in their order, before the end."""
    stage, session = await scene.opened([Hold(mark="here"), Say(text="done")])
    async with scene.reading(session.stream("go")) as events:
        await stage.reached("here")
        first, second = await session.steer("to the left"), await session.steer("and faster")
        scene.expect(
            (first.status, second.status) == ("queued", "queued"),
            "CTL-06",
            f"steers of a running turn are {first.status} and {second.status}",
        )
        stage.release("here")
    scene.end(events, "completed", "CTL-06")
    told = [event for event in of(events, Message) if event.message_id in (first.request_id, second.request_id)]
    scene.expect(
        [event.message_id for event in told] == [first.request_id, second.request_id],
        "CTL-06",
        f"{len(told)} messages for two steers, or not in their order",
        events,
    )
    said = [event for event in of(events, Message) if event.source == "user"]
    scene.expect(len(said) == 3, "CTL-06", f"a message and two steers are shown as {len(said)} messages", said)
    scene.expect(
        all(event.source == "user" and event.role == "user" for event in told),
        "CTL-06",
        "a steer is not shown as the user's words",
        told,
    )


@scenario("CTL-06", needs=("steering", "abort"))
async def a_steer_that_was_not_injected_is_told(scene: Scene) -> None:
    """A steer that is queued when the turn is aborted is in the record once, or listed as undelivered."""
    stage, session = await scene.opened([Hold(mark="here"), Say(text="done")])
    async with scene.reading(session.stream("go")) as events:
        await stage.reached("here")
        queued = await session.steer("to the left")
        await session.abort()
    end = scene.end(events, "aborted", "CTL-01")
    listed = (end.data or {}).get("undelivered") or []
    injected = [event for event in of(events, Message) if event.message_id == queued.request_id]
    times = len(injected) + list(listed).count(queued.request_id)
    scene.expect(times == 1, "CTL-06", f"a queued steer is told {times} times, not once", events)


@scenario("CTL-06", needs=("steering",))
async def a_steer_of_nothing_is_rejected(scene: Scene) -> None:
    """A steer where no turn is at work, or without content, is rejected, and leaves nothing in the record."""
    _, session = await scene.opened([Say(text="done")])
    for _ in range(2):
        before = await scene.settled(session)
        got = await session.steer("to the left")
        scene.expect(got.status == "rejected", "CTL-06", f"a steer of an idle session is {got.status}")
        await scene.unchanged(session, before, "CTL-06", "a steer that was rejected")
        await scene.read(session.stream("go"))


# -- update -----------------------------------------------------------------------------------------------------------

_UPDATES: Final[Mapping[str, SessionConfig]] = {
    "a title": SessionConfig(title="Bugs"),
    "state": SessionConfig(state={"count": 1, "list": [None, {"a": "é"}]}),
    "a model": SessionConfig(model="another-model"),
    "a permission mode": SessionConfig(permission_mode="plan"),
    "tools": SessionConfig(tools=[ToolDescriptor(name="fetch", parameters_schema={"type": "object"}, owner="host")]),
    "open config": SessionConfig(config={"x-depth": 3}),
    "a title beside open config": SessionConfig(title="Half", config={"x-depth": 4}),
    "a title beside state": SessionConfig(title="Both", state={"count": 2}),
    "nothing": SessionConfig(),
}


@scenario("CTL-07")
async def an_update_is_applied_wholly_or_not_at_all(scene: Scene) -> None:
    """An update that is applied is in the record with all it says; one that is rejected leaves nothing."""
    _, session = await scene.opened([Say(text="done")])
    for what, config in _UPDATES.items():
        await _updated(scene, session, what, config)
    scene.end(await scene.read(session.stream("go")), "completed", "LIFE-12")


@scenario("CTL-07")
async def an_update_of_a_running_turn_is_one_too(scene: Scene) -> None:
    """The same while a turn runs, where the executor takes updates then."""
    stage, session = await scene.opened([Hold(mark="here"), Say(text="done")])
    async with scene.reading(session.stream("go")) as events:
        await stage.reached("here")
        taken = [await _updated(scene, session, what, config) for what, config in _UPDATES.items()]
        stage.release("here")
    scene.end(events, "completed", "CTL-07")
    declared = "mid_turn_update" in session.descriptor.capabilities
    scene.expect(
        declared or not any(taken), "CTL-07", "an update of a running turn was taken and is not declared", events
    )


async def _updated(scene: Scene, session: AgentSession, what: str, config: SessionConfig) -> bool:
    """Try an update; whether it was applied."""
    before = await scene.settled(session)
    try:
        got = await session.update(config)
    except AgentSessionError:
        applied = False
    else:
        applied = got.status == "applied"
        scene.expect(applied or got.status == "rejected", "CTL-07", f"an update of {what} is {got.status}")
    if not applied:
        await scene.unchanged(session, before, "CTL-07", f"an update of {what} that was rejected")
        return False
    events = [event for event in await scene.record(session) if event.seq > before]
    recorded = of(events, SessionUpdate)
    wanted = {name: value for name, value in _said(config).items() if value is not None}
    scene.expect(len(recorded) == 1, "CTL-07", f"an update of {what} is recorded {len(recorded)} times", events)
    got_fields = {name: getattr(recorded[0], name) for name in wanted}
    scene.expect(got_fields == wanted, "CTL-07", f"an update of {what} is recorded as {got_fields}", recorded)
    return True


def _said(config: SessionConfig) -> dict[str, Any]:
    """The fields of the event that an update becomes."""
    return {
        "title": config.title,
        "model": config.model,
        "permission_mode": config.permission_mode,
        "tools": config.tools,
        "state_delta": config.state,
        "config": config.config,
    }


# -- limits -----------------------------------------------------------------------------------------------------------

_LOOKS: Final[list[Step]] = [Calls(calls=[Call(name="look")]), Calls(calls=[Call(name="look")]), Say(text="done")]


@scenario("CTL-08", needs=("host_tool_execution",))
async def a_limit_of_model_calls_has_its_reason(scene: Scene) -> None:
    """A turn that needs more model calls, or steps, than it may make ends for that reason; one that may make them ends
    completed, and so does the next."""
    shown = 0
    for name in ("max_llm_calls", "max_turns"):
        for allowed, reason in ((2, name), (3, "completed")):
            stage = await scene.stage(_LOOKS, [Say(text="again")])
            session = await _limited(stage, Constraints(**{name: allowed}))
            if session is None:
                continue
            shown += 1
            events = await scene.turn(session)
            scene.end(events, reason, "CTL-08")
            scene.end(await scene.turn(session), "completed", "CTL-08")
    if shown == 0:
        raise NotApplicable("the executor refuses limits of model calls")


@scenario("CTL-08")
async def a_limit_of_time_has_its_reason(scene: Scene) -> None:
    """A turn that works longer than it may ends with max_time, one whose moment has come with deadline; the next turn
    may be given more."""
    stage = await scene.stage([Hold(mark="forever")], [Say(text="again")])
    limited = await _limited(stage, Constraints(max_time_seconds=0.05))
    late = await stage.open(stage.options(deadline="2020-01-01T00:00:00.000Z"))
    for session, reason in ((limited, "max_time"), (late, "deadline")):
        if session is not None:
            scene.end(await scene.read(session.stream("go")), reason, "CTL-08")
            scene.expect(session.state == "idle", "CTL-08", f"after {reason} the session is {session.state}")
    if limited is not None:
        more = ExecutionOptions(limits=Constraints(max_time_seconds=60))
        scene.end(await scene.read(limited.stream("again", more)), "completed", "CTL-08")


_LOOK: Final = Calls(calls=[Call(name="look")])
_REPORTS: Final[list[Step]] = [_LOOK, Say(text="one looked at, the rest is open")]
_GOES_ON: Final[list[Step]] = [_LOOK, Calls(calls=[Call(name="wipe", needs="grant")]), Say(text="wiped")]


@scenario("CTL-08", needs=("host_tool_execution",))
async def a_last_word_is_not_why_a_turn_ends(scene: Scene) -> None:
    """A turn whose host wants a last word at a limit ends for the limit, and tells what came of it: ``completed`` where
    the agent said something. Nothing runs in it, whatever the model asks for. Nobody has one who did not ask."""
    shown = 0
    for script in (_REPORTS, _GOES_ON):
        for name in ("max_llm_calls", "max_turns"):
            for grace in (None, Grace()):
                stage = await scene.stage(script, [Say(text="again")])
                session = await _limited(stage, Constraints(**{name: 1}), grace)
                if session is None:
                    continue
                shown += 1
                _had_last_word(scene, await scene.turn(session), name, asked=grace is not None)
                scene.ran(stage, rule="CTL-08")
                scene.end(await scene.turn(session), "completed", "CTL-08")
    if shown == 0:
        raise NotApplicable("the executor refuses limits of model calls")


def _had_last_word(scene: Scene, events: Sequence[Event], limit: str, *, asked: bool) -> None:
    """An executor that knows of no last words says nothing of one."""
    end = scene.end(events, limit, "CTL-08")
    came = (end.data or {}).get("grace")
    known = ("completed", "failed", "skipped") if asked else ()
    scene.expect(came is None or came in known, "CTL-08", f"a last word, asked for: {asked}, is told {came}", events)
    pauses = [event for event in of(events, StreamEnd) if event.reason == "input_required"]
    scene.expect(len(pauses) == 1, "CTL-08", "the turn asked for more than it may have", events)
    parts = [part for event in of(events, Message) if event.role == "agent" for part in event.content]
    says = any(not isinstance(part, Thought) for part in parts)
    scene.expect(
        says == (came == "completed"), "CTL-08", f"a last word that came {came} says something: {says}", events
    )


async def _limited(stage: Stage, limits: Constraints, grace: Grace | None = None) -> AgentSession | None:
    """A session with these limits; ``None`` where the executor says that it cannot keep them."""
    try:
        return await stage.open(stage.options(limits=limits, grace=grace))
    except ConfigurationError:
        return None


@scenario("CTL-08")
async def other_ends_have_their_reasons(scene: Scene) -> None:
    """A refusal of the model's and its limit of tokens end a turn each for its reason, and the session goes on."""
    _, session = await scene.opened([Refuse()], [Say(text="and so"), Stop()], [Say(text="again")])
    for reason in ("refusal", "max_tokens", "completed"):
        scene.end(await scene.read(session.stream("go")), reason, "CTL-08")
