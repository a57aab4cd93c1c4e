"""The suite over real loopback: what an executor declares it keeps behind HTTP, also where connections are cut."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.adapters.remote.behind import RemoteHarness
from tests.conformance.harnesses import adk, scripted

from agentsession.conformance.harness import Harness
from agentsession.conformance.results import Status
from agentsession.conformance.runner import run

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

GOOD = (Status.PASS, Status.NOT_APPLICABLE)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The base class logs each exception that a script raises; a test that fails should show its own."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


SEED = 7


@pytest.mark.parametrize(
    "inner",
    [scripted.reentered, adk.memory],
    ids=[f"scripted, cut by seed {SEED}", f"adk, cut by seed {SEED}"],
)
async def test_a_remote_executor_passes_at_every_level_it_declares(inner: Harness) -> None:
    report = await run(RemoteHarness(inner, seed=SEED))
    assert [(each.rule, each.status, each.message) for each in report.results if each.status not in GOOD] == []
    assert report.reached == "full"
