"""One run at a time on a thread: those that come meanwhile wait in order, and only so many.

Not for: what a run does (``_app_run.py``). Rules carried: LIFE-07. May import: asyncio.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from types import TracebackType

__all__ = ["Place", "QueueFull", "Queues"]


class QueueFull(Exception):
    """As many runs of the thread wait as may."""


class Place:
    """A place in the queue of one thread, taken at once; entered with ``async with``, which waits for its turn."""

    def __init__(self, queues: Queues, key: Hashable, turn: asyncio.Future[None] | None) -> None:
        self._queues = queues
        self._key = key
        self._turn = turn
        """Set when it is its turn; ``None`` where it was at once."""

    async def __aenter__(self) -> None:
        if self._turn is None:
            return
        try:
            await self._turn
        except asyncio.CancelledError:
            self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queues.pass_on(self._key)

    def _leave(self) -> None:
        if self._turn is not None and self._turn.done() and not self._turn.cancelled():
            self._queues.pass_on(self._key)  # it was its turn in the same moment


class Queues:
    """Those of an application, by thread; nothing is kept of a thread that nobody runs on."""

    def __init__(self, waiters: int) -> None:
        self._waiters = waiters
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def place(self, key: Hashable) -> Place:
        """Take the next place, which must be entered. Raises :class:`QueueFull`."""
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = deque()
            return Place(self, key, None)
        if sum(not turn.done() for turn in waiting) >= self._waiters:
            raise QueueFull
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        return Place(self, key, turn)

    def pass_on(self, key: Hashable) -> None:
        """Whoever had the thread leaves it to the next that still waits."""
        waiting = self._waiting[key]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[key]
