"""Deltas and their closing event; the text of arguments that arrive in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from agentsession.adapters.adk._stream import ArgsWriter, MessageBuffer
from agentsession.adapters.adk._values import is_list, is_object
from agentsession.protocol import ContentPart, Text, text_by_type


def texts(*parts: str) -> list[types.Part]:
    return [types.Part(text=part) for part in parts]


def run(*deltas: str, final: str | None = None) -> tuple[list[str], str, bool]:
    """Feed deltas, close with ``final`` (by default what they say); the deltas shown, the whole, whether revised."""
    buffer = MessageBuffer("e1", "m1")
    shown: list[list[ContentPart]] = []
    for delta in deltas:
        shown += buffer.feed(texts(delta))
    whole = "".join(deltas) if final is None else final
    rest, content, revised = buffer.close([Text(text=whole)] if whole else [])
    pieces = [text_by_type(delta).get("text", "") for delta in [*shown, *rest]]
    return pieces, text_by_type(content).get("text", ""), revised


def test_deltas_add_up_to_the_closing_text() -> None:
    assert run("Hel", "lo") == (["Hel", "lo"], "Hello", False)


def test_an_aggregated_repeat_is_not_shown_again() -> None:
    """R08: some models send the whole text once more as a partial event."""
    assert run("Hel", "lo", "Hello", final="Hello") == (["Hel", "lo"], "Hello", False)


def test_a_delta_that_doubles_the_text_is_no_repeat() -> None:
    assert run("ha", "ha", final="haha") == (["ha", "ha"], "haha", False)


def test_a_delta_that_doubles_the_text_in_the_middle_is_no_repeat() -> None:
    assert run("ha", "ha", "!", final="haha!") == (["ha", "ha", "!"], "haha!", False)


def test_a_closing_text_that_differs_is_marked_revised() -> None:
    assert run("bad", " word", final="[removed]") == (["bad", " word"], "[removed]", True)


def test_a_closing_event_without_text_leaves_what_was_shown() -> None:
    assert run("a", "b", final="") == (["a", "b"], "ab", False)


def test_an_emoji_cut_in_two_arrives_whole() -> None:
    assert run("hi \ud83d", "\ude00!", final="hi \ud83d\ude00!") == (["hi ", "😀!"], "hi 😀!", False)


def test_half_an_emoji_at_the_end_is_repaired_in_both() -> None:
    assert run("hi \ud83d", final="hi \ud83d") == (["hi ", "�"], "hi �", False)


def test_thoughts_and_text_are_apart() -> None:
    buffer = MessageBuffer("e1", "m1")
    buffer.feed([types.Part(text="hm", thought=True)])
    buffer.feed(texts("Paris."))

    _, content, _ = buffer.close([])

    assert text_by_type(content) == {"thought": "hm", "text": "Paris."}


@given(st.lists(st.text(max_size=4), max_size=6), st.booleans())
def test_shown_deltas_always_add_up_unless_revised(deltas: list[str], repeat: bool) -> None:
    whole = "".join(deltas)
    given_deltas = [*deltas, whole] if repeat and whole else deltas

    shown, content, revised = run(*given_deltas, final=whole)

    assert content == whole
    assert revised or "".join(shown) == whole


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=()), max_size=4), min_size=1, max_size=6))
def test_deltas_cut_anywhere_add_up(deltas: list[str]) -> None:
    shown, _, revised = run(*deltas)

    assert not revised
    "".join(shown).encode("utf-8")


# --- arguments --------------------------------------------------------------------------------------------------------


def pieces(value: Any, path: str = "$", cut: int = 2) -> Iterator[types.PartialArg]:
    """The pieces in which Vertex sends arguments: scalars by JSON path, strings cut in pieces."""
    if is_object(value):
        for key, item in value.items():
            yield from pieces(item, f"{path}['{key}']", cut)
    elif is_list(value):
        for index, item in enumerate(value):
            yield from pieces(item, f"{path}[{index}]", cut)
    elif isinstance(value, str):
        for start in range(0, max(len(value), 1), cut):
            yield types.PartialArg(json_path=path, string_value=value[start : start + cut])
    elif isinstance(value, bool):
        yield types.PartialArg(json_path=path, bool_value=value)
    elif value is None:
        yield types.PartialArg(json_path=path, null_value="NULL_VALUE")
    else:
        yield types.PartialArg(json_path=path, number_value=value)


def without_empty(value: Any) -> Any:
    """Empty containers have no piece of their own, so they never arrive."""
    if is_object(value):
        kept = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    if is_list(value):
        return [item for item in map(without_empty, value) if item not in ({}, [])]
    return value


_keys = st.text(alphabet="abcdef_ é", min_size=1, max_size=4)
_scalars = st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=6)
_args = st.dictionaries(
    _keys,
    st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3)),
    max_size=4,
).map(without_empty)


@given(_args, st.integers(1, 4))
def test_pieces_of_arguments_add_up_to_their_json(args: dict[str, Any], cut: int) -> None:
    writer = ArgsWriter()

    text = "".join(writer.feed([piece]) for piece in pieces(args, cut=cut)) + writer.finish()

    assert json.loads(text) == args


@pytest.mark.parametrize("paths", [["$.a", "$.b", "$.a"], ["$.a[1]"], ["$.a", "$.a.b"], ["$[0]"]])
def test_pieces_that_go_back_are_left_to_the_whole_request(paths: list[str]) -> None:
    writer = ArgsWriter()

    for path in paths:
        writer.feed([types.PartialArg(json_path=path, bool_value=True)])

    assert writer.broken
    assert writer.finish() == ""
