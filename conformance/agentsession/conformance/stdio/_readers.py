"""Readers over what came through the wire: the suite's end of a session's events.

Not for: what a session is told or asks (``client.py``). Rules carried: LIFE-08, ORD-03, ORD-04, ORD-10, and the
reader's half of ORD-11. May import: ``agentsession.protocol``, anyio.

The wire brings each event once; any number of readers reads it here. So that one that stalls still holds the executor
(ORD-11), the executor is told how far the slowest reader is that may hold it.
"""

from __future__ import annotations

import bisect
import weakref
from collections import deque
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Final, Self

import anyio

from agentsession.protocol import ConnectionLost, Event, Receipt, StreamEnd

__all__ = ["Log", "Reader", "Stream"]

_WINDOW: Final = 64
"""A reader that is nearer to the end than this has caught up: if it was entered, it holds the executor from then on."""

_STEP: Final = 32
"""A reader that is behind tells of its progress this often."""


class Log:
    """The events of one session that came, oldest first, and who reads them."""

    def __init__(self, seen: Callable[[int], None]) -> None:
        """``seen`` is told up to which seq every reader that holds the executor has read."""
        self.events: list[Event] = []
        self.failure: Exception | None = None
        """Why nothing more comes, if it was not closed."""
        self.is_closed = False
        self.ended: set[str] = set()
        """The streams that have had their end."""
        self._seen = seen
        self._told = 0
        # One that was dropped without being closed must not hold the executor.
        self._readers: weakref.WeakSet[Reader] = weakref.WeakSet()
        self._changed = anyio.Event()

    @property
    def last_seq(self) -> int:
        return self.events[-1].seq if self.events else 0

    def append(self, event: Event) -> None:
        """An event came."""
        self.events.append(event)
        if isinstance(event, StreamEnd) and event.stream_id is not None:
            self.ended.add(event.stream_id)
        self._wake()

    def close(self, failure: Exception | None = None) -> None:
        """Nothing more comes."""
        if not self.is_closed:
            self.is_closed, self.failure = True, failure
            self._wake()

    async def changed(self) -> None:
        """Wait for an event, or for the end."""
        await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def index_after(self, seq: int) -> int:
        """The place of the first event behind ``seq``."""
        return bisect.bisect_right(self.events, seq, key=lambda event: event.seq)

    def first_of(self, stream_id: str) -> int:
        """The place of the first event of a stream, or where it will be."""
        places = (place for place, event in enumerate(self.events) if event.stream_id == stream_id)
        return next(places, len(self.events))

    # -- how far it was read ------------------------------------------------------------------------------------------

    def hold(self, reader: Reader) -> None:
        """From now on the executor waits for this reader."""
        self._readers.add(reader)

    def leave(self, reader: Reader) -> None:
        """It no longer does."""
        self._readers.discard(reader)
        self.tell()

    def tell(self, *, at_least: int = 1) -> None:
        """Tell how far everyone is who holds the executor, if it is so many events further than was told."""
        seq = min((reader.cursor for reader in self._readers), default=self.last_seq)
        if seq - self._told >= at_least and not self.is_closed:
            self._told = seq
            self._seen(seq)


class Reader:
    """Reads a record from a cursor, with filters; satisfies ``agentsession.protocol.EventReader``."""

    def __init__(
        self,
        log: Log,
        *,
        after: int,
        first: Sequence[Event] = (),
        follow: bool = False,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> None:
        """``first``: what the executor gave behind the cursor; what it sends later follows where ``follow`` says so."""
        self._log = log
        self._first = deque(first)
        self._next = log.index_after(first[-1].seq if first else after)
        self._follow = follow
        self._types = None if types is None else frozenset(types)
        self._stream_id = stream_id
        self._thread_id = thread_id
        self._is_entered = False
        self._holds = False
        self._is_done = False
        self.cursor = after

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._is_done:
            event = self._take()
            if event is None:
                if not await self._more():
                    self._leave()
                continue
            if self._stream_id is not None and event.stream_id != self._stream_id:
                continue
            if isinstance(event, StreamEnd) and self._stream_id is not None:
                self._leave()
                self._saw_end(event)
            if self._thread_id is not None and event.thread_id != self._thread_id:
                continue
            if self._types is None or event.type in self._types:
                return event
        raise StopAsyncIteration

    def _take(self) -> Event | None:
        """The next event that is there, wanted or not."""
        log = self._log
        event = self._first.popleft() if self._first else self._live()
        if event is None:
            return None
        self.cursor = event.seq
        if self._holds:
            log.tell(at_least=_STEP)
        self._catch_up()
        return event

    def _live(self) -> Event | None:
        """The next event that came; what the executor gave from its record may have come since, too."""
        events = self._log.events
        while self._follow and self._next < len(events):
            event = events[self._next]
            self._next += 1
            if event.seq > self.cursor:
                return event
        return None

    def _catch_up(self) -> None:
        behind = len(self._first) + len(self._log.events) - self._next
        if self._is_entered and self._follow and not self._holds and behind < _WINDOW:
            self._holds = True
            self._log.hold(self)

    async def _more(self) -> bool:
        """Wait until there may be more; ``False``: there will be nothing. Raises what broke the session."""
        log = self._log
        if not self._follow or (self._stream_id is not None and self._stream_id in log.ended):
            return False
        if log.is_closed:
            if log.failure is None and self._stream_id is None:
                return False
            self._leave()
            if log.failure is not None:
                raise log.failure
            raise ConnectionLost(
                "the session was closed before the stream ended", where=f"stream {self._stream_id}", fix="load it"
            )
        if self._holds:
            log.tell()
        await log.changed()
        return True

    def _saw_end(self, event: StreamEnd) -> None:
        """The stream's end was passed."""

    async def __aenter__(self) -> Self:
        self._is_entered = True
        self._catch_up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    async def aclose(self) -> None:
        """Detach."""
        self._leave()

    def _leave(self) -> None:
        self._is_done = True
        if self._holds:
            self._holds = False
            self._log.leave(self)


class Stream(Reader):
    """The events of one stream; satisfies ``agentsession.protocol.EventStream``."""

    def __init__(self, log: Log, *, stream_id: str, turn_id: str, receipts: Sequence[Receipt]) -> None:
        place = log.first_of(stream_id)
        super().__init__(log, after=log.events[place - 1].seq if place else 0, follow=True, stream_id=stream_id)
        self.stream_id = stream_id
        self.turn_id = turn_id
        self.receipts: Sequence[Receipt] = tuple(receipts)
        self.end: StreamEnd | None = None

    def _saw_end(self, event: StreamEnd) -> None:
        self.end = event
