"""A server on loopback that answers what a test tells it to, byte for byte, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

from agentsession.protocol import PROTOCOL_VERSION, AgentDescriptor

__all__ = ["AGENTS", "DESCRIPTOR", "INITIALIZE", "Asked", "Odd", "answer", "event", "events", "head", "session"]

DESCRIPTOR = AgentDescriptor(name="odd", executor="odd", capabilities=["abort", "delete", "list", "load"])


@dataclasses.dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = bytes | Callable[[Asked], AsyncIterator[bytes]]


def answer(body: Any, status: int = 200, kind: str = "application/json", **headers: str) -> bytes:
    """An answer; ``body`` is bytes, or anything that is JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"content-type": kind, "content-length": str(len(content)), "connection": "close"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Odd", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


AGENTS = answer({"protocolVersion": PROTOCOL_VERSION, "agents": [{"name": "odd", "descriptor": DESCRIPTOR.to_wire()}]})


def head(kind: str = "text/event-stream", status: int = 200) -> bytes:
    """The head of an answer that ends when the connection does."""
    return f"HTTP/1.1 {status} Odd\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode()


def event(seq: int, type: str, **fields: Any) -> dict[str, Any]:
    """An event of the session ``s``, which may be changed to be none."""
    place = {"id": f"e{seq}", "seq": seq, "timestamp": "2026-01-31T12:00:00.000Z", "sessionId": "s"}
    return {**place, "source": "host", "type": type, **fields}


INITIALIZE = event(1, "initialize", protocolVersion=PROTOCOL_VERSION, descriptor=DESCRIPTOR.to_wire())


def events(*given: dict[str, Any]) -> bytes:
    """Events as server-sent events."""
    return b"".join(f"id: {one['seq']}\ndata: {json.dumps(one)}\n\n".encode() for one in given)


def session(session_id: str = "s", last_seq: int = 1) -> dict[str, Any]:
    return {
        "agent": "odd",
        "sessionId": session_id,
        "state": "idle",
        "pending": [],
        "lastSeq": last_seq,
        "isHosted": False,
        "host": {},
        "descriptor": DESCRIPTOR.to_wire(),
    }


async def followed(asked: Asked) -> AsyncIterator[bytes]:
    """The events of a new session, and nothing more for as long as the reader stays."""
    yield head()
    if asked.headers.get("last-event-id") == "0":
        yield events(INITIALIZE)
    await asyncio.Event().wait()


class Odd:
    """Serves an agent ``odd`` with a session ``s``. ``answers`` are by ``"METHOD /end-of-path"``: a list is used up
    but for its last."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | list[Answer]] = {
            "GET /agents": AGENTS,
            "POST /sessions": answer(session(), 201),
            "GET /s": answer(session()),
            "POST /load": answer(session()),
            "GET /events": followed,
            "POST /close": answer({"state": "closed"}),
        }
        self.asked: list[Asked] = []
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def set(self, what: str, *given: Answer) -> Self:
        self.answers[what] = list(given)
        return self

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "http://{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            asked = await _read(reader)
            self.asked.append(asked)
            given = self._answer(asked)
            if isinstance(given, bytes):
                writer.write(given)
            else:
                async for part in given(asked):
                    writer.write(part)
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test has ended
        finally:
            self._tasks.discard(task)
            writer.close()

    def _answer(self, asked: Asked) -> Answer:
        path = asked.path.partition("?")[0]
        for what, given in self.answers.items():
            method, _, end = what.partition(" ")
            if method == asked.method and path.endswith(end):
                if isinstance(given, list):
                    return given.pop(0) if len(given) > 1 else given[0]
                return given
        return answer({"code": "not-found", "detail": "odd"}, 404)


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
