"""Records in a SQL database: the portable part. ``_sqlite.py`` adds what SQLite needs.

Not for: any one database. Rules carried: PER-01, PER-02, ORD-01. May import: sqlalchemy (here and in ``_sqlite.py``
only), anyio, ``_process``, ``protocol``.

Events are kept as their wire JSON and read back with ``parse_event``, so that what a newer version wrote survives. Each
call is one transaction in a worker thread; a transaction that was begun is finished also when the caller is cancelled.
The seqs of a record only rise: the primary key refuses a second event of a seq, whoever writes it.
"""

from __future__ import annotations

import builtins
import datetime
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Self, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from agentsession.host._process import ProcessMark, is_gone, this_process
from agentsession.protocol import (
    AgentSessionError,
    ConfigurationError,
    Event,
    InvalidInput,
    RecordInfo,
    RecordKey,
    SchemaError,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    UnsupportedVersion,
    dump_event,
    is_ephemeral,
    parse_event,
)

try:
    import sqlalchemy as sa
    import sqlalchemy.exc
except ImportError as error:  # the one place that says how to get it
    raise ConfigurationError(
        "SQLAlchemy is not installed",
        where="the SQL record store",
        fix='pip install "agent-session-protocol[sqlite]"',
        id="extra-missing",
    ) from error

__all__ = ["SCHEMA_VERSION", "SqlRecordStore"]

SCHEMA_VERSION: Final = 2
"""The version of the tables. Version 1 is brought up to it; one of another version is refused, not guessed at."""

_T = TypeVar("_T")
Rows: TypeAlias = builtins.list[dict[str, Any]]
"""Events as their table has them, without the record's number."""
_THREADS: Final = 4
_LAST_SEQ: Final = 2**63 - 1
"""The greatest number that a BIGINT holds."""
_METADATA: Final = sa.MetaData()

_META = sa.Table(
    "agentsession_meta",
    _METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.String(255), nullable=False),
)
_RECORDS = sa.Table(
    "agentsession_records",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("agent", sa.String(256), nullable=False),
    sa.Column("user_id", sa.String(256), nullable=False),
    sa.Column("session_id", sa.String(256), nullable=False),
    sa.Column("reserved_seq", sa.BigInteger, nullable=False, default=0),
    sa.Column("created_at", sa.String(32), nullable=False),
    sa.UniqueConstraint("agent", "user_id", "session_id"),
    sqlite_autoincrement=True,  # a deleted record's number is not used again: newest first stays true
)
_EVENTS = sa.Table(
    "agentsession_events",
    _METADATA,
    sa.Column("record", sa.Integer, sa.ForeignKey(_RECORDS.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event_id", sa.String(512), nullable=False),
    sa.Column("type", sa.String(512), nullable=False),
    sa.Column("json", sa.Text, nullable=False),
    sa.UniqueConstraint("record", "event_id"),
)
_LOCKS = sa.Table(
    "agentsession_locks",
    _METADATA,
    sa.Column("record", sa.Integer, sa.ForeignKey(_RECORDS.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("owner", sa.String(512), nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("start", sa.String(128), nullable=False),
    sa.Column("since", sa.String(32), nullable=False),
)

_LAST: Final = (
    sa.select(sa.func.coalesce(sa.func.max(_EVENTS.c.seq), 0))
    .where(_EVENTS.c.record == _RECORDS.c.id)
    .scalar_subquery()
    .label("last_seq")
)
"""The seq of a record's last event, by the primary key: kept nowhere else, so that an append writes it nowhere else."""

# The statements of every append are made once: to build them anew costs more than to run them.
_FIND: Final = sa.select(_RECORDS, _LAST).where(
    _RECORDS.c.agent == sa.bindparam("agent"),
    _RECORDS.c.user_id == sa.bindparam("user_id"),
    _RECORDS.c.session_id == sa.bindparam("session_id"),
)
_FIND_TO_CHANGE: Final = _FIND.with_for_update(of=_RECORDS)
_ADD_EVENTS: Final = _EVENTS.insert()
_RAISE_RESERVED: Final = (
    _RECORDS.update().where(_RECORDS.c.id == sa.bindparam("record")).values(reserved_seq=sa.bindparam("reserved"))
)


class SqlRecordStore:
    """A :class:`RecordStore` in a database that SQLAlchemy's synchronous ``engine`` reaches; works on asyncio and trio.

    One store serves any number of sessions, tasks and event loops. Call :meth:`aclose`, or use ``async with``, to give
    its connections back.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._is_ready = False
        self._getting_ready = threading.Lock()
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"agentsession.sql.{id(self)}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. The store opens new ones when it is used again."""
        await self._in_thread(self._engine.dispose)

    async def create(self, key: RecordKey) -> None:
        """Make an empty record. Raises :class:`SessionExists`."""

        def work(connection: sa.Connection) -> None:
            row = {"agent": key.agent, "user_id": key.user_id, "session_id": key.session_id, "created_at": _now()}
            connection.execute(_RECORDS.insert().values(reserved_seq=0, **row))

        try:
            await self._write(work)
        except sqlalchemy.exc.IntegrityError:
            raise SessionExists(f"session {key.session_id} exists", fix="choose another id, or load it") from None

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        """Store ``events`` in order and raise the reserved seq, in one transaction. ``events`` may be empty.

        Raises :class:`SessionNotFound`, and :class:`InvalidInput` for ephemeral events and a seq that does not rise.
        """
        rows: Rows = []
        last = 0
        for event in events:
            if event.seq <= last or is_ephemeral(event):
                raise _cannot_follow(event.seq, last, key)
            last = event.seq
            rows.append({"seq": last, "event_id": event.id, "type": event.type, "json": dump_event(event)})
        try:
            await self._in_thread(self._append, key, rows, reserved_seq)
        except sqlalchemy.exc.IntegrityError as error:
            raise InvalidInput("an event id or seq is in the record already", where=key.session_id) from error

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> builtins.list[Event]:
        """The stored events with a seq above ``after``, oldest first; no others are read.

        Raises :class:`SessionNotFound`.
        """

        def work(connection: sa.Connection) -> builtins.list[Event]:
            record = self._row(connection, key).id
            query = sa.select(_EVENTS.c.seq, _EVENTS.c.json).where(
                _EVENTS.c.record == record, _EVENTS.c.seq > min(after, _LAST_SEQ)
            )
            rows = connection.execute(query.order_by(_EVENTS.c.seq).limit(limit))
            return [self._parse(row.json, row.seq, key) for row in rows]

        return await self._read(work)

    async def info(self, key: RecordKey) -> RecordInfo:
        """What is known without reading. Raises :class:`SessionNotFound`."""

        def work(connection: sa.Connection) -> RecordInfo:
            row = self._row(connection, key)
            return RecordInfo(key, row.last_seq, row.reserved_seq)

        return await self._read(work)

    async def list(self, agent: str, user_id: str) -> builtins.list[RecordInfo]:
        """The records of one user with one agent, newest first."""

        def work(connection: sa.Connection) -> builtins.list[RecordInfo]:
            query = sa.select(_RECORDS, _LAST).where(_RECORDS.c.agent == agent, _RECORDS.c.user_id == user_id)
            return [
                RecordInfo(RecordKey(agent, user_id, row.session_id), row.last_seq, row.reserved_seq)
                for row in connection.execute(query.order_by(_RECORDS.c.id.desc()))
            ]

        return await self._read(work)

    async def delete(self, key: RecordKey) -> None:
        """Remove a record and all it holds. Raises :class:`SessionNotFound`, :class:`SessionBusy`."""

        def work(connection: sa.Connection) -> None:
            record = self._row(connection, key, lock=True).id
            self._check_free(connection, record, key, owner=None)
            for table in (_LOCKS, _EVENTS):
                connection.execute(table.delete().where(table.c.record == record))
            connection.execute(_RECORDS.delete().where(_RECORDS.c.id == record))

        await self._write(work)
        await self._in_thread(self._after_delete)

    async def lock(self, key: RecordKey, owner: str) -> None:
        """Take the record for ``owner``; a lock of a process that is gone is taken over.

        Raises :class:`SessionNotFound`, :class:`SessionBusy`.
        """
        mark = this_process()

        def work(connection: sa.Connection) -> None:
            record = self._row(connection, key, lock=True).id
            self._check_free(connection, record, key, owner=owner)
            connection.execute(_LOCKS.delete().where(_LOCKS.c.record == record))
            values = {"pid": mark.pid, "host": mark.host, "start": mark.start}
            connection.execute(_LOCKS.insert().values(record=record, owner=owner, since=_now(), **values))

        await self._write(work)

    async def unlock(self, key: RecordKey, owner: str) -> None:
        """Give the record back; nothing happens when ``owner`` does not hold it."""

        def work(connection: sa.Connection) -> None:
            try:
                record = self._row(connection, key).id
            except SessionNotFound:
                return
            connection.execute(_LOCKS.delete().where(_LOCKS.c.record == record, _LOCKS.c.owner == owner))

        await self._write(work)

    async def break_lock(self, key: RecordKey) -> None:
        """Remove the record's lock, whoever holds it: for a holder on another machine that is known to be gone."""

        def work(connection: sa.Connection) -> None:
            record = self._row(connection, key).id
            connection.execute(_LOCKS.delete().where(_LOCKS.c.record == record))

        await self._write(work)

    # --- for a database's own class -----------------------------------------------------------------------------

    def _transaction(self, *, write: bool) -> AbstractContextManager[sa.Connection]:
        """A connection in a transaction."""
        return self._engine.begin()

    def _prepare(self) -> None:
        """Before the first use of the database."""

    def _after_delete(self) -> None:
        """After a record was deleted."""

    def _append(self, key: RecordKey, rows: Rows, reserved_seq: int) -> tuple[int, int]:
        """One append, in this thread; the record's number, and its reserved seq afterwards."""

        def work(connection: sa.Connection) -> tuple[int, int]:
            row = self._row(connection, key, lock=True)
            if rows:
                if rows[0]["seq"] <= row.last_seq:
                    raise _cannot_follow(rows[0]["seq"], row.last_seq, key)
                connection.execute(_ADD_EVENTS, [{"record": row.id, **item} for item in rows])
            reserved: int = max(row.reserved_seq, reserved_seq, rows[-1]["seq"] if rows else 0)
            if reserved > row.reserved_seq:
                connection.execute(_RAISE_RESERVED, {"record": row.id, "reserved": reserved})
            return row.id, reserved

        return self._transact(work, True)

    def _describe(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    # --- the work -----------------------------------------------------------------------------------------------

    async def _write(self, work: Callable[[sa.Connection], _T]) -> _T:
        return await self._in_thread(self._transact, work, True)

    async def _read(self, work: Callable[[sa.Connection], _T]) -> _T:
        return await self._in_thread(self._transact, work, False)

    def _transact(self, work: Callable[[sa.Connection], _T], write: bool) -> _T:
        self._get_ready()
        try:
            with self._transaction(write=write) as connection:
                return work(connection)
        except sqlalchemy.exc.DBAPIError as error:
            error.hide_parameters = True  # its text would hold the events
            if isinstance(error, sqlalchemy.exc.IntegrityError):
                raise  # the caller's to explain
            raise self._failed(error.orig) from error

    def _failed(self, error: BaseException | None) -> AgentSessionError:
        """What to tell of a driver's exception, whose text holds no values."""
        got = str(error)
        if "locked" in got or "busy" in got:
            fix = "end the other program that writes to it, then go on: what was acknowledged is stored"
        else:
            fix = "mend the database (disk, rights, a copy of it), then load the session"
        return AgentSessionError(
            "the record database failed", where=self._describe(), got=got, fix=fix, id="record-store"
        )

    def _parse(self, text: str, seq: int, key: RecordKey) -> Event:
        try:
            return parse_event(text)
        except SchemaError as error:
            raise SchemaError(
                f"event #{seq} of session {key.session_id} cannot be read: {error.what}",
                where=self._describe(),
                got=error.got,
                expected=error.expected,
                fix="restore the database from a copy",
                id=error.id,
            ) from error

    async def _in_thread(self, function: Callable[..., _T], *args: Any) -> _T:
        # A limiter of its own, one for each event loop: what fills the default one must not hold up the record.
        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(_THREADS)
            self._limiter.set(limiter)
        return await anyio.to_thread.run_sync(function, *args, limiter=limiter)

    def _get_ready(self) -> None:
        with self._getting_ready:
            if self._is_ready:
                return
            try:
                self._prepare()
                with self._transaction(write=True) as connection:
                    _METADATA.create_all(connection)
                    self._check_version(connection)
            except sqlalchemy.exc.DBAPIError as error:
                if "locked" in str(error.orig):
                    raise self._failed(error.orig) from error
                raise ConfigurationError(
                    "the record database cannot be used",
                    where=self._describe(),
                    got=str(error.orig),
                    fix="name another file, or one that was made by agentsession",
                ) from error
            self._is_ready = True

    def _check_version(self, connection: sa.Connection) -> None:
        found = connection.scalar(sa.select(_META.c.value).where(_META.c.name == "schema_version"))
        if found is None:
            connection.execute(_META.insert().values(name="schema_version", value=str(SCHEMA_VERSION)))
        elif found == "1":  # it kept the seq of the last event a second time
            connection.execute(sa.text("ALTER TABLE agentsession_records DROP COLUMN last_seq"))
            connection.execute(_META.update().where(_META.c.name == "schema_version").values(value=str(SCHEMA_VERSION)))
        elif found != str(SCHEMA_VERSION):
            raise UnsupportedVersion(
                "the record database has another version",
                where=self._describe(),
                got=f"version {found}",
                expected=f"version {SCHEMA_VERSION}",
                fix="use the release of agent-session-protocol that made it, or name another file",
            )

    def _row(self, connection: sa.Connection, key: RecordKey, *, lock: bool = False) -> Any:
        named = {"agent": key.agent, "user_id": key.user_id, "session_id": key.session_id}
        row = connection.execute(_FIND_TO_CHANGE if lock else _FIND, named).one_or_none()
        if row is None:
            raise SessionNotFound(
                f"no session {key.session_id} of user {key.user_id} with agent {key.agent}", fix="list the sessions"
            )
        return row

    def _check_free(self, connection: sa.Connection, record: int, key: RecordKey, owner: str | None) -> None:
        held = connection.execute(sa.select(_LOCKS).where(_LOCKS.c.record == record)).one_or_none()
        if held is None or held.owner == owner:
            return
        if is_gone(ProcessMark(held.host, held.pid, held.start)):
            return
        here = held.host == this_process().host
        raise SessionBusy(
            f"session {key.session_id} is open " + ("in another process" if held.pid != this_process().pid else "here"),
            where=f"pid {held.pid}" + ("" if here else f" on {held.host}") + f", since {held.since}",
            fix="close it, or fork it" if here else "close it there; if that machine is gone, break the lock",
        )


def _cannot_follow(seq: int, last: int, key: RecordKey) -> InvalidInput:
    return InvalidInput(f"event #{seq} cannot follow #{last} in a stored record", where=key.session_id)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
