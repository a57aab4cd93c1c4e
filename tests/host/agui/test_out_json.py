"""The text of arguments in fragments: what may be sent of it can always be closed, and closing it makes an object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession.conformance.strategies import json_objects
from agentsession.host.agui._out_json import ArgsText


def fed(*pieces: str) -> ArgsText:
    text = ArgsText()
    for piece in pieces:
        text.feed(piece)
    return text


@settings(max_examples=500)
@given(json_objects(), st.booleans(), st.sampled_from([None, 1]), st.data())
def test_an_object_cut_anywhere_is_let_through_and_can_be_closed(
    value: dict[str, Any], ascii_only: bool, indent: int | None, data: st.DataObject
) -> None:
    whole = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    cut = data.draw(st.integers(0, len(whole)))
    size = data.draw(st.integers(1, 6))
    text = fed(*(whole[at : min(at + size, cut)] for at in range(0, cut, size)))
    assert text.text == whole[:cut]
    assert text.is_whole == (cut == len(whole))
    if not text.is_whole:
        text.close()
        assert isinstance(json.loads(text.text), dict)
        assert text.text.startswith(whole[:cut])


@settings(max_examples=1_000)
@given(st.text('{}[]",:\\ubtrue falsn01.-+eE\n\t', max_size=30))
def test_of_any_text_what_is_let_through_can_be_closed(rest: str) -> None:
    text = fed("{" + rest)
    if not text.is_whole:
        text.close()
    assert isinstance(json.loads(text.text), dict)


@settings(max_examples=1_000)
@given(st.text('{}[]",:\\ubtrue falsn01.-+eE\n\t', max_size=12))
def test_what_is_an_object_is_let_through_whole(rest: str) -> None:
    try:
        json.loads("{" + rest)
    except ValueError:
        return
    assert fed("{" + rest).text == "{" + rest


@pytest.mark.parametrize(
    ("cut", "suffix"),
    [
        ("", "{}"),
        ('{"a": tr', "ue}"),
        ('{"a": -', "0}"),
        ('{"a": 1.', "0}"),
        ('{"a": 1e', "0}"),
        ('{"a": "\\', '\\"}'),
        ('{"a": "\\u0', '000"}'),
        ('{"a', '":null}'),
        ('{"a":[1,', "null]}"),
        ('{"a":1,', '"":null}'),
    ],
)
def test_the_shortest_end_is_found(cut: str, suffix: str) -> None:
    assert fed(cut).close() == suffix


@pytest.mark.parametrize("text", ["[1]", "null", "x", '{"a" 1', '{"a": 01', '{"a": NaN', '{"a": "\n'])
def test_what_can_become_no_object_is_not_let_through(text: str) -> None:
    given = fed(text, "}")
    assert given.broken
    assert given.text != text
