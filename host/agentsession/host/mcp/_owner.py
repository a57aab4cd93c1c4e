"""One task that owns a connection from its beginning to its end, whoever asks for either.

Not for: what the task does (``_connection.py``). Rules carried: CTL-05. May import: asyncio, and trio where it runs.

A connection has cancel scopes in it, and those must be left in the task that entered them. A session, a web request or
a test's fixture is often closed by another task than opened it, so none of them may own it (bug report R74). A task
group would not do either: it has a task that must leave it. So the owner is a task of the event loop itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["start_owner"]

logger = logging.getLogger("agentsession.host")

_RUNNING: set[asyncio.Task[None]] = set()
"""asyncio keeps no task alive itself."""


def start_owner(body: Callable[[], Awaitable[None]], name: str) -> None:
    """Run ``body`` in a task of its own; what it raises is logged. When the event loop ends, it is cancelled."""

    async def run() -> None:
        try:
            await body()
        except Exception:
            logger.exception("the task %s failed", name)

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        context: Any = contextvars.Context()  # a system task that saw the caller's would keep it alive
        trio.lowlevel.spawn_system_task(run, name=name, context=context)
        return
    task = loop.create_task(run(), name=name, context=contextvars.Context())
    _RUNNING.add(task)
    task.add_done_callback(_RUNNING.discard)
