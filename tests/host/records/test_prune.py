"""Retention: what goes and what stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentsession.host import SqliteRecordStore
from agentsession.host.records import find_record, prune_records
from agentsession.protocol import (
    AgentDescriptor,
    ConfigurationError,
    Event,
    Initialize,
    InvalidInput,
    MemoryRecordStore,
    RecordKey,
    SessionNotFound,
    StreamEnd,
)

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 6, 30, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def store() -> MemoryRecordStore:
    """It tells the age of a record by its events, so that a test can choose it."""
    return MemoryRecordStore()


async def made(store: MemoryRecordStore, name: str, days: int, *pending: str, user: str = "ann") -> RecordKey:
    key = RecordKey("coder", user, name)
    base: dict[str, Any] = {
        "timestamp": (NOW - days * DAY).isoformat().replace("+00:00", ".000Z"),
        "session_id": name,
    }
    descriptor = AgentDescriptor(name="coder", executor="x")
    events: list[Event] = [Initialize(id="e1", seq=1, protocol_version="1.0", descriptor=descriptor, **base)]
    if pending:
        events.append(
            StreamEnd(
                id="e2", seq=2, reason="input_required", pending=list(pending), stream_id="s", turn_id="t", **base
            )
        )
    await store.create(key)
    await store.append(key, events, reserved_seq=2)
    return key


async def left(store: MemoryRecordStore) -> list[str]:
    return [info.key.session_id for info in await store.browse()]


async def test_what_is_older_goes_and_what_is_not_stays(store: MemoryRecordStore) -> None:
    await made(store, "old", 31)
    await made(store, "new", 29)
    gone = await prune_records(store, older_than=30 * DAY, now=NOW)
    assert [info.key.session_id for info in gone] == ["old"]
    assert await left(store) == ["new"]


async def test_what_waits_stays_unless_it_is_said_how_long(store: MemoryRecordStore) -> None:
    await made(store, "waits", 100, "c1")
    await made(store, "abandoned", 400, "c1")
    assert await prune_records(store, older_than=30 * DAY, now=NOW) == []
    await prune_records(store, older_than=30 * DAY, waiting_older_than=365 * DAY, now=NOW)
    assert await left(store) == ["waits"]


async def test_what_waits_goes_no_sooner_than_what_does_not(store: MemoryRecordStore) -> None:
    await made(store, "waits", 20, "c1")
    assert await prune_records(store, older_than=30 * DAY, waiting_older_than=10 * DAY, now=NOW) == []


async def test_a_thousand_abandoned_questions_leave_nothing_in_memory(store: MemoryRecordStore) -> None:
    for number in range(1000):
        await made(store, f"s{number}", 40, "c1")
    assert len(await prune_records(store, older_than=DAY, waiting_older_than=30 * DAY, now=NOW)) == 1000
    assert store._records == {}


async def test_what_is_open_stays(store: MemoryRecordStore) -> None:
    key = await made(store, "open", 100)
    await store.lock(key, "somebody")
    assert await prune_records(store, older_than=DAY, now=NOW) == []
    assert await left(store) == ["open"]


async def test_the_newest_of_each_user_stay(store: MemoryRecordStore) -> None:
    for name, user in (("a1", "ann"), ("a2", "ann"), ("b1", "bob"), ("a3", "ann")):
        await made(store, name, 100, user=user)
    gone = await prune_records(store, older_than=DAY, keep_last=1, now=NOW)
    assert {info.key.session_id for info in gone} == {"a1", "a2"}


async def test_one_that_was_used_after_it_was_listed_stays(store: MemoryRecordStore) -> None:
    first, second = await made(store, "one", 100), await made(store, "two", 100)

    async def delete(key: RecordKey) -> None:
        assert key == second
        await store.append(first, [], reserved_seq=50)  # somebody opens the next one meanwhile
        await store.delete(key)

    await prune_records(store, older_than=DAY, now=NOW, delete=delete)
    assert await left(store) == ["one"]


async def test_a_dry_run_deletes_nothing(store: MemoryRecordStore) -> None:
    await made(store, "old", 100)
    assert len(await prune_records(store, older_than=DAY, now=NOW, dry_run=True)) == 1
    assert await left(store) == ["old"]


async def test_a_record_of_unknown_age_stays(store: MemoryRecordStore) -> None:
    await store.create(RecordKey("coder", "ann", "empty"))
    assert await prune_records(store, older_than=timedelta(0), now=NOW) == []


async def test_more_records_than_a_page_are_pruned(store: MemoryRecordStore) -> None:
    for number in range(450):
        await made(store, f"s{number}", 40)
    assert len(await prune_records(store, older_than=DAY, now=NOW)) == 450


@pytest.mark.parametrize("wrong", [{"older_than": -DAY}, {"older_than": DAY, "keep_last": -1}])
async def test_negative_ages_and_counts_are_refused(store: MemoryRecordStore, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await prune_records(store, **wrong)


async def test_a_store_that_cannot_be_listed_is_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        await prune_records(object(), older_than=DAY)  # type: ignore[arg-type]  # on purpose
    assert caught.value.id == "store-capability"


async def test_pruned_content_is_in_none_of_the_files(tmp_path: Path) -> None:
    async with SqliteRecordStore(tmp_path / "r.db") as sqlite:
        await made(sqlite, "hunter2-very-secret", 100)  # type: ignore[arg-type]  # it has what is needed
        gone = await prune_records(sqlite, older_than=timedelta(0), now=datetime.now(UTC) + DAY)
        assert len(gone) == 1
        for file in tmp_path.glob("r.db*"):
            assert b"hunter2-very-secret" not in file.read_bytes()


@pytest.fixture
async def named(store: MemoryRecordStore) -> MemoryRecordStore:
    await made(store, "one", 1)
    await made(store, "both", 1)
    await made(store, "both", 1, user="bob")
    return store


async def test_a_record_is_found_by_its_session_id_alone(named: MemoryRecordStore) -> None:
    assert (await find_record(named, "one")).key == RecordKey("coder", "ann", "one")
    assert (await find_record(named, "both", user_id="bob")).key.user_id == "bob"
    with pytest.raises(SessionNotFound):
        await find_record(named, "two")
    with pytest.raises(InvalidInput, match="2 sessions have the id"):
        await find_record(named, "both")
