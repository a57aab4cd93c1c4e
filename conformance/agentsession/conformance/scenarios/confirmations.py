"""HITL-01 to HITL-04: a clear yes lets a tool run once, as it was approved, and nothing else does.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from agentsession.conformance.hosting import edited_args
from agentsession.conformance.looking import of, recited, requests
from agentsession.conformance.scenarios.tools import was_told
from agentsession.conformance.scene import Scene, scenario
from agentsession.conformance.script import Call, Calls, Recite, Say, Step
from agentsession.protocol import (
    AgentSession,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    PendingRequest,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    accept,
    args_digest,
    cancel,
    decline,
    grant,
)

_ASK: Final = ("elicitation",)
_HOST: Final = ("host_tool_execution",)


def a_wipe(path: str) -> Call:
    return Call(name="wipe", args={"path": path}, needs="none", confirm=True)


@scenario("HITL-01", "HITL-03", needs=_ASK)
async def a_gated_tool_waits_for_a_yes(scene: Scene) -> None:
    """A tool that wants a confirmation has not run when the question waits, and runs once on a yes, as it was shown."""
    stage, session = await scene.opened([Calls(calls=[a_wipe("a")]), Recite()])
    asked = await question_of(scene, session)
    _about_call(scene, await scene.record(session), asked, "wipe")
    scene.ran(stage, rule="HITL-01")
    events = await scene.read(session.stream(accept(asked.request_id)))
    scene.ran(stage, ("wipe", {"path": "a"}), rule="HITL-03")
    scene.end(events, "completed", "HITL-03")
    told = recited(events)
    ran = [{"name": "wipe", "args": {"path": "a"}, "data": {"ran": "wipe", "args": {"path": "a"}}, "is_error": False}]
    scene.expect(told == ran, "HITL-03", f"the model was told {told}, not {ran}", events)


@scenario("HITL-01", "HITL-02", "HITL-03", needs=_ASK)
async def of_two_gated_tools_each_has_its_own_answer(scene: Scene) -> None:
    """Two tools want a confirmation at once: the one that gets a yes runs, the other does not, in either order."""
    turn: list[Step] = [Calls(calls=[a_wipe("a"), a_wipe("b")]), Say(text="done")]
    stage, session = await scene.opened(turn, turn)
    ran: list[tuple[str, dict[str, Any]]] = []
    for yes in ("b", "a"):
        waiting = await scene.asked(session, 2, "HITL-01")
        scene.ran(stage, *ran, rule="HITL-01")
        paths = _paths(await scene.record(session))
        for question in reversed(waiting):
            said_yes = paths[getattr(question, "tool_request_id", None)] == yes
            answer = (accept if said_yes else decline)(question.request_id)
            scene.receipts(await session.respond(answer), "applied", rule="TOOL-07", what="an answer")
        events = await scene.read(session.stream())
        ran.append(("wipe", {"path": yes}))
        others = [run for run in stage.play.runs if (run.name, dict(run.args)) not in ran]
        scene.expect(not others, "HITL-02", f"{others} ran, which got no yes", events)
        scene.ran(stage, *ran, rule="HITL-03")
        scene.end(events, "completed", "HITL-02")


@scenario("TOOL-08", "TOOL-11", needs=_ASK)
async def a_sibling_of_a_gated_tool_keeps_its_result(scene: Scene) -> None:
    """A call that needs nobody runs once beside one that wants a confirmation, and the model is told of both."""
    free = Call(name="list", args={"of": "all"}, needs="none")
    stage, session = await scene.opened([Calls(calls=[a_wipe("a"), free]), Recite()])
    events = await scene.read(session.stream("go"))
    scene.end(events, "input_required", "HITL-01")
    (asked,) = scene.pending(session, 1, "HITL-01")
    events = await scene.read(session.stream(accept(asked.request_id)))
    scene.end(events, "completed", "TOOL-08")
    calls = [("wipe", {"path": "a"}), ("list", {"of": "all"})]
    scene.ran(stage, *calls, rule="TOOL-08")
    was_told(scene, events, [(name, args, {"ran": name, "args": args}) for name, args in calls])


@scenario("HITL-01", "HITL-02", needs=("elicitation", "host_tool_execution"))
async def a_tool_that_asks_from_inside_stops_at_its_question(scene: Scene) -> None:
    """A granted tool that asks as it runs does its work on a yes alone."""
    turn: list[Step] = [
        Calls(calls=[Call(name="deploy", args={"to": "live"}, needs="grant", asks=True)]),
        Say(text="done"),
    ]
    stage, session = await scene.opened(turn, turn)
    for ran, answer in ((False, decline), (True, accept)):
        (asked,) = await scene.asked(session, 1, "TOOL-05")
        scene.ran(stage, rule="TOOL-05")
        events = await scene.read(session.stream(grant(asked.request_id)))
        scene.end(events, "input_required", "HITL-01")
        (question,) = scene.pending(session, 1, "HITL-01")
        scene.ran(stage, rule="HITL-01")
        events = await scene.read(session.stream(answer(question.request_id)))
        scene.ran(stage, *[("deploy", {"to": "live"})] * ran, rule="HITL-03" if ran else "HITL-02")
        scene.end(events, "completed", "HITL-02")


@scenario("HITL-02", needs=_ASK)
async def a_no_runs_nothing(scene: Scene) -> None:
    """Decline, cancel and an option that nobody offered run nothing, and leave no result."""
    turn: list[Step] = [Calls(calls=[a_wipe("a")]), Say(text="done")]
    stage, session = await scene.opened(turn, turn)
    for answer in (decline, cancel):
        asked = await question_of(scene, session)
        got = await session.respond(ElicitationAnswer(request_id=asked.request_id, action="yes_to_all"))
        scene.expect(not any(one.ok for one in got), "HITL-02", "an option that nobody offered was taken for an answer")
        scene.pending(session, 1, "HITL-02")
        events = await scene.read(session.stream(answer(asked.request_id)))
        scene.ran(stage, rule="HITL-02")
        _not_run(scene, events)


@scenario("HITL-02", needs=_ASK)
async def a_deadline_is_no_yes(scene: Scene) -> None:
    """A question that is not answered until the turn's deadline runs nothing, and a yes that comes later is stale."""
    stage = await scene.stage([Calls(calls=[a_wipe("a")]), Say(text="done")])
    soon = datetime.now(UTC) + timedelta(milliseconds=100)
    session = await stage.open(stage.options(deadline=soon.isoformat(timespec="milliseconds")))
    async with session.events(follow=True) as reader:
        await scene.read(session.stream("go"))
        scene.ran(stage, rule="HITL-01")
        # The moment may have come before the question was asked: then the stream that asked is the last.
        while (await scene.until(reader, StreamEnd)).reason == "input_required":
            pass
    asked = of(await scene.record(session), ElicitationRequest)
    for question in asked:
        scene.receipts(
            await session.respond(accept(question.request_id)), "stale", rule="HITL-02", what="a yes after the deadline"
        )
    scene.ran(stage, rule="HITL-02")
    _not_run(scene, await scene.record(session))
    scene.pending(session, 0, "HITL-02")


@scenario("HITL-03", "HITL-04", "TOOL-15", needs=_HOST)
async def what_was_approved_is_what_runs(scene: Scene) -> None:
    """A tool that is granted with edited arguments runs once, with these; the decision holds them and their digest."""
    call = Call(name="write", args={"path": "a", "edit": {"path": "b"}}, needs="grant")
    stage, session = await scene.opened([Calls(calls=[call]), Say(text="done")])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    scene.ran(stage, rule="TOOL-05")
    edited = edited_args(call.args) or {}
    events = await scene.read(session.stream(grant(asked.request_id, edited)))
    scene.ran(stage, ("write", edited), rule="HITL-03")
    scene.end(events, "completed", "HITL-03")
    made = of(await scene.record(session), ToolDecision)
    scene.expect(len(made) == 1, "TOOL-15", f"{len(made)} decisions on one request", made)
    scene.expect(made[0].args == edited, "HITL-04", "the decision does not hold the edited arguments", made)
    scene.expect(
        made[0].args_digest == args_digest(edited), "HITL-04", "the digest is not that of the edited arguments", made
    )


@scenario("HITL-03", needs=_HOST)
async def an_edit_may_leave_no_arguments(scene: Scene) -> None:
    """A tool that is granted with arguments of which the host has left none runs with none."""
    call = Call(name="write", args={"path": "a", "edit": {}}, needs="grant")
    stage, session = await scene.opened([Calls(calls=[call]), Say(text="done")])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    events = await scene.read(session.stream(grant(asked.request_id, {})))
    scene.ran(stage, ("write", {}), rule="HITL-03")
    scene.end(events, "completed", "HITL-03")


@scenario("HITL-04", needs=_HOST)
async def an_approval_is_of_what_was_asked(scene: Scene) -> None:
    """Who changes the arguments in an event that was read changes nothing of what is decided on and run."""
    call = Call(name="write", args={"path": "a", "to": ["x"]}, needs="grant")
    stage, session = await scene.opened([Calls(calls=[call]), Say(text="done")])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    original: dict[str, Any] = {"path": "a", "to": ["x"]}
    for event in requests([*await scene.record(session), *of(session.pending, ToolRequest)]):
        if event.args is not None:
            event.args["path"] = "evil"
            event.args["to"].append("y")
    await session.respond(grant(asked.request_id))
    try:
        await scene.read(session.stream())
    finally:
        for event in requests(await scene.record(session)):
            if event.args is not None:  # the record is the executor's own: put back what was changed in it
                event.args.update(original)
    scene.ran(stage, ("write", original), rule="HITL-04")


# -- what they look for -----------------------------------------------------------------------------------------------


async def question_of(scene: Scene, session: AgentSession) -> PendingRequest:
    """Start a turn and read it to the one question that waits."""
    (asked,) = await scene.asked(session, 1, "HITL-01")
    scene.expect(isinstance(asked, ElicitationRequest), "HITL-01", "what waits is no question", [asked])
    return asked


def _about_call(scene: Scene, record: Sequence[Event], asked: PendingRequest, name: str) -> None:
    about = {request.request_id: request for request in requests(record, name)}
    kind = getattr(asked, "kind", None)
    scene.expect(
        kind == "tool_confirmation" and getattr(asked, "tool_request_id", None) in about,
        "HITL-01",
        "the confirmation does not say which call it is about",
        [*about.values(), asked],
    )


def _paths(record: Sequence[Event]) -> dict[str | None, str]:
    return {request.request_id: str((request.args or {}).get("path")) for request in requests(record)}


def _not_run(scene: Scene, events: Sequence[Event]) -> None:
    ran = [event for event in of(events, ToolResponse) if event.status in ("completed", "failed")]
    ran = [event for event in ran if not event.is_error]
    scene.expect(not ran, "HITL-02", "a tool that was not confirmed has a result", ran)
