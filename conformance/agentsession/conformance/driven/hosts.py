"""How the host of a session that is driven at random answers: right, wrong, and what no request fits.

Not for: choosing (``machine.py``) or judging. Rules carried: none. May import: ``agentsession.protocol``, ``hosting``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentsession.conformance.hosting import content_for, result_data
from agentsession.protocol import (
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    PendingRequest,
    ToolProgress,
    accept,
    cancel,
    decline,
    deny,
    grant,
    result,
)

__all__ = ["EDITED", "STRANGE", "answer_to", "hows", "strange_answer"]

EDITED: Final = "edited"
"""The argument that an edit adds."""

STRANGE: Final = ("unknown", "wrong kind", "wrong name", "wrong content", "unknown option", "progress")
"""Answers that no request takes."""


def hows(request: PendingRequest) -> tuple[str, ...]:
    """The ways to answer a request."""
    if isinstance(request, ElicitationRequest):
        return ("accept", "decline", "cancel")
    return ("grant", "deny", "edit", "result") if request.needs == "grant" else ("result", "error", "deny")


def answer_to(request: PendingRequest, how: str) -> Answer:
    """The answer of that way."""
    name = request.request_id
    if isinstance(request, ElicitationRequest):
        ways = {"decline": decline, "cancel": cancel}
        return ways[how](name) if how in ways else accept(name, content_for(request.kind, request.requested_schema))
    args = request.args or {}
    match how:
        case "grant":
            return grant(name)
        case "edit":
            return grant(name, {**args, EDITED: True})
        case "deny":
            return deny(name, "not this one")
        case _:
            return result(name, result_data(request.name, args), is_error=how == "error")


def strange_answer(request: PendingRequest | None, how: str) -> tuple[Answer, str, str]:
    """An answer that must not be taken, its receipt's status, and the rule that says so."""
    if request is None or how == "unknown":
        return result("r-of-nobody", 1), "not_found", "TOOL-10"
    name = request.request_id
    if isinstance(request, ElicitationRequest):
        if how == "unknown option":
            return ElicitationAnswer(request_id=name, action="yes_to_all"), "invalid", "HITL-02"
        if how == "wrong content" and (request.kind == "tool_confirmation" or request.requested_schema is not None):
            wrong: Mapping[str, Any] = {"n": "two", "confirmed": False}
            return accept(name, wrong), "invalid", "HITL-08"
        return grant(name), "invalid", "TOOL-14"
    if how == "wrong name":
        return deny(name).model_copy(update={"name": f"not_{request.name}"}), "invalid", "TOOL-14"
    if how == "progress" and request.needs == "grant":
        return ToolProgress(request_id=name, progress=0.5), "invalid", "TOOL-14"
    return accept(name), "invalid", "TOOL-14"
