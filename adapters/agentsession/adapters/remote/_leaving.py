"""Leaves a generator that reads from a connection, with all that it reads through.

Not for: closing the connection. Rules carried: none. May import: anyio.

httpx2 nests some generators, and closes none of those that are inside another one. Left in the middle they wait for the
garbage collector, which trio reports. What ends them all, from the innermost on, is a read that is cancelled.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

import anyio

__all__ = ["leaving"]

T = TypeVar("T")
_logger = logging.getLogger("agentsession.adapters.remote")


@contextlib.asynccontextmanager
async def leaving(items: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """Gives ``items``; at the end they are over, and what fails on that way is not told."""
    try:
        yield items
    finally:
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                async for _ in items:
                    pass
            except Exception as error:  # noqa: BLE001 - a connection that is left may break: nobody reads it any more
                _logger.debug("a connection that was left broke: %s", type(error).__name__)
