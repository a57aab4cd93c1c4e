"""Helpers around the models: content, schemas of others, ids, the memory store."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.record import delta, running

from agentsession.conformance.strategies import content_parts, json_values
from agentsession.protocol import (
    AgentDescriptor,
    ContentPart,
    Custom,
    Event,
    InvalidInput,
    MemoryRecordStore,
    RecordKey,
    RecordStore,
    Refusal,
    SchemaProblem,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    Text,
    Thought,
    UnknownPart,
    as_content,
    check_id,
    check_schema,
    find_problem,
    merge_parts,
    plain_text,
    text_by_type,
)

KEY = RecordKey("coder", "ada", "s-1")

# --- content ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, []),
        ("", []),
        ("hello", [Text(text="hello")]),
        (Text(text="a"), [Text(text="a")]),
        ([Text(text="a"), Refusal(text="no")], [Text(text="a"), Refusal(text="no")]),
        ((Text(text="a"),), [Text(text="a")]),
    ],
)
def test_content_is_text_a_part_or_parts(content: Any, parts: list[ContentPart]) -> None:
    assert as_content(content) == parts


@pytest.mark.rule("LIFE-14")
@given(st.lists(content_parts() | content_parts(["text", "thought"]), max_size=6))
def test_merging_parts_changes_no_text_and_joins_only_neighbours_of_one_type(parts: list[ContentPart]) -> None:
    merged = merge_parts(parts)
    assert text_by_type(merged) == text_by_type(parts)
    assert plain_text(merged) == plain_text(parts)
    assert [part for part in merged if not isinstance(part, (Text, Thought))] == [
        part for part in parts if not isinstance(part, (Text, Thought))
    ]
    kinds = [part.type for part in merged]
    assert not any(a == b and a in ("text", "thought") for a, b in itertools.pairwise(kinds))
    assert merge_parts(merged) == merged


def test_the_last_signature_wins_and_unknown_fields_are_kept_when_parts_merge() -> None:
    parts: list[ContentPart] = [
        Thought(text="a", signature="one"),
        Thought.model_validate({"type": "thought", "text": "b", "signature": "two", "x": 1}),
        Thought(text="c"),
    ]
    assert merge_parts(parts)[0].to_wire() == {"type": "thought", "text": "abc", "signature": "two", "x": 1}


def test_the_text_of_a_message_is_that_of_its_text_parts() -> None:
    parts: list[ContentPart] = [Thought(text="hm"), Text(text="Paris"), UnknownPart(type="x"), Text(text=".")]
    assert plain_text(parts) == "Paris."
    assert text_by_type(parts) == {"thought": "hm", "text": "Paris."}


def test_capabilities_are_distinct_and_asked_for_by_name() -> None:
    descriptor = AgentDescriptor(name="a", executor="x", capabilities=["abort", "load", "abort"])
    assert descriptor.capabilities == ["abort", "load"]
    assert descriptor.supports("load")
    assert not descriptor.supports("fork")


# --- schemas that others wrote ---------------------------------------------------------------------------------------

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


@pytest.mark.rule("TOOL-04")
@pytest.mark.parametrize(
    ("schema", "value", "pointer", "words"),
    [
        (PATH, {}, "/", '"path" is missing; expected a string'),
        (PATH, {"path": 5}, "/path", "expected a string, got 5"),
        ({"properties": {"a/b": {"items": {"type": "null"}}}}, {"a/b": [None, 1]}, "/a~1b/1", "expected null, got 1"),
        ({"type": "nonsense"}, {}, "/", "the schema itself is not valid"),
        ({"$ref": "https://example.com/s.json"}, {}, "/", "refers to what is not here: https://example.com/s.json"),
        ({"$ref": "#/$defs/none"}, {}, "/", "refers to what is not here: /$defs/none"),
        ({"$ref": "#"}, {}, "/", "the schema cannot be used"),
        ({"$schema": ["x"]}, {}, "/", "the schema cannot be used"),
        ({"$schema": 5}, {}, "/", "the schema cannot be used"),
        ({"const": {1, 2}}, {}, "/", "the schema cannot be used"),
    ],
)
def test_a_value_or_schema_that_does_not_do_is_named_with_its_place(
    schema: dict[str, Any], value: Any, pointer: str, words: str
) -> None:
    problem = find_problem(schema, value)
    assert isinstance(problem, SchemaProblem)
    assert problem.pointer == pointer
    assert words in problem.message
    assert words in str(check_schema(schema, value))


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<a>a)(?P<a>b)", "\\"])
def test_a_pattern_that_is_no_regular_expression_accepts_nothing(pattern: str) -> None:
    assert find_problem({"pattern": pattern}, "text") is not None
    assert find_problem({"patternProperties": {pattern: {}}}, {"a": 1}) is not None


@pytest.mark.rule("TOOL-04")
@pytest.mark.parametrize("schema", [{}, PATH, {**PATH, "$schema": "http://json-schema.org/draft-07/schema#"}])
def test_a_value_that_does_has_no_problem(schema: dict[str, Any]) -> None:
    assert find_problem(schema, {"path": "a.py"}) is None
    assert check_schema(schema, {"path": "a.py"}) is None


@given(
    st.dictionaries(st.sampled_from(["type", "enum", "items", "pattern", "$ref", "anyOf"]), json_values()),
    json_values(),
)
def test_any_schema_and_any_value_get_an_answer(schema: dict[str, Any], value: Any) -> None:
    problem = find_problem(schema, value)
    assert problem is None or problem.message


# --- ids and the memory store ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["s-1", "user:ada", "a.b", "日本", "a b", "x" * 256, "ada@example.com"])
def test_an_id_that_can_be_a_key_is_taken(id: str) -> None:
    assert check_id(id, "session id") == id


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize(
    "id",
    ["", ".", "..", "...", "../etc", "a/b", "a\\b", "/etc", "%2e%2e", "a\x00", "a\nb", " a", "a ", "x" * 257, "\ud800"],
)
def test_an_id_that_could_leave_its_place_is_refused_without_being_echoed_raw(id: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_id(id, "session id")
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    with pytest.raises(InvalidInput):
        RecordKey("coder", "ada", id)


@pytest.mark.anyio
async def test_the_memory_store_keeps_records_apart_by_agent_and_user() -> None:
    store = MemoryRecordStore()
    assert isinstance(store, RecordStore)
    await store.create(KEY)
    events = running().events
    await store.append(KEY, events, reserved_seq=10)
    assert await store.read(KEY) == events
    assert await store.read(KEY, after=1, limit=1) == events[1:2]
    info = await store.info(KEY)
    assert (info.last_seq, info.reserved_seq) == (events[-1].seq, 10)
    for other in (RecordKey("coder", "bob", "s-1"), RecordKey("tester", "ada", "s-1")):
        with pytest.raises(SessionNotFound):
            await store.read(other)
        assert await store.list(other.agent, other.user_id) == []
    assert [found.key for found in await store.list("coder", "ada")] == [KEY]
    with pytest.raises(SessionExists):
        await store.create(KEY)


@pytest.mark.anyio
async def test_the_memory_store_takes_events_once_in_order_and_no_ephemeral_ones() -> None:
    store = MemoryRecordStore()
    await store.create(KEY)
    record = running()
    await store.append(KEY, record.events, reserved_seq=3)
    again: list[list[Event]] = [record.events, [record.stamp(delta("m-1", "a"))]]
    for events in again:
        with pytest.raises(InvalidInput):
            await store.append(KEY, events, reserved_seq=3)
    assert await store.read(KEY) == record.events


@pytest.mark.anyio
async def test_the_memory_store_locks_a_record_for_one_owner() -> None:
    store = MemoryRecordStore()
    await store.create(KEY)
    await store.lock(KEY, "one")
    await store.lock(KEY, "one")
    with pytest.raises(SessionBusy):
        await store.lock(KEY, "two")
    with pytest.raises(SessionBusy):
        await store.delete(KEY)
    await store.unlock(KEY, "two")
    await store.unlock(KEY, "one")
    await store.lock(KEY, "two")
    await store.unlock(KEY, "two")
    await store.delete(KEY)
    with pytest.raises(SessionNotFound):
        await store.info(KEY)


def test_an_event_keeps_unknown_fields_beside_the_known_ones_and_not_among_them() -> None:
    event = Custom.model_validate({"kind": "x", "data": 1, "later": [1]})
    assert event.model_extra == {"later": [1]}
    assert vars(event).keys() == Custom.model_fields.keys()
