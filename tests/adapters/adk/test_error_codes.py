"""What ADK's codes mean: an error or not, its status, and why the stream ended."""

from __future__ import annotations

import pytest
from google.adk.events._abort_events import _INVOCATION_ABORTED
from google.adk.flows.llm_flows.core._model_call import NO_CONTENT_ERROR_CODE
from google.genai import types

from agentsession.adapters.adk import end_reason
from agentsession.adapters.adk._errors import (
    ABORTED_CODE,
    error_status,
    is_empty_reply,
    is_error,
    is_retryable,
    safe_message,
)


def test_the_codes_are_adk_s() -> None:
    assert ABORTED_CODE == _INVOCATION_ABORTED
    assert is_empty_reply(NO_CONTENT_ERROR_CODE)


@pytest.mark.parametrize("reason", list(types.FinishReason))
def test_every_finish_reason_has_a_reading(reason: types.FinishReason) -> None:
    expected = {
        "FINISH_REASON_UNSPECIFIED": "completed",
        "STOP": "completed",
        "CONTINUATION": "completed",
        "MAX_TOKENS": "max_tokens",
        "SAFETY": "refusal",
        "RECITATION": "refusal",
        "BLOCKLIST": "refusal",
        "PROHIBITED_CONTENT": "refusal",
        "SPII": "refusal",
        "IMAGE_SAFETY": "refusal",
        "IMAGE_PROHIBITED_CONTENT": "refusal",
        "IMAGE_RECITATION": "refusal",
    }

    assert end_reason(reason.value) == expected.get(reason.value, "failed")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, "completed"),
        ("JAILBREAK", "refusal"),
        ("LlmCallsLimitExceededError", "max_llm_calls"),
        ("INVOCATION_ABORTED", "aborted"),
        ("RuntimeError", "failed"),
        ("429", "failed"),
    ],
)
def test_other_codes_have_a_reading(code: str | None, reason: str) -> None:
    assert end_reason(code) == reason
    assert is_error(code) == (reason not in ("completed", "aborted"))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("PERMISSION_DENIED", "PERMISSION_DENIED"),
        ("429", "RESOURCE_EXHAUSTED"),
        ("503", "UNAVAILABLE"),
        ("MALFORMED_FUNCTION_CALL", "INVALID_ARGUMENT"),
        ("SAFETY", "FAILED_PRECONDITION"),
        ("ZeroDivisionError", "UNKNOWN"),
    ],
)
def test_codes_have_a_status(code: str, status: str) -> None:
    assert error_status(code) == status


def test_some_failures_are_worth_another_try() -> None:
    assert [code for code in ("429", "503", "MALFORMED_FUNCTION_CALL", "MAX_TOKENS", "403") if is_retryable(code)] == [
        "429",
        "503",
        "MALFORMED_FUNCTION_CALL",
    ]


@pytest.mark.parametrize(
    ("code", "message", "shown"),
    [
        ("500", "boom\nTraceback (most recent call last):\n  File", "boom"),
        ("500", "", "the provider answered 500, INTERNAL"),
        ("SAFETY", None, "the provider refused to answer (SAFETY)"),
        ("401", "bad api_key=abc123 given", "bad api_key= [redacted] given"),
        ("401", '{"api_key": "abc123", "at": 1}', '{"api_key": [redacted]", "at": 1}'),
        ("403", "GET https://host/v1?key=abc123&alt=sse", "GET https://host/v1?key= [redacted]&alt=sse"),
        ("403", "client_secret='abc123'", "client_secret= [redacted]'"),
        ("500", "half \ud83d", "half �"),
    ],
)
def test_messages_are_for_people_and_hold_no_secret(code: str, message: str | None, shown: str) -> None:
    assert safe_message(code, message) == shown
