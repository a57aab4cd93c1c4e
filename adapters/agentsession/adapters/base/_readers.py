"""Readers: plain loops over the record. Leaving one stops nothing.

Not for: producing. Rules carried: LIFE-06, LIFE-08, ORD-03 to ORD-10. May import: ``agentsession.protocol``,
anyio, ``_log``.

No task and no cancel scope belongs to a reader, so it can be opened in one task, read in another, dropped in a third.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Final, Self

from anyio.lowlevel import checkpoint

from agentsession.adapters.base._log import EventLog
from agentsession.protocol import ConnectionLost, Event, Receipt, StreamEnd

__all__ = ["LogReader", "LogStream"]

_BREATH: Final = 256
"""A reader that is behind gives the loop a turn this often."""


class LogReader:
    """Reads the record from a cursor, with filters; satisfies ``agentsession.protocol.EventReader``."""

    def __init__(
        self,
        log: EventLog,
        *,
        after: int,
        follow: bool,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
        stream_ended: Callable[[str], bool] | None = None,
    ) -> None:
        self._log = log
        self._place = log.attach(after)
        self._follow = follow
        self._types = None if types is None else frozenset(types)
        self._stream_id = stream_id
        self._thread_id = thread_id
        self._filtered = types is not None or thread_id is not None
        self._stream_ended = stream_ended
        self._done = False
        self._breath = 0

    @property
    def cursor(self) -> int:
        """The seq of the last event that was passed, also of one that a filter skipped."""
        return self._place.seq

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        log, place = self._log, self._place
        while not self._done:
            if place.index < 0:
                event = await log.next_stored(place)
                if event is None:
                    continue
            elif place.index < log.visible:
                self._breath += 1
                if self._breath >= _BREATH:
                    self._breath = 0
                    await checkpoint()
                    continue  # the log may have dropped what it had at this place
                event = log.events[place.index]
                place.index += 1
                place.seq = event.seq
                if place.live:
                    if log.has_waiters:
                        log.advanced(place)
                elif place.entered:
                    log.caught_up(place)
            else:
                self._breath = 0
                if not await self._more():
                    self._leave()
                continue
            stream_id = self._stream_id
            if stream_id is not None:
                if event.stream_id != stream_id:
                    continue
                if event.type == "stream_end":
                    self._leave()
                    self._saw_end(event)
            if self._filtered and not self._wanted(event):
                continue
            return event
        raise StopAsyncIteration

    async def _more(self) -> bool:
        """Wait for more to read; whether there can be any. Raises :class:`ConnectionLost`."""
        log = self._log
        if not self._follow:
            return False
        of_stream = self._stream_id is not None
        if of_stream and self._stream_ended is not None and self._stream_ended(self._stream_id or ""):
            return False  # its end was before the cursor
        if log.closed:
            failure = log.failure
            if failure is None and not of_stream:
                return False
            self._leave()
            raise ConnectionLost(
                failure.what if failure is not None else "the session was closed before the stream ended",
                where=failure.where if failure is not None else f"stream {self._stream_id}",
                fix=(failure.fix if failure is not None else None) or "load the session: it closes the stream",
            ) from failure
        await log.changed()
        return True

    def _wanted(self, event: Event) -> bool:
        if self._thread_id is not None and event.thread_id != self._thread_id:
            return False
        return self._types is None or event.type in self._types

    def _saw_end(self, event: Event) -> None:
        """The stream's end was passed."""

    async def __aenter__(self) -> Self:
        self._log.enter(self._place)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    async def aclose(self) -> None:
        """Detach."""
        self._leave()

    def _leave(self) -> None:
        self._done = True
        self._log.detach(self._place)

    def __del__(self) -> None:
        # A reader that was dropped without being closed must not hold the producer.
        if not self._done:
            self._log.detach(self._place)


class LogStream(LogReader):
    """The events of one stream; satisfies ``agentsession.protocol.EventStream``."""

    def __init__(
        self,
        log: EventLog,
        *,
        stream_id: str,
        turn_id: str,
        after: int,
        receipts: Sequence[Receipt],
        answered: int,
        stream_ended: Callable[[str], bool],
    ) -> None:
        super().__init__(log, after=after, follow=True, stream_id=stream_id, stream_ended=stream_ended)
        self.stream_id = stream_id
        self.turn_id = turn_id
        self.receipts: Sequence[Receipt] = tuple(receipts)
        self.end: StreamEnd | None = None
        self._answered = answered
        """The seq up to which the record holds what the receipts are for."""

    async def __aenter__(self) -> Self:
        """Enter the stream, when the answers it was given are stored: a receipt that is read here holds."""
        await super().__aenter__()
        while self._log.shown_seq < self._answered and not self._log.closed:
            await self._log.changed()
        return self

    def _saw_end(self, event: Event) -> None:
        if isinstance(event, StreamEnd):
            self.end = event
