"""What a benchmark yields, and how it is measured and printed. May import: the standard library."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

__all__ = ["Measured", "Row", "best_of", "in_turn", "ratio", "table"]

Measured = Callable[[], Awaitable[float]]
"""Does its work once, in a loop of its own, and says how many seconds of it count."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One measurement. A ``goal`` is what docs/explanation/performance.md promises, in the same unit."""

    name: str
    value: float
    unit: str = "events/s"
    goal: float | None = None
    note: str = ""


def best_of(times: int, work: Callable[[], object], *, clock: Callable[[], float] = time.process_time) -> float:
    """The least seconds that ``work`` took, by default of the processor's time: other processes then hardly count."""
    least = float("inf")
    for _ in range(times):
        gc.collect()
        start = clock()
        work()
        least = min(least, clock() - start)
    return least


def in_turn(rounds: int, ways: Mapping[str, Measured]) -> dict[str, list[float]]:
    """Each way once a round, now in one order and now in the other: a shared machine drifts by more than what is
    measured, so only what ran next to each other can be compared."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, measured in ways.items() if number % 2 else reversed(list(ways.items())):
            times[way].append(asyncio.run(measured()))  # type: ignore[arg-type]  # coroutine functions
    return times


def ratio(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """The median of the ratios of pairs that ran one after the other."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def table(rows: Iterable[Row]) -> Iterable[str]:
    """The lines of a small table."""
    yield f"{'what':<58} {'measured':>12} {'goal':>12}  unit"
    for row in rows:
        goal = "" if row.goal is None else _number(row.goal)
        yield f"{row.name:<58} {_number(row.value):>12} {goal:>12}  {row.unit}{'  ' + row.note if row.note else ''}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
