"""A TCP proxy that cuts connections after a number of bytes drawn from a seed: in the middle of whatever passes."""

from __future__ import annotations

import random
import socket
import threading

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

__all__ = ["Cutter"]


class Cutter:
    """Stands between a client and a server, in a thread of its own.

    Most connections are cut after some bytes of either direction; each third one lives, so that things go on.
    """

    def __init__(self, port: int, seed: int) -> None:
        self._to = port
        self._chance = random.Random(seed)
        self._socket = socket.socket(proto=socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(128)
        self._socket.setblocking(False)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.cuts = 0
        """How many connections were cut."""
        self._connections = 0
        self._ready = threading.Event()
        self._portal: BlockingPortal | None = None
        self._context = start_blocking_portal("asyncio")

    def start(self) -> None:
        self._portal = self._context.__enter__()
        self._running, self._scope = self._portal.start_task(self._run)

    def stop(self) -> None:
        assert self._portal is not None
        self._portal.call(self._scope.cancel)
        self._running.result(10)
        self._context.__exit__(None, None, None)
        self._socket.close()

    async def _run(self, *, task_status: TaskStatus[anyio.CancelScope]) -> None:
        with anyio.CancelScope() as scope:
            task_status.started(scope)
            listener = await anyio.abc.SocketListener.from_socket(self._socket)
            await listener.serve(self._connected)

    async def _connected(self, client: SocketStream) -> None:
        self._connections += 1
        left = [self._chance.randrange(1, 6000)] if self._connections % 3 else [2**62]
        async with client:
            try:
                server = await anyio.connect_tcp("127.0.0.1", self._to)
            except OSError:
                return
            async with server:
                server.extra(SocketAttribute.raw_socket).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with anyio.create_task_group() as group:
                    group.start_soon(self._pass_on, client, server, left, group.cancel_scope)
                    group.start_soon(self._pass_on, server, client, left, group.cancel_scope)

    async def _pass_on(
        self, source: SocketStream, sink: SocketStream, left: list[int], scope: anyio.CancelScope
    ) -> None:
        try:
            while left[0] > 0:
                data = (await source.receive())[: left[0]]
                left[0] -= len(data)
                await sink.send(data)
            self.cuts += 1
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()
