"""A program that reads recorded events, as a user would write it: type-checked against the wheel, never run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, assert_type

from agentsession.protocol import (
    RULES,
    Custom,
    Event,
    Media,
    Message,
    Rule,
    SchemaError,
    Text,
    UnknownEvent,
    Usage,
    dump_event,
    parse_event,
    read_ndjson,
    wire_schema,
)


def count(path: Path) -> Counter[str]:
    with path.open(encoding="utf-8") as lines:
        return Counter(event.type for event in read_ndjson(lines))


def tokens(event: Event) -> int:
    if isinstance(event, Usage):
        assert_type(event.input_tokens, int | None)
        return event.input_tokens or 0
    return 0


def show(line: str) -> str:
    try:
        event = parse_event(line)
    except SchemaError as error:
        return f"{error.where}: expected {error.expected}, got {error.got}"
    if isinstance(event, Message):
        for part in event.content:
            if isinstance(part, Text):
                return assert_type(part.text, str)
            if isinstance(part, Media) and part.uri is not None:
                return part.uri
    if isinstance(event, (Custom, UnknownEvent)):
        return event.type
    return dump_event(event)


def explain(rule_id: str) -> str:
    rule = RULES[rule_id]
    assert_type(rule, Rule)
    return f"{rule.id} ({rule.level}): {rule.sentence}"


SCHEMA: dict[str, Any] = wire_schema()
