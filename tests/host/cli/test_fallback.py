"""``run --fallback``: what is shown of a model that fails, and of the one that answers."""

from __future__ import annotations

import json
import sys

import pytest
from tests.host.cli.command import Command

from agentsession.host.cli._setup import RunOptions

pytest.importorskip("google.adk")


@pytest.fixture(autouse=True)
def fresh_agents() -> None:
    sys.modules.pop("model_agents", None)


def test_each_failure_and_the_model_that_answers_are_shown(command: Command) -> None:
    done = command("run", "model_agents:clerk", "-p", "hello", "--fallback", "small")
    assert done.returncode == 0
    assert "Small says hello." in done.stdout + done.stderr
    assert done.stderr.count("large is overloaded (503 UNAVAILABLE): again in") == 2
    assert "large is overloaded (503 UNAVAILABLE): now small" in done.stderr
    assert "clerk now calls small" in done.stderr
    assert "sk-SECRET" not in done.stdout + done.stderr


def test_the_record_for_programs_names_the_model(command: Command) -> None:
    done = command("run", "model_agents:clerk", "-p", "hello", "--fallback", "small", "--json")
    told = [event["model"] for event in map(json.loads, done.stdout.splitlines()) if event["type"] == "session_update"]
    assert told == ["small"]


def test_where_no_model_is_left_the_command_fails_and_says_why(command: Command) -> None:
    done = command("run", "model_agents:clerk", "-p", "hello", "--fallback", "large")
    assert done.returncode == 1
    assert "no model is left: large is overloaded (503 UNAVAILABLE)" in " ".join(done.stderr.split())


def test_where_nobody_can_be_asked_no_other_model_is_used(command: Command) -> None:
    done = command("run", "model_agents:clerk", "-p", "hello", "--fallback", "small", "--ask-fallback")
    assert done.returncode == 1
    assert "stopped, and no other model was used: large is overloaded" in " ".join(done.stderr.split())
    assert "Small says hello." not in done.stdout + done.stderr


def test_asking_needs_a_model_to_ask_about(command: Command) -> None:
    done = command("run", "model_agents:clerk", "-p", "hello", "--ask-fallback")
    assert (done.returncode, "--ask-fallback needs --fallback" in done.stderr) == (2, True)


def test_an_empty_name_is_refused_before_anything_is_sent(command: Command) -> None:
    done = command("run", "model_agents:clerk", "-p", "hello", "--fallback", "")
    assert (done.returncode, "--fallback names no model" in done.stderr) == (2, True)


def test_the_command_that_resumes_has_the_same_fallbacks() -> None:
    options = RunOptions(target="a:b", store="s.db", session="s1", fallback=("x", "y z"), ask_fallback=True)
    assert "--fallback x --fallback 'y z' --ask-fallback" in (options.resume_command or "")
