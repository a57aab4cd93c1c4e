"""The client on both of anyio's backends, of an agent whose server runs in a thread of its own: a script, or ADK."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from google.adk.tools.function_tool import FunctionTool
from tests.adapters.adk.driving import agent, host_tool
from tests.adapters.remote.behind import Server
from tests.adapters.remote.cutting import Cutter

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.adapters.remote import Backoff, RemoteExecutor, RemoteSession
from agentsession.adapters.scripted import Ask, Call, Deltas, Say, ScriptedExecutor, Step
from agentsession.host import Host, Policy, allow_all, ask_all, deny_all, tool
from agentsession.host.http import Limits
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import (
    AgentExecutor,
    Answer,
    ConnectionLost,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    Message,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    accept,
    decline,
    grant,
    plain_text,
    result,
)

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@contextlib.asynccontextmanager
async def behind(
    executor: AgentExecutor | ServedAgent, *, seed: int | None = None, server: Server | None = None
) -> AsyncGenerator[RemoteExecutor]:
    """A client of a server of this executor, over a wire that is cut where there is a seed."""
    server = server or Server()
    served = executor if isinstance(executor, ServedAgent) else ServedAgent("agent", executor)
    cutter = None if seed is None else Cutter(server.port, seed)
    with anyio.fail_after(60):
        await anyio.to_thread.run_sync(server.start, lambda: LiveSessions([served]))
        if cutter is not None:
            cutter.start()
        try:
            backoff = Backoff(0.005, 0.05, random.Random(seed))
            async with RemoteExecutor(cutter.url if cutter else server.url, backoff=backoff) as remote:
                yield remote
            assert cutter is None or cutter.cuts > 0
        finally:
            with anyio.CancelScope(shield=True):
                if cutter is not None:
                    await anyio.to_thread.run_sync(cutter.stop)
                await anyio.to_thread.run_sync(server.stop)


async def turn(
    session: RemoteSession, input: str | Answer | None = None, options: ExecutionOptions | None = None
) -> tuple[list[Event], str]:
    """The events of one stream, and how it ended."""
    async with await session.begin(input, options) as stream:
        found = [event async for event in stream]
    end = found[-1]
    assert isinstance(end, StreamEnd)
    return found, end.reason


def said(events: list[Event]) -> list[str]:
    whole = (event for event in events if isinstance(event, Message) and not event.partial and event.role == "agent")
    return [plain_text(event.content) for event in whole]


@pytest.mark.rule("ORD-05")
@pytest.mark.parametrize("seed", [None, 1, 2])
async def test_a_conversation_is_had_on_either_backend(seed: int | None) -> None:
    script: list[list[Step]] = [[Deltas(["Hel", "lo"])], [Ask("Where?"), Say("Going.")]]
    async with behind(ScriptedExecutor(script, reenter=True), seed=seed) as executor:
        session = await executor.open()
        events, reason = await turn(session, "hi")
        assert (said(events), reason) == (["Hello"], "completed")
        _, reason = await turn(session, "go")
        assert reason == "input_required"
        (asked,) = session.pending
        (receipt,) = await session.respond(accept(asked.request_id, {"answer": "there"}))
        assert receipt.ok
        assert session.pending == []
        events, reason = await turn(session)
        assert (said(events), reason) == (["Going."], "completed")
        await session.aclose()
        seqs = [event.seq async for event in session.events()]
        assert seqs == sorted(set(seqs))


async def test_a_stream_that_is_waited_for_without_a_task_is_begun_on_either_backend() -> None:
    async with behind(ScriptedExecutor([[Say("Hello.")]])) as executor:
        session = await executor.open()
        async with session.stream("hi") as stream:
            assert said([event async for event in stream]) == ["Hello."]


async def test_a_reader_that_is_cancelled_leaves_nothing_behind() -> None:
    async with behind(ScriptedExecutor([[Say("Hello.")]])) as executor:
        session = await executor.open()
        with anyio.move_on_after(0.05) as waiting:
            async with session.events(after=session.last_seq, follow=True) as reader:
                await anext(reader)
        assert waiting.cancelled_caught
        _, reason = await turn(session, "hi")
        assert reason == "completed"


async def test_a_server_that_is_gone_is_lost_on_either_backend() -> None:
    executor = RemoteExecutor("http://127.0.0.1:9", give_up_s=0.05, backoff=Backoff(0.01))
    with pytest.raises(ConnectionLost):
        async with executor:
            pass


@pytest.mark.rule("ORD-05", "ORD-11")
async def test_a_reader_that_stalled_for_too_long_reads_on_to_the_end_when_it_comes_back() -> None:
    pieces = ["x" * 4000] * 4000  # more than the buffers of the system take
    server = Server(Limits(stall_s=0.5))
    async with behind(ScriptedExecutor([[Deltas(pieces)], [Say("Still here.")]]), server=server) as executor:
        session = await executor.open()
        async with await session.begin("go") as stream:
            await anext(stream)
            assert server.sessions is not None
            assert server.portal is not None
            (there,) = server.sessions.open_sessions
            # It reads nothing meanwhile: the agent's turn ends when the server lets go of it.
            await anyio.to_thread.run_sync(server.portal.call, there.at_rest)
            assert session.state == "running"
            rest = [event async for event in stream]
        assert isinstance(rest[-1], StreamEnd)
        assert said(rest) == ["".join(pieces)]
        assert [event.seq for event in rest] == sorted({event.seq for event in rest})
        events, _ = await turn(session, "and now?")
        assert said(events) == ["Still here."]


# -- an agent that a host on the server drives ------------------------------------------------------------------------


def wiping(policy: Policy, ran: list[str]) -> ServedAgent:
    """An agent whose server has the tool ``wipe``, by a policy."""

    @tool
    async def wipe(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return "It is gone."

    script = ScriptedExecutor([[Call("wipe", {"path": "a"}), Say("Done.")]], reenter=True)
    return ServedAgent("agent", script, Host(tools=[wipe], policy=policy))


async def ended(session: RemoteSession) -> str:
    """How the first stream ended that is no pause."""
    async with session.events(follow=True, types={"stream_end"}) as reader:
        async for event in reader:
            if isinstance(event, StreamEnd) and event.reason != "input_required":
                return event.reason
    raise AssertionError("the session was closed")


@pytest.mark.rule("TOOL-10")
async def test_a_turn_that_a_host_on_the_server_drives_goes_on_by_itself() -> None:
    ran: list[str] = []
    async with behind(wiping(allow_all, ran)) as executor:
        session = await executor.open()
        await turn(session, "go")
        assert await ended(session) == "completed"
    assert ran == ["a"]


@pytest.mark.rule("TOOL-10")
@pytest.mark.parametrize(("policy", "runs"), [(ask_all, True), (deny_all, False)])
async def test_a_grant_of_the_client_runs_only_what_the_servers_policy_does_not_deny(
    policy: Policy, runs: bool
) -> None:
    ran: list[str] = []
    async with behind(wiping(policy, ran)) as executor:
        session = await executor.open()
        events, reason = await turn(session, "go")
        assert (reason, ran) == ("input_required", [])
        (asked,) = (event for event in events if isinstance(event, ToolRequest))
        await session.respond(grant(asked.request_id))
        assert await ended(session) == "completed"
        responses = [event async for event in session.events() if isinstance(event, ToolResponse)]
    assert ran == (["a"] if runs else [])
    assert [response.status for response in responses] == ["completed" if runs else "denied"]


# -- an agent of ADK's ------------------------------------------------------------------------------------------------


@pytest.mark.rule("TOOL-07", "TOOL-10")
async def test_a_remote_adk_agent_calls_a_tool_of_the_host() -> None:
    root = agent(calls(call("look", {"at": "sky"}, id="c1")), say("It is blue."))
    async with behind(AdkExecutor(root)) as executor:
        session = await executor.open()
        _, reason = await turn(session, "look up", ExecutionOptions(tools=[host_tool("look")]))
        assert reason == "input_required"
        (asked,) = session.pending
        assert isinstance(asked, ToolRequest)
        assert (asked.name, asked.args, asked.needs, asked.owner) == ("look", {"at": "sky"}, "result", "host")
        events, reason = await turn(session, result(asked.request_id, {"colour": "blue"}))
        assert (said(events), reason) == (["It is blue."], "completed")
        assert session.pending == []
    shown: Any = root.model
    (part,) = shown.requests[-1].contents[-1].parts
    assert part.function_response.response == {"colour": "blue"}


@pytest.mark.rule("HITL-02", "TOOL-10")
@pytest.mark.parametrize("means", ["begin", "respond"])
@pytest.mark.parametrize("answer", [accept, decline])
async def test_a_remote_adk_agent_asks_before_it_runs_a_tool(answer: Callable[[str], Answer], means: str) -> None:
    ran: list[str] = []

    def wipe(path: str) -> str:
        ran.append(path)
        return "wiped"

    root = agent(
        calls(call("wipe", {"path": "a"}, id="c1")),
        say("So be it."),
        tools=[FunctionTool(wipe, require_confirmation=True)],
    )
    async with behind(AdkExecutor(root)) as executor:
        session = await executor.open()
        _, reason = await turn(session, "wipe it")
        assert (reason, ran) == ("input_required", [])
        (asked,) = session.pending
        assert isinstance(asked, ElicitationRequest)
        assert asked.kind == "tool_confirmation"
        given = answer(asked.request_id)
        if means == "respond":
            (receipt,) = await session.respond(given)
            assert receipt.ok
            events, _ = await turn(session)
        else:
            events, _ = await turn(session, given)
        assert said(events) == ["So be it."]
        responses = [event async for event in session.events() if isinstance(event, ToolResponse)]
    assert ran == (["a"] if answer is accept else [])
    assert [event.status for event in responses] == ["completed" if answer is accept else "denied"]
