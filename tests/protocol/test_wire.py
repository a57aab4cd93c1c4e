"""Reading and writing JSON: what is unknown survives, what is malformed is refused, and the error says where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.test_golden import golden

from agentsession.conformance.strategies import descriptors, events, inputs, json_values, records, texts
from agentsession.protocol import (
    EVENT_TYPES,
    PROTOCOL_VERSION,
    AgentDescriptor,
    Custom,
    ElicitationAnswer,
    Event,
    Message,
    MessageInput,
    SchemaError,
    SessionUpdate,
    StreamEnd,
    StreamInput,
    Text,
    ToolResponse,
    ToolResult,
    UnknownEvent,
    UnknownPart,
    UnsupportedVersion,
    accept,
    check_version,
    dump_event,
    parse_answer,
    parse_descriptor,
    parse_event,
    parse_input,
    parse_json,
    read_ndjson,
    result,
)


def wire(kind: str = "message", /, **changes: Any) -> dict[str, Any]:
    """The golden event with some fields changed; ``...`` takes a field away."""
    changed = {**golden("events", kind), **changes}
    return {key: value for key, value in changed.items() if value is not ...}


def refused(value: Any) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        parse_event(value if isinstance(value, (str, bytes)) else json.dumps(value))
    return caught.value


# --- round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-01")
@given(events())
def test_an_event_equals_what_is_read_back_from_its_json(event: Event) -> None:
    text = dump_event(event)
    assert "\n" not in text
    assert parse_event(text) == event
    assert parse_event(text.encode()) == event
    assert parse_event(event.to_wire()) == event
    assert dump_event(parse_event(text)) == text


@pytest.mark.rule("WIRE-01")
@given(inputs())
def test_an_input_equals_what_is_read_back_from_its_json(given_input: StreamInput) -> None:
    assert parse_input(given_input.to_wire_json()) == given_input


@pytest.mark.rule("WIRE-01", "LIFE-01")
@given(descriptors())
def test_a_descriptor_equals_what_is_read_back_from_its_json(descriptor: AgentDescriptor) -> None:
    assert parse_descriptor(descriptor.to_wire_json()) == descriptor


@pytest.mark.rule("WIRE-01")
@given(records())
def test_a_record_survives_ndjson(record: list[Event]) -> None:
    assert list(read_ndjson([dump_event(event) + "\n" for event in record])) == record


# --- what is unknown -------------------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize("kind", sorted(EVENT_TYPES))
def test_unknown_fields_of_a_known_event_survive(kind: str) -> None:
    given_wire = wire(kind, xLater={"a": [None, 1]}, session_id="not the session", request_id=7)
    assert json.loads(dump_event(parse_event(given_wire))) == given_wire


@pytest.mark.rule("WIRE-01")
def test_an_unknown_event_type_survives_with_no_field_added() -> None:
    given_wire = golden("events", "unknown")
    event = parse_event(given_wire)
    assert isinstance(event, UnknownEvent)
    assert json.loads(dump_event(event)) == given_wire


@pytest.mark.rule("WIRE-01")
def test_an_unknown_content_type_survives() -> None:
    part = {"type": "x_chart", "points": [1, None], "text": "not ours"}
    event = parse_event(wire(content=[part]))
    assert isinstance(event, Message)
    assert isinstance(event.content[0], UnknownPart)
    assert json.loads(dump_event(event))["content"] == [part]


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("message", "role"),
        ("message", "source"),
        ("stream_end", "reason"),
        ("tool_request", "needs"),
        ("tool_request", "owner"),
        ("tool_response", "status"),
        ("tool_decision", "decision"),
        ("elicitation_request", "kind"),
        ("elicitation_request", "display"),
        ("elicitation_response", "action"),
        ("error", "status"),
        ("agent_end", "reason"),
        ("session_update", "permissionMode"),
    ],
)
def test_unknown_values_of_open_strings_survive(kind: str, field: str) -> None:
    given_wire = wire(kind, **{field: "x-later"})
    assert json.loads(dump_event(parse_event(given_wire)))[field] == "x-later"


@pytest.mark.rule("WIRE-01")
@given(st.dictionaries(texts(), json_values(), max_size=3))
def test_any_unknown_field_of_any_name_survives(unknown: dict[str, Any]) -> None:
    given_wire = {**unknown, **wire("custom")}
    assert json.loads(dump_event(parse_event(json.dumps(given_wire)))) == given_wire


# --- absent is not null ----------------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize(
    ("kind", "field"), [("tool_response", "data"), ("agent_end", "result"), ("session_update", "stateSnapshot")]
)
def test_a_given_null_and_an_absent_field_that_holds_json_stay_apart(kind: str, field: str) -> None:
    assert json.loads(dump_event(parse_event(wire(kind, **{field: None}))))[field] is None
    assert field not in json.loads(dump_event(parse_event(wire(kind, **{field: ...}))))


@pytest.mark.rule("WIRE-01")
def test_an_unknown_key_that_reads_like_a_python_name_does_not_make_its_field_given() -> None:
    given_wire = wire("session_update", stateSnapshot=..., state_snapshot=None)
    assert json.loads(dump_event(parse_event(given_wire))) == given_wire


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize(
    ("kind", "pointer", "changes"),
    [
        ("message", "/threadId", {"threadId": None}),
        ("message", "/index", {"index": None}),
        ("message", "/_meta", {"_meta": None}),
        ("message", "/content/0/signature", {"content": [{"type": "text", "text": "", "signature": None}]}),
        ("tool_request", "/args", {"args": None}),
        (
            "session_update",
            "/tools/0/annotations/readOnly",
            {"tools": [{"name": "a", "annotations": {"readOnly": None}}]},
        ),
    ],
)
def test_null_where_a_field_may_be_absent_is_refused(kind: str, pointer: str, changes: dict[str, Any]) -> None:
    error = refused(wire(kind, **changes))
    assert (error.pointer, error.got) == (pointer, "null")


def test_none_in_python_is_absent_on_the_wire() -> None:
    assert "index" not in Message(message_id="m", content=[], index=None).to_wire()


def test_a_tool_that_returned_null_differs_from_one_that_returned_no_data() -> None:
    assert result("r-1").to_wire()["data"] is None
    assert "data" not in result("r-1", content="text only").to_wire()
    assert "content" not in accept("q-1").to_wire()


# --- what is malformed -----------------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize(
    ("kind", "pointer", "changes"),
    [
        ("message", "/messageId", {"messageId": ...}),
        ("message", "/messageId", {"messageId": ""}),
        ("message", "/messageId", {"messageId": "x" * 513}),
        ("message", "/content", {"content": "text"}),
        ("message", "/content/0", {"content": ["text"]}),
        ("message", "/content/1/text", {"content": [{"type": "x"}, {"type": "text", "text": 5}]}),
        ("message", "/content/0/text", {"content": [{"type": "text"}]}),
        ("message", "/content/0/type", {"content": [{"text": "of no type"}]}),
        ("message", "/partial", {"partial": "yes"}),
        ("message", "/partial", {"partial": 1}),
        ("message", "/index", {"index": -1}),
        ("message", "/index", {"index": "0"}),
        ("message", "/index", {"index": True}),
        ("message", "/index", {"index": 1.0}),
        ("message", "/role", {"role": ""}),
        ("message", "/streamId", {"streamId": 5}),
        ("message", "/_meta", {"_meta": []}),
        ("tool_request", "/args", {"args": [1]}),
        ("tool_update", "/progress", {"progress": "0.5"}),
        ("usage", "/inputTokens", {"inputTokens": -1}),
        ("usage", "/cost", {"cost": -0.5}),
        ("stream_end", "/pending/1", {"pending": ["r-1", 5]}),
        ("initialize", "/descriptor/name", {"descriptor": {"name": "not a name", "executor": "x"}}),
        ("initialize", "/descriptor/subAgents/0", {"descriptor": {"name": "a", "executor": "x", "subAgents": [5]}}),
        ("session_update", "/tools/0/name", {"tools": [{"name": 5}]}),
        ("session_update", "/statePatch/0", {"statePatch": [5]}),
        ("message", "/seq", {"seq": ...}),
        ("message", "/seq", {"seq": 0}),
        ("message", "/seq", {"seq": "1"}),
        ("message", "/id", {"id": ...}),
        ("message", "/id", {"id": ""}),
        ("message", "/sessionId", {"sessionId": ...}),
        ("message", "/timestamp", {"timestamp": ...}),
        ("message", "/timestamp", {"timestamp": "yesterday"}),
        ("message", "/timestamp", {"timestamp": "2026-01-31T12:00:00.000+09:00"}),
        ("message", "/timestamp", {"timestamp": "2026-01-31T12:00:00.000"}),
        ("unknown", "/id", {"id": ...}),
        ("unknown", "/type", {"type": 5}),
        ("unknown", "/type", {"type": ...}),
    ],
)  # fmt: skip
def test_a_malformed_event_is_refused_with_the_pointer_to_the_place(
    kind: str, pointer: str, changes: dict[str, Any]
) -> None:
    error = refused(wire(kind, **changes))
    assert error.pointer == pointer
    assert error.where == pointer
    assert error.expected
    assert kind in str(error) or kind == "unknown"


@pytest.mark.rule("WIRE-02")
def test_the_pointer_leads_into_a_field_that_holds_json() -> None:
    text = json.dumps(wire("custom")).replace('"a.txt": 3', '"a/b": [1e999]')
    assert refused(text).pointer == "/data/a~1b/0"


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize("text", ["[]", '"message"', "5", "null", "[" * 10])
def test_a_line_that_is_no_object_is_refused(text: str) -> None:
    assert refused(text).expected


@pytest.mark.rule("WIRE-02")
def test_a_parsed_value_that_is_not_json_is_refused_with_its_path() -> None:
    with pytest.raises(SchemaError) as caught:
        parse_event(wire("custom", data={"when": {1, 2}}))
    assert caught.value.pointer == "/data/when"


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"kind": "tool_result"}, "/requestId"),
        ({"kind": "tool_result", "requestId": "r", "isError": "no"}, "/isError"),
        ({"kind": "tool_grant", "requestId": "r", "args": None}, "/args"),
        ({"kind": "tool_result", "requestId": "r", "content": [{"type": "text", "text": 1}]}, "/content/0/text"),
        ({"kind": "maybe", "requestId": "r"}, "/kind"),
        ({"requestId": "r"}, "/kind"),
        ({"kind": "message", "content": []}, "/kind"),
    ],
)
def test_a_malformed_answer_is_refused_with_the_pointer_to_the_place(value: dict[str, Any], pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_answer(json.dumps(value))
    assert caught.value.pointer == pointer


def test_a_message_may_be_given_as_text() -> None:
    given_input = parse_input('{"kind": "message", "content": "hello"}')
    assert given_input == MessageInput(content=[Text(text="hello")])
    assert parse_input('{"kind": "message", "content": ""}') == MessageInput(content=[])


@pytest.mark.rule("LIFE-01", "WIRE-02")
@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"name": "1st"}, "/name"),
        ({"name": ""}, "/name"),
        ({"executor": ...}, "/executor"),
        ({"capabilities": "streaming"}, "/capabilities"),
        ({"ownTools": [{"name": ""}]}, "/ownTools/0/name"),
        ({"constraints": {"maxTurns": 0}}, "/constraints/maxTurns"),
        ({"composition": {}}, "/composition/pattern"),
    ],
)
def test_a_malformed_descriptor_is_refused(changes: dict[str, Any], pointer: str) -> None:
    descriptor = {**golden("events", "initialize")["descriptor"], **changes}
    with pytest.raises(SchemaError) as caught:
        parse_descriptor({key: value for key, value in descriptor.items() if value is not ...})
    assert caught.value.pointer == pointer


# --- bad JSON --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1, 2}', "line 1, column 10"),
        ('{"a": }', "line 1, column 7"),
        ('{\n  "a": tru\n}', "line 2, column 8"),
        ("", "line 1, column 1"),
        ('{"a": "\x01"}', "line 1, column 8"),
        ('{"a": 1} {"b": 2}', "line 1, column 10"),
        ('{"a": "unfinished', "line 1, column 7"),
    ],
)
def test_bad_json_is_refused_with_line_and_column(text: str, place: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_json(text)
    assert caught.value.where == place
    assert caught.value.id == "bad-json"


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": -Infinity}',
        '{"a": 1, "a": 2}',
        "[" * 5000,
        '{"a": ' + "9" * 5000 + "}",
        "[-1e999]",
    ],
)
def test_what_strict_json_does_not_allow_is_refused(text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_json(text)
    assert caught.value.got


def test_what_follows_the_value_is_told_as_found_not_as_expected() -> None:
    with pytest.raises(SchemaError) as caught:
        parse_json('{"a": 1} {"b": 2}')
    assert caught.value.got == 'extra data: {"a": 1} {"b": 2}'
    assert caught.value.expected == "one JSON value"


@pytest.mark.rule("WIRE-02")
def test_a_key_that_appears_twice_anywhere_is_refused() -> None:
    text = dump_event(Custom(id="e", seq=1, timestamp="2026-01-31T12:00:00Z", session_id="s", kind="k", data={"a": 1}))
    assert "'a'" in str(refused(text.replace('{"a":1}', '{"a":1,"a":1}')).got)


@pytest.mark.rule("WIRE-02")
def test_bytes_that_are_not_utf8_are_refused_with_their_place() -> None:
    with pytest.raises(SchemaError) as caught:
        parse_json(b'{"a": "\xff"}', line=3)
    assert caught.value.where == "line 3, byte 7"


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse_json("\ufeff{}") == parse_json(b"\xef\xbb\xbf{}") == {}


@pytest.mark.rule("WIRE-01")
@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"\ud83d\ude00", "😀"),
        (r"\uD83D\uDE00", "😀"),
        (r"cut \ud83d", "cut �"),
        (r"\ude00\ud83d", "��"),
        (r"\u0000", "\x00"),
        ("\u202e\u2028", "\u202e\u2028"),
    ],
)
def test_escapes_of_half_characters_in_json_text_are_repaired(escaped: str, text: str) -> None:
    line = json.dumps(wire("custom", kind="KIND", data={"KEY": "VALUE"}, xLater="EXTRA"))
    for mark in ("KIND", "KEY", "VALUE", "EXTRA"):
        line = line.replace(mark, escaped)
    event = parse_event(line)
    assert isinstance(event, Custom)
    assert (event.kind, event.data, event.model_extra) == (text, {text: text}, {"xLater": text})
    assert parse_event(dump_event(event).encode()) == event


# --- lines -----------------------------------------------------------------------------------------------------------


def test_ndjson_skips_blank_lines_and_takes_any_line_ending() -> None:
    line = dump_event(parse_event(wire()))
    assert len(list(read_ndjson([line + "\n", "\n", "  ", line + "\r\n", line.encode()]))) == 3


@pytest.mark.rule("WIRE-02")
def test_an_error_in_ndjson_names_the_line_and_the_column_in_it() -> None:
    line = dump_event(parse_event(wire()))
    with pytest.raises(SchemaError) as caught:
        list(read_ndjson([line, "", '  {"id": }']))
    assert (caught.value.line, caught.value.where) == (3, "line 3, column 10")
    with pytest.raises(SchemaError, match="line 2 is not a valid message"):
        list(read_ndjson([line, line.replace('"content":[', '"content":[5,')]))


def test_a_text_with_a_line_separator_stays_one_line() -> None:
    event = parse_event(wire("custom", data="a\u2028b\x85c\nd"))
    assert "\n" not in dump_event(event)
    assert list(read_ndjson([dump_event(event)])) == [event]


# --- version ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [PROTOCOL_VERSION, "1", "1.0", "1.7", "1.0.3"])
def test_a_version_with_our_major_number_can_be_read(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["2.0", "0.9", "10", "", "1.", ".1", "v1", "1.x", "1.²", "1.0\n", " 1", "-1"])
def test_another_version_is_refused(version: str) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        check_version(version)
    assert caught.value.expected


# --- models in Python ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{1, 2}, b"bytes", float("nan"), float("inf"), object(), {1: 2}, Text(text="a")])
def test_fields_that_hold_json_refuse_what_json_cannot_say_when_built_in_python(bad: Any) -> None:
    cases: list[dict[str, Any]] = [{"data": bad}, {"data": {"deep": [bad]}}, {"x_unknown": bad}]
    for fields in cases:
        with pytest.raises(ValueError, match="expected"):
            Custom(kind="k", **fields)


def test_an_event_does_not_change_with_the_value_it_was_built_from() -> None:
    data = {"list": [1]}
    event = ToolResponse(request_id="r", name="n", data=data)
    data["list"].append(2)
    assert event.data == {"list": [1]}


def test_events_are_frozen_and_take_their_wire_names_too() -> None:
    event = StreamEnd.model_validate({"reason": "completed", "streamId": "t"})
    assert event.stream_id == "t"
    with pytest.raises(ValueError, match="frozen"):
        event.reason = "failed"


def test_a_known_type_cannot_pass_as_unknown() -> None:
    with pytest.raises(ValueError, match="known event type"):
        UnknownEvent(type="message")
    with pytest.raises(ValueError, match="known content type"):
        UnknownPart(type="text")


def test_answers_keep_what_was_given_apart_from_what_was_not() -> None:
    bare, null = parse_answer('{"kind":"elicitation_response","requestId":"q","action":"accept"}'), accept("q", None)
    assert isinstance(bare, ElicitationAnswer)
    assert "content" not in bare.model_fields_set
    assert bare == null
    given_null = parse_answer('{"kind":"elicitation_response","requestId":"q","action":"accept","content":null}')
    assert "content" in given_null.model_fields_set
    assert isinstance(parse_answer('{"kind":"tool_result","requestId":"r"}'), ToolResult)
    assert SessionUpdate(state_snapshot=None).to_wire()["stateSnapshot"] is None
