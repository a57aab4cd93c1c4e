"""Requests to the server: sent again after a cut, under one key, until they are answered or it is given up.

Not for: events (``_follower.py``), what an answer means (``_answers.py``). Rules carried: SEC-01 as far as the token
goes. May import: httpx2, anyio, ``agentsession.protocol``, the modules beside it. The only module that imports httpx2.

A request that was cut may have been done. Each POST and PATCH carries an ``Idempotency-Key``, by which the server
answers the second as it did the first. What was deleted by a request that was cut is not found by the second, which
is no failure. No redirect is followed: whoever it leads to would get the token.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import anyio

try:
    import httpx2
except ImportError as error:  # pragma: no cover  # httpx2 is part of the development environment
    raise ImportError(
        'agentsession.adapters.remote needs httpx2: pip install "agent-session-protocol[remote]"'
    ) from error

from agentsession.adapters.remote._answers import Json, answered, check_encoding, read, read_now
from agentsession.adapters.remote._backoff import Backoff
from agentsession.adapters.remote._leaving import leaving
from agentsession.adapters.remote._mask import Mask
from agentsession.protocol import ConfigurationError, ConnectionLost, SessionNotFound, dumps

__all__ = ["Cut", "Json", "Sent", "Wire", "path_of"]

_EVENT_BYTES: Final = 64 * 2**20
"""No event is larger: what never ends must not fill the memory."""
_TOKEN: Final = re.compile(r"[!-~]+")
_LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""Each session that is followed has a connection of its own: no number of them may keep a call from being sent."""


class Cut(Exception):
    """The connection broke, or did not come about; its text is shown and has no token in it."""


def path_of(*segments: str) -> str:
    """A path of segments, each percent-encoded whole: an id is never more than one segment."""
    return "/" + "/".join(quote(segment, safe="") for segment in segments)


@dataclass(frozen=True)
class Sent:
    """One request, however often it is sent."""

    method: str
    path: str
    body: Json | None = field(default=None, repr=False)
    """In no repr: an answer may be a secret."""
    key: str | None = field(default_factory=lambda: secrets.token_urlsafe(18))
    """``None``: what is sent has a key of its own in the body."""
    timeout_s: float | None = None

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else dumps(self.body).encode()

    @property
    def headers(self) -> dict[str, str]:
        made = {"Accept": "application/json"}
        if self.body is not None:
            made["Content-Type"] = "application/json"
        if self.method in ("POST", "PATCH") and self.key is not None:
            made["Idempotency-Key"] = self.key
        return made

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Wire:
    """Connections to one server: one for tasks, and one for calls that cannot be awaited."""

    def __init__(
        self, base_url: str, token: str | None, *, answer_s: float, give_up_s: float, backoff: Backoff
    ) -> None:
        if token is not None and not _TOKEN.fullmatch(token):
            # Whoever builds the header would say what is wrong with it, and show it.
            raise ConfigurationError(
                "this token cannot be sent",
                expected="printable ASCII characters without spaces",
                fix="look for a line end: token=text.strip()",
            )
        self.base_url = _checked(base_url)
        self.mask = Mask(token)
        self.answer_s = answer_s
        self.give_up_s = give_up_s
        self.silent_s = 45.0
        """A connection that brings nothing for so long is broken: the server comments each 15 seconds at the latest."""
        self.backoff = backoff
        self._headers = {"Accept-Encoding": "identity"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._open: tuple[httpx2.AsyncClient, httpx2.Client] | None = None

    async def __aenter__(self) -> Self:
        # A .netrc or proxy of the environment must not get, or replace, the token.
        client = httpx2.AsyncClient(headers=self._headers, timeout=self.answer_s, trust_env=False, limits=_LIMITS)
        blocking = httpx2.Client(headers=self._headers, timeout=self.answer_s, trust_env=False, limits=_LIMITS)
        await client.__aenter__()
        self._open = client, blocking
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, blocking = self._clients
        self._open = None
        blocking.close()
        with anyio.CancelScope(shield=True):
            await client.aclose()

    @property
    def _clients(self) -> tuple[httpx2.AsyncClient, httpx2.Client]:
        if self._open is None:
            raise ConfigurationError(
                "the executor is not running", fix="enter it: async with executor:", id="executor-not-entered"
            )
        return self._open

    # -- calls --------------------------------------------------------------------------------------------------------

    async def call(self, sent: Sent) -> Json:
        """Send, and wait for the answer. Raises what the server answers, or :class:`ConnectionLost`."""
        tries = _Tries(self, sent)
        client, _ = self._clients
        while True:
            timeout_s = sent.timeout_s or self.answer_s
            request = client.build_request(
                sent.method,
                self.base_url + sent.path,
                content=sent.content,
                headers=sent.headers,
                timeout=timeout_s,
            )
            try:
                with anyio.fail_after(timeout_s):
                    response = await client.send(request, stream=True)
                    try:
                        content = await read(response)
                    finally:
                        with anyio.CancelScope(shield=True):
                            await response.aclose()
            except (httpx2.TransportError, TimeoutError) as error:
                await anyio.sleep(tries.wait_s(error))
                continue
            answer = tries.answer(response, content)
            if isinstance(answer, int):
                await anyio.sleep(tries.wait_s(f"status {answer}", response))
                continue
            return answer

    def call_now(self, sent: Sent) -> Json:
        """The same without giving way to a task. One attempt ends within twice ``answer_s``."""
        tries = _Tries(self, sent)
        _, client = self._clients
        while True:
            try:
                until = time.monotonic() + self.answer_s
                with client.stream(
                    sent.method, self.base_url + sent.path, content=sent.content, headers=sent.headers
                ) as response:
                    content = read_now(response, until)
            except (httpx2.TransportError, TimeoutError) as error:
                time.sleep(tries.wait_s(error))
                continue
            answer = tries.answer(response, content)
            if isinstance(answer, int):
                time.sleep(tries.wait_s(f"status {answer}", response))
                continue
            return answer

    # -- events -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def events(self, path: str, after: int) -> AsyncIterator[AsyncIterator[tuple[str, str, str]] | None]:
        """Server-sent events behind ``after``, as (name, id, data); ``None`` where nothing is left to come.

        Raises :class:`Cut` on entering where the connection does not come about or the server is not ready, and what
        the server answers. What breaks while it is read raises :class:`Cut` too.
        """
        # The agent shall wait for the host's readers, as it does in one process. Where the server does not do that
        # (an older one, or a token that may only read), TCP alone bounds what is sent.
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after), "Prefer": "hold"}
        timeout = httpx2.Timeout(self.answer_s, read=self.silent_s)
        client, _ = self._clients
        request = client.build_request("GET", self.base_url + path, headers=headers, timeout=timeout)
        try:
            with anyio.fail_after(self.silent_s):
                response = await client.send(request, stream=True)
        except (httpx2.TransportError, TimeoutError) as error:
            raise Cut(type(error).__name__) from error
        try:
            if response.status_code == 204:
                yield None
                return
            if response.status_code != 200:
                await self._refused(response)
            check_encoding(response)
            if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/event-stream":
                raise Cut("an answer that is no event stream")
            async with leaving(_events(response)) as events:
                yield events
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def _refused(self, response: httpx2.Response) -> None:
        try:
            with anyio.fail_after(self.answer_s):
                content = await read(response)
        except (httpx2.TransportError, TimeoutError) as error:
            raise Cut(type(error).__name__) from error
        answer = answered(response.status_code, content, self.mask)
        if isinstance(answer, int):
            raise Cut(f"status {answer}")
        raise ConfigurationError("what the server sends are no events", got=f"status {response.status_code}")


def _checked(base_url: str) -> str:
    url = None
    with contextlib.suppress(httpx2.InvalidURL):  # not shown: it may have a password in it
        url = httpx2.URL(base_url)
    is_web = url is not None and url.scheme in ("http", "https") and url.host and (url.port or 1) < 2**16
    if url is None or not is_web or url.userinfo or url.query or url.fragment:
        raise ConfigurationError(
            "this is no base URL of a server",
            expected="http:// or https://, a host and perhaps a path; a token goes into token=",
        )
    return str(url).rstrip("/")


async def _events(response: httpx2.Response) -> AsyncGenerator[tuple[str, str, str]]:
    try:
        async for event in httpx2.EventSource(response, max_event_size=_EVENT_BYTES):
            yield event.event, event.id, event.data
    except httpx2.SSEError:  # of its kind: it would be as large the next time
        raise ConnectionLost(
            "an event of the server's is too large", expected=f"{_EVENT_BYTES} bytes at most"
        ) from None
    except httpx2.TransportError as error:
        raise Cut(type(error).__name__) from error


class _Tries:
    """How often one request was tried."""

    def __init__(self, wire: Wire, sent: Sent) -> None:
        self._wire = wire
        self._sent = sent
        self._failures = 0
        self._until = time.monotonic() + wire.give_up_s

    def answer(self, response: httpx2.Response, content: bytes) -> Json | int:
        """See :func:`answered`."""
        try:
            return answered(response.status_code, content, self._wire.mask)
        except SessionNotFound:
            if self._sent.method == "DELETE" and self._failures:
                return {}  # an attempt that was cut has deleted it
            raise

    def wait_s(self, why: Exception | str, response: httpx2.Response | None = None) -> float:
        """How long to wait before the next. Raises :class:`ConnectionLost` when it is given up."""
        self._failures += 1
        wait_s = self._wire.backoff.wait_s(self._failures)
        asked = response.headers.get("retry-after", "") if response is not None else ""
        if asked.isascii() and asked.isdigit() and len(asked) < 5:
            wait_s = max(wait_s, float(asked))
        if time.monotonic() + wait_s > self._until:
            got = why if isinstance(why, str) else type(why).__name__
            raise ConnectionLost(
                f"the server did not answer {self._sent}",
                where=self._wire.base_url,
                got=f"{got}, tried {self._failures} times",
                fix="look whether it runs; RemoteExecutor(give_up_s=...) is how long it is tried",
            ) from (why if isinstance(why, Exception) else None)
        return wait_s
