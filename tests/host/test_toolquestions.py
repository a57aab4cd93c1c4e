"""Questions that a running tool asks the person."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.from_thread
import pytest
import trio.testing
from tests.host.fake_session import FakeSession, call
from tests.host.turns import answer_of, run

from agentsession.host import (
    CallbackChannel,
    Host,
    NoChannel,
    ScriptedChannel,
    ToolContext,
    TurnResult,
    allow_all,
    tool,
)
from agentsession.protocol import ElicitationAnswer, ElicitationRequest, ToolProgress

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


@tool
async def order(context: ToolContext) -> dict[str, Any]:
    answer = await context.ask("Which size?", schema=SCHEMA)
    return {"action": answer.action, "content": answer.content}


async def ordered(channel: Any) -> tuple[FakeSession, Any]:
    session = FakeSession([call("r1", "order")], [])
    await run(Host(tools=[order], policy=allow_all, channel=channel), session)
    return session, answer_of(session, "r1").data


async def test_an_answer_of_the_person_reaches_the_tool_that_asked() -> None:
    channel = ScriptedChannel(answers={"clarification": ("accept", {"size": 3})})
    session, told = await ordered(channel)
    assert told == {"action": "accept", "content": {"size": 3}}
    asked = channel.asked[0][0]
    assert isinstance(asked, ElicitationRequest)
    assert (asked.request_id, asked.tool_request_id, asked.session_id) == ("r1.q1", "r1", "s-1")
    (progress,) = [each for each in session.answers if isinstance(each, ToolProgress)]
    waited = progress.data["asked"].pop("waitedS")
    assert 0 <= waited < 60
    assert progress.data == {"asked": {"kind": "clarification", "message": "Which size?", "action": "accept"}}


async def test_a_question_whose_schema_is_none_fails_before_anybody_is_asked() -> None:
    @tool(name="order", read_only=True)
    async def wrong(context: ToolContext) -> str:
        return (await context.ask("Which size?", schema={"type": "size"})).action

    channel = ScriptedChannel()
    session = FakeSession([call("r1", "order")], [])
    await run(Host(tools=[wrong], policy=allow_all, channel=channel), session)
    assert "the schema of a question is none" in answer_of(session, "r1").data["error"]["message"]
    assert channel.asked == []


@pytest.mark.rule("HITL-08")
async def test_an_answer_that_does_not_fit_is_asked_for_again_and_at_last_is_none() -> None:
    problems: list[str | None] = []

    def ask(request: ElicitationRequest, position: Any) -> ElicitationAnswer:
        problems.append(position.problem)
        return ElicitationAnswer(request_id=request.request_id, action="accept", content={"size": "big"})

    _, told = await ordered(CallbackChannel(ask=ask))
    assert told == {"action": "cancel", "content": None}
    assert [problem is None for problem in problems] == [True, False, False]
    assert "/size" in str(problems[1])


@pytest.mark.parametrize(
    ("channel", "action"),
    [
        (NoChannel(), "decline"),
        (None, "decline"),
        (NoChannel("pause"), "cancel"),
        (ScriptedChannel(answers={"clarification": "decline"}), "decline"),
        (CallbackChannel(ask=lambda request, position: 1 / 0), "cancel"),
    ],
)
async def test_where_nobody_answers_there_is_no_content(channel: Any, action: str) -> None:
    assert (await ordered(channel))[1] == {"action": action, "content": None}


async def test_a_tool_that_is_run_by_hand_can_ask_nobody() -> None:
    assert (await order.run({})).data["action"] == "decline"


async def test_a_sync_tool_asks_from_its_thread() -> None:
    @tool(name="order")
    def sync(context: ToolContext) -> str:
        return anyio.from_thread.run(context.ask, "Sure?").action

    channel = ScriptedChannel(answers={"clarification": "accept"})
    session = FakeSession([call("r1", "order")], [])
    await run(Host(tools=[sync], policy=allow_all, channel=channel), session)
    assert answer_of(session, "r1").data == "accept"


async def test_a_thread_that_was_given_up_asks_nobody_any_more() -> None:
    asked: list[str] = []
    answers: list[ElicitationAnswer] = []
    go_on, ended = threading.Event(), anyio.Event()

    @tool(name="order", timeout_s=0.05)
    def late(context: ToolContext) -> None:
        go_on.wait(10)
        answers.append(anyio.from_thread.run(context.ask, "Sure?"))
        anyio.from_thread.run_sync(ended.set)

    channel = CallbackChannel(ask=lambda request, position: asked.append(request.message))
    session = FakeSession([call("r1", "order")], [])
    with anyio.fail_after(10):
        await run(Host(tools=[late], policy=allow_all, channel=channel), session)
        assert answer_of(session, "r1").data["error"]["code"] == "tool_timeout"
        go_on.set()
        await ended.wait()
    assert asked == []
    assert [answer.action for answer in answers] == ["cancel"]


async def test_what_a_thread_asks_is_withdrawn_when_the_call_is_given_up() -> None:
    asked, withdrawn = anyio.Event(), anyio.Event()

    async def ask(request: ElicitationRequest, position: Any) -> None:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()

    @tool(name="order")
    def sync(context: ToolContext) -> str:
        return anyio.from_thread.run(context.ask, "Sure?").action

    host = Host(tools=[sync], policy=allow_all, channel=CallbackChannel(ask=ask))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, FakeSession([call("r1", "order")], []), "go")
            await asked.wait()
            await host.abort()
            await withdrawn.wait()


@pytest.mark.rule("HITL-11")
def test_the_time_of_the_tools_of_a_turn_is_without_what_people_took() -> None:
    @tool(name="order")
    async def asks_twice(context: ToolContext) -> None:
        await anyio.sleep(60)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(context.ask, "One?")
            tasks.start_soon(context.ask, "Two?")
        await anyio.sleep(5)

    async def ask(request: ElicitationRequest, position: Any) -> ElicitationAnswer:
        await anyio.sleep(3600)
        return ElicitationAnswer(request_id=request.request_id, action="accept")

    async def go() -> TurnResult:
        host = Host(tools=[asks_twice], policy=allow_all, channel=CallbackChannel(ask=ask))
        return await host.run_turn(FakeSession([call("r1", "order")], []), "go")

    result = anyio.run(go, backend="trio", backend_options={"clock": trio.testing.MockClock(autojump_threshold=0)})
    assert (result.people_s, result.tools_s, result.elapsed_s) == (7200, 65, 7265)


@pytest.mark.rule("HITL-11")
@pytest.mark.parametrize(("works_s", "is_late"), [(59, False), (61, True)])
def test_waiting_for_a_person_is_not_the_tools_time(works_s: float, is_late: bool) -> None:
    @tool(name="order", timeout_s=60)
    async def slow(context: ToolContext) -> str:
        async with anyio.create_task_group() as tasks:  # two questions at once: the time stands still for both
            tasks.start_soon(context.ask, "One?")
            tasks.start_soon(context.ask, "Two?")
        await anyio.sleep(works_s)
        return "done"

    async def ask(request: ElicitationRequest, position: Any) -> ElicitationAnswer:
        await anyio.sleep(3600)
        return ElicitationAnswer(request_id=request.request_id, action="accept")

    session = FakeSession([call("r1", "order")], [])

    async def go() -> None:
        await Host(tools=[slow], policy=allow_all, channel=CallbackChannel(ask=ask)).run_turn(session, "go")

    anyio.run(go, backend="trio", backend_options={"clock": trio.testing.MockClock(autojump_threshold=0)})
    assert answer_of(session, "r1").is_error == is_late
