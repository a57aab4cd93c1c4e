"""What a failed model call means, how long to wait, and how healthy that makes a model."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.host.models import Health, classify, next_delay, transition
from agentsession.host.models._availability import HealthEvent
from agentsession.protocol import ModelErrorHook

EVENTS = ["success", "turn", "transient", "capacity", "quota", "missing"]
RANK = {"healthy": 0, "sticky_retry": 0, "capacity": 1, "quota": 2, "missing": 3}


def error(**fields: Any) -> ModelErrorHook:
    return ModelErrorHook(session_id="s", user_id="u", error_type="E", **fields)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"code": 429, "status": "RESOURCE_EXHAUSTED"}, "transient"),
        ({"code": 429, "status": "RESOURCE_EXHAUSTED", "exhausted": True}, "terminal"),
        ({"code": 429, "retry_after_s": 300.0}, "transient"),
        ({"code": 429, "retry_after_s": 301.0}, "terminal"),
        ({"code": 499}, "transient"),
        ({"code": 500}, "transient"),
        ({"code": 503}, "transient"),
        ({"code": 501}, "unknown"),
        ({"code": 408}, "transient"),
        ({"code": 400, "status": "INVALID_ARGUMENT"}, "unknown"),
        ({"code": 400, "status": "UNAVAILABLE"}, "unknown"),
        ({"code": 401}, "unknown"),
        ({"code": 403}, "unknown"),
        ({"code": 500, "status": "UNIMPLEMENTED"}, "unknown"),
        ({"code": 404}, "not_found"),
        ({"code": 400, "status": "NOT_FOUND"}, "unknown"),
        ({"status": "NOT_FOUND"}, "not_found"),
        ({"status": "UNAVAILABLE"}, "transient"),
        ({"status": "DEADLINE_EXCEEDED"}, "transient"),
        ({}, "unknown"),
    ],
)
def test_errors_are_told_apart_by_code_and_status(fields: dict[str, Any], kind: str) -> None:
    assert classify(error(**fields)).kind == kind


@pytest.mark.parametrize(
    ("fields", "crowded"),
    [({"code": 503}, True), ({"code": 529}, True), ({"status": "UNAVAILABLE"}, True), ({"code": 500}, False)],
)
def test_an_overloaded_provider_is_told_from_a_broken_one(fields: dict[str, Any], crowded: bool) -> None:
    assert classify(error(**fields)).crowded is crowded


def test_waits_double_from_five_seconds_to_thirty_and_end_after_ten_calls() -> None:
    middle = cast(random.Random, type("Middle", (), {"random": lambda self: 0.5})())
    assert [next_delay(n, None, middle) for n in range(1, 11)] == [
        5.0,
        10.0,
        20.0,
        30.0,
        30.0,
        30.0,
        30.0,
        30.0,
        30.0,
        None,
    ]


@given(st.integers(1, 20), st.none() | st.floats(0, 1000), st.integers(0, 2**32))
def test_a_wait_is_never_shorter_than_the_provider_asks_and_never_far_beyond_it(
    n: int, hint: float | None, seed: int
) -> None:
    delay = next_delay(n, hint, random.Random(seed))
    if delay is None:
        assert n >= 10 or (hint is not None and hint > 300)
    elif hint is not None and hint >= 1:
        assert hint <= delay <= hint * 1.2
    else:
        assert 0.7 * min(30, 5 * 2 ** (n - 1)) <= delay <= 1.3 * min(30, 5 * 2 ** (n - 1))


def test_an_overloaded_model_is_tried_again_quickly_where_another_stands_ready() -> None:
    rng = random.Random(1)
    assert [next_delay(n, None, rng, tries=3, crowded=True) for n in (1, 2, 3)] == [1.0, 3.0, None]


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0, 40), st.none() | st.floats(0, 500))))
def test_a_terminal_state_is_made_milder_by_success_or_time_alone(
    steps: list[tuple[HealthEvent, float, float | None]],
) -> None:
    now, health = 0.0, Health()
    for event, later, hint in steps:
        now += later
        held = not health.is_available(now)
        before, health = health, transition(health, event, now, hint)
        if event == "success":
            assert health == Health()
        elif held:
            assert RANK[health.state] >= RANK[before.state]
            if health.state == before.state and before.until is not None:
                assert health.until is not None
                assert health.until >= before.until
            assert not health.is_available(now) or hint == 0


def test_one_failure_leaves_one_more_try_and_a_new_turn_forgets_it() -> None:
    once = transition(Health(), "transient", 0)
    assert (once.state, once.is_available(0)) == ("sticky_retry", True)
    assert transition(once, "turn", 0) == Health()
    twice = transition(once, "transient", 0)
    assert (twice.state, twice.is_available(29), twice.is_available(30)) == ("capacity", False, True)
    assert transition(twice, "turn", 1) == twice


def test_a_quota_holds_until_the_provider_says_it_is_reset() -> None:
    spent = transition(Health(), "quota", 100, 600)
    assert (spent.is_available(699), spent.is_available(700)) == (False, True)
    assert transition(spent, "capacity", 101) == spent
    assert transition(transition(Health(), "missing", 0), "quota", 1).state == "missing"
