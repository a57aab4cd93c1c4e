"""Closing calls that ADK's session holds without a response, so that the next model call is valid.

Not for: the record (the base class settles requests there). Rules carried: TOOL-01 on ADK's side, CTL-05.
May import: google.adk, google.genai types.

A run that ADK aborted is sealed by ADK. A process that was killed, and a run that did not end in time, leave calls
open: providers refuse a history like that, so the session would be unusable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from google.adk.events._rewind_events import _apply_rewinds  # private: what ADK itself reads of a session
from google.adk.events.event import Event as AdkEvent
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session
from google.genai import types

from agentsession.adapters.adk._elicit import is_placeholder
from agentsession.adapters.adk._errors import SEALED_CODE, SEALS

__all__ = ["awaited_calls", "dangling_calls", "seal"]


def dangling_calls(session: Session) -> list[tuple[AdkEvent, list[types.FunctionCall]]]:
    """The calls without a response, with the event that made each, oldest first. Rewound ones are none any more."""
    found: list[tuple[AdkEvent, list[types.FunctionCall]]] = []
    for event in _apply_rewinds(session.events):
        # A response answers what came before it: nodes of a graph ask under the same id again and again.
        answered = {
            response.id for response in event.get_function_responses() if not is_placeholder(event, response.id)
        }
        if answered:
            found = [(made, [call for call in calls if call.id not in answered]) for made, calls in found]
        if event.author != "user" and not event.partial:
            found.append((event, [call for call in event.get_function_calls() if call.id]))
    return [(event, calls) for event, calls in found if calls]


def awaited_calls(session: Session) -> list[tuple[AdkEvent, list[types.FunctionCall]]]:
    """Long-running calls that have had their first result and that nobody outside has answered, oldest first.

    Only an adopted session has such calls waiting: this adapter closes the request with the first result. A call that
    was closed here has its last result.
    """
    events = _apply_rewinds(session.events)
    by_agent = {
        response.id
        for event in events
        if event.author != "user" and event.error_code != SEALED_CODE
        for response in event.get_function_responses()
    }
    by_user = {response.id for event in events if event.author == "user" for response in event.get_function_responses()}
    found = []
    for event in events:
        late = event.long_running_tool_ids or ()
        left = [
            call
            for call in event.get_function_calls()
            if call.id in late and call.id in by_agent and call.id not in by_user and event.author != "user"
        ]
        if left:
            found.append((event, left))
    return found


async def seal(
    service: BaseSessionService,
    session: Session,
    responses: Mapping[str, dict[str, Any]],
    *,
    keep: Collection[str] = (),
) -> int:
    """Append a response to every open call but those in ``keep``; how many were closed.

    What the record says of a call is in ``responses``, by ADK's call id; of one that is not there nothing is known.
    """
    closed = 0
    for event, calls in dangling_calls(session):
        left = [call for call in calls if call.id not in keep]
        if not left:
            continue
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response=dict(responses.get(call.id or "", SEALS["unknown"]))
                )
            )
            for call in left
        ]
        await service.append_event(
            session=session,
            event=AdkEvent(
                author=event.author,
                invocation_id=event.invocation_id,
                branch=event.branch,
                isolation_scope=event.isolation_scope,
                error_code=SEALED_CODE,
                error_message="the run ended before these calls were answered",
                content=types.Content(role="user", parts=parts),
            ),
        )
        closed += len(left)
    return closed
