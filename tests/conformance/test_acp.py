"""The ACP executor under the suite: the rules that its processes and its mapping put most at risk.

Each scenario starts processes, so not all rules are tried here; docs/reference/acp.md has the command that tries them
all. What ACP has no words for is in ``harnesses/acp_expected.toml``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.conformance.harnesses.acp import harness

from agentsession.conformance.expected import load_expected
from agentsession.conformance.results import Result, Status
from agentsession.conformance.runner import run
from agentsession.conformance.scene import Scenario

pytestmark = pytest.mark.anyio

RULES: Final = ("HITL-01", "HITL-02", "HITL-04", "TOOL-01", "TOOL-09", "LIFE-09", "CTL-01")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("rule", RULES)
async def test_the_acp_executor_keeps_the_rule(rule: str) -> None:
    report = await run(harness, rules={rule})
    assert [(each.rule, each.status, each.message) for each in report.results if each.rule == rule] == [
        (rule, Status.PASS, "")
    ]


async def test_of_the_rules_that_are_expected_to_fail_only_what_acp_has_no_words_for_does() -> None:
    expected = load_expected(Path(__file__).with_name("harnesses") / "acp_expected.toml")
    broken: set[str] = set()

    def heard(scenario: Scenario, results: list[Result]) -> None:
        if any(each.status is not Status.PASS for each in results if each.rule in expected):
            broken.add(scenario.name)

    report = await run(harness, rules=set(expected), expected=expected, heard=heard)
    assert {each.status for each in report.results} == {Status.EXPECTED_FAIL}
    assert report.exit_code == 0
    assert broken == {
        "a_result_of_the_hosts_stands_in_for_a_grant",
        "what_was_approved_is_what_runs",
        "an_edit_may_leave_no_arguments",
        "an_error_that_is_not_fatal_ends_nothing",
    }
