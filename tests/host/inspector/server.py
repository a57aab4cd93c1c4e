"""A real server for the tests of the inspector: the contract's routes and the page, on uvicorn and loopback."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from agentsession.adapters.scripted import ScriptedExecutor, Step
from agentsession.host import Host
from agentsession.host.http import Verifier, contract_app
from agentsession.host.inspector import inspector_routes
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import AgentExecutor, ElicitationResponse, Event, ToolDecision


class Cuttable:
    """The app, with its open event streams cut at will: the socket ends in the middle, as when a network is lost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._cut = asyncio.Event()
        self.is_down = False

    def cut(self, *, down: bool = False) -> None:
        self.is_down = down
        self._cut.set()
        self._cut = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/agents"):
            await self._app(scope, receive, send)
            return
        if self.is_down:
            raise ConnectionResetError("the network is down")
        app = asyncio.ensure_future(self._app(scope, receive, send))
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait({app, cut}, return_when=asyncio.FIRST_COMPLETED)
            if not app.done():
                app.cancel()
                await asyncio.wait({app})
                raise ConnectionResetError("the network is cut")
            app.result()
        finally:
            cut.cancel()


@contextlib.asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """The address of an app, on a port of its own."""
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen(64)
        running = asyncio.create_task(server.serve(sockets=[own]))
        try:
            yield f"http://127.0.0.1:{own.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


@dataclasses.dataclass
class Served:
    """What a test has of the server."""

    url: str
    network: Cuttable
    sessions: LiveSessions

    async def events(self) -> list[Event]:
        """The record of the one session."""
        (info,) = await self.sessions.list("coder", "local")
        session = await self.sessions.get("coder", "local", info.key.session_id)
        return [event async for event in session.events()]

    async def decisions(self) -> list[tuple[str, str | None, str | None]]:
        events = await self.events()
        return [(event.decision, event.by, event.reason) for event in events if isinstance(event, ToolDecision)]

    async def answers(self) -> list[tuple[str, Any]]:
        events = await self.events()
        return [(event.action, event.content) for event in events if isinstance(event, ElicitationResponse)]


@contextlib.asynccontextmanager
async def serve(
    executor: AgentExecutor, host: Host | None = None, verify: Verifier | None = None
) -> AsyncIterator[Served]:
    """An agent called ``coder``, and the page at ``/ui/``. Without a host the page is the host."""
    async with LiveSessions([ServedAgent("coder", executor, host=host)]) as sessions:
        contract = contract_app(cast(Any, sessions), verify=verify)
        app = Cuttable(Starlette(routes=[*inspector_routes(), Mount("/", contract)]))
        async with serving(app) as url:
            yield Served(url, app, sessions)


def scripted(*turns: Sequence[Step]) -> ScriptedExecutor:
    """An agent that does what the steps say."""
    return ScriptedExecutor([list(turn) for turn in turns], name="coder")
