"""What our stores offer beyond the least: queries, what a list shows, snapshots. One contract for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from agentsession.host import SqliteRecordStore, SqlRecordStore
from agentsession.protocol import (
    AgentDescriptor,
    AgentStart,
    Event,
    Initialize,
    InvalidInput,
    MemoryRecordStore,
    Message,
    RecordCatalog,
    RecordKey,
    RecordQueries,
    RecordSnapshots,
    SessionNotFound,
    SessionUpdate,
    StoredSnapshot,
    StreamEnd,
    Text,
    ToolResponse,
)

pytestmark = pytest.mark.anyio

Store = MemoryRecordStore | SqlRecordStore
KEY = RecordKey("coder", "ann", "s-1")
BASE: dict[str, Any] = {"timestamp": "2026-01-31T12:00:00.000Z", "session_id": "s-1"}


@pytest.fixture(params=["memory", "sqlite", "sql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryRecordStore()
        return
    path = tmp_path / "records.db"
    plain = sa.create_engine(sa.URL.create("sqlite", database=str(path)), connect_args={"check_same_thread": False})
    async with SqliteRecordStore(path) if request.param == "sqlite" else SqlRecordStore(plain) as made:
        yield made


def message(seq: int, **more: Any) -> Event:
    return Message(id=f"e{seq}", seq=seq, message_id=f"m{seq}", content=[Text(text="hi")], **BASE, **more)


def update(seq: int, **more: Any) -> Event:
    return SessionUpdate(id=f"e{seq}", seq=seq, **BASE, **more)


def initialize() -> Event:
    descriptor = AgentDescriptor(name="coder", executor="x")
    return Initialize(id="e1", seq=1, protocol_version="1.0", descriptor=descriptor, **BASE)


def end(seq: int, turn: str, *pending: str) -> Event:
    reason = "input_required" if pending else "completed"
    return StreamEnd(
        id=f"e{seq}", seq=seq, reason=reason, pending=list(pending), stream_id=f"s{seq}", turn_id=turn, **BASE
    )


def response(seq: int, request_id: str, **more: Any) -> Event:
    return ToolResponse(id=f"e{seq}", seq=seq, request_id=request_id, name="run", status="denied", **BASE, **more)


async def test_our_stores_offer_every_part(store: Store) -> None:
    assert isinstance(store, RecordQueries)
    assert isinstance(store, RecordSnapshots)
    assert isinstance(store, RecordCatalog)


async def filled(store: Store) -> None:
    await store.create(KEY)
    await store.append(KEY, [initialize(), message(2), update(4), message(7), message(9)], reserved_seq=9)


async def test_the_newest_events_are_read_from_the_end_and_given_oldest_first(store: Store) -> None:
    await filled(store)
    assert [event.seq for event in await store.select(KEY, newest=True, limit=2)] == [7, 9]
    assert [event.seq for event in await store.select(KEY, newest=True, limit=2, before=9)] == [4, 7]
    assert [event.seq for event in await store.select(KEY, limit=2, after=2)] == [4, 7]


async def test_events_are_found_by_type_and_between_two_seqs(store: Store) -> None:
    await filled(store)
    assert [event.seq for event in await store.select(KEY, types=["message"])] == [2, 7, 9]
    assert [event.seq for event in await store.select(KEY, types=["message"], newest=True, limit=1)] == [9]
    assert [event.seq for event in await store.select(KEY, types={"message"}, after=2, before=9)] == [7]
    assert await store.select(KEY, types=[]) == []


async def test_seqs_beyond_what_a_database_holds_are_taken(store: Store) -> None:
    await filled(store)
    assert [event.seq for event in await store.select(KEY, after=7, before=10**30)] == [9]
    assert await store.select(KEY, after=10**30) == []


@pytest.mark.parametrize("last", [update(9, title="x"), end(9, "t1")], ids=["an update", "the end of a stream"])
async def test_events_that_came_one_by_one_are_counted(store: Store, last: Event) -> None:
    await store.create(KEY)
    for event in (initialize(), message(2), message(4), update(5, title="y"), message(7), message(8), last):
        await store.append(KEY, [event], reserved_seq=100)
        assert (await store.info(KEY)).events == len(await store.read(KEY))


async def test_a_record_without_events_is_new(store: Store) -> None:
    await store.create(KEY)
    info = await store.info(KEY)
    assert (info.title, info.state, info.pending, info.events, info.turns) == (None, "new", 0, 0, 0)


async def test_the_list_tells_title_counts_and_what_waits(store: Store) -> None:
    await store.create(KEY)
    await store.append(KEY, [initialize(), update(2, title="Old"), update(3, title="Shop tests")], reserved_seq=100)
    await store.append(KEY, [end(5, "t1")], reserved_seq=100)
    await store.append(KEY, [message(6, stream_id="s9", turn_id="t2"), end(9, "t2", "c1", "c2")], reserved_seq=100)
    await store.append(KEY, [end(12, "t2", "c1", "c2", "c3")], reserved_seq=100)
    (info,) = await store.list("coder", "ann")
    assert info == await store.info(KEY)
    assert (info.title, info.events, info.turns) == ("Shop tests", 7, 2)
    assert (info.state, info.pending) == ("input_required", 3)


async def test_a_response_outside_a_stream_is_one_less_that_waits(store: Store) -> None:
    await store.create(KEY)
    await store.append(KEY, [initialize(), end(9, "t2", "c1", "c2")], reserved_seq=100)
    await store.append(KEY, [response(10, "c1")], reserved_seq=100)
    info = await store.info(KEY)
    assert (info.state, info.pending, info.events) == ("input_required", 1, 3)


async def test_a_record_that_ends_inside_a_stream_is_running(store: Store) -> None:
    await store.create(KEY)
    await store.append(KEY, [initialize(), end(9, "t1")], reserved_seq=100)
    await store.append(
        KEY, [AgentStart(id="e10", seq=10, agent_id="a", stream_id="s10", turn_id="t2", **BASE)], reserved_seq=100
    )
    info = await store.info(KEY)
    assert (info.state, info.pending, info.turns) == ("running", 0, 1)
    await store.append(KEY, [end(11, "t2")], reserved_seq=100)
    assert (await store.info(KEY)).state == "idle"


async def test_an_append_that_is_refused_changes_nothing_that_the_list_shows(store: Store) -> None:
    await store.create(KEY)
    await store.append(KEY, [initialize(), update(2, title="Kept")], reserved_seq=100)
    before = await store.info(KEY)
    twice = update(4, title="Lost").model_copy(update={"id": "e1"})
    with pytest.raises(InvalidInput, match="in the record already"):
        await store.append(KEY, [update(3, title="Lost"), twice], reserved_seq=100)
    assert await store.info(KEY) == before


async def test_records_of_all_users_are_listed_by_pages_newest_first(store: Store) -> None:
    keys = [RecordKey(agent, user, "s") for agent in ("coder", "desk") for user in ("ann", "bob", "cid")]
    for key in keys:
        await store.create(key)
    pages, after = list[RecordKey](), None
    while page := await store.browse(limit=4, after=after):
        pages += [info.key for info in page]
        after = page[-1].key
    assert pages == keys[::-1]
    assert [info.key for info in await store.browse(user_id="bob")] == [keys[4], keys[1]]
    assert [info.key for info in await store.browse(agent="desk", limit=2)] == [keys[5], keys[4]]


async def test_a_page_after_a_record_that_is_gone_is_refused(store: Store) -> None:
    await store.create(KEY)
    with pytest.raises(SessionNotFound):
        await store.browse(after=RecordKey("coder", "ann", "gone"))


async def test_snapshots_are_kept_in_order_and_one_drops_those_it_does_not_go_on_from(store: Store) -> None:
    await store.create(KEY)
    first, second, third = StoredSnapshot(10, 0, "{}"), StoredSnapshot(20, 10, "é\x00"), StoredSnapshot(30, 20, "c")
    for snapshot in (first, second, third):
        await store.put_snapshot(KEY, snapshot)
    assert await store.snapshots(KEY) == [first, second, third]
    other = StoredSnapshot(25, 10, "d")
    await store.put_snapshot(KEY, other)
    assert await store.snapshots(KEY) == [first, other]


async def test_snapshots_go_with_their_record(store: Store) -> None:
    await store.create(KEY)
    await store.put_snapshot(KEY, StoredSnapshot(10, 0, "x"))
    await store.delete(KEY)
    with pytest.raises(SessionNotFound):
        await store.snapshots(KEY)
    with pytest.raises(SessionNotFound):
        await store.put_snapshot(KEY, StoredSnapshot(10, 0, "x"))
    await store.create(KEY)
    assert await store.snapshots(KEY) == []
