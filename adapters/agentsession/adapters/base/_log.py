"""The record in memory: append-only, read by any number of readers, shown only as far as it is stored.

Not for: what may be appended (the state machine), or when to flush (the session). Rules carried: ORD-03, ORD-04,
ORD-05, ORD-11, PER-02. May import: ``agentsession.protocol``, anyio.

*Acknowledged means stored.* Events are appended synchronously, because every decision is one synchronous step. They
are *visible* to readers only up to :attr:`EventLog.visible`, which the flusher moves when the store has them.

*Backpressure.* A reader that was entered and has once caught up holds the producer when it falls a full window behind.
The producer asks :meth:`EventLog.is_full`; closings do not ask. A store that falls some windows behind holds it too.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection
from typing import Final

import anyio

from agentsession.protocol import AgentSessionError, Event, StreamEnd, is_ephemeral

__all__ = ["Cursor", "EventLog"]

_STORE_WINDOWS: Final = 4
"""How many windows may be appended and not stored yet, before a slow store holds the producer."""

_KEPT_WINDOWS: Final = 64
"""How many windows a reader that does not hold the producer may lag before deltas of ended streams go without it."""


class Cursor:
    """A reader's place in the log. ``live``: it has caught up once, so it may hold the producer."""

    __slots__ = ("entered", "index", "live", "seq")

    def __init__(self, index: int, seq: int) -> None:
        self.index = index
        self.seq = seq
        self.entered = False
        self.live = False


class EventLog:
    """The events of one session, oldest first, and who is reading them."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.events: list[Event] = []
        self.visible = 0
        """How many of ``events`` readers may see."""
        self.closed = False
        """Nothing will be appended any more."""
        self.failure: AgentSessionError | None = None
        """Why readers that are cut off are."""
        self._cursors: list[Cursor] = []
        self._wake: anyio.Event | None = None
        self._room: anyio.Event | None = None
        self._pruned = 0
        """How many events at the start were looked at by :meth:`forget_ephemerals` already."""
        self._full_at = 0
        """Below this length no live reader can be a window behind."""

    # -- producing ----------------------------------------------------------------------------------------------------

    def append(self, event: Event, *, visible: bool) -> None:
        """Append, and show it at once when nothing has to be stored first."""
        self.events.append(event)
        if visible:
            self.visible = len(self.events)
            if self._wake is not None:
                self.wake()

    def show(self, count: int) -> None:
        """Let readers see the first ``count`` events."""
        if count > self.visible:
            self.visible = count
            self.wake()
            if self._room is not None and not self.is_full():
                self._make_room()

    @property
    def shown_seq(self) -> int:
        """The last seq that readers may see, 0 for none."""
        return self.events[self.visible - 1].seq if self.visible else 0

    @property
    def readers(self) -> int:
        """How many readers are attached."""
        return len(self._cursors)

    def wake(self) -> None:
        """Wake everyone who waits for something to change."""
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.set()

    async def changed(self) -> None:
        """Wait until something was shown, or the log was closed."""
        if self._wake is None:
            self._wake = anyio.Event()
        await self._wake.wait()

    def close(self, failure: AgentSessionError | None = None) -> None:
        """Nothing follows. Readers that wait end, or raise :class:`ConnectionLost` when their stream has no end."""
        self.closed = True
        self.failure = failure
        self.wake()
        self._make_room()

    def is_full(self) -> bool:
        """Whether a live reader is a full window behind, or the store is some windows behind."""
        length = len(self.events)
        if length < self._full_at or self.closed:
            return False
        slowest = min((cursor.index for cursor in self._cursors if cursor.live), default=length)
        self._full_at = min(slowest + self.window, self.visible + _STORE_WINDOWS * self.window)
        return length >= self._full_at

    async def room(self) -> None:
        """Wait until :meth:`is_full` is no longer so."""
        while self.is_full():
            if self._room is None:
                self._room = anyio.Event()
            await self._room.wait()

    # -- reading ------------------------------------------------------------------------------------------------------

    def attach(self, after: int) -> Cursor:
        """A new reader behind the event with seq ``after``."""
        cursor = Cursor(self._index_after(after), after)
        self._cursors.append(cursor)
        return cursor

    def _index_after(self, seq: int) -> int:
        return bisect.bisect_right(self.events, seq, key=lambda event: event.seq)

    def enter(self, cursor: Cursor) -> None:
        """The reader promises to read on or to leave: from when it has caught up, it bounds the producer."""
        cursor.entered = True
        self.caught_up(cursor)

    def caught_up(self, cursor: Cursor) -> None:
        """Called by a reader within a window of the end."""
        if cursor.entered and not cursor.live and len(self.events) - cursor.index < self.window:
            cursor.live = True
            self._full_at = 0

    @property
    def has_waiters(self) -> bool:
        """Whether a producer waits for room."""
        return self._room is not None

    def advanced(self, cursor: Cursor) -> None:
        """Called by a live reader after an event while a producer waits: it may have made room."""
        if self._room is not None and len(self.events) - cursor.index < self.window // 2 + 1:
            self._full_at = 0
            if not self.is_full():
                self._make_room()

    def detach(self, cursor: Cursor) -> None:
        """The reader left."""
        if cursor in self._cursors:
            self._cursors.remove(cursor)
            self._full_at = 0
            if self._room is not None and not self.is_full():
                self._make_room()

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set()

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def forget_ephemerals(self, ended_streams: Collection[str]) -> None:
        """Drop the deltas of ended streams that every reader has passed; their seqs stay gaps.

        All of a stream's deltas go at once, so that what is left can be folded. A reader that lags far behind without
        holding the producer keeps only those of the stream that it is in: it may miss what is ephemeral.
        """
        events = self.events
        lagging = len(events) - _KEPT_WINDOWS * self.window
        places = (cursor.index for cursor in self._cursors if cursor.live or cursor.index >= lagging)
        passed = min(min(places, default=self.visible), self.visible)
        start = self._pruned
        while passed > start and not isinstance(events[passed - 1], StreamEnd):
            passed -= 1
        if passed <= start:
            return
        held = {events[cursor.index - 1].stream_id for cursor in self._cursors if 0 < cursor.index < passed}
        kept = [
            event
            for event in events[start:passed]
            if not is_ephemeral(event) or event.stream_id not in ended_streams or event.stream_id in held
        ]
        dropped = passed - start - len(kept)
        self._pruned = passed - dropped
        if dropped == 0:
            return
        events[start:passed] = kept
        self.visible -= dropped
        self._full_at = 0
        for cursor in self._cursors:
            if cursor.index >= passed:
                cursor.index -= dropped
            elif cursor.index > start:
                cursor.index = self._index_after(cursor.seq)
