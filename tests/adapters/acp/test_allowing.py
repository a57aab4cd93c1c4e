"""A yes to an agent: stored before it is said, and not said any more once the turn is aborted or over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.adapters.acp.acting import LS, Acted, agent, answer, asks, chunk, end, of, permission, said, update

from agentsession.adapters.acp._peer import Incoming
from agentsession.protocol import (
    ElicitationRequest,
    Error,
    Event,
    MemoryRecordStore,
    RecordKey,
    ToolResponse,
    accept,
    grant,
)

pytestmark = pytest.mark.anyio

YES = {"outcome": {"optionId": "yes", "outcome": "selected"}}
NO = {"outcome": {"optionId": "no", "outcome": "selected"}}
CANCELLED = {"outcome": {"outcome": "cancelled"}}


class Slow(MemoryRecordStore):
    """Stores an answer to what was asked as soon as it may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may = anyio.Event(), anyio.Event()
        self.has: list[str] = []

    async def append(self, key: RecordKey, events: Any, *given: Any, **more: Any) -> None:
        listed: list[Event] = list(events)
        if any(event.type in ("tool_decision", "elicitation_response") for event in listed):
            self.is_asked.set()
            await self.may.wait()
        await super().append(key, listed, *given, **more)
        self.has += [event.type for event in listed]


@pytest.mark.parametrize("inside", [False, True])
async def test_a_yes_is_stored_before_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool) -> None:
    store, stored_then = Slow(), list[list[str]]()
    store.may.set()
    tell = Incoming.answer

    def told(item: Incoming, result: Any) -> None:
        stored_then.append(list(store.has))
        tell(item, result)

    monkeypatch.setattr(Incoming, "answer", told)
    begun = [update("tool_call", toolCallId="t1", status="in_progress", **LS)] if inside else []
    async with agent(tmp_path, [*begun, permission(7, "t1", **LS), {"read": 1}, answer()], store=store) as executor:
        session = await executor.open()
        await said(session, "go")
        (asked,) = session.pending
        is_question = isinstance(asked, ElicitationRequest)
        await said(session, accept(asked.request_id) if is_question else grant(asked.request_id))
        assert executor.reply_to(7)["result"] == YES
    assert (inside, is_question) in ((False, False), (True, True))
    assert ("elicitation_response" if inside else "tool_decision") in stored_then[0]


async def test_a_yes_is_not_said_once_the_turn_is_aborted(tmp_path: Path) -> None:
    store = Slow()
    async with agent(tmp_path, asks({"until": "session/cancel"}, answer("cancelled")), store=store) as executor:
        session = await executor.open()
        await said(session, "go")
        (asked,) = session.pending
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(said, session, grant(asked.request_id))
                await store.is_asked.wait()
                tasks.start_soon(session.abort, "stop")
                await anyio.wait_all_tasks_blocked()
                store.may.set()
        assert executor.reply_to(7)["result"] == CANCELLED


async def test_what_an_agent_asks_and_does_not_wait_for_is_answered_when_its_turn_is_over(tmp_path: Path) -> None:
    turns: tuple[list[Any], ...] = ([permission(7, "t1", **LS), answer()], [chunk("fine"), answer()])
    async with agent(tmp_path, *turns) as executor:
        session = await executor.open()
        events = await said(session, "go")
        assert [each.status for each in of(events, ToolResponse)] == ["cancelled"]
        assert end(events).reason == "completed"
        assert end(await said(session, "on")).reason == "completed"
    assert executor.reply_to(7)["result"] in (CANCELLED, NO)


async def test_an_agent_that_runs_its_tool_before_the_grant_fails_the_turn_and_is_ended(tmp_path: Path) -> None:
    runs = [update("tool_call_update", toolCallId="t1", status=status) for status in ("in_progress", "completed")]
    async with agent(tmp_path, [permission(7, "t1", **LS), *runs, answer()]) as executor:
        assert isinstance(executor, Acted)
        session = await executor.open()
        events = await said(session, "go")
        assert [error.code for error in of(events, Error)] == ["TOOL-05"]
        assert end(events).reason == "failed"
        (link,) = executor._links.values()  # pyright: ignore[reportPrivateUsage]  # what must not be left behind
        assert link.process is None


async def test_a_call_that_was_changed_while_it_waited_is_not_allowed(tmp_path: Path) -> None:
    changed = update("tool_call_update", toolCallId="t1", rawInput={"command": "rm"})
    shown = update("tool_call_update", toolCallId="t2", title="List it")
    turn = [permission(7, "t1", **LS), changed, permission(8, "t2", **LS), shown, {"read": 2}, answer()]
    async with agent(tmp_path, turn, quiet_s=0.5) as executor:
        session = await executor.open()
        await said(session, "go")
        events = await said(session, *(grant(asked.request_id) for asked in session.pending))
        assert [executor.reply_to(number)["result"] for number in (7, 8)] == [NO, YES]
    assert sorted(each.status for each in of(events, ToolResponse)) == ["cancelled", "unknown"]
