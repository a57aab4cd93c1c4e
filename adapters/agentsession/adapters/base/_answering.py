"""From an answer to the events that record it, with secrets taken out.

Not for: whether the answer counts (the state machine's ``check_answer``). Rules carried: TOOL-13, TOOL-15, HITL-04,
SEC-01. May import: ``agentsession.protocol``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, assert_never
from urllib.parse import unquote

from agentsession.protocol import (
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
)

__all__ = ["REDACTED", "answer_events", "has_secret", "recorded_answer", "redact"]

REDACTED: Final = "[redacted]"
"""What stands in the record in the place of a secret."""


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
                is_error=answer.is_error,
                status="failed" if answer.is_error else "completed",
                display=answer.display,
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
    return request.kind == "elicitation" and (
        request.name == "auth_required" or _marks_secret(request.requested_schema)
    )


def redact(request: RequestState | ElicitationRequest, content: Any) -> Any:
    """``content`` as it may be recorded: of a credential only its type stays, secret fields of a form are replaced."""
    kind = request.name if isinstance(request, RequestState) else request.kind
    if kind == "auth_required":
        credential = content.get("credential") if isinstance(content, dict) else None
        if isinstance(credential, dict) and isinstance(credential.get("type"), str):
            return {"credential": {"type": credential["type"], "value": REDACTED}}
        return REDACTED
    schema = request.requested_schema
    return _redact_fields([schema], content, schema) if _marks_secret(schema) else content


_SECRET: Final[Mapping[str, Any]] = {"writeOnly": True}


def _is_secret(schema: Mapping[str, Any]) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"


def _marks_secret(schema: Any) -> bool:
    """Whether a secret is marked anywhere in a schema, also where only a reference leads, or may be elsewhere."""
    if isinstance(schema, Mapping):
        return _is_secret(schema) or any(_marks_secret(item) for item in schema.values()) or _leads_elsewhere(schema)
    return isinstance(schema, list) and any(_marks_secret(item) for item in schema)


def _leads_elsewhere(schema: Mapping[str, Any]) -> bool:
    return any(isinstance(ref := schema.get(key), str) and not _is_pointer(ref) for key in _REFERENCES)


def _redact_fields(schemas: Iterable[Any], content: Any, root: Any) -> Any:
    """``content`` without what any schema that bears on it marks as a secret: of several branches, one is enough."""
    bearing = _bearing(schemas, root)
    if any(_is_secret(schema) for schema in bearing):
        return REDACTED
    if isinstance(content, dict):
        return {key: _redact_fields(_of_key(bearing, key), value, root) for key, value in content.items()}
    if isinstance(content, list):
        return [_redact_fields(_of_index(bearing, index), item, root) for index, item in enumerate(content)]
    return content


_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("if", "then", "else")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def _bearing(schemas: Iterable[Any], root: Any) -> list[Mapping[str, Any]]:
    """Every schema that bears on the same value as ``schemas`` do: their branches, and what they refer to."""
    found: list[Mapping[str, Any]] = []
    waiting = list(schemas)
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or any(schema is item for item in found):
            continue
        found.append(schema)
        for key in _BRANCHES:
            waiting += _items(schema.get(key))
        waiting += [schema.get(key) for key in _CONDITIONS]
        waiting += _mapping(schema.get("dependentSchemas")).values()
        waiting += [_resolve(schema[key], root) for key in _REFERENCES if key in schema]
    return found


def _of_key(schemas: Iterable[Mapping[str, Any]], key: str) -> Iterator[Any]:
    """The schemas of the value under ``key``."""
    for schema in schemas:
        named = _mapping(schema.get("properties"))
        if key in named:
            yield named[key]
        else:
            yield schema.get("additionalProperties")
            yield schema.get("unevaluatedProperties")
        # Every pattern counts, matched or not: a secret is not to depend on two readings of a regular expression.
        yield from _mapping(schema.get("patternProperties")).values()


def _of_index(schemas: Iterable[Mapping[str, Any]], index: int) -> Iterator[Any]:
    """The schemas of the item at ``index``."""
    for schema in schemas:
        first = _items(schema.get("prefixItems")) or _items(schema.get("items"))  # a list of items: before 2020-12
        yield from first[index : index + 1]
        for key in ("items", "additionalItems", "unevaluatedItems", "contains"):
            yield schema.get(key)


def _is_pointer(ref: str) -> bool:
    return ref == "#" or ref.startswith("#/")


def _resolve(ref: Any, root: Any) -> Any:
    """What a reference inside the same schema leads to; what is not found there counts as a secret: fail closed."""
    if not isinstance(ref, str) or not _is_pointer(ref):
        return _SECRET
    place = root
    for step in unquote(ref).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            return _SECRET
    return place


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def recorded_answer(event: Event) -> Answer | None:
    """The answer that a recorded event stands for: what a re-entered run is given after a restart."""
    if isinstance(event, ToolDecision) and event.decision == "granted":
        return ToolGrant(request_id=event.request_id, args=event.args)
    if isinstance(event, ToolResponse):
        if event.status == "denied":
            reason = event.data.get("error") if isinstance(event.data, dict) else None
            return ToolDenial(request_id=event.request_id, reason=reason if isinstance(reason, str) else None)
        given = {"data": event.data} if "data" in event.model_fields_set else {}
        return ToolResult(request_id=event.request_id, content=event.content, is_error=event.is_error, **given)
    if isinstance(event, ElicitationResponse):
        given = {"content": event.content} if "content" in event.model_fields_set else {}
        return ElicitationAnswer(request_id=event.request_id, action=event.action, **given)
    return None
