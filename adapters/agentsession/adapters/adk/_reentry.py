"""Letting ADK run calls whose wait is gone with the run that held it: after a restart, or when a run was let go.

Not for: deciding that a call may run (``_handover.py`` and the gate do). Rules carried: PER-01, HITL-03, HITL-04.
May import: ``_elicit``, google.adk, google.genai types.

A call that waits inline is in ADK's session as a call without a response. ADK runs such a call again only where it
finds that a confirmation was asked and given. So its session is told the question that ADK would have written, marked
as the adapter's own, and the placeholder of the call's result. The answer then starts a run in which ADK enters the
call; the gate is asked as ever, and knows from the record what was granted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from agentsession.adapters.adk._elicit import CONFIRMATION

__all__ = ["GATE_HINT", "PLACEHOLDER", "confirmed", "is_gate", "question_events"]

GATE_HINT: Final = "agentsession: the host has granted this call"
"""The hint of a confirmation that only lets ADK enter a call again; nobody was asked by it."""

PLACEHOLDER: Final = {"status": "waiting for the host"}
"""The result of such a call until its tool has run; what the model would read if it never did is a seal's."""


def is_gate(hint: str) -> bool:
    """Whether a confirmation is the adapter's own and not a question to a person."""
    return hint == GATE_HINT


def question_events(
    asked_in: AdkEvent, calls: Sequence[types.FunctionCall], new_id: Callable[[], str]
) -> tuple[list[AdkEvent], list[str]]:
    """What ADK would have stored had it asked for the confirmation of ``calls``, which the event ``asked_in`` holds;
    and the ids of the questions, for :func:`confirmed`.
    """
    hint = ToolConfirmation(hint=GATE_HINT)
    ids = [new_id() for _ in calls]
    questions = [
        types.FunctionCall(
            id=question_id,
            name=CONFIRMATION,
            args={
                "originalFunctionCall": made.model_dump(mode="json", exclude_none=True, by_alias=True),
                "toolConfirmation": hint.model_dump(mode="json", exclude_none=True, by_alias=True),
            },
        )
        for question_id, made in zip(ids, calls, strict=True)
    ]
    question = _beside(asked_in, "model", [types.Part(function_call=made) for made in questions])
    question.long_running_tool_ids = set(ids)
    responses = [types.FunctionResponse(id=made.id, name=made.name, response=dict(PLACEHOLDER)) for made in calls]
    placeholder = _beside(asked_in, "user", [types.Part(function_response=made) for made in responses])
    placeholder.actions = EventActions(
        requested_tool_confirmations={made.id: hint for made in calls if made.id},
        skip_summarization=True,
    )
    return [question, placeholder], ids


def confirmed(ids: Iterable[str]) -> list[types.Part]:
    """The parts of the message that answers these questions with yes."""
    return [
        types.Part(function_response=types.FunctionResponse(id=name, name=CONFIRMATION, response={"confirmed": True}))
        for name in ids
    ]


def _beside(event: AdkEvent, role: str, parts: list[types.Part]) -> AdkEvent:
    """An event of the same agent, in the same place of the same invocation."""
    return AdkEvent(
        author=event.author,
        invocation_id=event.invocation_id,
        branch=event.branch,
        isolation_scope=event.isolation_scope,
        content=types.Content(role=role, parts=parts),
    )
