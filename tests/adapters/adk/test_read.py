"""ADK's JSON in all its forms and ages, and what is said of JSON that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.adk.events.event import Event as AdkEvent
from google.adk.sessions.session import Session
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.adk.make import user_said
from tests.adapters.adk.translated import all_of, only

from agentsession.adapters.adk import AdkSession, map_session, read_adk
from agentsession.adapters.adk._read import read_event
from agentsession.protocol import AgentSessionError, Event, SchemaError, SessionMachine, ToolRequest

HI: dict[str, Any] = {"author": "user", "content": {"role": "user", "parts": [{"text": "hi"}]}}
YO: dict[str, Any] = {"author": "root", "content": {"role": "model", "parts": [{"text": "yo"}]}}


def read(value: Any, name: str = "some.json") -> list[AdkSession]:
    return read_adk(json.dumps(value), name=name)


def mapped(value: Any) -> list[Event]:
    """The record of the only session in a JSON value, checked by the machine."""
    (session,) = read(value)
    made = list(map_session(session))
    SessionMachine.fold(made)
    return made


def outline(made: list[Event]) -> list[str]:
    wires = [item.to_wire() for item in made]
    return [
        w["type"] + (f" {w['content'][0]['text']}" if w["type"] == "message" and w["content"] else "") for w in wires
    ]


@pytest.mark.parametrize(
    "value",
    [
        [HI, YO],
        {"events": [HI, YO]},
        {"id": "s-1", "appName": "app", "userId": "u", "state": {}, "events": [HI, YO], "lastUpdateTime": 1.0},
        {"id": "s-1", "app_name": "app", "user_id": "u", "events": [HI, YO]},
    ],
)
def test_events_in_any_wrapping_are_one_session(value: Any) -> None:
    assert outline(mapped(value)) == [
        "initialize",
        "message hi",
        "agent_start",
        "message yo",
        "agent_end",
        "stream_end",
    ]


def test_one_event_is_a_session_too() -> None:
    assert outline(mapped(HI)) == ["initialize", "message hi", "stream_end"]


def test_lines_are_one_session() -> None:
    text = f"{json.dumps(HI)}\n\n{json.dumps(YO)}\n"

    (session,) = read_adk(text.encode(), name="log.ndjson")

    assert (session.session_id, len(session.events)) == ("log", 2)


def test_a_line_separator_inside_a_text_ends_no_line() -> None:
    said = {**HI, "content": {"role": "user", "parts": [{"text": "a\u2028b\u0085c"}]}}
    text = "\r\n".join(json.dumps(value, ensure_ascii=False) for value in (said, YO))
    (session,) = read_adk(text, name="lines.ndjson")
    shown = [line for line in outline(list(map_session(session))) if line.startswith("message")]
    assert shown == ["message a\u2028b\u0085c", "message yo"]


def test_what_adk_dumps_today_is_read_back() -> None:
    event = user_said("hi", id="e1")
    dump = Session(id="s-9", app_name="app", user_id="u", events=[event], state={"k": 1}).model_dump_json(by_alias=True)

    (session,) = read_adk(dump)

    assert (session.session_id, session.app_name, session.user_id, session.last_state) == ("s-9", "app", "u", {"k": 1})
    assert session.events[0].event == event


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    (session,) = read_adk("\ufeff".encode() + json.dumps([HI]).encode())

    assert len(session.events) == 1


def test_field_names_of_before_1_0_are_read() -> None:
    old: dict[str, Any] = {
        "id": "old",
        "context": {"_time": "t", "colour": "red"},
        "past_events": [],
        "pending_events": {},
        "artifacts": {},
        "current_agent_name": "root",
        "events": [
            HI | {"options": {}, "is_greeting": False, "timestamp": 1733043686.84},
            {
                "author": "root",
                "content": {
                    "role": "model",
                    "parts": [{"function_call": {"name": "paint", "args": {"colour": "red"}}}],
                },
                "options": {"partial": False},
            },
            {
                "author": "root",
                "content": {"role": "user", "parts": [{"function_response": {"name": "paint", "response": {}}}]},
                "options": {
                    "update_context": {"colour": "red"},
                    "function_call_event_id": "x",
                    "skip_summarization": True,
                },
            },
        ],
    }

    made = [item.to_wire() for item in mapped(old)]

    assert [w["type"] for w in made] == [
        "initialize",
        "message",
        "agent_start",
        "tool_request",
        "tool_response",
        "session_update",
        "agent_end",
        "stream_end",
        "session_update",
    ]
    assert made[4]["status"] == "completed"
    assert made[4]["_meta"]["adk"]["skipSummarization"] is True
    assert made[4]["_meta"]["adk"]["unread"] == {"/options/function_call_event_id": "x"}
    assert made[5]["stateDelta"] == {"colour": "red"}
    assert made[-1]["stateSnapshot"] == {"_time": "t", "colour": "red"}


def test_milliseconds_of_adk_for_typescript_are_read() -> None:
    made = mapped([HI | {"timestamp": 1733043686842}])

    assert made[1].timestamp == "2024-12-01T09:01:26.842Z"


def test_fields_that_this_adk_does_not_know_are_kept_beside() -> None:
    value = YO | {"newField": {"a": 1}, "actions": {"newAction": True, "stateDelta": None}, "longRunningToolIds": None}
    value["content"] = {"role": "model", "parts": [{"text": "yo", "newPart": [1]}]}

    made = mapped([value])

    assert made[2].meta is not None
    assert made[2].meta["adk"]["unread"] == {
        "/newField": {"a": 1},
        "/actions/newAction": True,
        "/content/parts/0/newPart": [1],
    }


def test_arguments_that_are_no_object_are_kept() -> None:
    call = {"author": "root", "content": {"parts": [{"functionCall": {"id": "c1", "name": "f", "args": ["a"]}}]}}

    request = only(ToolRequest, mapped([call]))

    assert request.args is None
    assert request.meta is not None
    assert request.meta["adk"]["rawArgs"] == ["a"]


def test_numbers_that_json_does_not_have_are_read_as_adk_writes_them() -> None:
    text = '[{"author": "root", "actions": {"stateDelta": {"score": NaN}}}]'

    (session,) = read_adk(text)

    assert '"score":"NaN"' in "".join(item.to_wire_json() for item in map_session(session))


def test_halves_of_a_character_in_two_lines_meet() -> None:
    lines = [
        {"id": "e1", "author": "root", "partial": True, "content": {"parts": [{"text": "\ud83d"}]}},
        {"id": "e1", "author": "root", "partial": True, "content": {"parts": [{"text": "\ude00"}]}},
    ]

    (session,) = read_adk("\n".join(json.dumps(line) for line in lines))

    assert "😀" in "".join(item.to_wire_json() for item in map_session(session))


# --- evaluation and test files ----------------------------------------------------------------------------------------


def case(**fields: Any) -> dict[str, Any]:
    turn = {
        "invocation_id": "inv-1",
        "user_content": {"role": "user", "parts": [{"text": "roll"}]},
        "final_response": {"role": "model", "parts": [{"text": "a 4"}]},
        "intermediate_data": {
            "tool_uses": [{"id": "c1", "name": "roll_die", "args": {"sides": 6}}],
            "tool_responses": [{"id": "c1", "name": "roll_die", "response": {"result": 4}}],
            "intermediate_responses": [["helper", [{"text": "rolling"}]]],
        },
        "creation_timestamp": 1747946425.5,
    }
    given = {"app_name": "dice", "user_id": "u", "state": {"luck": 1}}
    return {"eval_id": "c", "conversation": [turn], "session_input": given} | fields


def test_an_evaluation_case_is_a_session() -> None:
    made = mapped({"eval_set_id": "s", "eval_cases": [case()]})

    assert outline(made) == [
        "initialize",
        "session_update",
        "message roll",
        "agent_start",
        "tool_request",
        "tool_response",
        "agent_end",
        "agent_start",
        "message rolling",
        "agent_end",
        "agent_start",
        "message a 4",
        "agent_end",
        "stream_end",
    ]
    assert made[1].to_wire()["stateSnapshot"] == {"luck": 1}
    assert made[2].timestamp == "2025-05-22T20:40:25.500Z"


def test_each_evaluation_case_is_a_session_of_its_own() -> None:
    sessions = read({"evalCases": [case(), case()]}, name="dice.evalset.json")

    assert [session.session_id for session in sessions] == ["dice-1", "dice-2"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_invocation_alone_is_a_session(wrapped: bool) -> None:
    (turn,) = case()["conversation"]

    assert outline(mapped([turn] if wrapped else turn))[1] == "message roll"


def test_invocation_events_are_read() -> None:
    turn = {
        "userContent": {"parts": [{"text": "hi"}]},
        "intermediateData": {"invocationEvents": [{"author": "helper", "content": {"parts": [{"text": "yo"}]}}]},
    }

    assert outline(mapped({"conversation": [turn]}))[1:4] == ["message hi", "agent_start", "message yo"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_older_lists_of_turns_are_read(wrapped: bool) -> None:
    turns: list[Any] = [
        {
            "query": "hello",
            "expected_tool_use": [{"tool_name": "greet", "tool_input": {"who": "me"}}],
            "expected_intermediate_agent_responses": [{"author": "helper", "text": "one moment"}],
            "reference": "Hello!",
        },
        {"query": "bye"},
    ]

    made = mapped([{"name": "set", "data": turns}] if wrapped else turns)

    assert [text for text in outline(made) if text.startswith("message")] == [
        "message hello",
        "message one moment",
        "message Hello!",
        "message bye",
    ]
    assert [request.args for request in all_of(ToolRequest, made)] == [{"who": "me"}]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error_id", "where"),
    [
        ("", "not-adk", "f.json at /"),
        ("   \n", "not-adk", "f.json at /"),
        ("[]", "not-adk", "f.json at /"),
        ("7", "not-adk", "f.json at /"),
        ("[1, 2]", "not-adk", "f.json at /0"),
        ('{"model": "m", "texts": []}', "not-adk", "f.json at /"),
        ('{"sessionUpdate": "x", "content": {"type": "text", "text": "hi"}}', "not-adk", "f.json at /"),
        ('{"type": "message", "sessionId": "s", "content": [], "partial": true}', "not-adk", "f.json at /"),
        ('{"a" 1}', "bad-json", "line 1, column 6"),
        ('{"author": "a"}\n{"author"', "bad-json", "line 2, column 10"),
        ('[{"author": "a", "content": {"parts": [{"text": 7}]}}]', "schema", "f.json at /0/content/parts/0/text"),
        ('{"events": [{"author": "a", "content": "hi"}]}', "schema", "f.json at /events/0/content"),
        ('{"events": ["x"]}', "schema", "f.json at /events/0"),
        ('{"events": [], "state": 7}', "schema", "f.json at /state"),
        ('{"eval_cases": [{"conversation": 7}]}', "schema", "f.json at /eval_cases/0/conversation"),
        ('{"eval_cases": ["x"]}', "schema", "f.json at /eval_cases/0"),
        ('[{"query": 7}]', "schema", "f.json at /0"),
        ('{"author": "a", "timestamp": "noon"}', "schema", "f.json at /timestamp"),
    ],
)
def test_what_cannot_be_read_is_one_error_that_names_the_place(text: str, error_id: str, where: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read_adk(text, name="f.json")

    error = caught.value
    assert (error.id, error.where) == (error_id, where)
    assert error.got
    assert error.expected
    assert error.fix


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        read_adk(b'{"author": "\xff"}', name="f.json")

    assert caught.value.id == "bad-json"


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(SchemaError):
        read_adk("[" * 100_000, name="f.json")


def test_a_nested_value_in_an_event_is_read_or_marked() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = [deep]

    (session,) = read([{"author": "root", "actions": {"stateDelta": {"deep": deep}}}])

    SessionMachine.fold(map_session(session))


def test_bad_lines_and_events_can_be_left_out() -> None:
    errors: list[AgentSessionError] = []
    text = "\n".join([json.dumps(HI), "{bad", json.dumps({"author": "a", "content": 7}), json.dumps(YO)])

    (session,) = read_adk(text, name="f.ndjson", on_error=errors.append)

    assert len(session.events) == 2
    assert [(error.id, error.where) for error in errors] == [
        ("bad-json", "line 2, column 2"),
        ("schema", "f.ndjson at line 3/content"),
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["events", "author", "content", "parts", "text", "query", "conversation", "actions", "data"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    )
)
def test_any_json_is_mapped_or_refused_by_name(value: Any) -> None:
    refused: list[AgentSessionError] = []

    for session in read_adk(json.dumps(value), name="some.json", on_error=refused.append):
        SessionMachine.fold(map_session(session))

    assert all("some.json" in error.what + (error.where or "") for error in refused)


def test_reading_does_not_change_what_was_parsed() -> None:
    value = YO | {"options": {"partial": False}, "odd": 1}
    before = json.dumps(value)

    read_event(value)

    assert json.dumps(value) == before


def test_an_event_without_id_and_time_gets_neither_chance_nor_clock() -> None:
    first, again = read_event(HI, index=3), read_event(HI, index=3)

    assert isinstance(first.event, AdkEvent)
    assert (first.event.id, first.event.timestamp) == (again.event.id, 0.0)
