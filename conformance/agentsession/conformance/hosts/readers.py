"""The readers of a scene's session: the one that drives a stream, and those of the record.

Not for: what is in them (``session.py``). Rules carried: none. May import: ``agentsession.protocol``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from agentsession.protocol import Event, Receipt, StreamEnd

if TYPE_CHECKING:
    from agentsession.conformance.hosts.session import AdversarySession

__all__ = ["RecordReader", "Stream"]


class _Reader:
    """What both have in common: entering and leaving."""

    cursor: int

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Detach."""


class Stream(_Reader):
    """The events of one stream, and whatever else a play puts among them."""

    def __init__(self, session: AdversarySession, stream_id: str, turn_id: str) -> None:
        self.stream_id = stream_id
        self.turn_id = turn_id
        self.receipts: Sequence[Receipt] = ()
        self.end: StreamEnd | None = None
        self.queue: deque[object] = deque()
        self.cursor = 0
        self.is_finished = False
        self._is_left = False
        self._session = session

    def push(self, thing: object) -> None:
        """To be read next, unless nobody reads any more."""
        if not self._is_left:
            self.queue.append(thing)

    def finish(self) -> None:
        """Nothing follows what is queued."""
        self.is_finished = True

    async def __anext__(self) -> Event:
        while not self.queue:
            if self.is_finished or self._is_left:
                raise StopAsyncIteration
            await self._session.change()
        thing = self.queue.popleft()
        self._session.taken += 1
        self._session.notify()
        if isinstance(thing, Exception):
            raise thing
        if isinstance(thing, StreamEnd):
            self.end = thing
        if isinstance(thing, Event):
            self.cursor = max(self.cursor, thing.seq)
        return cast(Event, thing)  # a play may put anything here: that is what it is for

    async def aclose(self) -> None:
        self._is_left = True
        self.queue.clear()
        self._session.notify()


class RecordReader(_Reader):
    """Reads the record after a cursor."""

    def __init__(self, session: AdversarySession, after: int, follow: bool, wanted: Callable[[Event], bool]) -> None:
        self.cursor = after
        self._session = session
        self._follow = follow
        self._wanted = wanted
        self._place = 0

    async def __anext__(self) -> Event:
        record = self._session.record
        while True:
            while self._place < len(record):
                event = record[self._place]
                self._place += 1
                if event.seq > self.cursor:
                    self.cursor = event.seq
                    if self._wanted(event):
                        return event
            if self._session.lost is not None:
                raise self._session.lost
            if not self._follow or self._session.state == "closed":
                raise StopAsyncIteration
            await self._session.change()
