"""The small model of a driven session: where the script and the answers lead."""

from __future__ import annotations

import pytest

from agentsession.conformance.driven.course import Course
from agentsession.conformance.driven.plans import described, plan_of, words_for
from agentsession.conformance.script import STEPS


def begun(*turns: list[str], **options: object) -> Course:
    """A course whose first turn has begun."""
    course = Course(plan_of(turns, **options))  # type: ignore[arg-type]
    course.begin()
    return course


def stands(course: Course) -> tuple[str, set[str], str | None]:
    rest = course.settle()
    return rest.state, set(rest.waits), rest.reason


def test_before_the_first_turn_a_session_is_new() -> None:
    assert stands(Course(plan_of([["say"]]))) == ("new", set(), None)


@pytest.mark.parametrize(
    ("word", "reason"), [("say", "completed"), ("raise", "failed"), ("refuse", "refusal"), ("stop", "max_tokens")]
)
def test_a_turn_that_asks_nobody_ends_as_its_script_has_it(word: str, reason: str) -> None:
    assert stands(begun([word])) == ("idle", set(), reason)


def test_calls_at_once_wait_together_and_the_answered_ones_wait_no_more() -> None:
    course = begun(["look+write+look"])
    assert stands(course) == ("input_required", {"call 1", "call 2", "call 3"}, None)
    course.answer("call 2", "grant")
    assert stands(course) == ("input_required", {"call 1", "call 3"}, None)
    course.go_on()
    assert stands(course) == ("input_required", {"call 1", "call 3"}, None)


def test_what_was_answered_is_passed_when_the_turn_goes_on_and_not_before() -> None:
    course = begun(["write"])
    course.settle()
    course.answer("call 1", "grant")
    assert (stands(course)[0], course.passed()) == ("input_required", [])
    assert course.unsaid() == ["after 1"]
    course.go_on()
    assert stands(course) == ("idle", set(), "completed")
    assert [call.name for call in course.passed()] == ["write"]


@pytest.mark.parametrize(
    ("how", "leads_to"),
    [("grant", ("input_required", {"question 1"})), ("deny", ("idle", set())), ("result", ("idle", set()))],
)
def test_a_tool_that_asks_from_inside_asks_once_it_is_granted(how: str, leads_to: tuple[str, set[str]]) -> None:
    course = begun(["deploy"])
    course.settle()
    course.answer("call 1", how)
    course.go_on()
    assert stands(course)[:2] == leads_to


@pytest.mark.parametrize("how", ["accept", "decline", "cancel"])
def test_a_confirmed_tool_runs_on_a_yes_alone(how: str) -> None:
    course = begun(["wipe"])
    assert stands(course) == ("input_required", {"question 1"}, None)
    course.answer("question 1", how)
    course.go_on()
    call = course.plan.call(1)
    assert call is not None
    assert course.runs(call) == (how == "accept")


def test_a_question_that_the_host_cannot_show_waits_for_nobody() -> None:
    assert stands(begun(["ask", "wipe"], kinds=["tool_confirmation"])) == ("input_required", {"question 2"}, None)
    assert stands(begun(["ask", "wipe"], kinds=[])) == ("idle", set(), "completed")


@pytest.mark.parametrize(("word", "mark"), [("hold", "mark 1"), ("held stream", "mark 1"), ("slow", "mark 1")])
def test_the_agent_is_held_at_a_mark_until_it_is_let_go(word: str, mark: str) -> None:
    course = begun([word])
    if word == "slow":
        course.settle()
        course.answer("call 1", "grant")
        course.go_on()
    assert stands(course) == ("running", set(), None)
    course.released.add(mark)
    assert stands(course) == ("idle", set(), "completed")


def test_beyond_the_script_a_turn_completes() -> None:
    course = begun(["raise"])
    course.settle()
    course.begin()
    assert stands(course) == ("idle", set(), "completed")


def test_sub_agents_wait_side_by_side() -> None:
    assert stands(begun(["delegate"], is_gated=False)) == ("input_required", {"call 2", "call 3"}, None)


def test_a_plan_leaves_out_what_comes_after_the_end_and_what_does_not_go_together() -> None:
    assert plan_of([["raise", "say"], ["delegate"]]).turns == (("raise",), ())
    assert plan_of([["deploy"], ["delegate"]], is_gated=False).turns == ((), ("delegate",))


def test_what_an_executor_does_not_declare_or_a_harness_not_play_is_not_drawn() -> None:
    assert set(words_for(STEPS, [])) == {"say", "hold", "fail", "recite", "raise", "refuse", "stop"}
    assert "wipe" in words_for(STEPS, ["elicitation"])
    assert "hold" not in words_for(STEPS - {"hold"}, ["elicitation"])


def test_a_plan_is_told_in_words() -> None:
    assert described(plan_of([["look+write"], ["hold"]], kinds=[])) == [
        "turn 1: calls look {'n': 1} (the host's), write {'n': 2}, then says 'after 1'",
        "turn 2: is held at 'mark 3'",
        "the agent's own tools wait for a grant",
        "the host can show questions of the kinds: none",
    ]
