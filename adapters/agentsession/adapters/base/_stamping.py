"""Making events of what was validated before, or is known to need it not: the frequent cases, made by hand.

Not for: deciding whether it may be emitted (the state machine does). May import: ``agentsession.protocol``.

Events are frozen models, already validated when they were built. Copying one with pydantic's ``model_copy`` costs as
much as the rest of emitting it together, so the copy is made by hand here, in one place, from the four slots that
every pydantic model has.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from pydantic import BaseModel

from agentsession.protocol import Event, Message, Text, Thought, check_json

__all__ = ["delta", "delta_template", "restamp", "stamp", "unvalidated"]

E = TypeVar("E", bound=Event)
M = TypeVar("M", bound=BaseModel)

_STAMPS = frozenset({"id", "seq", "timestamp", "session_id", "stream_id", "turn_id", "agent_id", "thread_id", "source"})
_new: Any = object.__new__  # its type wants a class that takes no fields
# The slots' own setters: ``object.__setattr__`` looks each of them up again, for every event.
_set_fields: Any = BaseModel.__dict__["__dict__"].__set__
_set_given: Any = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra: Any = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private: Any = BaseModel.__dict__["__pydantic_private__"].__set__


def stamp(
    event: E,
    id: str,
    seq: int,
    timestamp: str,
    session_id: str,
    stream_id: str | None,
    turn_id: str | None,
    agent_id: str | None,
    thread_id: str | None,
    source: str,
) -> E:
    """A copy of ``event`` with the base fields set."""
    fields = event.__dict__.copy()
    fields["id"] = id
    fields["seq"] = seq
    fields["timestamp"] = timestamp
    fields["session_id"] = session_id
    fields["stream_id"] = stream_id
    fields["turn_id"] = turn_id
    fields["agent_id"] = agent_id
    fields["thread_id"] = thread_id
    fields["source"] = source
    if "args" in fields:
        # The record's own copy: a tool that changes its arguments while it works must not change what was asked.
        fields["args"] = check_json(fields["args"])
    return _build(type(event), fields, event.model_fields_set | _STAMPS, event.model_extra)


def restamp(event: E, **changes: Any) -> E:
    """A copy of ``event`` with some fields changed; for values that were validated elsewhere."""
    return _build(
        type(event), {**event.__dict__, **changes}, event.model_fields_set | changes.keys(), event.model_extra
    )


def unvalidated(kind: type[E], fields: dict[str, Any]) -> E:
    """What ``kind(**fields)`` makes, for fields that it would take as they are.

    So: by their Python names, all that are required, ids of the contract, repaired text, and JSON that is plain and
    nobody else's. Validating costs more than translating a call.
    """
    defaults, lists = _defaults(kind)
    values = defaults | fields
    for name in lists:
        if name not in fields:
            values[name] = []
    return _build(kind, values, set(fields), {})


@functools.cache
def _defaults(kind: type[Event]) -> tuple[dict[str, Any], list[str]]:
    """A value for each field, in their order, and the fields whose default is a new list."""
    fields = kind.model_fields
    lists = [name for name, field in fields.items() if field.default_factory is list]
    return {name: field.default for name, field in fields.items()}, lists


def _build(kind: type[M], fields: dict[str, Any], given: set[str], extra: dict[str, Any] | None) -> M:
    made: M = _new(kind)
    _set_fields(made, fields)
    _set_given(made, given)
    _set_extra(made, extra)
    _set_private(made, None)
    return made


_PARTS: dict[str, tuple[Any, dict[str, Any]]] = {  # Any: pyright cannot make an instance of a union of classes
    "text": (Text, dict(Text(text="").__dict__)),
    "thought": (Thought, dict(Thought(text="").__dict__)),
}
_DELTA_GIVEN = set(_STAMPS | {"message_id", "role", "content", "partial", "index"})
_PART_GIVEN = {"text"}
_NO_EXTRA: dict[str, Any] = {}


def delta_template(
    message_id: str,
    role: str,
    session_id: str,
    stream_id: str | None,
    turn_id: str | None,
    agent_id: str | None,
    thread_id: str | None,
) -> dict[str, Any]:
    """What all deltas of a message in a stream have in common, for :func:`delta`. Validated here, once for all."""
    first = Message(
        message_id=message_id,
        role=role,
        content=[],
        partial=True,
        index=0,
        session_id=session_id,
        stream_id=stream_id,
        turn_id=turn_id,
        agent_id=agent_id,
        thread_id=thread_id,
    )
    return dict(first.__dict__)


def delta(template: dict[str, Any], kind: str, text: str, index: int, seq: int, timestamp: str) -> Message:
    """A stamped partial message of one text or thought part: by far the most frequent event, so made in one go.

    ``text`` is a repaired string: the caller's joiner made it. Deltas are frozen like every event, so they share the
    sets that say which fields were given.
    """
    part_type, part_fields = _PARTS[kind]
    fields = part_fields.copy()
    fields["text"] = text
    part = _build(part_type, fields, _PART_GIVEN, _NO_EXTRA)
    fields = template.copy()
    fields["id"] = f"e{seq}"
    fields["seq"] = seq
    fields["timestamp"] = timestamp
    fields["index"] = index
    fields["content"] = [part]
    return _build(Message, fields, _DELTA_GIVEN, _NO_EXTRA)
