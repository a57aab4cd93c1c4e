"""From an answer to the events that record it, with secrets taken out.

Not for: whether the answer counts (the state machine's ``check_answer``). Rules carried: TOOL-13, TOOL-15, HITL-04,
SEC-01. May import: ``agentsession.protocol``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from agentsession.protocol import (
    REDACTED,
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    RequestState,
    ToolDecision,
    ToolDenial,
    ToolGrant,
    ToolProgress,
    ToolResponse,
    ToolResult,
    ToolUpdate,
    args_digest,
    marks_secret,
    redact_marked,
)

__all__ = ["answer_events", "has_secret", "recorded_answer", "redact"]


def answer_events(request: RequestState, answer: Answer) -> Iterator[Event]:
    """The events that record ``answer``, which was found to apply to ``request``."""
    base: dict[str, Any] = {
        "request_id": request.id,
        "thread_id": request.thread_id,
        "agent_id": request.agent_id,
        "source": "host",
    }
    match answer:
        case ToolProgress():
            given = answer.model_fields_set
            yield ToolUpdate(
                **base,
                content=answer.content,
                progress=answer.progress,
                total=answer.total,
                started=answer.started or None,
                **({"data": answer.data} if "data" in given else {}),
            )
        case ToolResult():
            # The host that ran its tool has allowed it: worth a decision is by whom, or with what other arguments.
            edited = _edited(request, answer.args)
            if answer.decision is not None or edited is not None:
                yield _decision(base, request, answer, "granted", edited)
            yield ToolResponse(
                **base,
                name=request.name,
                content=answer.content,
                is_error=answer.is_error or bool(answer.unknown),
                status="unknown" if answer.unknown else "failed" if answer.is_error else "completed",
                display=answer.display,
                spent=answer.spent,
                **({"data": answer.data} if "data" in answer.model_fields_set else {}),
            )
        case ToolGrant():
            yield _decision(base, request, answer, "granted", _edited(request, answer.args))
        case ToolDenial():
            yield _decision(base, request, answer, "denied", None, answer.reason)
            reason = answer.reason or (answer.decision.reason if answer.decision else None) or "denied by the host"
            yield ToolResponse(
                **base, name=request.name, status="denied", is_error=True, data={"error": reason, "denied": True}
            )
        case ElicitationAnswer():
            content: dict[str, Any] = {}
            if answer.action == "accept" and "content" in answer.model_fields_set:
                content = {"content": redact(request, answer.content)}
            yield ElicitationResponse(**base, action=answer.action, **content)
        case _:
            assert_never(answer)


def _edited(request: RequestState, args: dict[str, Any] | None) -> dict[str, Any] | None:
    """The arguments of an answer if they were edited: compared by digest, for Python takes 1 and True for equal."""
    if args is None or args_digest(args) == args_digest(request.args or {}):
        return None
    return args


def _decision(
    base: dict[str, Any],
    request: RequestState,
    answer: ToolResult | ToolGrant | ToolDenial,
    decision: str,
    args: dict[str, Any] | None,
    reason: str | None = None,
) -> ToolDecision:
    by = answer.decision.by if answer.decision else "host"
    why = answer.decision.reason if answer.decision and answer.decision.reason else reason
    digest = args_digest((args if args is not None else request.args) or {})
    return ToolDecision(**base, decision=decision, args=args, args_digest=digest, by=by, reason=why)


def has_secret(request: RequestState) -> bool:
    """Whether an answer to this request may hold a secret: a credential, or a field that its schema marks as one."""
    return request.kind == "elicitation" and (request.name == "auth_required" or marks_secret(request.requested_schema))


def redact(request: RequestState | ElicitationRequest, content: Any) -> Any:
    """``content`` as it may be recorded: of a credential only its type stays, secret fields of a form are replaced."""
    kind = request.name if isinstance(request, RequestState) else request.kind
    if kind == "auth_required":
        credential = content.get("credential") if isinstance(content, dict) else None
        if isinstance(credential, dict) and isinstance(credential.get("type"), str):
            return {"credential": {"type": credential["type"], "value": REDACTED}}
        return REDACTED
    return redact_marked(content, request.requested_schema)


def recorded_answer(event: Event) -> Answer | None:
    """The answer that a recorded event stands for: what a re-entered run is given after a restart."""
    if isinstance(event, ToolDecision) and event.decision == "granted":
        return ToolGrant(request_id=event.request_id, args=event.args)
    if isinstance(event, ToolResponse):
        if event.status == "denied":
            reason = event.data.get("error") if isinstance(event.data, dict) else None
            return ToolDenial(request_id=event.request_id, reason=reason if isinstance(reason, str) else None)
        given = {"data": event.data} if "data" in event.model_fields_set else {}
        if event.status == "unknown":
            given["unknown"] = True
        return ToolResult(request_id=event.request_id, content=event.content, is_error=event.is_error, **given)
    if isinstance(event, ElicitationResponse):
        given = {"content": event.content} if "content" in event.model_fields_set else {}
        return ElicitationAnswer(request_id=event.request_id, action=event.action, **given)
    return None
