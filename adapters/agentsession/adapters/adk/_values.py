"""Small conversions at the border to ADK: times, ids, branches, secrets, and Python values that JSON cannot say.

Not for: anything that knows an ADK class. Rules carried: SEC-01 (``redact``), WIRE-01 (``lossy_json``).
May import: protocol and the standard library.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final, TypeGuard, cast

from agentsession.protocol import REDACTED, JsonError, repair_text, to_json

__all__ = [
    "clean_id",
    "is_list",
    "is_mapping",
    "is_object",
    "is_secret_name",
    "is_within",
    "iso_timestamp",
    "lossy_json",
    "redact",
    "thread_of",
]

_ID_LIMIT: Final = 256
_MILLISECONDS_FROM: Final = 1e11
"""A number of seconds this large is the year 5138: it is epoch milliseconds, as ADK for TypeScript writes."""

_SECRET_NAMES: Final = frozenset(
    {
        "accesstoken",
        "additionalheaders",
        "apikey",
        "assertion",
        "authcode",
        "authorization",
        "authresponseuri",
        "bearertoken",
        "clientsecret",
        "codeverifier",
        "credentials",
        "idtoken",
        "passwd",
        "password",
        "privatekey",
        "privatekeyid",
        "refreshtoken",
        "secret",
        "secretkey",
        "token",
    }
)
_SECRET_QUERY: Final = re.compile(
    r"([?&#](?:access_token|refresh_token|id_token|client_secret|api_?key|code|password|token)=)[^&#\s]+", re.IGNORECASE
)


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value is an object; its values are any JSON."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a JSON value is a list; its items are any JSON."""
    return isinstance(value, list)


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a mapping, with keys that are meant to be text."""
    return type(value) is dict or isinstance(value, Mapping)  # the latter is slow


def iso_timestamp(value: object) -> str:
    """An ADK timestamp (seconds, or milliseconds as ADK for TypeScript writes) as ISO 8601 in UTC with milliseconds.

    Empty when it is not a usable number: the record then gets the time at which the event is stamped.
    """
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, (int, float))):
        return ""
    if not math.isfinite(value) or value <= 0:
        return ""
    # Rounded to an integer of milliseconds: cutting digits off a float would turn .9999 into .999 and go back in time.
    whole, part = divmod(round(value) if value >= _MILLISECONDS_FROM else round(value * 1000), 1000)
    second = _iso_second(whole)
    return f"{second}.{part:03d}Z" if second else ""


@functools.lru_cache(maxsize=64)
def _iso_second(seconds: int) -> str:
    """The text up to the second; a stream has many deltas a second, and formatting a date is slow."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""


def clean_id(value: object) -> str:
    """``value`` as an identifier of the contract: text, repaired, never too long; empty when there is none."""
    if not isinstance(value, str) or not value:
        return ""
    text = value if value.isascii() else repair_text(value)
    if len(text) <= _ID_LIMIT:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: _ID_LIMIT - 17]}~{digest}"


def thread_of(branch: object) -> str | None:
    """The thread of an ADK branch; ``None``: the main one.

    Call ids (``@adk-…``) are kept. Of run numbers the first (``@1``) is dropped, and a later one is written ``-2``:
    several runs of one node may go on at once.
    """
    if not isinstance(branch, str) or not branch.strip("."):
        return None
    segments = [_RUN.sub(_run, segment) or segment for segment in branch.split(".") if segment]
    return clean_id(".".join(segments)) or None


_RUN: Final = re.compile(r"@(\d+)$")


def _run(found: re.Match[str]) -> str:
    return "" if found[1] in ("0", "1") else f"-{found[1]}"


def is_within(thread: str | None, ancestor: str | None) -> bool:
    """Whether ``thread`` is ``ancestor`` or below it, by whole segments: ``p.agent_10`` is not within ``p.agent_1``."""
    if ancestor is None or thread == ancestor:
        return True
    return thread is not None and thread.startswith(ancestor + ".")


def redact(value: Any) -> Any:
    """A copy of JSON ``value`` without what is secret by its key (client secret, token, password, key) or in a URL."""
    if is_object(value):
        return {key: REDACTED if _is_secret(key, item) else redact(item) for key, item in value.items()}
    if is_list(value):
        return [redact(item) for item in value]
    if isinstance(value, str) and "=" in value:
        return _SECRET_QUERY.sub(rf"\g<1>{REDACTED}", value)
    return value


def is_secret_name(key: str) -> bool:
    """Whether the name of a value says that the value is a secret."""
    return _plain_name(key) in _SECRET_NAMES


def _plain_name(key: str) -> str:
    return re.sub(r"[^a-z]", "", key.rpartition(":")[2].lower())


def _is_secret(key: str, item: Any) -> bool:
    if not item or not (isinstance(item, str) or is_object(item) or is_list(item)):
        return False
    if not is_secret_name(key):
        return False
    # http.credentials holds token and password one level down: its own keys say what is secret.
    return _plain_name(key) != "credentials" or not is_object(item)


def lossy_json(value: Any) -> tuple[Any, list[str]]:
    """``value`` as JSON by ``to_json``; what has no reading becomes a marker, and its place and type are listed."""
    try:
        return to_json(value), []
    except JsonError:
        problems: list[str] = []
        return _mark(value, "", 0, problems), problems
    except Exception as error:  # noqa: BLE001  # a model's own dump may raise anything; it is reported, not hidden
        return _marker(value), [f"/: {type(error).__name__} while converting a {type(value).__name__}"]


def _mark(value: Any, path: str, depth: int, problems: list[str]) -> Any:
    try:
        return to_json(value)
    except JsonError as error:
        reason = f"{path}{error.path if error.path != '/' else ''}: {error.got}"
    except Exception as error:  # noqa: BLE001  # as above
        reason = f"{path}: {type(error).__name__} while converting a {type(value).__name__}"
    if depth < 32:
        if is_mapping(value):
            out: dict[str, Any] = {}
            for key, item in value.items():
                name = repair_text(key) if isinstance(key, str) else f"{type(key).__name__}:{_shown(key)}"
                out[name] = _mark(item, f"{path}/{name}", depth + 1, problems)
            return out
        if isinstance(value, (Sequence, Set)) and not isinstance(value, (str, bytes)):
            items = cast(Iterable[Any], value)
            return [_mark(item, f"{path}/{index}", depth + 1, problems) for index, item in enumerate(items)]
    problems.append(reason if not reason.startswith(":") else "/" + reason)
    return _marker(value)


def _marker(value: Any) -> dict[str, str]:
    return {"$unserializable": type(value).__name__}


def _shown(key: object) -> str:
    return repair_text(key.decode("utf-8", "replace")) if isinstance(key, bytes) else ascii(key)[:60]
