"""Host tools leave a mark before they run: after a crash they are unknown and not run again; two hosts run one once."""

from __future__ import annotations

import anyio
import pytest

from agentsession.adapters.scripted import Call, Calls, Say, ScriptedExecutor, Step
from agentsession.host import Host, allow_all, hook, tool
from agentsession.protocol import (
    AgentSession,
    Event,
    MemoryRecordStore,
    ToolProgress,
    ToolResponse,
    ToolResultHook,
    ToolUpdate,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rule("TOOL-16"), pytest.mark.rule("HOST-34")]

SCRIPT: list[list[Step]] = [[Calls(Call("pay", {"n": 1}, id="r-1"), Call("look", id="r-2")), Say("done")]]

PAY: list[list[Step]] = [[Call("pay", {"n": 1}, id="r-1")]]


def shop() -> tuple[list[object], list[str]]:
    ran: list[str] = []

    @tool
    def pay(n: int) -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    return [pay, look], ran


async def record_of(session: AgentSession) -> list[Event]:
    return [event async for event in session.events()]


async def test_a_tool_is_in_the_record_before_it_runs() -> None:
    seen: list[bool] = []

    @tool
    async def pay(n: int) -> str:
        starts = [event for event in await record_of(session) if isinstance(event, ToolUpdate)]
        seen.append([event.request_id for event in starts if event.started] == ["r-1"])
        return "paid"

    host = Host(tools=[pay], policy=allow_all)
    async with ScriptedExecutor(PAY) as executor, host.session(executor) as session:
        assert (await host.run_turn(session, "go")).completed
    assert seen == [True]


async def test_what_a_dead_host_had_started_is_unknown_and_what_waited_runs() -> None:
    store = MemoryRecordStore()
    tools, ran = shop()
    async with ScriptedExecutor(SCRIPT, reenter=True, store=store) as executor:
        session = await executor.open(Host(tools=tools, policy=allow_all).options())  # type: ignore[arg-type]
        async with session.stream("go") as stream:
            async for _ in stream:
                pass
        await session.respond(ToolProgress(request_id="r-1", started=True))  # and then its process dies
        await session.aclose()
        after = Host(tools=tools, policy=allow_all)  # type: ignore[arg-type]
        async with after.session(executor, load=session.session_id) as loaded:
            result = await after.run_turn(loaded)
            record = await record_of(loaded)
    assert result.completed
    assert ran == ["look"]
    ended = {event.request_id: event for event in record if isinstance(event, ToolResponse)}
    assert {name: event.status for name, event in ended.items()} == {"r-1": "unknown", "r-2": "completed"}
    assert ended["r-1"].is_error
    assert ended["r-1"].data["error"]["code"] == "outcome_unknown"


async def test_of_two_hosts_at_one_session_one_runs_the_tool() -> None:
    begun, go_on = anyio.Event(), anyio.Event()
    ran: list[str] = []

    def one(name: str) -> Host:
        @tool(name="pay")
        async def pay(n: int) -> str:
            ran.append(name)
            begun.set()
            await go_on.wait()
            return name

        return Host(tools=[pay], policy=allow_all)

    first, second = one("first"), one("second")
    async with ScriptedExecutor(PAY, reenter=True) as executor:
        async with first.session(executor) as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first.run_turn, session, "go")
                await begun.wait()
                result = await second.run_turn(session)
                assert result.unanswered == ("r-1",)
                go_on.set()
    assert ran == ["first"]


async def test_a_result_that_a_hook_still_looks_at_is_not_called_unknown_by_another_host() -> None:
    looking, go_on = anyio.Event(), anyio.Event()

    @hook("after_tool")
    async def looks(result: ToolResultHook) -> None:
        looking.set()
        await go_on.wait()

    tools, ran = shop()
    first = Host(tools=tools, policy=allow_all, hooks=[looks])  # type: ignore[arg-type]
    second = Host(tools=tools, policy=allow_all)  # type: ignore[arg-type]
    async with ScriptedExecutor(PAY, reenter=True) as executor, first.session(executor) as session:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first.run_turn, session, "go")
                await looking.wait()
                result = await second.run_turn(session)
                assert result.unanswered == ("r-1",)
                go_on.set()
        (ended,) = [event for event in await record_of(session) if isinstance(event, ToolResponse)]
    assert (ended.status, ended.data, ran) == ("completed", "paid", ["pay"])


async def test_a_tool_that_is_stopped_is_unknown_not_failed() -> None:
    begun = anyio.Event()

    @tool
    async def pay(n: int) -> str:
        begun.set()
        await anyio.sleep_forever()
        return "never"

    host = Host(tools=[pay], policy=allow_all)
    async with ScriptedExecutor(PAY) as executor, host.session(executor) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            await begun.wait()
            await host.abort("enough")
        record = await record_of(session)
    (ended,) = [event for event in record if isinstance(event, ToolResponse)]
    assert (ended.status, ended.is_error) == ("unknown", True)
    assert ended.data["error"]["code"] == "cancelled"
