"""The ACP executor under the suite: the rules that its processes and its mapping put most at risk.

Each scenario starts processes, so not all rules are tried here; ``agentsession conform
tests.conformance.harnesses.acp:harness`` tries them all, and docs/decisions/0039-acp.md says which cannot hold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest
from tests.conformance.harnesses.acp import harness

from agentsession.conformance.results import Status
from agentsession.conformance.runner import run

pytestmark = pytest.mark.anyio

RULES: Final = ("HITL-01", "HITL-02", "TOOL-01", "TOOL-09", "LIFE-09", "CTL-01")


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
