"""The executor in plain Node that ships with the suite: it declares nearly all there is, and every scenario holds."""

from __future__ import annotations

import pytest
from tests.conformance.harnesses.node import EXAMPLE, harness, needs_node

from agentsession.conformance.results import Status
from agentsession.conformance.runner import all_scenarios, describe, run, run_scenario
from agentsession.protocol import CAPABILITIES

pytestmark = [pytest.mark.anyio, needs_node]

NOT_DECLARED = {"cost", "media_input", "structured_output", "background"}


@pytest.fixture
def anyio_backend() -> str:
    """One is enough: it is the process at the other end that is tested."""
    return "asyncio"


async def test_it_declares_nearly_all_there_is() -> None:
    assert CAPABILITIES - set((await describe(harness())).capabilities) == NOT_DECLARED


@pytest.mark.parametrize("name", all_scenarios())
async def test_it_fails_nothing(name: str) -> None:
    results = await run_scenario(all_scenarios()[name], harness())
    others = [(each.rule, each.status, each.message) for each in results if each.status is not Status.PASS]
    # It keeps every record whole, so of cursors that were compacted away there is nothing to show.
    shown = name != "a_cursor_that_was_compacted_away_is_gone"
    assert [status for _, status, _ in others] == ([] if shown else [Status.NOT_APPLICABLE]), others


async def test_a_run_over_it_ends_well() -> None:
    report = await run(harness(), rules=["LIFE-02", "CTL-01"])
    assert (report.headline(), report.exit_code) == ("Core 1/1, Interactive 1/1", 0)


def test_its_files_stand_where_they_are_looked_for() -> None:
    assert EXAMPLE.is_file()
    assert len(list(EXAMPLE.with_name("example").glob("*.mjs"))) >= 5
