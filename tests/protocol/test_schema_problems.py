"""What is said of a value that does not satisfy a schema: enough for a model to call again with the right one."""

from __future__ import annotations

import json
from typing import Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.conformance.strategies import json_values
from agentsession.protocol import REDACTED, SchemaProblem, SchemaValidator, find_problem, find_problems

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 2},
        "times": {"type": "integer", "minimum": 1, "maximum": 9},
        "colour": {"enum": ["red", "blue"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
        "key": {"type": "string", "writeOnly": True},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def told(schema: dict[str, Any], value: Any) -> list[tuple[str, str]]:
    return [(each.pointer, each.message) for each in find_problems(schema, value)]


@pytest.mark.rule("TOOL-04")
@pytest.mark.parametrize(
    ("value", "pointer", "message"),
    [
        (5, "/", "expected an object, got 5"),
        (None, "/", "expected an object, got null"),
        ({}, "/", '"path" is missing; expected a string'),
        ({"path": 5}, "/path", "expected a string, got 5"),
        ({"path": "a"}, "/path", "expected at least 2 characters, got 1"),
        ({"path": ["a"]}, "/path", "expected a string, got an array of 1"),
        ({"path": {"to": 1}}, "/path", 'expected a string, got an object with "to"'),
        ({"path": "ab", "times": "5"}, "/times", 'expected an integer, got "5"'),
        ({"path": "ab", "times": 0}, "/times", "expected at least 1, got 0"),
        ({"path": "ab", "times": 10}, "/times", "expected at most 9, got 10"),
        ({"path": "ab", "colour": "blu"}, "/colour", 'expected one of "red", "blue", got "blu"; did you mean "blue"?'),
        ({"path": "ab", "colour": "x"}, "/colour", 'expected one of "red", "blue", got "x"'),
        ({"path": "ab", "tags": ["a", 1]}, "/tags/1", "expected a string, got 1"),
        ({"path": "ab", "tags": ["a", "b", "c"]}, "/tags", "expected at most 2 items, got an array of 3"),
        ({"path": "ab", "tags": ["a", "a"]}, "/tags", "expected items that are all different, got an array of 2"),
        ({"path": "ab", "tmes": 1}, "/", '"tmes" is not a property here; did you mean "times"?'),
        (
            {"path": "ab", "zzz": 1},
            "/",
            '"zzz" is not a property here; expected "path", "times", "colour", "tags", "key"',
        ),
    ],
)
def test_one_fault_is_told_with_its_place_and_what_would_do(value: Any, pointer: str, message: str) -> None:
    assert told(OBJECT, value) == [(pointer, message)]


def test_all_faults_are_told_the_ones_nearest_to_the_top_first() -> None:
    value = {"pth": "a", "times": "x", "tags": [1]}
    found = told(OBJECT, value)
    assert sorted(found[:2]) == [
        ("/", '"path" is missing; expected a string'),
        ("/", '"pth" is not a property here; did you mean "path"?'),
    ]
    assert found[2:] == [("/times", 'expected an integer, got "x"'), ("/tags/0", "expected a string, got 1")]
    first = find_problem(OBJECT, value)
    assert first is not None
    assert first.pointer == "/"


def test_many_faults_are_told_up_to_a_limit() -> None:
    value = {"path": "ab", "tags": list(range(1000))}
    assert len(find_problems(OBJECT, value)) == 8
    assert len(find_problems(OBJECT, value, limit=3)) == 3


# --- alternatives ----------------------------------------------------------------------------------------------------


class Refund(pydantic.BaseModel):
    kind: Literal["refund"]
    amount: int
    note: str | None = None
    colour: Literal["red", "blue"] = "red"


class Order(pydantic.BaseModel):
    kind: Literal["order"]
    item: str


class Call(pydantic.BaseModel):
    what: Refund | Order = pydantic.Field(discriminator="kind")


@pytest.mark.parametrize(
    ("what", "pointer", "message"),
    [
        ({"kind": "refund", "amount": "5"}, "/what/amount", 'expected an integer, got "5"'),
        ({"kind": "order"}, "/what", '"item" is missing; expected a string'),
        (
            {"kind": "refnd", "amount": 5},
            "/what/kind",
            'expected one of "refund", "order", got "refnd"; did you mean "refund"?',
        ),
        ({"amount": 5}, "/what", '"kind" is missing; expected one of "refund", "order"'),
        (3, "/what", "expected an object, got 3"),
        ({"kind": "refund", "amount": 1, "note": 7}, "/what/note", "expected a string or null, got 7"),
    ],
)
def test_of_alternatives_the_closest_is_explained(what: Any, pointer: str, message: str) -> None:
    assert told(Call.model_json_schema(), {"what": what}) == [(pointer, message)]


def test_an_alternative_is_told_by_its_tag_though_more_is_wrong_with_it() -> None:
    wrong = {"kind": "refund", "amount": "5", "note": 7, "colour": "green"}
    places = [pointer for pointer, _ in told(Call.model_json_schema(), {"what": wrong})]
    assert sorted(places) == ["/what/amount", "/what/colour", "/what/note"]


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 5, "expected a string or null, got 5"),
        (
            {"anyOf": [{"enum": ["a", "b"]}, {"type": "integer"}, {"type": "null"}]},
            "c",
            'expected one of "a", "b", an integer or null, got "c"',
        ),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, 3, "it fits more than one of the forms that it may have"),
        ({"const": "yes"}, "no", 'expected "yes", got "no"'),
        ({"not": {"type": "null"}}, None, "expected something that is not of the form that is excluded, got null"),
        ({"properties": {"a": False}}, {"a": 1}, "expected nothing here"),
        ({"pattern": "^a"}, "b", 'expected text that matches ^a, got "b"'),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "'b' is a dependency of 'a'"),
        ({"type": ["string", "null"]}, 1, "expected a string or null, got 1"),
        ({"contains": {"const": 1}}, [2], "expected an item of the form that is asked for, got an array of 1"),
        ({"unevaluatedProperties": False}, {"a": 1}, 'it has properties that are not asked for: "a"'),
        ({"additionalProperties": False}, {"a": 1}, '"a" is not a property here; expected no properties'),
    ],
)
def test_other_keywords_are_told_in_words(schema: Any, value: Any, message: str) -> None:
    (problem,) = find_problems(schema, value)
    assert message in problem.message


# --- what is not told ------------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "integer", "writeOnly": True}}},
        {"properties": {"a": {"format": "password", "maxLength": 3}}},
        {"properties": {"a": {"allOf": [{"pattern": "^x"}], "writeOnly": True}}},
        {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}], "format": "password"}}},
        {"properties": {"a": {"enum": ["x", "y"], "writeOnly": True}}},
        {"additionalProperties": {"$ref": "#/$defs/key"}, "$defs": {"key": {"type": "integer", "writeOnly": True}}},
    ],
)
def test_what_the_schema_marks_as_secret_is_not_told(schema: dict[str, Any]) -> None:
    (problem,) = find_problems(schema, {"a": "sk-planted"})
    assert problem.got == REDACTED
    assert "planted" not in str(problem) + str(problem.to_json())


def test_long_values_and_lists_are_cut_short() -> None:
    problems = find_problems({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 10_000})
    assert len(problems[0].message) < 120
    known: dict[str, Any] = {f"name{n}": {} for n in range(100)}
    (unknown,) = find_problems({"properties": known, "additionalProperties": False}, {"zz": 1})
    assert len(unknown.message) <= 400
    assert unknown.message.endswith("and 88 more")


# --- any schema, any value -------------------------------------------------------------------------------------------

KEYWORDS = ["type", "enum", "const", "items", "pattern", "$ref", "anyOf", "oneOf", "not", "required", "properties"]


@given(st.dictionaries(st.sampled_from(KEYWORDS), json_values()), json_values())
def test_any_schema_and_value_get_an_answer_that_json_can_say(schema: dict[str, Any], value: Any) -> None:
    for problem in find_problems(schema, value):
        assert isinstance(problem, SchemaProblem)
        assert problem.pointer.startswith("/")
        assert json.dumps(problem.to_json())


SCHEMAS = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"type": "null"}, {"minimum": 3}, {"enum": [1, "a"]}, {"const": None}]),
    lambda inner: st.one_of(
        st.builds(lambda each: {"items": each}, inner),
        st.builds(lambda each: {"properties": {"a": each}, "required": ["a"]}, inner),
        st.builds(lambda some: {"anyOf": some}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda some: {"oneOf": some}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)


@given(SCHEMAS, json_values())
def test_there_are_problems_if_and_only_if_the_value_is_not_valid(schema: dict[str, Any], value: Any) -> None:
    import jsonschema

    valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (find_problems(schema, value) == []) is valid


def doubling(keyword: str, **fields: Any) -> dict[str, Any]:
    """Thirty small schemas, each of which refers twice to the one before: a thousand million steps."""
    forms: dict[str, Any] = {"a0": {"type": "object"}}
    for number in range(1, 30):
        forms[f"a{number}"] = {keyword: [{"$ref": f"#/$defs/a{number - 1}"}] * 2}
    return {**fields, "$defs": forms, "$ref": "#/$defs/a29"}


INNER = doubling("allOf")
INNER["$defs"]["a28"]["$schema"] = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.rule("TOOL-04")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling("allOf"), {}),
        (doubling("anyOf"), 5),
        (doubling("oneOf"), {}),
        (doubling("allOf", unevaluatedProperties=False), {"a": 1}),
        ({"$defs": doubling("allOf")["$defs"], "not": {"$ref": "#/$defs/a29"}}, {}),
        (INNER, {}),
    ],
)
def test_a_schema_that_would_be_checked_for_ever_accepts_nothing_and_is_given_up(
    schema: dict[str, Any], value: Any
) -> None:
    (problem,) = find_problems(schema, value)
    assert "would take too long" in problem.message


def test_a_large_value_may_take_as_many_steps_as_it_needs() -> None:
    form = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema = {"$defs": {"form": form}, "items": {"$ref": "#/$defs/form"}}
    many: list[Any] = [{"x": number} for number in range(20_000)]
    assert find_problems(schema, many) == []
    assert [each.pointer for each in find_problems(schema, [*many, {"x": "a"}])] == ["/20000/x"]


@pytest.mark.parametrize(
    ("items", "are_different"),
    [
        ([1, 1.0], False),
        ([1, True, 0, False, "1", None, [], {}, [1], [True], {"a": 1}, {"a": True}], True),
        ([{"a": 1, "b": [True]}, {"b": [True], "a": 1.0}], False),
        ([{"x": number} for number in range(20_000)], True),  # compared each with each it would take minutes
        ([*({"x": number} for number in range(20_000)), {"x": 7}], False),
    ],
)
def test_items_are_the_same_where_their_json_is(items: list[Any], are_different: bool) -> None:
    assert (find_problem({"uniqueItems": True}, items) is None) is are_different
    assert find_problem({"uniqueItems": False}, items) is None


def test_a_schema_that_is_none_is_refused_with_its_place() -> None:
    with pytest.raises(SchemaProblem, match="the schema itself is not valid") as refused:
        SchemaValidator({"properties": {"a": {"type": "nonsense"}}})
    assert refused.value.pointer == "/properties/a/type"
