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
    ExecutionOptions,
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


class _Unloadable(ScriptedExecutor):
    """Keeps records and cannot load them."""

    def __init__(self, *steps: Any) -> None:
        super().__init__([list(steps)], name="fixer", capabilities=["abort", "host_tool_execution"])


async def test_a_sub_agent_that_was_at_work_and_cannot_go_on_is_unknown_and_not_run_again() -> None:
    store = _Snapshots()
    notes: list[int] = []

    @tool
    async def note(n: int) -> int:
        notes.append(n)
        return n

    async def play(store: MemoryRecordStore, load: str | None) -> Any:
        async with (
            _Unloadable(Call("note", {"n": 1}), Say("ok")) as fixer,
            agent("coder", calls("fixer"), reenter=True) as coder,
        ):
            host = Host(tools=[note, SubagentTool(fixer, tools=["note"])], policy=allow_all)
            with anyio.fail_after(5):
                options = OpenOptions(session_id="s")
                async with host.session(coder, options, store=store, load=load) as session:
                    return await host.run_turn(session, None if load else "go")

    await play(store, None)
    states = [(item, await _events(item, _CHILD)) for item in store.states]
    state = next(item for item, events in states if any(isinstance(event, ToolResponse) for event in events))
    await play(state, "s")
    (answer,) = [event for event in await _events(state, _PARENT) if isinstance(event, ToolResponse)]
    assert (answer.status, answer.data["error"]["code"]) == ("unknown", "outcome_unknown")
    assert notes == [1]


async def test_of_two_hosts_at_one_session_one_runs_the_sub_agent() -> None:
    inside, go = anyio.Event(), anyio.Event()
    notes: list[int] = []

    @tool
    async def note(n: int) -> int:
        notes.append(n)
        inside.set()
        await go.wait()
        return n

    ends: list[str] = []
    async with (
        agent("fixer", Call("note", {"n": 1}), Say("ok")) as fixer,
        agent("coder", calls("fixer"), Say("Done."), reenter=True) as coder,
    ):
        hosts = [Host(tools=[note, SubagentTool(fixer, tools=["note"])], policy=allow_all) for _ in range(2)]
        with anyio.fail_after(5):
            session = await hosts[0].open(coder, store=MemoryRecordStore())

            async def turn(host: Host, message: str | None) -> None:
                ends.append((await host.run_turn(session, message)).end.reason)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turn, hosts[0], "go")
                await inside.wait()
                await turn(hosts[1], None)
                assert ends == ["input_required"]
                go.set()
    assert ends == ["input_required", "completed"]
    assert notes == [1]


async def test_a_sub_agent_that_another_process_has_is_left_to_it() -> None:
    store = MemoryRecordStore()
    await store.create(_CHILD)
    await store.lock(_CHILD, "pid 1:another")
    fixer, coder = _agents(complete=False)
    async with fixer, coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all)
        with anyio.fail_after(5):
            async with host.session(coder, OpenOptions(session_id="s"), store=store) as session:
                result = await host.run_turn(session, "go")
    assert (result.end.reason, result.unanswered) == ("input_required", ("r1",))


@pytest.mark.parametrize("own", [False, True], ids=["its callers", "its own"])
async def test_the_record_of_a_sub_agent_is_in_its_executors_store_or_else_in_that_of_its_callers(own: bool) -> None:
    above, below = MemoryRecordStore(), MemoryRecordStore()
    fixer = agent("fixer", Say("mended"), store=below if own else None)
    coder = agent("coder", calls("fixer"), Say("Done."), store=above)
    async with fixer, coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all)
        async with host.session(coder, OpenOptions(session_id="s")) as session:
            assert (await host.run_turn(session, "go")).completed
    assert bool(await _events(below, _CHILD)) is own
    assert bool(await _events(above, _CHILD)) is not own


async def test_a_sub_agent_keeps_nothing_where_its_callers_session_shall_keep_nothing() -> None:
    store = MemoryRecordStore()
    fixer, coder = _agents(complete=False)
    async with fixer, coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all)
        options = OpenOptions(session_id="s", execution=ExecutionOptions(ephemeral=True))
        with anyio.fail_after(5):
            async with host.session(coder, options, store=store) as session:
                result = await host.run_turn(session, "go")
    assert result.completed
    for key in (_PARENT, _CHILD):
        with pytest.raises(SessionNotFound):
            await store.info(key)
