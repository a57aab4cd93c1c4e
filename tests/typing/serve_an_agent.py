"""An agent behind HTTP, AG-UI and ACP, and a program that drives a remote one: type-checked, never run."""

from __future__ import annotations

from typing import assert_type

from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Mount

from agentsession.adapters.acp import AcpExecutor
from agentsession.adapters.remote import RemoteExecutor
from agentsession.host import Host, allow_all
from agentsession.host.acp import serve_acp
from agentsession.host.agui import agui_app
from agentsession.host.http import BearerTokens, Principal, contract_app, serve_app
from agentsession.host.inspector import inspector_routes
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import AgentExecutor, AgentSession, EventStream, Message, plain_text


class Door:
    """A verifier of the program's own."""

    async def verify(self, request: HTTPConnection) -> Principal | None:
        """Who calls."""
        return Principal("ann") if request.headers.get("x-user") == "ann" else None


def sessions_of(executor: AgentExecutor) -> LiveSessions:
    return LiveSessions([ServedAgent("clerk", executor, Host(policy=allow_all), model="small")])


def site(sessions: LiveSessions) -> Starlette:
    tokens = BearerTokens({"token-of-ann-0123456789": Principal("ann", scopes=frozenset({"read"}))})
    return Starlette(
        routes=[
            Mount("/agui", agui_app(sessions, "clerk", verify=tokens, on_disconnect="carry_on")),
            Mount("/all", serve_app(sessions, verify=tokens, bound_to="127.0.0.1", agui=True, ui=True)),
            *inspector_routes(api="/"),
            Mount("/", contract_app(sessions, verify=Door(), allowed_origins=["https://app.example"])),
        ]
    )


async def to_an_editor(command: list[str]) -> None:
    async with AcpExecutor(command, cwd=".") as executor:
        await serve_acp(executor, policy=allow_all, tools=[])


async def ask(base_url: str, token: str) -> str:
    said = ""
    async with RemoteExecutor(base_url, token=token, agent="clerk") as executor:
        session = await executor.open()
        _: AgentSession = session
        stream = await session.begin("What can you do?")
        assert_type(stream.stream_id, str)
        checked: EventStream = stream
        async for event in checked:
            if isinstance(event, Message) and not event.partial:
                said += plain_text(event.content)
    return said
