"""Sub-agents and control: abort reaches all depths, children end first; an abort or a steer of one is for that one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from tests.host.subagents import agent, calls, read_file, responses, run, seen_of_children

from agentsession.adapters.scripted import Call, Calls, Delay, Raise, Say, ScriptedExecutor, Step
from agentsession.host import CallbackChannel, Child, Host, Rule, RulePolicy, SubagentTool, TurnResult, allow_all, tool
from agentsession.protocol import AgentSession, Event, Message, StreamEnd, ToolResponse, plain_text

pytestmark = pytest.mark.anyio


async def _ends(session: AgentSession) -> list[str]:
    return [event.reason async for event in session.events() if isinstance(event, StreamEnd)]


async def test_an_abort_reaches_a_tool_at_any_depth_and_the_deepest_ends_first() -> None:
    inside = anyio.Event()
    seen: list[Event] = []
    order: list[str] = []
    stopped: list[str] = []

    @tool
    async def work() -> None:
        inside.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("work")

    async with (
        agent("b", Call("work", {}, id="w"), Say("never")) as b,
        agent("a", calls("b"), Say("never")) as a,
        agent("root", calls("a"), Say("never")) as root,
    ):
        for executor in (a, b, root):
            original = executor.open

            async def open_(*args: object, _original: object = original, **given: object) -> AgentSession:
                session: AgentSession = await _original(*args, **given)  # type: ignore[operator]  # a method
                abort = session.abort

                async def aborting(reason: str | None = None) -> object:
                    done = await abort(reason)
                    order.append(session.descriptor.name)
                    return done

                session.abort = aborting  # type: ignore[method-assign,assignment]  # to see the order
                return session

            executor.open = open_  # type: ignore[method-assign,assignment]  # to see the order
        tools = [work, SubagentTool(a, tools=["b", "work"]), SubagentTool(b, tools=["work"])]
        host = Host(tools=tools, policy=allow_all, observer=seen.append)
        async with host.session(root) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):
                tasks.start_soon(host.run_turn, session, "go")
                await inside.wait()
                await host.abort("stop", session=session)
                assert await _ends(session) == ["input_required", "aborted"]
                assert host.children(session) == []
    assert stopped == ["work"]
    assert order == ["b", "a", "root"]
    assert responses(seen)["r1"].data["error"]["code"] == "cancelled"


async def test_a_tool_that_was_stopped_inside_a_sub_agent_is_reported_as_such_in_its_record() -> None:
    inside = anyio.Event()
    records: list[Event] = []

    @tool
    async def work() -> None:
        inside.set()
        await anyio.sleep_forever()

    async with agent("fixer", Call("work", {}, id="w"), Say("never")) as fixer, agent("coder", calls("fixer")) as coder:
        host = Host(tools=[work, SubagentTool(fixer, tools=["work"])], policy=allow_all)
        async with host.session(coder) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):
                tasks.start_soon(host.run_turn, session, "go")
                await inside.wait()
                (child,) = host.children(session)
                await host.abort(session=session)
                records = [event async for event in child.session.events()]
    (answer,) = [event for event in records if isinstance(event, ToolResponse)]
    assert answer.data["error"]["code"] == "cancelled"
    assert records[-1].type == "stream_end"


async def test_an_abort_of_a_sub_agent_is_not_its_callers_and_says_that_tools_ran() -> None:
    inside = anyio.Event()
    seen: list[Event] = []
    results: list[TurnResult] = []

    @tool
    async def work() -> None:
        inside.set()
        await anyio.sleep_forever()

    async with (
        agent("fixer", Call("work", {}, id="w"), Say("never")) as fixer,
        agent("coder", calls("fixer"), Say("I'll do it.")) as coder,
    ):
        host = Host(tools=[work, SubagentTool(fixer, tools=["work"])], policy=allow_all, observer=seen.append)
        async with host.session(coder) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):

                async def turn() -> None:
                    results.append(await host.run_turn(session, "go"))

                tasks.start_soon(turn)
                await inside.wait()
                (child,) = host.children(session)
                await host.abort("too slow", session=child.session)
    assert (results[0].completed, results[0].text) == (True, "I'll do it.")
    answer = responses(seen)["r1"]
    assert (answer.status, answer.data["error"]["code"]) == ("unknown", "cancelled")
    assert "partial" in answer.data["error"]["message"]


async def test_cancelling_the_turn_aborts_a_sub_agent_whose_person_is_asked() -> None:
    asked = anyio.Event()
    seen: list[Event] = []
    children: list[Child] = []

    async def approve(*_: object) -> bool:
        asked.set()
        await anyio.sleep_forever()
        return True

    policy = RulePolicy([Rule("ask_user", "read_file"), Rule("allow", "*")])
    async with agent("fixer", Call("read_file", {"path": "a"})) as fixer, agent("coder", calls("fixer")) as coder:
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        host = Host(tools=tools, policy=policy, channel=CallbackChannel(approve), observer=seen.append)
        async with host.session(coder) as session:
            with anyio.fail_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(host.run_turn, session, "go")
                    await asked.wait()
                    children += host.children(session)
                    tasks.cancel_scope.cancel()
            assert (await _ends(children[0].session))[-1] == "aborted"
            assert (await _ends(session))[-1] == "aborted"


async def test_an_abort_while_a_sub_agent_is_being_opened_leaves_no_session_open() -> None:
    opening = anyio.Event()
    opened: list[AgentSession] = []

    class Slow(ScriptedExecutor):
        async def open(self, *args: Any, **given: Any) -> Any:
            session = await super().open(*args, **given)
            opened.append(session)

            async def events(*_: object, **__: object) -> AsyncGenerator[Event]:
                opening.set()
                await anyio.sleep_forever()
                yield  # type: ignore[misc]  # never reached: it makes this a generator

            session.events = events  # type: ignore[method-assign,assignment]  # the host reads them first
            return session

    async with Slow([[Say("never")]], name="fixer") as fixer, agent("coder", calls("fixer")) as coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all)
        async with host.session(coder) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):
                tasks.start_soon(host.run_turn, session, "go")
                await opening.wait()
                await host.abort(session=session)
            assert [child.state for child in opened] == ["closed"]


async def test_closing_the_session_leaves_what_waits_in_a_sub_agent_for_whoever_loads_it() -> None:
    asked = anyio.Event()
    results: list[TurnResult] = []
    children: list[Child] = []

    async def approve(*_: object) -> bool:
        asked.set()
        await anyio.sleep_forever()
        return True

    policy = RulePolicy([Rule("ask_user", "read_file"), Rule("allow", "*")])
    async with (
        agent("fixer", Call("read_file", {"path": "a"}), reenter=True) as fixer,
        agent("coder", calls("fixer"), reenter=True) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        host = Host(tools=tools, policy=policy, channel=CallbackChannel(approve))
        with anyio.fail_after(5):
            session = await host.open(coder)
            async with anyio.create_task_group() as tasks:

                async def turn() -> None:
                    results.append(await host.run_turn(session, "go"))

                tasks.start_soon(turn)
                await asked.wait()
                children += host.children(session)
                await host.close(session)
        assert results[0].end.reason == "input_required"
        assert await _ends(children[0].session) == ["input_required"]


async def test_a_steer_of_a_sub_agent_goes_to_it_alone() -> None:
    working, go = anyio.Event(), anyio.Event()
    seen: list[Event] = []

    async def wait() -> None:
        working.set()
        await go.wait()

    steps: list[Step] = [Delay(until=wait), Say("ok")]
    async with agent("fixer", *steps) as fixer, agent("coder", calls("fixer"), Say("Done.")) as coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append)
        async with host.session(coder) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):
                tasks.start_soon(host.run_turn, session, "go")
                await working.wait()
                (child,) = host.children(session)
                assert (await child.session.steer("not the tests")).ok
                go.set()

    def users(events: list[Event]) -> list[str]:
        return [plain_text(item.content) for item in events if isinstance(item, Message) and item.role == "user"]

    assert users(seen_of_children(seen)) == ["do it", "not the tests"]
    assert users(seen) == ["go"]


async def test_a_sub_agent_that_never_ends_holds_an_abort_no_longer_than_its_grace() -> None:
    inside, release = anyio.Event(), anyio.Event()

    async def stubborn() -> None:
        inside.set()
        with anyio.CancelScope(shield=True):
            await release.wait()

    async with (
        agent("fixer", Delay(until=stubborn), grace_s=0.05) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, abort_grace_s=0.1)
        async with host.session(coder) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):
                tasks.start_soon(host.run_turn, session, "go")
                await inside.wait()
                await host.abort(session=session)
                assert (await _ends(session))[-1] == "aborted"
                release.set()


async def test_siblings_of_a_failed_sub_agent_go_on() -> None:
    seen: list[Event] = []
    failed, go = anyio.Event(), anyio.Event()

    async def wait() -> None:
        await go.wait()

    def observe(event: Event) -> None:
        seen.append(event)
        if isinstance(event, ToolResponse) and event.request_id == "r1":
            failed.set()
            go.set()

    async with (
        agent("left", Raise(ValueError())) as left,
        agent("right", Delay(until=wait), Say("right")) as right,
        agent("coder", Calls(calls("left", "r1"), calls("right", "r2")), Say("ok")) as coder,
    ):
        tools = [SubagentTool(left), SubagentTool(right)]
        await run(Host(tools=tools, policy=allow_all, observer=observe), coder)
    assert failed.is_set()
    assert responses(seen)["r2"].data == "right"


async def test_a_sub_agent_that_is_stopped_before_any_tool_of_it_ran_has_had_no_effects() -> None:
    working = anyio.Event()
    seen: list[Event] = []

    async def wait() -> None:
        working.set()
        await anyio.sleep_forever()

    async with agent("fixer", Delay(until=wait)) as fixer, agent("coder", calls("fixer"), Say("Then I.")) as coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append)
        async with host.session(coder) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):
                tasks.start_soon(host.run_turn, session, "go")
                await working.wait()
                (child,) = host.children(session)
                await host.abort(session=child.session)
    answer = responses(seen)["r1"]
    assert (answer.status, answer.data["error"]["code"]) == ("failed", "cancelled")
    assert "before any of its tools ran" in answer.data["error"]["message"]
