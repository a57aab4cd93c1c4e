"""What a record store may offer beyond :class:`RecordStore`: queries, snapshots, a catalogue.

Not for: what every store must do (``_services.py``). Rules carried: PER-01, PER-03. May import: ``_events``,
``_services``, ``_session``.

Each part is a protocol of its own, found with ``isinstance``: a store that has none of them works as before, only
slower where a part would have helped. Nothing here may be trusted over the record: a snapshot and a summary are made
from its events, and can be made again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Final, Protocol, runtime_checkable

from agentsession.protocol._events import Event, Initialize, SessionUpdate, StreamEnd
from agentsession.protocol._services import RecordInfo, RecordKey
from agentsession.protocol._session import SessionState

__all__ = [
    "RESPONSE_TYPES",
    "SUMMARY_TYPES",
    "RecordCatalog",
    "RecordQueries",
    "RecordSnapshots",
    "RecordSummary",
    "StoredSnapshot",
]

SUMMARY_TYPES: Final = frozenset({"initialize", "session_update", "stream_end"})
"""The types of the events that a :class:`RecordSummary` is made of; the others need not be looked at."""

RESPONSE_TYPES: Final = ("elicitation_response", "tool_response")
"""The types of the events that answer a request."""


@dataclasses.dataclass(slots=True)
class RecordSummary:
    """What a list of sessions shows of one, kept by a store as the events come."""

    title: str | None = None
    """The last title that a ``session_update`` gave."""
    turns: int = 0
    """How many turns have ended or paused."""
    last_turn: str | None = None
    state: SessionState = "new"
    """The state at the last event of :data:`SUMMARY_TYPES`."""
    pending: int = 0
    """How many requests waited for the host then."""

    def note(self, event: Event) -> None:
        """The next event of the record. Those of other types than :data:`SUMMARY_TYPES` may be left out."""
        if isinstance(event, StreamEnd):
            if event.turn_id is not None and event.turn_id != self.last_turn:
                self.last_turn = event.turn_id
                self.turns += 1
            self.pending = len(event.pending)
            self.state = "input_required" if event.pending else "idle"
        elif isinstance(event, SessionUpdate):
            if event.title is not None:
                self.title = event.title
        elif isinstance(event, Initialize):
            self.state = "idle"

    def now(self, last: Event | None, answered: int) -> tuple[SessionState, int]:
        """State and number of waiting requests, when ``last`` is the record's last event.

        ``answered``: how many responses stand behind the last event that was noted. A record that ends inside a stream
        is ``running``: a process is at work on it, or was killed.
        """
        if last is not None and last.stream_id is not None and last.type != "stream_end":
            return "running", 0
        return self.state, max(0, self.pending - answered)


@dataclasses.dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """Something that was made of a record's events up to ``seq``, so that they need not be read again."""

    seq: int
    after: int
    """The seq of the snapshot that it goes on from, 0 for none."""
    text: str
    """What its maker can read; a store does not look into it."""


@runtime_checkable
class RecordQueries(Protocol):
    """A store that reads parts of a record without reading the rest."""

    async def select(
        self,
        key: RecordKey,
        *,
        after: int = 0,
        before: int | None = None,
        types: Collection[str] | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[Event]:
        """The stored events with a seq between ``after`` and ``before`` (neither included), of ``types``.

        Of more than ``limit`` the oldest, or with ``newest`` the newest. Always given oldest first.
        Raises :class:`SessionNotFound`.
        """
        ...


@runtime_checkable
class RecordSnapshots(Protocol):
    """A store that keeps snapshots beside a record. They go with the record when it is deleted."""

    async def put_snapshot(self, key: RecordKey, snapshot: StoredSnapshot) -> None:
        """Keep ``snapshot``, and drop those with a seq above ``snapshot.after``. Raises :class:`SessionNotFound`."""
        ...

    async def snapshots(self, key: RecordKey) -> list[StoredSnapshot]:
        """What is kept, lowest seq first. Raises :class:`SessionNotFound`."""
        ...


@runtime_checkable
class RecordCatalog(Protocol):
    """A store that can list what it holds, also of all users and agents, by pages."""

    async def browse(
        self,
        *,
        agent: str | None = None,
        user_id: str | None = None,
        limit: int | None = None,
        after: RecordKey | None = None,
    ) -> list[RecordInfo]:
        """Records, newest first, with all that :class:`RecordInfo` can tell; ``after`` is the last one of the page
        before. Raises :class:`SessionNotFound` when that one is gone."""
        ...
