"""A real uvicorn on a port of its own, for tests that need a socket.

Not for: what is served. May import: uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from typing import Any

import uvicorn

__all__ = ["Server", "listen", "served", "url_of"]


class Server(uvicorn.Server):
    """One that says when it has begun, and leaves signals to the tests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def listen() -> socket.socket:
    """A socket on a free port. The protocol is named, or asyncio does not turn off Nagle's algorithm: each answer would
    then take 40 ms."""
    listening = socket.socket(proto=socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    return listening


def url_of(listening: socket.socket) -> str:
    """The address of a server at this socket."""
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.asynccontextmanager
async def served(app: Any, listening: socket.socket, **config: Any) -> AsyncGenerator[Server]:
    """Serve ``app`` inside; its address is ``url_of(listening)``.

    It is gone at the end, with all its connections.
    """
    given: dict[str, Any] = {
        "log_level": "warning",
        "lifespan": "off",
        "timeout_graceful_shutdown": 5,
        "backlog": 2048,
        **config,
    }
    server = Server(uvicorn.Config(app, **given))
    running = asyncio.create_task(server.serve([listening]))
    await server.is_up.wait()
    try:
        yield server
    finally:
        server.should_exit = True
        await running
