"""Sessions over HTTP: the contract's calls as routes, events as server-sent events, and the guards before both.

Not for: keeping sessions (``agentsession.host.live``), running a server (uvicorn). Rules carried: none of its own.
May import: starlette, ``agentsession.protocol``, ``agentsession.host``.

``contract_app(sessions)`` is the whole app. ``guarded(app)`` puts the same guards before another one.
"""

from __future__ import annotations

try:
    import starlette as starlette
except ImportError as error:
    raise ImportError(
        'serving sessions over HTTP needs starlette: pip install "agent-session-protocol[serve]"'
    ) from error

from agentsession.host.http._app import contract_app
from agentsession.host.http._guards import API_POLICY, LOOPBACK_HOSTS, guarded, principal_of
from agentsession.host.http._limits import Limits
from agentsession.host.http._openapi import openapi_document
from agentsession.host.http._principals import (
    LOCAL,
    BearerTokens,
    Principal,
    Tickets,
    Verifier,
    check_exposure,
    is_loopback,
)
from agentsession.host.http._problems import Problem, problem_response
from agentsession.host.http._serve import serve_app
from agentsession.host.http._sse import EventSourceResponse, frame, named_frame

__all__ = [
    "API_POLICY",
    "LOCAL",
    "LOOPBACK_HOSTS",
    "BearerTokens",
    "EventSourceResponse",
    "Limits",
    "Principal",
    "Problem",
    "Tickets",
    "Verifier",
    "check_exposure",
    "contract_app",
    "frame",
    "guarded",
    "is_loopback",
    "named_frame",
    "openapi_document",
    "principal_of",
    "problem_response",
    "serve_app",
]
