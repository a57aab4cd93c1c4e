"""Agents that go in circles are found, those that only work hard are not; how text is cut changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentsession.adapters.base._loops import CallLoop, CallSteps, TextLoop

# -- calls ------------------------------------------------------------------------------------------------------------


def first_loop(steps: Sequence[object]) -> tuple[int, int] | None:
    """After how many steps a loop was found, and how long its cycle is."""
    loop = CallLoop()
    for number, step in enumerate(steps, start=1):
        length = loop.step(step)
        if length is not None:
            return number, length
    return None


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("before", [0, 1, 7])
def test_a_cycle_is_found_when_it_was_seen_five_times(length: int, before: int) -> None:
    cycle = [f"step {number}" for number in range(length)]
    steps = [f"before {number}" for number in range(before)] + cycle * 9
    assert first_loop(steps) == (before + 5 * length, length)


def test_four_times_are_not_five_and_a_cycle_of_six_is_not_looked_for() -> None:
    assert first_loop(["a"] * 4 + ["b"] + ["a"] * 4) is None
    assert first_loop(["a", "b", "c", "d", "e", "f"] * 20) is None


def test_a_poll_whose_answer_changes_is_no_loop() -> None:
    assert first_loop([("status", number) for number in range(500)]) is None


def test_it_counts_anew_after_a_hit() -> None:
    loop = CallLoop()
    assert [loop.step("a") for _ in range(12)] == [None] * 4 + [1] + [None] * 4 + [1, None, None]


@given(st.lists(st.integers(0, 3), max_size=80))
def test_a_loop_is_found_where_a_plain_search_finds_one(steps: list[int]) -> None:
    def plain() -> tuple[int, int] | None:
        for end in range(1, len(steps) + 1):
            for length in range(1, 6):
                cycle = steps[end - length : end]
                if end >= 5 * length and steps[end - 5 * length : end] == cycle * 5:
                    return end, length
        return None

    assert first_loop(steps) == plain()


# -- steps ------------------------------------------------------------------------------------------------------------


def test_calls_that_were_made_at_once_are_one_step_whatever_comes_back_first() -> None:
    found = []
    for order in (["1", "2"], ["2", "1"]):
        steps = CallSteps()
        steps.asked("1", "look")
        steps.asked("2", "dig")
        assert steps.answered(order[0], "ok") is None
        found.append(steps.answered(order[1], "ok"))
    assert found[0] is not None
    assert found[0] == found[1]


def test_a_call_made_after_an_answer_is_another_step() -> None:
    steps = CallSteps()
    steps.asked("1", "look")
    one = steps.answered("1", "ok")
    steps.asked("2", "look")
    two = steps.answered("2", "ok")
    steps.asked("3", "look")
    assert one == two != steps.answered("3", "other")


def test_a_call_that_stays_open_hides_no_later_step() -> None:
    steps = CallSteps()
    steps.asked("slow", "wait")
    steps.asked("1", "look")
    assert steps.answered("1", "ok") is None
    steps.asked("2", "look")
    assert steps.answered("2", "ok") is not None
    assert steps.answered("slow", "ok") is not None
    assert steps.answered("nobody", "ok") is None


# -- text -------------------------------------------------------------------------------------------------------------

SENTENCE = "I will now look at the file and see what is wrong with it. "


def feed(text: str, sizes: Sequence[int] = (7,)) -> int:
    loop, place, found, turn = TextLoop(), 0, 0, 0
    while place < len(text):
        size = sizes[turn % len(sizes)]
        found += loop.feed(text[place : place + size])
        place, turn = place + size, turn + 1
    return found


@pytest.mark.parametrize(
    "text",
    [
        SENTENCE * 20,
        (SENTENCE + "\n") * 20,
        "ha" * 600,
        "\n" * 600,
        "The answer is: " + "0" * 700,
        ("One. " + SENTENCE + "Two. " + SENTENCE) * 12,
    ],
)
def test_text_that_repeats_itself_is_found(text: str) -> None:
    assert feed(text) >= 1


@pytest.mark.parametrize(
    "text",
    [
        SENTENCE * 8,
        "".join(f"- {SENTENCE}\n" for _ in range(60)),
        "".join(f"{number}. {SENTENCE}\n" for number in range(60)),
        "".join(f"| {SENTENCE} | {SENTENCE} |\n" for _ in range(60)),
        "".join(f"## {SENTENCE}\n{SENTENCE}\n" for _ in range(60)),
        "```python\n" + f"x = '{SENTENCE}'\n" * 60 + "```\n",
        "".join(f"{SENTENCE}File {number} has {number * number} lines.\n" for number in range(60)),
        "-" * 200 + "\n",
        SENTENCE.join(" ".join(str(number * 7919 + step) for step in range(50)) for number in range(30)),
    ],
    ids=["eight", "list", "numbers", "table", "headings", "code", "differs", "rule", "far_apart"],
)
def test_text_that_only_has_structure_is_not(text: str) -> None:
    assert feed(text) == 0


ROWS = [[0] * 20] * 40
RECORDS = [{"name": "", "passed": True, "reason": "the check has passed"}] * 40


@pytest.mark.parametrize("data", [ROWS, RECORDS, {"rows": ROWS}], ids=["rows", "records", "object"])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_answer_that_is_data_repeats_itself_by_nature(data: object, indent: int | None) -> None:
    assert feed("\n" + json.dumps(data, indent=indent)) == 0


@pytest.mark.parametrize("begin", ["[1] ", "{placeholder} ", "[link](x) ", "Here: {}\n"])
def test_a_bracket_alone_makes_no_data(begin: str) -> None:
    assert feed(begin + SENTENCE * 20) >= 1


def test_what_comes_after_data_in_another_message_is_looked_at_again() -> None:
    loop = TextLoop()
    assert loop.feed('{"text": "' + SENTENCE * 20) == 0
    loop.reset()
    assert loop.feed(SENTENCE * 20) >= 1


def test_what_comes_after_code_is_looked_at_again() -> None:
    assert feed("```\n" + SENTENCE * 20 + "\n```\n") == 0
    assert feed("```\ncode\n```\n" + SENTENCE * 20) >= 1


def test_a_reset_forgets_what_was_said_and_that_it_was_code() -> None:
    loop = TextLoop()
    assert loop.feed(SENTENCE * 8 + "\n```\n") == 0
    loop.reset()
    assert loop.feed(SENTENCE * 8) == 0
    assert loop.feed(SENTENCE * 8) >= 1


@st.composite
def repeating(draw: st.DrawFn) -> str:
    pieces = draw(
        st.lists(
            st.sampled_from(
                [
                    SENTENCE,
                    "ab",
                    "\n",
                    "```\n",
                    "- ",
                    "| a |\n",
                    "   ",
                    " " * 45,
                    "# x\n",
                    "---\n",
                    "12. ",
                    "ü" * 60,
                    "[0, 0]\n",
                    "{",
                ]
            ),
            min_size=1,
            max_size=6,
        )
    )
    return "".join(pieces) * draw(st.integers(1, 25)) + draw(st.text(max_size=20))


@given(repeating(), st.lists(st.integers(1, 400), min_size=1, max_size=5))
@example(SENTENCE * 40, [1])
def test_how_text_is_cut_changes_nothing(text: str, sizes: list[int]) -> None:
    assert feed(text, sizes) == feed(text, [len(text)])
