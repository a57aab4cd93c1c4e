"""The suite for hosts under pytest: one test for each host rule.

For: authors of hosts. Not for: coming to the verdicts (``runner.py``). Rules carried: none.
May import: pytest, anyio, ``agentsession.protocol``, the modules beside it, ``expected``, ``results``, ``report``.

::

    class TestMyHost(HostConformance):
        harness = MyHarness()

The whole suite runs once for each class, at its first test; a test is the verdict on its rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import anyio
import pytest

from agentsession.conformance.expected import load_expected
from agentsession.conformance.hosts.harness import HostHarness
from agentsession.conformance.hosts.runner import run_hosts
from agentsession.conformance.results import Report
from agentsession.conformance.suite import judge
from agentsession.protocol import HOST_RULES

__all__ = ["HostConformance"]


class HostConformance:
    """Subclass it as ``class TestX(HostConformance)`` and set :attr:`harness`."""

    harness: ClassVar[HostHarness]
    """Sets hosts up."""
    expected: ClassVar[Mapping[str, str] | Path | None] = None
    """Rules that are known to fail, each with the reason, or the TOML file that says so."""
    seed: ClassVar[int] = 1
    """Of the order of the scenarios."""
    backend: ClassVar[Literal["asyncio", "trio"]] = "asyncio"
    """The event loop that the host runs on."""
    _report: ClassVar[Report | None] = None

    @classmethod
    def report(cls) -> Report:
        """The report of this class's run."""
        own: Report | None = vars(cls).get("_report")  # not that of a class which it extends
        if own is None:
            given = cls.expected
            expected = load_expected(given, HOST_RULES) if isinstance(given, Path) else given
            own = anyio.run(
                lambda: run_hosts(cls.harness, target=cls.__name__, seed=cls.seed, expected=expected),
                backend=cls.backend,
            )
            cls._report = own
        return own

    @pytest.mark.parametrize("rule", list(HOST_RULES))
    def test_rule(self, rule: str) -> None:
        judge(next(result for result in self.report().results if result.rule == rule))
