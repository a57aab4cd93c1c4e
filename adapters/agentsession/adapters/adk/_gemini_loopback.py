"""A Gemini API on the loopback interface, which google-genai's own client talks to: for tests and simulations.

Not for: answering from a recording (``_recorded_model`` gives the replies), other machines (it binds to 127.0.0.1).
May import: the standard library, ``agentsession.protocol``. Rules carried: WIRE-01.

::

    with GeminiLoopback([HttpReply.of({"candidates": [...]})]) as server:
        model = Gemini(model="gemini-2.5-flash", base_url=server.url)

It speaks ``generateContent`` and ``streamGenerateContent`` (server-sent events), of the Gemini API and of Vertex, and
what else it is told to say: errors, bodies that are no JSON, streams that break off.
"""

from __future__ import annotations

import dataclasses
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from agentsession.protocol import dumps

__all__ = ["GeminiLoopback", "HttpReply", "HttpRequest"]

_CALL: Final = re.compile(r"/(?:[^/?]+/)*?models/(?P<model>[^/:?]+):(?P<method>[A-Za-z]+)")
_JSON: Final = "application/json; charset=UTF-8"


@dataclasses.dataclass(frozen=True, slots=True)
class HttpRequest:
    """One call that came in."""

    path: str
    model: str
    stream: bool
    body: Any
    """The parsed JSON; ``None`` where it was none."""
    headers: Mapping[str, str]
    """By lower-case name."""


@dataclasses.dataclass(frozen=True, slots=True)
class HttpReply:
    """What is answered: chunks, or a body byte for byte."""

    chunks: tuple[Mapping[str, Any], ...] = ()
    """One response; in a stream one event each. An error as the first chunk gives the HTTP status it names."""
    body: bytes | None = None
    """Sent as it is, in the place of chunks."""
    status: int | None = None
    content_type: str = _JSON

    @classmethod
    def of(cls, *chunks: Mapping[str, Any]) -> Self:
        """A reply of these chunks."""
        return cls(tuple(chunks))

    def _sent(self, stream: bool) -> tuple[int, str, bytes]:
        if self.body is not None:
            return self.status or 200, self.content_type, self.body
        if stream and self.chunks and "error" not in self.chunks[0]:
            events = "".join(f"data: {dumps(dict(chunk))}\r\n\r\n" for chunk in self.chunks)
            return self.status or 200, "text/event-stream", events.encode()
        # A call without streaming has one answer: the error, if it came to one.
        whole = next((chunk for chunk in self.chunks if "error" in chunk), self.chunks[0] if self.chunks else {})
        error = whole.get("error")
        code = error.get("code") if isinstance(error, Mapping) else None
        return self.status or (code if isinstance(code, int) else 200), self.content_type, dumps(dict(whole)).encode()


class GeminiLoopback:
    """A server for one ``with`` block.

    Args:
        replies: One reply a call, in order; or a function of the call, called in the server's threads one at a time.

    A call beyond the replies, and one that is no model call, is answered with an error of the API. What a function of
    yours raises is answered so too, and raised again when the block ends.
    """

    def __init__(self, replies: Sequence[HttpReply] | Callable[[HttpRequest], HttpReply]) -> None:
        self.requests: list[HttpRequest] = []
        """The calls so far, in the order in which they came."""
        self._replies = replies
        self._raised: Exception | None = None
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """What ``HttpOptions(base_url=…)`` takes."""
        if self._server is None:
            raise RuntimeError("the server runs inside its with block")
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                status, kind, body = outer._answer(self.path, self.rfile.read(length), dict(self.headers.items()))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the standard library would write each call to stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, name="gemini loopback", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = self._thread = None
        if self._raised is not None and error is None:
            raise self._raised

    def _answer(self, path: str, raw: bytes, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        call = _CALL.match(path)
        if call is None or call["method"] not in ("generateContent", "streamGenerateContent"):
            return _failure(404, "NOT_FOUND", f"this server has no {path.partition('?')[0]}")._sent(False)
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        stream = call["method"] == "streamGenerateContent"
        lowered = {name.lower(): value for name, value in headers.items()}
        request = HttpRequest(path, call["model"], stream, body, lowered)
        with self._lock:
            self.requests.append(request)
            return self._reply(request)._sent(stream)

    def _reply(self, request: HttpRequest) -> HttpReply:
        if callable(self._replies):
            try:
                return self._replies(request)
            except Exception as error:  # noqa: BLE001  # in a thread nobody would see it: it is raised by __exit__
                self._raised = self._raised or error
                return _failure(500, "INTERNAL", f"the function of the replies raised {type(error).__name__}")
        if len(self.requests) > len(self._replies):
            return _failure(400, "FAILED_PRECONDITION", f"there are {len(self._replies)} replies, and no more")
        return self._replies[len(self.requests) - 1]


def _failure(code: int, status: str, message: str) -> HttpReply:
    return HttpReply.of({"error": {"code": code, "status": status, "message": message}})
