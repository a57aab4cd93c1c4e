"""The suite under pytest: one test for each rule, and one for sequences of steps at random.

For: authors of executors. Not for: coming to the verdicts (``runner.py``, ``machine.py``). Rules carried: none.
May import: pytest, hypothesis, anyio, ``agentsession.protocol``, the modules beside it.

::

    class TestMyExecutor(ExecutorConformance):
        harness = MyHarness()

The whole suite runs once for each class, at its first test; a test is the verdict on its rule. The sequences are a test
of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import anyio
import pytest

from agentsession.conformance.expected import load_expected
from agentsession.conformance.harness import Harness
from agentsession.conformance.machine import drive_at_random
from agentsession.conformance.report.terminal import failure
from agentsession.conformance.results import Report, Result, Status
from agentsession.conformance.runner import run
from agentsession.protocol import RULES

__all__ = ["ExecutorConformance", "judge"]


class ExecutorConformance:
    """Subclass it as ``class TestX(ExecutorConformance)`` and set :attr:`harness`."""

    harness: ClassVar[Harness]
    """Makes the executors."""
    expected: ClassVar[Mapping[str, str] | Path | None] = None
    """Rules that are known to fail, each with the reason, or the TOML file that says so."""
    seed: ClassVar[int] = 1
    """Of the order of the scenarios, and of the sequences at random."""
    sequences: ClassVar[int] = 20
    """How many sequences of steps at random are tried; 0: none."""
    _report: ClassVar[Report | None] = None

    @classmethod
    def report(cls) -> Report:
        """The report of this class's run."""
        own: Report | None = vars(cls).get("_report")  # not that of a class which it extends
        if own is None:
            expected = cls._known()
            own = anyio.run(lambda: run(cls.harness, target=cls.__name__, seed=cls.seed, expected=expected))
            cls._report = own
        return own

    @classmethod
    def _known(cls) -> Mapping[str, str]:
        return load_expected(cls.expected) if isinstance(cls.expected, Path) else cls.expected or {}

    @pytest.mark.parametrize("rule", list(RULES))
    def test_rule(self, rule: str) -> None:
        judge(next(result for result in self.report().results if result.rule == rule))

    def test_driven_at_random(self) -> None:
        if self.sequences == 0:
            pytest.skip("no sequences at random are wanted")
        report = drive_at_random(self.harness, sequences=self.sequences, seed=self.seed)
        found = report.result
        if found is None and report.sequences == 0:
            pytest.skip(str(report))
        if found is None:
            return
        reason = self._known().get(found.rule)
        if reason is not None and found.status is Status.FAIL:
            pytest.xfail(f"{found.rule}: {found.message} (expected: {reason})")
        pytest.fail("\n".join(failure(found, verbose=True)), pytrace=False)


def judge(result: Result) -> None:
    """Make a verdict the outcome of the test that runs."""
    if result.status is Status.NOT_APPLICABLE:
        pytest.skip(result.message)
    if result.status is Status.EXPECTED_FAIL:
        pytest.xfail(result.message)
    if not result.status.is_good:
        pytest.fail("\n".join(failure(result, verbose=True)), pytrace=False)
