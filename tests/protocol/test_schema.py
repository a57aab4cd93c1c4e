"""The published JSON Schema: valid draft 2020-12, current, and of one mind with ``parse_event``."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.protocol.test_golden import golden

from agentsession.conformance.strategies import descriptors, events, inputs, json_values, records
from agentsession.protocol import (
    EVENT_CLASSES,
    INPUT_CLASSES,
    SCHEMA_ID,
    AgentDescriptor,
    Event,
    SchemaError,
    SessionMachine,
    StreamInput,
    descriptor_schema,
    event_schema,
    input_schema,
    parse_event,
    parse_input,
    wire_schema,
)

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "reference" / "agentsession.schema.json"
WRONG: list[Any] = [None, True, 7, -1, 0.5, "", "text", [], [None], {}, {"a": None}]


@functools.cache
def validator(name: str) -> Any:
    """A validator of one definition of the schema, or of ``event``, ``input`` or ``descriptor``."""
    documents = {"event": event_schema, "input": input_schema, "descriptor": descriptor_schema}
    schema = documents[name]() if name in documents else {**wire_schema(), "$ref": f"#/$defs/{name}"}
    return jsonschema.Draft202012Validator(schema)


def parses(value: dict[str, Any]) -> bool:
    try:
        parse_event(json.dumps(value))
    except SchemaError:
        return False
    return True


def same(value: dict[str, Any], definition: str = "event") -> bool:
    """Whether schema and parser are of one mind about an event."""
    return bool(validator(definition).is_valid(value)) is parses(value)


def keys_of(value: Any) -> list[Any]:
    """The keys of an object, the places of a list."""
    if isinstance(value, dict):
        return sorted(cast(dict[str, Any], value))
    return [place for place, _ in enumerate(cast(Any, value))] if isinstance(value, list) else []


@pytest.mark.rule("WIRE-01", "LIFE-01")
@pytest.mark.parametrize("make", [wire_schema, event_schema, input_schema, descriptor_schema])
def test_each_document_is_valid_draft_2020_12(make: Any) -> None:
    schema = make()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].startswith(SCHEMA_ID)
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.rule("WIRE-01")
def test_the_published_schema_is_current() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == wire_schema(), "run `make docs`"


def test_no_definition_refers_to_one_that_is_missing() -> None:
    text = json.dumps(wire_schema())
    referred = {piece.partition('"')[0] for piece in text.split('"$ref": "#/$defs/')[1:]}
    assert referred <= wire_schema()["$defs"].keys()


def test_a_known_event_matches_one_branch_of_the_union() -> None:
    for name, cls in EVENT_CLASSES.items():
        matching = [
            d for d in (c.__name__ for c in EVENT_CLASSES.values()) if validator(d).is_valid(golden("events", name))
        ]
        assert matching == [cls.__name__]
        assert not validator("UnknownEvent").is_valid(golden("events", name))


@pytest.mark.rule("WIRE-01")
@settings(max_examples=60)
@given(events())
def test_every_event_validates(event: Event) -> None:
    validator("event").validate(event.to_wire())


@pytest.mark.rule("WIRE-01")
@settings(max_examples=20)
@given(records(max_steps=12))
def test_every_event_of_a_record_validates(record: list[Event]) -> None:
    for event in record:
        validator("event").validate(event.to_wire())
    validator("MachineSnapshot").validate(SessionMachine.fold(record).snapshot().to_wire())


@settings(max_examples=40)
@given(inputs())
def test_every_input_validates(value: StreamInput) -> None:
    validator("input").validate(value.to_wire())


@pytest.mark.rule("LIFE-01")
@settings(max_examples=40)
@given(descriptors())
def test_every_descriptor_validates(descriptor: AgentDescriptor) -> None:
    validator("descriptor").validate(descriptor.to_wire())


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize("kind", [*EVENT_CLASSES, "unknown"])
def test_schema_and_parser_agree_on_a_wrong_value_in_every_field(kind: str) -> None:
    right = golden("events", kind)
    definition = EVENT_CLASSES[kind].__name__ if kind in EVENT_CLASSES else "UnknownEvent"
    for field in right:
        for value in WRONG:
            if not (field == "type" and isinstance(value, str) and value):  # that would be an event of another type
                assert same({**right, field: value}, definition), f"{field} = {value!r}"
        assert same({key: item for key, item in right.items() if key != field}, definition), f"no {field}"


@pytest.mark.rule("WIRE-02")
@settings(max_examples=60)
@given(st.data(), st.sampled_from(sorted(EVENT_CLASSES)), json_values())
def test_schema_and_parser_agree_on_any_value_anywhere(data: st.DataObject, kind: str, value: Any) -> None:
    # JSON Schema cannot tell 1.0 from 1; the parser refuses 1.0 where a count stands (docs/decisions/0003).
    assume(not (isinstance(value, float) and value.is_integer()))
    changed = golden("events", kind)
    place: Any = changed
    key: Any = data.draw(st.sampled_from(keys_of(place)))
    while bool(keys_of(place[key])) and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(keys_of(place)))
    place[key] = value
    assert same(changed)


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize("kind", INPUT_CLASSES)
def test_schema_and_parser_agree_on_inputs(kind: str) -> None:
    right = golden("inputs", kind)
    for field in right:
        for value in WRONG:
            changed = {**right, field: value}
            try:
                parse_input(json.dumps(changed))
                read = True
            except SchemaError:
                read = False
            assert validator("input").is_valid(changed) is read, f"{field} = {value!r}"


def test_a_closed_kind_has_no_fallback_and_an_open_type_has_one() -> None:
    assert not validator("input").is_valid({"kind": "x_later", "requestId": "r"})
    assert validator("event").is_valid(golden("events", "unknown"))
