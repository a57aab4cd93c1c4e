"""Whose cancellation one is: the host's own, which must pass, or that of something a tool or a channel awaited.

Not for: cancelling anything. May import: anyio.

On asyncio, awaiting a task or future that somebody cancelled raises the same exception as being cancelled. A channel
that waits for a browser that went away raises it, and nobody has cancelled the host: it is a failure like any other.
"""

from __future__ import annotations

import asyncio
import math

import anyio

__all__ = ["failures", "raise_if_cancelled"]


def failures() -> tuple[type[BaseException], ...]:
    """What foreign code may raise that must not end the host; hand it to :func:`raise_if_cancelled`."""
    return (Exception, SystemExit, anyio.get_cancelled_exc_class())


def raise_if_cancelled(error: BaseException) -> None:
    """Raise ``error`` again if it is a cancellation that was meant for the current task."""
    if isinstance(error, anyio.get_cancelled_exc_class()) and _is_cancelled():
        raise error


def _is_cancelled() -> bool:
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # trio, where nobody can forge one
    return task is None or task.cancelling() > 0
