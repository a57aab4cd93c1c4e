"""The steps of a driven session's host as data, which can be drawn, kept, and played again without some of them.

Not for: what a step does (``session.py``, ``lives.py``). Rules carried: none.
May import: ``agentsession.protocol``, anyio, the modules of the suite.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from agentsession.conformance.driven import answering, control, reads
from agentsession.conformance.driven.lives import close_and_load, end, kill_and_load
from agentsession.conformance.driven.plans import Plan
from agentsession.conformance.driven.session import Driven
from agentsession.conformance.harness import Harness
from agentsession.conformance.runner import alone
from agentsession.conformance.scene import scene_of

__all__ = ["MOVES", "Move", "Played", "driven_by", "play", "take"]


@dataclasses.dataclass(frozen=True)
class Move:
    """One step, and what it was given."""

    name: str
    args: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Played:
    """What came of a whole sequence."""

    error: Exception | None
    """What broke, if something did."""
    lines: tuple[str, ...] = ()
    """What was done, in words."""
    moves: tuple[Move, ...] = ()
    """The steps that were taken: all, or those up to the one that broke."""
    is_stuck: bool = False
    """Whether what broke is that nothing more happened."""


def _always(driven: Driven) -> bool:
    return True


MOVES: Final[Mapping[str, tuple[Callable[[Driven], object], Callable[..., Awaitable[None]]]]] = {
    "say": (_always, Driven.say),
    "release": (lambda driven: driven.session.state == "running", Driven.release),
    "go_on": (_always, Driven.go_on),
    "answer": (lambda driven: driven.session.pending, answering.answer),
    "answer_again": (lambda driven: driven.applied, answering.answer_again),
    "answer_strangely": (_always, answering.answer_strangely),
    "progress": (lambda driven: driven.session.pending, answering.progress),
    "steer": (_always, control.steer),
    "steer_at_once": (lambda driven: not driven.course.is_open and "steering" in driven.can, control.steer_at_once),
    "abort_at_once": (lambda driven: not driven.course.is_open and "abort" in driven.can, control.abort_at_once),
    "update": (_always, control.update),
    "abort": (_always, control.abort),
    "attach": (_always, reads.attach),
    "read_back": (_always, reads.read_back),
    "read_beyond": (_always, reads.read_beyond),
    "read_on": (lambda driven: driven.slow, reads.read_on),
    "leave": (lambda driven: driven.leaving, reads.leave),
    "kill": (_always, kill_and_load),
    "close": (_always, close_and_load),
}
"""Each step: when it can be taken, and what it does."""


async def take(driven: Driven, move: Move) -> None:
    """Take a step. Raises ``Break``, or whatever the executor raises."""
    await MOVES[move.name][1](driven, **move.args)


@asynccontextmanager
async def driven_by(harness: Harness, plan: Plan) -> AsyncIterator[Driven]:
    """A session that is not opened yet; everything is left and removed at the end."""
    async with scene_of(harness, random.Random(0)) as scene:
        async with anyio.create_task_group() as group:
            try:
                yield Driven(scene, group, plan)
            finally:
                group.cancel_scope.cancel()


async def bounded(driven: Driven, work: Awaitable[object], limit_s: float) -> None:
    """Do something that must be over in some time. Raises ``Stuck`` where it is not."""
    with anyio.move_on_after(limit_s) as limit:
        await work
    if limit.cancelled_caught:
        raise Stuck(driven)


class Stuck(Exception):
    """Nothing more happened."""

    def __init__(self, driven: Driven) -> None:
        super().__init__()
        self.broken = driven.stuck()


async def play(harness: Harness, plan: Plan, moves: Sequence[Move], limit_s: float) -> Played:
    """Play a whole sequence again, without the steps that cannot be taken where they stand, and bring it to its end."""
    driven: Driven | None = None
    taken: list[Move] = []
    error: Exception | None = None
    try:
        async with driven_by(harness, plan) as driven:
            try:
                await bounded(driven, driven.open(), limit_s)
                for move in moves:
                    if MOVES[move.name][0](driven):
                        taken.append(move)
                        await bounded(driven, take(driven, move), limit_s)
                await bounded(driven, end(driven), limit_s)
            except Exception as broken:  # noqa: BLE001  # whatever it is, it is a verdict
                error = broken
    except (Exception, BaseExceptionGroup) as broken:  # noqa: BLE001  # as above, raised as the executor was left
        error = error or alone(broken)
    is_stuck = isinstance(error, Stuck)
    shown = error.broken if isinstance(error, Stuck) else None if error is None else alone(error)
    return Played(shown, tuple(driven.lines) if driven is not None else (), tuple(taken), is_stuck)
