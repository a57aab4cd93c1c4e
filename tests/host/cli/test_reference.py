"""What can be looked up: every error that can be printed is explained, and the pages are what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.host.cli.command import Command

from agentsession.adapters.base._loopwatch import LOOP_DETECTED
from agentsession.host._outcome import ERROR_CODES
from agentsession.host.cli._error_table import ERRORS, errors_page, exit_for
from agentsession.host.cli._exit_codes import EXIT_BY_REASON, MEANINGS, Exit, exit_code, exit_codes_table
from agentsession.protocol import HOST_RULES, RULES, StreamEnd

ROOT = Path(__file__).parents[3]


def test_every_error_id_that_the_source_can_print_is_explained() -> None:
    """By the text of the source, also where a class has it: which classes there are follows from what was imported."""
    found: dict[str, str] = {}
    for root in ("protocol", "adapters", "host", "conformance"):
        for file in (ROOT / root).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            ids = re.findall(r'(?:\bid\s*=|default_id(?::[^=\n]+)?\s*=)\s*"([a-z][a-z-]+|[A-Z][A-Z_]+)"', text)
            found |= dict.fromkeys(ids, str(file.relative_to(ROOT)))
    assert {"bad-json", "MODEL_UNAVAILABLE"} <= set(found)
    not_errors = {"edits-ask", "no-shell", "reads"}  # rules of the demo's policy
    missing = {
        error_id: file for error_id, file in found.items() if error_id not in ERRORS and error_id not in not_errors
    }
    assert not missing


def test_every_code_of_a_denial_or_of_a_failed_call_is_explained() -> None:
    found = set(ERROR_CODES)
    for file in (ROOT / "host/agentsession/host").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        found |= set(re.findall(r'(?:reason=|\.no\(|why = |request, )f?"([a-z]+_[a-z_]+)[":]', text))
    assert {"no_channel", "policy_error", "invalid_edit", "unsupported_needs"} <= found
    assert found - set(ERRORS) == {"not_scripted"}  # only tests and demos have a script


def test_every_entry_says_what_why_and_what_to_do() -> None:
    for entry in ERRORS.values():
        assert entry.sentence.endswith(".")
        assert entry.why
        assert entry.fix.rstrip(".:`")
        assert entry.exit is not Exit.COMPLETED


def test_every_reason_of_a_stream_end_has_an_exit_code_of_its_own() -> None:
    known = StreamEnd.model_json_schema()["properties"]["reason"]["x-knownValues"]
    assert set(EXIT_BY_REASON) == set(known)
    assert len(set(EXIT_BY_REASON.values())) == len(EXIT_BY_REASON)
    assert exit_code("an unheard-of reason") == 19
    assert set(MEANINGS) == set(Exit)


@pytest.mark.parametrize("limit", ["max_turns", "max_llm_calls", "max_budget", "max_time", "deadline"])
def test_the_end_at_each_limit_is_explained_with_its_exit_code(limit: str) -> None:
    assert ERRORS[limit].exit == EXIT_BY_REASON[limit]


def test_the_stop_of_an_agent_that_goes_in_circles_is_explained() -> None:
    assert ERRORS[LOOP_DETECTED].exit == exit_code("failed", {"cause": LOOP_DETECTED})


def test_an_error_without_an_entry_is_still_a_failure() -> None:
    assert exit_for("never-heard-of") == 1


def test_the_page_of_errors_is_current() -> None:
    assert (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8") == errors_page()


def test_the_exit_codes_on_the_page_of_the_command_are_current() -> None:
    assert exit_codes_table() in (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "wanted", ["LIFE-05", "life-05", "error[bad-json]", "bad-json", "[session-busy]", "LIFE-5", "no_channel"]
)
def test_an_id_is_explained_however_it_was_copied(command: Command, wanted: str) -> None:
    done = command("explain", wanted)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) >= 4


def test_every_rule_and_every_error_can_be_explained(command: Command) -> None:
    for known in (*list(RULES)[:3], *list(HOST_RULES)[:2], *list(ERRORS)[:3]):
        assert command("explain", known).stdout.startswith(known)


def test_the_rules_are_listed_for_people_and_for_programs(command: Command) -> None:
    text = command("rules").stdout
    assert all(rule in text for rule in [*RULES, *HOST_RULES])
    listed = json.loads(command("rules", "--json").stdout)
    assert [rule["id"] for rule in listed] == [*RULES, *HOST_RULES]


@pytest.mark.parametrize("part", ["event", "descriptor", "input", "all"])
def test_the_schema_is_a_schema(command: Command, part: str) -> None:
    schema = json.loads(command("schema", part).stdout)
    Draft202012Validator.check_schema(schema)


def test_inspect_shows_a_descriptor_for_people_and_for_programs(command: Command) -> None:
    assert "scripted  executor scripted" in command("inspect", "scripted_agents:worker").stdout
    assert json.loads(command("inspect", "scripted_agents:worker", "--json").stdout)["name"] == "scripted"
