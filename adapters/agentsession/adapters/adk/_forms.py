"""The forms that ADK's JSON comes in: which one a value is, and its events as ADK writes them today.

Not for: validating Events (``_read``). May import: protocol, pydantic for the annotation.

Evaluation and test files hold no events but what was expected of a turn: the user's content, the tool calls, perhaps
their responses, the answer. They become the events that such a turn would have left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from agentsession.adapters.adk._values import clean_id, is_list, is_mapping, is_object, lossy_json
from agentsession.protocol import AgentSessionError, SchemaError

__all__ = ["NOT_ADK_FIX", "Found", "as_now", "sessions_in", "unknown_fields"]

_EXPECTED: Final = "ADK Events, a session dump (with events), an evaluation set (with eval_cases) or test turns (query)"
NOT_ADK_FIX: Final = "leave the file out; docs/adk-mapping.md lists the forms that are read"
_EVENT_KEYS: Final = frozenset({"author", "invocationId", "invocation_id"})
_HOLDERS: Final = frozenset({"events", "eval_cases", "evalCases", "conversation", "user_content", "userContent"})
_OLD_ACTIONS: Final = {
    "update_context": "state_delta",
    "updateContext": "state_delta",
    "update_artifact": "artifact_delta",
    "updateArtifact": "artifact_delta",
}
"""What ``options`` was called before 1.0, now in ``actions``."""
_OLD_FLAGS: Final = frozenset({"partial", "turn_complete", "turnComplete", "interrupted"})
"""What stood in ``options`` before 1.0 and is a field of the Event now."""
_NEW_ACTIONS: Final = frozenset(
    {"skip_summarization", "skipSummarization", "transfer_to_agent", "transferToAgent", "escalate"}
)

OnError = Callable[[AgentSessionError], None]


@dataclasses.dataclass(slots=True)
class Found:
    """One session in a file: its events, each with its JSON pointer."""

    session_id: str
    events: list[tuple[str, Any]]
    app_name: str | None = None
    user_id: str | None = None
    first_state: Mapping[str, Any] | None = None
    last_state: Mapping[str, Any] | None = None


def sessions_in(values: Sequence[tuple[str, Any]], name: str, on_error: OnError | None) -> Iterator[Found]:
    """The sessions in the JSON values of one file, in any form. Events beside each other are one session."""
    loose: list[tuple[str, Any]] = []
    stem = _stem(name)
    for place, value in values:
        try:
            if _is_event(value):
                loose.append((place, value))
            else:
                yield from _sessions(value, place, name, stem)
        except SchemaError as error:
            if on_error is None:
                raise
            on_error(error)
    if loose:
        yield Found(stem, loose)


def _sessions(value: Any, place: str, name: str, stem: str) -> Iterator[Found]:
    if is_list(value):
        yield from _list(value, place, name, stem)
        return
    if not is_object(value):
        raise _not_adk(name, place, type(value).__name__)
    if is_list(value.get("events")):
        yield _dump(value, place, name, stem)
        return
    cases = _field(value, "eval_cases", "evalCases")
    if is_list(cases):
        for index, case in enumerate(cases):
            yield _case(case, f"{place}/eval_cases/{index}", name, f"{stem}-{index + 1}" if len(cases) > 1 else stem)
    elif "conversation" in value:
        yield _case(value, place, name, stem)
    elif _field(value, "user_content", "userContent") is not None:
        yield _case({"conversation": [value]}, place, name, stem)
    elif is_list(value.get("data")):
        yield _turns(value["data"], f"{place}/data", name, clean_id(value.get("name")) or stem, value)
    elif "query" in value:
        yield _turns([value], place, name, stem, {})
    else:
        raise _not_adk(name, place, _keys(value))


def _list(values: list[Any], place: str, name: str, stem: str) -> Iterator[Found]:
    if not values:
        raise _not_adk(name, place, "an empty list")
    if all(_is_event(value) for value in values):
        yield Found(stem, [(f"{place}/{index}", value) for index, value in enumerate(values)])
    elif all(is_object(value) and "query" in value for value in values):
        yield _turns(values, place, name, stem, {})
    elif all(is_object(value) for value in values):
        for index, value in enumerate(values):
            one = f"{stem}-{index + 1}" if len(values) > 1 else stem
            if _is_event(value):
                yield Found(one, [(f"{place}/{index}", value)])
            else:
                yield from _sessions(value, f"{place}/{index}", name, one)
    else:
        odd = next(index for index, value in enumerate(values) if not is_object(value))
        raise _not_adk(name, f"{place}/{odd}", type(values[odd]).__name__)


def _is_event(value: Any) -> bool:
    """An Event says whose it is or has ADK's content, and is none of the forms that hold events."""
    if not is_object(value) or not _HOLDERS.isdisjoint(value):
        return False
    content = value.get("content")
    return not _EVENT_KEYS.isdisjoint(value) or (is_object(content) and "parts" in content)


def _dump(value: dict[str, Any], place: str, name: str, stem: str) -> Found:
    """A session dump: of today (``state``), or of before 1.0 (``context``, ``past_events``)."""
    events = [(f"{place}/events/{index}", event) for index, event in enumerate(value["events"])]
    past = _field(value, "past_events", "pastEvents")
    if is_list(past):
        events = [(f"{place}/past_events/{index}", event) for index, event in enumerate(past)] + events
    state = value.get("state", value.get("context"))
    if state is not None and not is_object(state):
        raise _bad(name, f"{place}/state", type(state).__name__, "an object")
    return Found(
        clean_id(value.get("id")) or stem,
        events,
        app_name=_text(_field(value, "app_name", "appName")),
        user_id=_text(_field(value, "user_id", "userId")),
        last_state=state or None,
    )


def _case(case: Any, place: str, name: str, session_id: str) -> Found:
    """An evaluation case: one session, one invocation a turn."""
    if not is_object(case):
        raise _bad(name, place, type(case).__name__, "an evaluation case")
    turns = case.get("conversation")
    if not is_list(turns):
        raise _bad(name, f"{place}/conversation", type(turns).__name__, "a list of invocations")
    given = _field(case, "session_input", "sessionInput")
    given = given if is_object(given) else {}
    app_name = _text(_field(given, "app_name", "appName"))
    events: list[tuple[str, Any]] = []
    for index, turn in enumerate(turns):
        events += _invocation(turn, f"{place}/conversation/{index}", name, app_name or "agent", index)
    state = given.get("state")
    return Found(
        session_id,
        events,
        app_name=app_name,
        user_id=_text(_field(given, "user_id", "userId")),
        first_state=state if is_object(state) and state else None,
    )


def _invocation(turn: Any, place: str, name: str, agent: str, index: int) -> list[tuple[str, Any]]:
    if not is_object(turn):
        raise _bad(name, place, type(turn).__name__, "an invocation")
    base = {
        "invocationId": _text(_field(turn, "invocation_id", "invocationId")) or f"invocation-{index + 1}",
        "timestamp": _field(turn, "creation_timestamp", "creationTimestamp") or 0.0,
    }
    out: list[tuple[str, Any]] = []

    def add(where: str, author: str, content: Any, **more: Any) -> None:
        event = {**base, "id": f"{base['invocationId']}.{len(out)}", "author": author, "content": content, **more}
        out.append((f"{place}/{where}", event))

    said = _field(turn, "user_content", "userContent")
    if said is not None:
        add("user_content", "user", said)
    between = _field(turn, "intermediate_data", "intermediateData")
    between = between if is_object(between) else {}
    responses = list(_list_of(between, "tool_responses", "toolResponses", place, name))
    for number, use in enumerate(_list_of(between, "tool_uses", "toolUses", place, name)):
        add(f"intermediate_data/tool_uses/{number}", agent, _model_part({"functionCall": use}))
        answer = _take_response(responses, use)
        if answer is not None:
            part = {"role": "user", "parts": [{"functionResponse": answer}]}
            add(f"intermediate_data/tool_responses/{number}", agent, part)
    for number, item in enumerate(_list_of(between, "invocation_events", "invocationEvents", place, name)):
        where = f"intermediate_data/invocation_events/{number}"
        if not is_object(item):
            raise _bad(name, f"{place}/{where}", type(item).__name__, "an event")
        known = {key: item[key] for key in item if key not in ("author", "content", "invocationIndex", "toolUseIndex")}
        add(where, _text(item.get("author")) or agent, item.get("content"), **known)
    for number, item in enumerate(_list_of(between, "intermediate_responses", "intermediateResponses", place, name)):
        where = f"intermediate_data/intermediate_responses/{number}"
        if not (is_list(item) and len(item) == 2 and is_list(item[1])):
            raise _bad(name, f"{place}/{where}", type(item).__name__, "an author and a list of parts")
        add(where, _text(item[0]) or agent, {"role": "model", "parts": item[1]})
    final = _field(turn, "final_response", "finalResponse")
    if final is not None:
        add("final_response", agent, final)
    return out


def _turns(turns: list[Any], place: str, name: str, session_id: str, around: Mapping[str, Any]) -> Found:
    """The older test files: a query, the tool use that was expected, and a reference answer."""
    events: list[tuple[str, Any]] = []
    for index, turn in enumerate(turns):
        where = f"{place}/{index}"
        if not is_object(turn) or not isinstance(turn.get("query"), str):
            raise _bad(name, where, _keys(turn) if is_object(turn) else type(turn).__name__, "a turn with query")
        uses = _list_of(turn, "expected_tool_use", "expectedToolUse", where, name)
        said = _list_of(
            turn, "expected_intermediate_agent_responses", "expectedIntermediateAgentResponses", where, name
        )
        made: dict[str, Any] = {
            "user_content": {"role": "user", "parts": [{"text": turn["query"]}]},
            "intermediate_data": {
                "tool_uses": [_old_use(use) for use in uses],
                "intermediate_responses": [
                    [item.get("author"), [{"text": item.get("text")}]] for item in said if is_object(item)
                ],
            },
        }
        reference = turn.get("reference")
        if isinstance(reference, str) and reference:
            made["final_response"] = {"role": "model", "parts": [{"text": reference}]}
        events += _invocation(made, where, name, "agent", index)
    first = _field(around, "initial_state", "initialState")
    first = first.get("session", first).get("state") if is_object(first) else None
    return Found(session_id, events, first_state=first if is_object(first) and first else None)


def _old_use(use: Any) -> Any:
    if not is_object(use):
        return use
    return {"name": use.get("tool_name"), "args": use.get("tool_input")}


def _take_response(responses: list[Any], use: Any) -> Any | None:
    """The response of a tool use: by id, else by name, in order."""
    if not is_object(use):
        return None
    for key in ("id", "name"):
        for index, response in enumerate(responses):
            if use.get(key) and is_object(response) and response.get(key) == use[key]:
                return responses.pop(index)
    return None


def _model_part(part: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": [part]}


def as_now(value: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """An Event of any age as ADK writes it today, and what has no place in it. The value itself is not changed."""
    data = _copy(value)
    unread: dict[str, Any] = {}
    options = data.pop("options", None)
    if is_object(options):
        actions = data.setdefault("actions", {})
        for key, item in options.items():
            if key in _OLD_FLAGS:
                data.setdefault(key, item)
            elif key in _OLD_ACTIONS or key in _NEW_ACTIONS:
                actions.setdefault(_OLD_ACTIONS.get(key, key), item)
            else:
                unread[f"/options/{key}"] = lossy_json(item)[0]
    elif options is not None:
        unread["/options"] = lossy_json(options)[0]
    return data, unread


def unknown_fields(data: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """What stands in an Event's JSON and ADK would drop without a word: taken out of ``data``, by JSON pointer."""
    known = {*model.model_fields, *(field.alias for field in model.model_fields.values() if field.alias)}
    odd = [key for key in data if key not in known]
    return {f"/{key}": lossy_json(data.pop(key))[0] for key in odd}


def _copy(value: Any) -> Any:
    if is_object(value):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if is_list(value) else value


def _list_of(fields: Mapping[str, Any], snake: str, camel: str, place: str, name: str) -> list[Any]:
    value = _field(fields, snake, camel)
    if value is None:
        return []
    if not is_list(value):
        raise _bad(name, f"{place}/{snake}", type(value).__name__, "a list")
    return value


def _field(fields: Any, *names: str) -> Any:
    if is_mapping(fields):
        for name in names:
            if fields.get(name) is not None:
                return fields[name]
    return None


def _text(value: Any) -> str | None:
    return clean_id(value) or None


def _stem(name: str) -> str:
    base = name.replace("\\", "/").rsplit("/", 1)[-1]
    for ending in (".json", ".ndjson", ".jsonl", ".session", ".test", ".evalset"):
        base = base.removesuffix(ending)
    return clean_id(base) or "session"


def _keys(value: Mapping[str, Any]) -> str:
    names = ", ".join(ascii(key)[1:-1] for key in list(value)[:5])
    return f"an object with {names or 'no keys'}" + (" …" if len(value) > 5 else "")


def _not_adk(name: str, place: str, got: str) -> SchemaError:
    return SchemaError(
        f"{name} holds no ADK JSON",
        pointer=place or "/",
        where=f"{name} at {place or '/'}",
        got=got,
        expected=_EXPECTED,
        fix=NOT_ADK_FIX,
        id="not-adk",
    )


def _bad(name: str, place: str, got: str, expected: str) -> SchemaError:
    return SchemaError(
        f"{name} looks like ADK JSON but cannot be read",
        pointer=place or "/",
        where=f"{name} at {place or '/'}",
        got=got,
        expected=expected,
        fix="mend it, or --skip-bad",
        id="schema",
    )
