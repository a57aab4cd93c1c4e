"""What the suite's class makes of a verdict under pytest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.conformance.broken.control import RefusesAnAbortOfNothing
from tests.conformance.harnesses.scripted import harness as scripted
from tests.conformance.reports import report_of

from agentsession.conformance.harness import CannotPlay, Harness, Play
from agentsession.conformance.hosts.suite import HostConformance
from agentsession.conformance.results import Report, Status
from agentsession.conformance.suite import ExecutorConformance
from agentsession.protocol import AgentExecutor


class Stub(ExecutorConformance):
    """A class whose report was put together by hand."""


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (Status.NOT_APPLICABLE, pytest.skip.Exception),
        (Status.EXPECTED_FAIL, pytest.xfail.Exception),
        (Status.FAIL, pytest.fail.Exception),
        (Status.NOT_RUN, pytest.fail.Exception),
        (Status.UNEXPECTED_PASS, pytest.fail.Exception),
        (Status.HARNESS_ERROR, pytest.fail.Exception),
    ],
)
def test_a_verdict_becomes_the_outcome_of_its_test(status: Status, outcome: type[BaseException]) -> None:
    Stub._report = report_of({"CTL-01": status})
    with pytest.raises(outcome, match="it broke"):
        Stub().test_rule("CTL-01")
    Stub().test_rule("CTL-02")


class StubOfAHost(HostConformance):
    """Likewise."""


@pytest.mark.parametrize(
    ("base", "run"),
    [
        (Stub, "agentsession.conformance.suite.run"),
        (StubOfAHost, "agentsession.conformance.hosts.suite.run_hosts"),
    ],
)
def test_a_class_that_extends_one_which_ran_has_a_run_of_its_own(
    monkeypatch: pytest.MonkeyPatch, base: type[ExecutorConformance | HostConformance], run: str
) -> None:
    runs: list[str] = []

    async def count(harness: object, *, target: str, **_: object) -> Report:
        runs.append(target)
        return report_of({})

    monkeypatch.setattr(run, count)
    monkeypatch.setattr(base, "harness", None, raising=False)
    monkeypatch.setattr(base, "_report", report_of({"CTL-01": Status.PASS}))
    extended: Any = type("Extended", (base,), {})
    assert extended.report() is extended.report() is not base.report()
    assert runs == ["Extended"]


class Random(ExecutorConformance):
    """A class whose executor breaks CTL-02 in nearly every sequence."""

    harness: ClassVar[Harness] = RefusesAnAbortOfNothing()
    sequences = 3


def test_a_sequence_at_random_that_breaks_a_rule_fails_its_test_and_is_shown() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"FAIL CTL-02[\s\S]* 1  abort\(\)"):
        Random().test_driven_at_random()


class Known(Random):
    expected: ClassVar[Mapping[str, str] | Path | None] = {"CTL-02": "on the list"}


def test_a_rule_that_is_known_to_fail_may_fail_at_random() -> None:
    with pytest.raises(pytest.xfail.Exception, match="on the list"):
        Known().test_driven_at_random()


class Right(Random):
    harness = scripted


def test_sequences_that_break_nothing_pass() -> None:
    Right().test_driven_at_random()


class _CannotPlay(Harness):
    """It can play none of the suite's scripts that has more than one turn, and says so only when it gets one."""

    def executor(self, play: Play) -> AgentExecutor:
        if len(play.script.turns) > 1:
            raise CannotPlay("one turn alone")
        return scripted.executor(play)


class Unplayable(Random):
    harness = _CannotPlay()


def test_sequences_none_of_which_could_be_played_prove_nothing() -> None:
    with pytest.raises(
        pytest.skip.Exception, match=r"^0 sequences at random, 0 steps: \d+ came to no .*: one turn alone"
    ):
        Unplayable().test_driven_at_random()


class Quiet(Random):
    sequences = 0


def test_no_sequences_are_tried_where_none_are_wanted() -> None:
    with pytest.raises(pytest.skip.Exception):
        Quiet().test_driven_at_random()
