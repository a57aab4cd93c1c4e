"""The suite proves itself: each broken executor fails the rule that it breaks, and no other."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import anyio
import pytest
from tests.conformance.broken import Broken, all_broken
from tests.conformance.broken.order import Compacting
from tests.conformance.harnesses.scripted import reentered

from agentsession.conformance.results import Status
from agentsession.conformance.runner import all_scenarios, describe, run_scenario
from agentsession.conformance.scene import Scenario
from agentsession.protocol import RULES

pytestmark = pytest.mark.anyio

FAULTS: Final = [fault for faults in all_broken().values() for fault in faults]
SLOW: Final = {"ORD-11", "HITL-11"}
"""What these show takes long, so their scenarios are played to the executors that break them alone."""
LONG: Final = {"an_abort_that_is_not_heeded_is_no_endless_wait"}
"""These take long too, and show a rule that others show as well."""
TIMED: Final = {
    "a_deadline_is_no_yes",
    "a_limit_of_time_has_its_reason",
    "a_person_has_all_the_time",
    "a_question_from_inside_a_tool_takes_no_time_of_it",
    "an_abort_that_is_not_heeded_is_no_endless_wait",
}
"""These wait for a moment to come, and are played beside the others."""
LIMIT_S: Final = 10.0


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: what is tested here is the suite."""
    return "asyncio"


async def failures(harness: Broken) -> dict[str, list[str]]:
    """What fails, by rule."""
    declared = frozenset((await describe(harness)).capabilities)
    failed: defaultdict[str, list[str]] = defaultdict(list)

    async def play(scenario: Scenario, harness: Broken) -> None:
        for result in await run_scenario(scenario, harness, limit_s=LIMIT_S):
            if result.status in (Status.FAIL, Status.HARNESS_ERROR):
                name = result.rule if result.status is Status.FAIL else f"harness-error of {result.rule}"
                failed[name].append(f"{scenario.name}: {result.message}")

    async with anyio.create_task_group() as group:
        for scenario in all_scenarios().values():
            long = scenario.name in LONG or not SLOW.isdisjoint(scenario.rules)
            slow = long and harness.rule not in scenario.rules
            if not scenario.needs <= declared or slow:
                continue
            if scenario.name in TIMED:
                group.start_soon(play, scenario, type(harness)())
            else:
                await play(scenario, harness)
    return failed


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}-{fault.__name__}")
async def test_a_broken_executor_fails_the_rule_that_it_breaks_and_no_other(fault: type[Broken]) -> None:
    failed = await failures(fault())
    assert set(failed) == {fault.rule}, failed


class Whole(Broken):
    """It has no fault."""

    inner = reentered


class Spread(Whole):
    """It has no fault, and leaves seqs out."""

    stride = 4


@pytest.mark.parametrize("whole", [Whole, Spread, Compacting])
async def test_the_wrappers_alone_break_nothing(whole: type[Broken]) -> None:
    assert await failures(whole()) == {}


def test_every_rule_is_broken_by_an_executor() -> None:
    assert [rule for rule in RULES if rule not in all_broken()] == []
    assert set(all_broken()) <= set(RULES)


def test_there_are_many_and_each_says_what_is_wrong_with_it() -> None:
    assert len(FAULTS) >= 50
    sentences = [(fault.__doc__ or "").strip() for fault in FAULTS]
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in sentences)
    assert len(set(sentences)) == len(sentences)
