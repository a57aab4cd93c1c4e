"""What an exception of a model's client says in numbers and names: status, the provider's reason, how long to wait.

Not for: deciding what to do about it (that is the host's). Rules carried: SEC-01: no text of an exception leaves here.
May import: ``_errors`` beside it, and the standard library; google-genai's, httpx's, openai's and other clients'
exceptions are read by the fields that they share, so none of them is imported.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from agentsession.adapters.adk._errors import error_status, is_rpc_name

__all__ = ["ModelFailure", "read_failure"]

_NO_NETWORK: Final = frozenset(
    {"APIConnectionError", "ClientConnectionError", "ConnectionError", "NetworkError", "RemoteProtocolError"}
)
_TOO_SLOW: Final = frozenset({"APITimeoutError", "TimeoutError", "TimeoutException"})
_USED_UP: Final = frozenset({"QUOTA_EXHAUSTED", "INSUFFICIENT_QUOTA"})
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{2,62}")
_SECONDS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)?")
_IN_WORDS: Final = re.compile(r"(?i)\bretry in (\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)\b")
_NO_QUOTA: Final = re.compile(r"(?i)\blimit: 0\b")
_PER_DAY: Final = re.compile(r"(?i)per_?day|daily")
_LONGEST: Final = 86_400.0
_TEXT: Final = 20_000
"""How much of an exception's text is searched."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFailure:
    """See the fields of :class:`agentsession.protocol.ModelErrorHook`."""

    code: int | None = None
    status: str | None = None
    reason: str | None = None
    retry_after_s: float | None = None
    exhausted: bool = False


def read_failure(error: BaseException) -> ModelFailure:
    """What an exception says. Never raises: a client's exception may be anything."""
    try:
        return _read(error)
    except Exception:  # noqa: BLE001 - a property of somebody's exception class
        return ModelFailure()


def _read(error: BaseException) -> ModelFailure:
    code = _http_status(error)
    details = list(_details(getattr(error, "details", None)))
    reason = next((found for found in (_reason(item) for item in details) if found is not None), None)
    said = getattr(error, "code", None)
    if reason is None and isinstance(said, str) and _NAME.fullmatch(said.upper()):
        reason = said.upper()  # openai's are lower case
    text = str(error)[:_TEXT]
    exhausted = reason in _USED_UP or any(map(_is_per_day, details)) or _NO_QUOTA.search(text) is not None
    return ModelFailure(
        code=code,
        status=_status(error, code),
        reason=reason,
        retry_after_s=_wait(error, details, text),
        exhausted=exhausted and code in (None, 403, 429),
    )


def _http_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    for holder, name in ((error, "code"), (error, "status_code"), (error, "status"), (response, "status_code")):
        value = getattr(holder, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return value
    return None


def _status(error: BaseException, code: int | None) -> str | None:
    said = getattr(error, "status", None)
    if isinstance(said, str) and is_rpc_name(said):
        return said
    if code is not None:
        known = error_status(str(code))
        if known != "UNKNOWN":
            return known
        return "INTERNAL" if code >= 500 else "INVALID_ARGUMENT" if code >= 400 else None
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _TOO_SLOW:
        return "DEADLINE_EXCEEDED"
    return "UNAVAILABLE" if names & _NO_NETWORK else None


def _details(given: Any) -> Iterator[Mapping[str, Any]]:
    """google.rpc's details of an error, wherever its JSON has them."""
    body: Any = given
    if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
        body = body["error"]
    items = body.get("details") if isinstance(body, Mapping) else body
    for item in items[:50] if isinstance(items, list) else ():
        if isinstance(item, Mapping):
            yield item


def _reason(item: Mapping[str, Any]) -> str | None:
    found = item.get("reason")
    return found if isinstance(found, str) and _NAME.fullmatch(found) else None


def _is_per_day(item: Mapping[str, Any]) -> bool:
    violations = item.get("violations")
    names: list[Any] = (
        [entry.get("quotaId") for entry in violations or () if isinstance(entry, Mapping)]
        if isinstance(violations, list)
        else []
    )
    metadata = item.get("metadata")
    if isinstance(metadata, Mapping):
        names.append(metadata.get("quota_limit"))
    return any(isinstance(name, str) and _PER_DAY.search(name) for name in names)


def _wait(error: BaseException, details: list[Mapping[str, Any]], text: str) -> float | None:
    for item in details:
        found = _seconds(item.get("retryDelay"))
        if found is not None:
            return found
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is not None and hasattr(headers, "get"):
        found = _seconds(headers.get("retry-after-ms"), unit="ms")
        if found is None:
            found = _retry_after(headers.get("retry-after"), headers.get("date"))
        if found is not None:
            return found
    in_words = _IN_WORDS.search(text)
    return _bounded(float(in_words.group(1)), in_words.group(2)) if in_words is not None else None


def _retry_after(value: Any, date: Any) -> float | None:
    """``Retry-After``: seconds, or a date, which is counted from the answer's own."""
    found = _seconds(value)
    if found is not None or not isinstance(value, str) or not isinstance(date, str):
        return found
    try:
        return min(_LONGEST, max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(date)).total_seconds()))
    except (TypeError, ValueError):
        return None


def _seconds(value: Any, unit: str = "s") -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    match = _SECONDS.fullmatch(str(value).strip())
    return _bounded(float(match.group(1)), match.group(2) or unit) if match is not None else None


def _bounded(amount: float, unit: str) -> float:
    return min(_LONGEST, amount / 1000 if unit.lower() == "ms" else amount)
