"""One request at an app over ASGI alone: what a server would pass on, byte for byte, with no socket in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio

__all__ = ["Client"]

Taking = Callable[[bytes], Awaitable[None]]


class Client:
    """Sends a request whose body comes in the parts of ``body``, one each ``every_s``.

    What is answered goes to ``take``, which may be slow. ``headers`` come after those that every request here has,
    unless they have the same name.
    """

    def __init__(
        self,
        app: Any,
        method: str,
        path: str,
        body: Iterable[bytes] = (),
        headers: Iterable[tuple[str, str]] = (),
        *,
        raw_path: bytes | None = None,
        query: bytes = b"",
        every_s: float = 0.0,
    ) -> None:
        self._app = app
        self.parts = iter(body)
        self._every_s = every_s
        self.gone = anyio.Event()
        """Set it to be gone."""
        headers = [*headers]
        given = {"host": "localhost", "accept": "text/event-stream", "content-type": "application/json"}
        for name, _ in headers:
            given.pop(name, None)
        self._scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode() if raw_path is None else raw_path,
            "query_string": query,
            "headers": [(name.encode("latin-1"), text.encode("latin-1")) for name, text in [*given.items(), *headers]],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }
        self.status = 0
        self.answered: dict[str, str] = {}
        """The headers of the answer."""
        self.data = b""
        """The body of the answer, as far as it was taken."""

    async def run(self, take: Taking | None = None) -> None:
        """Send it, and take the whole answer."""
        is_sent = False

        async def receive() -> dict[str, Any]:
            nonlocal is_sent
            if not is_sent:
                await anyio.sleep(self._every_s)
                part = next(self.parts, None)
                is_sent = part is None
                return {"type": "http.request", "body": part or b"", "more_body": not is_sent}
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.answered = {name.decode(): text.decode() for name, text in message["headers"]}
            elif message["body"]:
                if take is not None:
                    await take(message["body"])
                self.data += message["body"]

        await self._app(self._scope, receive, send)
