"""Answers are lines, not keys: only a whole ``y``, begun when the question could have been read, runs a tool."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.host import Approval, PolicyDecision, Position
from agentsession.host.cli._lines import ASCII, View
from agentsession.host.cli._questions import (
    READ_TIME_S,
    Answered,
    ApprovalQuestion,
    Edit,
    Say,
    ShowAll,
    Steer,
    Step,
    joined,
)
from agentsession.protocol import ToolRequest

DRAWN = 100.0
LATER = DRAWN + READ_TIME_S


def question(**args: object) -> ApprovalQuestion:
    return ApprovalQuestion(
        ToolRequest(request_id="r1", name="edit_file", args=args or {"path": "cart.py"}, needs="grant"),
        PolicyDecision("ask_user", "policy:edits-ask", "edits are shown"),
        Position(1, 2),
        view=View(width=80, glyphs=ASCII),
        number=5,
        asked_by="coder > fixer",
    )


def take(text: str, begun: float = LATER) -> Step:
    return question().take(text, begun=begun, drawn=DRAWN)


def runs(step: Step) -> bool:
    return isinstance(step, Answered) and isinstance(step.value, Approval) and step.value.is_yes


def test_the_question_says_who_asks_what_and_which_rule_made_it_ask() -> None:
    text = joined(question(path="cart.py", old_text="a\n", new_text="b\n").block)
    assert "? APPROVE 1 of 2  [5] edit_file cart.py +1 -1  asked by coder > fixer" in text
    assert "why: rule edits-ask: edits are shown; mode default" in text
    assert "- a\n     + b" in text
    assert "y once  s session: edit_file  a always  e edit  n [reason]  v view  w why" in text


def test_a_whole_y_runs_it() -> None:
    assert runs(take("y"))
    assert runs(take(" y "))


@given(st.text(max_size=12))
def test_nothing_but_y_and_s_runs_it(text: str) -> None:
    assert runs(take(text)) == (text.strip() in ("y", "s"))


@given(st.text(max_size=12), st.floats(max_value=READ_TIME_S, exclude_max=True, allow_nan=False))
def test_nothing_that_was_begun_before_it_could_be_read_runs_it(text: str, after: float) -> None:
    step = question().take(text, begun=after, drawn=0.0)
    assert not isinstance(step, (Answered, Edit))


@pytest.mark.parametrize("text", ["yes you may not", "y but not the API", "Y?", "yy", "continue"])
def test_a_sentence_that_begins_like_a_yes_is_a_steer(text: str) -> None:
    assert take(text) == Steer(text)


@pytest.mark.parametrize("text", ["yes", "YES", "ok", "x", "", " ", "Y"])
def test_an_unclear_word_is_neither_an_answer_nor_sent_to_the_agent(text: str) -> None:
    step = take(text)
    assert isinstance(step, Say)
    assert "nothing runs without a whole line y" in joined(step.lines)


def test_an_early_sentence_is_a_steer_and_an_early_y_is_asked_for_again() -> None:
    assert take("don't touch the API", begun=DRAWN) == Steer("don't touch the API")
    step = take("y", begun=DRAWN)
    assert isinstance(step, Say)
    assert "type it again" in joined(step.lines)
    assert not step.put_back  # one more Enter must not be enough


def test_an_early_no_with_a_reason_is_kept_in_the_box() -> None:
    step = take("n too risky", begun=DRAWN)
    assert isinstance(step, Say)
    assert step.put_back


def test_no_carries_its_reason_to_the_model() -> None:
    assert take("n too risky") == Answered(Approval.no("too risky"))
    assert take("n") == Answered(Approval.no(None))
    assert take("no") == Answered(Approval.no(None))


def test_session_is_a_yes_that_is_remembered() -> None:
    assert take("s") == Answered(Approval.yes(remember="session"))


def test_always_shows_what_it_would_allow_and_is_only_given_by_another_y() -> None:
    asked = question(path="cart.py")
    shown = asked.take("a", begun=LATER, drawn=DRAWN)
    assert isinstance(shown, Say)
    assert shown.redraw  # its reading time begins again
    assert "a allows from now on, in this folder: edit_file" in joined(shown.lines)
    assert asked.prompt == "always> "
    assert asked.take("y", begun=LATER, drawn=DRAWN) == Answered(Approval.yes(remember="always"))


@pytest.mark.parametrize("other", ["n", "hello there", "w", "x"])
def test_any_other_line_leaves_always(other: str) -> None:
    asked = question(path="cart.py")
    asked.take("a", begun=LATER, drawn=DRAWN)
    asked.take(other, begun=LATER, drawn=DRAWN)
    assert asked.prompt == "answer> "
    assert asked.take("y", begun=LATER, drawn=DRAWN) == Answered(Approval.yes())


def test_a_rule_that_asks_each_time_offers_nothing_longer() -> None:
    asked = question()
    asked.decision = dataclasses.replace(asked.decision, remember="never")
    assert "y once  e edit" in joined(asked.block)
    for word in ("s", "a"):
        step = asked.take(word, begun=LATER, drawn=DRAWN)
        assert isinstance(step, Say)
        assert "asks each time" in joined(step.lines)


def test_the_question_names_the_file_and_line_of_its_rule_and_what_the_session_would_cover() -> None:
    asked = question()
    asked.decision = dataclasses.replace(asked.decision, where="policy.toml:12", scope="with /path under 'src'")
    text = joined(asked.block)
    assert "why: rule edits-ask, policy.toml:12: edits are shown; mode default" in text
    assert "s session: edit_file with /path under 'src'" in text
    asked.decision = dataclasses.replace(asked.decision, remember="exact")
    assert "s session: exactly this" in joined(asked.block)


def test_an_edit_is_shown_as_a_change_and_asked_about_again() -> None:
    asked = question(path="cart.py")
    step = asked.take("e", begun=LATER, drawn=DRAWN)
    assert step == Edit('{"path": "cart.py"}')
    shown = asked.edited('{"path": "other.py"}')
    assert isinstance(shown, Say)
    assert shown.redraw
    assert '-   "path": "cart.py"' in joined(shown.lines)
    assert '+   "path": "other.py"' in joined(shown.lines)
    assert "(edited)" in joined(shown.lines)
    assert asked.take("y", begun=LATER, drawn=DRAWN) == Answered(Approval.yes({"path": "other.py"}))


def test_an_edit_that_python_takes_for_equal_is_an_edit() -> None:
    asked = question(force=1)
    shown = asked.edited('{"force": true}')
    assert isinstance(shown, Say)
    assert "(edited)" in joined(shown.lines)
    answered = asked.take("y", begun=LATER, drawn=DRAWN)
    assert isinstance(answered, Answered)
    assert isinstance(answered.value, Approval)
    assert (answered.value.args or {})["force"] is True


@pytest.mark.parametrize("text", ["{", "[1]", "7", '{"path": "cart.py"}'])
def test_an_edit_that_is_no_object_or_no_change_changes_nothing(text: str) -> None:
    asked = question(path="cart.py")
    step = asked.edited(text)
    assert isinstance(step, Say)
    assert not step.redraw
    assert asked.args == {"path": "cart.py"}
    assert not asked.is_edited


@pytest.mark.parametrize("text", ['{"path": "a"', "[1]", '{"n": NaN}', '{"n": 1, "n": 2}', '{"n": 1e999}', "a" * 500])
def test_an_edit_that_cannot_be_taken_goes_back_into_the_box_and_is_still_edited(text: str) -> None:
    step = question().edited(text)
    assert isinstance(step, Say)
    assert step.put_back
    assert step.still_editing
    assert len(joined(step.lines)) < 200


def test_an_emptied_edit_leaves_the_arguments_as_they_were() -> None:
    step = question().edited("  ")
    assert isinstance(step, Say)
    assert not step.put_back
    assert not step.still_editing
    assert "nothing changed" in joined(step.lines)


def test_an_edit_that_did_not_fit_is_where_the_next_edit_begins() -> None:
    asked = ApprovalQuestion(
        ToolRequest(request_id="r1", name="order", args={"n": 1}),
        PolicyDecision("ask_user"),
        Position(problem='expected an integer, got "x"'),
        view=View(width=80, glyphs=ASCII),
        draft={"n": "x"},
    )
    assert 'what you sent cannot be taken: expected an integer, got "x"' in joined(asked.block)
    assert asked.take("e", begun=LATER, drawn=DRAWN) == Edit('{"n": "x"}')
    assert asked.take("y", begun=LATER, drawn=DRAWN) == Answered(Approval.yes())


def test_in_a_narrow_window_the_choices_stand_in_rows_that_fit() -> None:
    asked = ApprovalQuestion(
        ToolRequest(request_id="r1", name="order", args={"n": 1}),
        PolicyDecision("ask_user", reason="order is not read-only"),
        Position(),
        view=View(width=40, glyphs=ASCII),
    )
    assert not [one.plain for one in asked.block if one.width > 40]
    assert [one.plain for one in asked.block][-2:] == [
        "  y once  s session: order  a always",
        "  e edit  n [reason]  v view  w why",
    ]


def test_view_shows_everything_and_why_shows_the_rule() -> None:
    assert take("v") == ShowAll('{\n  "path": "cart.py"\n}')
    step = take("w")
    assert isinstance(step, Say)
    assert "rule edits-ask" in joined(step.lines)


def test_a_five_thousand_line_change_is_folded_with_its_count() -> None:
    text = joined(question(path="big", old_text="a\n" * 2500, new_text="b\n" * 2500).block)
    assert "4940 lines of the diff folded; v shows all" in text
    assert len(text.splitlines()) < 70


def test_what_an_agent_wants_to_run_cannot_redraw_the_question() -> None:
    text = joined(question(path="\x1b[2J\u202e", old_text="\x1b[1A\n", new_text="ok\n").block)
    assert "\x1b" not in text
    assert "\u202e" not in text
