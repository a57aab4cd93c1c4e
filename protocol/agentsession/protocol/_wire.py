"""Reading and writing the wire: JSON to events and inputs, NDJSON lines, the published schema, the version check.

Not for: transports. Rules carried: WIRE-01, WIRE-02, LIFE-01. May import: the models, ``_errors``.

A known type with a malformed payload raises :class:`SchemaError`; it never becomes an unknown event.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from pydantic import TypeAdapter, ValidationError

from agentsession.protocol._base import Model, null_fields
from agentsession.protocol._descriptor import AgentDescriptor
from agentsession.protocol._errors import SchemaError, UnsupportedVersion
from agentsession.protocol._events import EVENT_TYPES, AgentEvent, Event
from agentsession.protocol._inputs import Answer, StreamInput

__all__ = [
    "PROTOCOL_VERSION",
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


@functools.cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    types: dict[str, Any] = {"event": AgentEvent, "answer": Answer, "input": StreamInput, "descriptor": AgentDescriptor}
    return TypeAdapter(types[kind])


def check_version(version: str) -> None:
    """Raise :class:`UnsupportedVersion` unless ``version`` has the major number of :data:`PROTOCOL_VERSION`."""
    major, _, minor = version.partition(".")
    if not (major.isascii() and major.isdigit() and (minor == "" or minor.split(".")[0].isdigit())):
        raise UnsupportedVersion(
            f"{version!r} is not a protocol version", expected="MAJOR.MINOR, such as " + PROTOCOL_VERSION
        )
    if major != PROTOCOL_VERSION.partition(".")[0]:
        raise UnsupportedVersion(
            f"protocol version {version} cannot be read",
            expected=f"{PROTOCOL_VERSION.partition('.')[0]}.x",
            fix="use a release of agent-session-protocol that speaks it",
        )


def parse_json(text: str | bytes, *, line: int | None = None) -> Any:
    """Parse strict JSON: no NaN, no infinities, no duplicate keys. Raises :class:`SchemaError` naming line and column."""
    place = f"line {line}, " if line is not None else ""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        shown = error.doc[max(0, error.pos - 10) : error.pos + 20].strip()
        at = f"line {line}" if line is not None else f"line {error.lineno}"
        raise SchemaError(
            f"{at} is not JSON",
            line=line,
            where=f"{at}, column {error.colno}",
            got=shown or "the end of the text",
            expected=error.msg.removeprefix("Expecting "),
            fix="mend the text, or leave the line out",
            id="bad-json",
        ) from error
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"{place}byte {error.start} is not UTF-8", line=line, expected="UTF-8 text", id="bad-json"
        ) from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise SchemaError(
            f"line {line or 1} is not JSON that the contract takes", line=line, got=reason, id="bad-json"
        ) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # set.add in an expression on purpose
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return out


def _first_error(error: ValidationError, what: str, line: int | None) -> SchemaError:
    first = error.errors(include_url=False, include_context=False)[0]
    known = {*EVENT_TYPES, "?"}
    steps = [str(step) for index, step in enumerate(first["loc"]) if not (index == 0 and step in known)]
    pointer = "/" + "/".join(steps)
    got = repr(first.get("input"))
    return SchemaError(
        f"{f'line {line}' if line is not None else 'the value'} is not a valid {what}",
        pointer=pointer,
        line=line,
        got=got if len(got) <= 60 else got[:57] + "...",
        expected=first["msg"],
        fix="see: agentsession schema",
    )


def _parse(kind: str, what: str, value: Any, line: int | None) -> Any:
    if isinstance(value, (str, bytes)):
        value = parse_json(value, line=line)
    if not isinstance(value, dict):
        raise SchemaError(
            f"{f'line {line}' if line is not None else 'the value'} is not a valid {what}",
            line=line,
            got=type(value).__name__,
            expected="a JSON object",
        )
    try:
        model = _adapter(kind).validate_python(value, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _first_error(error, what, line) from error
    for pointer in null_fields(model):
        raise SchemaError(
            f"{f'line {line}' if line is not None else 'the value'} is not a valid {what}",
            pointer=pointer,
            line=line,
            got="null",
            expected="a value, or no such key (absent is not null)",
        )
    return model


def parse_event(value: str | bytes | dict[str, Any], *, line: int | None = None) -> Event:
    """Read one event from JSON text or a parsed object. Raises :class:`SchemaError`. Rules: WIRE-01, WIRE-02.

    The result is an instance of one of the event classes, or an ``UnknownEvent``. It must be stamped: ``id``, ``seq``
    from 1, ``timestamp`` and ``sessionId`` are required on the wire.
    """
    if isinstance(value, (str, bytes)):
        value = parse_json(value, line=line)
    kind = value.get("type") if isinstance(value, dict) else None
    what = kind if isinstance(kind, str) and kind in EVENT_TYPES else "event"
    event = cast(Event, _parse("event", what, value, line))
    for name, stamped in (
        ("id", event.id),
        ("seq", event.seq),
        ("timestamp", event.timestamp),
        ("sessionId", event.session_id),
    ):
        if not stamped:
            raise SchemaError(
                f"{f'line {line}' if line is not None else 'the value'} is not a valid {what}",
                pointer=f"/{name}",
                line=line,
                got="nothing" if stamped != 0 else "0",
                expected="a stamped event has id, seq, timestamp and sessionId",
            )
    return event


def parse_answer(value: str | bytes | dict[str, Any], *, line: int | None = None) -> Answer:
    """Read one answer. Raises :class:`SchemaError`."""
    return cast(Answer, _parse("answer", "answer", value, line))


def parse_input(value: str | bytes | dict[str, Any], *, line: int | None = None) -> StreamInput:
    """Read one input of ``stream()``: a message or an answer. Raises :class:`SchemaError`."""
    return cast(StreamInput, _parse("input", "input", value, line))


def parse_descriptor(value: str | bytes | dict[str, Any]) -> AgentDescriptor:
    """Read a descriptor. Raises :class:`SchemaError`. Rule: LIFE-01."""
    return cast(AgentDescriptor, _parse("descriptor", "descriptor", value, None))


def dump_event(event: Model) -> str:
    """One event (or other model) as one line of JSON, without the line feed."""
    return event.to_wire_json()


def read_ndjson(lines: Iterable[str | bytes]) -> Iterator[Event]:
    """Read events from NDJSON lines, blank lines skipped. Raises :class:`SchemaError` with the line's number."""
    for number, text in enumerate(lines, start=1):
        if text.strip():
            yield parse_event(text.strip(), line=number)
