"""What a session needs from its host: the record store.

Not for: implementations (``_memory_store.py``; the SQLite store is in ``agentsession.host``), or what only some stores
offer (``_record_extras.py``). Rules carried: PER-01, PER-02, ORD-01.
May import: ``_events``, ``_errors``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from agentsession.protocol._errors import InvalidInput
from agentsession.protocol._events import Event

if TYPE_CHECKING:
    from agentsession.protocol._session import SessionState

__all__ = ["RecordInfo", "RecordKey", "RecordStore", "check_id"]

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
    title: str | None = None
    """What follows, a store need not know: ``None`` then. The last title that was given."""
    created_at: str | None = None
    updated_at: str | None = None
    """When a stream of it last ended, or it was last created or changed from outside a stream."""
    events: int | None = None
    """How many events are stored."""
    turns: int | None = None
    """How many turns have ended or paused."""
    state: SessionState | None = None
    """``running`` also where the record was cut off inside a stream."""
    pending: int | None = None
    """How many requests wait for the host."""


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
