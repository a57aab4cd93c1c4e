"""A host's hooks with a real ADK agent: each point once for each call, and the host's word on top."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import LlmAgent

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, say
from agentsession.host import Host, ScriptedChannel, allow_all, tool
from agentsession.host.hooks import ask_user, hook
from agentsession.protocol import (
    HookOutcome,
    HookPayload,
    MemoryRecordStore,
    ToolCallHook,
    ToolResponse,
    ToolResultHook,
    block,
    modify,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Agent:
    """An agent with a tool of its own, and a host with another."""

    def __init__(self, *script: Any) -> None:
        self.ran: list[tuple[str, str]] = []
        self.model = ScriptedLlm(script=list(script))

        def write(path: str) -> str:
            """Write a file."""
            self.ran.append(("write", path))
            return "written"

        @tool
        def look(path: str) -> str:
            """Look at a file."""
            self.ran.append(("look", path))
            return f"text of {path}"

        self.look = look
        self.agent = LlmAgent(name="root", model=self.model, tools=[write])

    async def run(self, host: Host) -> list[Any]:
        async with AdkExecutor(self.agent, store=MemoryRecordStore()) as executor:
            async with host.session(executor) as session:
                await host.run_turn(session, "go")
                return [event async for event in session.events()]


BOTH = (calls(call("write", {"path": "a"}, id="c1"), call("look", {"path": "b"}, id="c2")), say("done"))


async def test_each_point_is_fired_once_for_each_call_of_agent_and_host() -> None:
    seen: list[tuple[str, str]] = []

    class Watch:
        points = ("before_tool", "after_tool")

        def fire(self, hook_point: str, payload: HookPayload, /) -> None:
            assert isinstance(payload, (ToolCallHook, ToolResultHook))
            seen.append((hook_point, payload.name))

    agent = Agent(*BOTH)
    await agent.run(Host(tools=[agent.look], policy=allow_all, hooks=[Watch()]))
    assert sorted(seen) == [(point, name) for point in ("after_tool", "before_tool") for name in ("look", "write")]


async def test_a_hook_that_asks_is_put_to_the_person_for_tools_of_agent_and_host() -> None:
    @hook("before_tool", id="odd")
    def odd(payload: ToolCallHook) -> HookOutcome:
        return ask_user("odd", args={"path": payload.args["path"] + "!"})

    agent, channel = Agent(*BOTH), ScriptedChannel({"write": True, "look": False})
    await agent.run(Host(tools=[agent.look], policy=allow_all, channel=channel, hooks=[odd]))
    assert sorted(request.name for request, _ in channel.asked) == ["look", "write"]  # type: ignore[union-attr]
    assert agent.ran == [("write", "a!")]  # as the hook changed it, and as the person saw it


async def test_a_result_that_a_hook_changes_is_so_in_the_record_and_for_the_model() -> None:
    @hook("after_tool")
    def redact(payload: ToolResultHook) -> HookOutcome:
        return modify(data="[removed]")

    agent = Agent(*BOTH)
    events = await agent.run(Host(tools=[agent.look], policy=allow_all, hooks=[redact]))
    assert [event.data for event in events if isinstance(event, ToolResponse)] == ["[removed]"] * 2
    shown = str(agent.model.requests[-1].contents)
    assert "text of" not in shown
    assert "written" not in shown


async def test_a_result_of_the_host_that_a_hook_changed_is_told_of_in_the_record_and_changed_once() -> None:
    @hook("after_tool", id="wrap", match="look")
    def wrap(payload: ToolResultHook) -> HookOutcome:
        return modify(data={"result": {"text": payload.data}})

    agent = Agent(*BOTH)
    events = await agent.run(Host(tools=[agent.look], policy=allow_all, hooks=[wrap]))
    told = [event.data for event in events if event.type == "custom" and event.kind == "hook"]
    assert [(data["point"], data["by"], data["changed"]) for data in told] == [("after_tool", "wrap", ["data"])]
    shown = [
        part.function_response.response
        for content in agent.model.requests[-1].contents
        for part in content.parts or []
        if part.function_response is not None and part.function_response.name == "look"
    ]
    assert shown == [{"result": {"text": "text of b"}}]


async def test_a_failure_of_a_hook_at_a_result_of_the_host_is_in_the_record() -> None:
    @hook("after_tool", id="audit", match="look")
    def broken(payload: ToolResultHook) -> HookOutcome:
        raise ValueError("sk-secret")

    agent = Agent(*BOTH)
    events = await agent.run(Host(tools=[agent.look], policy=allow_all, hooks=[broken]))
    assert [event.message for event in events if event.type == "error"] == [
        "hook audit at after_tool failed with ValueError"
    ]


async def test_a_hook_of_a_model_call_goes_through_the_chain() -> None:
    @hook("before_model", id="budget")
    def stop(payload: HookPayload) -> HookOutcome:
        return block("no more")

    agent = Agent(*BOTH)
    events = await agent.run(Host(hooks=[stop]))
    (end,) = [event for event in events if event.type == "stream_end"]
    assert (end.reason, end.data["cause"]) == ("aborted", "hook:budget")
