"""The runs of host tools: what is begun, what is late, what goes on in threads, and what of them reaches the record."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from tests.host.fake_session import FakeSession, call, is_start
from tests.host.turns import answer_of, run

from agentsession.host import (
    Approval,
    CallbackChannel,
    Host,
    ScriptedChannel,
    TailCall,
    Tool,
    allow_all,
    ask_all,
    hook,
    tool,
)
from agentsession.protocol import Answer, ElicitationAnswer, ElicitationRequest, Receipt, ToolDescriptor, ToolProgress

pytestmark = pytest.mark.anyio


def of_a_dictionary(name: str, function: Any) -> Tool:
    """A tool that has its arguments in its hands, as they are."""
    return Tool(ToolDescriptor(name=name, owner="host", parameters_schema={"type": "object"}), function)


class Elsewhere(FakeSession):
    """Another host has started every tool just before."""

    def _respond(self, answer: Answer) -> Receipt:
        if is_start(answer):
            return Receipt(status="stale", request_id=answer.request_id, rule="TOOL-16")
        return super()._respond(answer)


@pytest.mark.rule("TOOL-16")
async def test_a_tool_whose_start_was_refused_does_not_run_and_its_request_is_left_alone() -> None:
    ran: list[str] = []

    @tool
    def pay() -> None:
        ran.append("pay")

    session = Elsewhere([call("r1", "pay")], [])
    result = await run(Host(tools=[pay], policy=allow_all), session)
    assert (ran, session.answers, result.unanswered) == ([], [], ("r1",))


class Slow(FakeSession):
    """It takes its time to say that a start is recorded."""

    def __init__(self, *streams: list[Any]) -> None:
        super().__init__(*streams)
        self.asked, self.go_on = anyio.Event(), anyio.Event()

    async def respond(self, *answers: Answer) -> list[Receipt]:
        receipts = await super().respond(*answers)
        if is_start(answers[0]):
            self.asked.set()
            with anyio.CancelScope(shield=True):
                await self.go_on.wait()
        return receipts


@pytest.mark.rule("CTL-01")
async def test_a_tool_that_was_stopped_while_its_start_was_recorded_does_not_begin() -> None:
    ran: list[str] = []

    @tool
    async def pay() -> None:
        ran.append("pay")

    session, host = Slow([call("r1", "pay")], []), Host(tools=[pay], policy=allow_all)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            await session.asked.wait()
            async with anyio.create_task_group() as aborting:
                aborting.start_soon(host.abort)
                await anyio.wait_all_tasks_blocked()
                session.go_on.set()
    assert ran == []


async def test_a_tool_that_fails_because_its_time_is_up_is_told_as_late() -> None:
    @tool(timeout_s=0.05)
    async def dig() -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            raise ValueError("broken off") from None

    session = FakeSession([call("r1", "dig")], [])
    await run(Host(tools=[dig], policy=allow_all), session)
    assert answer_of(session, "r1").data["error"]["code"] == "tool_timeout"


async def test_as_many_sync_tools_run_at_once_as_the_host_lets_whatever_the_event_loop_has_threads_for() -> None:
    together = threading.Barrier(45)  # more than an event loop has threads for

    @tool
    def dig(n: int) -> int:
        return together.wait(10)

    session = FakeSession([call(f"r{n}", "dig", n=n) for n in range(45)], [])
    with anyio.fail_after(20):
        await Host(tools=[dig], policy=allow_all, max_parallel_tools=45).run_turn(session, "go")
    assert sorted(answer_of(session, f"r{n}").data for n in range(45)) == list(range(45))


async def test_what_a_tool_does_to_arguments_that_a_person_gave_does_not_reach_the_record() -> None:
    def empties(args: dict[str, Any]) -> str:
        args["names"].clear()
        return "done"

    session = FakeSession([call("r1", "wipe", names=["a"])], [])
    channel = ScriptedChannel([Approval.yes({"names": ["b"]})])
    await run(Host(tools=[of_a_dictionary("wipe", empties)], policy=ask_all, channel=channel), session)
    assert answer_of(session, "r1").args == {"names": ["b"]}


async def test_what_a_tool_that_was_handed_over_to_does_to_them_does_not_reach_it_either() -> None:
    edited = {"names": ["b"]}

    def empties(args: dict[str, Any]) -> str:
        args["names"].clear()
        return "done"

    tools = [
        of_a_dictionary("first", lambda args: TailCall("last", {"names": ["a"]})),
        of_a_dictionary("last", empties),
    ]
    channel = ScriptedChannel({"first": True, "last": Approval.yes(edited)})
    told: list[Any] = []

    @hook("after_tool", match="last")
    def watch(payload: Any) -> None:
        told.append(payload.args)

    session = FakeSession([call("r1", "first")], [])
    await run(Host(tools=tools, policy=ask_all, channel=channel, hooks=[watch]), session)
    assert told == [{"names": ["b"]}]
    assert answer_of(session, "r1").data == "done"
    (step,) = [each.data["tail_call"] for each in session.answers if isinstance(each, ToolProgress)]
    assert step["args"] == edited == {"names": ["b"]}


async def test_what_a_tool_left_behind_asks_is_withdrawn_when_the_tool_has_returned() -> None:
    asked, withdrawn = anyio.Event(), anyio.Event()

    async def ask(request: ElicitationRequest, position: Any) -> ElicitationAnswer | None:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()
        return None

    session = FakeSession([call("r1", "dig")], [])
    async with anyio.create_task_group() as left:

        async def dig(args: dict[str, Any], context: Any) -> str:
            left.start_soon(context.ask, "Sure?")
            await asked.wait()
            return "dug"

        host = Host(tools=[of_a_dictionary("dig", dig)], policy=allow_all, channel=CallbackChannel(ask=ask))
        await run(host, session)
        with anyio.fail_after(5):
            await withdrawn.wait()
    assert answer_of(session, "r1").data == "dug"
