"""Servers for the tests of MCP: in a thread over HTTP, or as processes; what they received; whether they live."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from tests.host.mcp.server import make_server

from agentsession.host.mcp import McpTools

__all__ = ["LIMIT_S", "ODD", "SERVER", "Log", "Process", "served"]

SERVER = Path(__file__).parent / "server.py"
ODD = Path(__file__).parent / "odd_server.py"
LIMIT_S = 60.0
"""Bounds a hang."""


class Log:
    """What a server in another thread received."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.methods: list[str] = []
        """Of the HTTP requests."""
        self.refuses = 0
        """The status that every request is refused with."""
        self._changed = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    async def wait_for(self, line: str) -> None:
        """Until the server received it."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: line in self.lines, LIMIT_S)

        assert await anyio.to_thread.run_sync(wait, abandon_on_cancel=True)


@contextmanager
def served(log: Log, port: int = 0) -> Iterator[int]:
    """The server over HTTP on loopback; gives its port."""
    listening = socket.create_server(("127.0.0.1", port))
    made: list[uvicorn.Server] = []

    def run() -> None:
        inner = make_server(log).streamable_http_app()  # here: it keeps to the event library it is made under

        async def app(scope: Any, receive: Any, send: Any) -> None:
            log.methods.append(scope.get("method", ""))
            if log.refuses and scope["type"] == "http":
                await send({"type": "http.response.start", "status": log.refuses, "headers": []})
                await send({"type": "http.response.body", "body": b"no"})
                return
            await inner(scope, receive, send)

        made.append(uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)))
        made[0].run(sockets=[listening])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        made[0].should_exit = True
        thread.join()
        listening.close()


class Process:
    """The server over stdio: what it received, and whether its process lives."""

    def __init__(self, log: Path) -> None:
        self.log = log
        log.touch()

    def tools(self, **fields: Any) -> McpTools:
        return McpTools.stdio("fs", [sys.executable, str(SERVER), str(self.log)], **fields)

    @property
    def received(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if not line.startswith("pid ")]

    @property
    def pids(self) -> list[int]:
        """One for each time that it was started."""
        return [int(line[4:]) for line in self.log.read_text().splitlines() if line.startswith("pid ")]

    @property
    def alive(self) -> list[int]:
        return [pid for pid in self.pids if _lives(pid)]

    async def wait_for(self, line: str) -> None:
        """Until it received this; it writes to a file, so there is nothing to be told by."""
        await _until(lambda: line in self.received)


async def _until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(LIMIT_S):
        while not holds():
            await anyio.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
