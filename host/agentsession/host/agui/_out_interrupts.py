"""What waits for a person as an AG-UI interrupt, with the schema of its answer.

Not for: reading an answer (the ``_in`` modules). Pure. Rules carried: HITL-01, HITL-08, SEC-01 as far as asking goes.
May import: ``protocol``, ``_out_known``, ``_out_wire``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agentsession.host.agui._out_known import Asked, Known
from agentsession.host.agui._out_wire import KEY, PREFIX, Wire
from agentsession.protocol import ElicitationRequest, ToolDescriptor, ToolRequest

__all__ = ["interrupt_of", "is_client_call", "known_interrupt"]

_BOOLEAN: dict[str, Any] = {"type": "boolean"}
_TEXT: dict[str, Any] = {"type": "string"}


def is_client_call(request: Asked, client_tools: Collection[str] | None) -> bool:
    """Whether ``request`` waits for a result that the client's own code gives.

    ``client_tools``: the names of the tools that the client runs. ``None``: the client is the host and runs every tool
    that needs a result. A tool of another's that waits for a result waits for somebody to allow it.
    """
    if not isinstance(request, ToolRequest) or request.needs == "grant":
        return False
    return client_tools is None or request.name in client_tools


def interrupt_of(request: Asked, tool: ToolDescriptor | None = None, subagent_run_id: str | None = None) -> Wire:
    """The ``Interrupt`` of a request that waits. ``tool``: of a call, for the schema of its edited arguments."""
    found = _approval(request, tool) if isinstance(request, ToolRequest) else _question(request)
    if subagent_run_id is not None:
        found["subagentRunId"] = subagent_run_id
    return found


def known_interrupt(request: Asked, known: Known) -> Wire:
    """The same, with what is known of the session."""
    tool = known.tool(request.name) if isinstance(request, ToolRequest) else None
    return interrupt_of(request, tool, known.threads.run_id(request.thread_id))


def _approval(request: ToolRequest, tool: ToolDescriptor | None) -> Wire:
    edited = tool.parameters_schema if tool is not None and tool.parameters_schema is not None else {"type": "object"}
    properties = {"approved": _BOOLEAN, "editedArgs": edited, "reason": _TEXT}
    return {
        "id": request.request_id,
        "reason": "tool_call",
        "message": f"Allow {request.name or 'the tool'} to run?",
        "toolCallId": request.request_id,
        "responseSchema": _form(properties, "approved"),
        "metadata": {KEY: {"kind": "grant"}},
    }


def _question(request: ElicitationRequest) -> Wire:
    about: dict[str, Any] = {"kind": request.kind}
    if request.title is not None:
        about["title"] = request.title
    if "context" in request.model_fields_set:
        about["context"] = request.context
    if request.url is not None:
        about["url"] = request.url
    metadata: dict[str, Any] = {KEY: about}
    if request.kind == "auth_required" and request.url is not None:
        metadata["url"] = request.url
    found: Wire = {"id": request.request_id, **_asks(request), "message": request.message, "metadata": metadata}
    if request.tool_request_id is not None:
        found["toolCallId"] = request.tool_request_id
    if request.expires_at is not None:
        found["expiresAt"] = request.expires_at
    return found


def _asks(request: ElicitationRequest) -> Wire:
    """The reason and the schema."""
    asked = request.requested_schema
    match request.kind:
        case "tool_confirmation":
            payload = {} if asked is None else {"payload": asked}
            return {"reason": "tool_call", "responseSchema": _form({"approved": _BOOLEAN, **payload}, "approved")}
        case "user_approval":
            return {"reason": "confirmation", "responseSchema": _form({"approved": _BOOLEAN}, "approved")}
        case "auth_required":
            either = [{"required": ["credential"]}, {"required": ["auth_response_uri"]}]
            form = _form({"credential": {"type": "object"}, "auth_response_uri": _TEXT})
            return {"reason": f"{PREFIX}auth_required", "responseSchema": {**form, "anyOf": either}}
        case "clarification":
            reason = "input_required"
        case _:
            reason = PREFIX + request.kind
    return {"reason": reason} if asked is None else {"reason": reason, "responseSchema": asked}


def _form(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    form: dict[str, Any] = {"type": "object", "properties": properties}
    return {**form, "required": list(required)} if required else form
