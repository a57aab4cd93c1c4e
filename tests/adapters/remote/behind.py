"""A harness's executors behind a real server on loopback, driven through a ``RemoteExecutor``.

The server has a thread and a loop of its own: the client waits for it without giving way to a task. What the script's
agent tells the suite goes from there to here, and marks are released from here to there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal
from tests.adapters.remote.cutting import Cutter
from tests.served import Server as HttpServer
from tests.served import listen, served

from agentsession.adapters.remote import Backoff, RemoteExecutor
from agentsession.conformance.harness import Harness, Play
from agentsession.host.http import Limits, contract_app
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import AgentExecutor

__all__ = ["Behind", "RemoteHarness", "Server"]

_NO_LIMITS = Limits(requests_per_s=1e6, burst=1_000_000)


class Server:
    """Serves an executor from a thread of its own; ``url`` is known before it runs."""

    def __init__(self, limits: Limits = _NO_LIMITS) -> None:
        self._limits = limits
        self._socket = listen()
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._running: HttpServer | None = None
        self._stack = ExitStack()
        self.portal: BlockingPortal | None = None
        self.sessions: LiveSessions | None = None

    def start(self, make: Callable[[], LiveSessions]) -> None:
        """Begin to serve what ``make`` gives, which is called and entered there."""
        self.portal = self._stack.enter_context(start_blocking_portal("asyncio"))
        self._stack.enter_context(self.portal.wrap_async_context_manager(self._serve(make)))

    def stop(self) -> None:
        """Serve no longer; blocks until everything there has ended."""
        try:
            self._stack.close()
        finally:
            self._socket.close()

    @contextlib.asynccontextmanager
    async def _serve(self, make: Callable[[], LiveSessions]) -> AsyncGenerator[None]:
        async with make() as sessions:
            self.sessions = sessions
            app: Any = contract_app(sessions, limits=self._limits)
            async with served(app, self._socket, log_level="critical", timeout_graceful_shutdown=1) as server:
                self._running = server
                try:
                    yield
                finally:
                    self._end()

    def _end(self) -> None:
        server = self._running
        if server is not None:
            server.should_exit = server.force_exit = True
            for listener in getattr(server, "servers", []):
                listener.close()
            for connection in list(server.server_state.connections):
                transport: Any = getattr(connection, "transport", None)
                if transport is not None:
                    transport.abort()

    def die(self) -> None:
        """End every connection, and take no more."""
        assert self.portal is not None
        self.portal.call(self._end)


class Served(Play):
    """A play over there that tells the one here."""

    def __init__(self, play: Play, tell: Callable[..., object], reached: Callable[[str], object]) -> None:
        super().__init__(play.script, play._folder, play._mortal)
        self._here = play
        self._tell = tell
        self._reached_there = reached

    def ran(self, name: str, args: Mapping[str, Any]) -> None:
        super().ran(name, args)
        self._tell(self._here.ran, name, dict(args))

    async def hold(self, mark: str) -> None:
        self._tell(self._reached_there, mark)
        await super().hold(mark)


class Behind(RemoteExecutor):
    """One of a harness's executors behind a server that lives as long as it does."""

    def __init__(self, inner: Harness, play: Play, seed: int | None) -> None:
        self.server = Server()
        self.cutter = None if seed is None else Cutter(self.server.port, seed)
        url = self.server.url if self.cutter is None else self.cutter.url
        backoff = Backoff(0.005, 0.05, random.Random(seed))
        super().__init__(url, answer_s=10.0, give_up_s=0.5 if seed is None else 10.0, backoff=backoff)
        self._inner = inner
        self._play = play
        self._holding: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        play = Served(self._play, loop.call_soon_threadsafe, self._hold)
        self._served = play
        made = self._inner.executor(play)
        await anyio.to_thread.run_sync(
            self.server.start, lambda: LiveSessions([ServedAgent("scripted", made, store=play.store)])
        )
        if self.cutter is not None:
            self.cutter.start()
        return await super().__aenter__()

    def _hold(self, mark: str) -> None:
        async def held() -> None:
            await self._shown()
            await self._play.hold(mark)
            if self.server.portal is not None:
                self.server.portal.start_task_soon(self._served.release, mark)

        task = asyncio.get_running_loop().create_task(held())
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)

    async def _shown(self) -> None:
        """Wait for what the server has shown: a mark is told another way than events are.

        Where a reader holds them up there is nothing to wait for.
        """
        for live in [] if self.server.sessions is None else list(self.server.sessions.open_sessions):
            session = self._sessions.get(live.key.session_id)
            log = None if session is None else session._log
            while log is not None and log.last_seq < live.last_seq and not (log.is_full or log.is_closed):
                await log.changed()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            for task in list(self._holding):
                task.cancel()
            if self.cutter is not None:
                await anyio.to_thread.run_sync(self.cutter.stop)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.server.stop)


class RemoteHarness(Harness):
    """Another harness over the wire."""

    def __init__(self, inner: Harness, *, seed: int | None = None) -> None:
        """``seed``: of where connections are cut; ``None``: none is."""
        self.name = f"{inner.name} behind HTTP"
        self.plays = inner.plays
        self._inner = inner
        self._seed = seed
        self._made = 0

    def executor(self, play: Play) -> Behind:
        self._made += 1
        return Behind(self._inner, play, None if self._seed is None else self._seed + self._made)

    async def kill(self, executor: AgentExecutor, play: Play) -> None:
        assert isinstance(executor, Behind)
        await play.die()
        executor.wire.give_up_s = 0.1
        await anyio.to_thread.run_sync(executor.server.die)
