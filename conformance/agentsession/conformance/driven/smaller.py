"""Seeks the smallest sequence in which a rule breaks: takes away what the break does not need, until nothing is left.

Not for: playing a sequence (``moves.py``) or drawing one (``machine.py``). Rules carried: none. May import: ``moves``,
``plans``.

Hypothesis makes smaller what it has drawn, and knows nothing of steps. Here a step, a block of the script or a choice
is taken away at a time: some dozen runs, after which nothing is left that could be missed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from agentsession.conformance.driven.moves import Move
from agentsession.conformance.driven.plans import Plan, plan_of

__all__ = ["Sketch", "smallest"]

_PLAIN: Final[Mapping[str, Any]] = {
    "reads": "to its end",
    "way": "respond",
    "by_stream": False,
    "enter": False,
    "only": None,
    "which": "title",
    "how": "unknown",
    "place": 0,
    "count": 1,
    "places": (0,),
    "ways": (0,),
}
"""The plainest choice of each kind."""


@dataclasses.dataclass(frozen=True)
class Sketch:
    """A sequence before it is played: what the agent plays, and the steps."""

    turns: tuple[tuple[str, ...], ...]
    is_gated: bool
    kinds: tuple[str, ...] | None
    moves: tuple[Move, ...]

    @property
    def plan(self) -> Plan:
        return plan_of(self.turns, is_gated=self.is_gated, kinds=self.kinds)


def smallest(found: Sketch, still: Callable[[Sketch], Sketch | None], tries: int) -> Sketch:
    """The smallest sequence that ``still`` breaks the rule.

    ``still`` plays one, and gives it back with the steps that were taken, or ``None`` where it does not break. It is
    asked so many times at the most.
    """
    left = tries
    while True:
        for one in _smaller(found):
            if left == 0:
                return found
            left -= 1
            again = still(one)
            if again is not None:
                found = again
                break
        else:
            return found


def _smaller(sketch: Sketch) -> Iterator[Sketch]:
    """Everything that is one thing less, the largest things first."""
    moves, turns = sketch.moves, sketch.turns
    for size in (len(moves) // 2, 3, 1):
        if size and (size == 1 or len(moves) > size):
            for place in range(len(moves) - size, -1, -1):
                yield dataclasses.replace(sketch, moves=moves[:place] + moves[place + size :])
    for place in range(len(turns)):
        if len(turns) > 1:
            yield dataclasses.replace(sketch, turns=turns[:place] + turns[place + 1 :])
    for place, turn in enumerate(turns):
        for at in range(len(turn)):
            yield _with_turn(sketch, place, turn[:at] + turn[at + 1 :])
    for place, turn in enumerate(turns):
        for at, word in enumerate(turn):
            for plainer in _plainer(word):
                yield _with_turn(sketch, place, (*turn[:at], plainer, *turn[at + 1 :]))
    if sketch.kinds is not None:
        yield dataclasses.replace(sketch, kinds=None)
    for place, move in enumerate(moves):
        for name, value in move.args.items():
            if value != _PLAIN[name]:
                plain = Move(move.name, {**move.args, name: _PLAIN[name]})
                yield dataclasses.replace(sketch, moves=(*moves[:place], plain, *moves[place + 1 :]))


def _with_turn(sketch: Sketch, place: int, turn: tuple[str, ...]) -> Sketch:
    turns = sketch.turns
    return dataclasses.replace(sketch, turns=(*turns[:place], turn, *turns[place + 1 :]))


def _plainer(word: str) -> Iterator[str]:
    names = word.split("+")
    if len(names) > 1:
        for place in range(len(names)):
            fewer = "+".join(names[:place] + names[place + 1 :])
            if fewer in ("look", "write", "wipe", "look+look", "look+write"):
                yield fewer
    elif word == "held stream":
        yield "hold"
