"""CTL: abort, steer, update and limits.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from agentsession.conformance.looking import of, texts
from agentsession.conformance.scene import NotApplicable, Scene, Stage, scenario
from agentsession.conformance.script import Call, Calls, Hold, Refuse, Say, Step, Stop, Stream
from agentsession.protocol import (
    AbortResult,
    AgentSession,
    AgentSessionError,
    ConfigurationError,
    Constraints,
    Error,
    Event,
    ExecutionOptions,
    Message,
    SessionConfig,
    SessionUpdate,
    StreamEnd,
    ToolDescriptor,
)

_ABORT: Final = ("abort",)


# -- abort ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a turn is when it is aborted: what it does, and the mark at which it is held there."""

    what: str
    steps: tuple[Step, ...]
    mark: str = "here"


_MODEL: Final = _Place("while the model thinks", (Say(text="well"), Hold(mark="here"), Say(text="too late")))
_WORDS: Final = _Place("within a message", (Stream(pieces=["well", " then"], hold="here"), Say(text="too late")))
_TOOL: Final = _Place(
    "while a tool runs",
    (Calls(calls=[Call(name="work", needs="none", hold="here")]), Say(text="too late")),
)


@scenario("CTL-01", "CTL-03", "CTL-05", "LIFE-14", needs=_ABORT)
async def an_abort_ends_what_the_model_does(scene: Scene) -> None:
    """Abort returns when the record has the turn's end, aborted and without an error; the next turn works."""
    for place in (_MODEL, _WORDS):
        await _aborted(scene, place)


@scenario("CTL-01", "CTL-03", "CTL-05", "TOOL-01", needs=("abort", "host_tool_execution"))
async def an_abort_ends_what_a_tool_does(scene: Scene) -> None:
    """A tool that runs when its turn is aborted is answered unknown: it may have done something."""
    record = await _aborted(scene, _TOOL)
    answered = [getattr(event, "status", None) for event in record if event.type == "tool_response"]
    scene.expect(
        answered == ["unknown"], "TOOL-01", f"a tool that was cut off is answered {answered}, not unknown", record
    )


async def _aborted(scene: Scene, place: _Place) -> list[Event]:
    """Abort a turn at a place and try the next one; the record after the abort."""
    stage, session = await scene.opened(place.steps, [Say(text="again")])
    stream = session.stream("go")
    async with scene.reading(stream) as events:
        await stage.reached(place.mark)
        outcome = await session.abort("enough")
        record = await scene.record(session)
        last = record[-1]
        scene.expect(
            isinstance(last, StreamEnd) and last.stream_id == stream.stream_id,
            "CTL-01",
            f"abort() {place.what} returned before the turn's end was in the record",
            record,
        )
        state = session.state
    stage.release(place.mark)
    scene.expect(state == "idle", "CTL-01", f"after an abort {place.what} the session is {state}", events)
    scene.end(events, "aborted", "CTL-01")
    scene.expect(outcome.status == "aborted", "CTL-01", f"abort() {place.what} says {outcome.status}", events)
    scene.expect(outcome.stream_id == stream.stream_id, "CTL-01", "abort() names another stream", events)
    errors = of(events, Error)
    scene.expect(not errors, "CTL-03", f"an abort {place.what} is shown as an error", errors)
    again = await scene.read(session.stream("again"))
    scene.end(again, "completed", "CTL-05")
    scene.expect("again" in texts(again), "CTL-05", f"after an abort {place.what} the next turn said nothing", again)
    return record


@scenario("CTL-02", needs=_ABORT)
async def a_second_abort_changes_nothing(scene: Scene) -> None:
    """Abort where nothing runs is idle and records nothing; several at once end the turn once."""
    stage, session = await scene.opened([Hold(mark="here"), Say(text="too late")])

    async def idle(when: str) -> None:
        before = await scene.settled(session)
        outcome = await session.abort()
        scene.expect(outcome.status == "idle", "CTL-02", f"an abort {when} says {outcome.status}, not idle")
        await scene.unchanged(session, before, "CTL-02", f"an abort {when}")

    await idle("before the first turn")
    outcomes: list[AbortResult] = []

    async def abort() -> None:
        outcomes.append(await session.abort())

    async with scene.reading(session.stream("go")) as events:
        await stage.reached("here")
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(abort)
    scene.end(events, "aborted", "CTL-02")
    ends = of(await scene.record(session), StreamEnd)
    scene.expect(len(ends) == 1, "CTL-02", f"three aborts left {len(ends)} ends", ends)
    said = sorted(outcome.status for outcome in outcomes)
    scene.expect("aborted" in said, "CTL-02", f"three aborts say {said}", events)
    await idle("after an abort")


_RACES: Final = 12


@scenario("CTL-04", needs=_ABORT)
async def an_abort_races_the_end(scene: Scene) -> None:
    """An abort that comes as the turn ends leaves one end, whose reason is the one that abort tells."""
    turns: list[list[Step]] = [[Hold(mark=f"race{number}"), Say(text="done")] for number in range(_RACES)]
    stage, session = await scene.opened(*turns, [Say(text="again")])
    before = False  # whether a race was won by the abort, which the next turn must not feel
    for number in range(_RACES):
        stream = session.stream("go")
        async with scene.reading(stream) as events:
            await stage.reached(f"race{number}")
            stage.release(f"race{number}")
            for _ in range(number):  # a little later each time, until the turn has ended by itself
                await checkpoint()
            outcome = await session.abort()
        own = [event for event in of(await scene.record(session), StreamEnd) if event.stream_id == stream.stream_id]
        scene.expect(len(own) == 1, "CTL-04", f"a race of abort and end left {len(own)} ends", own)
        reason, said = own[0].reason, outcome.status
        others = reason not in ("completed", "aborted")
        scene.expect(not others, "CTL-05" if before else "CTL-04", f"a turn that was aborted ended {reason}", events)
        before = before or reason == "aborted"
        scene.expect(
            (said == "aborted") == (reason == "aborted"), "CTL-04", f"abort() says {said}, the turn ended {reason}", own
        )
        scene.expect(not of(events, Error), "CTL-03", "an abort is shown as an error", of(events, Error))
    scene.end(await scene.read(session.stream("again")), "completed", "CTL-05")


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


async def _limited(stage: Stage, limits: Constraints) -> AgentSession | None:
    """A session with these limits; ``None`` where the executor says that it cannot keep them."""
    try:
        return await stage.open(stage.options(limits=limits))
    except ConfigurationError:
        return None


@scenario("CTL-08")
async def other_ends_have_their_reasons(scene: Scene) -> None:
    """A refusal of the model's and its limit of tokens end a turn each for its reason, and the session goes on."""
    _, session = await scene.opened([Refuse()], [Say(text="and so"), Stop()], [Say(text="again")])
    for reason in ("refusal", "max_tokens", "completed"):
        scene.end(await scene.read(session.stream("go")), reason, "CTL-08")
