"""Reports that were put together by hand, for the tests of how reports look."""

from __future__ import annotations

from agentsession.conformance.results import Evidence, Report, Result, Status
from agentsession.protocol import RULES, AgentDescriptor

__all__ = ["NASTY", "report_of"]

NASTY = '<script>alert(1)</script> & "quotes" \x00\x1b[2J ]]> {braces}'
"""Text as an agent might say it."""


def report_of(verdicts: dict[str, Status], *, message: str = "it broke", target: str = "pkg:harness") -> Report:
    """A report with these verdicts; every other rule passes."""
    results = []
    for rule in RULES:
        status = verdicts.get(rule, Status.PASS)
        evidence: tuple[Evidence, ...] = ()
        if status is Status.FAIL:
            event = {"type": "custom", "data": NASTY}
            evidence = (Evidence("#1 initialize"), Evidence("#2 custom", event, is_break=True))
        results.append(Result(rule, status, "" if status is Status.PASS else message, evidence, scenario="a_scenario"))
    descriptor = AgentDescriptor(name="a", executor="x")
    return Report(target, descriptor, tuple(results), 7, 1.25, "1.0")
