"""The messages of the wire between the suite and an executor in a process of its own: one JSON object a line.

Not for: what a message causes (``client.py``, ``server.py``) or moving lines (``_process.py``).
Rules carried: none, but SEC-01 as far as showing goes. May import: ``agentsession.protocol``, ``harness``, ``logged``.

docs/reference/conformance-stdio.md is this wire for authors.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from agentsession.conformance.harness import CannotPlay
from agentsession.conformance.logged import masked
from agentsession.protocol import (
    AbortTimeout,
    AgentSessionError,
    ConfigurationError,
    ConnectionLost,
    CursorGone,
    InvalidInput,
    NothingToContinue,
    ProtocolViolation,
    SchemaError,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StreamActive,
    Unimplemented,
    UnsupportedVersion,
    parse_json,
)

__all__ = [
    "ERRORS",
    "LINE_LIMIT",
    "Answered",
    "Noted",
    "Request",
    "Rubbish",
    "answer_line",
    "error_line",
    "from_error",
    "note_line",
    "read_from_executor",
    "read_request",
    "request_line",
]

LINE_LIMIT: Final = 16 * 2**20
"""No line is longer, in bytes: a whole record fits in one."""

ERRORS: Final[Mapping[str, type[AgentSessionError]]] = {
    cls.__name__: cls
    for cls in (
        AbortTimeout,
        ConfigurationError,
        ConnectionLost,
        CursorGone,
        InvalidInput,
        NothingToContinue,
        SchemaError,
        SessionBusy,
        SessionClosed,
        SessionExists,
        SessionNotFound,
        StreamActive,
        Unimplemented,
        UnsupportedVersion,
    )
}
"""The error class of each code; ``ProtocolViolation`` and ``CannotPlay`` are read apart, any other code is kept."""

_PARTS: Final = ("where", "expected", "got", "fix")
_NOTES: Final = ("event", "ran", "reached")
_SHOWN: Final = 200
"""How much of a line that cannot be read is shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What the suite asks; without an ``id`` it is told, and not answered."""

    method: str
    params: Mapping[str, Any]
    id: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request: a result or an error, of which the other is ``None``."""

    id: int
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Noted:
    """What an executor tells unasked: an ``event``, a tool that ``ran``, a mark that was ``reached``."""

    kind: str
    value: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Rubbish:
    """A line of an executor's that is no message: nothing after it can be relied on."""

    why: str
    line: str


# -- writing ----------------------------------------------------------------------------------------------------------


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def request_line(request: Request) -> bytes:
    """A request as a line."""
    named = {} if request.id is None else {"id": request.id}
    return _line({**named, "method": request.method, "params": request.params})


def answer_line(id: int, result: Mapping[str, Any]) -> bytes:
    """An answer as a line."""
    return _line({"id": id, "result": result})


def error_line(id: int | None, error: Exception) -> bytes:
    """An error as the answer to a request, or with ``None`` to a line that could not be read."""
    return _line({"id": id, "error": _described(error)})


def note_line(kind: str, value: Mapping[str, Any]) -> bytes:
    """What is told unasked, as a line."""
    return _line({kind: value})


def _described(error: Exception) -> dict[str, Any]:
    if isinstance(error, CannotPlay):
        return {"code": "CannotPlay", "message": str(error)}
    if not isinstance(error, AgentSessionError):
        return {"code": "Internal", "message": f"{type(error).__name__}: {error}"}
    name = next((base.__name__ for base in type(error).__mro__ if base.__name__ in ERRORS), error.id)
    described: dict[str, Any] = {"code": name, "message": error.what}
    if isinstance(error, ProtocolViolation):
        described |= {"code": "ProtocolViolation", "rule": error.rule}
    return described | {part: text for part in _PARTS if (text := getattr(error, part)) is not None}


# -- reading ----------------------------------------------------------------------------------------------------------


def read_from_executor(line: bytes) -> Answered | Noted | Rubbish:
    """One line of an executor's."""
    if len(line) > LINE_LIMIT:
        return _rubbish(line, f"a line is longer than {LINE_LIMIT} bytes")
    try:
        value = parse_json(line)
    except SchemaError as error:
        return _rubbish(line, f"a line is no JSON: {_found(line) or error.what}")
    if not isinstance(value, dict):
        return _rubbish(line, "a line is no JSON object")
    if "id" in value:
        return _read_answer(line, value)
    for kind in _NOTES:
        if isinstance(value.get(kind), dict):
            return Noted(kind, value[kind])
    return _rubbish(line, f"a line is neither an answer nor one of: {', '.join(_NOTES)}")


def _read_answer(line: bytes, value: Mapping[str, Any]) -> Answered | Rubbish:
    number, result, error = value["id"], value.get("result"), value.get("error")
    if isinstance(error, dict) and isinstance(error.get("code"), str) and "result" not in value:
        if number is None:
            return _rubbish(line, "the executor could not read a line of the suite's")
        if _is_id(number):
            return Answered(number, None, error)
    if _is_id(number) and isinstance(result, dict) and "error" not in value:
        return Answered(number, result, None)
    return _rubbish(line, "an answer has a number as its id, and an object as its result or as its error with a code")


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _found(line: bytes) -> str | None:
    """What stands in a line where JSON should; looked for in what is shown of it, for a piece may be half a secret."""
    try:
        parse_json(_shown(line))
    except SchemaError as error:
        return error.got
    return None


def _rubbish(line: bytes, why: str) -> Rubbish:
    return Rubbish(why, _shown(line)[:_SHOWN].strip())


def _shown(line: bytes) -> str:
    """A line without the secrets of the environment, which the executor's process has too."""
    return next(masked([line.decode("utf-8", "replace")]))


def read_request(line: bytes) -> Request:
    """One line of the suite's. Raises :class:`InvalidInput`."""
    value = parse_json(line)
    method = value.get("method") if isinstance(value, dict) else None
    params = value.get("params", {}) if isinstance(value, dict) else None
    number = value.get("id") if isinstance(value, dict) else None
    if not isinstance(method, str) or not isinstance(params, dict) or not (number is None or _is_id(number)):
        raise InvalidInput("this line is no request", expected="an object with method, params and perhaps id")
    return Request(method, params, number)


def from_error(error: Mapping[str, Any]) -> Exception:
    """The exception that an error stands for."""
    code, message = error["code"], error.get("message")
    what = message if isinstance(message, str) else str(code)
    parts: dict[str, Any] = {part: error[part] for part in _PARTS if isinstance(error.get(part), str)}
    if code == "CannotPlay":
        return CannotPlay(what)
    if code == "ProtocolViolation" and isinstance(error.get("rule"), str):
        return ProtocolViolation(error["rule"], what, blame="peer", **parts)
    cls = ERRORS.get(code)
    return AgentSessionError(what, id=code, **parts) if cls is None else cls(what, **parts)
