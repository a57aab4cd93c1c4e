"""Requests to the server: sent again after a cut, under one key, until they are answered or it is given up.

Not for: events (``_follower.py``). Rules carried: SEC-01 as far as the token goes.
May import: httpx2, anyio, ``agentsession.protocol``, the modules beside it. The only module that imports httpx2.

A request that was cut may have been done. Each POST and PATCH carries an ``Idempotency-Key``, by which the server
answers the second as it did the first; what else is sent again has the same effect done twice.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import anyio

try:
    import httpx2
except ImportError as error:  # pragma: no cover  # httpx2 is part of the development environment
    raise ImportError(
        'agentsession.adapters.remote needs httpx2: pip install "agent-session-protocol[remote]"'
    ) from error

from agentsession.adapters.remote._backoff import Backoff
from agentsession.adapters.remote._problems import error_of
from agentsession.protocol import AgentSessionError, ConfigurationError, ConnectionLost, SchemaError, dumps, parse_json

__all__ = ["Cut", "Sent", "Wire", "path_of"]

Json = Mapping[str, Any]

_EVENT_BYTES: Final = 64 * 2**20
"""No event is larger: what never ends must not fill the memory."""
_RETRIED: Final = (408, 429, 502, 503, 504)
"""Statuses after which the same may go well, where they come without a problem of the contract's."""


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
    body: Json | None = None
    key: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    timeout_s: float | None = None

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else dumps(self.body).encode()

    @property
    def headers(self) -> dict[str, str]:
        made = {"Accept": "application/json"}
        if self.body is not None:
            made["Content-Type"] = "application/json"
        if self.method in ("POST", "PATCH"):
            made["Idempotency-Key"] = self.key
        return made

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Wire:
    """Connections to one server: one for tasks, and one for calls that cannot be awaited."""

    def __init__(
        self, base_url: str, token: str | None, *, answer_s: float, give_up_s: float, backoff: Backoff
    ) -> None:
        url = httpx2.URL(base_url)
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
            raise ConfigurationError(
                "this is no base URL of a server",
                expected="http:// or https://, a host and perhaps a path; a token goes into token=",
            )
        self.base_url = str(url).rstrip("/")
        self.answer_s = answer_s
        self.give_up_s = give_up_s
        self.backoff = backoff
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # A .netrc or proxy of the environment must not get, or replace, the token.
        self._client = httpx2.AsyncClient(headers=headers, timeout=answer_s, trust_env=False)
        self._blocking = httpx2.Client(headers=headers, timeout=answer_s, trust_env=False)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocking.close()
        with anyio.CancelScope(shield=True):
            await self._stack.aclose()

    # -- calls --------------------------------------------------------------------------------------------------------

    async def call(self, sent: Sent) -> Json:
        """Send, and wait for the answer. Raises what the server answers, or :class:`ConnectionLost`."""
        tries = _Tries(self, str(sent))
        while True:
            try:
                with anyio.fail_after(sent.timeout_s or self.answer_s):
                    response = await self._client.request(
                        sent.method,
                        self.base_url + sent.path,
                        content=sent.content,
                        headers=sent.headers,
                        timeout=sent.timeout_s or self.answer_s,
                    )
            except (httpx2.TransportError, TimeoutError) as error:
                await anyio.sleep(tries.wait_s(error))
                continue
            answer = _answered(response)
            if isinstance(answer, int):
                await anyio.sleep(tries.wait_s(f"status {answer}", response))
                continue
            return answer

    def call_now(self, sent: Sent) -> Json:
        """The same without giving way to a task; bounded by ``answer_s`` for each attempt, ``give_up_s`` for all."""
        tries = _Tries(self, str(sent))
        while True:
            try:
                response = self._blocking.request(
                    sent.method, self.base_url + sent.path, content=sent.content, headers=sent.headers
                )
            except httpx2.TransportError as error:
                time.sleep(tries.wait_s(error))
                continue
            answer = _answered(response)
            if isinstance(answer, int):
                time.sleep(tries.wait_s(f"status {answer}", response))
                continue
            return answer

    # -- events -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def events(
        self, path: str, after: int, silent_s: float
    ) -> AsyncIterator[AsyncIterator[tuple[str, str, str]] | None]:
        """Server-sent events behind ``after``, as (name, id, data); ``None`` where nothing is left to come.

        Raises :class:`Cut` on entering where the connection does not come about or the server is not ready, and what
        the server answers. What breaks while it is read raises :class:`Cut` too. ``silent_s``: a connection that
        brings nothing for so long, not even a comment, is broken.
        """
        # The agent shall wait for the host's readers, as it does in one process. Where the server does not do that
        # (an older one, or a token that may only read), TCP alone bounds what is sent.
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after), "Prefer": "hold"}
        timeout = httpx2.Timeout(self.answer_s, read=silent_s)
        request = self._client.build_request("GET", self.base_url + path, headers=headers, timeout=timeout)
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.TransportError as error:
            raise Cut(type(error).__name__) from error
        try:
            if response.status_code == 204:
                yield None
                return
            if response.status_code != 200:
                try:
                    await response.aread()
                except httpx2.TransportError as error:
                    raise Cut(type(error).__name__) from error
                answer = _answered(response)
                if isinstance(answer, int):
                    raise Cut(f"status {answer}")
                raise ConfigurationError("what the server sends are no events", got=f"status {response.status_code}")
            yield _events(response)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, str, str]]:
    try:
        async for event in httpx2.EventSource(response, max_event_size=_EVENT_BYTES):
            yield event.event, event.id, event.data
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        raise Cut(type(error).__name__) from error


class _Tries:
    """How often one request was tried."""

    def __init__(self, wire: Wire, what: str) -> None:
        self._wire = wire
        self._what = what
        self._failures = 0
        self._until = time.monotonic() + wire.give_up_s

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
                f"the server did not answer {self._what}",
                where=self._wire.base_url,
                got=f"{got}, tried {self._failures} times",
                fix="look whether it runs; RemoteExecutor(give_up_s=...) is how long it is tried",
            ) from (why if isinstance(why, Exception) else None)
        return wait_s


def _answered(response: httpx2.Response) -> Json | int:
    """The answer's JSON; a status alone is one that may be tried again. Raises what the answer stands for."""
    value: object = None
    if response.content:
        try:
            value = parse_json(response.content)
        except SchemaError:
            value = None
    status = response.status_code
    if 200 <= status < 300:
        if status == 204:
            return {}
        if not isinstance(value, dict):
            raise ConnectionLost("the server's answer is no JSON object", got=f"status {status}", fix="is it this one?")
        return value
    is_problem = isinstance(value, dict) and isinstance(value.get("code"), str)
    if status in _RETRIED and (not is_problem or status in (408, 429)):
        return status
    error: AgentSessionError = error_of(status, value)
    raise error
