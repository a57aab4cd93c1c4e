"""ADK's JSON in any of its forms, read to ADK Events: events, session dumps of any age, evaluation and test files.

Not for: translating them (``_record``). Rules carried: WIRE-02 in spirit: what cannot be read is refused by name.
May import: ``_forms``, ``_lenient``, google.adk.events, protocol.

Forms: one Event, a list of Events, NDJSON; a session dump (``{"id", "events": […]}``, camelCase or snake_case, with the
field names of before 1.0); an evaluation set or case; the older lists of turns (``query``, ``expected_tool_use``,
``reference``). Anything else is one error that names the file, the JSON pointer in it, and why.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.adk.events.event import Event as AdkEvent
from pydantic import ValidationError

from agentsession.adapters.adk._forms import NOT_ADK_FIX as _NOT_ADK_FIX
from agentsession.adapters.adk._forms import Found, as_now, sessions_in, unknown_fields
from agentsession.adapters.adk._lenient import place_in, pointer_of, remove, snake, value_at
from agentsession.adapters.adk._values import is_object, lossy_json
from agentsession.protocol import AgentSessionError, SchemaError, repair_text

__all__ = ["AdkSession", "ReadEvent", "read_adk", "read_event"]

OnError = Callable[[AgentSessionError], None]
"""Takes the error of something that is left out; without it the error is raised."""

_MOST_REPAIRS = 200


@dataclasses.dataclass(frozen=True, slots=True)
class ReadEvent:
    """One ADK Event, and what its JSON held that ADK's Event has no field for."""

    event: AdkEvent
    unread: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])


@dataclasses.dataclass(frozen=True, slots=True)
class AdkSession:
    """One session of a file: its events in their order, and what the file says of the session."""

    session_id: str
    events: list[ReadEvent]
    app_name: str | None = None
    user_id: str | None = None
    first_state: Mapping[str, Any] | None = None
    """The state before the first event, where the file says it (evaluation files)."""
    last_state: Mapping[str, Any] | None = None
    """The state after the last event, where the file says it (session dumps)."""


def read_adk(text: str | bytes, *, name: str = "input", on_error: OnError | None = None) -> list[AdkSession]:
    """All sessions in a text of ADK JSON or NDJSON.

    Args:
        text: The whole file.
        name: What errors call it: the file's name.
        on_error: Takes the error of each line, event or case that is left out. Without it the first error is raised.

    Raises:
        SchemaError: it is not JSON (``bad-json``), or not ADK's (``not-adk``), or an Event in it is not valid.
    """
    try:
        values = list(_parse(text, name, on_error))
    except UnicodeDecodeError as error:
        raise _refused(name, "/", f"{name} is not UTF-8 text", f"byte {error.start}", "UTF-8", "bad-json") from error
    sessions: list[AdkSession] = []
    for found in sessions_in(values, name, on_error):
        events = list(_events(found, name, on_error))
        sessions.append(
            AdkSession(
                found.session_id,
                events,
                app_name=found.app_name,
                user_id=found.user_id,
                first_state=found.first_state,
                last_state=found.last_state,
            )
        )
    return sessions


def read_event(value: Any, *, name: str = "input", pointer: str = "", index: int = 0) -> ReadEvent:
    """One ADK Event from parsed JSON; ``pointer`` is its place in the file ``name``.

    Fields that this ADK does not know are kept in ``unread``; arguments that are no object are put into the Event as
    they are, past ADK's own validation, so that the host sees what the model wrote.

    Raises:
        SchemaError: the value is not an Event.
    """
    if not is_object(value):
        raise _refused(name, pointer, "not an ADK Event", type(value).__name__, "an object")
    data, unread = as_now(value)
    unread |= unknown_fields(data, AdkEvent)
    if not data.get("id"):
        data["id"] = f"{data.get('invocationId') or data.get('invocation_id') or 'event'}.{index}"
    if data.get("timestamp") is None:
        data["timestamp"] = 0.0  # ADK would put the time of reading
    patches: list[tuple[tuple[str | int, ...], Any]] = []
    for _ in range(_MOST_REPAIRS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # genai warns of enum values that it does not know, and keeps them
                event = AdkEvent.model_validate(data)
            break
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_context=False):
                if not _repair(data, problem, unread, patches):
                    raise _invalid(name, pointer, problem) from error
    else:
        raise _refused(name, pointer, "not an ADK Event", "too many unknown fields", "an Event of ADK")
    for path, raw in patches:
        _set(event, path, raw)
    return ReadEvent(event, unread)


def _parse(text: str | bytes, name: str, on_error: OnError | None) -> Iterator[tuple[str, Any]]:
    """The JSON values of the text, each with its place: one value, or one a line."""
    whole = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    if not whole.strip():
        raise _refused(name, "/", f"{name} is empty", "nothing", "ADK Events as JSON or NDJSON", "not-adk")
    try:
        yield "", json.loads(whole)
        return
    except RecursionError as error:
        raise _refused(name, "/", f"{name} is nested too deep", "deep nesting", "flatter JSON", "bad-json") from error
    except ValueError as error:
        # Not splitlines(): a JSON text may hold U+2028 and the like unescaped, and they end no line of NDJSON.
        lines = [(number, line) for number, line in enumerate(whole.split("\n"), start=1) if line.strip()]
        if len(lines) < 2 or not _is_json(lines[0][1]):
            raise _not_json(error, name, whole, None) from error
    for number, line in lines:
        try:
            yield f"line {number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            _report(_not_json(error, name, line, number), on_error, error)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _events(found: Found, name: str, on_error: OnError | None) -> Iterator[ReadEvent]:
    for index, (pointer, value) in enumerate(found.events):
        try:
            yield read_event(value, name=name, pointer=pointer, index=index)
        except SchemaError as error:
            if on_error is None:
                raise
            on_error(error)


def _report(error: AgentSessionError, on_error: OnError | None, cause: Exception) -> None:
    if on_error is None:
        raise error from cause
    on_error(error)


def _repair(
    data: dict[str, Any],
    problem: Mapping[str, Any],
    unread: dict[str, Any],
    patches: list[tuple[tuple[str | int, ...], Any]],
) -> bool:
    """Take out of ``data`` what ADK refuses but the record can keep; ``False`` when it cannot be mended."""
    path = place_in(data, problem["loc"])
    if path is None:
        return False
    pointer = pointer_of(path)
    if problem["type"] == "extra_forbidden":
        unread[pointer] = lossy_json(remove(data, path))[0]
        return True
    if value_at(data, path) is None:
        remove(data, path)  # null where this ADK wants a value: the same as absent
        return True
    if path[-1] == "args":
        raw = remove(data, path)
        patches.append((path, raw))
        return True
    return False


def _set(event: Any, path: tuple[str | int, ...], value: Any) -> None:
    for step in path[:-1]:
        event = event[step] if isinstance(step, int) else getattr(event, snake(step))
    setattr(event, str(path[-1]), value)


def _invalid(name: str, pointer: str, problem: Mapping[str, Any]) -> SchemaError:
    place = f"{pointer}{pointer_of(tuple(problem['loc']))}"
    got = repair_text(repr(problem.get("input")))
    shown = got if len(got) <= 60 else got[:57] + "..."
    return _refused(name, place, f"{name} holds an Event that ADK does not take", shown, problem["msg"])


def _not_json(error: Exception, name: str, text: str, line: int | None) -> SchemaError:
    if not isinstance(error, json.JSONDecodeError):
        return _refused(name, "/", f"{name} is not JSON", repair_text(str(error)), "JSON", "bad-json")
    number = line or error.lineno
    near = repair_text(text[max(0, error.pos - 10) : error.pos + 20].strip())
    return SchemaError(
        f"{name} line {number} is not JSON",
        line=number,
        where=f"line {number}, column {error.colno}",
        got=near or "the end of the text",
        expected=error.msg.removeprefix("Expecting "),
        fix="mend it, or --skip-bad",
        id="bad-json",
    )


def _refused(name: str, pointer: str, what: str, got: str, expected: str, kind: str = "schema") -> SchemaError:
    return SchemaError(
        what,
        pointer=pointer or "/",
        where=f"{name} at {pointer or '/'}",
        got=got,
        expected=expected,
        fix=_NOT_ADK_FIX if kind == "not-adk" else "mend it, or --skip-bad",
        id=kind,
    )
