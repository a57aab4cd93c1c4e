"""Requests and answers: which count, who gets them, and that nothing is asked or run twice."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import pytest
from tests.adapters.sessions import Puppet, end_of, kinds, only, read, say, session_of, texts, tool

from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Ask, Call, Calls, Parallel, Say, ScriptedExecutor, Step
from agentsession.protocol import (
    AgentEnd,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    HostCapabilities,
    Message,
    NothingToContinue,
    OpenOptions,
    ProtocolViolation,
    ToolDecision,
    ToolDescriptor,
    ToolGrant,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolResult,
    ToolUpdate,
    accept,
    args_digest,
    decline,
    deny,
    grant,
    result,
)

pytestmark = pytest.mark.anyio


async def after_the_question(session: Any, go: anyio.Event) -> list[Event]:
    """The events of a turn's first stream from when something is asked; then ``go`` is set."""
    async with session.stream("go") as stream:
        while not session.pending:
            await anext(stream)
        go.set()
        return [event async for event in stream]


def three(runs: list[dict[str, Any]]) -> list[list[Step]]:
    def told(memory: Any) -> str:
        return " ".join(
            str(answer.data) if isinstance(answer, ToolResult) else answer.kind for answer in memory.answers.values()
        )

    return [
        [
            Calls(Call("a", id="a"), Call("b", {"n": 1}, needs="grant", run=runs.append, id="b"), Call("c", id="c")),
            Say(told),
        ],
        [Say("next")],
    ]


@pytest.mark.rule("TOOL-06")
async def test_parallel_requests_all_appear_before_any_answer_is_needed(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(three([]), reenter=reenter)) as session:
        events = await say(session)
        assert [event.request_id for event in only(events, ToolRequest)] == ["a", "b", "c"]
        assert end_of(events).pending == ["a", "b", "c"]
        assert [request.request_id for request in session.pending] == ["a", "b", "c"]


@pytest.mark.rule("TOOL-07")
@pytest.mark.rule("TOOL-11")
@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("split", [1, 2, 3])
async def test_answers_come_in_any_order_and_split_and_reach_the_agent_under_their_ids(
    reenter: bool, order: tuple[str, ...], split: int
) -> None:
    runs: list[dict[str, Any]] = []
    answers: dict[str, Any] = {"a": result("a", "ra"), "b": grant("b"), "c": result("c", "rc")}
    async with session_of(ScriptedExecutor(three(runs), reenter=reenter)) as session:
        await say(session)
        chosen = [answers[name] for name in order]
        events = await read(session.stream(chosen[:split]))
        for answer in chosen[split:]:
            assert end_of(events).reason == "input_required"
            assert kinds(events)[-1] == "stream_end"
            events = await read(session.stream(answer))
        assert end_of(events).reason == "completed"
        assert sorted(texts(events)[-1].split()) == ["ra", "rc", "tool_grant"]
        assert runs == [{"n": 1}]
        assert len(only(session.record, ToolRequest)) == 3


@pytest.mark.rule("TOOL-08")
async def test_partial_answers_keep_the_rest_pending_and_nothing_runs_or_is_asked_again(reenter: bool) -> None:
    runs: list[dict[str, Any]] = []
    async with session_of(ScriptedExecutor(three(runs), reenter=reenter)) as session:
        await say(session)
        events = await read(session.stream([grant("b"), result("a", 1)]))
        assert kinds(events) == ["tool_decision", "tool_response", "stream_end"]
        assert end_of(events).pending == ["c"]
        assert [request.request_id for request in session.pending] == ["c"]
        assert runs == []
        with pytest.raises(NothingToContinue):
            session.stream()
        await read(session.stream(result("c", 1)))
        assert runs == [{"n": 1}]


@pytest.mark.rule("TOOL-08")
async def test_answers_between_streams_are_kept_and_the_stream_goes_on_without_input(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(three([]), reenter=reenter)) as session:
        await say(session)
        for answer in (result("c", 3), grant("b"), result("a", 1)):
            (receipt,) = await session.respond(answer)
            assert receipt.ok
            assert session.state == "input_required"
        assert session.pending == []
        kept = [event for event in session.record if event.type in ("tool_response", "tool_decision")]
        assert {event.stream_id for event in kept} == {None}
        events = await read(session.stream())
        assert end_of(events).reason == "completed"


@pytest.mark.rule("TOOL-07")
async def test_a_request_may_be_answered_while_the_stream_runs_and_the_stream_goes_on(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(three([]), reenter=reenter)) as session:
        seen = []
        async with session.stream("go") as stream:
            async for event in stream:
                seen.append(event)
                if isinstance(event, ToolRequest):
                    await session.respond(grant("b") if event.request_id == "b" else result(event.request_id, "now"))
        ends = [end_of(seen).reason]
        while ends[-1] == "input_required":  # it paused before an answer was there
            ends.append(end_of(await read(session.stream())).reason)
        assert ends[-1] == "completed"
        assert len(only(session.record, ToolRequest)) == 3


async def test_what_was_posted_and_answered_before_the_run_returned_enters_again_in_the_same_stream() -> None:
    told: list[str] = []

    async def work(ctx: RunContext) -> None:
        if ctx.input is not None:
            await ctx.post(tool())
            await answered.wait()
        else:
            told.append(str(ctx.answers["look"].data))  # type: ignore[union-attr]  # a result

    answered = anyio.Event()
    async with session_of(work) as session:
        async with session.stream("go") as stream:
            async for event in stream:
                if isinstance(event, ToolRequest):
                    await session.respond(result("look", "early"))
                    answered.set()
        assert stream.end is not None
        assert stream.end.reason == "completed"
        assert told == ["early"]


async def test_a_reentered_run_is_given_early_and_late_answers_and_no_older_ones() -> None:
    told: list[list[str]] = []

    async def work(ctx: RunContext) -> None:
        if ctx.input is not None:
            await ctx.request(tool("old"))
            await ctx.post(tool("early"), tool("late"))
            await answered.wait()
        else:
            told.append(sorted(ctx.answers))

    answered = anyio.Event()
    async with session_of(work) as session:
        await say(session)
        async with session.stream(result("old", 1)) as stream:
            async for event in stream:
                if isinstance(event, ToolRequest) and event.request_id == "early":
                    await session.respond(result("early", 1))
                    answered.set()
        assert stream.end is not None
        assert stream.end.pending == ["late"]
        assert stream.end.data == {"volatile": ["late"], "answered": ["early"]}
        await read(session.stream(result("late", 1)))
        assert told == [["early", "late"]]


@pytest.mark.rule("TOOL-09")
async def test_a_second_answer_is_stale_and_has_no_effect(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(three([]), reenter=reenter)) as session:
        await say(session)
        first, second = await session.respond(result("a", 1), result("a", 2))
        assert (first.status, second.status, second.rule) == ("applied", "stale", "TOOL-09")
        await session.respond(grant("b"), result("c", 3))
        (late,) = await session.respond(deny("b"))
        assert late.status == "stale"
        events = await read(session.stream())
        assert texts(events) == ["1 tool_grant 3"]


@pytest.mark.rule("TOOL-10")
async def test_an_unknown_id_is_not_found_and_opens_nothing() -> None:
    async with session_of(ScriptedExecutor(three([]))) as session:
        await say(session)
        (receipt,) = await session.respond(result("zz", 1))
        assert (receipt.status, receipt.rule) == ("not_found", "TOOL-10")
        before = list(session.record)
        with pytest.raises(NothingToContinue):
            session.stream([result("zz", 1)])
        assert session.record == before
        assert session.state == "input_required"


async def test_receipts_of_a_stream_stand_beside_its_answers() -> None:
    async with session_of(ScriptedExecutor(three([]))) as session:
        await say(session)
        stream = session.stream([result("a", 1), result("zz", 1), result("a", 2)])
        assert [receipt.status for receipt in stream.receipts] == ["applied", "not_found", "stale"]
        await read(stream)


@pytest.mark.rule("TOOL-14")
async def test_an_answer_of_the_wrong_kind_or_name_is_invalid_and_still_pending() -> None:
    async with session_of(ScriptedExecutor(three([]))) as session:
        await say(session)
        wrong = [grant("a"), accept("b"), ToolResult(request_id="c", name="other")]
        receipts = await session.respond(*wrong)
        assert {receipt.status for receipt in receipts} == {"invalid"}
        assert len(session.pending) == 3


@pytest.mark.rule("TOOL-13")
async def test_is_error_is_preserved(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(three([]), reenter=reenter)) as session:
        await say(session)
        await session.respond(result("a", "boom", is_error=True))
        (response,) = only(session.record, ToolResponse)
        assert (response.is_error, response.status, response.data) == (True, "failed", "boom")


@pytest.mark.rule("TOOL-15")
async def test_a_denial_is_decided_and_told_to_the_model_and_never_runs(reenter: bool) -> None:
    runs: list[dict[str, Any]] = []
    async with session_of(ScriptedExecutor(three(runs), reenter=reenter)) as session:
        await say(session)
        events = await read(session.stream([deny("b", "too risky"), result("a", 1), result("c", 1)]))
        (decision,) = only(events, ToolDecision)
        assert (decision.decision, decision.reason) == ("denied", "too risky")
        (response,) = [event for event in only(events, ToolResponse) if event.request_id == "b"]
        assert (response.status, response.data) == ("denied", {"error": "too risky", "denied": True})
        assert runs == []


@pytest.mark.rule("HITL-03")
@pytest.mark.rule("HITL-04")
async def test_a_grant_with_edited_arguments_runs_once_with_those(reenter: bool) -> None:
    runs: list[dict[str, Any]] = []
    async with session_of(ScriptedExecutor(three(runs), reenter=reenter)) as session:
        await say(session)
        events = await read(session.stream([grant("b", {"n": 2}), result("a", 1), result("c", 1)]))
        (decision,) = only(events, ToolDecision)
        assert decision.args == {"n": 2}
        assert decision.args_digest == args_digest({"n": 2})
        assert runs == [{"n": 2}]


@pytest.mark.rule("HITL-04")
@pytest.mark.parametrize("decision", [None, Decision(by="user", reason="only two")])
async def test_a_result_of_edited_arguments_is_recorded_with_those(reenter: bool, decision: Decision | None) -> None:
    async with session_of(ScriptedExecutor(three([]), reenter=reenter)) as session:
        await say(session)
        ran = result("a", 2, args={"n": 2}).model_copy(update={"decision": decision})
        events = await read(session.stream([ran, deny("b"), result("c", 1)]))
        made = next(event for event in only(events, ToolDecision) if event.request_id == "a")
        assert (made.decision, made.args, made.args_digest) == ("granted", {"n": 2}, args_digest({"n": 2}))
        assert made.by == ("user" if decision else "host")


@pytest.mark.rule("HITL-04")
@pytest.mark.parametrize(("edited", "recorded"), [({"n": True}, {"n": True}), ({"n": 1.0}, None), ({"n": 1}, None)])
async def test_arguments_are_edited_where_json_tells_them_apart(
    reenter: bool, edited: dict[str, Any], recorded: dict[str, Any] | None
) -> None:
    async with session_of(ScriptedExecutor(three([]), reenter=reenter)) as session:
        await say(session)
        events = await read(session.stream([grant("b", edited), result("a", 1), result("c", 1)]))
        (decision,) = only(events, ToolDecision)
        assert decision.args == recorded
        assert decision.args is None or decision.args["n"] is True
        assert decision.args_digest == args_digest(edited)


@pytest.mark.rule("HITL-04")
async def test_arguments_that_a_host_edits_in_place_are_recorded_as_edited(reenter: bool) -> None:
    runs: list[dict[str, Any]] = []
    async with session_of(ScriptedExecutor(three(runs), reenter=reenter)) as session:
        await say(session)
        args = next(request.args for request in session.pending if request.request_id == "b")
        args["n"] = 2
        events = await read(session.stream([grant("b", args), result("a", 1), result("c", 1)]))
        (decision,) = only(events, ToolDecision)
        assert decision.args == {"n": 2}
        assert runs == [{"n": 2}]


@pytest.mark.rule("HITL-04")
async def test_arguments_that_a_reader_changes_in_place_are_not_what_is_run() -> None:
    runs: list[dict[str, Any]] = []
    with anyio.fail_after(5):
        async with ScriptedExecutor(three(runs)) as executor:
            session = await executor.open()
            await say(session)
            next(request for request in session.pending if request.request_id == "b").args["n"] = 2  # type: ignore[union-attr, index]
            await read(session.stream([grant("b"), result("a", 1), result("c", 1)]))
            assert runs == [{"n": 1}]


@pytest.mark.rule("TOOL-04")
async def test_edited_arguments_that_do_not_fit_the_tools_schema_are_invalid() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = [ToolDescriptor(name="b", parameters_schema=schema, owner="agent")]
    async with session_of(ScriptedExecutor(three([]), own_tools=tools)) as session:
        await say(session)
        (receipt,) = await session.respond(grant("b", {"n": "two"}))
        assert (receipt.status, receipt.rule) == ("invalid", "TOOL-04")
        assert len(session.pending) == 3


@pytest.mark.rule("TOOL-12")
async def test_progress_is_shown_and_is_no_answer() -> None:
    async with session_of(ScriptedExecutor(three([]))) as session:
        await say(session)
        (receipt,) = await session.respond(ToolProgress(request_id="a", progress=0.5, data={"at": 1}))
        assert receipt.ok
        (update,) = only(session.record, ToolUpdate)
        assert (update.progress, update.data) == (0.5, {"at": 1})
        assert len(session.pending) == 3
        await session.respond(result("a", 1))
        (late,) = await session.respond(ToolProgress(request_id="a"))
        assert late.status == "stale"


@pytest.mark.rule("HITL-01")
@pytest.mark.rule("HITL-02")
@pytest.mark.rule("HITL-08")
async def test_only_a_clear_yes_runs_a_confirmed_tool() -> None:
    runs = 0

    async def work(ctx: RunContext) -> None:
        nonlocal runs
        request = await ctx.emit(tool(f"rm{ctx.turn_number}", needs="none"))
        schema = {"type": "object", "properties": {"confirmed": {"type": "boolean"}}, "required": ["confirmed"]}
        answer = await ctx.elicit("tool_confirmation", "Delete?", schema=schema, tool_request_id=request.request_id)
        if answer.action == "accept":
            runs += 1
            await ctx.respond(request, "gone")
        else:
            await ctx.respond(request, is_error=True, status="denied")

    confirmed: list[Any] = [{"confirmed": False}, {"confirmed": None}, {"confirmed": "yes"}, {}]
    unclear: list[Any] = [*confirmed, "no", False, 0, {"decision": "deny"}]
    async with session_of(work) as session:
        await say(session)
        (question,) = session.pending
        for content in unclear:
            answer = ElicitationAnswer(request_id=question.request_id, action="accept", content=content)
            (receipt,) = await session.respond(answer)
            assert (receipt.status, receipt.rule) == ("invalid", "HITL-08"), content
        (other,) = await session.respond(ElicitationAnswer(request_id=question.request_id, action="later"))
        assert (other.status, other.rule) == ("invalid", "HITL-02")
        assert runs == 0
        await read(session.stream(accept(question.request_id, {"confirmed": True})))
        assert runs == 1
        await say(session, "again")
        await read(session.stream(decline(session.pending[0].request_id)))
        assert runs == 1
        assert [event.status for event in only(session.record, ToolResponse)] == ["completed", "denied"]


@pytest.mark.rule("HITL-09")
async def test_a_decline_with_content_is_invalid() -> None:
    async with session_of(ScriptedExecutor([[Ask("Who?")]])) as session:
        await say(session)
        answer = ElicitationAnswer(request_id=session.pending[0].request_id, action="decline", content="x")
        (receipt,) = await session.respond(answer)
        assert (receipt.status, receipt.rule) == ("invalid", "HITL-09")


@pytest.mark.rule("HITL-07")
@pytest.mark.parametrize("host", [{"elicitation_kinds": []}, {"elicitation_modes": ["form"]}])
async def test_what_the_host_cannot_show_is_requested_and_cancelled_in_one_step(
    reenter: bool, host: dict[str, Any]
) -> None:
    options = OpenOptions(host=HostCapabilities(**host))
    script: list[list[Step]] = [
        [Ask("Who?", url="https://example.org/ask"), Say(lambda memory: memory.last.action)]  # type: ignore[union-attr]
    ]
    async with session_of(ScriptedExecutor(script, reenter=reenter), options) as session:
        events = await say(session)
        place = kinds(events).index("elicitation_request")
        assert isinstance(events[place + 1], ElicitationResponse)
        assert events[place + 1].action == "cancel"  # type: ignore[attr-defined]  # just checked
        assert texts(events)[-1] == "cancel"
        assert end_of(events).reason == "completed"


@pytest.mark.rule("HITL-10")
async def test_a_childs_request_surfaces_on_the_parents_stream_and_the_answer_is_routed_back() -> None:
    script: list[list[Step]] = [
        [
            Parallel(
                ann=[Call("look", {"of": "ann"}, id="ra"), Say("ann has it")],
                bob=[Ask("Bob?"), Say("bob has it")],
            ),
            Say("both"),
        ]
    ]
    async with session_of(ScriptedExecutor(script)) as session:
        events = await say(session)
        asked = [event for event in events if isinstance(event, (ToolRequest, ElicitationRequest))]
        assert sorted((event.thread_id, event.agent_id) for event in asked) == [("ann", "ann"), ("bob", "bob")]
        question = next(event for event in asked if isinstance(event, ElicitationRequest))
        part = await read(session.stream(accept(question.request_id, "yes")))
        assert [(event.thread_id, texts([event])) for event in only(part, Message)] == [("bob", ["bob has it"])]
        assert end_of(part).pending == ["ra"]
        rest = await read(session.stream(result("ra", 1)))
        assert texts(rest) == ["ann has it", "both"]


async def test_parallel_children_pause_when_the_last_of_them_waits() -> None:
    go = anyio.Event()

    async def waiting(ctx: RunContext) -> None:
        await ctx.request(tool("early"))

    async def working(ctx: RunContext) -> None:
        await go.wait()
        await ctx.say("work")
        await ctx.request(tool("late"))

    async def work(ctx: RunContext) -> None:
        await ctx.parallel(("w", waiting), ("k", working))

    async with session_of(work) as session:
        stream = session.stream("go")
        async with stream:
            while "early" not in [request.request_id for request in session.pending]:
                await anext(stream)
            go.set()
            rest = [event async for event in stream]
        assert sorted(end_of(rest).pending) == ["early", "late"]
        assert end_of(await read(session.stream([result("early", 1), result("late", 1)]))).reason == "completed"


async def test_when_a_child_fails_its_siblings_requests_are_settled_and_the_parent_can_go_on() -> None:
    async def asks(ctx: RunContext) -> None:
        await ctx.request(tool("asked"))

    async def fails(ctx: RunContext) -> None:
        await go.wait()
        raise ValueError

    async def work(ctx: RunContext) -> None:
        with pytest.raises(ExceptionGroup):
            await ctx.parallel(("asks", asks), ("fails", fails))
        answer = await ctx.request(tool("next"))
        await ctx.say(f"went on with {answer.data}")  # type: ignore[union-attr]  # a result

    go = anyio.Event()
    async with session_of(work) as session:
        events = await after_the_question(session, go)
        assert end_of(events).pending == ["next"]
        (settled,) = only(events, ToolResponse)
        assert (settled.request_id, settled.status) == ("asked", "cancelled")
        ends = {event.agent_id: event.reason for event in only(events, AgentEnd)}
        assert ends == {"fails": "failed", "asks": "aborted", "puppet": "input_required"}
        (late,) = await session.respond(result("asked", 1))
        assert late.status == "stale"
        assert texts(await read(session.stream(result("next", 7)))) == ["went on with 7"]


@pytest.mark.rule("LIFE-18")
async def test_a_fatal_error_of_a_child_ends_the_stream_also_while_its_siblings_wait() -> None:
    async def asks(ctx: RunContext) -> None:
        await ctx.request(tool("asked"))

    async def fails(ctx: RunContext) -> None:
        while not ctx.is_open_request("asked"):
            await anyio.lowlevel.checkpoint()
        await ctx.emit(Error(status="INTERNAL", message="gone", fatal=True))

    async def work(ctx: RunContext) -> None:
        await ctx.parallel(("asks", asks), ("fails", fails))

    async with session_of(work) as session:
        events = await say(session)
        assert end_of(events).reason == "failed"
        assert [event.status for event in only(events, ToolResponse)] == ["cancelled"]


async def test_a_wait_that_is_given_up_settles_its_request() -> None:
    async def work(ctx: RunContext) -> None:
        with anyio.CancelScope() as scope:

            async def child(inner: RunContext) -> None:
                await inner.request(tool("given-up"))

            async def other(inner: RunContext) -> None:
                await go.wait()
                scope.cancel()
                await anyio.sleep_forever()

            await ctx.parallel(("child", child), ("other", other))
        await ctx.say("went on")

    go = anyio.Event()
    async with session_of(work) as session:
        events = await after_the_question(session, go)
        assert [event.status for event in only(events, ToolResponse)] == ["cancelled"]
        assert texts(events) == ["went on"]


async def test_a_wait_that_dies_between_streams_answers_stale_and_the_stream_goes_on_without_input() -> None:
    give_up = anyio.Event()

    async def work(ctx: RunContext) -> None:
        async def watch() -> None:
            await give_up.wait()
            scope.cancel()

        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(watch)
                await ctx.request(tool("dying"))
            await ctx.say("went on")

    async with session_of(work) as session:
        assert end_of(await say(session)).pending == ["dying"]
        give_up.set()
        while session.pending:
            await anyio.lowlevel.checkpoint()
        (late,) = await session.respond(result("dying", 1))
        assert late.status == "stale"
        events = await read(session.stream())
        assert [event.status for event in only(events, ToolResponse)] == ["cancelled"]
        assert texts(events) == ["went on"]
        assert end_of(events).reason == "completed"


async def test_a_run_that_dies_between_streams_tells_so_in_the_next_one() -> None:
    die = anyio.Event()

    async def work(ctx: RunContext) -> None:
        async def fail() -> None:
            await die.wait()
            raise ValueError

        async with anyio.create_task_group() as group:
            group.start_soon(fail)
            await ctx.request(tool("asked"))

    async with session_of(work) as session:
        await say(session)
        die.set()
        while session.pending:
            await anyio.lowlevel.checkpoint()
        assert session.state == "input_required"
        (late,) = await session.respond(result("asked", 1))
        assert late.status == "stale"
        events = await read(session.stream())
        assert end_of(events).reason == "failed"
        assert session.state == "idle"


async def continued(session: Any) -> Any:
    """The stream that goes on without input, as soon as the run holds something for it."""
    while True:
        try:
            return session.stream()
        except NothingToContinue:
            await anyio.lowlevel.checkpoint()


async def test_events_of_work_that_goes_on_over_a_pause_belong_to_the_next_stream() -> None:
    go = anyio.Event()

    async def work(ctx: RunContext) -> None:
        async def stray() -> None:
            await go.wait()
            await ctx.say("meanwhile")

        async with anyio.create_task_group() as group:
            group.start_soon(stray)
            await ctx.request(tool("asked"))

    async with session_of(work) as session:
        first = await say(session)
        assert end_of(first).pending == ["asked"]
        before = list(session.record)
        go.set()
        stream = await continued(session)
        assert session.record[: len(before)] == before
        events = await read(stream)
        assert texts(events) == ["meanwhile"]
        assert end_of(events).pending == ["asked"]
        assert end_of(await read(session.stream(result("asked", 1)))).reason == "completed"


async def test_an_executor_that_pauses_itself() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.emit(tool("one"))
        await ctx.emit(tool("two"))
        replies = [ctx.expect("one"), ctx.expect("two")]
        assert ctx.pause()
        assert not ctx.pause()
        for reply in replies:
            (answer,) = (await reply.wait()).values()
            await ctx.say(str(answer.data))  # type: ignore[union-attr]  # a result

    async with session_of(work) as session:
        assert end_of(await say(session)).pending == ["one", "two"]
        stream = session.stream(result("one", 1))
        async with stream:
            seen = await anext(stream)
            while not texts([seen]):
                seen = await anext(stream)
            await session.respond(result("two", 2))
            rest = [event async for event in stream]
        assert texts(rest) == ["2"]
        assert end_of(rest).reason == "completed"


async def test_a_kept_run_that_posted_without_waiting_goes_on_when_all_is_answered() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.emit(tool("asked"))
        assert ctx.pause()
        await ctx.attached()
        await ctx.say("on")

    async with session_of(work) as session:
        await say(session)
        assert texts(await read(session.stream(result("asked", 1)))) == ["on"]


async def test_waiting_for_what_was_never_asked_is_refused() -> None:
    async def work(ctx: RunContext) -> None:
        with pytest.raises(ProtocolViolation) as refused:
            ctx.expect("nothing")
        assert refused.value.rule == "TOOL-02"

    async with session_of(work) as session:
        assert end_of(await say(session)).reason == "completed"


async def test_a_request_that_another_part_of_the_run_settles_lets_its_wait_go_on() -> None:
    async def work(ctx: RunContext) -> None:
        async def asks(inner: RunContext) -> None:
            answer = await inner.request(tool("asked"))
            await inner.say(answer.kind)

        async def settles(inner: RunContext) -> None:
            while not inner.is_open_request("asked"):
                await anyio.lowlevel.checkpoint()
            await inner.emit(
                ToolResponse(request_id="asked", name="asked", thread_id="asks", status="cancelled", is_error=True)
            )

        await ctx.parallel(("asks", asks), ("settles", settles))

    async with session_of(work) as session:
        events = await say(session)
        assert "tool_result" in texts(events)
        assert end_of(events).reason == "completed"


async def test_options_of_a_turn_hold_for_all_its_runs() -> None:
    from agentsession.protocol import ExecutionOptions

    models: list[str | None] = []

    async def work(ctx: RunContext) -> None:
        models.append(ctx.options.model)
        if ctx.turn_number == 1 and ctx.input is not None:
            await ctx.post(tool())

    async with session_of(work) as session:
        await read(session.stream("go", ExecutionOptions(model="fast")))
        await read(session.stream(result("look", 1)))
        assert models == ["fast", "fast"]
        await say(session)
        assert models[2:] == [None]


async def test_a_reentered_child_of_a_handoff_works_under_its_agents_name() -> None:
    async def work(ctx: RunContext) -> None:
        if ctx.input is not None:
            await ctx.handoff("expert")
            await ctx.post(tool())
        else:
            await ctx.say("I")

    async with session_of(Puppet(work)) as session:
        first = only(await say(session), AgentEnd)
        assert [(end.agent_id, end.reason, end.data) for end in first] == [
            ("puppet", "handoff", {"to": "expert"}),
            ("expert", "input_required", None),
        ]
        events = await read(session.stream(result("look", 1)))
        (said,) = only(events, Message)
        assert said.agent_id == "expert"


def test_a_grant_is_an_answer_of_its_own_kind() -> None:
    assert isinstance(grant("x"), ToolGrant)
