"""The suite over a correct executor, and what it makes of what it finds."""

from __future__ import annotations

import pytest
from tests.conformance.harnesses.scripted import harness, reentered

from agentsession.conformance.harness import Harness, Play
from agentsession.conformance.results import Status
from agentsession.conformance.runner import run
from agentsession.protocol import AgentExecutor

pytestmark = pytest.mark.anyio

BAD = (Status.FAIL, Status.HARNESS_ERROR, Status.UNEXPECTED_PASS)


@pytest.mark.parametrize("correct", [harness, reentered], ids=lambda each: each.name)
async def test_a_correct_executor_fails_nothing(correct: Harness) -> None:
    report = await run(correct)
    assert [(each.rule, each.message) for each in report.of(*BAD)] == []


async def test_a_harness_that_breaks_is_no_failure_of_the_executor() -> None:
    class Broken(Harness):
        def executor(self, play: Play) -> AgentExecutor:
            raise RuntimeError("no such model")

    report = await run(Broken())
    assert {each.status for each in report.results} == {Status.HARNESS_ERROR}
    assert report.exit_code == 6
