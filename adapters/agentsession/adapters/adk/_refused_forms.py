"""Questions for input that a person refused: ADK must not hold the refusal to the question's schema.

Not for: answers that fill the form in (``_answer_checks.py`` has held them to it). Rules carried: HITL-02, HITL-03.
May import: google.adk events, google.genai types, ``_elicit``.

A run that goes on after an answer reads all questions and answers from its session, and validates each answer, also a
refusal, against the ``response_schema`` of its call; what does not fit ends the turn as failed. So a run is handed a
refused question with its schema under another name, which only this adapter reads. What is stored stays as it was.
"""

from __future__ import annotations

from typing import Any, Final

from google.adk.events.event import Event as AdkEvent
from google.genai import types

from agentsession.adapters.adk._elicit import INPUT, answer_of

__all__ = ["args_as_asked", "free_refused"]

_NAME: Final = "response_schema"
_OTHER_NAME: Final = "responseSchema"
"""The argument that holds the schema of a question for input: as ADK knows it, and as it does not."""


def free_refused(events: list[AdkEvent], answer: AdkEvent | None = None) -> None:
    """Give the schemas of refused questions the other name, in copies that take the places of the events.

    ``answer``: what comes after ``events``.
    """
    asked: dict[str, int] = {}
    for at, event in enumerate([*events, answer] if answer is not None else events):
        for part in (event.content.parts or ()) if event.content is not None else ():
            call, response = part.function_call, part.function_response
            if call is not None and call.name == INPUT and call.args and call.args.get(_NAME) is not None:
                asked[call.id or ""] = at
            elif response is not None and response.name == INPUT and (response.id or "") in asked:
                where = asked.pop(response.id or "")
                if where < len(events) and answer_of("clarification", response.response, sealed=False)[0] != "accept":
                    events[where] = _freed(events[where], response.id or "")


def args_as_asked(args: dict[str, Any] | None) -> dict[str, Any] | None:
    """The arguments of a question as its model wrote them, whether it was refused or not."""
    return _renamed(args, _OTHER_NAME, _NAME) if args and _OTHER_NAME in args else args


def _renamed(args: dict[str, Any], name: str, to: str) -> dict[str, Any]:
    return {to if key == name else key: value for key, value in args.items()}


def _freed(event: AdkEvent, call_id: str) -> AdkEvent:
    assert event.content is not None
    parts: list[types.Part] = []
    for part in event.content.parts or ():
        call = part.function_call
        if call is not None and call.name == INPUT and (call.id or "") == call_id and call.args:
            args = _renamed(call.args, _NAME, _OTHER_NAME)
            part = part.model_copy(update={"function_call": call.model_copy(update={"args": args})})
        parts.append(part)
    return event.model_copy(update={"content": event.content.model_copy(update={"parts": parts})})
