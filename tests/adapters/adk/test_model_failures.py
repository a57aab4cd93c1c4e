"""What is read from the exceptions of models' clients: numbers and names, whatever they are, and never text."""

from __future__ import annotations

import dataclasses
from typing import Any

import httpx
import pytest
from google.genai import errors as genai_errors
from hypothesis import given
from hypothesis import strategies as st

from agentsession.adapters.adk._model_failures import ModelFailure, read_failure


def genai(code: int, *details: Any, status: str = "RESOURCE_EXHAUSTED", message: str = "m") -> Exception:
    kind = genai_errors.ClientError if code < 500 else genai_errors.ServerError
    return kind(code, {"error": {"code": code, "status": status, "message": message, "details": list(details)}})


class ApiStatusError(Exception):
    """As openai's and anthropic's clients have it."""

    def __init__(self, code: int, headers: dict[str, str] | None = None, name: str | None = None) -> None:
        super().__init__("sk-SECRET")
        self.status_code = code
        self.code = name
        self.response = httpx.Response(code, headers=headers)


class APIConnectionError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (genai(503, status="UNAVAILABLE"), ModelFailure(503, "UNAVAILABLE")),
        (genai(500, status="a sentence with sk-SECRET"), ModelFailure(500, "INTERNAL")),
        (
            genai(429, {"@type": "RetryInfo", "retryDelay": "34.07s"}, {"reason": "RATE_LIMIT_EXCEEDED"}),
            ModelFailure(429, "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", 34.07),
        ),
        (
            genai(429, {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}),
            ModelFailure(429, "RESOURCE_EXHAUSTED", exhausted=True),
        ),
        (
            genai(429, {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProject"}]}),
            ModelFailure(429, "RESOURCE_EXHAUSTED"),
        ),
        (genai(429, message="quota exceeded, limit: 0"), ModelFailure(429, "RESOURCE_EXHAUSTED", exhausted=True)),
        (genai(429, message="limit: 05"), ModelFailure(429, "RESOURCE_EXHAUSTED")),
        (genai(500, message="limit: 0", status="INTERNAL"), ModelFailure(500, "INTERNAL")),
        (
            genai(429, message="Please retry in 12.5s."),
            ModelFailure(429, "RESOURCE_EXHAUSTED", retry_after_s=12.5),
        ),
        (
            genai(429, message="Please retry in 830ms."),
            ModelFailure(429, "RESOURCE_EXHAUSTED", retry_after_s=0.83),
        ),
        (genai(429, {"reason": "not a name: sk-SECRET"}), ModelFailure(429, "RESOURCE_EXHAUSTED")),
        (ApiStatusError(529), ModelFailure(529, "INTERNAL")),
        (ApiStatusError(429, {"retry-after": "7"}), ModelFailure(429, "RESOURCE_EXHAUSTED", retry_after_s=7.0)),
        (ApiStatusError(429, {"retry-after-ms": "1500"}), ModelFailure(429, "RESOURCE_EXHAUSTED", retry_after_s=1.5)),
        (
            ApiStatusError(
                503,
                {"date": "Wed, 21 Oct 2026 07:28:00 GMT", "retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"},
            ),
            ModelFailure(503, "UNAVAILABLE", retry_after_s=30.0),
        ),
        (ApiStatusError(503, {"retry-after": "soon"}), ModelFailure(503, "UNAVAILABLE")),
        (
            ApiStatusError(429, name="insufficient_quota"),
            ModelFailure(429, "RESOURCE_EXHAUSTED", "INSUFFICIENT_QUOTA", exhausted=True),
        ),
        (APIConnectionError("sk-SECRET"), ModelFailure(status="UNAVAILABLE")),
        (httpx.ConnectError("sk-SECRET"), ModelFailure(status="UNAVAILABLE")),
        (httpx.ReadTimeout("sk-SECRET"), ModelFailure(status="DEADLINE_EXCEEDED")),
        (ConnectionResetError("sk-SECRET"), ModelFailure(status="UNAVAILABLE")),
        (TimeoutError(), ModelFailure(status="DEADLINE_EXCEEDED")),
        (RuntimeError("429 RESOURCE_EXHAUSTED"), ModelFailure()),
        (KeyError(503), ModelFailure()),
    ],
    ids=lambda value: f"{type(value).__name__}" if isinstance(value, Exception) else "",
)
def test_each_kind_of_exception_is_read(error: Exception, expected: ModelFailure) -> None:
    assert read_failure(error) == expected


def test_an_exception_whose_attributes_raise_says_nothing() -> None:
    class Broken(Exception):
        @property
        def response(self) -> Any:
            raise ValueError("no")

    assert read_failure(Broken()) == ModelFailure()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["error", "details", "reason", "violations", "quotaId", "metadata", "quota_limit", "retryDelay", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON, JSON, st.text(max_size=30))
def test_whatever_an_exception_holds_what_is_read_is_bounded_and_no_text(
    details: Any, code: Any, status: Any, message: str
) -> None:
    error = Exception(message)
    error.details, error.code, error.status = details, code, status  # type: ignore[attr-defined]  # as clients do
    found = read_failure(error)
    assert found.code is None or 100 <= found.code <= 599
    assert found.retry_after_s is None or 0 <= found.retry_after_s <= 86_400
    for text in (found.status, found.reason):
        assert text is None or (text.isascii() and text == text.upper() and " " not in text)
    assert dataclasses.is_dataclass(found)
