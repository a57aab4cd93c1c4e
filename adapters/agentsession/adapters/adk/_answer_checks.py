"""Whether what a person's or a host's yes carries can be given to ADK, beyond the schema of the question.

Not for: whether an answer applies at all (the state machine). Rules carried: HITL-08, SEC-01.
May import: ``agentsession.protocol``, ``_credential_answers``, ``_host_model``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentsession.adapters.adk._credential_answers import credential_problem
from agentsession.adapters.adk._host_model import MODEL_CALL, model_answer
from agentsession.protocol import ElicitationRequest, Event, RequestState, SchemaError

__all__ = ["content_problem"]


def content_problem(record: Sequence[Event], request: RequestState, content: Any) -> str | None:
    """Why ``content`` cannot be the acceptance of ``request``, or ``None``; of a credential not a word is repeated."""
    if request.name == MODEL_CALL:
        try:
            model_answer(content)
        except SchemaError as error:
            return f"{error.what} at {error.pointer}: got {error.got}, expected {error.expected}"
    if request.name == "auth_required":
        questions = (event for event in reversed(record) if isinstance(event, ElicitationRequest))
        context = next((event.context for event in questions if event.request_id == request.id), None)
        return credential_problem(context if isinstance(context, dict) else {}, content)
    return None
