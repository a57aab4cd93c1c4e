"""TOOL: the host's answers, in any order, of any kind, at any time.

Not for: verdicts, or what a record alone shows (``engine.py``). Rules carried: those named at each scenario.
May import: ``agentsession.protocol``, anyio, ``scene``, ``script`` and what they build on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from agentsession.conformance.hosting import result_data, standard_answer
from agentsession.conformance.looking import of, recited, requests, texts
from agentsession.conformance.scenarios.tools import HOST, a_look, a_write, was_told
from agentsession.conformance.scene import Scene, scenario
from agentsession.conformance.script import Ask, Call, Calls, Recite, Say, Step
from agentsession.protocol import (
    Answer,
    Event,
    NothingToContinue,
    PendingRequest,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    accept,
    deny,
    grant,
    result,
)


@scenario("TOOL-07", "TOOL-11", needs=HOST)
async def answers_come_in_any_order(scene: Scene) -> None:
    """Whatever order three answers come in, and by whatever call, each is taken for its own request."""
    turn: list[Step] = [Calls(calls=[a_look("a"), a_write("b"), a_look("c")]), Recite()]
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
        was_told(scene, events, wanted)
        scene.ran(stage, *[("write", {"path": "b"})] * (number + 1), rule="TOOL-07")


@scenario("TOOL-07", "TOOL-11", needs=HOST)
async def an_answer_may_come_as_soon_as_it_is_asked_for(scene: Scene) -> None:
    """A request is answered in the moment it is read, while its stream still runs; the turn goes on with the answer."""
    _, session = await scene.opened([Calls(calls=[a_look("a"), a_look("b")]), Recite()])
    events: list[Event] = []
    stream = session.stream("go")
    while True:
        async with stream:
            async for event in stream:
                events.append(scene.saw(event))
                if isinstance(event, ToolRequest) and not event.partial:
                    got = await session.respond(standard_answer(event))
                    scene.receipts(got, "applied", rule="TOOL-07", what="an answer while the stream runs")
        if session.state != "input_required":
            break
        stream = session.stream()
    scene.end(events, "completed", "TOOL-07")
    was_told(scene, events, [("look", {"at": at}, result_data("look", {"at": at})) for at in ("a", "b")])


@scenario("TOOL-11", needs=HOST)
async def each_result_is_told_as_that_of_its_call(scene: Scene) -> None:
    """Results of three calls of one tool, given in reverse, reach the model each as the result of its own call."""
    _, session = await scene.opened([Calls(calls=[a_look("a"), a_look("b"), a_look("c")]), Recite()])
    waiting = await scene.asked(session, 3, "TOOL-06")
    events = await scene.read(session.stream([standard_answer(request) for request in reversed(waiting)]))
    scene.end(events, "completed", "TOOL-11")
    was_told(scene, events, [("look", {"at": at}, result_data("look", {"at": at})) for at in ("a", "b", "c")])


@scenario("TOOL-08", needs=HOST)
async def partial_answers_leave_the_rest_waiting(scene: Scene) -> None:
    """Of three calls one is answered at a time: the others wait on, nothing is asked again, no tool runs twice, and the
    model goes on only when all are answered."""
    calls = [a_look("a"), a_write("b"), Call(name="wipe", args={"path": "c"}, needs="grant")]
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
    scene.ran(stage, ("write", {"path": "b"}), ("wipe", {"path": "c"}), rule="TOOL-08", twice="TOOL-08")


@scenario("TOOL-09", needs=HOST)
async def the_first_answer_counts(scene: Scene) -> None:
    """A second answer to a call is stale, whatever it says and whenever it comes, and changes nothing."""
    _, session = await scene.opened([Calls(calls=[a_look("a"), a_look("b")]), Recite()])
    first, second = await scene.asked(session, 2, "TOOL-06")
    await session.respond(standard_answer(first))
    before = await scene.settled(session)
    got = await session.respond(result(first.request_id, "other"))
    scene.receipts(got, "stale", rule="TOOL-09", what="a second answer")
    await scene.unchanged(session, before, "TOOL-09", "a stale answer")
    events = await scene.read(session.stream([result(first.request_id, "another"), standard_answer(second)]))
    scene.end(events, "completed", "TOOL-09")
    was_told(
        scene, events, [("look", {"at": at}, result_data("look", {"at": at})) for at in ("a", "b")], rule="TOOL-09"
    )
    before = await scene.settled(session)
    got = await session.respond(result(first.request_id, "late"))
    scene.receipts(got, "stale", rule="TOOL-09", what="an answer after the turn")

    async def late() -> None:
        session.stream(result(first.request_id, "late"))

    await scene.refused(late, NothingToContinue, "TOOL-09", "stream(an answer to what is over)")
    await scene.unchanged(session, before, "TOOL-09", "a stale answer")


@scenario("TOOL-09", needs=HOST)
async def a_second_grant_runs_nothing(scene: Scene) -> None:
    """A call that is granted twice, or granted and then denied, runs once."""
    stage, session = await scene.opened([Calls(calls=[a_write("a"), a_look("b")]), Say(text="done")])
    write, look = await scene.asked(session, 2, "TOOL-06")
    await session.respond(grant(write.request_id))
    got = await session.respond(grant(write.request_id, {"path": "z"}), deny(write.request_id))
    scene.receipts(got, "stale", "stale", rule="TOOL-09", what="an answer to a granted call")
    events = await scene.read(session.stream(standard_answer(look)))
    scene.end(events, "completed", "TOOL-09")
    scene.ran(stage, ("write", {"path": "a"}), rule="TOOL-09", twice="TOOL-09")


@scenario("TOOL-10")
async def an_answer_to_nothing_is_not_found(scene: Scene) -> None:
    """An answer with an id that the session has never given is not found, and leaves nothing in the record."""
    _, session = await scene.opened([Say(text="hello")])
    for _ in range(2):
        before = await scene.settled(session)
        got = await session.respond(result("r-of-nobody", 1), accept("q-of-nobody"))
        scene.receipts(got, "not_found", "not_found", rule="TOOL-10", what="an answer to an id that is unknown")
        await scene.unchanged(session, before, "TOOL-10", "an answer to an id that is unknown")
        await scene.read(session.stream("go"))


@scenario("TOOL-10", needs=HOST)
async def an_answer_counts_in_its_own_session(scene: Scene) -> None:
    """The id of a request of one session is not found in another, and the request goes on waiting."""
    stage, session = await scene.opened([Calls(calls=[a_look("a")]), Say(text="done")])
    other = await stage.open()
    (asked,) = await scene.asked(session, 1)
    got = await other.respond(result(asked.request_id, "wrong door"))
    # Each session counts its own ids, so the other one may by chance have used the same id: it has none yet.
    scene.receipts(got, "not_found", rule="TOOL-10", what="an answer to another session's request")
    scene.pending(session, 1, "TOOL-10")


@scenario("TOOL-14", needs=HOST)
async def an_answer_must_fit_its_request(scene: Scene) -> None:
    """An answer of the wrong kind, or for another tool's name, is invalid, and the request goes on waiting."""
    stage, session = await scene.opened([Calls(calls=[a_look("a"), a_write("b")]), Say(text="done")])
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


@scenario("TOOL-12", "TOOL-02", needs=HOST)
async def progress_stops_at_the_response(scene: Scene) -> None:
    """Progress is shown while a call waits, answers nothing, and is stale when the call is answered."""
    _, session = await scene.opened([Calls(calls=[a_look("a"), a_look("b")]), Say(text="done")])
    first, second = await scene.asked(session, 2, "TOOL-06")
    got = await session.respond(ToolProgress(request_id=first.request_id, progress=1, total=4))
    scene.receipts(got, "applied", rule="TOOL-12", what="progress of a call that waits")
    scene.pending(session, 2, "TOOL-12")
    await session.respond(standard_answer(first))
    late = await session.respond(ToolProgress(request_id=first.request_id, progress=2, total=4))
    scene.expect(not any(got.ok for got in late), "TOOL-12", "progress of a call that was answered was taken")
    events = await scene.read(session.stream(standard_answer(second)))
    scene.end(events, "completed", "TOOL-12")
    shown = of(await scene.record(session), ToolUpdate)
    scene.expect(
        [update.progress for update in shown] in ([], [1]), "TOOL-12", "progress was shown after the response", shown
    )


@scenario("TOOL-13", needs=HOST)
async def a_failure_is_told_as_one(scene: Scene) -> None:
    """That a host's tool failed is in the record and is told to the model; a result is told as none."""
    _, session = await scene.opened([Calls(calls=[Call(name="bad_look", args={"at": "a"}), a_look("b")]), Recite()])
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


@scenario("TOOL-13", "SEC-01", needs=HOST)
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
    failed = [item["is_error"] for item in told or ()]
    scene.expect(failed == [True], "TOOL-13", f"the model was told {told}", events)


# -- what they look for -----------------------------------------------------------------------------------------------


def _still(scene: Scene, pending: Sequence[PendingRequest], *wanted: PendingRequest) -> None:
    ids = [request.request_id for request in pending]
    scene.expect(
        sorted(ids) == sorted(request.request_id for request in wanted),
        "TOOL-08",
        f"{len(ids)} requests wait, not the {len(wanted)} that were not answered",
        list(pending),
    )
