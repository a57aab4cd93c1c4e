"""Files that earlier versions made: their tables are written out here, as those versions made them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentsession.host import SqliteRecordStore
from agentsession.host._sqlite import _use_log
from agentsession.protocol import (
    AgentDescriptor,
    Event,
    Initialize,
    RecordKey,
    SessionUpdate,
    StreamEnd,
    ToolResponse,
    dump_event,
)

pytestmark = pytest.mark.anyio

KEY = RecordKey("coder", "ann", "s-1")
BASE = {"timestamp": "2026-01-31T12:00:00.000Z", "session_id": "s-1"}

TABLES = """
CREATE TABLE agentsession_meta (name VARCHAR(64) NOT NULL, value VARCHAR(255) NOT NULL, PRIMARY KEY (name));
CREATE TABLE agentsession_records (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    agent VARCHAR(256) NOT NULL,
    user_id VARCHAR(256) NOT NULL,
    session_id VARCHAR(256) NOT NULL,
    {last_seq}
    reserved_seq BIGINT NOT NULL,
    created_at VARCHAR(32) NOT NULL,
    UNIQUE (agent, user_id, session_id)
);
CREATE TABLE agentsession_events (
    record INTEGER NOT NULL,
    seq BIGINT NOT NULL,
    event_id VARCHAR(512) NOT NULL,
    type VARCHAR(512) NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (record, seq),
    UNIQUE (record, event_id),
    FOREIGN KEY(record) REFERENCES agentsession_records (id) ON DELETE CASCADE
);
CREATE TABLE agentsession_locks (
    record INTEGER NOT NULL,
    owner VARCHAR(512) NOT NULL,
    pid BIGINT NOT NULL,
    host VARCHAR(255) NOT NULL,
    start VARCHAR(128) NOT NULL,
    since VARCHAR(32) NOT NULL,
    PRIMARY KEY (record),
    FOREIGN KEY(record) REFERENCES agentsession_records (id) ON DELETE CASCADE
);
"""


def events() -> list[Event]:
    return [
        Initialize(
            id="e1",
            seq=1,
            protocol_version="1.0",
            descriptor=AgentDescriptor(name="coder", executor="x"),
            **BASE,  # type: ignore[arg-type]  # ids and texts, given in one go
        ),
        SessionUpdate(id="e2", seq=2, title="Shop tests", **BASE),  # type: ignore[arg-type]
        StreamEnd(id="e5", seq=5, reason="completed", stream_id="s1", turn_id="t1", **BASE),  # type: ignore[arg-type]
        StreamEnd(
            id="e9",
            seq=9,
            reason="input_required",
            pending=["c1", "c2"],
            stream_id="s2",
            turn_id="t2",
            **BASE,  # type: ignore[arg-type]
        ),
        ToolResponse(id="e10", seq=10, request_id="c1", name="run", status="denied", **BASE),  # type: ignore[arg-type]
    ]


def made_by(version: int, path: Path, *more: tuple[int, str, str]) -> SqliteRecordStore:
    """A file of that version with one record; ``more`` are rows of events: seq, type and text."""
    connection = sqlite3.connect(path)
    connection.executescript(TABLES.format(last_seq="last_seq BIGINT NOT NULL," if version == 1 else ""))
    with connection:
        connection.execute("INSERT INTO agentsession_meta VALUES ('schema_version', ?)", [str(version)])
        last, columns = ("10, ", "last_seq, ") if version == 1 else ("", "")
        connection.execute(
            f"INSERT INTO agentsession_records (agent, user_id, session_id, {columns}reserved_seq, created_at)"
            f" VALUES ('coder', 'ann', 's-1', {last}4096, '2026-01-30T00:00:00.000Z')"
        )
        for event in events():
            row = [event.seq, event.id, event.type, dump_event(event)]
            connection.execute("INSERT INTO agentsession_events VALUES (1, ?, ?, ?, ?)", row)
        for seq, kind, text in more:
            connection.execute("INSERT INTO agentsession_events VALUES (1, ?, ?, ?, ?)", [seq, f"e{seq}", kind, text])
    connection.close()
    return SqliteRecordStore(path)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_of_an_earlier_version_keeps_every_event_and_takes_more(version: int, tmp_path: Path) -> None:
    async with made_by(version, tmp_path / "r.db") as store:
        assert await store.read(KEY) == events()
        update = SessionUpdate(id="e11", seq=11, title="Later", **BASE)  # type: ignore[arg-type]
        await store.append(KEY, [update], reserved_seq=4096)
    async with SqliteRecordStore(tmp_path / "r.db") as again:
        assert [event.seq for event in await again.read(KEY)] == [1, 2, 5, 9, 10, 11]
        assert (await again.info(KEY)).reserved_seq == 4096


@pytest.mark.parametrize("version", [1, 2])
async def test_the_list_tells_of_older_records_what_their_events_tell(version: int, tmp_path: Path) -> None:
    async with made_by(version, tmp_path / "r.db") as store:
        (info,) = await store.list("coder", "ann")
    assert (info.title, info.turns, info.events) == ("Shop tests", 2, 5)
    assert (info.state, info.pending) == ("input_required", 1)
    assert (info.created_at, info.updated_at) == ("2026-01-30T00:00:00.000Z", "2026-01-31T12:00:00.000Z")


async def test_an_event_that_cannot_be_read_does_not_keep_the_file_from_opening(tmp_path: Path) -> None:
    async with made_by(2, tmp_path / "r.db", (12, "stream_end", "{broken")) as store:
        assert (await store.info(KEY)).turns == 2


async def test_two_stores_that_open_an_older_file_at_once_both_find_it_whole(tmp_path: Path) -> None:
    stores = [made_by(2, tmp_path / "r.db"), *(SqliteRecordStore(tmp_path / "r.db") for _ in range(3))]
    found: list[int | None] = []

    async def look(store: SqliteRecordStore) -> None:
        async with store:
            found.append((await store.info(KEY)).events)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for store in stores:
                tasks.start_soon(look, store)
    assert found == [5] * 4


class _Refused(sqlite3.Connection):
    """Is told so many times that the file is not free, or something worse."""

    refusals = 0
    code = sqlite3.SQLITE_BUSY

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if "journal_mode" in sql and self.refusals:
            self.refusals -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = self.code
            raise error
        return super().execute(sql, *args)


def _refused(path: Path, refusals: int, *, timeout: float = 30, code: int = sqlite3.SQLITE_BUSY) -> _Refused:
    connection = sqlite3.connect(path, timeout=timeout, factory=_Refused)
    connection.refusals, connection.code = refusals, code
    return connection


def test_a_file_that_another_opens_at_the_same_moment_is_tried_again(tmp_path: Path) -> None:
    with closing(_refused(tmp_path / "r.db", 3)) as connection:
        _use_log(connection)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(("timeout", "code"), [(0, sqlite3.SQLITE_BUSY), (30, sqlite3.SQLITE_CORRUPT)])
def test_one_that_is_never_free_or_damaged_is_not(tmp_path: Path, timeout: float, code: int) -> None:
    with closing(_refused(tmp_path / "r.db", 3, timeout=timeout, code=code)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            _use_log(connection)
        assert connection.refusals == 2
