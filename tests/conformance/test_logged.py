"""What an executor logged is shown with its failure: bounded, and without secrets."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import pytest
from tests.conformance.broken._parts import Session, StreamInput
from tests.conformance.broken._parts import Stream as BrokenStream
from tests.conformance.broken._wrap import Broken
from tests.conformance.harnesses.scripted import harness

from agentsession.conformance.engine import check, evidence_of
from agentsession.conformance.hosting import CREDENTIAL
from agentsession.conformance.logged import LINES, listening, shown
from agentsession.conformance.machine import drive_at_random
from agentsession.conformance.results import Result, Status
from agentsession.conformance.runner import all_scenarios, describe, run, run_scenario
from agentsession.conformance.stage import HarnessBroke
from agentsession.conformance.stdio.harness import StdioHarness
from agentsession.protocol import Error, ExecutionOptions

LOGGER = logging.getLogger("tests.deaf")
LOGGER.propagate = False


class Chatty(Broken):
    """It warns, logs what it knows, and breaks."""

    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> BrokenStream:
        LOGGER.warning("the model %s is slow", "planted")
        raise RuntimeError("no model")


async def failed(scenario: str, executor: Broken | StdioHarness) -> Result:
    results = await run_scenario(all_scenarios()[scenario], executor)
    return next(result for result in results if result.status is not Status.PASS)


@pytest.mark.anyio
async def test_a_failure_has_what_was_logged_and_a_pass_has_not() -> None:
    assert (await failed("a_replay_says_what_was_said", Chatty())).log == (
        "WARNING tests.deaf: the model planted is slow",
    )
    passed = await run_scenario(all_scenarios()["an_exception_is_a_fatal_error"], harness)
    assert {(result.status, result.log) for result in passed} == {(Status.PASS, ())}


@pytest.mark.anyio
async def test_of_another_process_what_it_wrote_to_stderr_is_shown_without_secrets() -> None:
    server = [sys.executable, "-m", "agentsession.conformance.stdio.server"]
    wrong = StdioHarness([*server, "tests.conformance.broken.lifecycle:CompletesAfterAFatalError"])
    result = await failed("an_exception_is_a_fatal_error", wrong)
    assert "RuntimeError: no key [redacted]" in "\n".join(result.log)
    assert "planted" not in "".join(result.log)


@pytest.mark.anyio
async def test_the_last_words_of_a_process_that_died_hold_no_secret_nor_half_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-the-environment")
    # The first line is longer than what is looked at, which begins within the secret.
    says = (
        "w = sys.stderr.write; w('-of-the-environment' * 2000 + '\\n'); w('no ' + os.environ['SOME_API_KEY'] + '\\n')"
    )
    dies = StdioHarness([sys.executable, "-c", f"import os, sys; {says}; sys.exit(3)"])
    with pytest.raises(HarnessBroke) as broken:
        await describe(dies)
    assert "exit code 3\nno [redacted]" in str(broken.value)
    assert "environment" not in str(broken.value)


PRINTS = "print(os.environ['SOME_API_KEY'])"
ANSWERS = "print(json.dumps({'id': 1, 'error': {'code': 'Internal', 'message': 'no ' + os.environ['SOME_API_KEY']}}))"


@pytest.mark.anyio
@pytest.mark.parametrize(("says", "told"), [(PRINTS, "no JSON: [redacted]"), (ANSWERS, "no [redacted]")])
async def test_what_a_process_prints_and_answers_is_shown_without_secrets_nor_half_of_one(
    monkeypatch: pytest.MonkeyPatch, says: str, told: str
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-the-environment")
    program = f"import json, os, sys; sys.stdin.readline(); {says}; sys.stdout.flush(); sys.stdin.read()"
    report = await run(StdioHarness([sys.executable, "-c", program]), rules=["LIFE-02"])
    (result,) = report.results
    assert (result.status, told in result.message) == (Status.HARNESS_ERROR, True), result.message
    assert "sk-of" not in repr(report)


class Telltale(Broken):
    """What it raises repeats its key."""

    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> BrokenStream:
        raise RuntimeError(f"no model for {os.environ['SOME_API_KEY']}")


@pytest.mark.anyio
async def test_what_an_executor_raises_is_reported_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-the-environment")
    (result,) = (await run(Telltale(), rules=["LIFE-12"])).results
    assert result.message == "the executor raised RuntimeError: no model for [redacted]"


def test_what_breaks_at_random_is_reported_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-the-environment")
    report = drive_at_random(Telltale(), sequences=3, seed=1)
    assert report.result is not None
    assert "no model for [redacted]" in report.result.message
    assert "sk-of" not in repr(report)


def test_an_event_that_is_shown_has_no_secret_nor_half_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-the-environment")
    told = Error(
        status="INTERNAL",
        seq=1,
        id="e1",
        session_id="s",
        timestamp="2026-01-31T12:00:00.000Z",
        message=f"{'x' * 90} sk-of-the-environment",
    )
    (item,) = shown(Result("LIFE-05", Status.FAIL, evidence=evidence_of([told]))).evidence
    assert item.event is not None
    assert item.event["message"] == f"{'x' * 90} [redacted]"
    assert "sk-of" not in item.text


def test_a_line_that_is_no_event_is_cut_where_no_half_of_a_secret_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-the-environment")
    (result,) = check([f"{'x' * 390}sk-of-the-environment"])
    assert "x[redacted" in result.evidence[0].text
    assert "sk-of" not in repr(result)


def test_a_log_is_bounded_and_its_exceptions_are_in_it() -> None:
    with listening() as heard:
        LOGGER.info("not this")
        try:
            raise ValueError("x" * 9000)
        except ValueError:
            LOGGER.exception("it broke")
        first = heard.lines()
        for number in range(1000):
            LOGGER.error("line %d", number)
    assert first[0] == "ERROR tests.deaf: it broke"
    assert first[-1].startswith("ValueError: xxx")
    assert max(len(line) for line in first) < 400
    assert len(heard.lines()) == LINES
    assert heard.lines()[-1] == "ERROR tests.deaf: line 999"


def test_a_record_whose_arguments_do_not_fit_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with listening() as heard:
        logging.LogRecord("x", logging.ERROR, "", 1, "%d", ("one",), None)
        logging.getLogRecordFactory()("x", logging.ERROR, "", 1, "%d", ("one",), None)
    assert heard.lines() == ("ERROR x: %d (TypeError in its arguments)",)


def test_warnings_are_kept_and_go_on() -> None:
    with pytest.warns(UserWarning, match="old") as given, listening() as heard:
        warnings.warn("old", UserWarning, stacklevel=1)
    assert len(given) == 1
    assert heard.lines()[0].endswith(": old")


def test_secrets_are_masked_before_lines_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-the-environment")
    credential = CREDENTIAL["credential"]["value"]
    with listening() as heard:
        LOGGER.error("planted-1 and planted-12 and %s and sk-of-the-environment", credential)
        LOGGER.error("%splanted-1", "y" * 295)
    first, second = heard.lines(["planted-1", "planted-12"])
    assert first == "ERROR tests.deaf: [redacted] and [redacted] and [redacted] and [redacted]"
    assert "plant" not in second


def test_who_listens_at_the_same_time_hears_the_same_and_all_is_as_before() -> None:
    before = logging.getLogRecordFactory(), warnings.showwarning
    one, other = listening(), listening()
    first = one.__enter__()
    second = other.__enter__()
    LOGGER.error("both")
    one.__exit__(None, None, None)
    LOGGER.error("the second alone")
    other.__exit__(None, None, None)
    LOGGER.error("nobody")
    assert (len(first.lines()), len(second.lines())) == (1, 2)
    assert (logging.getLogRecordFactory(), warnings.showwarning) == before
