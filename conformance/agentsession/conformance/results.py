"""What a run of the suite found: a verdict for every rule, and what it adds up to.

Not for: finding it (``engine.py``, ``runner.py``) or showing it (``report``). Rules carried: none.
May import: ``agentsession.protocol``.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from agentsession.protocol import HOST_RULES, RULES, AgentDescriptor, Level, Rule

__all__ = ["LEVELS", "Evidence", "Extra", "LevelScore", "Report", "Result", "Status"]

LEVELS: Final[tuple[Level, ...]] = ("core", "interactive", "durable", "full")
"""The levels, each of which asks for the ones before."""

AnyLevel = Level | Literal["host"]
"""A level of executors, or the one that there is of hosts."""


class Status(enum.StrEnum):
    """The verdict on one rule."""

    PASS = "pass"
    FAIL = "fail"
    EXPECTED_FAIL = "expected-fail"
    """It fails or was not run, and the file of expected failures says so, with a reason."""
    UNEXPECTED_PASS = "unexpected-pass"
    """It passes although a failure is expected: the entry is stale, and that fails the run."""
    NOT_APPLICABLE = "n/a"
    """The descriptor does not declare what the rule is about, and the executor says so when it is asked."""
    NOT_RUN = "not-run"
    """It could not be tried: counts against the executor, for nobody knows."""
    HARNESS_ERROR = "harness-error"
    """The harness broke, not the executor."""

    @property
    def is_good(self) -> bool:
        """Whether a run with this verdict may pass."""
        return self in (Status.PASS, Status.EXPECTED_FAIL, Status.NOT_APPLICABLE)

    @property
    def counts(self) -> bool:
        """Whether the rule is one of those that the headline counts."""
        return self is not Status.NOT_APPLICABLE


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """One line of what a failure shows: an event of the record, a call of the host, or a remark."""

    text: str
    event: Mapping[str, Any] | None = None
    """The event as it is on the wire."""
    is_break: bool = False
    """This is where the rule was broken."""


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The verdict on one rule, or on what one record or scenario shows of it."""

    rule: str
    status: Status
    message: str = ""
    """What was wrong, for the author of the executor; of a pass, what could not be tried of the rule."""
    evidence: tuple[Evidence, ...] = ()
    """The shortest stretch that shows it."""
    scenario: str = ""
    """The scenario that found it."""
    beside: str = ""
    """A rule that the scenario is chosen by, where it is not by this one: what a record shows may be any rule."""
    log: tuple[str, ...] = ()
    """Of what is no pass: the last lines that the executor logged in that scenario, without secrets."""

    @property
    def about(self) -> Rule:
        """The rule, of executors or of hosts."""
        return RULES[self.rule] if self.rule in RULES else HOST_RULES[self.rule]

    def again(self, command: str) -> str:
        """The command that tries it again, from one with ``{rule}`` in it."""
        return command.format(rule=f"{self.rule} -k {self.beside}" if self.beside else self.rule)

    @property
    def sentence(self) -> str:
        """What the rule asks."""
        return self.about.sentence


@dataclasses.dataclass(frozen=True, slots=True)
class LevelScore:
    """What the rules of one level add up to."""

    level: AnyLevel
    passed: int
    applicable: int
    results: tuple[Result, ...]

    @property
    def is_declared(self) -> bool:
        """Whether the executor declares anything that the level is about."""
        return self.applicable > 0

    @property
    def is_good(self) -> bool:
        return all(result.status.is_good for result in self.results)

    @property
    def holds(self) -> bool:
        """Whether every rule of it that applies holds, none being excused."""
        return all(result.status in (Status.PASS, Status.NOT_APPLICABLE) for result in self.results)

    def __str__(self) -> str:
        return f"{self.level.capitalize()} {self.passed}/{self.applicable}"


@dataclasses.dataclass(frozen=True, slots=True)
class Extra:
    """What was tried beside the scenarios: sequences of steps at random, or kills."""

    name: str
    """``random`` or ``kills``."""
    summary: str
    """What was tried, and what came of it, in one line."""
    results: tuple[Result, ...] = ()
    """What it has found. A failure here is one of the rule, whatever the scenarios say."""

    @property
    def is_good(self) -> bool:
        return all(result.status.is_good for result in self.results)


@dataclasses.dataclass(frozen=True)
class Report:
    """One run of the suite over one executor."""

    target: str
    """What was run, as the command names it."""
    descriptor: AgentDescriptor | None
    results: tuple[Result, ...]
    """One for each rule, in the order of the table."""
    seed: int
    seconds: float
    version: str
    """Of the contract."""
    wanted: Level | None = None
    """The level that the executor must reach, where one was asked for."""
    extras: tuple[Extra, ...] = ()
    """What was tried beside the scenarios; what it found is in the results too."""
    levels: tuple[AnyLevel, ...] = LEVELS
    """Those that the results add up to; ``("host",)`` for a host."""

    def scores(self) -> list[LevelScore]:
        """Every level, also those of which nothing applies."""
        return [self._score(level) for level in self.levels]

    def _score(self, level: AnyLevel) -> LevelScore:
        own = tuple(result for result in self.results if result.about.level == level)
        counted = [result for result in own if result.status.counts]
        passed = sum(result.status in (Status.PASS, Status.UNEXPECTED_PASS) for result in counted)
        return LevelScore(level, passed, len(counted), own)

    @property
    def reached(self) -> AnyLevel | None:
        """The highest level all of whose rules, and those of the levels before, hold."""
        found: AnyLevel | None = None
        for score in self.scores():
            if not score.holds:
                break
            if score.is_declared:
                found = score.level
        return found

    def reaches(self, level: Level) -> bool:
        """Whether the executor declares something that the level is about, and all its rules hold, as do those of the
        levels before. A rule that is expected to fail does not hold."""
        scores = self.scores()[: LEVELS.index(level) + 1]
        return scores[-1].is_declared and all(score.holds for score in scores)

    @property
    def misses(self) -> str | None:
        """What to say where the level that was asked for is not reached; ``None``: it is, or none was."""
        if self.wanted is None or self.reaches(self.wanted):
            return None
        if not self.scores()[LEVELS.index(self.wanted)].is_declared:
            return f"level {self.wanted} was asked for, and the executor declares nothing that it is about"
        return f"level {self.wanted} was asked for, and is not reached: {self.reached or 'no level'} is"

    @property
    def untried(self) -> list[str]:
        """What to say of each extra that was asked for and could not be tried: no result says so."""
        return [
            f"{extra.name}: asked for, and could not be tried"
            for extra in self.extras
            if any(result.status is Status.NOT_RUN for result in extra.results)
        ]

    @property
    def missed(self) -> list[str]:
        """What to say of all that was asked for beside the rules, and is not so."""
        return [*self.untried, *([] if self.misses is None else [self.misses])]

    @property
    def exit_code(self) -> int:
        """0: all is well. 1: something fails, passes unexpectedly or was not run, also of what was asked for beside the
        scenarios, or the level is not reached that was asked for. 6: the harness broke, or nothing was to be run."""
        statuses = [result.status for result in self.results]
        ran = any(status not in (Status.NOT_APPLICABLE, Status.HARNESS_ERROR) for status in statuses)
        if Status.HARNESS_ERROR in statuses or not ran:
            return 6
        return 0 if all(status.is_good for status in statuses) and not self.missed else 1

    def of(self, *statuses: Status) -> list[Result]:
        """The results with one of these verdicts."""
        return [result for result in self.results if result.status in statuses]

    def headline(self) -> str:
        """Such as ``Core 24/24, Interactive 17/17``."""
        return ", ".join(str(score) for score in self.scores() if score.is_declared)


def rules_of(ids: Iterable[str] | None, table: Mapping[str, Rule] = RULES) -> Sequence[Rule]:
    """The rules of these ids, or all, in the order of the table."""
    wanted = None if ids is None else set(ids)
    return [rule for rule in table.values() if wanted is None or rule.id in wanted]
