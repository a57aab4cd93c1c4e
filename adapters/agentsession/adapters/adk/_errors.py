"""What ADK's error codes and finish reasons mean in the contract: the error event, and why the stream ended.

Not for: exceptions of this adapter (``_version``, ``protocol``). Rules carried: CTL-03, SEC-01, LIFE-18.
May import: protocol and the standard library.

ADK has one string for four things: a finish reason of the model (``SAFETY``), a block reason of the prompt
(``JAILBREAK``), a status or HTTP number of the provider (``RESOURCE_EXHAUSTED``, ``429``), and the name of a Python
exception (``ScriptExhausted``). They are told apart here, by one table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from agentsession.protocol import repair_text

__all__ = [
    "ABORTED_CODE",
    "BROKEN_OFF",
    "MODEL_CALL_CANCELLED",
    "MODEL_CALL_DECLINED",
    "SEALED_CODE",
    "SEALS",
    "EndReason",
    "end_reason",
    "error_status",
    "is_error",
    "is_retryable",
    "is_rpc_name",
    "names_exception",
    "safe_message",
]

EndReason = Literal["completed", "failed", "refusal", "max_tokens", "max_llm_calls", "aborted"]

ABORTED_CODE: Final = "INVOCATION_ABORTED"
"""The code under which ADK seals what an abort left open; never an error event (rule CTL-03)."""

SEALED_CODE: Final = "AGENTSESSION_SEALED"
"""The code under which this adapter seals what a run left open: for ADK and its model, never an error event."""

SEALS: Final[Mapping[str, Mapping[str, Any]]] = {
    "unknown": {"error": "this call was cut off; its effects are not known", "status": "unknown"},
    "cancelled": {"error": "this call was cancelled before it began", "status": "cancelled"},
}
"""What the model is told of a call that has no result, by the status that the record gives it."""

MODEL_CALL_DECLINED: Final = "MODEL_CALL_DECLINED"
"""The code of a model call that the host would not answer."""

MODEL_CALL_CANCELLED: Final = "MODEL_CALL_CANCELLED"
"""The code of a model call that nobody could or wanted to answer."""

BROKEN_OFF: Final = "ANSWER_BROKEN_OFF"
"""The code of a model's answer that streamed and had no end: its connection was cut, or its bridge dropped the rest."""

_NOT_ERRORS: Final = frozenset(
    {"", "STOP", "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "CONTINUATION", SEALED_CODE}
)
_EMPTY: Final = frozenset({"NO_CONTENT", "MODEL_RETURNED_NO_CONTENT"})
_REFUSALS: Final = frozenset(
    {
        "BLOCKLIST",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_SAFETY",
        "JAILBREAK",
        "MODEL_ARMOR",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "SAFETY",
        "SPII",
    }
)
_BAD_CALLS: Final = frozenset({"MALFORMED_FUNCTION_CALL", "TOO_MANY_TOOL_CALLS", "UNEXPECTED_TOOL_CALL"})
_STATUS_OF: Final = {
    BROKEN_OFF: "UNAVAILABLE",
    "MAX_TOKENS": "RESOURCE_EXHAUSTED",
    "LlmCallsLimitExceededError": "RESOURCE_EXHAUSTED",
    MODEL_CALL_CANCELLED: "CANCELLED",
    MODEL_CALL_DECLINED: "PERMISSION_DENIED",
    "400": "INVALID_ARGUMENT",
    "401": "UNAUTHENTICATED",
    "403": "PERMISSION_DENIED",
    "404": "NOT_FOUND",
    "408": "DEADLINE_EXCEEDED",
    "409": "FAILED_PRECONDITION",
    "429": "RESOURCE_EXHAUSTED",
    "499": "CANCELLED",
    "500": "INTERNAL",
    "501": "UNIMPLEMENTED",
    "502": "UNAVAILABLE",
    "503": "UNAVAILABLE",
    "504": "DEADLINE_EXCEEDED",
    "TimeoutError": "DEADLINE_EXCEEDED",
    "PermissionError": "PERMISSION_DENIED",
    "NotImplementedError": "UNIMPLEMENTED",
    "ConnectionError": "UNAVAILABLE",
}
_RPC: Final = frozenset(
    {
        "ABORTED",
        "ALREADY_EXISTS",
        "CANCELLED",
        "DATA_LOSS",
        "DEADLINE_EXCEEDED",
        "FAILED_PRECONDITION",
        "INTERNAL",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "OUT_OF_RANGE",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "UNAVAILABLE",
        "UNIMPLEMENTED",
        "UNKNOWN",
    }
)
_RETRYABLE: Final = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "UNAVAILABLE", "DEADLINE_EXCEEDED"})
_SECRET: Final = re.compile(
    r"""(?i)(\bbearer|(?:api[_-]?key|token|password|secret)["']?\s*[=:]|[?&]key=)\s*["']?[^\s"',&]+"""
)
"""What follows a name that says it is secret: in words, in JSON, in a URL (``?key=`` is that of Google's services)."""
_MESSAGES: Final = {
    BROKEN_OFF: "the model's answer broke off before its end",
    "MAX_TOKENS": "the model stopped at its limit of output tokens",
    MODEL_CALL_CANCELLED: "nobody answered in the model's place",
    MODEL_CALL_DECLINED: "the host declined to answer in the model's place",
    "MALFORMED_FUNCTION_CALL": "the model wrote a function call that cannot be read",
    "UNEXPECTED_TOOL_CALL": "the model called a tool where none was offered",
    "TOO_MANY_TOOL_CALLS": "the model called too many tools in a row",
}


def is_error(code: str | None) -> bool:
    """Whether a code is an error at all: a model that stopped, said nothing, or was aborted has not failed."""
    text = code or ""
    return text not in _NOT_ERRORS and text not in _EMPTY and text != ABORTED_CODE


def names_exception(code: str) -> bool:
    """Whether a code is the name of a Python class, which ADK gives to an exception's event. Models write none."""
    return re.fullmatch(r"_*[A-Z]\w*[a-z]\w*", code) is not None


def is_empty_reply(code: str | None) -> bool:
    """Whether ADK says of a stop that the model said nothing; an empty completion, not an error."""
    return (code or "") in _EMPTY


def end_reason(code: str | None) -> EndReason:
    """Why a stream ends whose last model response carried ``code`` (an error code, or a finish reason)."""
    text = code or ""
    if text == ABORTED_CODE:
        return "aborted"
    if text == "MAX_TOKENS":
        return "max_tokens"
    if text == "LlmCallsLimitExceededError":
        return "max_llm_calls"
    if text in _REFUSALS:
        return "refusal"
    return "failed" if is_error(text) else "completed"


def error_status(code: str) -> str:
    """The google.rpc name for a code; ``UNKNOWN`` for a finish reason or exception that says no more."""
    if code in _RPC:
        return code
    if code in _REFUSALS:
        return "FAILED_PRECONDITION"
    if code in _BAD_CALLS:
        return "INVALID_ARGUMENT"
    return _STATUS_OF.get(code, "UNKNOWN")


def is_rpc_name(name: str) -> bool:
    """Whether a name is one of google.rpc's."""
    return name in _RPC


def is_retryable(code: str) -> bool:
    """Whether asking the model again may help."""
    if code in ("MAX_TOKENS", "LlmCallsLimitExceededError"):
        return False
    return code in _RETRYABLE or error_status(code) in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")


def safe_message(code: str, message: str | None) -> str:
    """A message for people: what the provider said, without a traceback, or a sentence for the code. Rule: SEC-01."""
    text = repair_text(message or "").split("Traceback (most recent call last)")[0]
    text = _SECRET.sub(r"\1 [redacted]", text).strip()
    if text:
        return text
    if code in _MESSAGES:
        return _MESSAGES[code]
    if code in _REFUSALS:
        return f"the provider refused to answer ({code})"
    return f"the provider answered {code}, {error_status(code)}" if code.isdecimal() else f"the run failed with {code}"
