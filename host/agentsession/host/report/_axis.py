"""The time axis: where a moment stands from 0 to 100, with long quiet stretches squeezed.

Not for: drawing. May import: ``_stretches``, ``_words``.

A night in which nothing ran would leave no room for the minute before it. So a stretch in which neither a model nor a
tool was at work takes little room when it is long beside all work together, and says how long it was.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from agentsession.host.report._stretches import Stretch, length, minus, union
from agentsession.host.report._words import tick

__all__ = ["Axis", "Gap", "Tick"]

_LONG: Final = 0.15
"""Of all work: a quiet stretch that is longer is squeezed."""
_SHORT_S: Final = 0.5
"""Nothing shorter is squeezed."""
_ROOM: Final = 0.06
"""What a squeezed stretch takes, of all work."""
_ALL_ROOM: Final = 0.4
"""What all squeezed stretches take together at most, of all work."""
_TICKS: Final = 8
_APART: Final = 7.0
"""Of the width: the least distance of two labels."""
_STEPS: Final = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclasses.dataclass(frozen=True, slots=True)
class Tick:
    """A labelled moment."""

    x: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """A squeezed stretch."""

    x: float
    width: float
    start: float
    end: float


class Axis:
    """From ``start`` to ``end``; ``busy`` is when a model or a tool was at work."""

    def __init__(self, start: float, end: float, busy: Sequence[Stretch]) -> None:
        whole = [(start, max(start, end))]
        work = minus(whole, minus(whole, union(busy)))
        worked = length(work)
        quiet = minus(whole, work) if worked > 0 else []
        long = [one for one in quiet if one[1] - one[0] > max(_LONG * worked, _SHORT_S)]
        room = min(_ROOM * worked, _ALL_ROOM * worked / len(long)) if long else 0.0
        shown = length(whole) - length(long) + room * len(long)
        scale = 100.0 / shown if shown > 0 else 0.0
        self._times = [start]
        self._xs = [0.0]
        self.gaps: list[Gap] = []
        for one in long:
            before = self._xs[-1] + (one[0] - self._times[-1]) * scale
            self.gaps.append(Gap(before, room * scale, *one))
            self._times += one
            self._xs += [before, before + room * scale]
        self._end = whole[0][1]
        self._times.append(self._end)
        self._xs.append(100.0 if scale else 0.0)
        self.ticks = self._ticks(_step((shown - room * len(long)) / _TICKS) if shown > 0 else 0.0)

    def x(self, at: float) -> float:
        """Where a moment stands, 0 to 100."""
        if at <= self._times[0]:
            return 0.0
        if at >= self._end:
            return self._xs[-1]
        place = bisect.bisect_right(self._times, at) - 1
        before, after = self._times[place], self._times[place + 1]
        if after <= before:
            return self._xs[place]
        share = (at - before) / (after - before)
        return self._xs[place] + share * (self._xs[place + 1] - self._xs[place])

    def _ticks(self, step: float) -> list[Tick]:
        origin = self._times[0]
        out = [Tick(0.0, tick(0))]
        if step <= 0 or not math.isfinite(step):
            return out
        marked = [gap.x + gap.width / 2 for gap in self.gaps]
        for place in range(0, len(self._times) - 1, 2):  # the pieces between the squeezed ones
            base: float | None = None
            number = math.ceil((self._times[place] - origin) / step)
            last = math.floor((self._times[place + 1] - origin) / step)
            for one in range(number, min(last, number + 4 * _TICKS) + 1):
                x = self.x(origin + one * step)
                if x - out[-1].x < _APART or x > 92 or any(middle - 6 < x < middle + 2.5 for middle in marked):
                    continue
                moment = round(one * step, 6)
                text = tick(moment)
                if base is not None and text == tick(base):  # after a long night the seconds would not show
                    text = f"+{tick(round(moment - base, 6))}"
                else:
                    base = moment
                out.append(Tick(x, text))
        return out


def _step(rough: float) -> float:
    """A round number of seconds near ``rough``."""
    if rough <= 0:
        return 0.0
    if rough > 30:
        found = next((float(step) for step in _STEPS if step >= rough * 0.8), None)
        if found is not None:
            return found
        days = rough / 86400
        power: float = 10 ** math.floor(math.log10(days))
        return 86400 * power * (1 if days / power < 1.5 else 2 if days / power < 3.5 else 5)
    power = 10 ** math.floor(math.log10(rough))
    return power * (1 if rough / power < 1.5 else 2 if rough / power < 3.5 else 5 if rough / power < 7.5 else 10)
