"""The file of expected failures, and what a run makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.harnesses.scripted import harness

from agentsession.conformance.expected import load_expected
from agentsession.conformance.results import Result, Status
from agentsession.conformance.runner import against, run
from agentsession.protocol import ConfigurationError

pytestmark = pytest.mark.anyio


def test_a_file_gives_the_reason_for_each_rule(tmp_path: Path) -> None:
    path = tmp_path / "expected.toml"
    path.write_text('[expected]\nCTL-06 = "no steering yet"\n', encoding="utf-8")
    assert load_expected(path) == {"CTL-06": "no steering yet"}


@pytest.mark.parametrize(
    "text",
    [
        "[expected",
        '[expected]\nCTL-99 = "x"',
        "[expected]\nCTL-06 = 1",
        '[expected]\nCTL-06 = " "',
        'expected = "x"',
        '[known]\nCTL-06 = "x"',
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "expected.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_expected(path)
    assert caught.value.where == str(path)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_expected(tmp_path / "none.toml")


async def test_a_failure_that_is_expected_but_does_not_come_fails_the_run() -> None:
    report = await run(harness, rules=["LIFE-05"], expected={"LIFE-05": "a known gap"})
    assert [result.status for result in report.results] == [Status.UNEXPECTED_PASS]
    assert report.exit_code == 1


def test_a_rule_that_cannot_be_played_may_be_expected() -> None:
    told = against({"LIFE-11": "no such errors"}, Result("LIFE-11", Status.NOT_RUN, "not played: fail"))
    assert (told.status, told.message) == (Status.EXPECTED_FAIL, "not played: fail (expected: no such errors)")
