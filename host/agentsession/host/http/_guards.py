"""What stands before any app that is served: host, origin, CORS, rates, who calls, sizes, headers of answers.

Not for: routes. Rules carried: SEC-01 as far as answers go. May import: starlette, ``_principals``, ``_problems``,
``_limits``.

Order: what costs least and needs no trust comes first. Nothing of a body is read before the caller is known.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentsession.host.http._limits import Buckets, Limits
from agentsession.host.http._principals import LOCAL, Principal, Tickets, Verifier, is_loopback
from agentsession.host.http._problems import Problem, problem_response
from agentsession.protocol import ConfigurationError

__all__ = ["API_POLICY", "LOOPBACK_HOSTS", "guarded", "principal_of"]

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
"""Names under which a server is reached on its own machine."""
API_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
"""The content security policy of answers that no browser is to show."""
_ALLOWED_HEADERS: Final = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "Prefer")
_EXPOSED_HEADERS: Final = ("Location", "Retry-After", "Idempotent-Replayed", "Preference-Applied")
_METHODS: Final = ("GET", "POST", "PATCH", "DELETE")
_PRINCIPAL: Final = "agentsession.principal"


def principal_of(scope: Scope) -> Principal:
    """Who calls, in an app that is guarded. Raises :class:`RuntimeError` in one that is not: fail closed."""
    principal = scope.get(_PRINCIPAL)
    if not isinstance(principal, Principal):
        raise RuntimeError("this app is served without guarded()")
    return principal


def guarded(
    app: ASGIApp,
    *,
    verify: Verifier | None = None,
    allowed_hosts: Iterable[str] = LOOPBACK_HOSTS,
    allowed_origins: Iterable[str] = (),
    limits: Limits | None = None,
    policy: str = API_POLICY,
    tickets: Tickets | None = None,
    for_anybody: bool = False,
) -> ASGIApp:
    """``app`` behind the guards. Lifespan passes through; web sockets are refused.

    ``verify`` says who calls. Without it, calls from this machine are those of the user ``local`` and all others get
    401. ``allowed_hosts`` are values of ``Host``, with a port to allow that port alone; ``allowed_origins`` are pages
    of other servers that may call, such as ``https://app.example``. ``policy`` is the content security policy.
    ``for_anybody``: nobody has to say who they are to GET, as for the files of a page; the app then knows no principal.

    Raises :class:`ConfigurationError` for hosts and origins that are no such.
    """
    hosts = frozenset(_host(value) for value in _listed(allowed_hosts, "allowed_hosts"))
    origins = [_origin(value) for value in _listed(allowed_origins, "allowed_origins")]
    inner: ASGIApp = _Callers(app, verify, limits or Limits(), tickets, for_anybody)
    if origins:
        # Without credentials: a token is sent by the page itself, and there are no cookies.
        inner = CORSMiddleware(
            inner,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=_ALLOWED_HEADERS,
            expose_headers=_EXPOSED_HEADERS,
        )
    return _Border(inner, hosts, frozenset(origins), limits or Limits(), policy)


def _listed(values: Iterable[str], name: str) -> list[str]:
    if isinstance(values, (str, bytes)):
        raise ConfigurationError(
            f"{name} is one text", expected="a list of texts", fix=f"write {name}=[...], one value for each"
        )
    return list(values)


def _host(value: str) -> str:
    if not value or any(sign in value for sign in "*,/@ ") or not value.isascii():
        raise ConfigurationError(
            "a host that is allowed cannot be read",
            where="allowed_hosts",
            got=ascii(value),
            expected="a name or address, perhaps with a port, such as app.example or 10.0.0.2:8000; no patterns",
            fix="write it as it stands in the address, without http:// and without a path",
        )
    return value.lower()


def _origin(value: str) -> str:
    parts = urlsplit(value)
    is_one = parts.scheme in ("http", "https") and bool(parts.netloc) and value == f"{parts.scheme}://{parts.netloc}"
    if not is_one or any(sign in value for sign in "*, @"):
        raise ConfigurationError(
            "an origin that is allowed cannot be read",
            where="allowed_origins",
            got=ascii(value),
            expected="one scheme, host and port, such as https://app.example; no wildcard, no commas, no path",
            fix="write it as the page's address begins, up to the first / after the host; give several one by one",
        )
    return value.lower()


class _Border:
    """What needs to know nobody: host, origin, sizes of headers; and what every answer carries."""

    def __init__(
        self, app: ASGIApp, hosts: frozenset[str], origins: frozenset[str], limits: Limits, policy: str
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins
        self._limits = limits
        self._headers = {
            "x-content-type-options": "nosniff",
            "content-security-policy": policy,
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        has_started = False

        async def answer(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, answer)
        except ClientDisconnect:  # in the middle of its body: nobody is there to be told, and nothing was begun
            return
        except Exception as error:  # told by its status alone, and logged
            response = problem_response(error)
            if not has_started:
                await response(scope, receive, answer)
            elif not isinstance(error, Problem):
                raise

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._limits.header_bytes:
            raise Problem(431, "headers-too-large", "the headers of this request are too large")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > self._limits.target_bytes:
            raise Problem(414, "uri-too-long", "the path and query of this request are too long")
        given = headers.getlist("host")
        host = given[0].lower() if len(given) == 1 else ""
        if host not in self._hosts and _without_port(host) not in self._hosts:
            raise Problem(
                421,
                "host",
                "this server does not answer under that name",
                got=ascii(", ".join(given))[1:-1] or "no Host header",
                fix="call it by a name that it was told (allowed_hosts; serve --allow-host)",
            )
        for origin in headers.getlist("origin"):
            if origin.lower() not in self._origins and origin.lower() != f"{scope['scheme']}://{host}":
                raise Problem(
                    403,
                    "origin",
                    "pages of that origin may not call this server",
                    got=ascii(origin)[1:-1],
                    fix="name it in allowed_origins (serve --allow-origin), if its pages are to be trusted",
                )
        # A page elsewhere that loads from here without an origin, as an image would be, is no page of this server.
        if (
            headers.get("sec-fetch-site") == "cross-site"
            and "origin" not in headers
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            raise Problem(403, "origin", "pages of another site may not load this")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdecimal() else host


class _Callers:
    """Who calls, how often, and no more of a body than is allowed."""

    def __init__(
        self,
        app: ASGIApp,
        verify: Verifier | None,
        limits: Limits,
        tickets: Tickets | None,
        for_anybody: bool,
    ) -> None:
        self._app = app
        self._verify = verify
        self._limits = limits
        self._tickets = tickets
        self._for_anybody = for_anybody
        self._addresses = Buckets(limits.requests_per_s, limits.burst)
        self._users = Buckets(limits.requests_per_s, limits.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        _count(self._addresses, _network(client[0] if client else ""))
        is_open = self._for_anybody and scope["method"] in ("GET", "HEAD")
        principal = None if is_open else await self._principal(scope)
        if principal is not None:
            _count(self._users, principal.user_id)
            scope[_PRINCIPAL] = principal
        body = _Body(scope, receive, send, self._limits)
        await body.run(self._app)

    async def _principal(self, scope: Scope) -> Principal:
        connection = HTTPConnection(scope)
        principal = self._by_ticket(scope) if scope["method"] == "GET" else None
        if principal is None:
            if self._verify is not None:
                principal = await self._verify.verify(connection)
            elif connection.client is not None and is_loopback(connection.client.host):
                principal = LOCAL
        if principal is None:
            raise Problem(
                401,
                "unauthenticated",
                "this call needs to say who makes it",
                headers={"www-authenticate": "Bearer"},
                fix="send the header Authorization: Bearer TOKEN, with a token that the server knows",
            )
        return principal

    def _by_ticket(self, scope: Scope) -> Principal | None:
        if self._tickets is None or b"ticket=" not in scope["query_string"]:
            return None
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        # Taken out in place, so that the access log of the server has it neither.
        scope["query_string"] = urlencode([item for item in given if item[0] != "ticket"]).encode("ascii")
        found = [value for name, value in given if name == "ticket"]
        principal = self._tickets.take(found[0], scope["path"]) if len(found) == 1 else None
        if principal is None:
            raise Problem(401, "unauthenticated", "this ticket was used, is too old, or is for something else")
        return principal


def _network(address: str) -> str:
    """What counts as one address: of IPv6 the network, of which a client has all addresses."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


def _count(buckets: Buckets, name: str) -> None:
    wait = buckets.take(name)
    if wait > 0:
        seconds = math.ceil(wait) if math.isfinite(wait) else 3600
        raise Problem(
            429, "too-many-requests", "too many requests in a short time", headers={"retry-after": str(max(1, seconds))}
        )


class _Body:
    """One request, whose body is counted while it comes: a length that was announced is only a claim."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limits = limits
        self._left = limits.body_bytes
        self._until = anyio.current_time() + limits.body_s
        self._is_whole = False
        self._refused: Problem | None = None

    async def run(self, app: ASGIApp) -> None:
        headers = Headers(scope=self._scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            raise Problem(
                400,
                "bad-request",
                "this request has two lengths",
                expected="Content-Length or Transfer-Encoding",
                headers={"connection": "close"},
            )
        announced = headers.get("content-length", "0")
        if announced.isascii() and announced.isdecimal() and int(announced[:19]) > self._left:
            raise self._too_large()
        try:
            await app(self._scope, self._take, self._answer)
        except Problem:
            raise
        except Exception:
            if self._refused is None:
                raise
        if self._refused is not None:
            raise self._refused

    async def _take(self) -> Message:
        if self._refused is not None:
            raise self._refused
        if self._is_whole:
            return await self._receive()
        message: Any = None
        with anyio.CancelScope(deadline=self._until):
            message = await self._receive()
        if message is None:
            self._refused = Problem(408, "too-slow", "the body of this request did not arrive in time")
            raise self._refused
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._left < 0:
                self._refused = self._too_large()
                raise self._refused
        return dict(message)

    async def _answer(self, message: Message) -> None:
        if self._refused is None:  # what an app makes of a body that it could not read is not what went wrong
            await self._send(message)

    def _too_large(self) -> Problem:
        return Problem(
            413,
            "too-large",
            "the body of this request is too large",
            expected=f"at most {self._limits.body_bytes} bytes",
            headers={"connection": "close"},
        )
