"""A report as JUnit XML, which CI systems read: one test case for each rule, one suite for each level.

Not for: coming to the verdicts (``runner.py``). Rules carried: none.
May import: ``results``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from agentsession.conformance.results import LevelScore, Report, Result, Status

__all__ = ["junit"]

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """The XML text. A failure is ``failure``, a broken harness ``error``, what does not apply ``skipped``."""
    root = ET.Element("testsuites", name=_clean(f"agentsession conform {report.target}"), time=f"{report.seconds:.3f}")
    for score in report.scores():
        _suite(root, score)
    if report.wanted is not None:
        misses = [] if report.misses is None else [report.misses]
        _asked(root, "level", f"the executor reaches {report.wanted}", misses)
    if report.extras:
        _asked(root, "extras", "what was asked for beside the scenarios was tried", report.untried)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, score: LevelScore) -> None:
    statuses = [result.status for result in score.results]
    failures = sum(not status.is_good and status is not Status.HARNESS_ERROR for status in statuses)
    suite = ET.SubElement(
        root,
        "testsuite",
        name=score.level,
        tests=str(len(statuses)),
        failures=str(failures),
        errors=str(statuses.count(Status.HARNESS_ERROR)),
        skipped=str(sum(status in (Status.NOT_APPLICABLE, Status.EXPECTED_FAIL) for status in statuses)),
    )
    for result in score.results:
        _case(suite, score.level, result)


def _asked(root: ET.Element, suite_name: str, name: str, misses: Sequence[str]) -> None:
    """What the command asked for beside the rules, as a case of its own."""
    failures = "1" if misses else "0"
    suite = ET.SubElement(root, "testsuite", name=suite_name, tests="1", failures=failures, errors="0", skipped="0")
    case = ET.SubElement(suite, "testcase", classname=suite_name, name=name)
    if misses:
        ET.SubElement(case, "failure", message="; ".join(misses))


def _case(suite: ET.Element, level: str, result: Result) -> None:
    case = ET.SubElement(suite, "testcase", classname=level, name=_clean(f"{result.rule} {result.sentence}"))
    if result.status is Status.PASS:
        return
    kind = "failure"
    if result.status is Status.HARNESS_ERROR:
        kind = "error"
    elif result.status.is_good:
        kind = "skipped"
    told = ET.SubElement(case, kind, message=_clean(f"{result.status.value}: {result.message}"))
    shown = "\n".join(
        f"{item.text}{'   <- here' if item.is_break and item.event is not None else ''}" for item in result.evidence
    )
    if shown:
        told.text = _clean(shown)
    if result.log:
        ET.SubElement(case, "system-err").text = _clean("\n".join(result.log))


def _clean(text: str) -> str:
    """Without the characters that XML cannot say."""
    return _NOT_XML.sub("\ufffd", text)
