"""A real server on a port of its own, and a client that posts runs to it and reads their events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx2
from starlette.types import Message, Receive, Scope, Send
from tests.host.agui import streams
from tests.host.agui.inputs import body, user
from tests.served import listen, served, url_of

from agentsession.host.agui import AguiApp

__all__ = ["HEADERS", "Poster", "Watched", "outcome", "serving"]

HEADERS = {"content-type": "application/json"}


class Watched:
    """An application that can be waited for: it is looked at when it has answered, and when a run of it is over."""

    def __init__(self, app: AguiApp) -> None:
        self.app = app
        self._moved = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            await send(message)
            self._move()

        try:
            await self.app(scope, receive, answer)
        finally:
            self._move()

    def _move(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def until(self, holds: Callable[[AguiApp], bool]) -> None:
        """Wait until the application is so."""
        while not holds(self.app):
            moving = asyncio.ensure_future(self._moved.wait())
            try:
                await asyncio.wait((moving, *(run.task for run in self.app.runs)), return_when=asyncio.FIRST_COMPLETED)
            finally:
                moving.cancel()

    async def settled(self) -> None:
        """Wait until no run is left."""
        await self.until(lambda app: app.running == 0)


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncGenerator[str]:
    """Serve ``app``; gives its address. It is gone at the end, with all its connections."""
    with listen() as listening:
        async with served(app, listening):
            yield url_of(listening)


class Poster:
    """Posts the runs of one thread. Like a real client it keeps what was said, and sends all of it with each run."""

    def __init__(self, url: str, thread_id: str = "t1") -> None:
        self.url = url
        self.thread_id = thread_id
        self.http = httpx2.AsyncClient(timeout=20)
        self.client = streams.Client()
        self._runs = 0

    async def __aenter__(self) -> Poster:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.http.aclose()

    def sent(self, *new: dict[str, Any], **changes: Any) -> bytes:
        """The body of the next run, which says ``new``."""
        self.client.messages += new
        self._runs += 1
        whole: dict[str, Any] = {
            "threadId": self.thread_id,
            "runId": f"run-{self._runs}",
            "state": self.client.state,
            **changes,
        }
        messages: list[dict[str, Any]] = whole.pop("messages", self.client.messages)
        return body(*messages, **whole)

    @contextlib.asynccontextmanager
    async def stream(self, sent: bytes) -> AsyncGenerator[AsyncIterator[dict[str, Any]]]:
        """The events of one run, as they come; leaving closes the connection."""
        async with self.http.stream("POST", self.url, content=sent, headers=HEADERS) as response:
            assert response.status_code == 200, await response.aread()
            yield _events(response)

    async def run(self, *new: dict[str, Any], is_resumed: bool = False, **changes: Any) -> list[dict[str, Any]]:
        """Run to the end, and have the stream looked at by all that know what one must be."""
        async with self.stream(self.sent(*new, **changes)) as events:
            found = [event async for event in events]
        streams.check(found, is_resumed=is_resumed, client=self.client)
        return found

    async def say(self, id: str, content: Any = "hello", **changes: Any) -> list[dict[str, Any]]:
        """Run with one new message."""
        return await self.run(user(id, content), **changes)

    async def answer(self, *entries: tuple[str, Any], **changes: Any) -> list[dict[str, Any]]:
        """Run with answers to interrupts, each its id and the payload."""
        resume = [{"interruptId": name, "status": "resolved", "payload": payload} for name, payload in entries]
        return await self.run(is_resumed=True, resume=resume, **changes)


async def _events(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    rest = ""
    async for text in response.aiter_text():
        assert "\r" not in text
        *frames, rest = (rest + text).split("\n\n")
        for frame in frames:
            data = [line[6:] for line in frame.split("\n") if line.startswith("data: ")]
            if data:
                yield json.loads("\n".join(data))
    assert not rest


def outcome(events: list[dict[str, Any]]) -> Any:
    """How a run ended: its outcome, or the code of its error."""
    last = events[-1]
    return last["code"] if last["type"] == "RUN_ERROR" else last["outcome"]
