"""Long sessions: a tail in memory, the rest in the store, and snapshots. Reads are counted, no time is measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.adapters.sessions import Puppet, read, say, tool

from agentsession.adapters.base import BaseSession, RunContext
from agentsession.protocol import (
    Event,
    InvalidInput,
    MemoryRecordStore,
    Message,
    MessageInput,
    OpenOptions,
    RecordKey,
    RecordStore,
    SessionConfig,
    SessionMachine,
    StoredSnapshot,
    as_content,
    grant,
    is_ephemeral,
    plain_text,
    result,
)

pytestmark = pytest.mark.anyio

KEY = RecordKey("puppet", "local", "s")
SHORT: dict[str, Any] = {"kept_events": 16, "window": 4, "snapshot_every": 10}


class CountedStore(MemoryRecordStore):
    """Counts the events that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0
        self.most = 0

    def count(self, found: list[Event]) -> list[Event]:
        self.given += len(found)
        self.most = max(self.most, len(found))
        return found

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> list[Event]:
        return self.count(await super().read(key, after=after, limit=limit))

    async def select(
        self,
        key: RecordKey,
        *,
        after: int = 0,
        before: int | None = None,
        types: Collection[str] | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[Event]:
        return self.count(
            await super().select(key, after=after, before=before, types=types, limit=limit, newest=newest)
        )


class PlainStore:
    """A store with the least that a store must do."""

    def __init__(self, kept: MemoryRecordStore) -> None:
        for name in ("create", "append", "read", "info", "list", "delete", "lock", "unlock"):
            setattr(self, name, getattr(kept, name))


async def talk(ctx: RunContext) -> None:
    async with ctx.message() as message:
        await message.text("one ")
        await message.text("two")
    await ctx.say("three")


async def turns(session: BaseSession, count: int) -> None:
    for number in range(count):
        await session.update(SessionConfig(state={"turn": number}))
        await say(session)


@asynccontextmanager
async def long_session(store: RecordStore, count: int = 30, **changes: Any):  # type: ignore[no-untyped-def]  # a fixture
    with anyio.fail_after(10):
        async with Puppet(talk, store=store, **{**SHORT, **changes}) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await turns(session, count)
            yield session


async def closed(store: RecordStore, count: int = 30, **changes: Any) -> None:
    async with long_session(store, count, **changes):
        pass


def told(session: BaseSession) -> Any:
    known = session.recorder.known
    return (
        session.machine.snapshot(ephemeral=False),
        dict(session.state_values),
        session.turn_number,
        known.ends,
        known.streams,
        known.idempotency,
        known.events,
        known.permission_mode,
    )


async def test_memory_holds_a_tail_and_readers_still_get_everything() -> None:
    store = MemoryRecordStore()
    async with long_session(store) as session:
        assert len(session.record) < 2 * 16
        seen = [event async for event in session.events() if not is_ephemeral(event)]
        assert seen == await store.read(KEY)
        assert [event.seq for event in await session.whole_record() if not is_ephemeral(event)] == [
            event.seq for event in seen
        ]


async def test_reading_from_a_seq_near_the_end_reads_nothing_from_the_store() -> None:
    store = CountedStore()
    async with long_session(store) as session:
        store.given = 0
        found = [event async for event in session.events(after=session.last_seq - 10)]
        assert found[-1].seq == session.last_seq
        assert store.given == 0


async def test_a_reader_far_behind_holds_no_more_than_a_window() -> None:
    store = CountedStore()
    async with long_session(store) as session:
        store.most = 0
        reader = session.events()
        async for _ in reader:
            assert len(reader._place.ahead) <= 4
        assert store.most == 4


async def test_a_reader_that_stands_in_a_stream_that_is_dropped_gets_the_rest_of_it() -> None:
    async with long_session(MemoryRecordStore(), 1) as session:
        start = session.last_seq
        reader = session.events(start, follow=True)
        shown = await say(session)
        seen = [await anext(reader) for _ in range(3)]
        assert is_ephemeral(seen[-1])
        await turns(session, 20)
        assert reader._place.index < 0
        while seen[-1].seq < session.last_seq:
            seen.append(await anext(reader))
        await reader.aclose()
        assert seen[: len(shown)] == shown  # deltas too: what it was shown folds to what comes
        whole = await session.whole_record()
        before = [event for event in whole if event.seq <= start]
        assert SessionMachine.fold([*before, *seen]).snapshot(ephemeral=False) == session.machine.snapshot(
            ephemeral=False
        )


@pytest.mark.parametrize("kept", range(16, 26))
async def test_where_memory_begins_a_reader_is_shown_all_deltas_of_a_message_or_none(kept: int) -> None:
    with anyio.fail_after(10):
        async with Puppet(talk, store=MemoryRecordStore(), window=4, kept_events=kept, snapshot_every=None) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            slow = session.events()  # as long as it is there, deltas are kept for it
            await anext(slow)
            while not session.recorder.log.dropped_seq:
                await turns(session, 1)
            told: dict[str, str] = {}
            async for event in session.events():
                if isinstance(event, Message) and event.partial:
                    told[event.message_id] = told.get(event.message_id, "") + plain_text(event.content)
            assert set(told.values()) == {"one two"}
            await slow.aclose()


async def test_the_turn_that_is_open_stays_in_memory_whole() -> None:
    async def work(ctx: RunContext) -> None:
        for number in range(20):
            await ctx.request(tool(f"c{number}"))

    with anyio.fail_after(10):
        async with Puppet(work, store=MemoryRecordStore(), **SHORT) as executor:
            session = await executor.open()
            await read(session.stream("go"))
            for number in range(19):
                await read(session.stream([result(f"c{number}", "ok")]))
            asked = [event for event in session.record if event.type == "tool_request"]
            assert len(asked) == 20


async def test_an_executor_that_needs_the_whole_record_has_it() -> None:
    class Careful(Puppet):
        needs_whole_record = True

    store = MemoryRecordStore()
    with anyio.fail_after(10):
        async with Careful(talk, store=store, **SHORT) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await turns(session, 30)
            assert [event for event in session.record if not is_ephemeral(event)] == await store.read(KEY)
            await session.aclose()
            loaded = await executor.load("s")
            assert loaded.record == await store.read(KEY)
    assert await store.snapshots(KEY) == []


@pytest.mark.rule("PER-03")
async def test_a_load_reads_the_last_snapshot_and_what_came_after_it() -> None:
    store = CountedStore()
    async with long_session(store, 60) as session:
        live = told(session)
    count = (await store.info(KEY)).events
    assert count is not None
    assert count > 400
    store.given = 0
    with anyio.fail_after(10):
        async with Puppet(talk, store=store, **SHORT) as executor:
            loaded = await executor.load("s")
            assert store.given < 40
            found = told(loaded)
            assert found[0].model_copy(update={"state": live[0].state}) == live[0]
            assert found[1:] == live[1:]
            folded = SessionMachine.fold(await store.read(KEY))
            assert loaded.machine.snapshot(ephemeral=False) == folded.snapshot(ephemeral=False)
            await say(loaded)


async def test_a_session_goes_on_after_a_load_from_a_snapshot_as_after_one_without() -> None:
    store, plain = MemoryRecordStore(), MemoryRecordStore()
    await closed(store)
    await closed(plain, snapshot_every=None)
    assert await plain.snapshots(KEY) == []
    found: list[Any] = []
    for kept in (store, plain):
        with anyio.fail_after(10):
            async with Puppet(talk, store=kept, **SHORT) as executor:
                session = await executor.load("s")
                await turns(session, 3)
                known = session.recorder.known
                found.append((session.turn_number, len(known.ends), session.state_values, known.events))
    assert found[0] == found[1]


@pytest.mark.parametrize("count", [29, 30, 31, 32, 33])
async def test_a_turn_that_waits_is_loaded_whole(count: int) -> None:
    async def work(ctx: RunContext) -> None:
        if ctx.input is None:
            await ctx.say(f"answered {len(ctx.answers)}")
        elif ctx.turn_number > count:
            await ctx.post(tool("write", "grant"), tool("erase", "grant"))
        else:
            await talk(ctx)

    store = CountedStore()
    with anyio.fail_after(10):
        async with Puppet(work, store=store, resume=True, **SHORT) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await turns(session, count + 1)
            assert session.state == "input_required"
        async with Puppet(work, store=store, resume=True, **SHORT) as executor:
            loaded = await executor.load("s")
            assert [request.request_id for request in loaded.pending] == ["write", "erase"]
            assert (await loaded.respond(grant("write")))[0].ok
            ends = await read(loaded.stream([grant("erase")]))
            assert ends[-1].type == "stream_end"


async def test_a_message_that_was_sent_long_ago_attaches_to_its_turn() -> None:
    message = MessageInput(content=as_content("hello"), idempotency_key="k1")
    store = MemoryRecordStore()
    with anyio.fail_after(10):
        async with Puppet(talk, store=store, **SHORT) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            first = [event for event in await read(session.stream(message)) if not is_ephemeral(event)]
            await turns(session, 30)
            assert [event async for event in session.stream(message)] == first
            await session.aclose()
            loaded = await executor.load("s")
            assert [event async for event in loaded.stream(message)] == first


# --- rewind and fork ----------------------------------------------------------------------------------------------


async def test_a_rewind_to_an_event_that_is_no_longer_in_memory_gives_its_state_back() -> None:
    store = MemoryRecordStore()
    async with long_session(store) as session:
        ends = [event.seq for event in await session.whole_record() if event.type == "stream_end"]
        await session.executor.rewind("s", ends[4])
        assert session.state_values == {"turn": 4}
        await say(session)
        await session.aclose()
        loaded = await session.executor.load("s")
        assert loaded.state_values == {"turn": 4}


async def test_a_rewind_behind_the_last_snapshot_is_loaded_with_its_state() -> None:
    store = MemoryRecordStore()
    async with long_session(store) as session:
        ends = [event.seq for event in await session.whole_record() if event.type == "stream_end"]
        await session.executor.rewind("s", ends[2])
    async with Puppet(talk, store=store, **SHORT) as executor:
        assert (await executor.load("s")).state_values == {"turn": 2}
    async with Puppet(talk, store=PlainStore(store), **SHORT) as executor:
        assert (await executor.load("s")).state_values == {"turn": 2}


async def test_a_fork_of_a_long_session_has_a_record_and_snapshots_of_its_own() -> None:
    store = MemoryRecordStore()
    async with long_session(store) as session:
        ends = [event.seq for event in await session.whole_record() if event.type == "stream_end"]
        fork = await session.executor.fork("s", ends[20])
        await turns(fork, 1)
        live = told(fork)
        key = fork.recorder.key
        await fork.aclose()
        assert [kept.after for kept in await store.snapshots(key)] == [0]
        loaded = await session.executor.load(key.session_id)
        assert told(loaded)[1:] == live[1:]


# --- snapshots are never trusted over the record ------------------------------------------------------------------


def changed(snapshot: StoredSnapshot, change: Callable[[dict[str, Any]], None]) -> StoredSnapshot:
    body = json.loads(snapshot.text)
    change(body)
    return StoredSnapshot(snapshot.seq, snapshot.after, json.dumps(body))


def place(body: dict[str, Any]) -> None:
    body["place"] = "stream_end e9 s9 2026"


def version(body: dict[str, Any]) -> None:
    body["version"] = 99


def running(body: dict[str, Any]) -> None:
    body["machine"]["state"] = "running"


def count(body: dict[str, Any]) -> None:
    body["events"] += 1


def unknown(body: dict[str, Any]) -> None:
    body["known"] = {"turns": "many"}


def used_up(body: dict[str, Any]) -> None:
    # As if the ids that come after it were used before.
    body["machine"]["endedStreams"] += [f"s{number}" for number in range(400)]


def state(body: dict[str, Any]) -> None:
    body["known"]["state"] = [1]


def numbers(body: dict[str, Any]) -> None:
    body["known"]["ends"] = [["s1", 5, "x"]]


@pytest.mark.parametrize("change", [place, version, running, count, unknown, used_up, state, numbers])
async def test_a_last_snapshot_that_does_not_fit_changes_nothing(change: Callable[[dict[str, Any]], None]) -> None:
    store = MemoryRecordStore()
    async with long_session(store, 31) as session:
        live = told(session)
    *earlier, last = await store.snapshots(KEY)
    assert len(earlier) > 5
    assert last.seq < (await store.info(KEY)).last_seq
    await store.put_snapshot(KEY, changed(last, change))
    async with Puppet(talk, store=store, **SHORT) as executor:
        assert told(await executor.load("s"))[1:] == live[1:]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 1}', '{"a": NaN}', "\x00"])
async def test_a_snapshot_that_cannot_be_read_is_left_out(text: str) -> None:
    store = CountedStore()
    await closed(store)
    *_, before, last = await store.snapshots(KEY)
    await store.put_snapshot(KEY, StoredSnapshot(last.seq, before.seq, text))
    store.given = 0
    async with Puppet(talk, store=store, **SHORT) as executor:
        session = await executor.load("s")
        assert session.turn_number == 30
        assert store.given < 60  # the one before it is taken


async def test_snapshots_of_another_record_are_left_out() -> None:
    store, other = MemoryRecordStore(), MemoryRecordStore()
    await closed(other)
    with anyio.fail_after(10):
        async with Puppet(talk, store=store, snapshot_every=None) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            for _ in range(30):
                await session.update(SessionConfig(state={"mine": 1}))
                await say(session)
    assert (await store.info(KEY)).events == (await other.info(KEY)).events
    for snapshot in await other.snapshots(KEY):
        await store.put_snapshot(KEY, snapshot)
    async with Puppet(talk, store=store, **SHORT) as executor:
        assert (await executor.load("s")).state_values == {"mine": 1}


async def test_a_chain_with_a_link_missing_is_used_up_to_there() -> None:
    store = MemoryRecordStore()
    async with long_session(store) as session:
        live = told(session)
    kept = await store.snapshots(KEY)
    store._records[KEY].snapshots = [*kept[:3], *kept[4:]]
    async with Puppet(talk, store=store, **SHORT) as executor:
        assert told(await executor.load("s"))[1:] == live[1:]


async def test_snapshots_of_a_record_that_was_put_back_from_an_older_copy_are_left_out() -> None:
    store = MemoryRecordStore()
    await closed(store)
    record = store._records[KEY]
    ends = [index for index, event in enumerate(record.events) if event.type == "stream_end"]
    del record.events[ends[9] + 1 :]
    async with Puppet(talk, store=store, **SHORT) as executor:
        session = await executor.load("s")
        assert session.turn_number == 10
        await turns(session, 5)
        assert session.turn_number == 15


async def test_a_snapshot_that_cannot_be_stored_costs_nothing_but_time() -> None:
    class Poor(MemoryRecordStore):
        refuses = True

        async def put_snapshot(self, key: RecordKey, snapshot: StoredSnapshot) -> None:
            if self.refuses:
                raise OSError("disk full")
            await super().put_snapshot(key, snapshot)

    store = Poor()
    async with long_session(store) as session:
        assert await store.snapshots(KEY) == []
        store.refuses = False
        await turns(session, 5)
        live = told(session)
    assert (await store.snapshots(KEY))[0].after == 0
    async with Puppet(talk, store=store, **SHORT) as executor:
        assert told(await executor.load("s"))[1:] == live[1:]


async def test_a_store_without_snapshots_and_queries_is_read_by_pages() -> None:
    kept = CountedStore()
    plain: Any = PlainStore(kept)
    async with long_session(plain) as session:
        live = told(session)
        assert len(session.record) < 2 * 16
    async with Puppet(talk, store=plain, **SHORT) as executor:
        assert told(await executor.load("s"))[1:] == live[1:]
    assert await kept.snapshots(KEY) == []


async def test_what_is_loaded_does_not_stay_in_memory() -> None:
    store = MemoryRecordStore()
    await closed(store, snapshot_every=None)
    async with Puppet(talk, store=store, **SHORT) as executor:
        session = await executor.load("s")
        assert len(session.record) < 2 * 16


@pytest.mark.parametrize("wrong", [{"kept_events": 0}, {"snapshot_every": -1}])
async def test_numbers_that_keep_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="too small"):
        Puppet(talk, **wrong)
