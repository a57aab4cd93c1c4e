"""Sub-agents as calls of tools: the places they wait for, calls handed over to them, and who is said to have worked."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.host.subagents import agent, calls, read_file, responses, run, seen_of_children

from agentsession.adapters.scripted import Call, Delay, Parallel, Say, ScriptedExecutor
from agentsession.host import Host, Namespaced, SubagentTool, TailCall, ToolBox, ToolContext, allow_all, hook, tool
from agentsession.host._child_run import session_id_of
from agentsession.protocol import (
    ConfigurationError,
    Event,
    HookOutcome,
    ToolRequest,
    ToolResponse,
    block,
    modify,
    proceed,
)

pytestmark = pytest.mark.anyio


def _worked(event: ToolResponse) -> str | None:
    told = (event.display or {}).get("subagent") or {}
    found: str | None = told.get("sessionId")
    return found


# --- places -----------------------------------------------------------------------------------------------------------


async def test_an_agent_that_is_at_work_above_is_refused_also_where_its_only_place_is_taken_by_it() -> None:
    seen: list[Event] = []
    async with (
        agent("b", calls("a"), Say("b said")) as b,
        agent("a", calls("b"), Say("a said")) as a,
        agent("root", calls("a")) as root,
    ):
        tools = [SubagentTool(a, tools=["a", "b"], max_parallel=1), SubagentTool(b, tools=["a"])]
        result = await run(Host(tools=tools, policy=allow_all, observer=seen.append), root)
    assert result.completed
    inside = [event for event in seen_of_children(seen) if isinstance(event, ToolResponse)]
    assert inside[0].data["error"]["code"] == "subagent_refused"


async def test_the_places_of_a_provider_are_for_the_calls_that_a_sub_agent_makes() -> None:
    seen: list[Event] = []
    async with (
        agent("fixer", Call("fs_read_file", {"path": "a"}), Say("Mended.")) as fixer,
        agent("coder", calls("fs_fixer")) as coder,
    ):
        inner = ToolBox([read_file, SubagentTool(fixer, tools=["fs_read_file"])])
        host = Host(tools=[Namespaced("fs", inner, max_parallel=1)], policy=allow_all, observer=seen.append)
        await run(host, coder)
    assert responses(seen)["r1"].data == "Mended."
    assert [event.data for event in seen_of_children(seen) if isinstance(event, ToolResponse)] == ["text of a"]


async def test_a_tool_that_runs_a_sub_agent_itself_is_no_way_around_its_refusals() -> None:
    seen: list[Event] = []
    children: list[SubagentTool] = []

    @tool
    async def ask_again(context: ToolContext) -> Any:
        return await children[0].run({"task": "once more"}, context)

    async with (
        agent("fixer", Call("ask_again", {}, id="x"), Say("ok")) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        children.append(SubagentTool(fixer, tools=["ask_again"]))
        await run(Host(tools=[ask_again, *children], policy=allow_all, observer=seen.append), coder)
    (answer,) = [event for event in seen_of_children(seen) if isinstance(event, ToolResponse)]
    assert answer.data["error"]["code"] == "subagent_refused"


# --- handed over ------------------------------------------------------------------------------------------------------


async def test_what_a_sub_agent_does_that_was_handed_a_call_is_progress_of_the_call_that_it_answers() -> None:
    seen: list[Event] = []

    @tool
    async def delegate() -> TailCall:
        return TailCall("fixer", {"task": "do it"})

    async with (
        agent("fixer", Call("read_file", {"path": "a"}), Say("Mended.")) as fixer,
        agent("coder", Call("delegate", {}, id="r1")) as coder,
    ):
        tools = [delegate, read_file, SubagentTool(fixer, tools=["read_file"])]
        await run(Host(tools=tools, policy=allow_all, observer=seen.append), coder)
    assert responses(seen)["r1"].data == "Mended."
    assert [event.name for event in seen_of_children(seen) if isinstance(event, ToolRequest)] == ["read_file"]


# --- who worked -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("does", ["modify", "block"])
async def test_who_worked_is_said_whatever_a_hook_makes_of_the_result(does: str) -> None:
    seen: list[Event] = []

    @hook("after_tool")
    def change(payload: Any) -> HookOutcome:
        return modify(data="other") if does == "modify" else block("not for you")

    async with agent("fixer", Say("Mended.")) as fixer, agent("coder", calls("fixer")) as coder:
        await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, hooks=[change], observer=seen.append), coder)
    answer = responses(seen)["r1"]
    assert answer.data != "Mended."
    assert _worked(answer) == session_id_of(answer.session_id, "r1", "fixer")


async def test_who_worked_is_said_of_a_call_that_was_aborted() -> None:
    seen: list[Event] = []
    working = anyio.Event()

    async def wait() -> None:
        working.set()
        await anyio.sleep_forever()

    async with agent("fixer", Delay(until=wait)) as fixer, agent("coder", calls("fixer")) as coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append)
        async with host.session(coder) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):
                tasks.start_soon(host.run_turn, session, "go")
                await working.wait()
                await host.abort(session=session)
    answer = responses(seen)["r1"]
    assert _worked(answer) == session_id_of(answer.session_id, "r1", "fixer")


async def test_who_worked_is_said_of_a_call_whose_sub_agent_broke() -> None:
    class Broken(ScriptedExecutor):
        async def open(self, *args: Any, **given: Any) -> Any:
            session = await super().open(*args, **given)

            def stream(*_: object) -> Any:
                raise ConfigurationError("no stream")

            session.stream = stream  # type: ignore[method-assign,assignment]  # what an executor of others may do
            return session

    seen: list[Event] = []
    async with Broken([], name="fixer") as fixer, agent("coder", calls("fixer"), Say("ok")) as coder:
        result = await run(Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=seen.append), coder)
    assert result.completed
    answer = responses(seen)["r1"]
    assert answer.data["error"]["code"] == "subagent_failed"
    assert _worked(answer) == session_id_of(answer.session_id, "r1", "fixer")


async def test_hooks_are_told_of_the_sub_agent_over_the_agents_inside_it() -> None:
    paths: list[list[str]] = []

    @hook("before_tool")
    def look(payload: Any) -> HookOutcome:
        if payload.name == "read_file":
            paths.append(payload.principal_path)
        return proceed()

    async with (
        agent("fixer", Parallel(left=[Call("read_file", {"path": "l"})])) as fixer,
        agent("coder", calls("fixer")) as coder,
    ):
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        await run(Host(tools=tools, policy=allow_all, hooks=[look]), coder)
    assert paths == [["coder", "fixer", "left"]]
