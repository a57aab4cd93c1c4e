"""What a form's schema marks as secret: hidden where it is typed, replaced where it is recorded, by one reading."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.protocol import REDACTED, marks_secret, redact_marked

pytestmark = pytest.mark.rule("SEC-01")

_MARK = st.sampled_from([{"writeOnly": True}, {"type": "string", "format": "password"}])
_PLAIN = st.sampled_from([{"type": "string"}, {"minLength": 1}, {}, True, {"enum": ["a"]}, {"$ref": "#/$defs/plain"}])
_LEADS = st.sampled_from(["#/$defs/mark", "#/$defs/deep", "#/$defs/missing", "#", "other.json", "#anchor"])


def _schemas() -> st.SearchStrategy[Any]:
    return st.recursive(
        _MARK | _PLAIN | _LEADS.map(lambda ref: {"$ref": ref}),
        lambda inner: st.one_of(
            st.sampled_from(["anyOf", "allOf", "oneOf"]).flatmap(
                lambda key: st.lists(inner, min_size=1, max_size=3).map(lambda items: {key: items})
            ),
            inner.map(lambda item: {"if": {"const": 1}, "then": item}),
            inner.map(lambda item: {"items": item}),
            inner.map(lambda item: {"properties": {"inner": item}}),
        ),
        max_leaves=6,
    )


_VALUES = st.sampled_from(["hunter2", {"inner": "hunter2"}, ["hunter2"], [{"inner": ["hunter2"]}]])


@given(field=_schemas(), value=_VALUES)
def test_what_is_replaced_in_the_record_was_hidden_where_it_was_typed(field: Any, value: Any) -> None:
    root = {
        "type": "object",
        "properties": {"field": field},
        "$defs": {
            "mark": {"writeOnly": True},
            "plain": {"type": "string"},
            "deep": {"allOf": [{"$ref": "#/$defs/mark"}]},
        },
    }
    recorded = redact_marked({"field": value}, root)
    if recorded != {"field": value}:
        assert REDACTED in str(recorded)
        assert marks_secret(field, root)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#"}}},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
    ],
)
def test_a_schema_that_leads_to_itself_marks_nothing(schema: dict[str, Any]) -> None:
    assert not marks_secret(schema)
    assert redact_marked({"a": {"a": 1}}, schema) == {"a": {"a": 1}}


def test_a_field_that_is_named_like_a_keyword_marks_nothing() -> None:
    schema = {"properties": {"$ref": {"type": "string"}, "format": {"type": "string"}, "writeOnly": {}}}
    assert not marks_secret(schema)


@pytest.mark.parametrize("schema", [None, True, 7, "x", []])
def test_what_is_no_schema_marks_nothing(schema: Any) -> None:
    assert not marks_secret(schema)
    assert redact_marked({"a": 1}, schema) == {"a": 1}
