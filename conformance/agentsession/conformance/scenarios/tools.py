"""TOOL: requests, their responses, and what runs.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentsession.conformance.hosting import result_data, standard_answer
from agentsession.conformance.looking import of, recited, requests, texts
from agentsession.conformance.scene import Scene, scenario
from agentsession.conformance.script import Call, Calls, Recite, Say, Step
from agentsession.protocol import (
    Event,
    PendingRequest,
    StreamEnd,
    ToolDecision,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    args_digest,
    deny,
    grant,
)

HOST = ("host_tool_execution",)


def a_look(at: str) -> Call:
    return Call(name="look", args={"at": at})


def a_write(path: str) -> Call:
    return Call(name="write", args={"path": path}, needs="grant")


# -- one response for each request ------------------------------------------------------------------------------------


@scenario("TOOL-03", "TOOL-01", "TOOL-02", "TOOL-06", needs=HOST)
async def calls_that_look_alike_are_calls_of_their_own(scene: Scene) -> None:
    """The same calls, twice in a step and again in the next turn, are requests with ids and responses of their own."""
    turn: list[Step] = [Calls(calls=[a_look("a"), a_look("a")]), Say(text="seen")]
    _, session = await scene.opened(turn, turn)
    for _ in range(2):
        await scene.asked(session, 2, "TOOL-06")
        events = await scene.read(session.stream([standard_answer(request) for request in session.pending]))
        scene.end(events, "completed", "TOOL-01")
    record = await scene.record(session)
    asked, answered = requests(record), of(record, ToolResponse)
    ids = {request.request_id for request in asked}
    scene.expect(len(asked) == 4, "TOOL-06", f"{len(asked)} requests for 4 calls", asked)
    scene.expect(len(ids) == 4, "TOOL-03", "a request id was used again", asked)
    scene.expect(
        sorted(response.request_id for response in answered) == sorted(ids),
        "TOOL-01",
        f"{len(answered)} responses to 4 requests",
        answered,
    )


@scenario("TOOL-06", needs=HOST)
async def parallel_calls_are_all_asked_at_once(scene: Scene) -> None:
    """All calls of one model step are in the record, and wait, before any of them is answered."""
    _, session = await scene.opened([Calls(calls=[a_look("a"), a_write("b"), a_look("c")]), Say(text="done")])
    events = await scene.read(session.stream("go"))
    scene.expect(len(requests(events)) == 3, "TOOL-06", f"{len(requests(events))} of 3 calls were asked", events)
    scene.end(events, "input_required", "TOOL-06")
    scene.pending(session, 3, "TOOL-06")
    names = [(request.name, request.args) for request in requests(events)]
    wanted = [("look", {"at": "a"}), ("write", {"path": "b"}), ("look", {"at": "c"})]
    scene.expect(names == wanted, "TOOL-06", f"the calls were shown as {names}, not {wanted}", events)
    answered = of(events, ToolResponse)
    scene.expect(not answered, "TOOL-06", "a call was answered before the host had a say", answered)


@scenario("TURN-01", "TOOL-01", "TOOL-05", needs=HOST)
async def a_new_message_settles_what_waits(scene: Scene) -> None:
    """A message over calls that wait ends their turn in a stream of its own, which cancels them and runs nothing."""
    stage, session = await scene.opened([Calls(calls=[a_look("a"), a_write("b")]), Say(text="no")], [Say(text="new")])
    waiting = await scene.asked(session, 2, "TOOL-06")
    events = await scene.read(session.stream("never mind"))
    scene.end(events, "completed", "TURN-01")
    scene.expect("new" in texts(events), "TURN-01", f"the new turn said {texts(events)}", events)
    record = await scene.record(session)
    old = {event.turn_id for event in record if event.turn_id is not None} - {event.turn_id for event in events}
    ends = [event.reason for event in of(record, StreamEnd) if event.turn_id in old]
    scene.expect(ends == ["input_required", "aborted"], "TURN-01", f"the turn that waited has the ends {ends}", record)
    ended = {event.request_id: event.status for event in of(record, ToolResponse)}
    wanted = {request.request_id: "cancelled" for request in waiting}
    scene.expect(ended == wanted, "TOOL-01", f"what waited is answered {ended}, not cancelled", record)
    got = await session.respond(*[standard_answer(request) for request in waiting])
    scene.receipts(got, "stale", "stale", rule="TOOL-09", what="an answer to what was settled")
    scene.ran(stage, rule="TOOL-05")


@scenario("TOOL-16", needs=HOST)
async def a_start_stays_in_the_record(scene: Scene) -> None:
    """What the host says it runs is recorded as started, once; left without a result it is unknown."""
    _, session = await scene.opened([Calls(calls=[a_look("a"), a_look("b")]), Say(text="no")], [Say(text="new")])
    begun, waiting = await scene.asked(session, 2, "TOOL-06")
    start = ToolProgress(request_id=begun.request_id, started=True)
    scene.receipts(await session.respond(start), "applied", rule="TOOL-16", what="the start of a tool")
    scene.receipts(await session.respond(start), "stale", rule="TOOL-16", what="a second start")
    late = await session.respond(deny(begun.request_id))
    scene.receipts(late, "invalid", rule="TOOL-16", what="a denial of what has started")
    scene.pending(session, 2, "TOOL-16")
    events = await scene.read(session.stream("never mind"))
    scene.end(events, "completed", "TURN-01")
    record = await scene.record(session)
    started = [event.request_id for event in of(record, ToolUpdate) if event.started]
    scene.expect(started == [begun.request_id], "TOOL-16", f"the record has the starts {started}", record)
    ended = {event.request_id: event.status for event in of(record, ToolResponse)}
    wanted = {begun.request_id: "unknown", waiting.request_id: "cancelled"}
    scene.expect(ended == wanted, "TOOL-16", f"what had started and what waited are answered {ended}", record)


# -- what runs --------------------------------------------------------------------------------------------------------


@scenario("TOOL-05", "TOOL-15", "HITL-04", needs=HOST)
async def an_own_tool_runs_when_it_is_granted(scene: Scene) -> None:
    """A tool of the agent's own has not run when its request waits, and runs once when it is granted."""
    stage, session = await scene.opened([Calls(calls=[a_write("a")]), Say(text="done")])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    scene.ran(stage, rule="TOOL-05")
    _is_need(scene, asked, "grant")
    events = await scene.read(session.stream(grant(asked.request_id)))
    scene.end(events, "completed", "TOOL-05")
    scene.ran(stage, ("write", {"path": "a"}), rule="HITL-03")
    _decided(scene, await scene.record(session), asked.request_id, "granted", {"path": "a"})


@scenario("TOOL-05", "TOOL-15", "HITL-04", needs=HOST)
async def an_own_tool_does_not_run_when_it_is_denied(scene: Scene) -> None:
    """A denial is told to the model, and the tool does not run."""
    call = Call(name="denied_write", args={"path": "a"}, needs="grant")
    stage, session = await scene.opened([Calls(calls=[call]), Recite()])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    events = await scene.read(session.stream(standard_answer(asked)))
    scene.ran(stage, rule="TOOL-05")
    scene.end(events, "completed", "TOOL-05")
    record = await scene.record(session)
    _decided(scene, record, asked.request_id, "denied", {"path": "a"})
    answered = of(record, ToolResponse)
    scene.expect(
        [response.status for response in answered] == ["denied"],
        "TOOL-05",
        f"the response to a denied call has the status {[response.status for response in answered]}",
        answered,
    )
    told = recited(events)
    scene.expect(
        told is not None and len(told) == 1 and told[0]["is_error"] is True,
        "TOOL-13",
        f"of the denial the model was told {told}",
        events,
    )


@scenario("TOOL-05", needs=HOST)
async def a_result_of_the_hosts_stands_in_for_a_grant(scene: Scene) -> None:
    """The host may answer a call of an own tool with a result: then the tool does not run."""
    call = Call(name="answered_write", args={"path": "a"}, needs="grant")
    stage, session = await scene.opened([Calls(calls=[call]), Recite()])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    events = await scene.read(session.stream(standard_answer(asked)))
    scene.ran(stage, rule="TOOL-05")
    scene.end(events, "completed", "TOOL-05")
    was_told(scene, events, [(call.name, {"path": "a"}, result_data(call.name, {"path": "a"}))])


@scenario("TOOL-05", needs=HOST)
async def without_a_word_own_tools_wait_too(scene: Scene) -> None:
    """A host that says nothing of own tools is asked about them: nothing runs without an allow."""
    stage, session = await scene.opened([Calls(calls=[a_write("a")]), Say(text="done")], host_tool_execution=None)
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    scene.ran(stage, rule="TOOL-05")
    await scene.read(session.stream(deny(asked.request_id)))
    scene.ran(stage, rule="TOOL-05")


@scenario("TOOL-05", needs=HOST)
async def the_hosts_tools_are_run_by_the_host_alone(scene: Scene) -> None:
    """A call of the host's tool waits for a result, also in a later turn, and nothing answers it before."""
    turn: list[Step] = [Calls(calls=[a_look("a")]), Say(text="seen")]
    stage, session = await scene.opened(turn, turn)
    for _ in range(2):
        (asked,) = await scene.asked(session, 1, "TOOL-05")
        _is_need(scene, asked, "result")
        answered = [event for event in of(await scene.record(session), ToolResponse) if event.source == "agent"]
        scene.expect(not answered, "TOOL-05", "the executor answered a call of the host's tool", answered)
        await scene.read(session.stream(standard_answer(asked)))
    scene.ran(stage, rule="TOOL-05")


_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@scenario("TOOL-04", needs=HOST)
async def edited_arguments_must_fit_the_schema(scene: Scene) -> None:
    """A grant with arguments that the tool's schema refuses is invalid, and the call goes on waiting."""
    call = Call(name="count", args={"n": 1}, needs="grant", parameters=_NUMBER)
    stage, session = await scene.opened([Calls(calls=[call]), Say(text="done")])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    for wrong in ({"n": "two"}, {}, {"n": None}):
        got = await session.respond(grant(asked.request_id, wrong))
        scene.receipts(got, "invalid", rule="TOOL-04", what=f"a grant with {wrong} for {{n: integer}}")
        scene.pending(session, 1, "TOOL-04")
    scene.ran(stage, rule="TOOL-04")
    events = await scene.read(session.stream(grant(asked.request_id)))
    scene.end(events, "completed", "TOOL-04")
    scene.ran(stage, ("count", {"n": 1}), rule="TOOL-04")


@scenario("TOOL-04", needs=HOST)
async def what_the_model_made_up_does_not_reach_the_tool(scene: Scene) -> None:
    """A model's arguments that the declared schema refuses are answered with an error; the tool does not run."""
    call = Call(name="count", args={"n": "many"}, needs="grant", parameters=_NUMBER)
    stage, session = await scene.opened([Calls(calls=[call]), Say(text="sorry")])
    events = await scene.turn(session)
    scene.ran(stage, rule="TOOL-04")
    scene.end(events, "completed", "TOOL-04")
    answered = of(await scene.record(session), ToolResponse)
    scene.expect(
        len(answered) == 1 and answered[0].is_error is True,
        "TOOL-04",
        "no error answers a call whose arguments do not fit",
        answered,
    )


# -- what they look for -----------------------------------------------------------------------------------------------


def _is_need(scene: Scene, asked: PendingRequest, needs: str) -> None:
    got = asked.needs if isinstance(asked, ToolRequest) else asked.type
    scene.expect(got == needs, "TOOL-05", f"a call that needs a {needs} is shown as needing {got}", [asked])


def _decided(scene: Scene, record: list[Event], request_id: str, decision: str, args: dict[str, object]) -> None:
    """One decision on the request, before its response, over the digest of the arguments."""
    about = [event for event in record if getattr(event, "request_id", None) == request_id]
    made = of(about, ToolDecision)
    scene.expect(
        [one.decision for one in made] == [decision],
        "TOOL-15",
        f"the decisions on a request are {[one.decision for one in made]}, not one {decision}",
        about,
    )
    kinds = [event.type for event in about]
    scene.expect(
        kinds.index("tool_decision") < kinds.index("tool_response"),
        "TOOL-15",
        "the decision comes after the response",
        about,
    )
    scene.expect(
        made[0].args_digest == args_digest(args), "HITL-04", "the digest is not that of the decided arguments", made
    )


def was_told(
    scene: Scene, events: list[Event], wanted: Sequence[tuple[str, Mapping[str, str], object]], rule: str = "TOOL-11"
) -> None:
    """What the model was told of its calls: their data, and that none of them failed."""
    told = recited(events)
    expected = [{"name": name, "args": args, "data": data, "is_error": False} for name, args, data in wanted]
    scene.expect(told == expected, rule, f"the model was told {told}, not {expected}", events)
