"""From the host's answers to what ADK's model and tools are given.

Not for: recording answers (the base class does). Rules carried: TOOL-05, TOOL-11, TOOL-13, HITL-02.
May import: ``agentsession.protocol``, ``_calls``, ``_elicit``, google.adk, google.genai types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from agentsession.adapters.adk._calls import Call
from agentsession.adapters.adk._content import content_to_part
from agentsession.adapters.adk._elicit import CREDENTIAL
from agentsession.adapters.adk._errors import SEALS
from agentsession.protocol import (
    Answer,
    ContentPart,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Text,
    ToolDecision,
    ToolDenial,
    ToolGrant,
    ToolResponse,
    ToolResult,
    plain_text,
)

__all__ = [
    "DECLINED",
    "NO_CREDENTIAL",
    "confirmation_given",
    "confirmation_of",
    "elicitation_response",
    "function_response",
    "granted_args",
    "recorded_answer",
    "recorded_result",
    "said_parts",
    "tool_result",
]

DECLINED = "the user did not confirm this call"
NO_CREDENTIAL = "the user gave no credential for this call"


def said_parts(content: Iterable[ContentPart]) -> tuple[list[types.Part], bool]:
    """What a person said, as ADK's parts; and whether there was something in it that nobody says.

    ADK takes a response in a user's message for the answer to a call, and may replace a real result by it or run a
    tool. So calls and responses become text, and so does what ADK has no part for.
    """
    parts: list[types.Part] = []
    refused = False
    for item in content:
        try:
            part = content_to_part(item)
        except ValueError:  # pydantic's: the part's own extra fields are not what genai takes
            part = None
        if part is None or part.function_call is not None or part.function_response is not None:
            refused = True
            part = types.Part(text=json.dumps(item.to_wire()))
        parts.append(part)
    return parts, refused


def tool_result(answer: Answer) -> dict[str, Any] | None:
    """What a tool call returns for ``answer``: an object, as ADK requires; ``None`` for a grant, which runs it."""
    if isinstance(answer, ToolGrant):
        return None
    if isinstance(answer, ToolDenial):
        reason = answer.reason or (answer.decision.reason if answer.decision is not None else None)
        return {"error": f"denied: {reason or 'the host does not allow this call'}"}
    if isinstance(answer, ToolResult):
        return _result(answer)
    return {"error": "the host gave no result"}


def _result(answer: ToolResult) -> dict[str, Any]:
    given = "data" in answer.model_fields_set
    if answer.is_error:
        if isinstance(answer.data, dict) and "error" in answer.data:
            return answer.data
        text = plain_text(answer.content)
        return {"error": answer.data if given and answer.data is not None else text or "the tool failed"}
    body: dict[str, Any]
    if isinstance(answer.data, dict):
        body = dict(answer.data)
    elif given:
        body = {"result": answer.data}
    else:
        body = {}
    if answer.content and not given:
        if all(isinstance(part, Text) for part in answer.content):
            body["result"] = plain_text(answer.content)
        else:
            body["content"] = [part.to_wire() for part in answer.content]
    return body or {"result": None}


def recorded_result(event: ToolResponse) -> dict[str, Any]:
    """What the model is told of a call that the record has closed and ADK's session has not."""
    if event.status in SEALS:
        return dict(SEALS[event.status])
    told = event.data if isinstance(event.data, dict) else {}
    if event.status == "denied" and told.get("denied") is True:
        return {"error": f"denied: {told.get('error')}"}  # as one whose call was waiting for it reads it
    given: dict[str, Any] = {"data": event.data} if "data" in event.model_fields_set else {}
    return _result(ToolResult(request_id=event.request_id, content=event.content, is_error=event.is_error, **given))


def recorded_answer(call: Call, event: ElicitationResponse) -> dict[str, Any]:
    """What the model is told of a question of the agent's that the record has closed and ADK's session has not."""
    given: dict[str, Any] = {"content": event.content} if "content" in event.model_fields_set else {}
    answer = ElicitationAnswer(request_id=event.request_id, action=event.action, **given)
    return dict(elicitation_response(call, answer).response or {})


def function_response(call: Call, answer: Answer) -> types.FunctionResponse:
    """What answers a call that ADK's run has ended on: its own id, the shape that its kind wants."""
    if isinstance(answer, ElicitationAnswer):
        return elicitation_response(call, answer)
    return types.FunctionResponse(id=call.adk_id, name=call.name, response=tool_result(answer) or {"result": None})


def elicitation_response(call: Call, answer: ElicitationAnswer) -> types.FunctionResponse:
    """The answer to a question that ADK asked as a function call."""
    accepted = answer.action == "accept"
    response: dict[str, Any]
    if call.kind == "tool_confirmation":
        response = {"confirmed": accepted}
        if accepted and isinstance(answer.content, dict) and "payload" in answer.content:
            response["payload"] = answer.content["payload"]
    elif not accepted:
        response = {"refused": answer.action} if call.name == CREDENTIAL else {"error": answer.action}
    elif isinstance(answer.content, dict):
        response = answer.content
    else:
        response = {"result": answer.content}
    return types.FunctionResponse(id=call.adk_id, name=call.name, response=response)


def confirmation_of(record: Sequence[Event], question_id: str, answer: Answer) -> ToolConfirmation:
    """What a tool sees of a person's yes: the hint and payload that it asked with, and the payload of the answer."""
    asked = next(
        (event for event in record if isinstance(event, ElicitationRequest) and event.request_id == question_id), None
    )
    content = answer.content if isinstance(answer, ElicitationAnswer) else None
    given = content.get("payload") if isinstance(content, dict) else None
    return ToolConfirmation(
        hint=(asked.message if asked is not None else None) or "",
        confirmed=True,
        payload=given if given is not None else asked.context if asked is not None else None,
    )


def confirmation_given(record: Sequence[Event], request_id: str) -> ToolConfirmation | None:
    """The yes that was given to a call, as its tool sees it; ``None``: nobody said yes, or nobody was asked."""
    asked = {
        event.request_id
        for event in record
        if isinstance(event, ElicitationRequest)
        and event.kind == "tool_confirmation"
        and event.tool_request_id == request_id
    }
    for event in reversed(record):
        if isinstance(event, ElicitationResponse) and event.request_id in asked:
            if event.action != "accept":
                return None
            answer = ElicitationAnswer(request_id=event.request_id, action="accept", content=event.content)
            return confirmation_of(record, event.request_id, answer)
    return None


def granted_args(record: Sequence[Event], request_id: str) -> dict[str, Any] | None:
    """The arguments that a call was granted with, if they were edited."""
    for event in reversed(record):
        if isinstance(event, ToolDecision) and event.request_id == request_id:
            return event.args
    return None
