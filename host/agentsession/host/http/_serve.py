"""The app that ``agentsession serve`` runs: the contract below ``/api``, and what else is wanted beside it.

Not for: listening (the command does). Rules carried: none. May import: starlette, the other modules; ``agui`` and
``inspector`` only when they are wanted.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from agentsession.host.http._app import contract_app
from agentsession.host.http._guards import API_POLICY, LOOPBACK_HOSTS, guarded
from agentsession.host.http._limits import Limits
from agentsession.host.http._principals import Verifier, check_exposure, is_loopback
from agentsession.host.http._problems import Problem
from agentsession.host.live import LiveSessions

__all__ = ["serve_app"]


def serve_app(
    sessions: LiveSessions,
    *,
    verify: Verifier | None = None,
    bound_to: str = "127.0.0.1",
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    agui: bool = False,
    ui: bool = False,
    on_disconnect: Literal["cancel", "carry_on"] = "cancel",
    limits: Limits | None = None,
) -> ASGIApp:
    """One app: the contract at ``/api``, AG-UI at ``/agui/AGENT`` and the inspector at ``/``, where they are wanted.

    ``bound_to`` is the address that the server is bound to: outside this machine a verifier is needed. The server
    answers under the names of this machine, that address, and ``allowed_hosts``. The page's own files are for anybody.

    Raises :class:`ConfigurationError`, and :class:`ImportError` for a part whose extra is missing.
    """
    check_exposure(bound_to, verify)
    hosts = [*LOOPBACK_HOSTS, *_names(bound_to), *allowed_hosts]
    given: dict[str, Any] = {
        "verify": verify,
        "allowed_hosts": hosts,
        "allowed_origins": list(allowed_origins),
        "limits": limits,
    }
    routes: list[BaseRoute] = [Mount("/api", contract_app(sessions, **given))]
    if agui:
        part: Any = importlib.import_module("agentsession.host.agui")
        for name in sessions.agents:
            app = part.agui_app(sessions, name, on_disconnect=on_disconnect, **given)
            # A mount alone would not take the address without a slash at its end, which is the one that is shown.
            routes += [Route(f"/agui/{name}", _At(f"/agui/{name}", app)), Mount(f"/agui/{name}", app)]
    policy = API_POLICY
    found = ["/api/agents", "/api/openapi.json", *(f"/agui/{name}" for name in sessions.agents if agui)]
    page: list[BaseRoute] = []
    if ui:
        part = importlib.import_module("agentsession.host.inspector")
        page = list(part.inspector_routes("", api="/api"))
        policy = part.POLICY
    routes.append(Mount("/", guarded(_Raising(Router(page), found), for_anybody=True, policy=policy, **given)))
    return Router(routes, redirect_slashes=False)


def _names(bound_to: str) -> list[str]:
    """An address is a name of its server; one that stands for all addresses is none."""
    if not bound_to or is_loopback(bound_to) or bound_to in ("0.0.0.0", "::"):
        return []
    return [f"[{bound_to}]" if ":" in bound_to else bound_to]


class _Raising:
    """A router whose 404 and 405 are raised, to become problems; the first says what is served."""

    def __init__(self, router: Router, found: Sequence[str]) -> None:
        self._router = router
        self._found = found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            if error.status_code != 404:
                raise
            fix = f"take one of {', '.join(self._found)}; a page is at / with ui (serve --ui)"
            raise Problem(404, "not-found", "nothing is served at this path", fix=fix) from error


class _At:
    """An app at one path alone, which is told where it is as a mounted one is."""

    def __init__(self, path: str, app: ASGIApp) -> None:
        self._path = path
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["root_path"] = scope.get("root_path", "") + self._path
        await self._app(scope, receive, send)
