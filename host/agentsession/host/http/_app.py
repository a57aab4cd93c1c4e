"""The whole app: the routes behind the guards, mountable under any prefix.

Not for: running a server (uvicorn does). Rules carried: none. May import: starlette, the other modules.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from agentsession.host.http._guards import LOOPBACK_HOSTS, guarded
from agentsession.host.http._limits import Limits
from agentsession.host.http._principals import Tickets, Verifier
from agentsession.host.http._problems import Problem
from agentsession.host.http._routes import contract_routes
from agentsession.host.live import LiveSessions

__all__ = ["contract_app"]


def contract_app(
    sessions: LiveSessions,
    *,
    verify: Verifier | None = None,
    allowed_hosts: Iterable[str] = LOOPBACK_HOSTS,
    allowed_origins: Iterable[str] = (),
    limits: Limits | None = None,
) -> ASGIApp:
    """Serve ``sessions`` as docs/reference/http.md says; see :func:`guarded` for who may call.

    ``sessions`` are entered by whoever serves the app. Raises :class:`ConfigurationError`.
    """
    limits = limits or Limits()
    tickets = Tickets()
    return guarded(
        _Routed(Router(contract_routes(sessions, limits, tickets), redirect_slashes=False)),
        verify=verify,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        limits=limits,
        tickets=tickets,
    )


class _Routed:
    """A router whose 404 and 405 are raised, to become problems as all else does.

    Servers decode a path before they pass it on: an escaped separator would reach a route that whoever stands before
    this server, and decides by the path, does not see; and of what is no UTF-8 two would become one.
    """

    def __init__(self, router: Router) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _check_path(scope.get("raw_path") or b"")
        scope["app"] = self
        await self._router(scope, receive, send)


def _check_path(raw: bytes) -> None:
    """Raises :class:`Problem`."""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise Problem(400, "bad-request", "the path cannot be read", expected="percent-encoded UTF-8") from error
    if any(escape in raw.lower() for escape in (b"%2f", b"%5c", b"%00")):
        raise Problem(400, "bad-request", "the path cannot be read", expected="no escaped separator or zero byte")
