"""The record in memory: append-only, read by any number of readers, shown only as far as it is stored.

Not for: what may be appended (the state machine), or when to flush (the session). Rules carried: ORD-03, ORD-04,
ORD-05, ORD-11, PER-02. May import: ``agentsession.protocol``, anyio.

*Acknowledged means stored.* Events are appended synchronously, because every decision is one synchronous step. They
are *visible* to readers only up to :attr:`EventLog.visible`, which the flusher moves when the store has them.

*A tail.* Where a store keeps the record, events of ended turns may be dropped from the start of the log
(:meth:`EventLog.drop`). A reader that is further back reads them from the store, a window at a time.

*Backpressure.* A reader that was entered and has once caught up holds the producer when it falls a full window behind.
The producer asks :meth:`EventLog.is_full`; closings do not ask. A store that falls some windows behind holds it too.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

import anyio

from agentsession.protocol import AgentSessionError, Event, StreamEnd, is_ephemeral

__all__ = ["IN_STORE", "Cursor", "EventLog", "Pager"]

_STORE_WINDOWS: Final = 4
"""How many windows may be appended and not stored yet, before a slow store holds the producer."""

_KEPT_WINDOWS: Final = 64
"""How many windows a reader that does not hold the producer may lag before deltas of ended streams go without it."""


Pager: TypeAlias = Callable[[int, int], Awaitable[list[Event]]]
"""Reads stored events: those after a seq, so many at most."""

IN_STORE: Final = -1
"""The index of a reader whose next event is no longer in memory."""


class Cursor:
    """A reader's place in the log. ``live``: it has caught up once, so it may hold the producer."""

    __slots__ = ("ahead", "entered", "index", "live", "seq")

    def __init__(self, index: int, seq: int) -> None:
        self.index = index
        self.seq = seq
        self.ahead: deque[Event] = deque()
        """What was read from the store for it, or dropped while it stood in the middle of a stream."""
        self.entered = False
        self.live = False


class EventLog:
    """The events of one session, oldest first, and who is reading them."""

    def __init__(self, window: int, pager: Pager | None = None) -> None:
        self.window = window
        self.events: list[Event] = []
        self.dropped_seq = 0
        """The seq of the last event that was dropped from the start; 0 when everything is in memory."""
        self._pager = pager
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
        return self.events[self.visible - 1].seq if self.visible else self.dropped_seq

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
        cursor = Cursor(self._index_after(after) if after >= self.dropped_seq else IN_STORE, after)
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
        if cursor.entered and not cursor.live and cursor.index >= 0 and len(self.events) - cursor.index < self.window:
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
        places = (cursor.index for cursor in self._cursors if cursor.live or cursor.index >= max(lagging, 0))
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

    def drop(self, keep: int, from_seq: int | None) -> None:
        """Drop stored events from the start, but for the last ``keep`` and those from ``from_seq`` on.

        Only whole streams go. A reader in the middle of one that goes is given the rest of that stream.
        """
        events = self.events
        cut = min(len(events) - keep, self.visible)
        if from_seq is not None:
            cut = min(cut, self._index_after(from_seq - 1))
        cut = min((cursor.index for cursor in self._cursors if cursor.live and cursor.index < cut), default=cut)
        if self._pager is None or cut < max(1, keep // 8):  # dropping a few at a time would copy the rest each time
            return
        while cut and not isinstance(events[cut - 1], StreamEnd):
            cut -= 1
        if not cut:
            return
        for cursor in self._cursors:
            if cursor.index >= cut:
                cursor.index -= cut
            elif cursor.index >= 0:
                cursor.ahead.extend(_rest_of_stream(events, cursor.index, cut))
                cursor.index = IN_STORE
        self.dropped_seq = events[cut - 1].seq
        del events[:cut]
        self.visible -= cut
        self._pruned = max(0, self._pruned - cut)
        self._full_at = 0

    def begin_at(self, seq: int) -> None:
        """The log is empty, and what is appended now comes after ``seq``: what is before it is in the store."""
        self.dropped_seq = seq

    async def next_stored(self, cursor: Cursor) -> Event | None:
        """The next event of a reader that is in the store; ``None`` when it is in memory again."""
        if not cursor.ahead and cursor.seq < self.dropped_seq and self._pager is not None:
            page = await self._pager(cursor.seq, self.window)
            cursor.ahead.extend(event for event in page if event.seq <= self.dropped_seq)
        if not cursor.ahead:
            cursor.index = self._index_after(cursor.seq)
            return None
        event = cursor.ahead.popleft()
        cursor.seq = event.seq
        return event


def _rest_of_stream(events: list[Event], index: int, end: int) -> list[Event]:
    """What follows ``index`` of the stream that the event before it belongs to."""
    stream_id = events[index - 1].stream_id if index else None
    if stream_id is None or isinstance(events[index - 1], StreamEnd):
        return []
    last = index
    while last < end and events[last].stream_id in (stream_id, None):
        last += 1
    return events[index:last]
