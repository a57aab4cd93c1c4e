"""Kills an executor's process at any line that it prints, many times, and comes to a verdict on what is left.

For: ``agentsession conform … --kills N``, and tests. Not for: executors in this process, whose death is played.
Rules carried: those of ``killing.py``. May import: ``agentsession.protocol``, anyio, the modules beside it.

A kill leaves what is on the disk, and what is known outside. The second changes with each line that the process prints,
so to be killed at the n-th line, for any n, is to be killed wherever somebody could tell the difference.
"""

from __future__ import annotations

import dataclasses
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agentsession.conformance.engine import Break
from agentsession.conformance.harness import CannotPlay
from agentsession.conformance.killing import KilledSession, Plan
from agentsession.conformance.results import Extra, Result, Status
from agentsession.conformance.runner import describe, judged
from agentsession.conformance.stdio.harness import StdioHarness

__all__ = ["KILLED", "KillReport", "run_kills"]

KILLED: Final = ("PER-02", "PER-04", "TOOL-05", "ORD-01")
"""The rules that pass when no kill has broken any."""

_MOST_LIVES: Final = 8
"""After so many lives a session is let live."""

_ENOUGH: Final = 10
"""After so many failures no more is tried."""


@dataclasses.dataclass(frozen=True, slots=True)
class KillReport:
    """What many kills have left."""

    seed: int
    kills: int
    """How many processes were killed."""
    sessions: int
    lives: int
    events: int
    """How many events the processes had told before they were killed."""
    results: tuple[Result, ...]
    """A failure for each session that was not as it must be; else a pass for each of :data:`KILLED`, or that it could
    not be tried."""

    @property
    def is_good(self) -> bool:
        return all(result.status.is_good for result in self.results)

    @property
    def extra(self) -> Extra:
        """The same as a part of a report of the suite."""
        untried = (Status.NOT_APPLICABLE, Status.NOT_RUN)
        why = [result.message for result in self.results if result.status in untried]
        return Extra("kills", why[0] if why else str(self), self.results)

    def __str__(self) -> str:
        failed = sum(result.status is Status.FAIL for result in self.results)
        told = f"{self.kills} kills in {self.sessions} sessions, {self.events} events told before"
        return f"{told}: {f'{failed} failures' if failed else 'nothing lost, nothing run twice'} (seed {self.seed})"


async def run_kills(
    harness: StdioHarness, *, kills: int = 200, seed: int = 1, heard: Callable[[int], None] | None = None
) -> KillReport:
    """Play session after session, until so many processes were killed, and judge each.

    Args:
        harness: Starts the processes.
        kills: How many are killed.
        seed: Of all that is left to chance.
        heard: Told of each kill, with how many there were.

    Raises:
        HarnessBroke: no executor could be started.
    """
    descriptor = await describe(harness)
    if not descriptor.supports("load"):
        said = "load is not declared: what a kill leaves cannot be looked at"
        return KillReport(seed, 0, 0, 0, 0, tuple(Result(rule, Status.NOT_APPLICABLE, said) for rule in KILLED))
    run = _Run(harness, kills, seed, heard)
    untried: list[Result] = []
    try:
        while run.done < kills and len(run.failed) < _ENOUGH and not run.is_hopeless:
            await run.session(descriptor.capabilities)
    except CannotPlay as error:
        untried = judged(KILLED, error)
    results = run.failed or untried or [Result(rule, Status.PASS, scenario="kills") for rule in KILLED]
    return KillReport(seed, run.done, run.sessions, run.lives, run.events, tuple(results))


class _Run:
    """The sessions so far."""

    def __init__(self, harness: StdioHarness, kills: int, seed: int, heard: Callable[[int], None] | None) -> None:
        self._harness = harness
        self._kills = kills
        self._seed = seed
        self._heard = heard
        self._usual = 0
        """How many lines a life prints that nobody cuts off."""
        self.done = self.sessions = self.lives = self.events = 0
        self.failed: list[Result] = []

    @property
    def is_hopeless(self) -> bool:
        """Whether it fails also where nobody kills it: then a kill tells nothing more."""
        return self._usual == 0 and bool(self.failed)

    async def session(self, capabilities: list[str]) -> None:
        """One session to its end, killed wherever chance has it. The first is let live: it tells how long a life is."""
        self.sessions += 1
        chance = random.Random(f"{self._seed} {self.sessions}")
        with tempfile.TemporaryDirectory() as folder:
            session = KilledSession(self._harness, Plan(chance, capabilities), Path(folder), chance)
            points: list[int | None] = []
            try:
                while True:
                    points.append(self._point(chance, session.lives))
                    if await session.live(points[-1]):
                        break
                    self.done += 1
                    if self._heard is not None:
                        self._heard(self.done)
            except Break as broken:
                at = ", ".join("not" if point is None else f"line {point}" for point in points)
                said = f"{broken.message} (session {self.sessions} of seed {self._seed}; lives killed at: {at})"
                self.failed.append(Result(broken.rule, Status.FAIL, said, broken.evidence, scenario="kills"))
            else:
                if session.lives == 1:
                    self._usual = session.lines
            self.lives += session.lives
            self.events += session.events

    def _point(self, chance: random.Random, lives: int) -> int | None:
        if self._usual == 0 or lives >= _MOST_LIVES or self.done >= self._kills:
            return None
        return chance.randint(1, self._usual if lives == 0 else max(4, self._usual // 2))
