"""Every broken host fails the rule that it breaks, and no other; every scenario is failed by one of its rule."""

from __future__ import annotations

from typing import Final

import pytest
from tests.conformance.broken_hosts import BrokenHost, all_broken_hosts
from tests.conformance.broken_hosts._simple import SimpleHost
from tests.conformance.broken_hosts._simple import harness as simple

from agentsession.conformance.hosts.runner import all_host_scenarios, run_host_scenario
from agentsession.conformance.hosts.scene import HostScenario
from agentsession.conformance.results import Status
from agentsession.protocol import HOST_RULES

pytestmark = pytest.mark.anyio

FAULTS: Final = [fault for faults in all_broken_hosts().values() for fault in faults]
SCENARIOS: Final = list(all_host_scenarios().values())
FLOOD: Final = "HOST-32"
"""Its scenarios take long: they are played only to the hosts that break it."""


@pytest.fixture
def anyio_backend() -> str:
    """A fault is one on either loop, and there are many."""
    return "asyncio"


async def failures(harness: SimpleHost, rule: str) -> dict[str, set[str]]:
    """The rules that some scenario finds broken, each with the scenarios that found it."""
    found: dict[str, set[str]] = {}
    for chosen in all_host_scenarios().values():
        if FLOOD in chosen.rules and rule != FLOOD:
            continue
        for result in await run_host_scenario(chosen, harness, limit_s=30.0, patience_s=0.5):
            if not result.status.is_good:
                assert result.status is Status.FAIL, result.message
                found.setdefault(result.rule, set()).add(chosen.name)
    return found


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
async def test_a_broken_host_fails_its_rule_and_no_other(fault: type[BrokenHost]) -> None:
    found = await failures(fault.harness(), fault.rule)
    assert set(found) == {fault.rule}, found


@pytest.mark.parametrize("chosen", SCENARIOS, ids=[chosen.name for chosen in SCENARIOS])
async def test_each_scenario_is_failed_by_a_host_that_breaks_its_rule(chosen: HostScenario) -> None:
    for fault in (fault for rule in chosen.rules for fault in all_broken_hosts()[rule]):
        results = await run_host_scenario(chosen, fault.harness(), limit_s=30.0, patience_s=0.5)
        if any(result.status is Status.FAIL and result.rule == fault.rule for result in results):
            return
    pytest.fail("whatever is wrong with a host, this scenario passes")


async def test_the_host_without_a_fault_breaks_nothing() -> None:
    assert await failures(simple, FLOOD) == {}


def test_every_host_rule_is_broken_by_a_host() -> None:
    assert list(HOST_RULES) == sorted(all_broken_hosts())


def test_each_says_what_is_wrong_with_it() -> None:
    sentences = [(fault.__doc__ or "").strip() for fault in FAULTS]
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in sentences)
    assert len(set(sentences)) == len(sentences)
