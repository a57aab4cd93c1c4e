"""Wire shapes are golden files, one for each event, input and content type, changed only on purpose.

A golden file gives every field of its type. When a field is added, add it there by hand: that reviews the wire.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentsession.protocol import (
    CONTENT_CLASSES,
    EVENT_CLASSES,
    INPUT_CLASSES,
    Message,
    Model,
    UnknownEvent,
    UnknownPart,
    dump_event,
    parse_event,
    parse_input,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "protocol"


def golden(folder: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def in_a_message(part: dict[str, Any]) -> dict[str, Any]:
    return {**golden("events", "message"), "content": [part]}


def assert_gives_every_field(model: Model, wire: dict[str, Any]) -> None:
    missing = {field.alias or name for name, field in type(model).model_fields.items()} - wire.keys()
    assert not missing, f"the golden file of {type(model).__name__} does not show these fields"


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize("name", [*EVENT_CLASSES, "unknown"])
def test_an_event_is_written_as_its_golden_file_says(name: str) -> None:
    wire = golden("events", name)
    event = parse_event(wire)
    assert type(event) is EVENT_CLASSES.get(name, UnknownEvent)
    assert json.loads(dump_event(event)) == wire
    assert parse_event(dump_event(event)) == event


@pytest.mark.parametrize("name", EVENT_CLASSES)
def test_the_golden_file_of_an_event_gives_every_field(name: str) -> None:
    wire = golden("events", name)
    assert_gives_every_field(parse_event(wire), wire)


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize("name", INPUT_CLASSES)
def test_an_input_is_written_as_its_golden_file_says(name: str) -> None:
    wire = golden("inputs", name)
    given = parse_input(wire)
    assert type(given) is INPUT_CLASSES[name]
    assert json.loads(given.to_wire_json()) == wire
    assert parse_input(given.to_wire_json()) == given
    assert_gives_every_field(given, wire)


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize("name", [*CONTENT_CLASSES, "unknown"])
def test_a_content_part_is_written_as_its_golden_file_says(name: str) -> None:
    wire = golden("content", name)
    event = parse_event(in_a_message(wire))
    assert isinstance(event, Message)
    part = event.content[0]
    assert type(part) is CONTENT_CLASSES.get(name, UnknownPart)
    assert json.loads(part.to_wire_json()) == wire
    if name != "unknown":
        assert_gives_every_field(part, wire)


@pytest.mark.parametrize(
    ("folder", "classes"), [("events", EVENT_CLASSES), ("inputs", INPUT_CLASSES), ("content", CONTENT_CLASSES)]
)
def test_every_type_has_a_golden_file_and_no_file_is_left_over(folder: str, classes: dict[str, type[Model]]) -> None:
    found = {path.stem for path in (GOLDEN / folder).glob("*.json")}
    assert found - {"unknown"} == set(classes)
