"""The record store of plain files: what it has stored outlives a cut line, and a record is one owner's at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsession.conformance.stdio._store import FileStore
from agentsession.protocol import (
    Custom,
    RecordKey,
    RecordStore,
    SessionBusy,
    SessionExists,
    SessionNotFound,
)

pytestmark = pytest.mark.anyio

KEY = RecordKey("agent", "ada", "s-1")


def note(seq: int) -> Custom:
    return Custom(
        id=f"e{seq}",
        seq=seq,
        timestamp="2026-01-31T12:00:00.000Z",
        session_id=KEY.session_id,
        kind="note",
        data={"text": "é\n\u2028"},
    )


async def made(folder: Path) -> FileStore:
    store = FileStore(folder / "records")
    await store.create(KEY)
    await store.append(KEY, [note(1), note(2)], reserved_seq=10)
    return store


async def test_what_is_stored_is_read_by_another_process(tmp_path: Path) -> None:
    assert isinstance(await made(tmp_path), RecordStore)
    again = FileStore(tmp_path / "records")
    assert await again.read(KEY) == [note(1), note(2)]
    assert await again.read(KEY, after=1, limit=1) == [note(2)]
    info = await again.info(KEY)
    assert (info.last_seq, info.reserved_seq) == (2, 10)


@pytest.mark.rule("PER-02")
async def test_a_line_that_was_cut_off_does_not_count_nor_spoil_the_next(tmp_path: Path) -> None:
    store = await made(tmp_path)
    (path,) = (tmp_path / "records").glob("*.ndjson")
    with path.open("ab") as file:
        file.write(b'{"events": [{"id": "e3", "se')
    assert await store.read(KEY) == [note(1), note(2)]
    await store.append(KEY, [note(3)], reserved_seq=0)
    assert await store.read(KEY) == [note(1), note(2), note(3)]


async def test_records_are_listed_by_user_the_newest_first(tmp_path: Path) -> None:
    store = await made(tmp_path)
    await store.create(RecordKey("agent", "ada", "second"))
    await store.create(RecordKey("agent", "bob", "third"))
    assert [info.key.session_id for info in await store.list("agent", "ada")] == ["second", KEY.session_id]
    with pytest.raises(SessionExists):
        await store.create(KEY)


async def test_a_record_that_is_locked_is_nobody_elses(tmp_path: Path) -> None:
    store, other = await made(tmp_path), FileStore(tmp_path / "records")
    await store.lock(KEY, "one")
    await store.lock(KEY, "one")
    for attempt in (store.lock(KEY, "two"), other.lock(KEY, "two"), store.delete(KEY)):
        with pytest.raises(SessionBusy):
            await attempt
    await store.unlock(KEY, "two")
    await store.unlock(KEY, "one")
    await other.lock(KEY, "two")
    await other.unlock(KEY, "two")
    await store.delete(KEY)
    with pytest.raises(SessionNotFound):
        await store.read(KEY)
