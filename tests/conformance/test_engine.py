"""What the engine makes of records alone: each broken in one way, by whoever wrote it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from tests.conformance.harnesses.scripted import harness

from agentsession.adapters.base import restamp
from agentsession.conformance.engine import check
from agentsession.conformance.results import Result, Status
from agentsession.conformance.scene import scene_of
from agentsession.conformance.script import Ask, Call, Calls, Stream
from agentsession.conformance.strategies import records
from agentsession.protocol import (
    AgentDescriptor,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Message,
    StreamEnd,
    Text,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    parse_event,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def record() -> list[Event]:
    """A whole record: two calls, one granted, a question, words in pieces."""
    async with scene_of(harness) as scene:
        calls = [Call(name="look"), Call(name="write", args={"path": "a"}, needs="grant")]
        _, session = await scene.opened([Calls(calls=calls), Ask(message="Sure?"), Stream(pieces=["o", "k"])])
        await scene.turn(session)
        return scene.seen.with_record(session.session_id, await scene.record(session))


def failures(results: Sequence[Result]) -> list[str]:
    return [result.rule for result in results if result.status is Status.FAIL]


def changed(record: list[Event], kind: type[Event], **fields: Any) -> list[Event]:
    """The record with the first event of a kind changed."""
    place = next(index for index, event in enumerate(record) if isinstance(event, kind))
    return [*record[:place], restamp(record[place], **fields), *record[place + 1 :]]


async def test_a_correct_record_breaks_nothing_and_shows_what_it_could_have_broken(record: list[Event]) -> None:
    results = check(record)
    assert {result.status for result in results} == {Status.PASS}
    assert {"LIFE-01", "LIFE-05", "LIFE-14", "TOOL-01", "TOOL-15", "HITL-04", "SEC-01", "WIRE-01"} <= {
        result.rule for result in results
    }
    assert "LIFE-18" not in {result.rule for result in results}


async def test_lines_of_json_and_objects_are_records_too(record: list[Event]) -> None:
    lines = [event.to_wire_json() for event in record]
    parsed = [json.loads(line) for line in lines]
    given = [line.encode() if isinstance(line, str) else line for line in lines]
    assert check(given) == check(parsed) == check(record)


@pytest.mark.parametrize(
    ("kind", "fields", "rule"),
    [
        (StreamEnd, {"pending": []}, "LIFE-17"),
        (StreamEnd, {"seq": 1}, "ORD-01"),
        (ToolRequest, {"thread_id": "nowhere"}, "LIFE-04"),
        (ToolDecision, {"args_digest": "0" * 64}, "HITL-04"),
        (ToolResponse, {"request_id": "r-of-nobody"}, "TOOL-02"),
        (Message, {"stream_id": None}, "LIFE-15"),
    ],
)
async def test_the_rule_that_is_broken_is_named_with_the_event(
    record: list[Event], kind: type[Event], fields: dict[str, Any], rule: str
) -> None:
    results = check(changed(record, kind, **fields))
    assert failures(results) == [rule]
    assert results[0].evidence[-1].is_break
    assert results[0].evidence[-1].event is not None


async def test_only_the_first_break_counts(record: list[Event]) -> None:
    broken = changed(changed(record, ToolDecision, args_digest="0" * 64), ElicitationRequest, thread_id="nowhere")
    assert failures(check(broken)) == ["HITL-04"]


async def test_a_rule_that_was_broken_is_not_shown_to_hold_as_well(record: list[Event]) -> None:
    broken = changed(record, StreamEnd, seq=1)
    results = [result for result in check(broken) if result.rule == "ORD-01"]
    assert [result.status for result in results] == [Status.FAIL]


async def test_a_missing_response_leaves_its_request_open(record: list[Event]) -> None:
    last = [event for event in record if isinstance(event, ToolResponse)][-1]
    assert failures(check([event for event in record if event is not last])) == ["TOOL-01"]


async def test_a_record_that_ends_in_a_stream_is_broken_only_if_it_is_whole(record: list[Event]) -> None:
    cut = record[:-2]
    assert failures(check(cut)) == ["LIFE-05"]
    assert failures(check(cut, complete=False)) == []


async def test_a_secret_is_found_anywhere_in_an_event(record: list[Event]) -> None:
    planted = changed(record, ToolResponse, data={"deep": [{"key": "sk-1"}]})
    assert failures(check(planted, secrets=["sk-1"])) == ["SEC-01"]
    assert failures(check(planted, secrets=["sk-2"])) == []


async def test_a_traceback_is_found_but_not_in_what_a_user_says(record: list[Event]) -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1'
    said = [event for event in record if isinstance(event, Message) and event.source != "user" and not event.partial]
    shown = restamp(said[-1], content=[Text(text=text)], revised=True)
    place = record.index(said[-1])
    found = check([*record[:place], shown, *record[place + 1 :]])
    assert failures(found) == ["SEC-01"]
    assert found[0].message == "a traceback is in a message event, at /content/0/text"
    assert failures(check(changed(record, Message, content=[Text(text=text)]))) == []


async def test_a_line_that_is_no_event_is_named_with_its_number(record: list[Event]) -> None:
    lines = [event.to_wire_json() for event in record]
    lines[2] = json.dumps({**json.loads(lines[2]), "seq": "three"})
    results = check(lines)
    assert failures(results) == ["WIRE-02"]
    assert "line 3" in results[0].message


@pytest.mark.parametrize("text", ["{", "[]", "3", "", '{"type": "message"}'])
async def test_text_that_is_no_event_is_malformed(record: list[Event], text: str) -> None:
    assert failures(check([record[0].to_wire_json(), text])) == ["WIRE-02"]


async def test_an_event_object_that_holds_what_its_type_forbids_is_malformed(record: list[Event]) -> None:
    assert failures(check(changed(record, StreamEnd, pending="r1"))) == ["WIRE-02"]


async def test_what_is_unknown_breaks_nothing(record: list[Event]) -> None:
    lines = [json.loads(event.to_wire_json()) for event in record]
    end = lines[-1]
    strange = {**end, "type": "x-weather", "id": "x-1", "seq": end["seq"], "sky": {"blue": None}}
    lines = [*lines[:-1], strange, {**end, "seq": end["seq"] + 1, "xNew": [1]}]
    assert failures(check(lines)) == []


async def test_a_rule_that_an_executor_was_stopped_at_is_broken(record: list[Event]) -> None:
    end = record[-1]
    before = [event for event in record if event.type != "stream_end" or event is not end]
    told = restamp(
        Error(status="INTERNAL", message="a second response", fatal=True, code="TOOL-01", source="host"),
        id="x-error",
        seq=end.seq,
        timestamp=end.timestamp,
        session_id=end.session_id,
        stream_id=end.stream_id,
        turn_id=end.turn_id,
    )
    failed = restamp(end, seq=end.seq + 1, reason="failed")
    assert failures(check([*before, told, failed])) == ["TOOL-01"]
    assert failures(check([*before, restamp(told, code="adk-refused"), failed])) == []


async def test_a_question_that_the_host_cannot_show_must_be_cancelled_at_once(record: list[Event]) -> None:
    assert failures(check(record, host_kinds=["tool_confirmation"])) == ["HITL-07"]
    assert failures(check(record, host_kinds=["clarification"])) == []


async def answered(schema: dict[str, Any], answer: dict[str, Any], kind: str = "clarification") -> list[Event]:
    """A record with a question of this schema whose acceptance holds this; ``{}``: no content."""
    async with scene_of(harness) as scene:
        _, session = await scene.opened([Ask(message="How many?", kind=kind), Ask(message="Sure?")])
        await scene.turn(session)
        record = await scene.record(session)
    record = changed(record, ElicitationRequest, requested_schema=schema)
    place = next(index for index, event in enumerate(record) if isinstance(event, ElicitationResponse))
    wire = {key: value for key, value in record[place].to_wire().items() if key != "content"}
    return [*record[:place], parse_event({**wire, **answer}), *record[place + 1 :]]


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SECRET = {"type": "object", "properties": {"n": {"type": "string", "minLength": 20, "writeOnly": True}}}


@pytest.mark.parametrize("wrong", [{"content": {"n": "7"}}, {"content": {}}, {"content": None}, {}])
async def test_an_acceptance_in_the_record_fits_its_question(wrong: dict[str, Any]) -> None:
    results = check(await answered(NUMBER, wrong))
    assert failures(results) == ["HITL-08"]
    assert results[0].evidence[-1].is_break


@pytest.mark.parametrize(
    ("schema", "answer", "kind"),
    [
        (NUMBER, {"content": {"n": 7}}, "clarification"),
        (NUMBER, {"action": "decline"}, "clarification"),
        (NUMBER, {}, "user_approval"),
        (SECRET, {"content": {"n": "[redacted]"}}, "clarification"),
        (NUMBER, {"content": {"credential": {"type": "api_key", "value": "[redacted]"}}}, "auth_required"),
    ],
)
async def test_a_refusal_a_bare_yes_and_what_was_redacted_need_not_fit(
    schema: dict[str, Any], answer: dict[str, Any], kind: str
) -> None:
    assert failures(check(await answered(schema, answer, kind))) == []


@given(records())
def test_what_the_contract_allows_breaks_nothing(record: list[Event]) -> None:
    assert failures(check(record, complete=False)) == []


async def test_a_descriptor_that_its_schema_refuses_breaks_the_first_rule(record: list[Event]) -> None:
    wrong = AgentDescriptor(name="a", executor="x").model_copy(update={"name": ""})
    assert failures(check(record, wrong)) == ["LIFE-01"]


async def test_a_custom_event_between_turns_is_no_break(record: list[Event]) -> None:
    end = record[-1]
    note = restamp(
        Custom(kind="x-note", source="host"),
        id="x-note",
        seq=end.seq + 1,
        timestamp=end.timestamp,
        session_id=end.session_id,
    )
    assert failures(check([*record, note])) == []
