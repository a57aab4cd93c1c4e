"""The package's own host under the suite for hosts, one test for each rule, on both event loops."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.conformance.harnesses.host import harness as ours

from agentsession.conformance.hosts.suite import HostConformance


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """The host logs what it makes of each misbehaviour; a test that fails should show its own."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.rule(
    "HOST-01",
    "HOST-02",
    "HOST-03",
    "HOST-04",
    "HOST-05",
    "HOST-06",
    "HOST-07",
    "HOST-08",
    "HOST-09",
    "HOST-10",
    "HOST-11",
    "HOST-12",
    "HOST-13",
    "HOST-14",
    "HOST-15",
    "HOST-16",
    "HOST-17",
    "HOST-18",
    "HOST-19",
    "HOST-20",
    "HOST-21",
    "HOST-22",
    "HOST-23",
    "HOST-24",
    "HOST-25",
    "HOST-26",
    "HOST-27",
    "HOST-28",
    "HOST-29",
    "HOST-30",
    "HOST-31",
    "HOST-32",
    "HOST-33",
)
class TestOurHost(HostConformance):
    harness = ours


class TestOurHostOnTrio(HostConformance):
    harness = ours
    backend = "trio"
