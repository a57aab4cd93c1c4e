"""What verdicts add up to."""

from __future__ import annotations

import dataclasses

import pytest
from tests.conformance.reports import report_of

from agentsession.conformance.results import Report, Result, Status
from agentsession.protocol import RULES, Level


def test_the_headline_counts_what_applies() -> None:
    report = report_of({"PER-05": Status.NOT_APPLICABLE, "PER-06": Status.NOT_APPLICABLE, "ORD-03": Status.FAIL})
    core = sum(rule.level == "core" for rule in RULES.values())
    assert report.headline().startswith(f"Core {core - 1}/{core}, Interactive ")
    assert "Full" not in report.headline()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.PASS, 0),
        (Status.EXPECTED_FAIL, 0),
        (Status.NOT_APPLICABLE, 0),
        (Status.FAIL, 1),
        (Status.UNEXPECTED_PASS, 1),
        (Status.NOT_RUN, 1),
        (Status.HARNESS_ERROR, 6),
    ],
)
def test_the_exit_code_tells_a_failure_from_a_broken_harness(status: Status, code: int) -> None:
    assert report_of({"CTL-01": status}).exit_code == code


@pytest.mark.parametrize(
    ("verdicts", "wanted", "code"),
    [
        ({}, "full", 0),
        ({"PER-05": Status.EXPECTED_FAIL}, "full", 1),
        ({"PER-05": Status.EXPECTED_FAIL}, "durable", 0),
        ({"CTL-01": Status.EXPECTED_FAIL}, "durable", 1),
        ({"CTL-01": Status.NOT_APPLICABLE}, "durable", 0),
        ({"PER-05": Status.NOT_APPLICABLE, "PER-06": Status.NOT_APPLICABLE}, "full", 1),
        ({"PER-05": Status.NOT_APPLICABLE, "PER-06": Status.NOT_APPLICABLE}, "durable", 0),
        ({"PER-05": Status.FAIL}, "core", 1),
        ({"PER-05": Status.HARNESS_ERROR}, "full", 6),
    ],
)
def test_a_level_that_was_asked_for_must_be_declared_and_hold_without_excuse(
    verdicts: dict[str, Status], wanted: Level, code: int
) -> None:
    assert dataclasses.replace(report_of(verdicts), wanted=wanted).exit_code == code


def test_a_run_that_came_to_no_verdict_is_no_fault_of_the_harness() -> None:
    assert Report("t", None, (Result("CTL-01", Status.NOT_RUN),), 1, 0.0, "1.0").exit_code == 1


def test_a_run_that_tried_nothing_is_no_pass() -> None:
    assert report_of(dict.fromkeys(RULES, Status.NOT_APPLICABLE)).exit_code == 6
    assert Report("t", None, (), 1, 0.0, "1.0").exit_code == 6


@pytest.mark.parametrize(
    ("verdicts", "reached"),
    [
        ({}, "full"),
        ({"PER-05": Status.FAIL}, "durable"),
        ({"CTL-01": Status.EXPECTED_FAIL}, "core"),
        ({"CTL-01": Status.NOT_RUN}, "core"),
        ({"LIFE-01": Status.FAIL}, None),
        ({"PER-05": Status.NOT_APPLICABLE, "PER-06": Status.NOT_APPLICABLE}, "durable"),
    ],
)
def test_a_level_holds_with_all_below_it(verdicts: dict[str, Status], reached: str | None) -> None:
    assert report_of(verdicts).reached == reached
