"""Records in one SQLite file. Not for: other databases (``_sql.py``). Rules carried: PER-01, PER-02.

May import: sqlalchemy, ``_sql``. The file is made readable by its owner alone; deleted content is overwritten.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from agentsession.host._sql import Rows, SqlRecordStore
from agentsession.host._sql_schema import now_text
from agentsession.protocol import ConfigurationError, Event, RecordKey, StreamEnd

import sqlalchemy as sa  # isort: skip  # _sql says how to get it when it is missing
import sqlalchemy.exc  # isort: skip
from sqlalchemy.event import listen  # isort: skip

__all__ = ["SqliteRecordStore"]

_logger = logging.getLogger("agentsession.host")
_BEGIN: Final = "agentsession_begin"
_SMALL: Final = 8
"""Up to so many events are appended by one statement."""
_AGAIN_S: Final = 0.005
"""Seconds between two tries at what SQLite itself does not wait for."""
_MOST_KNOWN: Final = 1024
"""Of so many records the numbers are remembered."""
_ADD: Final = {
    count: f"""INSERT INTO agentsession_events (record, seq, event_id, type, json)
    SELECT ?, new.* FROM (VALUES {", ".join(["(?, ?, ?, ?)"] * count)}) AS new
    WHERE ? > (SELECT coalesce(max(seq), 0) FROM agentsession_events WHERE record = ?)
    AND ? IN ('', (SELECT owner FROM agentsession_locks WHERE record = ?))"""
    for count in range(1, _SMALL + 1)
}
"""The statements for one event, two, and so on. They add nothing to a record that is as far already, or whose lock has
gone to somebody else, and fail for one that is gone."""


_END: Final = """UPDATE agentsession_records SET state = ?, pending = ?,
    turns = coalesce(turns, 0) + (? IS NOT NULL AND last_turn IS NOT ?), last_turn = coalesce(?, last_turn),
    updated_at = ?,
    counted = coalesce(counted, 0) + (
        SELECT count(*) FROM agentsession_events WHERE record = ? AND seq > coalesce(counted_seq, 0) AND seq <= ?),
    counted_seq = ? WHERE id = ?"""
"""What the end of a stream changes of its record's summary: what ``RecordSummary.note`` says, in one statement."""


class SqliteRecordStore(SqlRecordStore):
    """Keeps records in the SQLite file ``path``, which is made on first use, with mode 0600.

    Several processes may use the file at once: the write-ahead log lets readers read while one writes, and a writer
    waits up to ``busy_timeout_s`` for another. The file must be on a local disk.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_s: float = 30.0) -> None:
        self.path = Path(path).expanduser()
        if str(path) in ("", ":memory:"):
            raise ConfigurationError(
                "the SQLite record store needs a file", got=repr(str(path)), fix="use MemoryRecordStore for tests"
            )
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(self.path)),
            connect_args={"timeout": busy_timeout_s, "check_same_thread": False},
            hide_parameters=True,  # an error's text would hold the events
        )
        listen(engine, "connect", _on_connect)
        listen(engine, "begin", _on_begin)
        super().__init__(engine)
        self._is_log_due = False
        """Something was deleted that the write-ahead log may still hold."""
        self._known: dict[RecordKey, tuple[int, int]] = {}
        """Records that were appended to: the number of each, and its reserved seq, which never falls."""
        self._timeout_s = busy_timeout_s
        self._watching = threading.Lock()
        self._watch: sqlite3.Connection | None = None
        self._watches = 0

    async def aclose(self) -> None:
        """Close the connections. The store opens new ones when it is used again, perhaps on a copy of the file."""
        self._known.clear()
        if self._is_log_due:
            await self._in_thread(self._after_delete)
        await self._in_thread(self._stop_watching)
        await super().aclose()

    async def change_mark(self) -> object:
        """Something that is equal as long as nobody has written to the file; asking reads none of it."""
        return await self._in_thread(self._change_mark)

    def _change_mark(self) -> tuple[int, int]:
        self._get_ready()
        with self._watching:
            try:
                if self._watch is None:  # the number is that of a connection which writes nothing itself
                    self._watches += 1
                    address = f"{self.path.absolute().as_uri()}?mode=rw"
                    self._watch = sqlite3.connect(address, uri=True, timeout=self._timeout_s, check_same_thread=False)
                (number,) = self._watch.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error as error:
                raise self._failed(error) from error
            return self._watches, number

    def _stop_watching(self) -> None:
        with self._watching:
            watch, self._watch = self._watch, None
            if watch is not None:
                watch.close()

    def _transaction(self, *, write: bool) -> AbstractContextManager[sa.Connection]:
        # A write that begins as a read can fail at its first write without waiting; IMMEDIATE waits at the start.
        return _begun(self._engine, "BEGIN IMMEDIATE" if write else "BEGIN")

    def _prepare(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # The log and its index get the file's own mode from SQLite.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            got = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigurationError(
                "the record file cannot be opened", where=str(self.path), got=got, fix="name another file"
            ) from error

    def _after_delete(self) -> None:
        self._is_log_due = True
        try:
            with self._engine.connect() as connection:
                raw: Any = connection.connection.dbapi_connection
                # It may still hold what was deleted. Somebody who reads for longer than the timeout keeps it there.
                (is_busy, _, _) = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except (sqlite3.Error, sqlalchemy.exc.DBAPIError) as error:  # logged; the record itself is gone
            _logger.warning("%s: the log holds what was deleted, and could not be emptied: %s", self.path, error)
            return
        self._is_log_due = bool(is_busy)
        if is_busy:
            _logger.warning(
                "%s: the log holds what was deleted until it is emptied; another reader holds it", self.path
            )

    def _append(self, key: RecordKey, rows: Rows, telling: Sequence[Event], reserved_seq: int) -> tuple[int, int]:
        # Appends are what a session waits for most, and each statement lets go of the interpreter's lock, which a busy
        # loop is slow to give back. So an append that changes nothing else is one statement, a transaction of its own.
        # The end of a stream also changes the summary: two statements and their transaction.
        record, reserved = self._known.get(key, (0, 0))
        if 0 < len(rows) <= _SMALL and max(rows[-1]["seq"], reserved_seq) <= reserved:
            end = telling[0] if len(telling) == 1 else None
            if (not telling or isinstance(end, StreamEnd)) and self._add(record, rows, end, self._owners.get(key, "")):
                return record, reserved
        self._known.pop(key, None)
        known = super()._append(key, rows, telling, reserved_seq)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = known
        return known

    def _add(self, record: int, rows: Rows, end: Event | None, owner: str) -> bool:
        """Whether the rows, and what their stream end changes, were stored; if not, nothing was, and the long way
        tells why."""
        values = [value for row in rows for value in (row["seq"], row["event_id"], row["type"], row["json"])]
        added = [record, *values, rows[0]["seq"], record, owner, record]
        connection = self._engine.raw_connection()
        try:
            cursor = connection.cursor()
            if not isinstance(end, StreamEnd):
                return bool(cursor.execute(_ADD[len(rows)], added).rowcount == len(rows))
            cursor.execute("BEGIN IMMEDIATE")
            try:
                is_added = bool(cursor.execute(_ADD[len(rows)], added).rowcount == len(rows))
                if is_added:
                    state = "input_required" if end.pending else "idle"
                    told = [state, len(end.pending), end.turn_id, end.turn_id, end.turn_id, now_text()]
                    cursor.execute(_END, [*told, record, end.seq, end.seq, record])
                cursor.execute("COMMIT" if is_added else "ROLLBACK")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite has given up the transaction itself
                    cursor.execute("ROLLBACK")
                raise
            return is_added
        except sqlite3.IntegrityError:
            return False
        except sqlite3.Error as error:
            raise self._failed(error) from error
        finally:
            connection.close()

    def _describe(self) -> str:
        return str(self.path)


@contextmanager
def _begun(engine: sa.Engine, begin: str) -> Generator[sa.Connection]:
    with engine.connect() as connection:
        connection = connection.execution_options(**{_BEGIN: begin})
        with connection.begin():
            yield connection


def _on_connect(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late and only for some statements
    _use_log(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _use_log(connection: sqlite3.Connection) -> None:
    """Go over to the write-ahead log. That needs the file alone for a moment, for which SQLite itself does not wait: of
    several that open a new or an older file at once, one alone would get it."""
    (patience_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    until = time.monotonic() + patience_ms / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if time.monotonic() >= until:
                raise
            time.sleep(_AGAIN_S)


def _on_begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
