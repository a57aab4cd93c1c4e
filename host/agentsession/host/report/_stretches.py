"""Stretches of time: their union, what is left of some without others, their length; and when a timestamp is.

May import: the standard library.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

__all__ = ["Stretch", "length", "minus", "moment_of", "union"]

Stretch = tuple[float, float]
"""From and to, in seconds."""


def union(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same moments as stretches that neither overlap nor touch, in order."""
    out: list[Stretch] = []
    for start, end in sorted(stretches):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def minus(stretches: Sequence[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    """The moments of ``stretches`` that are in none of ``others``. Both are unions; so is the result."""
    out: list[Stretch] = []
    index = 0
    for start, end in stretches:
        while index < len(others) and others[index][1] <= start:
            index += 1
        at, place = start, index
        while place < len(others) and others[place][0] < end:
            if others[place][0] > at:
                out.append((at, others[place][0]))
            at = max(at, others[place][1])
            place += 1
        if at < end:
            out.append((at, end))
    return out


def length(stretches: Iterable[Stretch]) -> float:
    """The seconds of a union."""
    return sum(end - start for start, end in stretches)


def moment_of(timestamp: str) -> datetime.datetime | None:
    """The moment in UTC; ``None`` when the text is none."""
    try:
        moment = datetime.datetime.fromisoformat(timestamp)
        return moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return None
