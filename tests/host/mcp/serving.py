"""Servers for the tests of MCP: in a thread over HTTP, or as processes; what they received; whether they live."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from tests.host.mcp.server import make_server

from agentsession.host.mcp import McpTools

__all__ = ["LIMIT_S", "ODD", "SERVER", "Log", "Printed", "Process", "relisted", "served"]

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
        os.mkfifo(log)  # not a file: it can be waited for
        # For both ways, so that it has no end while no server has it open.
        self._descriptor = os.open(log, os.O_RDWR | os.O_NONBLOCK)
        self._text = ""

    def close(self) -> None:
        os.close(self._descriptor)

    def tools(self, **fields: Any) -> McpTools:
        return McpTools.stdio("fs", [sys.executable, str(SERVER), str(self.log)], **fields)

    @property
    def _lines(self) -> list[str]:
        with suppress(BlockingIOError):
            while True:
                self._text += os.read(self._descriptor, 65_536).decode()
        return self._text.splitlines()

    @property
    def received(self) -> list[str]:
        return [line for line in self._lines if not line.startswith("pid ")]

    @property
    def pids(self) -> list[int]:
        """One for each time that it was started."""
        return [int(line[4:]) for line in self._lines if line.startswith("pid ")]

    @property
    def alive(self) -> list[int]:
        return [pid for pid in self.pids if _lives(pid)]

    async def wait_for(self, line: str) -> None:
        """Until it received this."""
        with anyio.fail_after(LIMIT_S):
            while line not in self.received:
                await anyio.wait_readable(self._descriptor)


def relisted(tools: McpTools) -> anyio.Event:
    """Set when the server's tools were listed once more."""
    found, take = anyio.Event(), tools._connection._on_tools

    def on_tools(listed: list[dict[str, Any]]) -> None:
        take(listed)
        found.set()

    tools._connection._on_tools = on_tools
    return found


class Printed:
    """What a server prints to its stderr, from here on."""

    def __init__(self, tools: McpTools) -> None:
        stderr = tools._stderr
        assert stderr is not None
        self._stderr, self._more, keep = stderr, anyio.Event(), stderr._keep

        def told(chunk: bytes) -> None:
            keep(chunk)
            self._more.set()

        stderr._keep = told  # type: ignore[method-assign]  # of this one

    async def wait_for(self, text: str) -> None:
        """Until it was printed."""
        with anyio.fail_after(LIMIT_S):
            while text not in self._stderr.text:
                await self._more.wait()
                self._more = anyio.Event()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
