"""Questions that ADK dresses as function calls: confirmations, credentials, input. Their requests and their answers.

Not for: when they are emitted (``_translate``), or how an answer reaches ADK (the live session).
Rules carried: HITL-01, HITL-09, SEC-01. May import: ``_calls``, ``_errors``, ``_values``, protocol.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agentsession.adapters.adk._calls import CallKind
from agentsession.adapters.adk._values import is_mapping, is_object, lossy_json, redact
from agentsession.protocol import REDACTED, repair_text

if TYPE_CHECKING:
    from google.adk.events.event import Event as AdkEvent

__all__ = [
    "CONFIRMATION",
    "CREDENTIAL",
    "CREDENTIAL_TYPES",
    "INLINE_INPUT",
    "INPUT",
    "answer_of",
    "asks",
    "hint_for_person",
    "hint_of",
    "is_placeholder",
    "kind_of",
    "original_id",
    "question_of",
]

CONFIRMATION: Final = "adk_request_confirmation"
CREDENTIAL: Final = "adk_request_credential"
INPUT: Final = "adk_request_input"
INLINE_INPUT: Final = "agentsession_request_input"
"""The name that a call of ``adk_request_input`` has inside ADK while its answer is waited for in the run that made it.

By its own name ADK takes the call for one that pauses its run, and skips what a pipeline has left when it is answered.
"""

CREDENTIAL_TYPES: Final = ("api_key", "bearer", "basic", "oauth2", "service_account")
"""The types of credential that the contract knows."""

_FOR_PROGRAMS: Final = "by responding with a FunctionResponse"
"""Marks the hint that ADK writes when the tool gave none: it tells a client what to send, not a person what is up."""

_NODE_CONFIRMATION: Final = "wf_tool_confirmation:"
"""What the id of a node's own confirmation begins with."""

_CREDENTIALS: Final = frozenset(
    {"rawAuthCredential", "raw_auth_credential", "exchangedAuthCredential", "exchanged_auth_credential"}
)
_NO_SECRETS: Final = frozenset(
    name
    for both in (
        ("authType", "auth_type"),
        ("audience", "prompt", "scheme", "scopes", "state", "username"),
        ("authUri", "auth_uri"),
        ("clientId", "client_id"),
        ("codeChallengeMethod", "code_challenge_method"),
        ("redirectUri", "redirect_uri"),
        ("resourceRef", "resource_ref"),
        ("tokenEndpointAuthMethod", "token_endpoint_auth_method"),
        ("useIdToken", "use_id_token"),
    )
    for name in both
)
"""What of a credential is shown: what a person must know to give one (R112)."""

_KINDS: Final[dict[str, CallKind]] = {
    CONFIRMATION: "tool_confirmation",
    CREDENTIAL: "auth_required",
    INPUT: "clarification",
}


def asks(name: str) -> bool:
    """Whether a call of this name may be a question rather than a tool."""
    return name == INLINE_INPUT or name in _KINDS


def kind_of(name: str | None, args: object, long_running: bool) -> CallKind:
    """What a call is. A model may invent these names too, with any shape: such a call is a tool call like any other.

    ADK lists the calls that it makes itself as long-running; those of a name that no tool has it does not.
    """
    if name == INLINE_INPUT:
        return "clarification"
    kind = _KINDS.get(name or "")
    if kind is None:
        return "tool"
    fields: Mapping[str, Any] = args if is_mapping(args) else {}
    if is_confirmation_of_node(fields):
        return "tool_confirmation" if long_running else "tool"
    shaped = True
    if kind == "tool_confirmation":
        shaped = is_mapping(_get(fields, "originalFunctionCall", "original_function_call"))
    elif kind == "auth_required":
        shaped = is_mapping(_get(fields, "authConfig", "auth_config"))
    return kind if long_running and shaped else "tool"


def is_confirmation_of_node(args: object) -> bool:
    """Whether ADK's question for input is the confirmation that a node of a graph wants before it runs."""
    interrupt = _get(args, "interruptId", "interrupt_id")
    return isinstance(interrupt, str) and interrupt.startswith(_NODE_CONFIRMATION)


def is_placeholder(event: AdkEvent, call_id: str | None) -> bool:
    """Whether the event's response to this call only says that its tool waits for a confirmation or a credential.

    The tool has not run, or has run up to its question; its result is still to come, in another event. ADK itself goes
    by the same signs where it asks whether a call is answered.
    """
    if not call_id or event.author == "user" or event.error_code:
        return False
    actions = event.actions
    return call_id in (actions.requested_tool_confirmations or {}) or call_id in (actions.requested_auth_configs or {})


def hint_of(args: Mapping[str, Any]) -> str:
    """The hint of a confirmation: the tool's own words, or the adapter's mark for its gate."""
    confirmation = _get(args, "toolConfirmation", "tool_confirmation")
    hint = confirmation.get("hint") if is_mapping(confirmation) else None
    return hint if isinstance(hint, str) else ""


def hint_for_person(hint: str | None, name: str) -> str:
    """What a person is asked about a call of the tool ``name``: the tool's own words, if it has some."""
    shown = repair_text(hint or "")
    return shown if shown and _FOR_PROGRAMS not in shown else f"May {name} run?"


def original_id(kind: CallKind, args: Mapping[str, Any]) -> str:
    """The ADK id of the tool call that the question is about; empty when there is none."""
    if kind == "tool_confirmation":
        call = _get(args, "originalFunctionCall", "original_function_call")
        found = call.get("id") if is_mapping(call) else None
    else:
        found = _get(args, "functionCallId", "function_call_id") if kind == "auth_required" else None
    return found if isinstance(found, str) else ""


def question_of(kind: CallKind, args: Mapping[str, Any], tool: str | None) -> dict[str, Any]:
    """The fields of the ``elicitation_request``: message, context, schema, URL; secrets redacted."""
    if is_confirmation_of_node(args):
        return _confirmation_of_node(args)
    if kind == "tool_confirmation":
        return _confirmation(args, tool)
    if kind == "auth_required":
        return _credential(args, tool)
    return _input(args)


def answer_of(kind: CallKind, response: object, *, sealed: bool) -> tuple[str, Any]:
    """The action and the content that a FunctionResponse to a question stands for; secrets never come back out.

    ``sealed``: ADK closed the question itself, because the run was aborted.
    """
    fields = _unwrap(response)
    if sealed:
        return "cancel", None
    if "refused" in fields:
        return ("cancel" if fields["refused"] == "cancel" else "decline"), None
    if kind == "tool_confirmation":
        if fields.get("confirmed") is not True:
            return ("cancel" if "error" in fields and "confirmed" not in fields else "decline"), None
        payload, _ = lossy_json(fields.get("payload"))
        return "accept", {"payload": payload} if payload is not None else None
    if "error" in fields and len(fields) == 1:
        return ("decline" if fields["error"] == "decline" else "cancel"), None
    if kind == "auth_required":
        return "accept", _given_credential(fields)
    value = fields["result"] if set(fields) == {"result"} else response
    return "accept", lossy_json(value)[0]


def _confirmation(args: Mapping[str, Any], tool: str | None) -> dict[str, Any]:
    confirmation = _get(args, "toolConfirmation", "tool_confirmation")
    payload = confirmation.get("payload") if is_mapping(confirmation) else None
    call = _get(args, "originalFunctionCall", "original_function_call")
    name = tool or (call.get("name") if is_mapping(call) else None) or "this tool"
    out: dict[str, Any] = {"message": hint_for_person(hint_of(args), name)}
    if payload is not None:
        out["context"] = lossy_json(payload)[0]
    return out


def _confirmation_of_node(args: Mapping[str, Any]) -> dict[str, Any]:
    """As of a tool; the schema is ADK's own and would let a no pass for an answer, so it is not handed on."""
    shown = _input(args)
    shown.pop("requested_schema", None)
    return shown


def _credential(args: Mapping[str, Any], tool: str | None) -> dict[str, Any]:
    config, _ = lossy_json(_get(args, "authConfig", "auth_config"))
    out: dict[str, Any] = {
        "message": f"{tool} needs a credential" if tool else "A tool needs a credential",
        "context": _without_secrets(config),
    }
    exchanged = _get(config, "exchangedAuthCredential", "exchanged_auth_credential")
    oauth = exchanged.get("oauth2") if is_object(exchanged) else None
    url = _get(oauth, "authUri", "auth_uri") if is_object(oauth) else None
    if isinstance(url, str) and url:
        out["url"] = url
    return out


def _without_secrets(config: Any) -> Any:
    """An AuthConfig as it may be shown. Of the credentials in it only what is known to be no secret stays: ADK takes
    fields that it does not know, and a name that nobody thought of may hold a secret."""
    shown = redact(config)
    if is_object(shown):
        for name in _CREDENTIALS & shown.keys():
            shown[name] = _only_known(shown[name])
    return shown


def _only_known(value: Any) -> Any:
    if not is_object(value):
        return REDACTED if value else value
    return {
        key: _only_known(item) if is_object(item) else item if key in _NO_SECRETS or not item else REDACTED
        for key, item in value.items()
    }


def _given_credential(fields: Mapping[str, Any]) -> Any:
    """What is shown of a credential that was given: its type, where this adapter has stored that in its place."""
    given = fields.get("credential")
    kind = given.get("type") if is_mapping(given) else None
    if kind in CREDENTIAL_TYPES:
        return {"credential": {"type": kind, "value": REDACTED}}
    return REDACTED if set(fields) == {"auth_response_uri"} else {"credential": REDACTED}


def _input(args: Mapping[str, Any]) -> dict[str, Any]:
    message = args.get("message")
    out: dict[str, Any] = {
        "message": repair_text(message) if isinstance(message, str) and message else "The agent asks for input"
    }
    schema = _get(args, "response_schema", "responseSchema")
    if is_mapping(schema):
        out["requested_schema"] = lossy_json(schema)[0]
    payload = args.get("payload")
    if payload is not None:
        out["context"] = lossy_json(payload)[0]
    return out


def _unwrap(response: object) -> Mapping[str, Any]:
    """The fields of an answer; ADK's clients may wrap them as ``{"response": "…JSON…"}``."""
    if not is_mapping(response):
        return {}
    inner = response.get("response")
    if len(response) == 1 and isinstance(inner, str):
        try:
            parsed = json.loads(inner)
        except ValueError:
            return response
        return parsed if is_object(parsed) else response
    return response


def _get(fields: object, *names: str) -> Any:
    if is_mapping(fields):
        for name in names:
            if fields.get(name) is not None:
                return fields[name]
    return None
