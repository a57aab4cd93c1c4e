"""TOOL: requests, answers, and what becomes of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from agentsession.conformance.hosting import result_data, standard_answer
from agentsession.conformance.looking import of, recited, requests, texts
from agentsession.conformance.scene import Scene, scenario
from agentsession.conformance.script import Ask, Call, Calls, Recite, Say, Step
from agentsession.protocol import (
    Answer,
    Event,
    NothingToContinue,
    PendingRequest,
    ToolDecision,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    accept,
    args_digest,
    deny,
    grant,
    result,
)

_HOST = ("host_tool_execution",)


def _look(at: str) -> Call:
    return Call(name="look", args={"at": at})


def _write(path: str) -> Call:
    return Call(name="write", args={"path": path}, needs="grant")


# -- one response for each request ------------------------------------------------------------------------------------


@scenario("TOOL-03", "TOOL-01", "TOOL-02", "TOOL-06", needs=_HOST)
async def calls_that_look_alike_are_calls_of_their_own(scene: Scene) -> None:
    """The same calls, twice in a step and again in the next turn, are requests with ids and responses of their own."""
    turn: list[Step] = [Calls(calls=[_look("a"), _look("a")]), Say(text="seen")]
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


@scenario("TOOL-06", needs=_HOST)
async def parallel_calls_are_all_asked_at_once(scene: Scene) -> None:
    """All calls of one model step are in the record, and wait, before any of them is answered."""
    _, session = await scene.opened([Calls(calls=[_look("a"), _write("b"), _look("c")]), Say(text="done")])
    events = await scene.read(session.stream("go"))
    scene.expect(len(requests(events)) == 3, "TOOL-06", f"{len(requests(events))} of 3 calls were asked", events)
    scene.end(events, "input_required", "TOOL-06")
    scene.pending(session, 3, "TOOL-06")
    names = [(request.name, request.args) for request in requests(events)]
    wanted = [("look", {"at": "a"}), ("write", {"path": "b"}), ("look", {"at": "c"})]
    scene.expect(names == wanted, "TOOL-06", f"the calls were shown as {names}, not {wanted}", events)
    answered = of(events, ToolResponse)
    scene.expect(not answered, "TOOL-06", "a call was answered before the host had a say", answered)


# -- what runs --------------------------------------------------------------------------------------------------------


@scenario("TOOL-05", "TOOL-15", "HITL-04", needs=_HOST)
async def an_own_tool_runs_when_it_is_granted(scene: Scene) -> None:
    """A tool of the agent's own has not run when its request waits, and runs once when it is granted."""
    stage, session = await scene.opened([Calls(calls=[_write("a")]), Say(text="done")])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    scene.ran(stage, rule="TOOL-05")
    _is_need(scene, asked, "grant")
    events = await scene.read(session.stream(grant(asked.request_id)))
    scene.end(events, "completed", "TOOL-05")
    scene.ran(stage, ("write", {"path": "a"}), rule="HITL-03")
    _decided(scene, await scene.record(session), asked.request_id, "granted", {"path": "a"})


@scenario("TOOL-05", "TOOL-15", "HITL-04", needs=_HOST)
async def an_own_tool_does_not_run_when_it_is_denied(scene: Scene) -> None:
    """A denial is told to the model, and the tool does not run."""
    stage, session = await scene.opened([Calls(calls=[_write("a")]), Recite()])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    events = await scene.read(session.stream(deny(asked.request_id, "not today")))
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


@scenario("TOOL-05", needs=_HOST)
async def a_result_of_the_hosts_stands_in_for_a_grant(scene: Scene) -> None:
    """The host may answer a call of an own tool with a result: then the tool does not run."""
    stage, session = await scene.opened([Calls(calls=[_write("a")]), Recite()])
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    given = result_data("write", {"path": "a"})
    events = await scene.read(session.stream(result(asked.request_id, given)))
    scene.ran(stage, rule="TOOL-05")
    scene.end(events, "completed", "TOOL-05")
    _told(scene, events, [("write", {"path": "a"}, given)])


@scenario("TOOL-05", needs=_HOST)
async def without_a_word_own_tools_wait_too(scene: Scene) -> None:
    """A host that says nothing of own tools is asked about them: nothing runs without an allow."""
    stage, session = await scene.opened([Calls(calls=[_write("a")]), Say(text="done")], host_tool_execution=None)
    (asked,) = await scene.asked(session, 1, "TOOL-05")
    scene.ran(stage, rule="TOOL-05")
    await scene.read(session.stream(deny(asked.request_id)))
    scene.ran(stage, rule="TOOL-05")


@scenario("TOOL-05", needs=_HOST)
async def the_hosts_tools_are_run_by_the_host_alone(scene: Scene) -> None:
    """A call of the host's tool waits for a result, also in a later turn, and nothing answers it before."""
    turn: list[Step] = [Calls(calls=[_look("a")]), Say(text="seen")]
    stage, session = await scene.opened(turn, turn)
    for _ in range(2):
        (asked,) = await scene.asked(session, 1, "TOOL-05")
        _is_need(scene, asked, "result")
        answered = [event for event in of(await scene.record(session), ToolResponse) if event.source == "agent"]
        scene.expect(not answered, "TOOL-05", "the executor answered a call of the host's tool", answered)
        await scene.read(session.stream(standard_answer(asked)))
    scene.ran(stage, rule="TOOL-05")


_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@scenario("TOOL-04", needs=_HOST)
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


@scenario("TOOL-04", needs=_HOST)
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


# -- answers ----------------------------------------------------------------------------------------------------------


@scenario("TOOL-07", "TOOL-11", needs=_HOST)
async def answers_come_in_any_order(scene: Scene) -> None:
    """Whatever order three answers come in, and by whatever call, each is taken for its own request."""
    turn: list[Step] = [Calls(calls=[_look("a"), _write("b"), _look("c")]), Recite()]
    stage, session = await scene.opened(*[turn] * 6)
    for number, order in enumerate(itertools.permutations(range(3))):
        waiting = await scene.asked(session, 3, "TOOL-06")
        answers = [standard_answer(waiting[place]) for place in order]
        if number % 3 == 0:
            events = await scene.read(session.stream(answers))
        elif number % 3 == 1:
            for answer in answers:
                scene.receipts(await session.respond(answer), "applied", rule="TOOL-07", what="an answer")
            events = await scene.read(session.stream())
        else:
            for answer in answers[:2]:
                scene.end(await scene.read(session.stream(answer)), "input_required", "TOOL-08")
            events = await scene.read(session.stream(answers[2]))
        scene.end(events, "completed", "TOOL-07")
        look = [result_data("look", {"at": place}) for place in ("a", "c")]
        ran = {"ran": "write", "args": {"path": "b"}}
        wanted = [("look", {"at": "a"}, look[0]), ("write", {"path": "b"}, ran), ("look", {"at": "c"}, look[1])]
        _told(scene, events, wanted)
        scene.ran(stage, *[("write", {"path": "b"})] * (number + 1), rule="TOOL-07")


@scenario("TOOL-11", needs=_HOST)
async def each_result_is_told_as_that_of_its_call(scene: Scene) -> None:
    """Results of three calls of one tool, given in reverse, reach the model each as the result of its own call."""
    _, session = await scene.opened([Calls(calls=[_look("a"), _look("b"), _look("c")]), Recite()])
    waiting = await scene.asked(session, 3, "TOOL-06")
    events = await scene.read(session.stream([standard_answer(request) for request in reversed(waiting)]))
    scene.end(events, "completed", "TOOL-11")
    _told(scene, events, [("look", {"at": at}, result_data("look", {"at": at})) for at in ("a", "b", "c")])


@scenario("TOOL-08", needs=_HOST)
async def partial_answers_leave_the_rest_waiting(scene: Scene) -> None:
    """Of three calls one is answered at a time: the others wait on, nothing is asked again, no tool runs twice, and the
    model goes on only when all are answered."""
    calls = [_look("a"), _write("b"), Call(name="wipe", args={"path": "c"}, needs="grant")]
    stage, session = await scene.opened([Calls(calls=calls), Say(text="went on")])
    look, write, wipe = await scene.asked(session, 3, "TOOL-06")
    scene.receipts(await session.respond(standard_answer(look)), "applied", rule="TOOL-08", what="an answer")
    _still(scene, session.pending, write, wipe)
    events = await scene.read(session.stream(grant(write.request_id)))
    scene.expect("went on" not in texts(events), "TOOL-08", "the model went on before all was answered", events)
    scene.end(events, "input_required", "TOOL-08")
    _still(scene, session.pending, wipe)
    scene.expect(
        all(run.name != "wipe" for run in stage.play.runs), "TOOL-05", "a tool ran by the grant of another", events
    )
    events = await scene.read(session.stream(grant(wipe.request_id)))
    scene.end(events, "completed", "TOOL-08")
    scene.expect("went on" in texts(events), "TOOL-08", "the model did not go on when all was answered", events)
    asked = requests(await scene.record(session))
    scene.expect(len(asked) == 3, "TOOL-08", f"{len(asked)} requests for 3 calls: some were asked again", asked)
    scene.ran(stage, ("write", {"path": "b"}), ("wipe", {"path": "c"}), rule="TOOL-08")


@scenario("TOOL-09", needs=_HOST)
async def the_first_answer_counts(scene: Scene) -> None:
    """A second answer to a call is stale, whatever it says and whenever it comes, and changes nothing."""
    _, session = await scene.opened([Calls(calls=[_look("a"), _look("b")]), Recite()])
    first, second = await scene.asked(session, 2, "TOOL-06")
    await session.respond(standard_answer(first))
    before = session.last_seq
    got = await session.respond(result(first.request_id, "other"))
    scene.receipts(got, "stale", rule="TOOL-09", what="a second answer")
    scene.expect(session.last_seq == before, "TOOL-09", "a stale answer left events", await scene.record(session))
    events = await scene.read(session.stream([result(first.request_id, "another"), standard_answer(second)]))
    scene.end(events, "completed", "TOOL-09")
    _told(scene, events, [("look", {"at": at}, result_data("look", {"at": at})) for at in ("a", "b")], rule="TOOL-09")
    before = session.last_seq
    got = await session.respond(result(first.request_id, "late"))
    scene.receipts(got, "stale", rule="TOOL-09", what="an answer after the turn")

    async def late() -> None:
        session.stream(result(first.request_id, "late"))

    await scene.refused(late, NothingToContinue, "TOOL-09", "stream(an answer to what is over)")
    scene.expect(session.last_seq == before, "TOOL-09", "a stale answer left events", await scene.record(session))


@scenario("TOOL-09", needs=_HOST)
async def a_second_grant_runs_nothing(scene: Scene) -> None:
    """A call that is granted twice, or granted and then denied, runs once."""
    stage, session = await scene.opened([Calls(calls=[_write("a"), _look("b")]), Say(text="done")])
    write, look = await scene.asked(session, 2, "TOOL-06")
    await session.respond(grant(write.request_id))
    got = await session.respond(grant(write.request_id, {"path": "z"}), deny(write.request_id))
    scene.receipts(got, "stale", "stale", rule="TOOL-09", what="an answer to a granted call")
    events = await scene.read(session.stream(standard_answer(look)))
    scene.end(events, "completed", "TOOL-09")
    scene.ran(stage, ("write", {"path": "a"}), rule="TOOL-09")


@scenario("TOOL-10")
async def an_answer_to_nothing_is_not_found(scene: Scene) -> None:
    """An answer with an id that the session has never given is not found, and leaves nothing in the record."""
    _, session = await scene.opened([Say(text="hello")])
    for _ in range(2):
        before = session.last_seq
        got = await session.respond(result("r-of-nobody", 1), accept("q-of-nobody"))
        scene.receipts(got, "not_found", "not_found", rule="TOOL-10", what="an answer to an id that is unknown")
        scene.expect(session.last_seq == before, "TOOL-10", "it left events", await scene.record(session))
        await scene.read(session.stream("go"))


@scenario("TOOL-10", needs=_HOST)
async def an_answer_counts_in_its_own_session(scene: Scene) -> None:
    """The id of a request of one session is not found in another, and the request goes on waiting."""
    stage, session = await scene.opened([Calls(calls=[_look("a")]), Say(text="done")])
    other = await stage.open()
    (asked,) = await scene.asked(session, 1)
    got = await other.respond(result(asked.request_id, "wrong door"))
    # Each session counts its own ids, so the other one may by chance have used the same id: it has none yet.
    scene.receipts(got, "not_found", rule="TOOL-10", what="an answer to another session's request")
    scene.pending(session, 1, "TOOL-10")


@scenario("TOOL-14", needs=_HOST)
async def an_answer_must_fit_its_request(scene: Scene) -> None:
    """An answer of the wrong kind, or for another tool's name, is invalid, and the request goes on waiting."""
    stage, session = await scene.opened([Calls(calls=[_look("a"), _write("b")]), Say(text="done")])
    look, write = await scene.asked(session, 2, "TOOL-06")
    wrong: dict[str, Answer] = {
        "a grant for a tool of the host's": grant(look.request_id),
        "a person's answer to a call": accept(look.request_id),
        "a result under another tool's name": result(look.request_id, 1).model_copy(update={"name": "write"}),
        "a person's yes to a call that needs a grant": accept(write.request_id),
        "a grant under another tool's name": grant(write.request_id).model_copy(update={"name": "look"}),
        "progress of a tool of the agent's own": ToolProgress(request_id=write.request_id, progress=0.5),
    }
    for what, answer in wrong.items():
        scene.receipts(await session.respond(answer), "invalid", rule="TOOL-14", what=what)
        scene.pending(session, 2, "TOOL-14")
    scene.ran(stage, rule="TOOL-05")
    right = [
        standard_answer(request).model_copy(update={"name": name})
        for request, name in ((look, "look"), (write, "write"))
    ]
    events = await scene.read(session.stream(right))
    scene.end(events, "completed", "TOOL-14")


@scenario("TOOL-14", needs=("elicitation",))
async def a_question_is_answered_by_a_person(scene: Scene) -> None:
    """A tool's result or a grant is no answer to a question."""
    _, session = await scene.opened([Ask(message="Which colour?"), Say(text="done")])
    (asked,) = await scene.asked(session, 1)
    for answer in (result(asked.request_id, "blue"), grant(asked.request_id), deny(asked.request_id)):
        scene.receipts(await session.respond(answer), "invalid", rule="TOOL-14", what=f"a {answer.kind} to a question")
        scene.pending(session, 1, "TOOL-14")
    scene.end(await scene.read(session.stream(standard_answer(asked))), "completed", "TOOL-14")


@scenario("TOOL-12", "TOOL-02", needs=_HOST)
async def progress_stops_at_the_response(scene: Scene) -> None:
    """Progress is shown while a call waits, answers nothing, and is stale when the call is answered."""
    _, session = await scene.opened([Calls(calls=[_look("a"), _look("b")]), Say(text="done")])
    first, second = await scene.asked(session, 2, "TOOL-06")
    got = await session.respond(ToolProgress(request_id=first.request_id, progress=1, total=4))
    scene.receipts(got, "applied", rule="TOOL-12", what="progress of a call that waits")
    scene.pending(session, 2, "TOOL-12")
    await session.respond(standard_answer(first))
    (late,) = await session.respond(ToolProgress(request_id=first.request_id, progress=2, total=4))
    scene.expect(not late.ok, "TOOL-12", "progress of a call that was answered was taken")
    events = await scene.read(session.stream(standard_answer(second)))
    scene.end(events, "completed", "TOOL-12")
    shown = of(await scene.record(session), ToolUpdate)
    scene.expect(
        [update.progress for update in shown] in ([], [1]), "TOOL-12", "progress was shown after the response", shown
    )


@scenario("TOOL-13", needs=_HOST)
async def a_failure_is_told_as_one(scene: Scene) -> None:
    """That a host's tool failed is in the record and is told to the model; a result is told as none."""
    _, session = await scene.opened([Calls(calls=[Call(name="bad_look", args={"at": "a"}), _look("b")]), Recite()])
    waiting = await scene.asked(session, 2, "TOOL-06")
    events = await scene.read(session.stream([standard_answer(request) for request in waiting]))
    scene.end(events, "completed", "TOOL-13")
    answered = {response.name: response.is_error for response in of(await scene.record(session), ToolResponse)}
    scene.expect(
        answered == {"bad_look": True, "look": False}, "TOOL-13", f"is_error is recorded as {answered}", events
    )
    told = recited(events)
    scene.expect(
        told is not None and [item["is_error"] for item in told] == [True, False],
        "TOOL-13",
        f"the model was told {told}",
        events,
    )


@scenario("TOOL-13", "SEC-01", needs=_HOST)
async def an_own_tool_that_raises_has_failed(scene: Scene) -> None:
    """An exception in a tool is an error that the model reads, without a traceback, and the turn goes on."""
    call = Call(name="crash", args={"at": "a"}, needs="grant", fails=True)
    stage, session = await scene.opened([Calls(calls=[call]), Recite()])
    events = await scene.turn(session)
    scene.end(events, "completed", "TOOL-13")
    scene.ran(stage, ("crash", {"at": "a"}), rule="TOOL-05")
    answered = of(await scene.record(session), ToolResponse)
    scene.expect(
        [(response.is_error, response.status) for response in answered] == [(True, "failed")],
        "TOOL-13",
        "a tool that raised is not recorded as failed",
        answered,
    )
    told = recited(events)
    scene.expect(told is not None and told[0]["is_error"] is True, "TOOL-13", f"the model was told {told}", events)


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


def _still(scene: Scene, pending: Sequence[PendingRequest], *wanted: PendingRequest) -> None:
    ids = [request.request_id for request in pending]
    scene.expect(
        sorted(ids) == sorted(request.request_id for request in wanted),
        "TOOL-08",
        f"{len(ids)} requests wait, not the {len(wanted)} that were not answered",
        list(pending),
    )


def _told(
    scene: Scene, events: list[Event], wanted: Sequence[tuple[str, Mapping[str, str], object]], rule: str = "TOOL-11"
) -> None:
    """What the model was told of its calls: their data, and that none of them failed."""
    told = recited(events)
    expected = [{"name": name, "args": args, "data": data, "is_error": False} for name, args, data in wanted]
    scene.expect(told == expected, rule, f"the model was told {told}, not {expected}", events)
