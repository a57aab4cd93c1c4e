"""Reading requests: bodies, queries and headers, strictly.

Not for: what is done with them (``_routes.py``). Rules carried: WIRE-02, TOOL-10 as far as input goes.
May import: starlette, ``_problems``, ``agentsession.protocol``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request

from agentsession.host.http._problems import Problem
from agentsession.protocol import (
    Answer,
    ExecutionOptions,
    MessageInput,
    OpenOptions,
    SchemaError,
    SessionConfig,
    SteerData,
    check_id,
    parse_answer,
    parse_input,
    parse_json,
)

__all__ = [
    "EventsQuery",
    "StreamBody",
    "read_answers",
    "read_events_query",
    "read_model",
    "read_object",
    "read_seq",
    "read_stream",
    "read_whole",
    "wants_sse",
]

M = TypeVar("M", OpenOptions, ExecutionOptions, SessionConfig, SteerData)
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_MOST_SEQ: Final = 2**53 - 1
_MOST_ANSWERS: Final = 1000
_MOST_TYPES: Final = 100


async def read_object(request: Request, known: Collection[str]) -> dict[str, Any]:
    """The body as a JSON object with no keys but ``known``; an empty one where there is no body."""
    value = await _read_json(request)
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise SchemaError(
            "the body has a key that this route does not know",
            pointer="/" + unknown[0][:40],
            got=ascii(unknown[0][:40]),
            expected="one of: " + ", ".join(known) if known else "no body, or an empty object",
        )
    return value


async def _read_json(request: Request) -> dict[str, Any]:
    # Of a key that the contract does not know in its own models, nothing is said: they are open.
    encodings = ", ".join(request.headers.getlist("content-encoding")) or "identity"
    if encodings.strip().lower() != "identity":
        raise Problem(415, "media-type", "this server takes no compressed bodies", got=ascii(encodings)[1:-1])
    body = await request.body()
    if not body:
        return {}
    kinds = ", ".join(request.headers.getlist("content-type"))
    kind, _, options = kinds.lower().partition(";")
    charset = options.replace(" ", "").replace('"', "").partition("charset=")[2] or "utf-8"
    if kind.strip() != "application/json" or charset not in ("utf-8", "utf8"):
        raise Problem(
            415,
            "media-type",
            "this route takes JSON",
            got=ascii(kinds or "no Content-Type")[1:-1],
            expected="Content-Type: application/json, in UTF-8",
        )
    value = parse_json(body)
    if not isinstance(value, dict):
        raise SchemaError("the body is not a JSON object", got=type(value).__name__, expected="a JSON object")
    return value


def read_model(cls: type[M], value: Any, what: str) -> M:
    """``value`` as a model of the contract. Raises :class:`SchemaError`, naming the place."""
    if not isinstance(value, dict):
        raise SchemaError(f"the {what} are no JSON object", got=type(value).__name__, expected="a JSON object")
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        pointer = "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in first["loc"])
        raise SchemaError(
            f"the {what} are not valid",
            pointer=pointer[:200],
            expected=first["msg"],
            fix="see: agentsession schema, or /openapi.json",
        ) from error


async def read_whole(request: Request, cls: type[M], what: str) -> M:
    """The whole body as a model."""
    return read_model(cls, await _read_json(request), what)


@dataclasses.dataclass(frozen=True, slots=True)
class StreamBody:
    """What a call of ``stream`` brings."""

    input: MessageInput | list[Answer] | None
    options: ExecutionOptions | None


async def read_stream(request: Request) -> StreamBody:
    """The body of ``POST stream``."""
    body = await read_object(request, ("input", "options"))
    given = body.get("input")
    taken: MessageInput | list[Answer] | None
    if "input" not in body:
        taken = None
    elif isinstance(given, list):
        taken = read_answers(given)
    elif isinstance(given, str | dict):
        # Text is what the person says, as for stream() of the contract; parse_input would take it for JSON.
        if isinstance(given, str):
            given = {"kind": "message", "content": given}
        one = parse_input(given)
        taken = one if isinstance(one, MessageInput) else [one]
    else:
        raise SchemaError(
            "the input is no text, no message and no list of answers",
            pointer="/input",
            got=type(given).__name__,
            expected="a string, an object, or a list of objects",
        )
    options = read_model(ExecutionOptions, body["options"], "options") if "options" in body else None
    return StreamBody(taken, options)


def read_answers(given: Any) -> list[Answer]:
    """A list of answers. Raises :class:`SchemaError`."""
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise SchemaError(
            "the answers are no list of objects", pointer="/answers", got=type(given).__name__, expected="a list"
        )
    if not 0 < len(given) <= _MOST_ANSWERS:
        raise SchemaError(
            "the list of answers is empty or too long",
            pointer="/answers",
            got=f"{len(given)} answers",
            expected=f"1 to {_MOST_ANSWERS}",
        )
    return [parse_answer(item) for item in given]


def read_seq(value: Any, name: str) -> int:
    """A whole number of a body that is a place in the record."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_SEQ:
        raise SchemaError(
            f"{name} is no place in the record",
            pointer=f"/{name}",
            got="nothing" if value is None else ascii(value)[:40],
            expected="a seq: a whole number from 0",
        )
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class EventsQuery:
    """What of a record is wanted."""

    after: int
    follow: bool
    is_sse: bool
    is_resumed: bool
    """The place came in ``Last-Event-ID``."""
    wants_hold: bool
    """The agent shall wait for this reader (``Prefer: hold``)."""
    types: frozenset[str] | None
    stream_id: str | None
    thread_id: str | None
    limit: int


def wants_sse(headers: Headers) -> bool:
    """Whether the client asks for server-sent events by name: one that takes anything gets JSON."""
    accepted = ",".join(headers.getlist("accept"))
    kinds = (item.partition(";")[0].strip().lower() for item in accepted.split(","))
    return "text/event-stream" in kinds


def _wants_hold(headers: Headers) -> bool:
    # A preference (RFC 7240): what is not known in that header is no error.
    kinds = (item.partition(";")[0].strip().lower() for given in headers.getlist("prefer") for item in given.split(","))
    return "hold" in kinds


def read_events_query(request: Request) -> EventsQuery:
    """The query of ``GET events``. Raises :class:`Problem`."""
    given: dict[str, str] = {}
    raw = request.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError as error:
        raise _malformed("the query", raw[:40], "percent-encoded UTF-8, at most 20 values") from error
    for name, value in pairs:
        if name not in ("after", "follow", "types", "streamId", "threadId", "limit"):
            raise _malformed("the query", name[:40], "after, follow, types, streamId, threadId, limit")
        if name in given:
            raise _malformed(name, "it twice", "it once")
        given[name] = value
    is_sse = wants_sse(request.headers)
    last = ", ".join(request.headers.getlist("last-event-id"))
    after = _number("after", given.get("after", "0"), 0, _MOST_SEQ)
    if last:
        after = _number("Last-Event-ID", last, 0, _MOST_SEQ)
    follow = given.get("follow", "true" if is_sse else "false")
    if follow not in ("true", "false"):
        raise _malformed("follow", follow[:40], "true or false")
    if follow == "true" and not is_sse:
        raise _malformed("follow", "true without Accept: text/event-stream", "false, or that header")
    types = given["types"].split(",") if "types" in given else None
    if types is not None and (len(types) > _MOST_TYPES or not all(types)):
        raise _malformed("types", given["types"][:40], f"1 to {_MOST_TYPES} event types, separated by commas")
    for name in ("streamId", "threadId"):
        if name in given:
            check_id(given[name], name)
    return EventsQuery(
        after,
        follow == "true",
        is_sse,
        bool(last),
        _wants_hold(request.headers),
        None if types is None else frozenset(types),
        given.get("streamId"),
        given.get("threadId"),
        _number("limit", given.get("limit", "100"), 1, 1000),
    )


def _number(name: str, text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise _malformed(name, text[:40], f"a whole number from {least} to {most}")
    return int(text)


def _malformed(name: str, got: str, expected: str) -> Problem:
    return Problem(400, "bad-request", f"{name} cannot be read", got=ascii(got)[1:-1], expected=expected)
