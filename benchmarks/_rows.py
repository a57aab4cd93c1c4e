"""What a benchmark yields, and how it is printed. May import: the standard library."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable, Iterable

__all__ = ["Row", "best_of", "table"]


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


def table(rows: Iterable[Row]) -> Iterable[str]:
    """The lines of a small table."""
    yield f"{'what':<46} {'measured':>12} {'goal':>12}  unit"
    for row in rows:
        goal = "" if row.goal is None else _number(row.goal)
        yield f"{row.name:<46} {_number(row.value):>12} {goal:>12}  {row.unit}{'  ' + row.note if row.note else ''}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
