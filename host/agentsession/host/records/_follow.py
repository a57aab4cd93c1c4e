"""Reading a record while another process writes it.

Not for: a session of this process (``session.events(follow=True)`` waits for its events, and shows deltas too).
Rules carried: ORD-01, PER-02. May import: ``agentsession.protocol``, anyio.

The store is asked again and again, faster while events come and slower while none do. A read takes no lock that a
writer waits for, and the record's own lock is not needed: reading is not owning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Self

import anyio

from agentsession.protocol import Event, RecordKey, RecordStore, SessionNotFound

__all__ = ["RecordFollower", "follow_record"]

_PAGE: Final = 256


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
        event = self._page.popleft()
        self.cursor = event.seq
        return event

    async def _look(self) -> bool:
        """Read what there is; whether the record is still there."""
        try:
            self._page.extend(await self._store.read(self._key, after=self.cursor, limit=_PAGE))
            # Under the same id a new record may have begun: its seqs begin anew, and none of it was asked for.
            is_there = bool(self._page) or (await self._store.info(self._key)).reserved_seq >= self.cursor
        except SessionNotFound:
            if not self._found:
                raise
            return False
        self._found = True
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
    twice that, up to ``longest_s``; ``sleep`` waits. The first event raises :class:`SessionNotFound` where there is no
    record.
    """
    return RecordFollower(store, key, after, (shortest_s, longest_s), sleep)
