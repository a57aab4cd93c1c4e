"""Agents of Google ADK behind the AG-UI application: a real Runner, a scripted model, a real server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.host.agui.inputs import tool_message
from tests.host.agui.serving import Poster, outcome, serving
from tests.host.agui.streams import kinds, of_type

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, error, say, stream, think
from agentsession.host import SqliteRecordStore
from agentsession.host.agui import agui_app
from agentsession.host.live import LiveSessions, ServedAgent

pytestmark = pytest.mark.anyio

TOOL = {"name": "shape", "description": "Show a shape", "parameters": {"type": "object", "properties": {}}}


class Disk:
    """A tool that must not run unasked, and what it was run with."""

    def __init__(self) -> None:
        self.wiped: list[str] = []

    def wipe(self, path: str) -> str:
        """Delete a file."""
        self.wiped.append(path)
        return f"{path} is gone"


@contextlib.asynccontextmanager
async def posting(agent: LlmAgent, folder: Path | None = None, **options: Any) -> AsyncGenerator[Poster]:
    with anyio.fail_after(20):
        async with contextlib.AsyncExitStack() as stack:
            given: dict[str, Any] = {}
            store = None
            if folder is not None:
                store = await stack.enter_async_context(SqliteRecordStore(folder / "record.sqlite3"))
                given["session_service"] = SqliteSessionService(str(folder / "adk.sqlite3"))
            served = ServedAgent("adk", AdkExecutor(agent, **given), store=store)
            sessions = await stack.enter_async_context(LiveSessions([served]))
            url = await stack.enter_async_context(serving(agui_app(sessions, **options)))
            yield await stack.enter_async_context(Poster(url))


def agent(*script: Any, name: str = "root", **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedLlm(script=list(script)), **fields)


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in of_type(events, "TEXT_MESSAGE_CONTENT"))


async def test_text_and_thoughts_are_streamed() -> None:
    async with posting(agent(think("Hm. ", "Well.", signature=b"abc"), stream("Hel", "lo"))) as poster:
        events = await poster.say("u1")
    assert outcome(events) == {"type": "success"}


@pytest.mark.parametrize(
    ("payload", "wiped"),
    [
        ({"approved": True}, ["a"]),
        ({"approved": False, "reason": "no"}, []),
        ({"approved": True, "editedArgs": {"path": "b"}}, ["b"]),
    ],
)
async def test_a_tool_of_the_agents_runs_by_the_persons_word(payload: Any, wiped: list[str]) -> None:
    disk = Disk()
    async with posting(agent(call("wipe", {"path": "a"}, id="c1"), say("Over."), tools=[disk.wipe])) as poster:
        events = await poster.say("u1")
        (interrupt,) = outcome(events)["interrupts"]
        assert disk.wiped == []
        events = await poster.answer((interrupt["id"], payload))
        assert outcome(events) == {"type": "success"}
        assert text_of(events) == "Over."
        assert disk.wiped == wiped
        assert [event["toolCallId"] for event in of_type(events, "TOOL_CALL_RESULT")] == [interrupt["toolCallId"]]


async def test_unclear_answers_run_nothing_and_the_clear_one_runs_it_once() -> None:
    disk = Disk()
    async with posting(agent(call("wipe", {"path": "a"}), say("Over."), tools=[disk.wipe])) as poster:
        (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
        for payload in (None, {}, 1, "true", {"approved": "yes"}, {"approved": True, "editedArgs": {"path": 1}}):
            assert outcome(await poster.answer((interrupt["id"], payload))) == "answer_invalid"
        assert (
            outcome(await poster.run(resume=[{"interruptId": interrupt["id"], "status": "resolved"}]))
            == "answer_invalid"
        )
        assert disk.wiped == []
        assert outcome(await poster.answer((interrupt["id"], True))) == {"type": "success"}
        again = await poster.answer((interrupt["id"], True))
        assert outcome(again) == {"type": "success"}
        assert outcome(await poster.answer((interrupt["id"], False))) == "interrupt_stale"
        assert disk.wiped == ["a"]


async def test_a_confirmation_of_adk_shows_the_real_call() -> None:
    disk = Disk()
    tools = [FunctionTool(disk.wipe, require_confirmation=True)]
    async with posting(agent(call("wipe", {"path": "a"}, id="c1"), say("Over."), tools=tools)) as poster:
        events = await poster.say("u1")
        called = [event["toolCallId"] for event in of_type(events, "TOOL_CALL_START")]
        while outcome(events) != {"type": "success"}:
            interrupts = outcome(events)["interrupts"]
            assert [interrupt["toolCallId"] for interrupt in interrupts] == called
            events = await poster.answer(*((interrupt["id"], {"approved": True}) for interrupt in interrupts))
        assert disk.wiped == ["a"]


async def test_parallel_tools_of_the_client_are_answered_one_by_one_and_together() -> None:
    three = calls(*(call("shape", {"n": n}, id=f"c{n}") for n in (1, 2, 3)))
    made = agent(three, say("Drawn."))
    async with posting(made) as poster:
        waiting = outcome(await poster.say("u1", tools=[TOOL]))["pendingToolCallIds"]
        assert len(waiting) == 3
        events = await poster.run(tool_message(waiting[1], "two"), is_resumed=True, tools=[TOOL])
        assert outcome(events) == {"type": "success", "pendingToolCallIds": [waiting[0], waiting[2]]}
        both = (tool_message(waiting[0], "", error="it broke"), tool_message(waiting[2], "three"))
        events = await poster.run(*both, is_resumed=True, tools=[TOOL])
        assert text_of(events) == "Drawn."
    assert isinstance(made.model, ScriptedLlm)
    answered = made.model.requests[-1].contents[-1].parts or []
    shown = [part.function_response.response for part in answered if part.function_response is not None]
    assert "it broke" in str(shown[0])


async def test_an_error_of_the_model_ends_the_run_and_not_the_thread() -> None:
    made = agent(stream("Hel", "lo") + error("INTERNAL", "no"), say("ok"))
    async with posting(made) as poster:
        events = await poster.say("u1")
        assert kinds(events)[-1] == "RUN_ERROR"
        assert text_of(await poster.say("u2")) == "ok"


async def test_the_state_is_shared_both_ways() -> None:
    seen: list[Any] = []

    def count(tool_context: ToolContext) -> str:
        """Count."""
        seen.append(tool_context.state.get("n"))
        tool_context.state["n"] = (tool_context.state.get("n") or 0) + 1
        tool_context.state["temp:hidden"] = 1
        return "ok"

    made = agent(call("count"), say("one"), call("count"), say("two"), tools=[count])
    async with posting(made) as poster:
        for name in ("u1", "u2"):
            (interrupt,) = outcome(await poster.say(name))["interrupts"]
            await poster.answer((interrupt["id"], True))
            if name == "u1":
                assert poster.client.state == {"n": 1}
                poster.client.state = {"n": 10, "temp:hidden": 5}
        assert seen == [None, 10]
        assert poster.client.state == {"n": 11} | {key: 5 for key in poster.client.state if key == "temp:hidden"}


async def test_sub_agents_are_shown() -> None:
    helper = agent(say("Helped."), name="helper", description="Helps.")
    made = agent(call("transfer_to_agent", {"agent_name": "helper"}), name="root", sub_agents=[helper])
    async with posting(made) as poster:
        events = await poster.say("u1")
        while outcome(events) != {"type": "success"}:
            events = await poster.answer(*((each["id"], True) for each in outcome(events)["interrupts"]))
        assert text_of(events) == "Helped."


async def test_a_waiting_thread_goes_on_after_a_restart(tmp_path: Path) -> None:
    disk = Disk()
    async with posting(agent(call("wipe", {"path": "a"}), tools=[disk.wipe]), tmp_path) as poster:
        (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
        client = poster.client
    async with posting(agent(say("Over."), tools=[disk.wipe]), tmp_path) as poster:
        poster.client = client
        assert kinds(await poster.run())[-2:] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        events = await poster.answer((interrupt["id"], {"approved": True}))
        assert text_of(events) == "Over."
        assert disk.wiped == ["a"]
        assert outcome(await poster.answer((interrupt["id"], {"approved": True}))) == {"type": "success"}
        assert disk.wiped == ["a"]
