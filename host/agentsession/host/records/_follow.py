"""Reading a record while another process writes it.

Not for: a session of this process (``session.events(follow=True)`` waits for its events, and shows deltas too).
Rules carried: ORD-01, PER-02. May import: ``agentsession.protocol``, anyio.

The store is asked again and again, faster while events come and slower while none do. One that tells cheaply whether
anybody has written to it (``change_mark``, as SQLite's does) is read only then. A read takes no lock that a writer
waits for, and the record's own lock is not needed: reading is not owning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, Self, runtime_checkable

import anyio

from agentsession.protocol import Event, RecordKey, RecordStore, SessionNotFound

__all__ = ["RecordFollower", "follow_record"]

_PAGE: Final = 256


@runtime_checkable
class _MarksChanges(Protocol):
    async def change_mark(self) -> object:
        """Something that is equal as long as nobody has written to the store."""
        ...


class RecordFollower:
    """The events that :func:`follow_record` gives; it may be left at any time: nothing of it must be closed."""

    def __init__(
        self,
        store: RecordStore,
        key: RecordKey,
        after: int,
        waits_s: tuple[float, float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._store = store
        self._key = key
        self._shortest_s, self._longest_s = waits_s
        self._wait_s = self._shortest_s
        self._sleep = sleep
        self._found = False
        self._made: str | None = None
        """When the record was made, where the store knows it."""
        self._last: Event | None = None
        """The event that was given last."""
        self._mark: object = None
        """The store's mark when everything had been read."""
        self._page: deque[Event] = deque()
        self._is_over = False
        self.cursor = after
        """The seq of the last event that was given."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._page:
            if self._is_over or not await self._look():
                self._is_over = True
                raise StopAsyncIteration
            if self._page:
                self._wait_s = self._shortest_s
            else:
                await self._sleep(self._wait_s)
                self._wait_s = min(self._wait_s * 2, self._longest_s)
        event = self._last = self._page.popleft()
        self.cursor = event.seq
        return event

    async def _look(self) -> bool:
        """Read what there is; whether the record is still there."""
        # Before the reading: what is written meanwhile is of another mark.
        mark = await self._store.change_mark() if isinstance(self._store, _MarksChanges) else None
        if mark is not None and mark == self._mark:
            return True
        try:
            is_there = await self._read()
        except SessionNotFound:
            if not self._found:
                raise
            return False
        self._found = True
        self._mark = mark if len(self._page) < _PAGE else None
        return is_there

    async def _read(self) -> bool:
        # Under the same id a new record may have begun, none of which was asked for. So the event before is read again.
        last = self._last
        if last is not None:
            page = await self._store.read(self._key, after=last.seq - 1, limit=_PAGE + 1)
            is_there = page[:1] == [last]
            self._page.extend(page[1:] if is_there else ())
            return is_there
        info = await self._store.info(self._key)
        is_there = self._made in (None, info.created_at) and info.reserved_seq >= self.cursor
        self._made = info.created_at
        self._page.extend(await self._store.read(self._key, after=self.cursor, limit=_PAGE) if is_there else ())
        return is_there


def follow_record(
    store: RecordStore,
    key: RecordKey,
    *,
    after: int = 0,
    shortest_s: float = 0.02,
    longest_s: float = 1.0,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> RecordFollower:
    """The durable events above ``after``, those that are stored and those that come, until the record is deleted.

    No more than a page of events is held. While nothing comes, the store is asked after ``shortest_s``, then after
    twice that, up to ``longest_s``; ``sleep`` waits. Where it has a ``change_mark()``, the record is read only when
    that has changed. The first event raises :class:`SessionNotFound` where there is no record.
    """
    return RecordFollower(store, key, after, (shortest_s, longest_s), sleep)
