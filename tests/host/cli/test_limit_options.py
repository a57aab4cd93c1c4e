"""The options of the command that limit its turns: how they are read, and what is said of those that cannot be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.host.cli.command import Command

from agentsession.host.cli._limit_options import LimitOptions, read_duration
from agentsession.host.cli._out import CommandError
from agentsession.host.cli._setup import RunOptions
from agentsession.protocol import Constraints, Grace, Price


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0), (" 5M ", 300.0)]
)
def test_a_time_may_have_a_unit(text: str, seconds: float) -> None:
    assert read_duration(text, "--max-time") == seconds


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"max_time": "soon"}, "--max-time"),
        ({"max_time": "0"}, "--max-time"),
        ({"max_time": "-5"}, "--max-time"),
        ({"max_turns": 0}, "--max-turns"),
        ({"max_calls": -1}, "--max-calls"),
        ({"max_time": "9" * 400}, "--max-time"),
        ({"max_budget": 0.0}, "--max-budget"),
        ({"max_budget": float("nan")}, "--max-budget"),
        ({"max_budget": float("inf")}, "--max-budget"),
        ({"deadline": "99999999999h"}, "--deadline"),
        ({"deadline": "0001-01-01T00:00+14:00"}, "--deadline"),
        ({"deadline": "9999-12-31T23:00-14:00"}, "--deadline"),
        ({"deadline": "tomorrow"}, "--deadline"),
        ({"deadline": "2026-01-31T12:00:00"}, "--deadline"),
        ({"prices": ["gemini"]}, "--price"),
        ({"prices": ["=1,2"]}, "--price"),
        ({"prices": ["gemini=1"]}, "--price"),
        ({"prices": ["gemini=1,-2"]}, "--price"),
        ({"prices": ["gemini=1,two"]}, "--price"),
    ],
)
def test_what_cannot_be_a_limit_is_refused_by_the_name_of_its_option(wrong: dict[str, Any], option: str) -> None:
    with pytest.raises(CommandError, match=option) as refused:
        LimitOptions.read(**wrong)
    assert refused.value.id == "usage"
    assert option in (refused.value.fix or "")


def test_what_is_asked_for_is_what_the_session_is_opened_with() -> None:
    options = LimitOptions.read(
        max_turns=3, max_calls=9, max_time="2m", max_budget=0.5, prices=["gemini-*=0.3,2.5,0.03"], loop_detection=False
    ).execution("m")
    assert options.model == "m"
    assert options.limits == Constraints(max_turns=3, max_llm_calls=9, max_time_seconds=120, max_budget_usd=0.5)
    assert options.prices == {"gemini-*": Price(input=0.3, output=2.5, cached_input=0.03)}
    assert (options.grace, options.loop_detection) == (Grace(), False)


def test_without_limits_nothing_is_asked_for() -> None:
    assert LimitOptions.read().execution(None).to_wire() == {}


def test_a_deadline_is_a_moment_or_a_time_from_now() -> None:
    assert LimitOptions.read(deadline="2026-01-31T13:00:00+01:00").deadline == "2026-01-31T12:00:00.000Z"
    before = datetime.now(UTC)
    found = LimitOptions.read(deadline="10m").deadline
    assert found is not None
    moment = datetime.fromisoformat(found)
    assert before + timedelta(minutes=10, seconds=-1) <= moment <= datetime.now(UTC) + timedelta(minutes=10)


def test_the_command_that_resumes_has_the_limits_and_not_the_deadline() -> None:
    limits = LimitOptions.read(
        max_calls=9, max_time="2m", prices=["a=1,2"], deadline="10m", grace=False, loop_detection=True
    )
    command = RunOptions(target="a:b", store="s.db", session="s", limits=limits).resume_command
    assert command is not None
    assert command.endswith("--max-calls 9 --max-time 2m --price a=1,2 --no-grace --loop-detection")


@pytest.mark.parametrize(
    ("args", "code", "reason"),
    [
        (["--max-calls", "1"], 13, "max_llm_calls"),
        (["--max-turns", "1"], 12, "max_turns"),
        (["--max-time", "0.000001"], 15, "max_time"),
        (["--deadline", "2001-01-01T00:00Z"], 16, "deadline"),
        (["--max-budget", "0.001", "--price", "*=1,1"], 14, "max_budget"),
    ],
)
def test_each_limit_has_an_exit_code_of_its_own(command: Command, args: list[str], code: int, reason: str) -> None:
    done = command("run", "scripted_agents:waiter" if code > 14 else "scripted_agents:worker", "-p", "x", *args)
    assert done.returncode == code, done.stderr
    (summary,) = [row for row in done.stderr.splitlines() if row.startswith("── ")]
    assert reason in summary


def test_a_limit_that_cannot_be_read_is_said_before_anything_runs(command: Command) -> None:
    done = command("run", "scripted_agents:worker", "-p", "x", "--max-time", "soon")
    assert done.returncode == 2
    assert "--max-time soon cannot be used" in done.stderr


def test_a_budget_without_prices_is_refused_and_the_option_that_helps_is_named(command: Command) -> None:
    done = command("run", "scripted_agents:worker", "-p", "x", "--max-budget", "1")
    assert done.returncode == 2
    assert "--price MODEL=INPUT,OUTPUT" in done.stderr
