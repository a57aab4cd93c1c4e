"""The record store in memory: for tests, demos and sessions that nobody has to find again.

Not for: stores with I/O. Rules carried: PER-02, ORD-01. May import: ``_events``, ``_errors``, ``_services``,
``_record_extras``.
"""

from __future__ import annotations

import bisect
import builtins
import dataclasses
from collections.abc import Collection, Sequence

from agentsession.protocol._errors import InvalidInput, SessionBusy, SessionExists, SessionNotFound
from agentsession.protocol._events import Event, is_ephemeral
from agentsession.protocol._record_extras import RESPONSE_TYPES, SUMMARY_TYPES, RecordSummary, StoredSnapshot
from agentsession.protocol._services import RecordInfo, RecordKey

__all__ = ["MemoryRecordStore"]


@dataclasses.dataclass(slots=True)
class _Record:
    events: list[Event] = dataclasses.field(default_factory=list)
    reserved_seq: int = 0
    owner: str | None = None
    ids: set[str] = dataclasses.field(default_factory=set)
    summary: RecordSummary = dataclasses.field(default_factory=RecordSummary)
    answered: int = 0
    """Responses behind the last event that the summary has noted."""
    updated_at: str | None = None
    snapshots: list[StoredSnapshot] = dataclasses.field(default_factory=list)

    def from_seq(self, seq: int) -> int:
        """The place of the first event with a seq above ``seq``."""
        return bisect.bisect_right(self.events, seq, key=lambda event: event.seq)


class MemoryRecordStore:
    """A :class:`RecordStore` that lives and dies with the process, with queries, snapshots and a catalogue.

    It has no clock: when a record was made and changed is what its events say.
    """

    def __init__(self) -> None:
        self._records: dict[RecordKey, _Record] = {}

    async def create(self, key: RecordKey) -> None:
        """Make an empty record. Raises :class:`SessionExists`."""
        if key in self._records:
            raise SessionExists(f"session {key.session_id} exists", fix="choose another id, or load it")
        self._records[key] = _Record()

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        """Keep ``events``; ephemeral ones are refused, so that a mistake shows here and not after a restart."""
        record = self._get(key)
        last = record.events[-1].seq if record.events else 0
        ids: set[str] = set()
        for event in events:
            if event.seq <= last or is_ephemeral(event):
                raise InvalidInput(f"event #{event.seq} cannot follow #{last} in a stored record", where=key.session_id)
            if event.id in record.ids or event.id in ids:
                raise InvalidInput("an event id or seq is in the record already", where=key.session_id)
            last = event.seq
            ids.add(event.id)
        record.events.extend(events)
        record.ids |= ids
        record.reserved_seq = max(record.reserved_seq, reserved_seq, last)
        for event in events:
            if event.type in SUMMARY_TYPES:
                record.summary.note(event)
                record.answered = 0
                record.updated_at = event.timestamp
            elif event.type in RESPONSE_TYPES:
                record.answered += 1

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """The kept events with a seq above ``after``."""
        record = self._get(key)
        first = record.from_seq(after)
        return record.events[first : None if limit is None else first + limit]

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
        """Some of the kept events (see :class:`RecordQueries`)."""
        record = self._get(key)
        end = len(record.events) if before is None else record.from_seq(before - 1)
        places = range(record.from_seq(after), end)
        found: list[Event] = []
        for place in reversed(places) if newest else places:
            if limit is not None and len(found) >= limit:
                break
            event = record.events[place]
            if types is None or event.type in types:
                found.append(event)
        return found[::-1] if newest else found

    async def info(self, key: RecordKey) -> RecordInfo:
        """What is known without reading."""
        record = self._get(key)
        last = record.events[-1] if record.events else None
        state, pending = record.summary.now(last, record.answered)
        return RecordInfo(
            key,
            last.seq if last is not None else 0,
            record.reserved_seq,
            title=record.summary.title,
            created_at=record.events[0].timestamp if record.events else None,
            updated_at=record.updated_at,
            events=len(record.events),
            turns=record.summary.turns,
            state=state,
            pending=pending,
        )

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
        """Records by pages, newest first (see :class:`RecordCatalog`)."""
        keys = [*reversed(self._records)]
        if after is not None:
            self._get(after)
            keys = keys[keys.index(after) + 1 :]
        keys = [key for key in keys if agent in (None, key.agent) and user_id in (None, key.user_id)]
        return [await self.info(key) for key in keys[:limit]]

    async def delete(self, key: RecordKey) -> None:
        """Remove a record."""
        if self._get(key).owner is not None:
            raise SessionBusy(f"session {key.session_id} is open", fix="close it first")
        del self._records[key]

    async def lock(self, key: RecordKey, owner: str) -> None:
        """Take the record for ``owner``."""
        record = self._get(key)
        if record.owner not in (None, owner):
            raise SessionBusy(
                f"session {key.session_id} is open elsewhere", where=f"owner {record.owner}", fix="close it, or fork it"
            )
        record.owner = owner

    async def unlock(self, key: RecordKey, owner: str) -> None:
        """Give the record back."""
        record = self._records.get(key)
        if record is not None and record.owner == owner:
            record.owner = None

    async def put_snapshot(self, key: RecordKey, snapshot: StoredSnapshot) -> None:
        """Keep a snapshot (see :class:`RecordSnapshots`)."""
        record = self._get(key)
        record.snapshots = [kept for kept in record.snapshots if kept.seq <= snapshot.after] + [snapshot]

    async def snapshots(self, key: RecordKey) -> builtins.list[StoredSnapshot]:
        """What is kept, lowest seq first."""
        return [*self._get(key).snapshots]

    def _get(self, key: RecordKey) -> _Record:
        try:
            return self._records[key]
        except KeyError:
            raise SessionNotFound(
                f"no session {key.session_id} of user {key.user_id} with agent {key.agent}", fix="list the sessions"
            ) from None
