"""HITL: questions to a person, and what their answers let happen.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from agentsession.conformance.engine import Break
from agentsession.conformance.hosting import result_data, standard_answer
from agentsession.conformance.looking import of, recited, requests
from agentsession.conformance.scenarios.confirmations import a_wipe, question_of
from agentsession.conformance.scene import NotApplicable, Scene, Stage, scenario
from agentsession.conformance.script import Ask, Call, Calls, Delegate, Hold, Recite, Say, Step
from agentsession.protocol import (
    ConfigurationError,
    Constraints,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    PendingRequest,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    accept,
    decline,
    grant,
    result,
)

_ASK: Final = ("elicitation",)
_HOST: Final = ("host_tool_execution",)
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


# -- ends of a question -----------------------------------------------------------------------------------------------


@scenario("HITL-06", needs=("abort", "host_tool_execution"))
async def an_abort_cancels_what_waits(scene: Scene) -> None:
    """Abort of a waiting turn answers every request cancelled; later answers are stale, and nothing runs."""
    calls = [Call(name="look", args={"at": "a"}), Call(name="write", args={"path": "b"}, needs="grant")]
    stage, session = await scene.opened([Calls(calls=calls), Say(text="done")], [Say(text="again")])
    waiting = await scene.asked(session, 2, "TOOL-06")
    await session.abort("enough")
    scene.pending(session, 0, "HITL-06")
    record = await scene.record(session)
    ended = {event.request_id: event.status for event in of(record, ToolResponse)}
    wanted = {request.request_id: "cancelled" for request in waiting}
    scene.expect(ended == wanted, "HITL-06", f"the responses are {ended}, not all cancelled", record[-6:])
    scene.expect(
        isinstance(record[-1], StreamEnd) and record[-1].reason == "aborted",
        "CTL-01",
        "the record does not end with the turn's end",
        record[-3:],
    )
    got = await session.respond(result(waiting[0].request_id, 1), grant(waiting[1].request_id))
    scene.receipts(got, "stale", "stale", rule="HITL-06", what="an answer after the abort")
    scene.end(await scene.read(session.stream("again")), "completed", "CTL-05")
    scene.ran(stage, rule="HITL-06")


@scenario("HITL-06", needs=("abort", "elicitation"))
async def an_abort_cancels_a_question(scene: Scene) -> None:
    """Abort of a turn that asks a person answers the question cancel, and a yes that comes later runs nothing."""
    stage, session = await scene.opened([Calls(calls=[a_wipe("a")]), Say(text="done")])
    asked = await question_of(scene, session)
    await session.abort()
    scene.pending(session, 0, "HITL-06")
    answered = of(await scene.record(session), ElicitationResponse)
    scene.expect(
        [event.action for event in answered] == ["cancel"], "HITL-06", "the question was not answered cancel", answered
    )
    got = await session.respond(accept(asked.request_id))
    scene.receipts(got, "stale", rule="HITL-06", what="a yes after the abort")
    scene.ran(stage, rule="HITL-06")


@scenario("HITL-07", needs=_ASK)
async def what_the_host_cannot_show_is_cancelled_at_once(scene: Scene) -> None:
    """A kind of question that the host did not name is requested and cancelled in one step, and runs nothing."""
    script: list[Step] = [Ask(message="Which colour?"), Calls(calls=[a_wipe("a")]), Say(text="done")]
    stage, session = await scene.opened(script, kinds=[])
    events = await scene.read(session.stream("go"))
    scene.pending(session, 0, "HITL-07")
    asked, answered = of(events, ElicitationRequest), of(events, ElicitationResponse)
    scene.expect(len(asked) >= 1, "HITL-07", "the question is not in the record", events)
    scene.expect(
        [(event.request_id, event.action) for event in answered] == [(event.request_id, "cancel") for event in asked],
        "HITL-07",
        "a question that cannot be shown was not cancelled",
        [*asked, *answered],
    )
    scene.ran(stage, rule="HITL-01")


@scenario("HITL-07", needs=_ASK)
async def what_the_host_can_show_is_asked(scene: Scene) -> None:
    """A kind of question that the host names is asked, beside another that is cancelled."""
    script: list[Step] = [Ask(message="Which colour?"), Calls(calls=[a_wipe("a")]), Say(text="done")]
    stage, session = await scene.opened(script, kinds=["tool_confirmation"])
    events = await scene.read(session.stream("go"))
    scene.end(events, "input_required", "HITL-07")
    (asked,) = scene.pending(session, 1, "HITL-07")
    scene.expect(
        isinstance(asked, ElicitationRequest) and asked.kind == "tool_confirmation",
        "HITL-07",
        "what waits is not the question that the host can show",
        [asked],
    )
    await scene.read(session.stream(accept(asked.request_id)))
    scene.ran(stage, ("wipe", {"path": "a"}), rule="HITL-03")


@scenario("HITL-08", needs=_ASK)
async def content_must_fit_the_question(scene: Scene) -> None:
    """Content that the question's schema refuses is invalid, and the question goes on waiting."""
    script: list[Step] = [Ask(message="How many?", requested_schema=dict(_SCHEMA)), Recite()]
    _, session = await scene.opened(script)
    (asked,) = await scene.asked(session, 1)
    shown = asked.requested_schema if isinstance(asked, ElicitationRequest) else None
    scene.expect(shown == _SCHEMA, "HITL-08", f"the question's schema is shown as {shown}", [asked])
    for wrong in ({"n": "two"}, {}, {"n": 1, "m": 2}, "1", None):
        answer = ElicitationAnswer(request_id=asked.request_id, action="accept", content=wrong)
        scene.receipts(await session.respond(answer), "invalid", rule="HITL-08", what=f"an acceptance with {wrong!r}")
        scene.pending(session, 1, "HITL-08")
    scene.receipts(
        await session.respond(accept(asked.request_id)), "invalid", rule="HITL-08", what="an acceptance without content"
    )
    events = await scene.read(session.stream(standard_answer(asked)))
    scene.end(events, "completed", "HITL-08")
    wanted = [{"action": "accept", "content": {"n": 7}}]
    told = recited(events)
    scene.expect(told == wanted, "HITL-08", f"the model was told {told}, not {wanted}", events)


@scenario("HITL-08", "HITL-01", needs=_ASK)
async def a_yes_that_says_no_is_invalid(scene: Scene) -> None:
    """An acceptance of a confirmation whose content contradicts it is invalid: the question waits, nothing runs."""
    stage, session = await scene.opened([Calls(calls=[a_wipe("a")]), Say(text="done")])
    asked = await question_of(scene, session)
    for no in ({"confirmed": False}, "no", False, {"decision": "deny"}, {"confirmed": None}, 0):
        answer = ElicitationAnswer(request_id=asked.request_id, action="accept", content=no)
        scene.receipts(await session.respond(answer), "invalid", rule="HITL-08", what=f"an acceptance that says {no!r}")
        scene.pending(session, 1, "HITL-08")
        scene.ran(stage, rule="HITL-01")
    await scene.read(session.stream(accept(asked.request_id)))
    scene.ran(stage, ("wipe", {"path": "a"}), rule="HITL-03")


@scenario("HITL-09", needs=_ASK)
async def a_no_has_no_content(scene: Scene) -> None:
    """Content with a decline or a cancel is refused or left out: it is not in the record and not told to the model."""
    actions = ("decline", "cancel")
    turns: list[list[Step]] = [[Ask(message=f"Which colour? ({action})"), Recite()] for action in actions]
    _, session = await scene.opened(*turns)
    for action in actions:
        (asked,) = await scene.asked(session, 1)
        answer = ElicitationAnswer(request_id=asked.request_id, action=action, content={"answer": "pink"})
        got = await session.respond(answer)
        if not all(one.ok for one in got):
            scene.receipts(got, "invalid", rule="HITL-09", what=f"a {action} with content")
            await session.respond(ElicitationAnswer(request_id=asked.request_id, action=action))
        events = await scene.read(session.stream())
        scene.end(events, "completed", "HITL-09")
        told = recited(events)
        scene.expect(
            told is None or told == [{"action": action, "content": None}],
            "HITL-09",
            f"the model was told {told} of a {action}",
            events,
        )
    answered = of(await scene.record(session), ElicitationResponse)
    scene.expect(
        all(event.content is None for event in answered), "HITL-09", "a refusal holds content in the record", answered
    )


@scenario("TOOL-09", needs=_ASK)
async def the_first_word_of_a_person_counts(scene: Scene) -> None:
    """A second answer to a question is stale: a yes after a no runs nothing."""
    stage, session = await scene.opened([Calls(calls=[a_wipe("a")]), Say(text="done")])
    asked = await question_of(scene, session)
    got = await session.respond(decline(asked.request_id), accept(asked.request_id))
    scene.receipts(got, "applied", "stale", rule="TOOL-09", what="a no and then a yes")
    await scene.read(session.stream())
    scene.ran(stage, rule="TOOL-09")


# -- children ---------------------------------------------------------------------------------------------------------


def _delegated(call: Call) -> list[Step]:
    names = ("left", "right")
    steps: dict[str, list[Step]] = {
        name: [Calls(calls=[call.model_copy(update={"args": {"who": name}})]), Recite()] for name in names
    }
    return [Delegate(agents=steps), Say(text="both are done")]


@scenario("HITL-10", needs=("sub_agents", "host_tool_execution"))
async def a_childs_call_is_answered_to_the_child(scene: Scene) -> None:
    """What sub-agents ask comes on the parent's stream with their threads, and each gets the answer to its own."""
    stage = await scene.stage(_delegated(Call(name="look")))
    session = await stage.open(stage.options(host_tool_execution=False))
    events = await scene.read(session.stream("go"))
    while session.state == "input_required":
        waiting = list(reversed(session.pending))
        for request in waiting:
            scene.expect(
                request.thread_id is not None, "HITL-10", "a child's request has no thread of its own", [request]
            )
        events += await scene.read(session.stream([standard_answer(request) for request in waiting]))
    scene.end(events, "completed", "HITL-10")
    asked = [request for request in requests(events, "look") if request.thread_id is not None]
    threads = {(request.args or {}).get("who"): request.thread_id for request in asked}
    scene.expect(
        len(asked) == 2 and len(set(threads.values())) == 2, "HITL-10", "two children do not ask on two threads", asked
    )
    for who, thread in threads.items():
        args = {"who": who}
        told = recited(events, thread)
        wanted = [{"name": "look", "args": args, "data": result_data("look", args), "is_error": False}]
        scene.expect(told == wanted, "HITL-10", f"the child {who} was told {told}, not {wanted}", events)


# -- time -------------------------------------------------------------------------------------------------------------


@scenario("HITL-11", needs=_HOST)
async def a_person_has_all_the_time(scene: Scene) -> None:
    """A turn that may work for a short time goes on after it has waited for the host longer than that."""
    await _waits(scene, Call(name="look"), lambda request: isinstance(request, ToolRequest))


@scenario("HITL-11", needs=("elicitation", "host_tool_execution"))
async def a_question_from_inside_a_tool_takes_no_time_of_it(scene: Scene) -> None:
    """The same of a tool that has begun and asks a person as it runs: it does its work on a yes that comes late."""
    call = Call(name="deploy", args={"to": "live"}, needs="grant", asks=True)
    stage = await _waits(scene, call, lambda request: isinstance(request, ElicitationRequest))
    scene.ran(stage, ("deploy", {"to": "live"}), rule="HITL-11")


async def _waits(scene: Scene, call: Call, is_slow: Callable[[PendingRequest], bool]) -> Stage:
    """A turn with a limit of time in which what is slow is answered when more than that has passed."""
    # The measure is another turn of the executor's, which works until the same limit ends it. A machine that is too
    # slow for the turn itself is no fault of the executor's: each try allows more, and only the last one counts.
    stage, events = await _limited_to(scene, call, is_slow, 0.2)
    for allowed in (0.8, 3.2):
        if of(events, StreamEnd)[-1].reason == "max_time":
            stage, events = await _limited_to(scene, call, is_slow, allowed)
    scene.end(events, "completed", "HITL-11")
    return stage


async def _limited_to(
    scene: Scene, call: Call, is_slow: Callable[[PendingRequest], bool], allowed: float
) -> tuple[Stage, list[Event]]:
    stage = await scene.stage([Calls(calls=[call]), Say(text="done")])
    clock = await scene.stage([Hold(mark="forever")])
    limits = Constraints(max_time_seconds=allowed)
    try:
        session = await stage.open(stage.options(limits=limits))
    except ConfigurationError as error:
        raise NotApplicable(f"the executor refuses a limit of time: {error.what}") from error
    events = await scene.read(session.stream("go"))
    while session.state == "input_required":
        if any(is_slow(request) for request in session.pending):
            await _time_passes(scene, clock, limits)
        events = await scene.read(session.stream([standard_answer(request) for request in session.pending]))
    return stage, events


async def _time_passes(scene: Scene, clock: Stage, limits: Constraints) -> None:
    with anyio.move_on_after(15):
        ended = await scene.read((await clock.open(clock.options(limits=limits))).stream("go"))
        scene.end(ended, "max_time", "CTL-08")
        return
    raise Break("CTL-08", f"a turn that may work for {limits.max_time_seconds} s was not ended")
