"""How the suite's host answers unless a scenario does otherwise: by rules that anyone can apply beforehand.

So a record that was made of a script beforehand holds the answers that the suite will give, and a replay of it meets
what it knows. Not for: judging. Rules carried: none. May import: ``agentsession.protocol``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentsession.protocol import (
    Answer,
    ElicitationRequest,
    PendingRequest,
    accept,
    cancel,
    decline,
    deny,
    grant,
    result,
)

__all__ = [
    "CONFIRMATIONS",
    "CREDENTIAL",
    "PLAIN_ANSWER",
    "content_for",
    "edited_args",
    "result_data",
    "standard_answer",
]

PLAIN_ANSWER: Final = {"answer": "blue"}
"""What a question without a schema is answered with."""

CREDENTIAL: Final = {"credential": {"type": "api_key", "value": "sk-of-the-suite-51d0"}}
"""What a question for a credential is answered with."""

CONFIRMATIONS: Final = ("tool_confirmation", "user_approval")
"""Kinds of question that a bare yes answers."""

_EXAMPLES: Final[Mapping[str, Any]] = {"integer": 7, "number": 1.5, "string": "seven", "boolean": True}


def standard_answer(request: PendingRequest) -> Answer:
    """A result, a grant or an acceptance.

    A tool of the host's whose name begins with ``bad`` fails. Of the agent's tools, one whose name begins with
    ``denied`` is denied, one with ``answered`` is answered by a result of the host's, and a call that says ``edit`` in
    its arguments is granted with what that holds instead of them. A question that ends in ``(decline)`` or ``(cancel)``
    is answered so.
    """
    if isinstance(request, ElicitationRequest):
        for answer in (decline, cancel):
            if request.message.endswith(f"({answer.__name__})"):
                return answer(request.request_id)
        return accept(request.request_id, content_for(request.kind, request.requested_schema))
    args = request.args or {}
    if request.needs == "grant" and request.name.startswith("denied"):
        return deny(request.request_id, "not today")
    if request.needs == "grant" and not request.name.startswith("answered"):
        return grant(request.request_id, edited_args(args))
    return result(request.request_id, result_data(request.name, args), is_error=request.name.startswith("bad"))


def edited_args(args: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a call is granted with instead of its own arguments; ``None``: with these."""
    edit = args.get("edit")
    return edit if isinstance(edit, dict) else None


def result_data(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """What a tool of the host's returns."""
    return {"of": name, "args": dict(args)}


def content_for(kind: str, schema: Mapping[str, Any] | None) -> Any:
    """What an acceptance carries: for each property of the schema an example of its type."""
    if kind in CONFIRMATIONS:
        return None
    if kind == "auth_required":
        return CREDENTIAL
    if schema is None:
        return PLAIN_ANSWER
    return {name: _EXAMPLES.get(str(part.get("type")), "x") for name, part in schema.get("properties", {}).items()}
