"""What the suite's class makes of a verdict under pytest."""

from __future__ import annotations

import pytest
from tests.conformance.reports import report_of

from agentsession.conformance.results import Status
from agentsession.conformance.suite import ExecutorConformance


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
