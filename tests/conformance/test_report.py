"""Reports as text, JSON, JUnit, HTML and badge: each says the same, and agent text stays text."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from tests.conformance.broken.control import ReturnsFromAbortBeforeTheToolHasStopped
from tests.conformance.harnesses.scripted import harness
from tests.conformance.reports import NASTY, report_of

from agentsession.conformance.harness import Harness, Play
from agentsession.conformance.report.badge import badge
from agentsession.conformance.report.document import document, report_schema
from agentsession.conformance.report.html import html
from agentsession.conformance.report.junit import junit
from agentsession.conformance.report.terminal import lines
from agentsession.conformance.results import Extra, Report, Result, Status
from agentsession.conformance.runner import run
from agentsession.protocol import RULES, AgentExecutor

PUBLISHED = Path(__file__).parents[2] / "docs" / "reference" / "conformance-report.schema.json"
AGAIN = "agentsession conform pkg:harness -k {rule} --seed 7"


class Unmade(Harness):
    """Breaks before there is an executor."""

    def executor(self, play: Play) -> AgentExecutor:
        raise RuntimeError("no such model")


@pytest.fixture
def report() -> Report:
    verdicts = {
        "CTL-01": Status.FAIL,
        "CTL-06": Status.EXPECTED_FAIL,
        "ORD-11": Status.NOT_RUN,
        "PER-05": Status.NOT_APPLICABLE,
        "LIFE-01": Status.UNEXPECTED_PASS,
    }
    return report_of(verdicts, message=NASTY)


def test_a_failure_is_told_with_sentence_evidence_and_the_command_that_shows_it_again(report: Report) -> None:
    told = "\n".join(lines(report, again=AGAIN))
    block = told[told.index("FAIL CTL-01") :]
    assert RULES["CTL-01"].sentence in " ".join(block.split())
    assert "#2 custom   <- here" in block
    assert "again: agentsession conform pkg:harness -k CTL-01 --seed 7" in block


def test_what_a_record_shows_is_tried_again_with_the_scenario_that_showed_it(report: Report) -> None:
    beside = [dataclasses.replace(each, beside="TOOL-05") for each in report.results if each.rule == "CTL-01"]
    told = dataclasses.replace(report, results=tuple(beside))
    assert "  again: agentsession conform pkg:harness -k CTL-01 -k TOOL-05 --seed 7" in list(lines(told, again=AGAIN))
    assert "-k CTL-01 -k TOOL-05 --seed 7" in html(told, again=AGAIN)


def test_a_failure_says_what_to_do_where_the_rule_is_the_executors_alone() -> None:
    told = "\n".join(lines(report_of({"SEC-01": Status.FAIL, "LIFE-07": Status.FAIL})))
    assert f"  fix: {RULES['SEC-01'].fix}" in told
    assert RULES["LIFE-07"].fix not in told


def test_a_level_of_which_no_rule_is_wanted_is_not_called_undeclared(report: Report) -> None:
    alone = dataclasses.replace(report, results=tuple(each for each in report.results if each.rule == "CTL-01"))
    assert [line.split() for line in lines(alone)][1] == ["Core", "not", "asked"]


def test_control_characters_of_an_agent_are_spelled_out(report: Report) -> None:
    told = list(lines(report, again=AGAIN, verbose=True))
    assert all(line.isprintable() for line in told)
    assert any(r"\x1b[2J" in line for line in told)


def test_what_is_good_is_counted_and_not_listed(report: Report) -> None:
    told = "\n".join(lines(report))
    assert "n/a 1" in told
    assert "expected-fail 1" in told
    assert "PER-05" not in told
    assert told.splitlines()[-1] == report.headline()


def test_verbose_has_a_line_for_every_rule(report: Report) -> None:
    told = "\n".join(lines(report, verbose=True))
    assert all(re.search(rf"^  \S.* {rule}\b", told, re.MULTILINE) for rule in RULES)


def test_the_json_fits_its_schema_and_holds_every_rule(report: Report) -> None:
    made = json.loads(document(report).model_dump_json(by_alias=True))
    jsonschema.Draft202012Validator.check_schema(report_schema())
    jsonschema.validate(made, report_schema(), cls=jsonschema.Draft202012Validator)
    assert [result["rule"] for result in made["results"]] == list(RULES)
    assert made["exitCode"] == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    "executor",
    [harness, ReturnsFromAbortBeforeTheToolHasStopped(), Unmade()],
    ids=lambda executor: type(executor).__name__,
)
async def test_the_json_of_a_run_fits_the_published_schema(executor: Harness) -> None:
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    report = await run(executor, rules=["CTL-01", "PER-01"])
    made = json.loads(document(report).model_dump_json(by_alias=True))
    jsonschema.validate(made, published, cls=jsonschema.Draft202012Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**made, "another": 1}, published, cls=jsonschema.Draft202012Validator)


def test_junit_has_a_case_for_each_rule_and_tells_failures_from_skips(report: Report) -> None:
    root = ET.fromstring(junit(report))
    cases = {str(case.get("name")).split()[0]: case for case in root.iter("testcase")}
    assert list(cases) == sorted(RULES, key=list(cases).index)
    assert len(cases) == len(RULES)
    kinds = {rule: [child.tag for child in case] for rule, case in cases.items()}
    assert kinds["CTL-01"] == kinds["ORD-11"] == kinds["LIFE-01"] == ["failure"]
    assert kinds["PER-05"] == kinds["CTL-06"] == ["skipped"]
    assert kinds["CTL-02"] == []
    suites = [{key: int(str(suite.get(key))) for key in ("tests", "failures", "skipped")} for suite in root]
    assert sum(suite["failures"] for suite in suites) == 3


def test_a_level_that_is_missed_is_told_in_every_report_for_people_and_ci() -> None:
    missed = dataclasses.replace(report_of({"PER-05": Status.EXPECTED_FAIL}), wanted="full")
    said = "level full was asked for, and is not reached: durable is"
    assert f"FAIL {said}" in list(lines(missed))
    assert said in html(missed)
    assert [case.get("message") for case in ET.fromstring(junit(missed)).iter("failure")] == [said]
    assert "level" not in "\n".join(lines(report_of({})))


def test_an_extra_that_could_not_be_tried_is_told_in_every_report_for_people_and_ci() -> None:
    untried = Extra("random", "0 sequences", (Result("LIFE-12", Status.NOT_RUN),))
    report = dataclasses.replace(report_of({}), extras=(untried,))
    said = "random: asked for, and could not be tried"
    assert report.exit_code == 1
    assert f"FAIL {said}" in list(lines(report))
    assert said in html(report)
    assert [case.get("message") for case in ET.fromstring(junit(report)).iter("failure")] == [said]
    tried = dataclasses.replace(report, extras=(Extra("random", "2 sequences"),))
    assert (tried.exit_code, list(ET.fromstring(junit(tried)).iter("failure"))) == (0, [])


def test_what_was_logged_is_in_every_report_and_in_the_text_on_demand() -> None:
    results = report_of({"CTL-01": Status.FAIL}).results
    logged = [dataclasses.replace(each, log=(NASTY, "two")) if each.rule == "CTL-01" else each for each in results]
    whole = dataclasses.replace(report_of({}), results=tuple(logged))
    assert "  logged: 2 lines, shown with -v" in list(lines(whole))
    assert "    two" in list(lines(whole, verbose=True))
    (made,) = [each for each in json.loads(document(whole).model_dump_json())["results"] if each["log"]]
    assert made["log"] == [NASTY, "two"]
    assert [str(each.text).splitlines()[-1] for each in ET.fromstring(junit(whole)).iter("system-err")] == ["two"]
    page = _Page()
    page.feed(html(whole))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert NASTY.splitlines()[0] in "".join(page.text)


class _Page(HTMLParser):
    """What a page holds: its tags, and the text of its list items."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_shows_agent_text_as_text_and_reaches_for_nothing(report: Report) -> None:
    page = _Page()
    page.feed(html(report, again=AGAIN))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "<script>alert(1)</script>" in "".join(page.text)
    reached = [value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href")]
    assert reached == []
    assert any(attrs.get("http-equiv") == "Content-Security-Policy" for _, attrs in page.tags)


def test_the_page_has_every_rule_once_under_its_id(report: Report) -> None:
    page = _Page()
    page.feed(html(report))
    ids = [attrs["id"] for tag, attrs in page.tags if tag == "details" and "id" in attrs]
    assert sorted(str(each) for each in ids) == sorted(RULES)


@pytest.mark.parametrize(
    ("verdicts", "message", "color"),
    [
        ({}, "Full 2/2", "brightgreen"),
        ({"PER-05": Status.FAIL}, "Durable ", "orange"),
        ({"LIFE-01": Status.FAIL}, "Core ", "red"),
    ],
)
def test_the_badge_names_the_level_that_holds(verdicts: dict[str, Status], message: str, color: str) -> None:
    made = json.loads(badge(report_of(verdicts)))
    assert made["message"].startswith(message)
    assert made["color"] == color
