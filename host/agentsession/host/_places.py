"""How many calls of a tool, or of a provider's tools, run at once.

Not for: the host's own limit over all of its tools (``_toolruns.py``). Rules carried: HITL-11 (waiting for a place is
not the tool's time, because the call has not begun). May import: anyio, ``_toolcontext``, ``protocol``.

A limit stands for something outside: a database with three connections, a server that does one thing at a time. So it
holds over all hosts and sessions of an event loop, and a thread that was given up keeps its place until it ends.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import anyio.lowlevel

from agentsession.host._toolcontext import ToolContext
from agentsession.protocol import ConfigurationError

__all__ = ["Places", "hold_places"]


class Places:
    """A number of places; made anywhere, also before there is an event loop.

    Raises :class:`ConfigurationError` for fewer than one.
    """

    def __init__(self, count: int, whose: str) -> None:
        if count < 1:
            raise ConfigurationError(f"max_parallel of {whose} is {count}", expected="1 or more")
        self.count = count

    def __repr__(self) -> str:
        return f"Places({self.count})"

    @asynccontextmanager
    async def hold(self, context: ToolContext) -> AsyncGenerator[None]:
        """Wait for a place and keep it; when the call of ``context`` left a thread behind, until that thread ends."""
        free = self._free()
        await free.acquire()
        try:
            yield
        finally:
            context.when_thread_ends(free.release)

    def _free(self) -> anyio.Semaphore:
        """Of the running event loop: a semaphore belongs to one."""
        try:
            known = _FREE.get()
        except LookupError:
            known = weakref.WeakKeyDictionary()
            _FREE.set(known)
        return known.setdefault(self, anyio.Semaphore(self.count))


_FREE: anyio.lowlevel.RunVar[weakref.WeakKeyDictionary[Places, anyio.Semaphore]] = anyio.lowlevel.RunVar("places")


@asynccontextmanager
async def hold_places(places: Iterable[Places], context: ToolContext) -> AsyncGenerator[None]:
    """A place in each, taken in order: whoever waits for a later one holds no place that others could use to go on."""
    async with AsyncExitStack() as held:
        for each in places:
            await held.enter_async_context(each.hold(context))
        yield
