"""What is told of a request that failed: ``application/problem+json`` (RFC 9457), and the status of each error.

Not for: errors of an agent's turn, which are events. Rules carried: SEC-01 as far as answers go.
May import: starlette, ``agentsession.protocol``, ``_masking``.
"""

from __future__ import annotations

import http
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from agentsession.host._masking import masked
from agentsession.protocol import (
    AbortTimeout,
    AgentSessionError,
    ConfigurationError,
    ConnectionLost,
    CursorGone,
    InvalidInput,
    NothingToContinue,
    ProtocolViolation,
    RunEnded,
    SchemaError,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StreamActive,
    Unimplemented,
    UnsupportedVersion,
    dumps,
    repair_text,
)

__all__ = ["MEDIA_TYPE", "Problem", "problem_body", "problem_of", "problem_response", "unexpected"]

_logger = logging.getLogger("agentsession.host.http")
MEDIA_TYPE: Final = "application/problem+json"
_STATUS: Final[tuple[tuple[type[AgentSessionError], int], ...]] = (
    (InvalidInput, 422),
    (ConfigurationError, 422),
    (StreamActive, 409),
    (NothingToContinue, 409),
    (SessionExists, 409),
    (RunEnded, 409),
    (SessionClosed, 410),
    (CursorGone, 410),
    (SessionBusy, 423),
    (SessionNotFound, 404),
    (AbortTimeout, 504),
    (ConnectionLost, 502),
    (UnsupportedVersion, 502),
    (Unimplemented, 501),
)
_BY_ID: Final = {
    "bad-json": 400,
    "bad-request": 400,
    "user": 403,
    "agent-not-found": 404,
    "key-reused": 422,
    "too-many-sessions": 429,
    "stopping": 503,
}
_MOST_TEXT: Final = 1000
_FIND_ROUTES: Final = "the routes are in openapi.json, right below where the contract is mounted"
_CODES: Final = {404: "not-found", 405: "method"}


class Problem(Exception):
    """A request that is refused for a reason of HTTP's; ``status`` and ``code`` are what the client is told."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **parts: str | int | None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        self.parts = {name: value for name, value in parts.items() if value is not None}


def _shown(text: str) -> str:
    text = masked(repair_text(text))
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."


def _status_of(error: AgentSessionError) -> int:
    if error.id in _BY_ID:
        return _BY_ID[error.id]
    if isinstance(error, ProtocolViolation):
        return 409 if error.blame == "host" else 502
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem_of(error: BaseException) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers for an error. What the contract does not know is told by an opaque id, and logged."""
    if isinstance(error, Problem):
        return error.status, problem_body(error.status, error.code, str(error), **error.parts), error.headers
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "bad-request")
        headers = dict(error.headers or {})
        fix = {"fix": _FIND_ROUTES} if error.status_code == 404 else {}
        return error.status_code, problem_body(error.status_code, code, str(error.detail), **fix), headers
    if isinstance(error, AgentSessionError) and (status := _status_of(error)) != 500:
        parts: dict[str, Any] = {"error": type(error).__name__, **error.parts()}
        if isinstance(error, ProtocolViolation):
            parts |= {"rule": error.rule, "blame": error.blame}
        if isinstance(error, SchemaError):
            parts |= {"pointer": error.pointer, **({} if error.line is None else {"line": error.line})}
        headers = {"retry-after": "5"} if status in (423, 429, 503) else {}
        return status, problem_body(status, error.id, error.what, **parts), headers
    return unexpected(error)


def unexpected(error: BaseException) -> tuple[int, dict[str, Any], dict[str, str]]:
    """A defect: logged under an id that tells the client nothing else."""
    incident = secrets.token_hex(8)
    _logger.error("incident %s: a request failed", incident, exc_info=error)
    body = problem_body(500, "internal", "the server failed at this request", incident=incident)
    return 500, body, {}


def problem_body(status: int, code: str, detail: str, **parts: Any) -> dict[str, Any]:
    """The JSON object of a problem; texts are masked and cut."""
    shown = {name: _shown(value) if isinstance(value, str) else value for name, value in parts.items()}
    return {
        "type": f"urn:agentsession:error:{code}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": _shown(detail),
        "code": code,
        **shown,
    }


def problem_response(error: BaseException) -> Response:
    """The whole answer for an error."""
    status, body, headers = problem_of(error)
    return Response(dumps(body), status, headers, media_type=MEDIA_TYPE)
