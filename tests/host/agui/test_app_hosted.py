"""Agents that a host on the server controls, behind the AG-UI application: its person is the client."""

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
from tests.host.agui.inputs import tool_message, user
from tests.host.agui.serving import Poster, outcome, serving
from tests.host.agui.streams import of_type

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, say
from agentsession.adapters.scripted import Ask, Call, Calls, Say, ScriptedExecutor
from agentsession.host import Host, Rule, RulePolicy, SqliteRecordStore, ToolContext
from agentsession.host.agui import agui_app
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import AgentExecutor

pytestmark = pytest.mark.anyio

TOOL = {"name": "shape", "description": "Show a shape", "parameters": {"type": "object", "properties": {}}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Desk:
    """Tools of the host's, and what they were run with."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def wipe(self, path: str) -> str:
        """Delete a file."""
        self.done.append(path)
        return f"{path} is gone"

    def look(self, path: str) -> str:
        """Read a file."""
        self.done.append(f"look {path}")
        return "text"


RULES = RulePolicy([Rule("allow", "look"), Rule("deny", "never"), Rule("ask_user", "*")])


@contextlib.asynccontextmanager
async def posting(
    executor: AgentExecutor, *tools: Callable[..., Any], policy: Any = RULES, store: Any = None, **options: Any
) -> AsyncGenerator[Poster]:
    host = Host(tools=tools, policy=policy)
    with anyio.fail_after(20):
        async with LiveSessions([ServedAgent("agent", executor, host=host, store=store)]) as sessions:
            async with serving(agui_app(sessions, **options)) as url, Poster(url) as poster:
                yield poster


def scripted(*steps: Any) -> ScriptedExecutor:
    return ScriptedExecutor([list(steps)])


def adk(*script: Any, folder: Path | None = None, **fields: Any) -> AdkExecutor:
    agent = LlmAgent(name="root", model=ScriptedLlm(script=list(script)), **fields)
    if folder is None:
        return AdkExecutor(agent)
    return AdkExecutor(agent, session_service=SqliteSessionService(str(folder / "adk.sqlite3")))


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in of_type(events, "TEXT_MESSAGE_CONTENT"))


@pytest.mark.parametrize("kind", ["scripted", "adk"])
@pytest.mark.parametrize(
    ("payload", "done"),
    [
        ({"approved": True}, ["a"]),
        ({"approved": False}, []),
        ({"approved": True, "editedArgs": {"path": "b"}}, ["b"]),
    ],
)
async def test_a_tool_of_the_hosts_runs_on_the_server_by_the_clients_word(
    kind: str, payload: Any, done: list[str]
) -> None:
    desk = Desk()
    if kind == "adk":
        executor: AgentExecutor = adk(call("wipe", {"path": "a"}, id="c1"), say("Over."))
    else:
        executor = scripted(Call("wipe", {"path": "a"}, id="c1"), Say("Over."))
    async with posting(executor, desk.wipe) as poster:
        (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
        assert interrupt["reason"] == "tool_call"
        assert desk.done == []
        events = await poster.answer((interrupt["id"], payload))
        assert outcome(events) == {"type": "success"}
        assert text_of(events) == "Over."
        assert desk.done == done
        assert len(of_type(events, "TOOL_CALL_RESULT")) == 1


async def test_what_is_allowed_runs_within_one_run_and_what_is_denied_never_does() -> None:
    desk = Desk()

    def never(path: str) -> None:
        """Not for anybody."""
        desk.done.append("never")

    script = scripted(Call("look", {"path": "a"}, id="c1"), Call("never", {"path": "a"}, id="c2"), Say("Over."))
    async with posting(script, desk.look, never) as poster:
        events = await poster.say("u1")
        assert outcome(events) == {"type": "success"}
        assert desk.done == ["look a"]
        assert outcome(await poster.answer(("c2", True))) == "interrupt_stale"
        assert desk.done == ["look a"]


async def test_a_client_cannot_give_the_result_of_the_hosts_tool() -> None:
    desk = Desk()
    async with posting(scripted(Call("wipe", {"path": "a"}, id="c1"), Say("Over.")), desk.wipe) as poster:
        await poster.say("u1")
        events = await poster.run(tool_message("c1", "forged"))
        assert [each["id"] for each in outcome(events)["interrupts"]] == ["c1"]
        assert desk.done == []


async def test_edited_arguments_pass_schema_and_policy_again() -> None:
    desk = Desk()
    rules = RulePolicy([Rule("deny", "wipe", when=lambda args: args["path"] == "secret"), Rule("ask_user", "*")])
    script = scripted(Call("wipe", {"path": "a"}, id="c1"), Say("Over."))
    async with posting(script, desk.wipe, policy=rules) as poster:
        (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
        assert interrupt["responseSchema"]["properties"]["editedArgs"]["properties"]["path"]["type"] == "string"
        events = await poster.answer(("c1", {"approved": True, "editedArgs": {"path": 5}}))
        assert outcome(events) == "answer_invalid"
        events = await poster.answer(("c1", {"approved": True, "editedArgs": {"path": "secret"}}))
        assert text_of(events) == "Over."
        assert desk.done == []


async def test_a_clients_tools_wait_beside_the_hosts() -> None:
    desk = Desk()
    both = Calls(Call("shape", {}, id="c1"), Call("wipe", {"path": "a"}, id="c2"), Call("look", {"path": "b"}, id="c3"))
    async with posting(scripted(both, Say("Over.")), desk.wipe, desk.look) as poster:
        events = await poster.say("u1", tools=[TOOL])
        assert [each["id"] for each in outcome(events)["interrupts"]] == ["c2"]
        assert desk.done == ["look b"]
        events = await poster.answer(("c2", True), tools=[TOOL])
        assert outcome(events) == {"type": "success", "pendingToolCallIds": ["c1"]}
        assert desk.done == ["look b", "a"]
        events = await poster.run(tool_message("c1", "a square"), is_resumed=True, tools=[TOOL])
        assert outcome(events) == {"type": "success"}
        assert text_of(events) == "Over."


async def test_a_clients_three_tools_are_answered_one_by_one() -> None:
    three = calls(*(call("shape", {"n": n}, id=f"c{n}") for n in (1, 2, 3)))
    async with posting(adk(three, say("Drawn."))) as poster:
        waiting = outcome(await poster.say("u1", tools=[TOOL]))["pendingToolCallIds"]
        events = await poster.run(tool_message(waiting[1]), is_resumed=True)
        assert outcome(events)["pendingToolCallIds"] == [waiting[0], waiting[2]]
        events = await poster.run(tool_message(waiting[0]), tool_message(waiting[2]), is_resumed=True)
        assert text_of(events) == "Drawn."


async def test_a_tool_of_the_clients_may_not_be_called_like_one_of_the_hosts() -> None:
    desk = Desk()
    async with posting(scripted(Say("never")), desk.wipe) as poster:
        events = await poster.say("u1", tools=[{**TOOL, "name": "wipe"}])
        assert outcome(events) == "tool_conflict"


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_job_of_the_agents_waits_for_nobody_at_the_client(is_answered: bool) -> None:
    """The program that serves tells its outcome: see the sessions' own tests."""

    def submit(amount: int) -> dict[str, Any]:
        """Ask for money."""
        return {"status": "pending"}

    desk = Desk()
    tools: list[Any] = [LongRunningFunctionTool(submit)]
    both = calls(call("submit", {"amount": 5}, id="c1"), call("shape", {}, id="c2"))
    script = both, say("Paid."), say("Next."), say("Over.")
    rules = RulePolicy([Rule("allow", "submit"), Rule("ask_user", "*")])
    async with posting(adk(*script, tools=tools), desk.wipe, policy=rules) as poster:
        (shape,) = outcome(await poster.say("u1", tools=[TOOL]))["pendingToolCallIds"]
        if is_answered:
            events = await poster.run(tool_message(shape, "a square"), is_resumed=True, tools=[TOOL])
            assert outcome(events) == {"type": "success", "pendingToolCallIds": []}
        events = await poster.say("u2", is_resumed=True)
        assert outcome(events) == {"type": "success"}


async def test_a_question_is_answered_by_the_client() -> None:
    async with posting(scripted(Ask("Where?", schema=SCHEMA), Say("Over."))) as poster:
        (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
        assert interrupt["responseSchema"] == SCHEMA
        assert outcome(await poster.answer((interrupt["id"], {"city": 1}))) == "answer_invalid"
        events = await poster.answer((interrupt["id"], {"city": "Oslo"}))
        assert text_of(events) == "Over."


async def test_a_waiting_call_of_the_hosts_goes_on_after_a_restart(tmp_path: Path) -> None:
    desk = Desk()
    async with SqliteRecordStore(tmp_path / "record.sqlite3") as store:
        first = adk(call("wipe", {"path": "a"}, id="c1"), folder=tmp_path)
        async with posting(first, desk.wipe, store=store) as poster:
            (interrupt,) = outcome(await poster.say("u1"))["interrupts"]
            client = poster.client
        async with posting(adk(say("Over."), folder=tmp_path), desk.wipe, store=store) as poster:
            poster.client = client
            events = await poster.answer((interrupt["id"], {"approved": True}))
            assert text_of(events) == "Over."
            assert desk.done == ["a"]
            assert outcome(await poster.answer((interrupt["id"], {"approved": True}))) == {"type": "success"}
            assert desk.done == ["a"]


async def test_a_call_of_the_clients_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with SqliteRecordStore(tmp_path / "record.sqlite3") as store:
        first = adk(call("shape", {"n": 1}, id="c1"), folder=tmp_path)
        async with posting(first, store=store) as poster:
            assert outcome(await poster.say("u1", tools=[TOOL]))["pendingToolCallIds"] == ["c1"]
            client = poster.client
        async with posting(adk(say("Over."), folder=tmp_path), store=store) as poster:
            poster.client = client
            events = await poster.run(tool_message("c1"), is_resumed=True, tools=[TOOL])
            assert text_of(events) == "Over."


async def test_a_message_leaves_what_waits_and_runs() -> None:
    desk = Desk()
    script = ScriptedExecutor([[Call("wipe", {"path": "a"}, id="c1"), Say("never")], [Say("Fresh.")]])
    async with posting(script, desk.wipe) as poster:
        await poster.say("u1")
        assert outcome(await poster.say("u2")) == "interrupts_open"
        resume = [{"interruptId": "c1", "status": "cancelled"}]
        events = await poster.run(is_resumed=True, resume=resume)
        assert text_of(events) == "Fresh."
        assert desk.done == []


@pytest.mark.parametrize("policy", ["cancel", "carry_on"])
async def test_a_hosts_tool_at_work_when_its_client_leaves(policy: Any) -> None:
    reached, opened, stopped = anyio.Event(), anyio.Event(), anyio.Event()

    async def look() -> str:
        """Take a while."""
        reached.set()
        try:
            await opened.wait()
        except anyio.get_cancelled_exc_class():
            stopped.set()
            raise
        return "seen"

    script = ScriptedExecutor([[Call("look", {}, id="c1"), Say("Over.")], [Say("Next.")]])
    async with posting(script, look, on_disconnect=policy, grace_s=0.01) as poster:
        async with poster.stream(poster.sent(user("u1"))):
            await reached.wait()
        if policy == "cancel":
            await stopped.wait()
        else:
            opened.set()
        events = await poster.say("u2")
        assert text_of(events) == "Next."
        said = [message.get("content") for message in poster.client.messages if message["role"] == "assistant"]
        assert ("Over." in said) is (policy == "carry_on")
        assert said[-1] == "Next."


async def test_a_host_at_work_between_two_streams_is_seen_as_it_works() -> None:
    reached, opened = anyio.Event(), anyio.Event()

    async def look(context: ToolContext) -> str:
        """Tell how far it is."""
        context.progress(1, total=2)
        reached.set()
        await opened.wait()
        return "seen"

    script = ScriptedExecutor([[Call("look", {}, id="c1"), Say("Over.")]], reenter=True)
    async with posting(script, look) as poster:
        async with poster.stream(poster.sent(user("u1"))) as events:
            found = []
            async for event in events:
                found.append(event)
                if event["type"] == "ACTIVITY_SNAPSHOT":
                    await reached.wait()
                    opened.set()
        assert outcome(found) == {"type": "success"}
        assert text_of(found) == "Over."
        assert opened.is_set()
