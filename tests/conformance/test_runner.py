"""The suite over a correct executor, and what it makes of what it finds."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from tests.conformance.broken._parts import Stream, StreamInput
from tests.conformance.broken._wrap import Broken, Session
from tests.conformance.broken.order import Compacting, MissesTheEventAfterTheCursor
from tests.conformance.harnesses.lossy import unheld
from tests.conformance.harnesses.scripted import harness, reentered

from agentsession.conformance.harness import Harness, Play
from agentsession.conformance.results import Extra, Result, Status
from agentsession.conformance.runner import all_scenarios, run
from agentsession.conformance.scene import Scenario
from agentsession.protocol import RULES, AgentExecutor, Event, ExecutionOptions, Message, Thought

pytestmark = pytest.mark.anyio

GOOD = (Status.PASS, Status.NOT_APPLICABLE)


@pytest.mark.parametrize("correct", [harness, reentered], ids=lambda each: each.name)
async def test_a_correct_executor_passes_at_every_level_it_declares(correct: Harness) -> None:
    report = await run(correct)
    assert [(each.rule, each.status, each.message) for each in report.results if each.status not in GOOD] == []
    assert report.reached == "full"
    assert report.exit_code == 0


async def test_what_is_not_applicable_is_what_the_descriptor_does_not_declare() -> None:
    assert {each.rule for each in (await run(harness)).of(Status.NOT_APPLICABLE)} == {"PER-01"}
    assert (await run(reentered)).of(Status.NOT_APPLICABLE) == []


async def test_what_was_tried_beside_the_scenarios_adds_the_rules_that_it_broke_and_no_others() -> None:
    untried, broken = (Result(rule, status) for rule, status in [("PER-02", Status.NOT_RUN), ("CTL-02", Status.FAIL)])
    report = await run(harness, rules=["LIFE-05"], extras=[Extra("kills", "tried", (untried, broken))])
    assert {each.rule: each.status for each in report.results} == {"LIFE-05": Status.PASS, "CTL-02": Status.FAIL}


def test_every_rule_is_shown_by_a_scenario_or_by_every_record() -> None:
    shown = {rule for scenario in all_scenarios().values() for rule in scenario.rules}
    assert shown <= set(RULES)
    missing = [rule for rule in RULES.values() if rule.id not in shown]
    assert [rule.id for rule in missing if rule.checked_by == "session"] == []


def test_every_scenario_says_what_it_shows() -> None:
    for scenario in all_scenarios().values():
        assert (scenario.play.__doc__ or "").strip(), scenario.name
        assert scenario.rules, scenario.name


async def test_what_of_a_rule_could_not_be_tried_is_said_with_its_pass() -> None:
    (kept,) = (await run(harness, rules=["ORD-07"])).results
    assert kept.status is Status.PASS
    assert kept.message == "not tried: no record is compacted: the harness has no compact()"
    (held,) = (await run(unheld, rules=["CTL-05"])).results
    assert (held.status, held.message) == (Status.PASS, "not tried: the harness does not play: hold")
    (compacted,) = (await run(Compacting(), rules=["ORD-07"])).results
    assert (compacted.status, compacted.message) == (Status.PASS, "")


class ThinksATraceback(Broken):
    """What the model thinks is a traceback; the scenarios of the rule have no model that thinks."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, Message) and isinstance(event.content[0], Thought):
            text = "Traceback (most recent call last)"
            event = event.model_copy(update={"content": [Thought(text=text)], "revised": True})
        yield event


async def test_what_a_record_breaks_is_found_again_by_the_command_that_is_shown() -> None:
    (failed,) = (await run(ThinksATraceback())).of(Status.FAIL)
    assert (failed.rule, "SEC-01" in all_scenarios()[failed.scenario].rules) == ("SEC-01", False)
    words = failed.again("-k {rule}").split()
    again = await run(ThinksATraceback(), rules=[word for word in words if word != "-k"])
    assert [each.rule for each in again.of(Status.FAIL)] == ["SEC-01"]


async def test_of_what_a_reader_was_given_only_the_difference_is_told() -> None:
    (failed,) = (await run(MissesTheEventAfterTheCursor(), rules=["ORD-05"])).of(Status.FAIL)
    assert re.fullmatch(r"after \d+ a reader lacks #\d+ \w+", failed.message)


class TakesNoMessage(Broken):
    """It opens sessions, and no stream ever runs."""

    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        raise RuntimeError("no model")


async def test_where_no_stream_ran_no_record_shows_how_streams_end() -> None:
    report = await run(TakesNoMessage(), rules=["LIFE-05"])
    (result,) = report.results
    assert (result.status, report.exit_code) == (Status.NOT_RUN, 1)
    assert result.message.startswith("not reached: LIFE-12 broke in the scenario")


async def test_the_same_seed_plays_the_same_run() -> None:
    heard: list[str] = []

    def hear(scenario: Scenario, _: object) -> None:
        heard.append(scenario.name)

    for _ in range(2):
        await run(harness, seed=7, rules=["PER-02", "ORD-07", "TOOL-10"], heard=hear)
    assert len(heard) % 2 == 0
    assert heard[: len(heard) // 2] == heard[len(heard) // 2 :]


async def test_a_harness_that_breaks_is_no_failure_of_the_executor() -> None:
    class Broken(Harness):
        def executor(self, play: Play) -> AgentExecutor:
            raise RuntimeError("no such model")

    report = await run(Broken())
    assert {each.status for each in report.results} == {Status.HARNESS_ERROR}
    assert report.exit_code == 6
