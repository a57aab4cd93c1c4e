"""Patterns of others: what they find is what ``re`` finds, and none takes the time that ``re`` would."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.protocol import find_problem
from agentsession.protocol._patterns import is_found

HOSTILE = ["^(a+)+$", "^(aa?)*$", "^([a-z]+)*$", "^(a|aa)+$", "(x+x+)+y"]
"""On the text below each would keep ``re`` busy for longer than anybody waits."""
LONG = "a" * 5_000 + "x" * 5_000 + "!"


@pytest.mark.parametrize("pattern", HOSTILE)
def test_no_pattern_keeps_the_process_busy(pattern: str) -> None:
    assert not is_found(pattern, LONG)


@pytest.mark.parametrize("pattern", HOSTILE)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": ...}, LONG),
        ({"patternProperties": {...: {"type": "integer"}}}, {LONG: "x"}),
        ({"additionalProperties": {"type": "string"}, "patternProperties": {...: {}}}, {LONG: "x"}),
    ],
    ids=["pattern", "patternProperties", "additionalProperties"],
)
def test_no_schema_with_patterns_keeps_the_process_busy(pattern: str, schema: dict[str, object], value: object) -> None:
    def filled(one: object) -> object:
        if isinstance(one, dict):
            return {pattern if name is ... else name: filled(item) for name, item in one.items()}
        return pattern if one is ... else one

    made = filled(schema)
    assert isinstance(made, dict)
    assert (find_problem(made, value) is None) == ("pattern" not in made)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        (r"^\d{3}$", "123", True),
        (r"^(?=.*[0-9])(?=.*[a-z]).{4,}$", "abc1", True),  # only `re` looks ahead
        (r"^(?=.*[0-9])(?=.*[a-z]).{4,}$", "abcd", False),
        (r"(a)\1", "aa", True),
        (r"^é$", "é", True),
        ("^.$", "\ud83d\ude00", True),  # two halves are one character
        ("�", "a\ud83d", True),
        ("^a$", "a\n", False),  # as ECMA-262 has it, which JSON Schema refers to
    ],
)
def test_a_pattern_is_looked_for_anywhere(pattern: str, text: str, found: bool) -> None:
    assert is_found(pattern, text) is found


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(re.error):
        is_found("(", "(")
    assert "cannot be used" in str(find_problem({"pattern": "("}, "(")) or "not valid" in str(
        find_problem({"pattern": "("}, "(")
    )


@given(
    st.sampled_from(["[a-c]+d?", "^(ab|b)*$", r"\w\s\w", "a{2,3}", "[^a]", r"\bab\b", "x|"]),
    st.text("abcd x", max_size=12),
)
def test_it_finds_what_re_finds(pattern: str, text: str) -> None:
    assert is_found(pattern, text) == (re.search(pattern, text) is not None)


@given(
    st.dictionaries(st.text("abc", max_size=3), st.integers() | st.text(max_size=2), max_size=4),
    st.dictionaries(st.sampled_from(["^a", "b", "c$"]), st.sampled_from([{"type": "integer"}, {}]), max_size=2),
    st.sampled_from([True, False, {"type": "string"}]),
)
def test_properties_by_pattern_are_judged_as_jsonschema_does(
    value: dict[str, Any], patterns: dict[str, object], additional: object
) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "patternProperties": patterns,
        "additionalProperties": additional,
    }
    assert (find_problem(schema, value) is None) == jsonschema.Draft202012Validator(schema).is_valid(value)
