"""What belongs to limits: the tighter one of two, and what a call costs by a list of prices."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from agentsession.protocol import Constraints, ExecutionOptions, Grace, Price, Usage, tightest, usage_cost

PRICES = {"big": Price(input=1, output=10, cached_input=0.1), "small-*": Price(input=0.1, output=1)}
MILLION = 1_000_000


def test_of_each_limit_the_smaller_one_that_is_given_holds() -> None:
    own, hosts = Constraints(max_turns=3, max_llm_calls=9), Constraints(max_turns=7, max_time_seconds=2.5)
    expected = Constraints(max_turns=3, max_llm_calls=9, max_time_seconds=2.5)
    assert tightest(own, None, hosts) == tightest(hosts, own) == expected
    assert tightest(None) == Constraints()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"input_tokens": MILLION, "output_tokens": MILLION}, 11.0),
        ({"input_tokens": MILLION, "output_tokens": 0, "cached_tokens": MILLION // 2}, 0.55),
        ({"input_tokens": 0, "output_tokens": 0, "reasoning_tokens": MILLION}, 10.0),
        ({"input_tokens": 10, "total_tokens": MILLION + 10}, 10.00001),
        ({"input_tokens": 10, "output_tokens": 0, "cached_tokens": MILLION}, 0.000001),
        ({"input_tokens": MILLION}, None),
        ({"output_tokens": MILLION}, None),
        ({"total_tokens": MILLION}, None),
        ({}, None),
        ({"cost": 0.25}, 0.25),
    ],
)
def test_what_a_call_costs_by_its_tokens(counts: dict[str, Any], expected: float | None) -> None:
    found = usage_cost(Usage(model="big", **counts), PRICES)
    assert found == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("model", "expected"),
    [("small-1", 0.1), ("small-2-new", 0.2), ("small-9", 0.9), ("other", None), (None, None)],
)
def test_a_name_goes_before_a_pattern_and_a_longer_pattern_before_a_shorter_one(
    model: str | None, expected: float | None
) -> None:
    prices = {**PRICES, "small-2-*": Price(input=0.2, output=1), "small-9": Price(input=0.9, output=1)}
    found = usage_cost(Usage(model=model, input_tokens=MILLION, output_tokens=0), prices)
    assert found == (None if expected is None else pytest.approx(expected))


def test_options_with_prices_and_a_last_word_go_over_the_wire_and_come_back() -> None:
    options = ExecutionOptions(grace=Grace(reserve_usd=0.1, completion_tool="hand_in"), prices=PRICES)
    wire = options.to_wire()
    assert wire["grace"] == {"seconds": 60.0, "reserveUsd": 0.1, "completionTool": "hand_in"}
    assert wire["prices"]["big"] == {"input": 1.0, "output": 10.0, "cachedInput": 0.1}
    assert ExecutionOptions.model_validate(wire) == options


@pytest.mark.parametrize("wrong", [{"input": -1, "output": 1}, {"input": 1}, {"input": 1, "output": "2"}])
def test_a_price_below_nothing_or_without_a_number_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Price.model_validate(wrong)
