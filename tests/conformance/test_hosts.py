"""The suite for hosts: its scenarios, its executor, and what it makes of what it finds."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.broken_hosts._simple import SimpleHost
from tests.conformance.broken_hosts._simple import harness as simple
from tests.conformance.broken_hosts.ends import IsSpentByAnAbort, PrintsWhatTheAgentWrote

from agentsession.conformance.engine import check
from agentsession.conformance.expected import load_expected
from agentsession.conformance.harness import CannotPlay
from agentsession.conformance.hosts.adversary import Adversary
from agentsession.conformance.hosts.checks import HOST_LOG_RULES
from agentsession.conformance.hosts.harness import FEATURES, HostHarness, HostRun, Situation
from agentsession.conformance.hosts.runner import all_host_scenarios, run_host_scenario, run_hosts
from agentsession.conformance.hosts.scene import HostScenario
from agentsession.conformance.hosts.session import AdversarySession
from agentsession.conformance.report.badge import badge
from agentsession.conformance.report.document import document
from agentsession.conformance.report.html import html
from agentsession.conformance.report.junit import junit
from agentsession.conformance.report.terminal import failure
from agentsession.conformance.results import Status
from agentsession.protocol import HOST_RULES, AgentExecutor, ConfigurationError

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """``test_our_host.py`` runs the suite on trio, too."""
    return "asyncio"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_host_rule_is_shown_by_a_scenario() -> None:
    shown = {rule for scenario in all_host_scenarios().values() for rule in scenario.rules}
    assert shown == set(HOST_RULES)
    assert shown >= HOST_LOG_RULES


def test_every_scenario_says_what_it_shows_and_takes_features_that_there_are() -> None:
    for scenario in all_host_scenarios().values():
        assert (scenario.play.__doc__ or "").strip(), scenario.name
        assert scenario.needs <= set(FEATURES), scenario.name
    assert {rule.capability for rule in HOST_RULES.values()} - {None} <= set(FEATURES)


async def test_what_the_executor_records_is_a_valid_record_in_every_scenario() -> None:
    """A host must not be tried with records that no executor may make, but for what a play puts past the record."""
    sessions: list[AdversarySession] = []

    class Kept(SimpleHost):
        async def open(self, executor: AgentExecutor, situation: Situation) -> HostRun:
            run = await super().open(executor, situation)
            assert isinstance(executor, Adversary)
            sessions.extend(executor.sessions)
            return run

    for chosen in all_host_scenarios().values():
        if "HOST-32" in chosen.rules:  # its deltas are not kept
            continue
        await run_host_scenario(chosen, Kept())
        for session in sessions:
            broken = [each for each in check(session.record, complete=False) if each.status is Status.FAIL]
            assert broken == [], chosen.name
        sessions.clear()


async def test_a_correct_host_passes_and_the_headline_says_so() -> None:
    report = await run_hosts(simple, target="a host")
    assert [(each.rule, each.message) for each in report.results if each.status is not Status.PASS] == []
    assert (report.headline(), report.exit_code) == (f"Host {len(HOST_RULES)}/{len(HOST_RULES)}", 0)
    assert json.loads(badge(report))["color"] == "brightgreen"
    made = document(report)
    assert [result.level for result in made.results] == ["host"] * len(HOST_RULES)
    assert "Host 34/34" in html(report)
    assert junit(report).count("<testcase") == len(HOST_RULES)


async def test_a_failure_shows_what_the_host_did() -> None:
    report = await run_hosts(IsSpentByAnAbort.harness(), rules=["HOST-24"], patience_s=0.5)
    (result,) = report.results
    told = "\n".join(failure(result))
    assert (result.status, report.exit_code) == (Status.FAIL, 1)
    assert "suite: tells the host to abort" in told
    assert "the turn raised RuntimeError: the session was aborted" in told


async def test_a_failure_shows_what_the_host_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Grumbles(IsSpentByAnAbort):
        async def abort(self) -> None:
            logging.getLogger("a.host").warning("aborted, and now?")
            await super().abort()

    logging.disable(logging.NOTSET)
    (result,) = (await run_hosts(Grumbles.harness(), rules=["HOST-24"], patience_s=0.5)).results
    assert result.log == ("WARNING a.host: aborted, and now?",)


async def test_a_report_holds_no_control_characters_of_the_agents() -> None:
    report = await run_hosts(PrintsWhatTheAgentWrote.harness(), rules=["HOST-33"])
    told = "\n".join(failure(report.results[0]))
    assert report.results[0].status is Status.FAIL
    assert all(sign.isprintable() or sign == "\n" for sign in told), ascii(told)


async def test_what_a_host_has_not_is_not_applicable() -> None:
    class Bare(SimpleHost):
        features = ()

    report = await run_hosts(Bare())
    lacking = {rule.id for rule in HOST_RULES.values() if rule.capability is not None}
    assert {each.rule for each in report.of(Status.NOT_APPLICABLE)} == lacking
    assert {each.status for each in report.results} == {Status.PASS, Status.NOT_APPLICABLE}
    assert report.exit_code == 0


async def test_a_feature_that_there_is_not_is_refused() -> None:
    class Slip(SimpleHost):
        features = ("ask", "question")

    with pytest.raises(ConfigurationError, match="no feature 'question'"):
        await run_hosts(Slip())


async def test_what_a_harness_cannot_play_is_not_run() -> None:
    class Limited(HostHarness):
        async def open(self, executor: AgentExecutor, situation: Situation) -> HostRun:
            raise CannotPlay("no tools here")

    report = await run_hosts(Limited(), rules=["HOST-01"])
    assert [(each.status, each.message) for each in report.results] == [(Status.NOT_RUN, "no tools here")]


async def test_a_harness_that_breaks_is_no_failure_of_the_host() -> None:
    class Broken(HostHarness):
        async def open(self, executor: AgentExecutor, situation: Situation) -> HostRun:
            raise RuntimeError("no such server")

    report = await run_hosts(Broken())
    assert {each.status for each in report.results} == {Status.HARNESS_ERROR}
    assert report.exit_code == 6


async def test_a_failure_that_is_expected_is_good_and_a_stale_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "expected.toml"
    path.write_text('[expected]\nHOST-24 = "one turn a session"\nHOST-26 = "not any more"\n', encoding="utf-8")
    known = load_expected(path, HOST_RULES)
    report = await run_hosts(IsSpentByAnAbort.harness(), rules=["HOST-24", "HOST-26"], expected=known, patience_s=0.5)
    assert [each.status for each in report.results] == [Status.EXPECTED_FAIL, Status.UNEXPECTED_PASS]
    with pytest.raises(ConfigurationError, match="no rule 'HOST-24'"):
        load_expected(path)


async def test_the_same_seed_plays_the_same_run() -> None:
    runs: list[list[str]] = []

    def hear(chosen: HostScenario, _: object) -> None:
        runs[-1].append(chosen.name)

    for seed in (3, 3, 4):
        runs.append([])
        await run_hosts(simple, seed=seed, rules=["HOST-01", "HOST-02"], heard=hear)
    assert runs[0] == runs[1] != runs[2]
    assert sorted(runs[0]) == sorted(runs[2])
