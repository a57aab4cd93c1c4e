"""Lines of JSON to the SDK's messages and back, in the order in which they were handed over.

Not for: what a message means (``_agent.py``). Rules carried: WIRE-01's care for what a peer writes.
May import: ``protocol._acp_messages``.

The SDK takes a transport of messages. This one keeps broken ones away from it, nests ``_meta`` so that no handler's
checked argument is replaced, turns ``$/cancel_request`` of a prompt into ``session/cancel``, and keeps what failed
validations quote out of answers. A message is in the buffer, at its place, when :meth:`WireTransport.put` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any, Final

from agentsession.protocol._acp_messages import decode_line, message_kind, nest_meta

__all__ = ["LINE_LIMIT", "WireTransport"]

logger = logging.getLogger("agentsession.host")

LINE_LIMIT: Final = 32 * 1024 * 1024
"""Bytes of one message; a longer one is refused and skipped."""
_BUFFERED: Final = 256 * 1024
"""Bytes that wait for a client that does not read, before the agent waits for it."""


class WireTransport:
    """One client's byte streams. The reader's limit is the longest line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._gone = asyncio.Event()
        self._draining = asyncio.Lock()
        self._prompts: dict[str | int, str] = {}
        """The session of each prompt that is not answered yet, by the request's id."""

    @property
    def is_gone(self) -> bool:
        """Whether nobody reads or writes any more."""
        return self._gone.is_set()

    def leave(self) -> None:
        """The client is gone: what is put from now on is dropped, and nobody waits for it to read."""
        self._gone.set()
        self._reader.feed_eof()

    def put(self, message: dict[str, Any]) -> None:
        """Hand a message over at once; after the client is gone it is dropped."""
        if "method" not in message and isinstance(message.get("id"), (str, int)):
            self._prompts.pop(message["id"], None)
        if self._writer.is_closing():  # its pipe is broken
            self.leave()
        if self.is_gone:
            return
        line = json.dumps(_without_quotes(message), separators=(",", ":"), default=str)  # ASCII: no broken characters
        try:
            self._writer.write(line.encode("ascii") + b"\n")
        except (OSError, RuntimeError):
            self.leave()

    async def send(self, message: dict[str, Any]) -> None:
        """As the SDK calls it. Raises :class:`ConnectionError` for a request that nobody can answer."""
        if self.is_gone and "method" in message and "id" in message:
            raise ConnectionError("the client is gone")
        self.put(message)
        await self.flush()

    async def flush(self) -> None:
        """Wait until the client has read enough, or is gone."""
        if self.is_gone or self._writer.transport.get_write_buffer_size() < _BUFFERED:
            return
        async with self._draining:
            drained = asyncio.ensure_future(self._writer.drain())
            gone = asyncio.ensure_future(self._gone.wait())
            try:
                await asyncio.wait({drained, gone}, return_when=asyncio.FIRST_COMPLETED)
                if drained.done() and drained.exception() is not None:
                    self.leave()
            finally:
                drained.cancel()
                gone.cancel()

    async def receive(self) -> dict[str, Any] | None:
        """The next sound message, or ``None`` when the client is gone."""
        while True:
            line = await self._line()
            if line is None:
                self.leave()
                return None
            if line and not line.strip():
                continue
            message = decode_line(line)
            if message is None:
                self._refuse(-32700, "Parse error")
                continue
            kind = message_kind(message)
            if kind == "invalid":
                self._refuse(-32600, "Invalid request")
                continue
            if message.get("method") == "$/cancel_request":
                message = self._cancel_of(message)
                if message is None:
                    continue
            elif kind == "request" and message.get("method") == "session/prompt":
                self._remember(message)
            return nest_meta(message)

    async def close(self) -> None:
        """Write what was put, if the client still reads."""
        if not self.is_gone:
            with contextlib.suppress(OSError, RuntimeError, TimeoutError):  # it does not read: what is left is lost
                async with asyncio.timeout(1.0):
                    await self._writer.drain()
        self.leave()
        self._writer.close()

    def _refuse(self, code: int, words: str) -> None:
        self.put({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": words}})

    def _remember(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        session_id = params.get("sessionId") if isinstance(params, dict) else None
        if isinstance(session_id, str) and isinstance(message["id"], (str, int)):
            self._prompts[message["id"]] = session_id

    def _cancel_of(self, message: dict[str, Any]) -> dict[str, Any] | None:
        params = message.get("params")
        wanted = params.get("requestId") if isinstance(params, dict) else None
        found = self._prompts.get(wanted) if isinstance(wanted, (str, int)) else None
        if found is None:
            return None
        return {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": found}}

    async def _line(self) -> bytes | None:
        """A line, empty for one that is too long; ``None`` at the end."""
        is_skipping = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                is_skipping = True
                await self._reader.readexactly(error.consumed)
                continue
            except (asyncio.IncompleteReadError, OSError):
                return None  # a line that was cut off is no message
            return b"" if is_skipping else line


def _without_quotes(message: dict[str, Any]) -> dict[str, Any]:
    """An error of the SDK's validation quotes the input and names exceptions; where and what kind is enough."""
    error = message.get("error")
    data = error.get("data") if isinstance(error, dict) else None
    listed = data.get("errors") if isinstance(data, dict) else None
    if not isinstance(error, dict) or error.get("code") != -32602 or not isinstance(listed, list):
        return message
    kept = [
        {"loc": [str(step) for step in one.get("loc", ())], "type": str(one.get("type", ""))}
        for one in listed
        if isinstance(one, dict)
    ]
    return {**message, "error": {**error, "data": {"errors": kept}}}
