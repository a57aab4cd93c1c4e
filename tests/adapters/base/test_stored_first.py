"""Stores that are slow, hang or fail: nothing is shown, acknowledged or done before it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from tests.adapters.sessions import (
    MortalStore,
    Puppet,
    Work,
    read,
    say,
    stored,
    texts,
    three_turns,
    tool,
)

from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import ScriptedExecutor
from agentsession.protocol import (
    AbortTimeout,
    ConnectionLost,
    Event,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    RecordKey,
    RecordStore,
    SessionBusy,
    SessionClosed,
    SessionError,
    SessionExists,
    ToolResponse,
    grant,
    is_ephemeral,
    plain_text,
    result,
)

pytestmark = pytest.mark.anyio


@pytest.mark.rule("PER-02")
async def test_what_a_reader_has_seen_is_stored(store: RecordStore) -> None:
    with anyio.fail_after(10):
        async with ScriptedExecutor(three_turns(), store=store) as executor:
            session = await executor.open()
            async with session.stream("go") as stream:
                async for event in stream:
                    if not is_ephemeral(event):
                        assert event in await stored(store, session)
                    info = await store.info(session.recorder.key)
                    assert info.reserved_seq >= event.seq
            (receipt,) = await session.respond(result("a", 1))
            assert receipt.ok
            assert (await stored(store, session))[-1].type == "tool_response"


@pytest.mark.rule("PER-02")
async def test_an_answer_is_acknowledged_only_when_it_is_stored() -> None:
    store = MortalStore()
    with anyio.fail_after(5):
        async with ScriptedExecutor(three_turns(), store=store) as executor:
            session = await executor.open()
            await say(session)
            store.dies_at = store.appends + 1
            with pytest.raises(SessionError) as failed:
                await session.respond(result("a", 1))
            assert failed.value.id == "record-store"
            assert failed.value.got == "Killed"


async def test_what_a_store_says_of_its_failure_is_told() -> None:
    class Full(MemoryRecordStore):
        async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
            if any(event.type == "tool_response" for event in events):
                raise SessionError("the database failed", got="disk full", fix="make room", id="record-store")
            await super().append(key, events, reserved_seq=reserved_seq)

    with anyio.fail_after(5):
        async with ScriptedExecutor(three_turns(), store=Full()) as executor:
            session = await executor.open()
            await say(session)
            with pytest.raises(SessionError) as failed:
                await session.respond(result("a", 1))
            assert (failed.value.got, failed.value.fix) == ("disk full", "make room")


@pytest.mark.rule("PER-02")
@pytest.mark.rule("LIFE-08")
async def test_a_store_that_fails_stops_the_session_and_its_run() -> None:
    store = MortalStore()
    cancelled = anyio.Event()

    async def work(ctx: RunContext) -> None:
        try:
            while True:
                await ctx.say("more")
        finally:
            cancelled.set()

    with anyio.fail_after(5):
        async with Puppet(work, store=store) as executor:
            session = await executor.open()
            seen: list[Event] = []
            store.dies_at = store.appends + 5

            async def reading() -> None:
                async for event in session.stream("go"):
                    seen.append(event)

            with pytest.raises(ConnectionLost) as lost:
                await reading()
            assert isinstance(lost.value.__cause__, SessionError)
            await cancelled.wait()
            assert session.state == "closed"
            with pytest.raises(SessionClosed):
                session.stream("again")
            store.dead = False
            assert seen == [event for event in await stored(store, session) if event.stream_id]
            await session.aclose()
            assert executor.closed == [session.session_id]


@pytest.mark.rule("ORD-11")
async def test_a_slow_store_holds_the_producer() -> None:
    class Slow(MemoryRecordStore):
        go = anyio.Event()
        slow = False

        async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
            if self.slow:
                await self.go.wait()
            await super().append(key, events, reserved_seq=reserved_seq)

    store = Slow()

    async def work(ctx: RunContext) -> None:
        store.slow = True
        for number in range(200):
            await ctx.say(str(number))

    with anyio.fail_after(5):
        async with Puppet(work, store=store, window=8) as executor:
            session = await executor.open()
            stream = session.stream("go")
            for _ in range(300):
                await anyio.lowlevel.checkpoint()
            assert 8 < len(session.record) < 50
            store.go.set()
            assert len(texts(await read(stream))) == 201


class GatedStore(MemoryRecordStore):
    """From ``gate`` on, an append waits until it is set; ``calls`` tells the order."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: anyio.Event | None = None
        self.held = anyio.Event()
        self.calls: list[str] = []

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        if self.gate is not None:
            self.held.set()
            await self.gate.wait()
        self.calls.append("append")
        await super().append(key, events, reserved_seq=reserved_seq)

    async def unlock(self, key: RecordKey, owner: str) -> None:
        self.calls.append("unlock")
        await super().unlock(key, owner)


@pytest.mark.rule("PER-02", "PER-04")
async def test_nothing_is_done_for_a_message_or_an_answer_before_it_is_stored() -> None:
    store, done = GatedStore(), list[str]()

    async def work(ctx: RunContext) -> None:
        done.append("began")
        await ctx.request(tool("write", "grant"))
        done.append("ran")
        await ctx.emit(ToolResponse(request_id="write", name="write"))

    async def held(*given: Any) -> None:
        store.gate, store.held = anyio.Event(), anyio.Event()
        stream = session.stream(*given)
        read_on = anyio.Event()

        async def enter() -> None:
            async with stream:
                read_on.set()
                [event async for event in stream]

        async with anyio.create_task_group() as group:
            group.start_soon(enter)
            await store.held.wait()
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            before.append((list(done), read_on.is_set()))
            store.gate.set()

    before: list[tuple[list[str], bool]] = []
    with anyio.fail_after(10):
        async with Puppet(work, store=store) as executor:
            session = await executor.open()
            await held("go")
            await held([grant("write")])
    # The first stream has no receipts that could be read too early.
    assert before == [([], True), (["began"], False)]
    assert done == ["began", "ran"]


@pytest.mark.rule("PER-02", "PER-04", "CTL-06")
async def test_a_steer_is_handed_to_the_run_when_it_is_stored_as_injected() -> None:
    store, began, steered, heard = GatedStore(), anyio.Event(), anyio.Event(), list[str]()

    async def work(ctx: RunContext) -> None:
        began.set()
        await steered.wait()
        heard.extend(plain_text(steer.content) for steer in await ctx.steers())

    with anyio.fail_after(10):
        async with Puppet(work, store=store) as executor:
            session = await executor.open()
            async with session.stream("go") as stream:
                await began.wait()
                assert (await session.steer("mind")).status == "queued"
                gate = store.gate = anyio.Event()
                steered.set()
                await store.held.wait()
                for _ in range(50):
                    await anyio.lowlevel.checkpoint()
                early = list(heard)
                gate.set()
                [event async for event in stream]
    assert early == []
    assert heard == ["mind"]


def staying(store: GatedStore, leave: anyio.Event) -> Work:
    """Work whose write the store holds, and that stays until it may leave, also when it is told to end."""

    async def work(ctx: RunContext) -> None:
        store.gate = anyio.Event()
        await ctx.emit(tool(needs="none"))
        with anyio.CancelScope(shield=True):
            await leave.wait()

    return work


@pytest.mark.rule("PER-02")
async def test_a_session_that_was_stopped_gives_its_record_back_after_its_last_write() -> None:
    store, leave = GatedStore(), anyio.Event()
    with anyio.fail_after(5):
        async with Puppet(staying(store, leave), store=store, grace_s=0.05) as executor:
            session = await executor.open()
            session.stream("go")
            await store.held.wait()
            async with anyio.create_task_group() as group:

                async def abort() -> None:
                    with pytest.raises(AbortTimeout):
                        await session.abort()

                group.start_soon(abort)
                async with session.events(follow=True) as reader:
                    with pytest.raises(ConnectionLost):
                        [event async for event in reader]
                assert store.gate is not None
                store.gate.set()
            assert store.calls[-1] == "unlock"
            leave.set()


@pytest.mark.rule("PER-02")
async def test_a_record_whose_store_does_not_answer_stays_locked() -> None:
    store, leave = GatedStore(), anyio.Event()
    with anyio.fail_after(5):
        async with Puppet(staying(store, leave), store=store, grace_s=0.05) as executor:
            session = await executor.open()
            session.stream("go")
            await store.held.wait()
            with pytest.raises(AbortTimeout):
                await session.abort()
            with pytest.raises(SessionBusy):
                await executor.load(session.session_id)
            leave.set()
            assert store.gate is not None
            store.gate.set()


async def test_a_session_does_not_take_the_place_of_one_that_is_open_under_its_key() -> None:
    async def work(ctx: RunContext) -> None: ...

    with anyio.fail_after(5):
        store = MemoryRecordStore()
        async with Puppet(work, store=store) as executor:
            await (await executor.open(OpenOptions(session_id="s"))).aclose()
            await (await executor.open(OpenOptions(session_id="source"))).aclose()
            unkept = OpenOptions(session_id="s", execution=ExecutionOptions(ephemeral=True))
            first = await executor.open(unkept)
            with pytest.raises(SessionBusy):
                await executor.load("s")
            with pytest.raises(SessionExists):
                await executor.fork("source", 1, OpenOptions(session_id="s"), store=store)
        assert first.state == "closed"
        assert executor.closed == ["s", "source", "s"]
        async with Puppet(work, store=store) as executor:
            await executor.load("s")
