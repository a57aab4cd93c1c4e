"""The package's own executors under the suite: each passes at the highest level it declares."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.conformance.harnesses import adk, replay

from agentsession.conformance.harness import Harness
from agentsession.conformance.results import Status
from agentsession.conformance.runner import run

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

GOOD = (Status.PASS, Status.NOT_APPLICABLE)
UNDECLARED = {"memory": {"PER-01"}, "parked": {"PER-01"}, "sqlite": set[str](), "sqlite_parked": set[str]()}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """ADK logs each exception that a script raises; a test that fails should show its own."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def passes(harness: Harness, undeclared: set[str]) -> None:
    report = await run(harness)
    assert [(each.rule, each.status, each.message) for each in report.results if each.status not in GOOD] == []
    assert {each.rule for each in report.of(Status.NOT_APPLICABLE)} == undeclared
    assert report.reached == "full"


@pytest.mark.parametrize("name", list(UNDECLARED))
async def test_adk_passes_at_every_level_it_declares(name: str) -> None:
    await passes(getattr(adk, name), UNDECLARED[name])


async def test_a_replay_passes_at_every_level_it_declares() -> None:
    await passes(replay.harness, {"PER-01", "PER-06", "CTL-06"})
