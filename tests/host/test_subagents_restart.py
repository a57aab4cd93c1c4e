"""Sub-agents over a kill: every state that the store ever had is loaded by a new host, which must go on rightly."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.host.subagents import agent, calls

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import Host, SubagentTool, allow_all, tool
from agentsession.host._child_run import session_id_of
from agentsession.protocol import (
    Event,
    MemoryRecordStore,
    Message,
    OpenOptions,
    RecordKey,
    SessionNotFound,
    StreamEnd,
    ToolResponse,
    plain_text,
)

pytestmark = pytest.mark.anyio

_PARENT = RecordKey("coder", "local", "s")
_CHILD = RecordKey("fixer", "local", session_id_of("s", "r1", "fixer"))


class _Snapshots(MemoryRecordStore):
    """Keeps every state that a kill could leave, without the locks of the process that is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[MemoryRecordStore] = []

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        await super().append(key, events, reserved_seq=reserved_seq)
        await self._keep()

    async def create(self, key: RecordKey) -> None:
        await super().create(key)
        await self._keep()

    async def _keep(self) -> None:
        state = MemoryRecordStore()
        for key in (_PARENT, _CHILD):
            with contextlib.suppress(SessionNotFound):
                info, events = await self.info(key), await self.read(key)
                await state.create(key)
                await state.append(key, events, reserved_seq=info.reserved_seq)
        self.states.append(state)


def _agents(*, complete: bool) -> tuple[ScriptedExecutor, ScriptedExecutor]:
    steps = [Call("note", {"n": 1}, id="n1"), Call("note", {"n": 2}, id="n2")]
    last = Call("complete_task", {"result": "mended"}) if complete else Say("mended")
    fixer = agent("fixer", *steps, last, turns=[[last]], reenter=True)
    return fixer, agent("coder", calls("fixer"), Say("Done."), reenter=True)


async def _play(store: MemoryRecordStore, *, complete: bool, load: bool) -> tuple[list[int], Any]:
    """A turn, begun or gone on with; the notes that were made, and how it ended (``None``: nothing was left to do)."""
    notes: list[int] = []

    @tool
    async def note(n: int) -> int:
        notes.append(n)
        return n

    fixer, coder = _agents(complete=complete)
    async with fixer, coder:
        child = SubagentTool(fixer, tools=["note"], complete_task=complete)
        host = Host(tools=[note, child], policy=allow_all)
        with anyio.fail_after(5):
            if not load:
                async with host.session(coder, OpenOptions(session_id="s"), store=store) as session:
                    return notes, await host.run_turn(session, "go")
            async with host.session(coder, load="s", store=store) as session:
                if session.state != "input_required":
                    return notes, None
                return notes, await host.run_turn(session)


async def _events(store: MemoryRecordStore, key: RecordKey) -> list[Event]:
    try:
        return await store.read(key)
    except SessionNotFound:
        return []


def _noted(events: Sequence[Event]) -> set[int]:
    answers = [event for event in events if isinstance(event, ToolResponse) and event.name == "note"]
    return {event.data for event in answers if not event.is_error}


@pytest.mark.parametrize("complete", [False, True], ids=["text", "complete_task"])
async def test_after_a_kill_at_any_point_what_is_recorded_does_not_run_again_and_the_turn_goes_on(
    complete: bool,
) -> None:
    store = _Snapshots()
    notes, whole = await _play(store, complete=complete, load=False)
    assert (notes, whole.text) == ([1, 2], "Done.")
    went_on = finished = 0
    for state in store.states:
        before = await _events(state, _CHILD)
        try:
            again, result = await _play(state, complete=complete, load=True)
        except SessionNotFound:
            continue  # the caller's session was not there yet
        assert not _noted(before) & set(again)
        assert len(again) == len(set(again))
        if result is None:
            continue
        went_on += 1
        assert (result.end.reason, result.text) == ("completed", "Done.")
        after = await _events(state, _CHILD)
        assert _answer(await _events(state, _PARENT)) == "mended"
        if before and isinstance(before[-1], StreamEnd) and before[-1].reason == "completed":
            finished += 1
            assert after == before, "a sub-agent that had finished was begun again"
    assert went_on > 5
    assert finished > 0


def _answer(events: Sequence[Event]) -> Any:
    return next(event.data for event in events if isinstance(event, ToolResponse) and event.request_id == "r1")


async def test_a_sub_agent_that_was_cut_off_is_told_so_in_its_own_session() -> None:
    store = _Snapshots()
    await _play(store, complete=False, load=False)
    told = 0
    for state in store.states:
        before = await _events(state, _CHILD)
        in_streams = [event for event in before if event.stream_id is not None]
        if not in_streams or isinstance(in_streams[-1], StreamEnd):
            continue
        _, result = await _play(state, complete=False, load=True)
        if result is None:
            continue
        said = [
            plain_text(event.content)
            for event in await _events(state, _CHILD)
            if isinstance(event, Message) and event.role == "user"
        ]
        assert said[0] == "do it"
        assert "interrupted" in said[1]
        told += 1
    assert told > 0


async def test_a_session_whose_opening_was_cut_off_is_opened_anew() -> None:
    store = _Snapshots()
    await _play(store, complete=False, load=False)
    opened = 0
    for state in store.states:
        with contextlib.suppress(SessionNotFound):
            if not await state.read(_CHILD):
                opened += 1
                _, result = await _play(state, complete=False, load=True)
                assert result.text == "Done."
    assert opened > 0
