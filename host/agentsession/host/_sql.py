"""Records in a SQL database: the portable part. ``_sqlite.py`` adds what SQLite needs.

Not for: any one database. Rules carried: PER-01, PER-02, ORD-01. May import: sqlalchemy (here, in the other
``_sql…`` modules and in ``_sqlite.py`` only), ``_process``, ``protocol``.

Events are kept as their wire JSON and read back with ``parse_event``, so that what a newer version wrote survives. Each
call is one transaction in a worker thread; a transaction that was begun is finished also when the caller is cancelled.
The seqs of a record only rise: the primary key refuses a second event of a seq, whoever writes it.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeAlias

from agentsession.host._process import ProcessMark, is_gone, this_process
from agentsession.host._sql_base import SqlTransactions  # first: it says how to get SQLAlchemy when it is missing
from agentsession.host._sql_schema import (
    ANSWERED,
    EVENTS,
    LAST,
    LOCKS,
    RECORDS,
    SCHEMA_VERSION,
    SNAPSHOTS,
    UNCOUNTED,
    now_text,
    summary_of,
    summary_values,
)
from agentsession.protocol import (
    SUMMARY_TYPES,
    Event,
    InvalidInput,
    RecordInfo,
    RecordKey,
    RecordSummary,
    SchemaError,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StoredSnapshot,
    dump_event,
    is_ephemeral,
    parse_event,
)

import sqlalchemy as sa  # isort: skip
import sqlalchemy.exc  # isort: skip

__all__ = ["SCHEMA_VERSION", "SqlRecordStore"]

Rows: TypeAlias = builtins.list[dict[str, Any]]
"""Events as their table has them, without the record's number."""
_LOCK_TRIES: Final = 5
_LAST_SEQ: Final = 2**63 - 1
"""The greatest number that a BIGINT holds."""

# The statements of every append are made once: to build them anew costs more than to run them.
_FIND: Final = sa.select(RECORDS, LAST).where(
    RECORDS.c.agent == sa.bindparam("agent"),
    RECORDS.c.user_id == sa.bindparam("user_id"),
    RECORDS.c.session_id == sa.bindparam("session_id"),
)
_FIND_COUNTED: Final = _FIND.add_columns(UNCOUNTED, ANSWERED)
_FIND_TO_CHANGE: Final = _FIND.with_for_update(of=RECORDS)
_ADD_EVENTS: Final = EVENTS.insert()
_RAISE_RESERVED: Final = (
    RECORDS.update().where(RECORDS.c.id == sa.bindparam("record")).values(reserved_seq=sa.bindparam("reserved"))
)
_OWNER: Final = sa.select(LOCKS.c.owner).where(LOCKS.c.record == sa.bindparam("record"))
_COUNT: Final = (
    sa.select(sa.func.count())
    .select_from(EVENTS)
    .where(
        EVENTS.c.record == sa.bindparam("record"),
        EVENTS.c.seq > sa.bindparam("above"),
        EVENTS.c.seq < sa.bindparam("below"),
    )
)
_SUMMARISE: Final = (
    RECORDS.update()
    .where(RECORDS.c.id == sa.bindparam("record"))
    .values(
        reserved_seq=sa.bindparam("reserved"),
        **{name: sa.bindparam(name) for name in (*summary_values(RecordSummary()), "counted", "counted_seq")},
        updated_at=sa.bindparam("updated_at"),
    )
)


class SqlRecordStore(SqlTransactions):
    """A :class:`RecordStore` in a database that SQLAlchemy's synchronous ``engine`` reaches; works on asyncio and trio.

    It also is a ``RecordQueries``, ``RecordSnapshots`` and ``RecordCatalog`` of ``agentsession.protocol``.
    One store serves any number of sessions, tasks and event loops. Call :meth:`aclose`, or use ``async with``, to give
    its connections back.
    """

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(engine)
        self._owners: dict[RecordKey, str] = {}
        """Who took each record by this store: nobody else's lock lets it append."""

    async def create(self, key: RecordKey) -> None:
        """Make an empty record. Raises :class:`SessionExists`."""

        def work(connection: sa.Connection) -> None:
            row = {"agent": key.agent, "user_id": key.user_id, "session_id": key.session_id, "created_at": now_text()}
            connection.execute(RECORDS.insert().values(reserved_seq=0, updated_at=row["created_at"], **row))

        try:
            await self._write(work)
        except sqlalchemy.exc.IntegrityError:
            raise SessionExists(f"session {key.session_id} exists", fix="choose another id, or load it") from None

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        """Store ``events`` in order and raise the reserved seq, in one transaction. ``events`` may be empty.

        Raises :class:`SessionNotFound`, :class:`InvalidInput` for ephemeral events and a seq that does not rise, and
        :class:`SessionBusy` where the record was locked by this store and somebody else has the lock now.
        """
        rows: Rows = []
        telling: builtins.list[Event] = []
        last = 0
        for event in events:
            if event.seq <= last or is_ephemeral(event):
                raise _cannot_follow(event.seq, last, key)
            last = event.seq
            rows.append({"seq": last, "event_id": event.id, "type": event.type, "json": dump_event(event)})
            if event.type in SUMMARY_TYPES:
                telling.append(event)
        try:
            await self._in_thread(self._append, key, rows, telling, reserved_seq)
        except sqlalchemy.exc.IntegrityError as error:
            raise InvalidInput("an event id or seq is in the record already", where=key.session_id) from error

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> builtins.list[Event]:
        """The stored events with a seq above ``after``, oldest first; no others are read.

        Raises :class:`SessionNotFound`.
        """

        return await self.select(key, after=after, limit=limit)

    async def select(
        self,
        key: RecordKey,
        *,
        after: int = 0,
        before: int | None = None,
        types: Collection[str] | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> builtins.list[Event]:
        """The stored events with a seq between ``after`` and ``before``, of ``types``; no others are read.

        Of more than ``limit`` the oldest, or with ``newest`` the newest; always given oldest first.
        Raises :class:`SessionNotFound`.
        """
        query = sa.select(EVENTS.c.seq, EVENTS.c.json).where(EVENTS.c.seq > min(after, _LAST_SEQ))
        if before is not None:
            query = query.where(EVENTS.c.seq < min(before, _LAST_SEQ))
        if types is not None:
            query = query.where(EVENTS.c.type.in_(sorted(types)))
        query = query.order_by(EVENTS.c.seq.desc() if newest else EVENTS.c.seq).limit(limit)

        def work(connection: sa.Connection) -> builtins.list[Event]:
            rows = connection.execute(query.where(EVENTS.c.record == self._row(connection, key).id)).all()
            return [self._parse(row.json, row.seq, key) for row in (reversed(rows) if newest else rows)]

        return await self._read(work)

    async def info(self, key: RecordKey) -> RecordInfo:
        """What is known without reading. Raises :class:`SessionNotFound`."""

        def work(connection: sa.Connection) -> RecordInfo:
            return self._told(connection, self._row(connection, key, counts=True))

        return await self._read(work)

    async def list(self, agent: str, user_id: str) -> builtins.list[RecordInfo]:
        """The records of one user with one agent, newest first."""
        return await self.browse(agent=agent, user_id=user_id)

    async def browse(
        self,
        *,
        agent: str | None = None,
        user_id: str | None = None,
        limit: int | None = None,
        after: RecordKey | None = None,
    ) -> builtins.list[RecordInfo]:
        """Records, newest first; ``after`` is the last one of the page before.

        Raises :class:`SessionNotFound` when that one is gone.
        """
        query = sa.select(RECORDS, LAST, UNCOUNTED, ANSWERED).order_by(RECORDS.c.id.desc()).limit(limit)
        if agent is not None:
            query = query.where(RECORDS.c.agent == agent)
        if user_id is not None:
            query = query.where(RECORDS.c.user_id == user_id)

        def work(connection: sa.Connection) -> builtins.list[RecordInfo]:
            page = query if after is None else query.where(RECORDS.c.id < self._row(connection, after).id)
            return [self._told(connection, row) for row in connection.execute(page).all()]

        return await self._read(work)

    async def put_snapshot(self, key: RecordKey, snapshot: StoredSnapshot) -> None:
        """Keep ``snapshot``, and drop those above the one that it goes on from. Raises :class:`SessionNotFound`."""

        def work(connection: sa.Connection) -> None:
            record = self._row(connection, key, lock=True).id
            connection.execute(SNAPSHOTS.delete().where(SNAPSHOTS.c.record == record, SNAPSHOTS.c.seq > snapshot.after))
            values = {"seq": snapshot.seq, "after_seq": snapshot.after, "text": snapshot.text}
            connection.execute(SNAPSHOTS.insert().values(record=record, **values))

        await self._write(work)

    async def snapshots(self, key: RecordKey) -> builtins.list[StoredSnapshot]:
        """The snapshots that are kept, lowest seq first. Raises :class:`SessionNotFound`."""

        def work(connection: sa.Connection) -> builtins.list[StoredSnapshot]:
            record = self._row(connection, key).id
            query = sa.select(SNAPSHOTS).where(SNAPSHOTS.c.record == record).order_by(SNAPSHOTS.c.seq)
            return [StoredSnapshot(row.seq, row.after_seq, row.text) for row in connection.execute(query)]

        return await self._read(work)

    async def find(self, session_id: str) -> builtins.list[RecordKey]:
        """The records of sessions with this id, whoever's they are: one, unless agents or users have the same id."""

        def work(connection: sa.Connection) -> builtins.list[RecordKey]:
            query = sa.select(RECORDS.c.agent, RECORDS.c.user_id).where(RECORDS.c.session_id == session_id)
            found = connection.execute(query.order_by(RECORDS.c.id))
            return [RecordKey(row.agent, row.user_id, session_id) for row in found]

        return await self._read(work)

    async def delete(self, key: RecordKey) -> None:
        """Remove a record and all it holds. Raises :class:`SessionNotFound`, :class:`SessionBusy`."""

        def work(connection: sa.Connection) -> None:
            record = self._row(connection, key, lock=True).id
            self._check_free(connection, record, key, owner=None)
            for table in (LOCKS, SNAPSHOTS, EVENTS):
                connection.execute(table.delete().where(table.c.record == record))
            connection.execute(RECORDS.delete().where(RECORDS.c.id == record))

        def delete() -> None:  # both in one thread: a caller that is cancelled in between leaves nothing behind
            self._transact(work, True)
            self._after_delete()

        await self._in_thread(delete)

    async def lock(self, key: RecordKey, owner: str) -> None:
        """Take the record for ``owner``; a lock of a process that is gone is taken over.

        Raises :class:`SessionNotFound`, :class:`SessionBusy`.
        """
        mark = this_process()

        def work(connection: sa.Connection) -> None:
            record = self._row(connection, key, lock=True).id
            # Only the lock that was looked at is removed: not every database holds a row that was read, and of several
            # that find the record free one alone can then insert.
            found = self._check_free(connection, record, key, owner=owner)
            if found is not None:
                connection.execute(LOCKS.delete().where(LOCKS.c.record == record, LOCKS.c.owner == found))
            values = {"pid": mark.pid, "host": mark.host, "start": mark.start}
            connection.execute(LOCKS.insert().values(record=record, owner=owner, since=now_text(), **values))

        for _ in range(_LOCK_TRIES):
            try:
                await self._write(work)
                self._owners[key] = owner
                return
            except sqlalchemy.exc.IntegrityError:  # another was faster; look who it is
                continue
        raise SessionBusy(f"session {key.session_id} is being opened elsewhere", fix="try again, or fork it")

    async def unlock(self, key: RecordKey, owner: str) -> None:
        """Give the record back; nothing happens when ``owner`` does not hold it."""

        def work(connection: sa.Connection) -> None:
            try:
                record = self._row(connection, key).id
            except SessionNotFound:
                return
            connection.execute(LOCKS.delete().where(LOCKS.c.record == record, LOCKS.c.owner == owner))

        await self._write(work)
        if self._owners.get(key) == owner:
            del self._owners[key]

    async def break_lock(self, key: RecordKey) -> None:
        """Remove the record's lock, whoever holds it: for a holder on another machine that is known to be gone."""

        def work(connection: sa.Connection) -> None:
            record = self._row(connection, key).id
            connection.execute(LOCKS.delete().where(LOCKS.c.record == record))

        await self._write(work)

    # --- for a database's own class -----------------------------------------------------------------------------

    def _append(self, key: RecordKey, rows: Rows, telling: Sequence[Event], reserved_seq: int) -> tuple[int, int]:
        """One append, in this thread; the record's number, and its reserved seq afterwards.

        ``telling``: those of the events that the record's summary is made of.
        """

        def work(connection: sa.Connection) -> tuple[int, int]:
            row = self._row(connection, key, lock=True)
            self._check_held(connection, row.id, key)
            if rows:
                if rows[0]["seq"] <= row.last_seq:
                    raise _cannot_follow(rows[0]["seq"], row.last_seq, key)
                connection.execute(_ADD_EVENTS, [{"record": row.id, **item} for item in rows])
            reserved: int = max(row.reserved_seq, reserved_seq, rows[-1]["seq"] if rows else 0)
            if telling:
                connection.execute(
                    _SUMMARISE,
                    {"record": row.id, "reserved": reserved, **self._summarised(connection, row, rows, telling)},
                )
            elif reserved > row.reserved_seq:
                connection.execute(_RAISE_RESERVED, {"record": row.id, "reserved": reserved})
            return row.id, reserved

        return self._transact(work, True)

    def _summarised(self, connection: sa.Connection, row: Any, rows: Rows, telling: Sequence[Event]) -> dict[str, Any]:
        """The summary's columns after ``rows``; the events before them are counted by the index."""
        summary = summary_of(row)
        for event in telling:
            summary.note(event)
        seq, counted_seq = telling[-1].seq, row.counted_seq or 0
        earlier = connection.scalar(_COUNT, {"record": row.id, "above": counted_seq, "below": rows[0]["seq"]}) or 0
        counted = (row.counted or 0) + earlier + sum(item["seq"] <= seq for item in rows)
        return summary_values(summary) | {"counted": counted, "counted_seq": seq, "updated_at": now_text()}

    # --- the work -----------------------------------------------------------------------------------------------

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

    def _row(self, connection: sa.Connection, key: RecordKey, *, lock: bool = False, counts: bool = False) -> Any:
        named = {"agent": key.agent, "user_id": key.user_id, "session_id": key.session_id}
        query = _FIND_TO_CHANGE if lock else _FIND_COUNTED if counts else _FIND
        row = connection.execute(query, named).one_or_none()
        if row is None:
            raise SessionNotFound(
                f"no session {key.session_id} of user {key.user_id} with agent {key.agent}", fix="list the sessions"
            )
        return row

    def _told(self, connection: sa.Connection, row: Any) -> RecordInfo:
        """What a record's row with its counts tells."""
        last = None
        if row.last_seq > (row.counted_seq or 0):  # it may stand inside a stream
            where = (EVENTS.c.record == row.id) & (EVENTS.c.seq == row.last_seq)
            text = connection.scalar(sa.select(EVENTS.c.json).where(where))
            with contextlib.suppress(SchemaError):  # told to whoever reads it
                last = parse_event(text or "")
        summary = summary_of(row)
        state, pending = summary.now(last, row.answered)
        return RecordInfo(
            RecordKey(row.agent, row.user_id, row.session_id),
            row.last_seq,
            row.reserved_seq,
            title=summary.title,
            created_at=row.created_at,
            updated_at=row.updated_at or row.created_at,
            events=(row.counted or 0) + row.uncounted,
            turns=summary.turns,
            state=state,
            pending=pending,
        )

    def _check_held(self, connection: sa.Connection, record: int, key: RecordKey) -> None:
        """Raises :class:`SessionBusy` where this store took the record, and its lock has gone to somebody else."""
        owner = self._owners.get(key)
        if owner is None or connection.scalar(_OWNER, {"record": record}) == owner:
            return
        self._check_free(connection, record, key, owner)
        raise SessionBusy(f"the lock of session {key.session_id} was broken", fix="load it: others may have written it")

    def _check_free(self, connection: sa.Connection, record: int, key: RecordKey, owner: str | None) -> str | None:
        """The owner of the lock that may be taken over, if there is one. Raises :class:`SessionBusy`."""
        held = connection.execute(sa.select(LOCKS).where(LOCKS.c.record == record)).one_or_none()
        if held is None:
            return None
        if held.owner == owner or is_gone(ProcessMark(held.host, held.pid, held.start)):
            return str(held.owner)
        here = held.host == this_process().host
        raise SessionBusy(
            f"session {key.session_id} is open " + ("in another process" if held.pid != this_process().pid else "here"),
            where=f"pid {held.pid}" + ("" if here else f" on {held.host}") + f", since {held.since}",
            fix="close it, or fork it" if here else "close it there; if that machine is gone, break the lock",
        )


def _cannot_follow(seq: int, last: int, key: RecordKey) -> InvalidInput:
    return InvalidInput(f"event #{seq} cannot follow #{last} in a stored record", where=key.session_id)
