"""ACP agents that end, stop speaking, or never stop; what a loaded session gets; and that no process is left."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import trio
from tests.adapters.acp.acting import LS, agent, answer, asks, chunk, end, of, permission, said, update

from agentsession.adapters.acp import AcpExecutor
from agentsession.protocol import (
    Code,
    ConfigurationError,
    Custom,
    Event,
    EventReader,
    MemoryRecordStore,
    Message,
    MessageInput,
    OpenOptions,
    ToolResponse,
    grant,
)

pytestmark = pytest.mark.anyio


def process_of(executor: AcpExecutor) -> int:
    """The id of the process of its one session."""
    (link,) = executor._links.values()  # pyright: ignore[reportPrivateUsage]  # what must not be left behind
    assert link.process is not None
    return link.process.pid


async def test_an_agent_that_dies_in_the_middle_fails_the_turn(tmp_path: Path) -> None:
    turn = [chunk("a"), update("tool_call", toolCallId="t1", status="in_progress", **LS), {"exit": 1}]
    async with agent(tmp_path, turn) as executor:
        session = await executor.open()
        events = await said(session, "hi")
        assert [(each.code, each.fatal) for each in events if each.type == "error"] == [("acp-agent-lost", True)]  # type: ignore[attr-defined]
        assert end(events).reason == "failed"
        assert [each.status for each in of(events, ToolResponse)] == ["unknown"]
        again = await said(session, "hi")
    assert [each.code for each in again if each.type == "error"] == ["acp-agent-lost"]  # type: ignore[attr-defined]


async def test_an_answer_is_stale_as_soon_as_the_agent_has_died(tmp_path: Path) -> None:
    async with agent(tmp_path, asks(answer())) as executor:
        session = await executor.open()
        await said(session, "hi")
        (asked,) = session.pending
        (link,) = executor._links.values()  # pyright: ignore[reportPrivateUsage]  # to know when it has seen the end
        os.kill(process_of(executor), signal.SIGKILL)
        with anyio.fail_after(10):
            await link.arrived.wait()
        (receipt,) = await session.respond(grant(asked.request_id))
        assert (receipt.status, list(session.pending)) == ("stale", [])
        events = await said(session)
    assert [each.status for each in of(events, ToolResponse)] == ["cancelled"]
    assert end(events).reason == "failed"


async def test_a_grant_that_the_agent_did_not_live_to_get_is_cancelled(tmp_path: Path) -> None:
    async with agent(tmp_path, asks(answer())) as executor:
        session = await executor.open()
        await said(session, "hi")
        (asked,) = session.pending
        (receipt,) = await session.respond(grant(asked.request_id))
        assert receipt.ok
        (link,) = executor._links.values()  # pyright: ignore[reportPrivateUsage]  # to know when it has seen the end
        os.kill(process_of(executor), signal.SIGKILL)
        with anyio.fail_after(10):
            await link.arrived.wait()
        events = await said(session)
    assert [each.status for each in of(events, ToolResponse)] == ["cancelled"]
    assert end(events).reason == "failed"


async def test_an_agent_that_stops_speaking_between_turns_fails_the_next(tmp_path: Path) -> None:
    async with agent(tmp_path, [chunk("a"), answer(), {"read": 1}, {"mute": True}, {"deaf": True}]) as executor:
        session = await executor.open()
        await said(session, "hi")
        (link,) = executor._links.values()  # pyright: ignore[reportPrivateUsage]  # to know when it has seen the end
        assert link.process is not None
        gone = anyio.Event()
        link.on_lost = gone.set
        with anyio.fail_after(10):
            await link.process.notify("now", {})
            await gone.wait()
        events = await said(session, "hi")
    assert [each.code for each in events if each.type == "error"] == ["acp-agent-lost"]  # type: ignore[attr-defined]


async def test_an_agent_that_stops_listening_between_turns_fails_the_next(tmp_path: Path) -> None:
    async with agent(tmp_path, [chunk("a"), answer(), {"shut": True}]) as executor:
        session = await executor.open()
        await said(session, "hi")
        (link,) = executor._links.values()  # pyright: ignore[reportPrivateUsage]  # to know when its input is closed
        assert link.process is not None
        with anyio.fail_after(10), contextlib.suppress(ConnectionError):
            while True:
                await link.process.notify("now", {})
        events = await said(session, "hi")
    assert [each.code for each in events if each.type == "error"] == ["acp-agent-lost"]  # type: ignore[attr-defined]


async def test_a_message_that_the_agent_cannot_take_costs_that_turn_alone(tmp_path: Path) -> None:
    async with agent(tmp_path, [chunk("a"), answer()]) as executor:
        session = await executor.open()
        message = MessageInput(content=[Code(language="python", code="1")])
        with anyio.fail_after(20):
            async with session.stream(message) as stream:
                events = [event async for event in stream]
        assert end(events).reason == "failed"
        assert end(await said(session, "hi")).reason == "completed"
        assert len(executor.received("session/prompt")) == 1


async def test_an_agent_that_dies_while_the_host_is_asked_makes_the_answer_worthless(tmp_path: Path) -> None:
    async with agent(tmp_path, [permission(7, "t1", **LS), {"exit": 1}]) as executor:
        session = await executor.open()
        events = await said(session, "hi")
        if end(events).reason == "input_required":
            events = await said(session)
    assert end(events).reason == "failed"
    assert not session.pending


async def until_late(reader: EventReader) -> AsyncIterator[Event]:
    async for event in reader:
        yield event
        if isinstance(event, Custom) and event.kind == "acp:late_update":
            return


async def test_a_late_update_is_kept_outside_every_stream(tmp_path: Path) -> None:
    async with agent(tmp_path, [chunk("a"), answer(), chunk("late")]) as executor:
        session = await executor.open()
        await said(session, "hi")
        with anyio.fail_after(10):
            async with session.events(after=0, follow=True) as reader:
                late = [each async for each in until_late(reader)]
    assert late[-1].stream_id is None


async def test_an_error_answer_fails_the_turn_without_its_text(tmp_path: Path) -> None:
    turn = [{"error": {"code": -32603, "message": "key sk-123", "data": {"details": "sk-123"}}}]
    async with agent(tmp_path, turn) as executor:
        session = await executor.open()
        events = await said(session, "hi")
        assert end(events).reason == "failed"
        assert "sk-123" not in str([each.model_dump() for each in session.record])
        assert end(await said(session, "go on")).reason == "completed"


async def test_an_agent_that_never_stops_is_ended_within_the_grace_time(tmp_path: Path) -> None:
    async with agent(tmp_path, [chunk("a"), {"deaf": True}], grace_s=1.0) as executor:
        session = await executor.open()
        with anyio.fail_after(20):
            async with session.stream("hi") as stream:
                process = process_of(executor)
                async for event in stream:
                    if isinstance(event, Message) and event.partial:
                        assert (await session.abort("stop")).status == "aborted"
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


async def test_a_loaded_session_is_loaded_by_the_agent_and_its_history_is_not_told_twice(tmp_path: Path) -> None:
    store, able = MemoryRecordStore(), {"agentCapabilities": {"loadSession": True}}
    told = [chunk("old", "user_message_chunk")["send"], chunk("older")["send"]]
    async with agent(tmp_path, [chunk("one"), answer()], store=store, initialize=able, history=told) as executor:
        session = await executor.open(OpenOptions(session_id="s"))
        await said(session, "hi")
    async with agent(tmp_path, [chunk("two"), answer()], store=store, initialize=able, history=told) as again:
        loaded = await again.load("s")
        events = await said(loaded, "more")
        assert [call["params"]["sessionId"] for call in again.received("session/load")] == ["sess-1"]
    assert "old" not in str([each.model_dump() for each in events])
    assert end(events).reason == "completed"


async def test_no_process_is_left(tmp_path: Path) -> None:
    async with agent(tmp_path, [chunk("a"), answer()]) as executor:
        session = await executor.open()
        await said(session, "hi")
        process = process_of(executor)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_under_trio_it_says_that_it_needs_asyncio() -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match="asyncio alone"):
            async with AcpExecutor(["never-started"]):
                pass

    trio.run(main)
