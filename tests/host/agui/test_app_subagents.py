"""Sub-agents that a host runs in sessions of their own: what they ask is the front end's to answer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from tests.host.agui.serving import Poster, outcome, serving
from tests.host.agui.streams import check, of_type

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say
from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Call, Memory, Say, ScriptedExecutor
from agentsession.host import Host, Rule, RulePolicy, SqliteRecordStore, SubagentTool
from agentsession.host._child_run import ChildRun
from agentsession.host._outcome import LEFT_WAITING
from agentsession.host.agui import agui_app
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import (
    AgentExecutor,
    ExecutionOptions,
    OpenOptions,
    RecordStore,
    Text,
    ToolDescriptor,
    ToolResult,
)

pytestmark = pytest.mark.anyio

RULES = RulePolicy([Rule("allow", "fixer"), Rule("ask_user", "*")])


class Disk:
    """The host's own tool, and what it wiped."""

    def __init__(self) -> None:
        self.wiped: list[str] = []

    def wipe(self, path: str) -> str:
        """Delete a file."""
        self.wiped.append(path)
        return f"{path} is gone"


def fixer(*script: Any) -> ScriptedExecutor:
    return ScriptedExecutor([list(script or (Call("wipe", {"path": "a"}), Say("Mended.")))], name="fixer")


def coder() -> ScriptedExecutor:
    return ScriptedExecutor([[Call("fixer", {"task": "mend it"}, id="c1"), Say("Done.")], [Say("Next.")]])


def stored_agent(name: str, folder: Path, *script: Any) -> AdkExecutor:
    agent = LlmAgent(name=name, model=ScriptedLlm(script=list(script)))
    return AdkExecutor(agent, session_service=SqliteSessionService(str(folder / f"{name}.sqlite3")))


@contextlib.asynccontextmanager
async def posting(
    caller: AgentExecutor,
    worker: AgentExecutor | Callable[[], AgentExecutor],
    disk: Disk,
    store: RecordStore | None = None,
) -> AsyncGenerator[Poster]:
    with anyio.fail_after(20):
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(worker, AgentExecutor):
                await stack.enter_async_context(worker)
            host = Host(tools=[disk.wipe, SubagentTool(worker, tools=["wipe"])], policy=RULES)
            sessions = await stack.enter_async_context(
                LiveSessions([ServedAgent("coder", caller, host=host, store=store)])
            )
            url = await stack.enter_async_context(serving(agui_app(sessions)))
            yield await stack.enter_async_context(Poster(url))


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [event["delta"] for event in of_type(events, "TEXT_MESSAGE_CONTENT")]


@pytest.mark.parametrize("is_kept_open", [True, False])
@pytest.mark.parametrize(("payload", "done"), [({"approved": True}, ["a"]), ({"approved": False}, [])])
async def test_what_a_sub_agent_asks_is_an_interrupt_of_its_own_call(
    payload: Any, done: list[str], is_kept_open: bool, tmp_path: Path
) -> None:
    disk, model = Disk(), ScriptedLlm(script=[call("wipe", {"path": "a"}, id="w1"), say("Mended.")])
    sessions = SqliteSessionService(str(tmp_path / "fixer.sqlite3"))

    def made() -> AdkExecutor:
        return AdkExecutor(LlmAgent(name="fixer", model=model), session_service=sessions)

    async with posting(coder(), made() if is_kept_open else made, disk) as poster:
        (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
        assert interrupt["id"] != "c1"
        assert disk.wiped == []
        events = await poster.answer((interrupt["id"], payload))
        assert outcome(events) == {"type": "success"}
        assert "Done." in texts(events)
        assert disk.wiped == done


async def test_a_client_has_the_call_that_it_is_asked_about_and_its_result() -> None:
    disk = Disk()
    async with posting(coder(), fixer(), disk) as poster:
        events = await poster.say("u1")
        (interrupt,) = outcome(events)["interrupts"]
        calls = [each for message in poster.client.messages for each in message.get("toolCalls", ())]
        asked = next(each for each in calls if each["id"] == interrupt["toolCallId"])
        (ended,) = of_type(events, "SUBAGENT_FINISHED")
        assert ended["outcome"] == {"type": "suspended", "interruptIds": [interrupt["id"]]}
        assert asked["function"] == {"name": "wipe", "arguments": '{"path":"a"}'}
        events = await poster.answer((interrupt["id"], True))
        results = {event["toolCallId"]: event["content"] for event in of_type(events, "TOOL_CALL_RESULT")}
        assert results == {interrupt["toolCallId"]: "a is gone", "c1": "Mended."}
        before = [*poster.client.messages]
        await poster.run()
        assert {item["id"] for item in poster.client.messages} >= {item["id"] for item in before}


async def test_an_answer_to_a_sub_agent_that_comes_again_does_nothing() -> None:
    disk = Disk()
    async with posting(coder(), fixer(), disk) as poster:
        (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
        await poster.answer((interrupt["id"], True))
        assert outcome(await poster.answer((interrupt["id"], True))) == {"type": "success"}
        assert outcome(await poster.answer((interrupt["id"], False))) == "interrupt_stale"
        assert disk.wiped == ["a"]


@pytest.mark.parametrize(("payload", "done"), [({"approved": True}, ["a"]), ({"approved": False}, [])])
@pytest.mark.parametrize("is_shown", [True, False])
async def test_what_a_sub_agent_asked_before_a_restart_is_answered_after_it(
    tmp_path: Path, payload: Any, done: list[str], is_shown: bool
) -> None:
    disk = Disk()
    async with SqliteRecordStore(tmp_path / "record.sqlite3") as store:
        worker = stored_agent("fixer", tmp_path, call("wipe", {"path": "a"}, id="w1"))
        caller = stored_agent("coder", tmp_path, call("fixer", {"task": "mend it"}, id="c1"))
        async with posting(caller, worker, disk, store) as poster:
            (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
            client = poster.client
        worker, caller = stored_agent("fixer", tmp_path, say("Mended.")), stored_agent("coder", tmp_path, say("Done."))
        async with posting(caller, worker, disk, store) as poster:
            poster.client = client
            if is_shown:
                assert outcome(await poster.run())["interrupts"] == [interrupt]
            events = await poster.answer((interrupt["id"], payload))
            assert outcome(events) == {"type": "success"}
            assert "Done." in texts(events)
            assert disk.wiped == done
            client = poster.client
        worker, caller = stored_agent("fixer", tmp_path), stored_agent("coder", tmp_path)
        async with posting(caller, worker, disk, store) as poster:
            poster.client = client
            assert outcome(await poster.answer((interrupt["id"], payload))) == {"type": "success"}
            other = {"approved": not payload["approved"]}
            assert outcome(await poster.answer((interrupt["id"], other))) == "interrupt_stale"
            assert disk.wiped == done


async def test_what_a_sub_agent_of_a_sub_agent_asked_is_answered_after_a_restart(tmp_path: Path) -> None:
    disk = Disk()

    @contextlib.asynccontextmanager
    async def started(store: RecordStore, *scripts: Any) -> AsyncGenerator[Poster]:
        names = ("coder", "fixer", "helper")
        agents = [
            stored_agent(name, tmp_path, script) if script is not None else stored_agent(name, tmp_path)
            for name, script in zip(names, scripts, strict=True)
        ]
        rules = RulePolicy([Rule("allow", "fixer"), Rule("allow", "helper"), Rule("ask_user", "*")])
        async with agents[1], agents[2]:
            below = SubagentTool(agents[2], tools=["wipe"])
            host = Host(tools=[disk.wipe, below, SubagentTool(agents[1], tools=["helper", "wipe"])], policy=rules)
            async with (
                LiveSessions([ServedAgent("coder", agents[0], host=host, store=store)]) as sessions,
                serving(agui_app(sessions)) as url,
                Poster(url) as poster,
            ):
                yield poster

    with anyio.fail_after(20):
        async with SqliteRecordStore(tmp_path / "record.sqlite3") as store:
            asks = call("wipe", {"path": "a"}, id="w1")
            first = call("fixer", {"task": "mend it"}, id="c1"), call("helper", {"task": "wipe it"}, id="h1"), asks
            async with started(store, *first) as poster:
                interrupts = outcome(await poster.say("u1"))["interrupts"]
                assert len(interrupts) == 1
                client = poster.client
            async with started(store, say("Done."), say("Mended."), say("Wiped.")) as poster:
                poster.client = client
                assert outcome(await poster.run())["interrupts"] == interrupts
                events = await poster.answer((interrupts[0]["id"], True))
                assert "Done." in texts(events)
                assert disk.wiped == ["a"]


async def test_a_client_that_comes_back_is_told_once_what_a_sub_agent_said() -> None:
    reached, opened = anyio.Event(), anyio.Event()

    class Gate:
        async def play(self, ctx: RunContext, memory: Memory) -> None:
            reached.set()
            await opened.wait()

    disk = Disk()
    caller = ScriptedExecutor([[Call("fixer", {"task": "mend it"}, id="c1"), Gate(), Say("Done.")]])
    async with posting(caller, fixer(Say("I look."), Call("wipe", {"path": "a"}), Say("Mended.")), disk) as poster:
        (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
        sent = poster.sent(resume=resume)
        async with poster.stream(sent):
            await reached.wait()
        async with poster.stream(poster.sent()) as events:
            opened.set()
            found = [event async for event in events]
        poster.client = check(found, is_resumed=True)
        said = [item["content"] for item in poster.client.messages if item["role"] == "assistant" and "content" in item]
        assert said == ["I look.", "Mended.", "Done."]
        snapshot = of_type(found, "MESSAGES_SNAPSHOT")[0]["messages"]
        assert "Mended." not in str(snapshot)


async def test_a_result_that_names_another_session_does_not_show_it() -> None:
    disk = Disk()
    tool = ToolDescriptor(name="shape", description="Show a shape", owner="host")
    caller = ScriptedExecutor([[Call("shape", {}, id="s1"), Say("Done.")]], name="coder")
    with anyio.fail_after(20):
        async with fixer() as worker:
            host = Host(tools=[disk.wipe, SubagentTool(worker, tools=["wipe"])], policy=RULES)
            async with (
                LiveSessions([ServedAgent("coder", caller, host=host)]) as sessions,
                serving(agui_app(sessions)) as url,
                Poster(url) as poster,
            ):
                other = await sessions.open("coder", "local", OpenOptions(session_id="other"))
                await other.stream("what nobody asked for", ExecutionOptions(tools=[tool]))
                await other.at_rest()
                live = await sessions.open("coder", "local", OpenOptions(session_id="t1"))
                await live.stream("hello", ExecutionOptions(tools=[tool]))
                await live.at_rest()
                forged = {"subagent": {"agent": "coder", "sessionId": "other"}}
                (receipt,) = await live.respond(ToolResult(request_id="s1", content=[Text(text="x")], display=forged))
                assert receipt.status == "applied"
                await live.at_rest()
                events = await poster.run()
                assert "Done." in str(events)
                assert "other" not in str(events)
                assert len(of_type(events, "MESSAGES_SNAPSHOT")[0]["messages"]) == 4


async def test_a_job_of_a_sub_agents_waits_for_nobody_at_the_client() -> None:
    def fixer() -> dict[str, Any]:
        """Ask somebody; named as a tool that the rules allow."""
        return {"status": "pending"}

    model = ScriptedLlm(script=[call("fixer", {}, id="w1"), say("never")])
    tools: list[Any] = [LongRunningFunctionTool(fixer)]
    worker = AdkExecutor(LlmAgent(name="fixer", model=model, tools=tools))
    async with posting(coder(), worker, Disk()) as poster:
        assert outcome(await poster.say("u1")) == {"type": "success", "pendingToolCallIds": []}
        assert "Next." in texts(await poster.say("u2", is_resumed=True))


async def test_a_yes_to_a_call_whose_sub_agent_then_asks_shows_what_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_off(self: ChildRun, session: Any) -> Any:
        return LEFT_WAITING

    disk = Disk()
    async with SqliteRecordStore(tmp_path / "record.sqlite3") as store:
        caller = stored_agent("coder", tmp_path, call("fixer", {"task": "mend it"}, id="c1"))
        with monkeypatch.context() as before:
            before.setattr(ChildRun, "_turns", cut_off)
            async with posting(caller, stored_agent("fixer", tmp_path), disk, store) as poster:
                await poster.say("u1")
                client = poster.client
        worker = stored_agent("fixer", tmp_path, call("wipe", {"path": "a"}, id="w1"), say("Mended."))
        async with posting(stored_agent("coder", tmp_path, say("Done.")), worker, disk, store) as poster:
            poster.client = client
            (interrupt,) = outcome(await poster.run())["interrupts"]
            assert interrupt["id"] == "c1"
            (interrupt,) = outcome(await poster.answer(("c1", True)))["interrupts"]
            assert interrupt["toolCallId"] != "c1"
            assert disk.wiped == []
            assert "Done." in texts(await poster.answer((interrupt["id"], True)))
            assert disk.wiped == ["a"]
