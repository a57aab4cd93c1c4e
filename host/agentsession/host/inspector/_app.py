"""The page's files as routes: read once from the wheel, under a policy that lets nothing else run.

Not for: anything about sessions; what the page shows it asks the contract's routes for, as any other client does.
Rules carried: SEC-01 as far as showing goes. May import: starlette (the extra ``serve``).

The policy allows the page's own files and calls to its own origin, no inline script or style, no image, no frame: what
an agent said could not run even where it had become markup, and could not be sent elsewhere. Where the browser knows
trusted types, text cannot become markup at all.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping
from importlib import resources
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

__all__ = ["POLICY", "inspector_app", "inspector_routes"]

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The content security policy of the page."""
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES: Final[Mapping[str, str]] = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


def inspector_routes(path: str = "/ui", *, api: str = "") -> list[Route]:
    """The routes of the page, at ``path`` and below. They need no login: the files hold nothing of any session.

    ``api`` is where the contract's routes are on the same origin, such as ``/v1``; by default at its root. ``path`` and
    ``api`` are paths that begin with a slash, or empty. Raises ``ValueError`` for others.
    """
    for name, value in (("path", path), ("api", api)):
        if value and (not value.startswith("/") or value.startswith("//") or value.endswith("/")):
            raise ValueError(f"{name} is a path such as /ui, without a slash at its end, or empty; not {value!r}")
    files = _files(api)

    async def page_file(request: Request) -> Response:
        found = files.get(request.path_params.get("name") or "index.html")
        if found is None:
            return Response("no such file", 404, media_type="text/plain", headers=_HEADERS)
        body, media_type = found
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {**_HEADERS, "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=media_type, headers=headers)

    async def to_the_folder(request: Request) -> Response:
        return RedirectResponse(request.url.path + "/", 308, headers=_HEADERS)

    routes = [Route(f"{path}/", page_file, methods=["GET"]), Route(f"{path}/{{name}}", page_file, methods=["GET"])]
    # The page names its files beside it, so its own address must end in a slash.
    return [Route(path, to_the_folder, methods=["GET"]), *routes] if path else routes


def inspector_app(*, api: str = "") -> Starlette:
    """The page as an app of its own, to be mounted. ``api`` as in :func:`inspector_routes`."""
    return Starlette(routes=inspector_routes("", api=api))


def _files(api: str) -> dict[str, tuple[bytes, str]]:
    found: dict[str, tuple[bytes, str]] = {}
    for file in resources.files("agentsession.host.inspector").joinpath("page").iterdir():
        media_type = _TYPES.get(file.name[file.name.rfind(".") :])
        if media_type is None:
            continue
        body = file.read_bytes()
        if file.name == "index.html":
            body = body.replace(b"{{api}}", html.escape(api, quote=True).encode())
        found[file.name] = (body, media_type)
    return found
