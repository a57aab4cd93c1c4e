"""Questions for input that a person refused: ADK must not hold the refusal to the question's schema.

Not for: answers that fill the form in (``_answer_checks.py`` has held them to it). Rules carried: HITL-02.
May import: google.adk events, google.genai types, ``_elicit``.

A run that goes on after an answer reads all questions and answers from its session, and validates each answer, also a
refusal, against the ``response_schema`` of its call; what does not fit ends the turn as failed. So a run is handed a
refused question with its schema under another name, which only this adapter reads. What is stored stays as it was.
"""

from __future__ import annotations

from typing import Final

from google.adk.events.event import Event as AdkEvent
from google.genai import types

from agentsession.adapters.adk._elicit import INPUT, answer_of

__all__ = ["SCHEMA_NAMES", "free_refused"]

SCHEMA_NAMES: Final = ("response_schema", "responseSchema")
"""The argument that holds the schema of a question for input: as ADK knows it, and as it does not."""


def free_refused(events: list[AdkEvent], answer: AdkEvent | None = None) -> None:
    """Give the schemas of refused questions the other name, in copies that take the places of the events.

    ``answer``: what comes after ``events``.
    """
    asked: dict[str, int] = {}
    for at, event in enumerate([*events, answer] if answer is not None else events):
        for part in (event.content.parts or ()) if event.content is not None else ():
            call, response = part.function_call, part.function_response
            if call is not None and call.name == INPUT and call.args and call.args.get(SCHEMA_NAMES[0]) is not None:
                asked[call.id or ""] = at
            elif response is not None and response.name == INPUT and (response.id or "") in asked:
                where = asked.pop(response.id or "")
                if where < len(events) and answer_of("clarification", response.response, sealed=False)[0] != "accept":
                    events[where] = _freed(events[where], response.id or "")


def _freed(event: AdkEvent, call_id: str) -> AdkEvent:
    assert event.content is not None
    parts: list[types.Part] = []
    for part in event.content.parts or ():
        call = part.function_call
        if call is not None and call.name == INPUT and (call.id or "") == call_id and call.args:
            args = {SCHEMA_NAMES[1] if key == SCHEMA_NAMES[0] else key: value for key, value in call.args.items()}
            part = part.model_copy(update={"function_call": call.model_copy(update={"args": args})})
        parts.append(part)
    return event.model_copy(update={"content": event.content.model_copy(update={"parts": parts})})
