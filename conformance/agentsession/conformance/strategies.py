"""Hypothesis strategies for everything on the wire, for the tests of executors, hosts, stores and clients.

For: ``@given(events())`` and the like; every value drawn is valid and survives a round trip.
Not for: sequences of calls on a live session (the suite's engine does those). May import: ``agentsession.protocol``,
hypothesis (``pip install "agent-session-protocol[conformance]"``).

Rules carried: WIRE-01, WIRE-02 (what is drawn holds every known type, unknown ones, and unknown fields in known ones).
Texts hold what breaks careless code: NUL, halves of emoji that were repaired, marks of direction, line separators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

try:
    from hypothesis import strategies as st
except ImportError as error:  # pragma: no cover  # hypothesis is part of the development environment
    raise ImportError(
        'agentsession.conformance.strategies needs hypothesis: pip install "agent-session-protocol[conformance]"'
    ) from error

from agentsession.conformance._walk import Walk
from agentsession.protocol import (
    CAPABILITIES,
    CONTENT_CLASSES,
    CONTENT_TYPES,
    EVENT_CLASSES,
    EVENT_TYPES,
    INPUT_CLASSES,
    AgentDescriptor,
    ContentPart,
    Decision,
    Event,
    Model,
    StreamInput,
    ToolDescriptor,
    UnknownEvent,
    UnknownPart,
    args_digest,
)

__all__ = [
    "content_parts",
    "descriptors",
    "events",
    "ids",
    "inputs",
    "json_objects",
    "json_values",
    "records",
    "texts",
    "timestamps",
    "tool_descriptors",
]

_AWKWARD: Final = ("", "\x00", "\u2028", "\u202eabc", "👩‍👩‍👧‍👦", "�", "\\ud800", 'a"b\\c', "null", "ß" * 40)
_BIG: Final = 2**70

_Fields = dict[str, st.SearchStrategy[Any]]


def texts() -> st.SearchStrategy[str]:
    """Any text that UTF-8 can say, often an awkward one."""
    return st.sampled_from(_AWKWARD) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def ids() -> st.SearchStrategy[str]:
    """An identifier: opaque, not empty."""
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def timestamps() -> st.SearchStrategy[str]:
    """A time in UTC, as a stamped event carries it."""
    zones = st.sampled_from(["Z", "+00:00"])
    return st.tuples(st.datetimes(), zones).map(lambda pair: pair[0].isoformat(timespec="milliseconds") + pair[1])


def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value, with ``null``, large integers and nested objects."""
    finite = st.floats(allow_nan=False, allow_infinity=False)
    leaf = st.none() | st.booleans() | st.integers(-_BIG, _BIG) | finite | texts()
    return st.recursive(leaf, lambda inner: st.lists(inner, max_size=3) | _objects(inner), max_leaves=6)


def _objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts(), values, max_size=3)


def json_objects() -> st.SearchStrategy[dict[str, Any]]:
    """Any JSON object."""
    return _objects(json_values())


def _open(*known: str) -> st.SearchStrategy[str]:
    """A value of an open set: one of the known, or one that this version does not know."""
    return st.sampled_from([*known, "x-not-known"])


def _unknown_fields() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts().map(lambda key: "x-" + key), json_values(), max_size=2)


def _model(cls: type[Any], required: _Fields, optional: _Fields) -> st.SearchStrategy[Any]:
    """An instance with the required fields, some of the optional ones, and sometimes fields that no version knows."""

    def build(fields: dict[str, Any], unknown: dict[str, Any]) -> Any:
        return cls(**fields, **unknown)

    none: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({})
    return st.builds(build, st.fixed_dictionaries(required, optional=optional), none | _unknown_fields())


_COUNT: Final = st.integers(0, _BIG)
_NUMBER: Final = st.floats(allow_nan=False, allow_infinity=False)

# --- content ---------------------------------------------------------------------------------------------------------


def _part_fields() -> dict[str, tuple[_Fields, _Fields]]:
    text, some = texts(), json_values()
    return {
        "text": ({"text": text}, {"signature": text}),
        "thought": ({"text": text}, {"signature": text}),
        "media": ({"mime_type": text}, {"data": text, "uri": text, "name": text}),
        "reference": ({"uri": text}, {"title": text, "mime_type": text}),
        "refusal": ({"text": text}, {}),
        "code": ({"code": text}, {"language": text}),
        "code_result": ({"output": text}, {"outcome": text}),
        "function_call": ({"name": text}, {"id": text, "args": json_objects()}),
        "function_response": ({"name": text}, {"id": text, "response": some}),
        "diff": ({"path": text}, {"old_text": text, "new_text": text, "patch": text}),
        "terminal": (
            {},
            {"terminal_id": text, "command": text, "output": text, "exit_code": st.integers(-_BIG, _BIG)},
        ),
    }


def _unknown_type(known: Collection[str]) -> st.SearchStrategy[str]:
    return ids().map(lambda name: "x_" + name).filter(lambda name: name not in known)


def content_parts(types: Collection[str] | None = None) -> st.SearchStrategy[ContentPart]:
    """One content part; ``types`` limits it to those known types, else all of them and unknown ones are drawn."""
    fields = _part_fields()
    chosen = fields if types is None else {name: fields[name] for name in types}
    parts = [_model(CONTENT_CLASSES[name], *given) for name, given in chosen.items()]
    if types is None:
        parts.append(_model(UnknownPart, {"type": _unknown_type(CONTENT_TYPES)}, {}))
    return st.one_of(parts)


def _content() -> st.SearchStrategy[list[ContentPart]]:
    return st.lists(content_parts(), max_size=3)


# --- descriptors -----------------------------------------------------------------------------------------------------


def _names() -> st.SearchStrategy[str]:
    return st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)


def tool_descriptors() -> st.SearchStrategy[ToolDescriptor]:
    """One tool."""
    found: st.SearchStrategy[ToolDescriptor] = _model(
        ToolDescriptor,
        {"name": ids()},
        {
            "display_name": texts(),
            "description": texts(),
            "parameters_schema": json_objects(),
            "output_schema": json_objects(),
            "annotations": st.fixed_dictionaries(
                {}, optional={"read_only": st.booleans(), "destructive": st.booleans(), "category": texts()}
            ),
            "owner": _open("agent", "host"),
        },
    )
    return found


def descriptors() -> st.SearchStrategy[AgentDescriptor]:
    """One agent, with sub-agents up to two levels deep."""
    fields: _Fields = {
        "display_name": texts(),
        "input_schema": json_objects(),
        "capabilities": st.lists(st.sampled_from(sorted(CAPABILITIES)) | texts(), max_size=4),
        "own_tools": st.lists(tool_descriptors(), max_size=2),
        "required_tools": st.lists(texts(), max_size=2),
        "composition": st.fixed_dictionaries(
            {"pattern": _open("hierarchical", "sequential", "parallel", "loop", "transfer")},
            optional={"max_iterations": st.integers(1, 9), "transfer_targets": st.lists(texts(), max_size=2)},
        ),
        "constraints": st.fixed_dictionaries(
            {}, optional={"max_turns": st.integers(1, 9), "max_budget_usd": st.floats(0.01, 1e6)}
        ),
        "metadata": st.fixed_dictionaries({}, optional={"version": texts(), "experimental": st.booleans()}),
    }
    required: _Fields = {"name": _names(), "executor": ids()}
    leaf = _model(AgentDescriptor, required, fields)
    found: st.SearchStrategy[AgentDescriptor] = _model(
        AgentDescriptor, required, {**fields, "sub_agents": st.lists(leaf, max_size=2)}
    )
    return found


# --- events ----------------------------------------------------------------------------------------------------------


def _stamps() -> _Fields:
    return {"id": ids(), "seq": st.integers(1, _BIG), "timestamp": timestamps(), "session_id": ids()}


def _places() -> _Fields:
    return {
        "stream_id": ids(),
        "turn_id": ids(),
        "agent_id": ids(),
        "thread_id": ids(),
        "source": _open("agent", "user", "host", "ext:tracer"),
        "meta": json_objects(),
    }


def _without(fields: _Fields, others: _Fields) -> _Fields:
    return {name: field for name, field in fields.items() if name not in others}


def _event_fields() -> dict[str, tuple[_Fields, _Fields]]:
    text, some, obj, flag, name = texts(), json_values(), json_objects(), st.booleans(), ids()
    content = _content()
    return {
        "initialize": (
            {"protocol_version": text, "descriptor": descriptors()},
            {"workspace": text, "config_schema": obj},
        ),
        "session_update": (
            {},
            {
                "title": text,
                "model": text,
                "permission_mode": text,
                "state_delta": obj,
                "config": obj,
                "state_snapshot": some,
                "state_patch": st.lists(obj, max_size=2),
                "tools": st.lists(tool_descriptors(), max_size=2),
            },
        ),
        "agent_start": ({"agent_id": name}, {"parent_thread_id": name, "resumed": flag}),
        "agent_end": (
            {"agent_id": name},
            {"reason": _open("completed", "input_required", "handoff"), "result": some, "data": some},
        ),
        "message": (
            {"message_id": name, "content": content},
            {"role": _open("user", "agent"), "partial": flag, "index": _COUNT, "interrupted": flag, "revised": flag},
        ),
        "tool_request": (
            {"request_id": name, "name": text},
            {
                "args": obj,
                "args_delta": text,
                "owner": _open("agent", "host"),
                "message_id": name,
                "needs": _open("result", "grant", "none"),
                "display": obj,
                "long_running": flag,
                "partial": flag,
            },
        ),
        "tool_decision": (
            {
                "request_id": name,
                "decision": _open("granted", "denied"),
                "args_digest": st.just(args_digest({})),
            },
            {"args": obj, "by": text, "reason": text},
        ),
        "tool_update": (
            {"request_id": name},
            {"content": content, "data": some, "progress": _NUMBER, "total": _NUMBER, "display": obj},
        ),
        "tool_response": (
            {"request_id": name, "name": text},
            {
                "content": content,
                "data": some,
                "is_error": flag,
                "display": obj,
                "status": _open("completed", "failed", "denied", "cancelled", "unknown"),
            },
        ),
        "elicitation_request": (
            {"request_id": name, "kind": _open("tool_confirmation", "auth_required"), "message": text},
            {
                "title": text,
                "requested_schema": obj,
                "context": some,
                "tool_request_id": name,
                "display": _open("inline", "modal"),
                "url": text,
                "expires_at": text,
            },
        ),
        "elicitation_response": (
            {"request_id": name, "action": _open("accept", "decline", "cancel")},
            {"content": some},
        ),
        "usage": (
            {},
            {
                "model": text,
                "input_tokens": _COUNT,
                "output_tokens": _COUNT,
                "cached_tokens": _COUNT,
                "reasoning_tokens": _COUNT,
                "total_tokens": _COUNT,
                "context_window": _COUNT,
                "cost": st.floats(0, 1e9),
            },
        ),
        "error": ({"status": _open("INTERNAL", "UNAVAILABLE"), "message": text}, {"fatal": flag, "code": text}),
        "stream_end": (
            {"reason": _open("completed", "input_required", "failed", "aborted")},
            {"pending": st.lists(name, max_size=3), "data": obj},
        ),
        "custom": ({"kind": name}, {"data": some}),
    }


def events(types: Collection[str] | None = None) -> st.SearchStrategy[Event]:
    """One stamped event on its own; ``types`` limits it to those known types, else unknown ones are drawn too.

    Single events are valid, but in no order that a session would record: see :func:`records` for that.
    """
    fields = _event_fields()
    chosen = fields if types is None else {name: fields[name] for name in types}
    found = [
        _model(EVENT_CLASSES[name], {**_stamps(), **required}, {**_without(_places(), required), **optional})
        for name, (required, optional) in chosen.items()
    ]
    if types is None:
        found.append(_model(UnknownEvent, {**_stamps(), "type": _unknown_type(EVENT_TYPES)}, _places()))
    return st.one_of(found)


def inputs(kinds: Collection[str] | None = None) -> st.SearchStrategy[StreamInput]:
    """One input of ``stream()``: a message or an answer."""
    text, some, obj, name, content = texts(), json_values(), json_objects(), ids(), _content()
    decision = st.builds(Decision, by=_open("policy", "user"), reason=text)
    answer: _Fields = {"name": text, "decision": decision}
    fields: dict[str, tuple[_Fields, _Fields]] = {
        "message": (
            {"content": content},
            {"role": _open("user", "developer"), "message_id": name, "idempotency_key": name},
        ),
        "tool_result": ({"request_id": name}, {"content": content, "data": some, "is_error": st.booleans(), **answer}),
        "tool_grant": ({"request_id": name}, {"args": obj, **answer}),
        "tool_denial": ({"request_id": name}, {"reason": text, **answer}),
        "tool_progress": (
            {"request_id": name},
            {"content": content, "data": some, "progress": _NUMBER, "total": _NUMBER, **answer},
        ),
        "elicitation_response": (
            {"request_id": name, "action": _open("accept", "decline", "cancel")},
            {"content": some, **answer},
        ),
    }
    chosen = fields if kinds is None else {kind: fields[kind] for kind in kinds}
    return st.one_of([_model(_input_class(kind), *given) for kind, given in chosen.items()])


def _input_class(kind: str) -> type[Model]:
    return INPUT_CLASSES[kind]


# --- records ---------------------------------------------------------------------------------------------------------


@st.composite
def records(draw: Callable[[st.SearchStrategy[Any]], Any], max_steps: int = 25) -> list[Event]:
    """The events of a whole session in an order that the contract allows, cut off anywhere."""

    def choose(options: list[Any]) -> Any:
        return draw(st.sampled_from(options))

    walk = Walk(choose)
    for _ in range(draw(st.integers(1, max_steps))):
        walk.step(choose(walk.legal()))
    return walk.events
