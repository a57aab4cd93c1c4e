"""The record as it came over the wire, and readers of it.

Not for: bringing it (``_follower.py``). Rules carried: LIFE-08, ORD-03, ORD-04, ORD-07, ORD-10, and the reader's half
of ORD-11. May import: ``agentsession.protocol``, anyio.

The wire brings each event once, and any number of readers reads it here: none of them asks the server for anything. No
task belongs to a reader. One that was entered and has once caught up holds the wire when it falls a window behind.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.lowlevel import checkpoint

from agentsession.protocol import ConnectionLost, Event, Receipt, StreamEnd

__all__ = ["Log", "Reader", "Stream"]

_WINDOW: Final = 256
_BREATH: Final = 256
"""A reader that is behind gives the loop a turn this often."""


class Log:
    """The events of one session that came, oldest first, and who reads them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.failure: Exception | None = None
        """Why nothing more comes, if the session was not closed."""
        self.is_closed = False
        self.ended: dict[str, StreamEnd] = {}
        """The streams that have had their end."""
        # One that was dropped without being closed must not hold anybody.
        self._holding: weakref.WeakSet[Reader] = weakref.WeakSet()
        self._hurry = 0
        self._changed = anyio.Event()

    @property
    def last_seq(self) -> int:
        return self.events[-1].seq if self.events else 0

    def append(self, event: Event) -> None:
        """An event came."""
        self.events.append(event)
        if isinstance(event, StreamEnd) and event.stream_id is not None:
            self.ended[event.stream_id] = event
        self.wake()

    def close(self, failure: Exception | None = None) -> None:
        """Nothing more comes."""
        if not self.is_closed:
            self.is_closed, self.failure = True, failure
            self.wake()

    async def changed(self) -> None:
        """Wait for an event, for a reader to move, or for the end."""
        await self._changed.wait()

    def wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def index_after(self, seq: int) -> int:
        """The place of the first event behind ``seq``."""
        return bisect.bisect_right(self.events, seq, key=lambda event: event.seq)

    def first_of(self, stream_id: str) -> int:
        """The place of the first event of a stream, or where it will be."""
        places = (place for place, event in enumerate(self.events) if event.stream_id == stream_id)
        return next(places, len(self.events))

    def end_of(self, stream_id: str | None) -> StreamEnd | None:
        """The end of a stream, if it has come."""
        return None if stream_id is None else self.ended.get(stream_id)

    # -- who holds the wire -------------------------------------------------------------------------------------------

    def hold(self, reader: Reader) -> None:
        """From now on the wire waits for this reader."""
        self._holding.add(reader)

    def leave(self, reader: Reader) -> None:
        """It no longer does."""
        if reader in self._holding:
            self._holding.discard(reader)
            self.wake()

    @property
    def is_full(self) -> bool:
        """Whether a reader that holds the wire is a window behind, and nobody waits for what is still to come."""
        if self._hurry or self.is_closed:
            return False
        slowest = min((reader.place for reader in self._holding), default=len(self.events))
        return len(self.events) - slowest >= _WINDOW

    @contextmanager
    def hurry(self) -> Iterator[None]:
        """Take what comes, whoever reads slowly: a call waits for it, such as an abort for the end."""
        self._hurry += 1
        self.wake()
        try:
            yield
        finally:
            self._hurry -= 1


class Reader:
    """Reads a record from a cursor, with filters; satisfies ``agentsession.protocol.EventReader``."""

    def __init__(
        self,
        log: Log,
        *,
        after: int,
        follow: bool = False,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> None:
        self._log = log
        self.place = log.index_after(after)
        """Of the next event, among those that came."""
        self.cursor = after
        self._follow = follow
        self._types = None if types is None else frozenset(types)
        self._stream_id = stream_id
        self._thread_id = thread_id
        self._is_entered = False
        self._holds = False
        self._is_done = False
        self._breath = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._is_done:
            event = await self._next()
            if event is None:
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

    async def _next(self) -> Event | None:
        """The next event, wanted or not; ``None``: look again."""
        log = self._log
        if self.place < len(log.events):
            self._breath += 1
            if self._breath >= _BREATH:
                self._breath = 0
                await checkpoint()
            event = log.events[self.place]
            self.place += 1
            self.cursor = event.seq
            self._catch_up()
            if self._holds and len(log.events) - self.place == _WINDOW // 2:
                log.wake()
            return event
        self._breath = 0
        if not await self._more():
            self._leave()
        return None

    def _catch_up(self) -> None:
        may_hold = self._is_entered and self._follow and not self._is_done
        if may_hold and not self._holds and len(self._log.events) - self.place < _WINDOW:
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
