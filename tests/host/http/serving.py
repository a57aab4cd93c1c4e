"""A real server on a port of its own, and what a client of server-sent events sees."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2
from tests.served import listen, served, url_of

__all__ = ["TOKENS", "Frame", "client_of", "frames", "serving"]

TOKENS = {"ann": "token-of-ann-0123456789", "bob": "token-of-bob-0123456789", "eve": "token-of-eve-0123456789"}
SSE = {"accept": "text/event-stream"}


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncGenerator[str]:
    """Serve ``app``; gives its address. It is gone at the end, with all its connections."""
    with listen() as listening:
        async with served(app, listening):
            yield url_of(listening)


def client_of(url: str, user: str | None = None) -> httpx2.AsyncClient:
    """A client of the server, with the user's token."""
    headers = {"authorization": f"Bearer {TOKENS[user]}"} if user else {}
    return httpx2.AsyncClient(base_url=url, headers=headers, timeout=20)


@dataclasses.dataclass(frozen=True)
class Frame:
    """One server-sent event."""

    name: str
    id: int | None
    data: Any


async def frames(response: httpx2.Response) -> AsyncIterator[Frame]:
    """The events of an answer, as they come."""
    rest = ""
    async for text in response.aiter_text():
        assert "\r" not in text
        *blocks, rest = (rest + text).split("\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
            if "data" in fields:
                found = int(fields["id"]) if "id" in fields else None
                yield Frame(fields.get("event", "message"), found, json.loads(fields["data"]))
