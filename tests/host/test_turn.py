"""Whole turns of the host against a played session: tools, pauses, aborts, ends. Approvals: test_turn_approval.py."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio.testing
from tests.host.fake_session import FakeExecutor, FakeSession, Until, call, said
from tests.host.turns import add, answer_of, run

from agentsession.host import (
    Approval,
    CallbackChannel,
    Host,
    PolicyDecision,
    Rule,
    RulePolicy,
    ScriptedChannel,
    ToolContext,
    TurnResult,
    allow_all,
    ask_all,
    deny_all,
    tool,
)
from agentsession.protocol import (
    AgentDescriptor,
    ConfigurationError,
    Event,
    ExecutionOptions,
    InvalidInput,
    MessageInput,
    StreamActive,
    ToolRequest,
    ToolResponse,
    ToolResult,
    result,
)

pytestmark = pytest.mark.anyio


async def test_a_tool_runs_and_the_turn_continues_until_it_is_completed() -> None:
    session = FakeSession([said("wait"), call("r1", "add", a=2, b=3)], [said("5")])
    result = await run(Host(tools=[add], policy=allow_all), session)
    assert result.completed
    assert result.text == "5"
    assert result.messages == ("wait", "5")
    assert answer_of(session, "r1").data == 5
    assert [(item.answer.request_id, item.receipt.status) for item in result.answers] == [("r1", "applied")]


@pytest.mark.rule("TOOL-08")
async def test_an_answer_is_given_while_the_stream_runs_so_that_it_need_not_pause() -> None:
    session = FakeSession([call("r1", "add", a=1), Until(("r1",)), said("done")])
    result = await run(Host(tools=[add], policy=allow_all), session)
    assert result.completed
    assert len([e for e in session.record if e.type == "stream_end"]) == 1


async def test_parallel_requests_run_at_the_same_time() -> None:
    both = anyio.Event()
    inside: list[str] = []

    @tool
    async def meet(name: str) -> str:
        inside.append(name)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return name

    session = FakeSession([call("r1", "meet", name="a"), call("r2", "meet", name="b")], [])
    assert (await run(Host(tools=[meet], policy=allow_all), session)).completed


async def test_no_more_tools_run_at_once_than_the_host_allows() -> None:
    running = 0
    most = 0

    @tool
    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        running -= 1

    session = FakeSession([call(f"r{i}", "busy") for i in range(6)], [])
    assert (await run(Host(tools=[busy], policy=allow_all, max_parallel_tools=2), session)).completed
    assert most == 2


@pytest.mark.parametrize("name", ["subtract", "", "ad"])
async def test_a_tool_that_the_host_does_not_have_is_an_error_result(name: str) -> None:
    session = FakeSession([call("r1", name, a=1)], [said("sorry")])
    result = await run(Host(tools=[add], policy=deny_all), session)
    answer = answer_of(session, "r1")
    assert result.completed
    assert isinstance(answer, ToolResult)
    assert answer.is_error
    assert answer.data["error"]["code"] == "unknown_tool"


async def test_the_outcome_of_a_job_of_the_agents_is_left_to_whoever_has_it() -> None:
    job = call("r1", "add", a=1).model_copy(update={"owner": "agent", "long_running": True})
    session = FakeSession([job], [said("never")])
    result = await run(Host(tools=[add], policy=allow_all), session)
    assert (result.end.reason, session.answers) == ("input_required", [])


@pytest.mark.rule("TOOL-04")
async def test_bad_arguments_are_an_error_result_before_policy_and_person_are_asked() -> None:
    def policy(request: Any) -> PolicyDecision:
        raise AssertionError("asked")

    session = FakeSession([call("r1", "add", a="x")], [])
    await run(Host(tools=[add], policy=policy), session)
    assert answer_of(session, "r1").data["error"] == {
        "code": "invalid_arguments",
        "message": 'expected an integer, got "x"',
        "path": "/a",
        "problems": [{"path": "/a", "message": 'expected an integer, got "x"'}],
    }


@pytest.mark.rule("TOOL-05")
async def test_a_request_that_needs_nothing_and_a_partial_one_are_only_shown() -> None:
    seen: list[Event] = []
    partial = ToolRequest(request_id="r2", name="add", args_delta='{"a":', partial=True)
    session = FakeSession([call("r1", "add", "none", a=1), partial])
    result = await run(Host(tools=[add], policy=allow_all, observer=seen.append), session)
    assert result.completed
    assert session.answers == []
    assert sum(isinstance(event, ToolRequest) for event in seen) == 2


async def test_an_observer_whose_own_awaiting_was_cancelled_changes_nothing(anyio_backend_name: str) -> None:
    if anyio_backend_name == "trio":
        pytest.skip("on trio nobody can raise a cancellation by hand")

    async def a_browser_that_went_away(*args: Any) -> None:
        seen = asyncio.get_running_loop().create_future()
        seen.cancel()
        await seen

    session = FakeSession([call("r1", "add", a=1)], [])
    host = Host(tools=[add], policy=allow_all, observer=a_browser_that_went_away, on_answer=a_browser_that_went_away)
    assert (await run(host, session)).completed
    assert answer_of(session, "r1").data == 2


async def test_a_host_keeps_nothing_of_a_session_that_was_closed_by_hand() -> None:
    host = Host()

    async def leave_one() -> weakref.ref[FakeSession]:  # a frame of its own: whoever reads this one's names keeps them
        first = FakeSession()
        await host.open(FakeExecutor(first), ExecutionOptions(permission_mode="plan"))  # type: ignore[arg-type]
        await first.aclose()
        return weakref.ref(first)

    kept = await leave_one()
    await host.open(FakeExecutor(FakeSession()))  # type: ignore[arg-type]
    gc.collect()
    assert kept() is None


def test_a_tool_that_takes_longer_than_it_may_is_given_up_in_that_time() -> None:
    @tool
    async def slow(a: int) -> int:
        await anyio.sleep(3600)
        return a

    async def turn() -> tuple[FakeSession, TurnResult]:
        session = FakeSession([call("r1", "slow", a=2)], [])
        return session, await Host(tools=[slow], policy=allow_all, tool_timeout_s=60).run_turn(session, "go")

    clock = trio.testing.MockClock(autojump_threshold=0)
    session, result = anyio.run(turn, backend="trio", backend_options={"clock": clock})
    assert answer_of(session, "r1").is_error
    assert round(result.tools_s) == 60


async def test_a_cancel_denies_and_aborts_the_turn() -> None:
    ran: list[int] = []

    @tool
    def note(n: int) -> None:
        ran.append(n)

    channel = ScriptedChannel([Approval.cancel("stop it"), True])
    session = FakeSession([call("r1", "note", n=1), call("r2", "note", n=2)])
    result = await run(Host(tools=[note], policy=ask_all, channel=channel), session)
    assert result.end.reason == "aborted"
    assert ran == []
    assert session.aborts == ["stop it"]
    assert session.pending == []


async def test_a_thread_that_an_abort_leaves_behind_is_reported() -> None:
    started = threading.Event()
    release = threading.Event()

    @tool
    def stuck() -> None:
        started.set()
        release.wait(10)

    session = FakeSession([call("r1", "stuck"), Until(("r1",))])
    host = Host(tools=[stuck], policy=allow_all)
    results: list[TurnResult] = []

    async def turn() -> None:
        results.append(await run(host, session))

    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turn)
                await anyio.to_thread.run_sync(started.wait, 5)
                await host.abort()
    finally:
        release.set()
    assert results[0].end.reason == "aborted"
    assert results[0].still_running == ("r1",)


async def test_a_slow_async_tool_is_cancelled_and_reported() -> None:
    ended: list[str] = []

    @tool(timeout_s=0.05)
    async def slow() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("yes")

    session = FakeSession([call("r1", "slow")], [said("gave up")])
    result = await run(Host(tools=[slow], policy=allow_all), session)
    assert answer_of(session, "r1").data["error"] == {"code": "tool_timeout", "message": "no result within 0.05 s"}
    assert ended == ["yes"]
    assert result.completed
    assert result.still_running == ()


async def test_a_slow_sync_tool_is_given_up_and_its_thread_reported() -> None:
    release = threading.Event()

    @tool(timeout_s=0.5)
    def stuck() -> None:
        release.wait(10)

    session = FakeSession([call("r1", "stuck")], [])
    try:
        result = await run(Host(tools=[stuck], policy=allow_all), session)
    finally:
        release.set()
    error = answer_of(session, "r1").data["error"]
    assert error["code"] == "tool_timeout"
    assert error["stillRunning"] is True
    assert result.still_running == ("r1",)


async def test_progress_is_forwarded_before_the_result() -> None:
    @tool
    def count(upto: int, context: ToolContext) -> str:
        for number in range(upto):
            context.progress(number + 1, upto)
        return "counted"

    session = FakeSession([call("r1", "count", upto=3), Until(("r1",))])
    await run(Host(tools=[count], policy=allow_all), session)
    assert [getattr(answer, "progress", "result") for answer in session.answers] == [1, 2, 3, "result"]


async def test_an_observer_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def observer(event: Event) -> None:
        seen.append(event.type)
        raise ValueError("no")

    session = FakeSession([call("r1", "add", a=1)], [])
    host = Host(tools=[add], policy=allow_all, observer=observer)
    async with host.session(FakeExecutor(session)) as opened:  # type: ignore[arg-type]
        assert (await run(host, opened)).completed  # type: ignore[arg-type]
    assert seen == [event.type for event in session.record]
    assert "observer failed" in caplog.text


async def test_on_ask_pause_leaves_the_request_and_a_later_call_continues() -> None:
    session = FakeSession([call("r1", "add", a=1)], [said("2")])
    host = Host(tools=[add], policy=ask_all, on_ask="pause")
    paused = await run(host, session)
    assert paused.end.reason == "input_required"
    assert paused.unanswered == ("r1",)
    assert session.answers == []
    later = Host(tools=[add], policy=ask_all, channel=ScriptedChannel([True]))
    result = await run(later, session, None)
    assert result.completed
    assert answer_of(session, "r1").data == 2


async def test_answers_made_elsewhere_continue_the_turn() -> None:
    session = FakeSession([call("r1", "add", a=1)], [said("ok")])
    host = Host(tools=[add], policy=ask_all, on_ask="pause")
    await run(host, session)
    assert (await run(host, session, result("r1", 99))).completed
    assert answer_of(session, "r1").data == 99


async def test_a_refused_result_is_never_run_again() -> None:
    runs: list[int] = []

    @tool
    def once() -> None:
        runs.append(1)

    session = FakeSession([call("r1", "once")], [])
    session.refuse["r1"] = 1
    assert (await run(Host(tools=[once], policy=allow_all), session)).completed
    assert runs == [1]
    assert session.answers[-1].data["error"]["code"] == "host_error"  # type: ignore[union-attr]


async def test_abort_cancels_host_tools_and_ends_the_turn() -> None:
    started = anyio.Event()
    ended: list[str] = []

    @tool
    async def slow() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    session = FakeSession([call("r1", "slow"), Until(("r1",))])
    host = Host(tools=[slow], policy=allow_all)
    results: list[TurnResult] = []

    async def turn() -> None:
        results.append(await run(host, session))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            await started.wait()
            await host.abort("enough")
    assert results[0].end.reason == "aborted"
    assert ended == ["cancelled"]
    answer = answer_of(session, "r1")
    assert answer.is_error
    assert answer.data["error"]["code"] == "cancelled"


async def test_an_abort_says_of_a_tool_that_runs_that_it_had_started_and_nothing_of_one_that_waits() -> None:
    started = anyio.Event()
    running: list[str] = []

    @tool
    async def slow(context: ToolContext) -> None:
        running.append(context.request_id)
        started.set()
        await anyio.sleep_forever()

    session = FakeSession([call("r1", "slow"), call("r2", "slow")])
    host = Host(tools=[slow], policy=allow_all, max_parallel_tools=1)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, host, session)
            await started.wait()
            await host.abort("enough")
    assert [answer.request_id for answer in session.answers] == running
    cancelled = [e for e in session.record if isinstance(e, ToolResponse) and e.status == "cancelled"]
    assert [event.request_id for event in cancelled] == [name for name in ("r1", "r2") if name not in running]


async def test_a_tool_that_runs_beside_a_persons_cancel_is_told_to_have_started() -> None:
    started = anyio.Event()

    @tool
    async def slow() -> None:
        started.set()
        await anyio.sleep_forever()

    async def approve(request: Any, decision: Any, position: Any) -> Approval:
        await started.wait()
        return Approval.cancel("stop all of it")

    policy = RulePolicy([Rule("allow", "slow"), Rule("ask_user")])
    session = FakeSession([call("r1", "slow"), call("r2", "add", a=1)], [])
    result = await run(Host(tools=[slow, add], policy=policy, channel=CallbackChannel(approve)), session)
    assert result.end.reason == "aborted"
    assert answer_of(session, "r1").data["error"]["code"] == "cancelled"


async def test_abort_while_a_person_is_asked_between_streams() -> None:
    asked = anyio.Event()

    async def approve(request: Any, decision: Any, position: Any) -> bool:
        asked.set()
        await anyio.sleep_forever()
        return True

    session = FakeSession([call("r1", "add", a=1)])
    host = Host(tools=[add], policy=ask_all, channel=CallbackChannel(approve))
    results: list[TurnResult] = []

    async def turn() -> None:
        results.append(await run(host, session))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            await asked.wait()
            while session.state != "input_required":
                await anyio.lowlevel.checkpoint()
            await host.abort()
    assert results[0].end.reason == "aborted"


async def test_another_clients_answer_ends_the_question_here() -> None:
    asked = anyio.Event()

    async def approve(request: Any, decision: Any, position: Any) -> bool:
        asked.set()
        await anyio.sleep_forever()
        return True

    seen: list[str] = []
    session = FakeSession([call("r1", "add", a=1)], [said("thanks")])
    host = Host(
        tools=[add],
        policy=ask_all,
        channel=CallbackChannel(approve),
        observer=lambda event: seen.append(event.type),
    )
    results: list[TurnResult] = []

    async def turn() -> None:
        results.append(await run(host, session))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            await asked.wait()
            while session.state != "input_required":
                await anyio.lowlevel.checkpoint()
            await session.respond(result("r1", 7))
    assert results[0].completed
    assert results[0].answers == ()
    assert seen == [event.type for event in session.record[1:]]


async def test_cancelling_the_turn_aborts_the_session_and_its_tools() -> None:
    started = anyio.Event()

    @tool
    async def slow() -> None:
        started.set()
        await anyio.sleep_forever()

    session = FakeSession([call("r1", "slow"), Until(("r1",))])
    host = Host(tools=[slow], policy=allow_all)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            await started.wait()
            tasks.cancel_scope.cancel()
    assert session.aborts == ["the host was cancelled"]
    assert session.pending == []
    assert answer_of(session, "r1").data["error"]["code"] == "cancelled"


async def test_a_session_that_fails_at_an_answer_ends_the_turn_with_its_own_exception() -> None:
    class Broken(FakeSession):
        async def respond(self, *answers: Any) -> Any:
            raise RuntimeError("a defect of the executor")

    session = Broken([call("r1", "add", a=1), Until(("r1",))])
    with pytest.raises(RuntimeError, match="a defect of the executor"):
        await run(Host(tools=[add], policy=allow_all), session)
    assert session.aborts == ["the host failed"]


@pytest.mark.parametrize("given", [7, b"go", {"content": "go"}, ["go"], [MessageInput(content="go")]])  # type: ignore[arg-type]
async def test_what_is_neither_message_nor_answers_is_refused_and_starts_nothing(given: Any) -> None:
    session = FakeSession([said("x")])
    with pytest.raises(InvalidInput):
        await run(Host(), session, given)
    assert [event.type for event in session.record] == ["initialize"]
    assert session.aborts == []


async def test_a_second_turn_at_once_is_refused_and_leaves_the_first_alone() -> None:
    started = anyio.Event()
    go_on = anyio.Event()

    @tool
    async def wait() -> None:
        started.set()
        await go_on.wait()

    session = FakeSession([call("r1", "wait")], [])
    host = Host(tools=[wait], policy=allow_all)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            await started.wait()
            with pytest.raises(StreamActive):
                await host.run_turn(session, "again")
            assert session.aborts == []
            go_on.set()


async def test_a_new_message_over_a_pause_does_not_take_the_old_end_for_its_own() -> None:
    seen: list[Event] = []
    session = FakeSession([call("r1", "add", a=1)], [call("r2", "add", a=2)], [said("3")])
    host = Host(
        tools=[add],
        policy=RulePolicy([Rule("ask_user", when=lambda a: a["a"] == 1), Rule("allow")]),
        on_ask="pause",
        observer=seen.append,
    )
    await run(host, session)
    result = await run(host, session)
    assert result.completed
    assert result.text == "3"
    assert [e.seq for e in seen] == list(range(2, session.last_seq + 1))


async def test_the_host_declares_its_tools_and_refuses_an_agent_that_requires_others() -> None:
    session = FakeSession([])
    executor = FakeExecutor(session)
    async with Host(tools=[add]).session(executor) as opened:  # type: ignore[arg-type]
        assert opened is session
    assert [t.name for t in executor.opened[0].execution.tools] == ["add"]
    assert session.closed
    needy = FakeSession([], descriptor=AgentDescriptor(name="needy", executor="fake", required_tools=["search"]))
    with pytest.raises(ConfigurationError, match="requires tools"):
        await Host(tools=[add]).open(FakeExecutor(needy))  # type: ignore[arg-type]
