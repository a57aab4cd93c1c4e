"""Events as server-sent events: one reader of a session, written to one client until either ends.

Not for: what is read (``_events.py``). Rules carried: ORD-03, ORD-04, ORD-05 over the wire.
May import: anyio, starlette, ``_problems``, ``agentsession.protocol``.

Leaving is the common end. Whoever goes away, by closing or by taking nothing, is let go of with all that was made for
them: the reader is closed, and no task is left.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from agentsession.host.http._problems import problem_of
from agentsession.protocol import AgentSessionError, dumps

__all__ = ["EventSourceResponse", "frame", "named_frame"]

_logger = logging.getLogger("agentsession.host.http")
_RETRY_MS: Final = 1000
_PING: Final = b":\n\n"


def frame(seq: int, data: str) -> bytes:
    """One event of the contract; its JSON is on one line."""
    return f"id: {seq}\ndata: {data}\n\n".encode()


def named_frame(name: str, data: str) -> bytes:
    """What is not of the contract: it has a name, by which listeners for messages do not see it, and no id."""
    return f"event: {name}\ndata: {data}\n\n".encode()


class EventSourceResponse(Response):
    """Writes ``frames`` as they come, a comment where none comes for ``ping_s``.

    ``leave`` is called in every case, once, shielded from cancellation. A client that takes nothing for ``stall_s`` is
    dropped.
    """

    media_type = "text/event-stream"
    charset = "utf-8"

    def __init__(
        self, frames: AsyncGenerator[bytes], leave: Callable[[], Awaitable[None]], *, ping_s: float, stall_s: float
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no"})
        self._frames = frames
        self._leave = leave
        self._ping_s = ping_s
        self._stall_s = stall_s
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, receive, tasks.cancel_scope)
                await self._write(send, tasks.cancel_scope)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._frames.aclose()
                await self._leave()

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _write(self, send: Send, scope: anyio.CancelScope) -> None:
        lock = anyio.Lock()

        async def put(message: Message) -> None:
            async with lock:
                with anyio.move_on_after(self._stall_s) as patience:
                    await send(message)
                if patience.cancelled_caught:
                    _logger.info("a reader of events took nothing for %s seconds: dropped", self._stall_s)
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
                self._sent_at = anyio.current_time()

        await put({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await put(_chunk(f"retry: {_RETRY_MS}\n\n".encode()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ping, put)
            try:
                async for text in self._frames:
                    await put(_chunk(text))
            except AgentSessionError as error:
                # It is too late for a status: an end that looks like success would be a lie.
                await put(_chunk(named_frame("problem", dumps(problem_of(error)[1]))))
            except Exception as error:  # noqa: BLE001 - told by an opaque id, and logged
                await put(_chunk(named_frame("problem", dumps(problem_of(error)[1]))))
            tasks.cancel_scope.cancel()
        await put({"type": "http.response.body", "body": b"", "more_body": False})

    async def _ping(self, put: Callable[[Message], Awaitable[None]]) -> None:
        while True:
            left = self._sent_at + self._ping_s - anyio.current_time()
            if left > 0:
                await anyio.sleep(left)
            else:
                await put(_chunk(_PING))


def _chunk(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}
