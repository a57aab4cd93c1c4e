"""How much of tool outputs a model is shown: by sizes and places alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentsession.host.models._output_view import Limits, estimate_tokens, masked, outputs_of, shortened, shown_as
from agentsession.protocol import FunctionCall, FunctionResponse, ModelContent, Text

LIMITS = Limits(longest=100, kept_tokens=50, least_tokens=30, preview=5)


def one_each(*sizes: int) -> list[tuple[int, int]]:
    """Outputs that each reached the model alone."""
    return list(enumerate(sizes))


def test_nothing_is_masked_before_enough_is_beyond_the_newest() -> None:
    assert masked(one_each(10, 10, 9, 50), LIMITS) == set()
    assert masked(one_each(10, 10, 10, 50), LIMITS) == {0, 1, 2}
    assert masked(one_each(29, 60), LIMITS) == set()
    assert masked(one_each(30, 60), LIMITS) == {0}


def test_the_newest_and_the_last_step_stay_whatever_their_size() -> None:
    assert masked([(0, 100), (1, 200), (1, 200)], LIMITS) == {0}
    assert masked([(0, 500)], LIMITS) == set()
    assert masked(one_each(40, 40, 30, 20), LIMITS) == {0, 1}


def test_results_of_one_step_come_together() -> None:
    assert masked([(0, 40), (1, 20), (2, 25), (2, 25)], LIMITS) == {0, 1}
    assert masked([(0, 40), (1, 20), (2, 25), (3, 25)], LIMITS) == {0}


def test_what_was_masked_once_stays_masked_and_the_rest_waits_for_enough() -> None:
    assert masked(one_each(*[10] * 8), LIMITS) == {0, 1, 2}
    assert masked(one_each(*[10] * 10), LIMITS) == {0, 1, 2}
    assert masked(one_each(*[10] * 11), LIMITS) == {0, 1, 2, 3, 4, 5}


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60)), max_size=30))
def test_each_request_masks_what_the_one_before_did_and_a_rewind_undoes_it(steps: list[tuple[int, int]]) -> None:
    place, outputs = 0, list[tuple[int, int]]()
    for further, size in steps:
        place += further
        outputs.append((place, size))
    whole = masked(outputs, LIMITS)
    cut = [end for end in range(1, len(outputs)) if outputs[end][0] != outputs[end - 1][0]]
    for end in cut:
        before = masked(outputs[:end], LIMITS)
        assert before <= whole
        assert all(index < end for index in before)
    visible = [size for index, (_, size) in enumerate(outputs) if index not in whole]
    last = sum(size for at, size in outputs if outputs and at == outputs[-1][0])
    assert sum(visible) < LIMITS.kept_tokens + LIMITS.least_tokens + max([60, *(size for _, size in outputs)]) + last


def test_a_long_text_shows_a_fifth_from_its_head_and_the_rest_from_its_tail() -> None:
    shown = shortened("h" * 500 + "t" * 500, LIMITS, "[pointer]")
    assert shown == "h" * 20 + "\n\n[pointer]\n\n" + "t" * 80


def test_outputs_are_found_whatever_form_they_have() -> None:
    contents = [
        ModelContent(role="model", content=[FunctionCall(name="look", id="c1", args={})]),
        ModelContent(
            role="user",
            content=[
                Text(text="hello"),
                FunctionResponse(name="look", id="c1", response={"result": "text"}),
                FunctionResponse(name="count", response={"n": 1, "of": ["a"]}),
            ],
        ),
    ]
    first, second = outputs_of(contents)
    assert (first.place, first.text, first.request_id) == ((1, 1), "text", "c1")
    assert (second.place, second.text, second.request_id) == ((1, 2), '{\n "n": 1,\n "of": [\n  "a"\n ]\n}', "count")
    assert shown_as(first.part, "less").response == {"result": "less"}
    assert shown_as(second.part, "less").response == {"output": "less"}


def test_the_estimate_counts_other_scripts_dearer() -> None:
    assert (estimate_tokens("a" * 400), estimate_tokens("ж" * 100), estimate_tokens("")) == (100, 130, 0)
