"""Reading and writing the wire: JSON to events and inputs, NDJSON lines, the version check.

Not for: transports. Rules carried: WIRE-01, WIRE-02, LIFE-01. May import: the models, ``_errors``.

A known type with a malformed payload raises :class:`SchemaError`; it never becomes an unknown event.

Theory of operation: reading is hot (a client reads every delta), so each step does the least that is certain. Text is
parsed by the standard library, because only its hook sees a key that appears twice. The class is looked up by ``type``,
and pydantic validates that one class. What costs a walk over the whole value is done only when the text gives cause:
surrogates when it holds ``\\ud``, nulls when it holds ``null``.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn, cast

from pydantic import ValidationError

from agentsession.protocol._base import Model, null_fields
from agentsession.protocol._descriptor import AgentDescriptor
from agentsession.protocol._errors import SchemaError, UnsupportedVersion
from agentsession.protocol._events import EVENT_CLASSES, Event, UnknownEvent
from agentsession.protocol._inputs import INPUT_CLASSES, Answer, StreamInput
from agentsession.protocol._json import JsonError, check_json

__all__ = [
    "PROTOCOL_VERSION",
    "TIMESTAMP_PATTERN",
    "check_version",
    "dump_event",
    "parse_answer",
    "parse_descriptor",
    "parse_event",
    "parse_input",
    "parse_json",
    "read_ndjson",
]

PROTOCOL_VERSION: Final = "1.0"
"""``MAJOR.MINOR`` of the contract: another major is refused, another minor is read with its unknowns kept."""

TIMESTAMP_PATTERN: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+]00:00)$"
"""What the timestamp of a stamped event looks like: ISO 8601 in UTC. Writers give milliseconds or finer."""

_is_timestamp: Final = re.compile(TIMESTAMP_PATTERN.removesuffix("$") + r"\Z").match
_is_version: Final = re.compile(r"[0-9]+(\.[0-9]+)*\Z").match
_find_surrogate: Final = re.compile("[\ud800-\udfff]").search


def check_version(version: str) -> None:
    """Raise :class:`UnsupportedVersion` unless ``version`` has the major number of :data:`PROTOCOL_VERSION`."""
    if not _is_version(version):
        raise UnsupportedVersion(
            f"{version!r} is not a protocol version", expected="MAJOR.MINOR, such as " + PROTOCOL_VERSION
        )
    major = PROTOCOL_VERSION.partition(".")[0]
    if version.partition(".")[0] != major:
        raise UnsupportedVersion(
            f"protocol version {version} cannot be read",
            expected=f"{major}.x",
            fix="use a release of agent-session-protocol that speaks it",
        )


# --- text to JSON --------------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is larger than any number that can be kept")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} appears twice in one object")
            seen.add(key)
    return out


_decoder: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_no_duplicates)
"""Lets ``1e999`` through as an infinity: the models refuse it, with its place."""

_finite_decoder: Final = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_no_duplicates
)


def _decode(text: str, decoder: json.JSONDecoder) -> Any:
    if text.startswith("{"):  # the common line: an object and perhaps its line feed; a third of the time is saved
        value, end = decoder.raw_decode(text)
        if end == len(text) or text[end:] in ("\n", "\r\n"):
            return value
    return decoder.decode(text)


def _may_hold_surrogates(text: str) -> bool:
    return "\\ud" in text or "\\uD" in text or (not text.isascii() and _find_surrogate(text) is not None)


def parse_json(text: str | bytes, *, line: int | None = None) -> Any:
    """Parse strict JSON: no NaN, no infinities, no duplicate keys; surrogates are repaired.

    Raises :class:`SchemaError` naming line and column.
    """
    return _parse_text(text, line, _finite_decoder)


def _parse_text(text: str | bytes, line: int | None, decoder: json.JSONDecoder) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        text = text.removeprefix("\ufeff")
        value = _decode(text, decoder)
        return check_json(value) if _may_hold_surrogates(text) else value
    except json.JSONDecodeError as error:
        shown = error.doc[max(0, error.pos - 10) : error.pos + 20].strip()
        at = f"line {line if line is not None else error.lineno}"
        # Python words some as what it expected, others as what it found, such as "Extra data".
        is_wanted = error.msg.startswith("Expecting ")
        found = ascii(shown)[1:-1] or "the end of the text"
        raise SchemaError(
            f"{at} is not JSON",
            line=line,
            where=f"{at}, column {error.colno}",
            got=found if is_wanted else f"{error.msg.lower()}: {found}",
            expected=error.msg.removeprefix("Expecting ") if is_wanted else "one JSON value",
            fix="mend the text, or leave the line out",
            id="bad-json",
        ) from error
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"{_named(line, 'the text')} is not UTF-8",
            line=line,
            where=f"{_named(line, 'the text')}, byte {error.start}",
            expected="UTF-8 text",
            id="bad-json",
        ) from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise SchemaError(
            f"line {line or 1} is not JSON that the contract takes", line=line, got=reason, id="bad-json"
        ) from error


def _named(line: int | None, otherwise: str = "the value") -> str:
    return otherwise if line is None else f"line {line}"


# --- JSON to models ------------------------------------------------------------------------------------------------


@functools.cache
def _validator(cls: type[Model]) -> Callable[[Any], Any]:
    cls.model_rebuild()
    return functools.partial(cls.__pydantic_validator__.validate_python, by_alias=True, by_name=False)


def _invalid(what: str, line: int | None, *, pointer: str = "/", got: str, expected: str) -> SchemaError:
    return SchemaError(
        f"{_named(line)} is not a valid {what}",
        pointer=pointer,
        line=line,
        got=got if len(got) <= 60 else got[:57] + "...",
        expected=expected,
        fix="see: agentsession schema",
    )


def _first_error(error: ValidationError, what: str, line: int | None) -> SchemaError:
    first = error.errors(include_url=False)[0]
    steps: list[str] = []
    previous: int | str = ""
    for step in first["loc"]:
        # Pydantic puts the tag of a union between a part's place in its list and the key in it. Parts are the only
        # tagged unions here, and `content` and `message` the only lists of them.
        if not (isinstance(previous, int) and steps[-2:-1] and steps[-2] in ("content", "message")):
            steps.append(str(step).replace("~", "~0").replace("/", "~1"))
            previous = step
        else:
            previous = ""
    pointer = "/" + "/".join(steps)
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, JsonError):
        return _invalid(what, line, pointer=pointer + cause.path.rstrip("/"), got=cause.got, expected=cause.expected)
    got = "nothing" if first["type"] == "missing" else ascii(first["input"])
    return _invalid(what, line, pointer=pointer, got=got, expected=first["msg"])


def _read(value: str | bytes | dict[str, Any], what: str, line: int | None) -> tuple[dict[str, Any], bool]:
    """The value as a JSON object, and whether it may hold a null. A parsed value is checked and copied first."""
    if isinstance(value, (str, bytes)):
        null = b"null" in value if isinstance(value, bytes) else "null" in value
        value = _parse_text(value, line, _decoder)
    else:
        null = True
        try:
            value = check_json(value)
        except JsonError as error:
            raise _invalid(what, line, pointer=error.path, got=error.got, expected=error.expected) from error
    if not isinstance(value, dict):
        raise _invalid(what, line, got=type(value).__name__, expected="a JSON object")
    return value, null


def _validate(cls: type[Model], value: dict[str, Any], what: str, line: int | None, null: bool) -> Any:
    try:
        model = _validator(cls)(value)
    except ValidationError as error:
        raise _first_error(error, what, line) from error
    if null:
        for pointer in null_fields(model):
            raise _invalid(
                what, line, pointer=pointer, got="null", expected="a value, or no such key (absent is not null)"
            )
    return model


def parse_event(value: str | bytes | dict[str, Any], *, line: int | None = None) -> Event:
    """Read one event from JSON text or a parsed object. Raises :class:`SchemaError`. Rules: WIRE-01, WIRE-02.

    The result is an instance of one of the event classes, or an ``UnknownEvent``. It must be stamped: ``id``, ``seq``
    from 1, ``timestamp`` (UTC) and ``sessionId`` are required on the wire.
    """
    value, null = _read(value, "event", line)
    kind = value.get("type")
    cls = EVENT_CLASSES.get(kind) if isinstance(kind, str) else None
    what: str = cast(str, kind) if cls is not None else "event"
    event: Event = _validate(cls or UnknownEvent, value, what, line, null)
    if event.id and event.seq and event.session_id and _is_timestamp(event.timestamp):
        return event
    for name, stamp in (("id", event.id), ("seq", event.seq), ("sessionId", event.session_id)):
        if not stamp:
            expected = "a stamped event has id, seq, timestamp and sessionId"
            raise _invalid(what, line, pointer=f"/{name}", got="nothing" if stamp == "" else "0", expected=expected)
    got = ascii(event.timestamp) if event.timestamp else "nothing"
    raise _invalid(
        what, line, pointer="/timestamp", got=got, expected="a time in UTC, such as 2026-01-31T12:00:00.000Z"
    )


def _parse_kind(value: str | bytes | dict[str, Any], what: str, kinds: Iterable[str], line: int | None) -> Any:
    value, null = _read(value, what, line)
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        got = "nothing" if "kind" not in value else ascii(kind)
        raise _invalid(what, line, pointer="/kind", got=got, expected="one of: " + ", ".join(kinds))
    return _validate(INPUT_CLASSES[kind], value, what, line, null)


_ANSWERS: Final = tuple(kind for kind in INPUT_CLASSES if kind != "message")


def parse_answer(value: str | bytes | dict[str, Any], *, line: int | None = None) -> Answer:
    """Read one answer. Raises :class:`SchemaError`."""
    return cast(Answer, _parse_kind(value, "answer", _ANSWERS, line))


def parse_input(value: str | bytes | dict[str, Any], *, line: int | None = None) -> StreamInput:
    """Read one input of ``stream()``: a message or an answer. Raises :class:`SchemaError`."""
    return cast(StreamInput, _parse_kind(value, "input", tuple(INPUT_CLASSES), line))


def parse_descriptor(value: str | bytes | dict[str, Any]) -> AgentDescriptor:
    """Read a descriptor. Raises :class:`SchemaError`. Rule: LIFE-01."""
    value, null = _read(value, "descriptor", None)
    return cast(AgentDescriptor, _validate(AgentDescriptor, value, "descriptor", None, null))


def dump_event(event: Model) -> str:
    """One event (or other model) as one line of JSON, without the line feed."""
    return event.to_wire_json()


def read_ndjson(lines: Iterable[str | bytes]) -> Iterator[Event]:
    """Read events from NDJSON lines, blank lines skipped. Raises :class:`SchemaError` with the line's number."""
    for number, text in enumerate(lines, start=1):
        if text.strip():
            yield parse_event(text, line=number)
