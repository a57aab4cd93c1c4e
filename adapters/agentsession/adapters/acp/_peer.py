"""The agent's process and the seam between its pipes and the ACP SDK, which keeps the order of the wire.

Not for: what messages mean (``_turn.py``). Rules carried: LIFE-13 (no process is left), SEC-01.
May import: ``agentsession.protocol``, ``acp``, asyncio.

The SDK runs handlers at once and side by side, drops updates that it does not know, and gives an answer before the
updates that came earlier have been handled. So updates, requests and the answers to prompts are put in one queue in the
order in which they came; the SDK still matches answers to requests, and sends what we answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from acp.connection import Connection

from agentsession.protocol._acp_messages import decode_line, message_kind, nest_meta

__all__ = ["AgentProcess", "Incoming"]

_logger = logging.getLogger("agentsession.adapters")

_LINE_LIMIT: Final = 32 * 1024 * 1024
"""A longer line ends the connection: nobody could tell where the next message begins."""
_LEAVES_S: Final = 1.0
"""How long an agent whose pipe was closed may take to exit by itself."""


@dataclasses.dataclass(eq=False, slots=True)
class Incoming:
    """One message of the agent's, in its place."""

    kind: Literal["update", "request", "answer", "end"]
    method: str = ""
    params: dict[str, Any] = dataclasses.field(default_factory=dict)
    reply: asyncio.Future[Any] | None = None
    """What a request is answered with: a result, or a ``RequestError``."""
    message: dict[str, Any] = dataclasses.field(default_factory=dict)

    def answer(self, result: Any) -> None:
        """Answer a request, unless it was answered or the agent is gone."""
        if self.reply is not None and not self.reply.done():
            self.reply.set_result(result)

    def refuse(self, error: Exception) -> None:
        """Answer a request with an error."""
        if self.reply is not None and not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # nobody may be left to look at it


class _Params(dict[str, Any]):
    """The params of a request, and where it stands in the queue."""

    incoming: Incoming


class _Wire:
    """The SDK's ``Transport``: lines of JSON, in order."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deliver: Callable[[Incoming], None]
    ) -> None:
        self._reader, self._writer, self._deliver = reader, writer, deliver
        self._prompts: set[Any] = set()
        self._sending = asyncio.Lock()
        self.is_open = True
        """Whether the agent can be spoken to: neither of its pipes has failed."""
        self.room = asyncio.Event()
        self.room.set()

    async def send(self, message: dict[str, Any]) -> None:
        if message.get("method") == "session/prompt":
            self._prompts.add(message.get("id"))
        async with self._sending:
            try:
                self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
                await self._writer.drain()
            except (OSError, RuntimeError) as error:
                self._end()  # it may have closed its input alone: nothing that it waits for can reach it
                raise ConnectionError("the agent's input is closed") from error

    async def receive(self) -> dict[str, Any] | None:
        while True:
            await self.room.wait()
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                break
            except (asyncio.LimitOverrunError, OSError):
                _logger.warning("the ACP agent wrote a line beyond %d bytes: its connection ends", _LINE_LIMIT)
                break
            message = decode_line(line)
            if message is None:
                if line.strip():
                    _logger.warning("the ACP agent wrote a line that is no JSON object; it was left out")
                continue
            given = self._taken(message)
            if given is not None:
                return given
        self._end()
        return None

    def _end(self) -> None:
        if self.is_open:
            self.is_open = False
            self._deliver(Incoming("end"))

    def _taken(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """What the SDK is to see of a message."""
        params = message.get("params")
        match message_kind(message):
            case "notification":
                given = params if isinstance(params, dict) else {}
                self._deliver(Incoming("update", message["method"], given, message=message))
                return None
            case "request":
                loop = asyncio.get_running_loop()
                incoming = Incoming("request", message["method"], dict(params) if isinstance(params, dict) else {})
                incoming.reply = loop.create_future()
                nested = _Params(nest_meta(message).get("params") or {}) if isinstance(params, dict) else _Params()
                nested.incoming = incoming
                self._deliver(incoming)
                return {**message, "params": nested}
            case "response":
                if message["id"] in self._prompts:
                    self._prompts.discard(message["id"])
                    self._deliver(Incoming("answer", message=message))
                return message
            case _:
                _logger.warning("the ACP agent wrote a message of no known shape; it was left out")
                return None

    async def close(self) -> None:
        self._writer.close()


class AgentProcess:
    """One process of an agent and the connection to it. Make it with :meth:`start`, end it with :meth:`close`."""

    def __init__(self, process: asyncio.subprocess.Process, deliver: Callable[[Incoming], None]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self.wire = _Wire(process.stdout, process.stdin, deliver)
        self._connection = Connection(self._handle, self.wire)
        self._closed = False

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        deliver: Callable[[Incoming], None],
    ) -> AgentProcess:
        """Start it, in a process group of its own. Raises ``OSError`` for a command that cannot be run."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # may hold secrets, and an unread pipe would stop the agent
            cwd=cwd,
            env=dict(env),
            limit=_LINE_LIMIT,
            start_new_session=True,
        )
        return cls(process, deliver)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs and can be spoken to."""
        return not self._closed and self.wire.is_open and self._process.returncode is None

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """The result of a request. Raises ``acp.RequestError`` or ``ConnectionError``."""
        return await self._connection.send_request(method, dict(params))

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification. Raises ``ConnectionError``."""
        await self._connection.send_notification(method, dict(params))

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        incoming: Incoming = params.incoming
        assert incoming.reply is not None
        return await incoming.reply

    def _kill(self) -> None:
        """Also what the agent started and left, where there are process groups."""
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self, *, kill: bool = False) -> None:
        """End the process and all that it started: by closing its pipe, then by a signal. Never raises, but for a
        cancellation, and even then the process is killed."""
        if self._closed:
            return
        self._closed = True
        self.wire.room.set()
        try:
            try:
                await self._connection.close()
            except Exception as error:  # noqa: BLE001 - logged; the process has to be ended all the same
                _logger.info("the connection to an ACP agent did not close: %s", type(error).__name__)
            if not kill:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._process.wait(), _LEAVES_S)
        finally:
            self._kill()
        await self._process.wait()
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()  # a pipe that was not read to its end would stay open
