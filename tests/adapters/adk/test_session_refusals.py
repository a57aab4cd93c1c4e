"""What no session can reach, and what is not parked or kept where ADK would not find its way back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner, Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from tests.adapters.adk.driving import agent, assert_valid_history, driven, host_tool

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.adapters.adk._gate import GatePlugin
from agentsession.protocol import (
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    SessionConfig,
    grant,
    result,
)

pytestmark = pytest.mark.anyio


# -- another event loop -----------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-05")
async def test_a_run_that_a_tool_starts_on_a_loop_of_its_own_is_not_taken_for_the_sessions() -> None:
    """Its context says that it is: ContextVars go along into threads. Its tools are denied, and it is offered none."""
    ran: list[str] = []

    def write() -> str:
        """Write."""
        ran.append("write")
        return "wrote"

    inner = agent(call("write", id="c9"), say("inner done"), name="inner", tools=[FunctionTool(write)])
    app = App(name="inner_app", root_agent=inner, plugins=[GatePlugin()])

    async def elsewhere() -> list[Any]:
        runner = InMemoryRunner(app=app)
        session = await runner.session_service.create_session(app_name="inner_app", user_id="u")
        content = types.Content(role="user", parts=[types.Part(text="go")])
        events = runner.run_async(user_id="u", session_id=session.id, new_message=content)
        return [event async for event in events]

    told: list[Any] = []

    async def tool() -> str:
        """Run an agent in a thread."""
        told.extend(await asyncio.to_thread(lambda: asyncio.run(asyncio.wait_for(elsewhere(), 10))))
        return "asked"

    root = agent(call("tool", id="c1"), say("done"), tools=[tool])
    async with driven(root, tools=[host_tool("look")]) as desk:
        assert (await desk.turn("go")).texts == ["done"]
        parts = [part for event in told for part in event.content.parts]
        answers = [part.function_response.response for part in parts if part.function_response]
        assert (ran, answers) == ([], [{"error": "blocked: no session allows this call"}])
        assert list(inner.model.requests[0].tools_dict) == ["write"]  # type: ignore[union-attr]
        assert desk.responses() == {"tool": "completed"}


# -- live mode and compositional function calling ---------------------------------------------------------------------


class Seen(BasePlugin):
    """Notes how ADK was asked to run."""

    def __init__(self) -> None:
        super().__init__(name="seen")
        self.configs: list[RunConfig | None] = []
        self.queues: list[Any] = []

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> types.Content | None:
        self.configs.append(invocation_context.run_config)
        self.queues.append(invocation_context.live_request_queue)
        return None


@pytest.mark.rule("CTL-07")
@pytest.mark.parametrize("streaming", [True, False, None])
async def test_no_option_of_a_session_reaches_live_mode_or_support_cfc(
    streaming: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    live: list[str] = []
    monkeypatch.setattr(Runner, "run_live", lambda *args, **fields: live.append("live"))
    seen = Seen()
    root = agent(call("look", id="c1"), say("one"), say("two"))
    wish = {"support_cfc": True, "streaming_mode": "bidi", "response_modalities": ["AUDIO"]}
    options = OpenOptions(execution=ExecutionOptions(tools=[host_tool("look")], streaming=streaming, config=wish))
    async with driven(App(name="root", root_agent=root, plugins=[seen]), options=options) as desk:
        assert (await desk.session.update(SessionConfig(config=wish))).status == "rejected"
        await desk.stream("go", ExecutionOptions(config=wish))
        await desk.stream(result("c1", 1))
        await desk.stream("more")
    assert live == []
    assert seen.queues == [None] * len(seen.configs) != []
    for config in seen.configs:
        assert config is not None
        assert (config.support_cfc, config.response_modalities) == (False, None)
        assert config.streaming_mode is (StreamingMode.NONE if streaming is False else StreamingMode.SSE)


# -- parking and durability -------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-05", "LIFE-16")
@pytest.mark.parametrize("mode", ["task", "single_turn"])
async def test_a_parked_executor_waits_inside_agents_that_work_for_another(mode: str) -> None:
    """A caller of a single_turn agent waits in one run of ADK's: a call parked below it would end that for good."""
    ran: list[str] = []

    def write(path: str = "") -> str:
        ran.append(path)
        return "wrote"

    last = call("finish_task", {"result": "42"}, id="f1") if mode == "task" else say("helped")
    script = [calls(call("look", id="k1"), call("write", {"path": "a"}, id="k2")), last]
    helper = agent(*script, name="helper", mode=mode, description="Helps.", tools=[write])
    root = agent(call("helper", {"request": "do"}, id="c1"), say("done"), say("next"), sub_agents=[helper])
    async with driven(root, tools=[host_tool("look")], parked=True) as desk:
        assert (await desk.stream("go")).reason == "input_required"
        half = await desk.stream(grant(desk.pending("write"), {"path": "b"}))
        assert (half.reason, ran) == ("input_required", ["b"])
        done = await desk.stream(result(desk.pending("look"), 1))
        assert (done.reason, done.texts[-1], ran) == ("completed", "done", ["b"])
        assert (await desk.stream("more")).texts == ["next"]
        assert_valid_history(root.model)
        assert_valid_history(helper.model)


@pytest.mark.rule("PER-01")
async def test_what_waits_in_an_agent_tools_child_is_named_as_volatile_and_the_rest_is_not(tmp_path: Path) -> None:
    """A host that must survive restarts reads from this what it has to answer before it ends."""
    ran: list[str] = []

    def write(path: str = "") -> str:
        ran.append(path)
        return "wrote"

    child = agent(calls(call("look", id="k1"), call("write", id="k2")), say("never"), name="child", tools=[write])
    step = calls(call("child", {"request": "do"}, id="c1"), call("write", id="c2"), call("look", id="c3"))
    root = agent(step, say("done"), tools=[AgentTool(child), write])
    store, path = MemoryRecordStore(), str(tmp_path / "adk.db")
    options = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look")]))
    async with AdkExecutor(root, session_service=SqliteSessionService(path), store=store) as executor:
        assert executor.descriptor.supports("resume")
        session = await executor.open(options)
        async with session.stream("go") as stream:
            async for _ in stream:
                pass
        threads = {item.request_id: item.thread_id for item in session.pending}
        below = {request_id for request_id, thread in threads.items() if thread is not None}
        assert stream.end is not None
        assert (len(threads), len(below)) == (4, 2)
        assert set((stream.end.data or {})["volatile"]) & set(threads) == below
    async with AdkExecutor(root, session_service=SqliteSessionService(path), store=store) as executor:
        loaded = await executor.load("s1")
        assert {item.request_id for item in loaded.pending} == set(threads) - below
        assert ran == []
