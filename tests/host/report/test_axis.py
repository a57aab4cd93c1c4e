"""Where a moment stands on the time axis."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.host.report._axis import Axis
from agentsession.host.report._stretches import union
from agentsession.host.report._words import duration, tick


def test_without_a_long_quiet_stretch_time_is_linear() -> None:
    axis = Axis(0, 40, [(0, 18), (20, 40)])
    assert [axis.x(at) for at in (0, 10, 20, 40)] == [0, 25, 50, 100]
    assert [(one.x, one.text) for one in axis.ticks[:3]] == [(0, "0"), (12.5, "5s"), (25, "10s")]


def test_a_long_quiet_stretch_is_squeezed_to_a_small_share() -> None:
    axis = Axis(0, 1020, [(0, 10), (1010, 1020)])
    (gap,) = axis.gaps
    assert (gap.start, gap.end) == (10, 1010)
    assert gap.width == pytest.approx(100 * 1.2 / 21.2)
    assert axis.x(10) == pytest.approx(100 - axis.x(1010))


def test_a_record_that_took_no_time_stands_at_the_beginning() -> None:
    axis = Axis(3, 3, [])
    assert [axis.x(at) for at in (0, 3, 9)] == [0, 0, 0]


moments = st.floats(0, 1e9) | st.sampled_from([0.0, 0.001, 3.0, 1e11])
busy_lists = st.lists(st.tuples(moments, moments).map(sorted).map(tuple), max_size=6)


@given(moments, busy_lists, st.lists(moments, max_size=8))
def test_later_is_never_further_left_and_all_is_on_the_axis(end: float, busy: Any, some: list[float]) -> None:
    axis = Axis(0, end, union(busy))
    xs = [axis.x(at) for at in sorted(some)]
    assert xs == sorted(xs)
    assert all(0 <= x <= 100 for x in (*xs, *(one.x for one in axis.ticks)))
    assert all(gap.width > 0 or end == 0 for gap in axis.gaps)
    places = [one.x for one in axis.ticks]
    assert all(after - before >= 7 for before, after in itertools.pairwise(places))


@pytest.mark.parametrize(
    ("given", "shown"),
    [(0, "0s"), (0.045, "45ms"), (0.9996, "1.0s"), (9.96, "10s"), (185, "3m05s"), (7500, "2h05m"), (266_400, "3d02h")],
)
def test_a_duration_has_two_units_at_most(given: float, shown: str) -> None:
    assert duration(given) == shown


@pytest.mark.parametrize(
    ("given", "shown"), [(0, "0"), (0.05, "50ms"), (2.5, "2.5s"), (90, "1m30s"), (7200, "2h"), (90_000, "1d1h")]
)
def test_a_tick_leaves_out_what_is_nothing(given: float, shown: str) -> None:
    assert tick(given) == shown


def test_after_a_long_night_labels_tell_the_seconds_from_the_first_one_on() -> None:
    axis = Axis(0, 4018, [(0, 8), (4010, 4018)])
    texts = [one.text for one in axis.ticks]
    assert len(set(texts)) == len(texts)
    assert [text for text in texts if text.startswith("+")] != []
