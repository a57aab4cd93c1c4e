"""Text for a terminal: nothing is obeyed, nothing is lost, a printed row stays right."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.host.cli._text import (
    call_title,
    cells,
    count,
    cut,
    diff_counts,
    escape,
    fold,
    seconds,
    settled,
    wrap,
)

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=200)


def is_dangerous(sign: str) -> bool:
    return unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") and sign not in "\n\u200d"


@given(ANY_TEXT)
def test_escape_leaves_no_character_that_a_terminal_could_obey_or_nobody_could_see(text: str) -> None:
    assert not [sign for sign in escape(text) if is_dangerous(sign)]


@given(ANY_TEXT)
def test_escaping_twice_changes_nothing_more(text: str) -> None:
    assert escape(escape(text)) == escape(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb", "a\\u200bb"),
        ("x\rDENIED", "x\\x0dDENIED"),
        ("a\tb\r\nc", "a    b\nc"),
        ("\U0001f469\u200d\U0001f4bb", "\U0001f469\u200d\U0001f4bb"),
        ("a\u200db", "a\\u200db"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_escape_spells_out(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=300), st.integers(4, 30))
def test_no_row_is_wider_than_the_width_and_no_visible_character_is_lost(text: str, width: int) -> None:
    rows = wrap(text, width)
    assert all(cells(row) <= width for row in rows)
    assert "".join("".join(rows).split()) == "".join(text.split())


@given(
    st.lists(st.text("ab ü漢", min_size=1, max_size=12), min_size=1, max_size=30),
    st.integers(4, 20),
)
def test_rows_called_settled_are_those_of_the_whole_text_however_it_is_cut(pieces: list[str], width: int) -> None:
    printed: list[str] = []
    rest = ""
    for piece in pieces:
        rows, rest = settled(rest + piece, width)
        printed += rows
    assert [*printed, *wrap(rest, width)] == wrap("".join(pieces), width)


@given(st.integers(0, 200), st.integers(3, 60))
def test_folding_keeps_both_ends_and_counts_the_rest(lines: int, limit: int) -> None:
    rows = [str(number) for number in range(lines)]
    head, left_out, tail = fold(rows, limit)
    assert len(head) + left_out + len(tail) == lines
    assert len(head) + len(tail) <= max(limit, 0)
    if left_out:
        assert head[0] == "0"
        assert tail[-1] == str(lines - 1)


def test_a_cut_text_says_that_it_was_cut() -> None:
    assert cut("abcdef", 5) == "ab..."
    assert cut("abcde", 5) == "abcde"
    assert cut("one\ntwo", 20) == "one..."


def test_a_call_is_told_in_a_few_words() -> None:
    assert call_title("read_file", {"path": "cart.py"}) == "read_file cart.py"
    assert call_title("run_shell", {"command": "rm -rf /"}) == 'run_shell "rm -rf /"'
    assert call_title("edit", {"path": "a.py", "old_text": "x\n", "new_text": "y\nz\n"}) == "edit a.py +2 -1"
    assert call_title("", None) == "(no name)"


def test_a_diff_of_five_thousand_lines_is_counted_without_a_long_wait() -> None:
    assert diff_counts("a\n" * 5000, "b\n" * 5000) == (5000, 5000)


def test_unknown_counts_are_not_zero() -> None:
    assert (count(None), count(0), count(12_400), count(1_200_000)) == ("n/a", "0", "12.4k", "1.2M")


def test_time_spans_are_short() -> None:
    assert (seconds(0.04), seconds(42.4), seconds(185)) == ("0.0s", "42s", "3m05s")
