"""An editor: the SDK's own client, on the other end of real pipes of our server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import tempfile
from collections.abc import AsyncGenerator, Callable
from typing import Any

from acp.client import ClientSideConnection
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    RequestPermissionResponse,
    TextContentBlock,
)

from agentsession.host.acp import AcpAgent, serve_streams
from agentsession.protocol import AgentExecutor

CWD = tempfile.gettempdir()
"""A folder that is always there; nothing is written in it."""


def text(words: str) -> list[Any]:
    return [TextContentBlock(type="text", text=words)]


class Editor:
    """What the client was told and asked; ``permit`` chooses an option by its id, or ``None`` for cancelled."""

    def __init__(self, permit: Callable[[Any], Any] | None = None) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.permit = permit or (lambda call: "allow_once")
        self.was_asked = asyncio.Event()

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    @property
    def said(self) -> str:
        return "".join(update.content.text for update in self.of("agent_message_chunk"))

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, [option.option_id for option in options]))
        self.was_asked.set()
        chosen = self.permit(tool_call)
        if asyncio.iscoroutine(chosen):
            chosen = await chosen
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))


@contextlib.asynccontextmanager
async def wire(executor: AgentExecutor, **options: Any) -> AsyncGenerator[tuple[Any, Any, asyncio.Task[None]]]:
    """The client's reader and writer, and the task that serves the other end."""
    ours, theirs = socket.socketpair()
    agent_reader, agent_writer = await asyncio.open_connection(sock=ours, limit=1024 * 1024)
    reader, writer = await asyncio.open_connection(sock=theirs, limit=64 * 1024 * 1024)
    async with asyncio.timeout(20), executor:
        serving = asyncio.create_task(serve_streams(AcpAgent(executor, **options), agent_reader, agent_writer))
        try:
            yield reader, writer, serving
        finally:
            writer.close()
            await serving


@contextlib.asynccontextmanager
async def editing(
    executor: AgentExecutor, editor: Any, capabilities: ClientCapabilities | None = None, **options: Any
) -> AsyncGenerator[ClientSideConnection]:
    """A connection after its ``initialize``."""
    async with wire(executor, **options) as (reader, writer, _):
        connection = ClientSideConnection(editor, writer, reader, use_unstable_protocol=True)
        await connection.initialize(1, capabilities or ClientCapabilities())
        try:
            yield connection
        finally:
            await connection.close()


class Lines:
    """The protocol by hand: what is sent and what comes, line by line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    def dump(message: dict[str, Any]) -> bytes:
        return json.dumps(message).encode()

    def raw(self, line: bytes) -> None:
        self.writer.write(line + b"\n")

    def send(self, method: str, params: Any, id: Any = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.raw(json.dumps(message if id is None else {**message, "id": id}).encode())

    async def next(self) -> dict[str, Any]:
        line = await self.reader.readline()
        assert line, "the server closed its side"
        found: dict[str, Any] = json.loads(line)
        return found

    async def until(self, id: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The answer to a request, and what came before it."""
        before: list[dict[str, Any]] = []
        while True:
            message = await self.next()
            if message.get("id") == id and "method" not in message:
                return message, before
            before.append(message)

    async def call(self, method: str, params: Any, id: Any) -> dict[str, Any]:
        self.send(method, params, id)
        return (await self.until(id))[0]

    async def session(self) -> str:
        await self.call("initialize", {"protocolVersion": 1}, "init")
        made = await self.call("session/new", {"cwd": CWD, "mcpServers": []}, "new")
        return str(made["result"]["sessionId"])
