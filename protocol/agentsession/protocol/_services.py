"""What a session needs from its host: the record store.

Not for: implementations with I/O (the SQLite store is in ``agentsession.host``). Rules carried: PER-01, PER-02, ORD-01.
May import: ``_events``, ``_errors``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from agentsession.protocol._errors import InvalidInput, SessionBusy, SessionExists, SessionNotFound
from agentsession.protocol._events import Event, is_ephemeral

__all__ = ["MemoryRecordStore", "RecordInfo", "RecordKey", "RecordStore", "check_id"]

_ID_LIMIT = 256


def check_id(value: str, what: str) -> str:
    """Return ``value`` if it can be an id that a host hands in, else raise :class:`InvalidInput`.

    Ids become keys, file names and parts of URLs in some store or other. So: 1 to 256 characters, no control
    characters, no separators of any kind (``/``, ``\\``), no ``%`` (an encoded separator), not ``.`` or ``..``.
    """
    bad = None
    if not value:
        bad = "it is empty"
    elif len(value) > _ID_LIMIT:
        bad = f"it is longer than {_ID_LIMIT} characters"
    elif not value.isprintable() or any(sign in value for sign in "/\\%"):
        bad = "it holds a separator, '%' or a character that cannot be printed"
    elif value.strip(".") == "" or value != value.strip():
        bad = "it is only dots, or begins or ends with a space"
    if bad:
        raise InvalidInput(
            f"this {what} cannot be used: {bad}",
            got=ascii(value[:40]),
            expected="1 to 256 printable characters without / \\ %",
            fix=f"choose another {what}",
        )
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class RecordKey:
    """Whose record: the agent's name, the user and the session, always together, so that no user meets another's."""

    agent: str
    user_id: str
    session_id: str

    def __post_init__(self) -> None:
        check_id(self.agent, "agent name")
        check_id(self.user_id, "user id")
        check_id(self.session_id, "session id")


@dataclasses.dataclass(frozen=True, slots=True)
class RecordInfo:
    """What a store knows of a record without reading it."""

    key: RecordKey
    last_seq: int
    """The seq of the last stored event, 0 for none."""
    reserved_seq: int
    """No seq up to this one may be used again, whether or not an event has it."""


@runtime_checkable
class RecordStore(Protocol):
    """Where a session's durable events are kept. Append-only; ephemeral events are not handed to it.

    Every call is async and may be made from any task. *Acknowledged means stored*: the session shows an event to a
    reader, or returns a receipt, only after :meth:`append` has returned for it. Rules: PER-01, PER-02.
    """

    async def create(self, key: RecordKey) -> None:
        """Make an empty record. Raises :class:`SessionExists`."""
        ...

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        """Store ``events`` in order and raise the reserved seq, in one transaction. ``events`` may be empty.

        Raises :class:`SessionNotFound`.
        """
        ...

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """The stored events with a seq above ``after``, oldest first. Raises :class:`SessionNotFound`."""
        ...

    async def info(self, key: RecordKey) -> RecordInfo:
        """What is known without reading. Raises :class:`SessionNotFound`."""
        ...

    async def list(self, agent: str, user_id: str) -> list[RecordInfo]:
        """The records of one user with one agent, newest first."""
        ...

    async def delete(self, key: RecordKey) -> None:
        """Remove a record and all it holds. Raises :class:`SessionNotFound`, :class:`SessionBusy`."""
        ...

    async def lock(self, key: RecordKey, owner: str) -> None:
        """Take the record for ``owner``; the lock of a process that is gone is taken over. Raises `SessionBusy`."""
        ...

    async def unlock(self, key: RecordKey, owner: str) -> None:
        """Give the record back; nothing happens when ``owner`` does not hold it."""
        ...


@dataclasses.dataclass(slots=True)
class _Record:
    events: list[Event]
    reserved_seq: int
    owner: str | None = None


class MemoryRecordStore:
    """A :class:`RecordStore` that lives and dies with the process: for tests, demos and ephemeral sessions."""

    def __init__(self) -> None:
        self._records: dict[RecordKey, _Record] = {}

    async def create(self, key: RecordKey) -> None:
        """Make an empty record. Raises :class:`SessionExists`."""
        if key in self._records:
            raise SessionExists(f"session {key.session_id} exists", fix="choose another id, or load it")
        self._records[key] = _Record(events=[], reserved_seq=0)

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        """Keep ``events``; ephemeral ones are refused, so that a mistake shows here and not after a restart."""
        record = self._get(key)
        last = record.events[-1].seq if record.events else 0
        for event in events:
            if event.seq <= last or is_ephemeral(event):
                raise InvalidInput(f"event #{event.seq} cannot follow #{last} in a stored record", where=key.session_id)
            last = event.seq
        record.events.extend(events)
        record.reserved_seq = max(record.reserved_seq, reserved_seq, last)

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """The kept events with a seq above ``after``."""
        found = [event for event in self._get(key).events if event.seq > after]
        return found if limit is None else found[:limit]

    async def info(self, key: RecordKey) -> RecordInfo:
        """What is known without reading."""
        record = self._get(key)
        return RecordInfo(key, record.events[-1].seq if record.events else 0, record.reserved_seq)

    async def list(self, agent: str, user_id: str) -> list[RecordInfo]:
        """The records of one user with one agent, newest first."""
        keys = [key for key in self._records if key.agent == agent and key.user_id == user_id]
        return [await self.info(key) for key in reversed(keys)]

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

    def _get(self, key: RecordKey) -> _Record:
        try:
            return self._records[key]
        except KeyError:
            raise SessionNotFound(
                f"no session {key.session_id} of user {key.user_id} with agent {key.agent}", fix="list the sessions"
            ) from None
