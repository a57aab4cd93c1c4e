"""One contract for every record store; then what only the SQLite one promises."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    AgentDescriptor,
    AgentSessionError,
    ConfigurationError,
    Event,
    Initialize,
    InvalidInput,
    MemoryRecordStore,
    Message,
    RecordKey,
    RecordStore,
    SchemaError,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    SessionUpdate,
    StreamEnd,
    Text,
    UnsupportedVersion,
    parse_event,
)

pytestmark = pytest.mark.anyio

KEY = RecordKey("coder", "ann", "s-1")
BASE = {"timestamp": "2026-01-31T12:00:00.000Z", "session_id": "s-1"}


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RecordStore]:
    if request.param == "memory":
        yield MemoryRecordStore()
    else:
        async with SqliteRecordStore(tmp_path / "deep" / "records.db") as made:
            yield made


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteRecordStore]:
    async with SqliteRecordStore(tmp_path / "records.db") as made:
        yield made


def message(seq: int, text: str = "hello", *, partial: bool = False) -> Event:
    return Message(
        id=f"e-{seq}",
        seq=seq,
        message_id=f"m-{seq}",
        content=[Text(text=text)],
        partial=partial,
        **BASE,  # type: ignore[arg-type]
    )


async def test_a_store_satisfies_the_protocol(store: RecordStore) -> None:
    assert isinstance(store, RecordStore)


@pytest.mark.rule("PER-02")
async def test_what_was_appended_is_read_back_equal(store: RecordStore) -> None:
    await store.create(KEY)
    events = [
        Initialize(id="e-1", seq=1, protocol_version="1.0", descriptor=AgentDescriptor(name="a", executor="x"), **BASE),  # type: ignore[arg-type]
        message(2, "smile 😀\x00 line two\n"),
        parse_event(
            {
                "type": "from_the_future",
                "id": "e-3",
                "seq": 3,
                "sessionId": "s-1",
                "timestamp": BASE["timestamp"],
                "new": {"a": [1, None]},
            }
        ),
    ]
    await store.append(KEY, events, reserved_seq=40)
    assert await store.read(KEY) == events
    info = await store.info(KEY)
    assert (info.key, info.last_seq, info.reserved_seq) == (KEY, 3, 40)


async def test_a_tail_and_a_limit_are_read_from_the_cursor_on(store: RecordStore) -> None:
    await store.create(KEY)
    await store.append(KEY, [message(seq) for seq in (1, 2, 5, 9)], reserved_seq=0)
    assert [event.seq for event in await store.read(KEY, after=2)] == [5, 9]
    assert [event.seq for event in await store.read(KEY, after=1, limit=2)] == [2, 5]
    assert await store.read(KEY, after=9) == []


@pytest.mark.rule("ORD-01")
async def test_the_reserved_seq_only_rises_also_without_events(store: RecordStore) -> None:
    await store.create(KEY)
    await store.append(KEY, [], reserved_seq=100)
    await store.append(KEY, [message(101)], reserved_seq=50)
    assert (await store.info(KEY)).reserved_seq == 101


@pytest.mark.rule("ORD-01")
async def test_an_append_that_cannot_be_is_refused_as_a_whole(store: RecordStore) -> None:
    await store.create(KEY)
    await store.append(KEY, [message(1)], reserved_seq=1)
    for wrong in ([message(2), message(2)], [message(2), message(1)], [message(2), message(3, partial=True)]):
        with pytest.raises(InvalidInput):
            await store.append(KEY, wrong, reserved_seq=9)
    assert [event.seq for event in await store.read(KEY)] == [1]
    assert (await store.info(KEY)).reserved_seq == 1


@pytest.mark.rule("ORD-01")
@pytest.mark.parametrize("wrong", [[4], [5], [5, 6], [2]])
async def test_a_later_append_whose_seq_does_not_rise_is_refused(store: RecordStore, wrong: list[int]) -> None:
    await store.create(KEY)
    await store.append(KEY, [message(1)], reserved_seq=100)
    await store.append(KEY, [message(5)], reserved_seq=100)
    with pytest.raises(InvalidInput, match="cannot follow #5"):
        await store.append(KEY, [message(seq) for seq in wrong], reserved_seq=100)
    assert [event.seq for event in await store.read(KEY)] == [1, 5]


async def test_an_event_id_that_is_in_the_record_is_refused_and_nothing_of_the_append_is_stored(
    sqlite: SqliteRecordStore,
) -> None:
    await sqlite.create(KEY)
    await sqlite.append(KEY, [message(1)], reserved_seq=100)
    again = message(3).model_copy(update={"id": message(1).id})
    with pytest.raises(InvalidInput, match="is in the record already"):
        await sqlite.append(KEY, [message(2), again], reserved_seq=100)
    assert [event.seq for event in await sqlite.read(KEY)] == [1]


@pytest.mark.parametrize("count", [1, 8, 9, 300])
async def test_later_appends_of_any_length_are_stored_whole(store: RecordStore, count: int) -> None:
    await store.create(KEY)
    await store.append(KEY, [message(1)], reserved_seq=10)
    more = [message(seq, "é" * seq) for seq in range(2, 2 + 2 * count)]
    await store.append(KEY, more[:count], reserved_seq=10)
    await store.append(KEY, more[count:], reserved_seq=10)
    assert await store.read(KEY, after=1) == more
    info = await store.info(KEY)
    assert (info.last_seq, info.reserved_seq) == (more[-1].seq, max(10, more[-1].seq))


async def test_a_record_that_is_not_there_is_not_found(store: RecordStore) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.append(KEY, [], reserved_seq=1),
        lambda: store.read(KEY),
        lambda: store.info(KEY),
        lambda: store.delete(KEY),
        lambda: store.lock(KEY, "me"),
    ]
    for made in calls:
        with pytest.raises(SessionNotFound):
            await made()
    await store.unlock(KEY, "me")


async def test_of_twenty_creates_at_once_one_succeeds(store: RecordStore) -> None:
    made: list[str] = []

    async def create() -> None:
        try:
            await store.create(KEY)
        except SessionExists:
            made.append("exists")
        else:
            made.append("made")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(create)
    assert sorted(made) == ["exists"] * 19 + ["made"]


async def test_appends_to_many_records_at_once_all_arrive(store: RecordStore) -> None:
    keys = [RecordKey("coder", "ann", f"s-{number}") for number in range(8)]

    async def write(key: RecordKey) -> None:
        await store.create(key)
        for seq in range(1, 6):
            await store.append(key, [message(seq)], reserved_seq=seq)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(write, key)
    assert [len(await store.read(key)) for key in keys] == [5] * 8


async def test_users_and_agents_do_not_see_each_others_records(store: RecordStore) -> None:
    others = [RecordKey("coder", "bob", "s-1"), RecordKey("writer", "ann", "s-1")]
    for key in (KEY, *others, RecordKey("coder", "ann", "s-2")):
        await store.create(key)
    await store.append(KEY, [message(1)], reserved_seq=1)
    assert await store.read(others[0]) == []
    assert [info.key.session_id for info in await store.list("coder", "ann")] == ["s-2", "s-1"]
    assert await store.list("coder", "cid") == []


async def test_a_lock_has_one_owner_and_only_the_owner_gives_it_back(store: RecordStore) -> None:
    await store.create(KEY)
    await store.lock(KEY, "one")
    await store.lock(KEY, "one")
    with pytest.raises(SessionBusy):
        await store.lock(KEY, "two")
    await store.unlock(KEY, "two")
    with pytest.raises(SessionBusy):
        await store.delete(KEY)
    await store.unlock(KEY, "one")
    await store.lock(KEY, "two")


async def test_a_deleted_record_is_gone_and_its_id_can_be_used_again(store: RecordStore) -> None:
    await store.create(KEY)
    await store.append(KEY, [message(1)], reserved_seq=7)
    await store.delete(KEY)
    assert await store.list("coder", "ann") == []
    await store.create(KEY)
    assert await store.read(KEY) == []
    assert (await store.info(KEY)).reserved_seq == 0


# --- SQLite alone -------------------------------------------------------------------------------------------------


@pytest.mark.rule("PER-02")
async def test_another_store_on_the_file_reads_what_was_acknowledged(tmp_path: Path) -> None:
    async with SqliteRecordStore(tmp_path / "r.db") as first:
        await first.create(KEY)
        await first.append(KEY, [message(1)], reserved_seq=10)
        async with SqliteRecordStore(tmp_path / "r.db") as second:
            assert await second.read(KEY) == [message(1)]
            assert (await second.info(KEY)).reserved_seq == 10


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
async def test_only_the_owner_of_the_files_can_read_them(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    files = list(sqlite.path.parent.glob("records.db*"))
    assert len(files) >= 2  # the log too
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_deleted_content_is_in_none_of_the_files(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.append(KEY, [message(1, "hunter2-very-secret")], reserved_seq=1)
    await sqlite.delete(KEY)
    for file in sqlite.path.parent.glob("records.db*"):
        assert b"hunter2-very-secret" not in file.read_bytes()


async def test_what_a_long_reader_keeps_in_the_log_goes_when_the_store_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteRecordStore(tmp_path / "r.db", busy_timeout_s=0.05)
    await store.create(KEY)
    await store.append(KEY, [message(1, "hunter2-very-secret")], reserved_seq=1)
    reader = sqlite3.connect(store.path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM agentsession_events").fetchall()
    await store.delete(KEY)
    assert "the log holds what was deleted" in caplog.text
    with pytest.raises(SessionNotFound):
        await store.read(KEY)
    reader.close()
    await store.aclose()
    for file in tmp_path.glob("r.db*"):
        assert b"hunter2-very-secret" not in file.read_bytes()


async def test_a_file_of_another_version_is_refused(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.aclose()
    connection = sqlite3.connect(sqlite.path)
    with connection:
        connection.execute("UPDATE agentsession_meta SET value = '99'")
    connection.close()
    async with SqliteRecordStore(sqlite.path) as again:
        with pytest.raises(UnsupportedVersion) as caught:
            await again.read(KEY)
    assert caught.value.got == "version 99"


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be read as a header " * 40)
    async with SqliteRecordStore(tmp_path / "notes.txt") as store:
        with pytest.raises(ConfigurationError) as caught:
            await store.create(KEY)
    assert caught.value.got == "file is not a database"


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with SqliteRecordStore(tmp_path / "file" / "r.db") as store:
        with pytest.raises(ConfigurationError):
            await store.create(KEY)


async def test_a_path_that_no_system_takes_is_refused() -> None:
    async with SqliteRecordStore("records\0.db") as store:
        with pytest.raises(ConfigurationError):
            await store.create(KEY)


def damage(store: SqliteRecordStore, sql: str) -> None:
    connection = sqlite3.connect(store.path)
    with connection:
        connection.execute(sql)
    connection.close()


async def test_a_small_append_is_one_statement(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.append(KEY, [message(1)], reserved_seq=100)
    statements: list[str] = []
    with sqlite._engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        raw.set_trace_callback(statements.append)
    await sqlite.append(KEY, [message(2), message(3)], reserved_seq=100)
    assert [statement.split()[0] for statement in statements] == ["INSERT"]
    assert [event.seq for event in await sqlite.read(KEY)] == [1, 2, 3]


async def test_what_was_acknowledged_is_on_the_disk(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    with sqlite._engine.connect() as connection:  # a machine that stops cannot be played here
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


async def test_an_append_to_a_record_that_another_process_deleted_is_not_found(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.append(KEY, [message(1)], reserved_seq=100)
    async with SqliteRecordStore(sqlite.path) as other:
        await other.delete(KEY)
        with pytest.raises(SessionNotFound):
            await sqlite.append(KEY, [message(2)], reserved_seq=100)
        await other.create(KEY)
        await sqlite.append(KEY, [message(2)], reserved_seq=100)
        assert [event.seq for event in await other.read(KEY)] == [2]


async def test_an_append_after_anothers_is_held_against_what_the_other_stored(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.append(KEY, [message(1)], reserved_seq=100)
    async with SqliteRecordStore(sqlite.path) as other:
        await other.append(KEY, [message(7)], reserved_seq=200)
    with pytest.raises(InvalidInput, match="cannot follow #7"):
        await sqlite.append(KEY, [message(6)], reserved_seq=100)
    await sqlite.append(KEY, [message(8)], reserved_seq=100)
    assert (await sqlite.info(KEY)).reserved_seq == 200


@pytest.mark.rule("PER-02")
async def test_after_the_file_was_replaced_an_append_goes_to_the_record_of_its_key(tmp_path: Path) -> None:
    other = RecordKey("coder", "bob", "s-9")
    async with SqliteRecordStore(tmp_path / "restored.db") as made:
        await made.create(other)  # it has the number that the other file gave to the first key
        await made.create(KEY)
    store = SqliteRecordStore(tmp_path / "r.db")
    await store.create(KEY)
    await store.append(KEY, [message(1)], reserved_seq=100)
    await store.aclose()
    (tmp_path / "restored.db").replace(tmp_path / "r.db")
    await store.append(KEY, [message(2)], reserved_seq=100)
    assert [event.seq for event in await store.read(KEY)] == [2]
    assert await store.read(other) == []
    await store.aclose()


async def test_a_schema_whose_text_is_damaged_is_told_as_any_damage(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.aclose()
    connection = sqlite3.connect(sqlite.path)
    with connection:
        connection.execute("PRAGMA writable_schema=ON")
        damaged = "SET name = CAST(x'ca' AS TEXT), sql = 'x' WHERE name = 'agentsession_locks'"
        connection.execute(f"UPDATE sqlite_master {damaged}")
    connection.close()
    with pytest.raises(AgentSessionError):
        await sqlite.read(KEY)


async def test_a_number_or_a_text_that_no_database_takes_is_refused(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    with pytest.raises(InvalidInput, match="a number"):
        await sqlite.browse(limit=2**70)
    with pytest.raises(InvalidInput, match="half a character"):
        await sqlite.find("\ud800")


@pytest.mark.rule("SEC-01")
async def test_a_later_append_that_fails_is_told_without_what_was_to_be_stored(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.append(KEY, [message(1)], reserved_seq=100)
    damage(sqlite, "ALTER TABLE agentsession_events RENAME COLUMN json TO text")
    told = message(2, "hunter2-very-secret")
    with pytest.raises(AgentSessionError) as caught:
        await sqlite.append(KEY, [told], reserved_seq=100)
    assert (caught.value.id, caught.value.where) == ("record-store", str(sqlite.path))
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize("call", ["append", "read", "info", "list", "delete"])
async def test_a_database_that_fails_is_an_error_with_the_file_and_without_what_was_to_be_stored(
    sqlite: SqliteRecordStore, call: str
) -> None:
    await sqlite.create(KEY)
    damage(sqlite, "DROP TABLE agentsession_events")
    damage(sqlite, "ALTER TABLE agentsession_records RENAME COLUMN created_at TO made_at")
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "append": lambda: sqlite.append(KEY, [message(1, "hunter2-very-secret")], reserved_seq=1),
        "read": lambda: sqlite.read(KEY),
        "info": lambda: sqlite.info(KEY),
        "list": lambda: sqlite.list("coder", "ann"),
        "delete": lambda: sqlite.delete(KEY),
    }
    with pytest.raises(AgentSessionError) as caught:
        await calls[call]()
    assert caught.value.id == "record-store"
    assert caught.value.where == str(sqlite.path)
    assert "no such" in (caught.value.got or "")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("before", ["nothing", "info", "append"])
async def test_a_database_that_another_program_holds_is_told_as_that(tmp_path: Path, before: str) -> None:
    path = tmp_path / "records.db"
    async with SqliteRecordStore(path, busy_timeout_s=0.0) as store, SqliteRecordStore(path) as other:
        await other.create(KEY)
        if before == "info":
            await store.info(KEY)
        if before == "append":
            await store.append(KEY, [message(1)], reserved_seq=100)
        holder = sqlite3.connect(path)
        holder.execute("BEGIN EXCLUSIVE")
        try:
            with pytest.raises(AgentSessionError) as caught:
                await store.append(KEY, [message(2)], reserved_seq=2)
        finally:
            holder.rollback()
            holder.close()
        assert (caught.value.id, caught.value.got) == ("record-store", "database is locked")
        assert "the other program" in (caught.value.fix or "")


async def test_an_event_that_was_damaged_in_the_database_is_named(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.append(KEY, [message(1), message(2)], reserved_seq=2)
    damage(sqlite, "UPDATE agentsession_events SET json = '{bad' WHERE seq = 2")
    with pytest.raises(SchemaError) as caught:
        await sqlite.read(KEY)
    assert "event #2 of session s-1" in caught.value.what
    assert caught.value.where == str(sqlite.path)


async def test_a_cursor_beyond_every_seq_reads_nothing(store: RecordStore) -> None:
    await store.create(KEY)
    await store.append(KEY, [message(1)], reserved_seq=1)
    assert await store.read(KEY, after=10**30) == []


async def test_a_tail_is_found_by_the_key_and_not_by_reading_all(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    connection = sqlite3.connect(sqlite.path)
    plan = connection.execute(
        "EXPLAIN QUERY PLAN SELECT json FROM agentsession_events WHERE record = 1 AND seq > 5 ORDER BY seq"
    ).fetchall()
    connection.close()
    text = " ".join(str(row) for row in plan)
    assert "SEARCH" in text
    assert "TEMP B-TREE" not in text


async def _run(script: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    with anyio.fail_after(60):
        return await anyio.run_process([sys.executable, "-c", script, *args])


_LOCK_AND_DIE = """
import os, sys, anyio
from agentsession.host import SqliteRecordStore
from agentsession.protocol import RecordKey
async def main():
    store = SqliteRecordStore(sys.argv[1])
    await store.lock(RecordKey("coder", "ann", "s-1"), "other")
    os._exit(0)
anyio.run(main)
"""

_TRY_LOCK = """
import sys, anyio
from agentsession.host import SqliteRecordStore
from agentsession.protocol import RecordKey, SessionBusy
async def main():
    async with SqliteRecordStore(sys.argv[1]) as store:
        try:
            await store.lock(RecordKey("coder", "ann", "s-1"), "other")
        except SessionBusy as error:
            print(error.where)
anyio.run(main)
"""


async def test_the_lock_of_a_process_that_is_gone_is_taken_over(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await _run(_LOCK_AND_DIE, str(sqlite.path))
    await sqlite.lock(KEY, "mine")


async def test_the_lock_of_a_living_process_holds_and_names_it(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.lock(KEY, "mine")
    done = await _run(_TRY_LOCK, str(sqlite.path))
    assert done.stdout.decode().startswith(f"pid {os.getpid()}, since 20")


async def test_the_lock_of_an_earlier_process_with_the_same_number_is_taken_over(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.lock(KEY, "before")
    connection = sqlite3.connect(sqlite.path)
    with connection:
        (start,) = connection.execute("SELECT start FROM agentsession_locks").fetchone()
        connection.execute("UPDATE agentsession_locks SET start = 'another boot:1'")
    connection.close()
    if not start:
        pytest.skip("this system does not say when a process started")
    await sqlite.lock(KEY, "after")


async def test_a_lock_from_another_machine_holds_until_it_is_broken(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    await sqlite.lock(KEY, "far")
    connection = sqlite3.connect(sqlite.path)
    with connection:
        connection.execute("UPDATE agentsession_locks SET host = 'elsewhere', pid = 999999999")
    connection.close()
    with pytest.raises(SessionBusy, match="on elsewhere"):
        await sqlite.lock(KEY, "mine")
    await sqlite.break_lock(KEY)
    await sqlite.lock(KEY, "mine")


NOW, SESSION = BASE["timestamp"], BASE["session_id"]
END = StreamEnd(
    id="e-3", seq=3, timestamp=NOW, session_id=SESSION, stream_id="s1", turn_id="t1", reason="completed", data={}
)
LATE: dict[str, list[Event]] = {
    "a small append": [message(3)],
    "many events": [message(seq) for seq in range(3, 20)],
    "a title": [SessionUpdate(id="e-3", seq=3, timestamp=NOW, session_id=SESSION, title="mine")],
    "the end of a stream": [END],
    "no event": [],
}


@pytest.mark.rule("PER-02")
@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
@pytest.mark.parametrize("taken", [True, False])
async def test_who_has_lost_the_lock_appends_no_more(sqlite: SqliteRecordStore, late: list[Event], taken: bool) -> None:
    await sqlite.create(KEY)
    await sqlite.lock(KEY, "mine")
    await sqlite.append(KEY, [message(1)], reserved_seq=100)
    async with SqliteRecordStore(sqlite.path) as other:
        await other.break_lock(KEY)
        if taken:
            await other.lock(KEY, "theirs")
        read = await other.read(KEY)
        with pytest.raises(SessionBusy):
            await sqlite.append(KEY, late, reserved_seq=100)
        assert await other.read(KEY) == read
        await sqlite.unlock(KEY, "mine")
        if taken:
            await other.append(KEY, [message(2)], reserved_seq=100)


async def test_after_it_was_unlocked_whoever_locks_it_appends(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    for seq, owner in enumerate(("one", "two"), 1):
        await sqlite.lock(KEY, owner)
        await sqlite.append(KEY, [message(seq)], reserved_seq=100)
        await sqlite.unlock(KEY, owner)
    assert len(await sqlite.read(KEY)) == 2


async def test_a_delete_that_is_cancelled_leaves_nothing_in_the_log(
    sqlite: SqliteRecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sqlite.create(KEY)
    await sqlite.append(KEY, [message(1, "hunter2-very-secret")], reserved_seq=1)
    done = sqlite._transact

    def cancelled(*args: Any) -> object:
        made = done(*args)
        anyio.from_thread.run_sync(scope.cancel)
        return made

    monkeypatch.setattr(sqlite, "_transact", cancelled)
    with anyio.CancelScope() as scope:
        await sqlite.delete(KEY)
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    for file in sqlite.path.parent.glob("records.db*"):
        assert b"hunter2-very-secret" not in file.read_bytes()


async def test_a_log_that_cannot_be_emptied_is_told_and_the_record_is_deleted(
    sqlite: SqliteRecordStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await sqlite.create(KEY)

    def fails() -> object:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(sqlite._engine, "connect", fails)
        sqlite._after_delete()
    assert "could not be emptied: disk I/O error" in caplog.text
    await sqlite.delete(KEY)
    await sqlite.aclose()


async def test_the_mark_of_changes_is_another_one_after_each_write_of_anybody(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    mark = await sqlite.change_mark()
    await sqlite.read(KEY)
    assert await sqlite.change_mark() == mark
    await sqlite.append(KEY, [message(1)], reserved_seq=100)
    marks = [mark, await sqlite.change_mark()]
    async with SqliteRecordStore(sqlite.path) as other:
        await other.append(KEY, [message(2)], reserved_seq=100)
        marks.append(await sqlite.change_mark())
    await sqlite.aclose()  # another connection counts anew
    marks.append(await sqlite.change_mark())
    assert len(set(marks)) == len(marks)


async def test_a_cancelled_append_is_stored_whole_or_not_at_all(sqlite: SqliteRecordStore) -> None:
    await sqlite.create(KEY)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await sqlite.append(KEY, [message(1), message(2)], reserved_seq=2)
    assert len(await sqlite.read(KEY)) in (0, 2)


def test_one_store_serves_several_event_loops(tmp_path: Path) -> None:
    store = SqliteRecordStore(tmp_path / "r.db")
    anyio.run(store.create, KEY, backend="asyncio")
    anyio.run(store.info, KEY, backend="trio")
    anyio.run(store.aclose, backend="asyncio")


async def test_without_sqlalchemy_the_error_says_how_to_get_it() -> None:
    script = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import agentsession.host\n"
        "from agentsession.protocol import ConfigurationError\n"
        "try: agentsession.host.SqliteRecordStore\n"
        "except ConfigurationError as error: print(error.fix)\n"
    )
    done = await _run(script)
    assert done.stdout.decode().strip() == 'pip install "agent-session-protocol[sqlite]"'
