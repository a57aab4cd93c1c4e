"""The demo: a real ADK agent, a scripted model, real files, real tests that go green. No key, no network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.host.cli.command import Command

from agentsession.host import Rule, RulePolicy
from agentsession.protocol import SessionMachine, ToolResponse, read_ndjson

pytest.importorskip("google.adk")


def test_the_demo_goes_green_shows_everything_and_ends_with_the_counts(command: Command) -> None:
    done = command("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("events: ")
    for kind in ("elicitation_request 1", "tool_request 6", "stream_end"):
        assert kind in lines[-1]
    text = done.stdout
    assert "+ 2 calls at once" in text
    assert "DENIED  rule no-shell" in text
    assert "granted by you, ran once" in text
    assert "steer 1 injected after [4]" in text
    assert "FAILED (failures=1)" in text
    assert "the tests are green" in text


def test_the_record_of_the_demo_keeps_the_contract_and_can_be_kept_with_the_files(
    command: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "demo"
    done = command("demo", "--json", "--keep", str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].startswith("events: ")
    events = list(read_ndjson(done.stdout.splitlines()))
    assert SessionMachine.fold(events).state in ("idle", "closed")
    statuses = [event.status for event in events if isinstance(event, ToolResponse)]
    assert statuses.count("denied") == 1
    tests = [sys.executable, "-m", "unittest", "discover", "-s", "tests", "-t", "."]
    again = subprocess.run(tests, cwd=folder, capture_output=True, text=True, check=True)
    assert "Ran 6 tests" in again.stderr
    assert all(json.loads(line)["sessionId"] == events[0].session_id for line in done.stdout.splitlines())
    refused = command("demo", "--keep", str(folder))
    assert refused.returncode == 2
    assert "is not empty" in refused.stderr


def test_a_demo_in_which_nothing_may_be_edited_is_not_green_and_fails(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentsession.host.cli._demo._POLICY", RulePolicy([Rule("deny", "*", id="nothing")]))
    done = command("demo")
    assert done.returncode == 1
    assert "the tests are NOT green" in done.stdout
    assert "did not happen: a steer" in done.stdout


def test_without_adk_the_demo_says_what_to_install(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "google.adk" or name.startswith("google.adk.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "google.adk", None)
    done = command("demo")
    assert done.returncode == 2
    assert "error[extra-missing]: google-adk is not installed" in done.stderr
    assert 'pip install "agent-session-protocol[adk]"' in done.stderr


@pytest.mark.parametrize("named", ["agent", "executor"])
def test_a_call_of_an_adk_agent_that_waits_is_asked_about_again_in_another_process(
    command: Command, tmp_path: Path, named: str
) -> None:
    folder = tmp_path / "demo"
    command("demo", "--keep", str(folder))
    (folder / "lasting.py").write_text(
        "from google.adk.sessions.sqlite_session_service import SqliteSessionService\n"
        "from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say\n"
        "from google.adk.agents import LlmAgent\n"
        "model = ScriptedLlm(script=[call('run_shell', {'command': 'echo hi'})], forever=say('Done.'))\n"
        "agent = LlmAgent(name='coder', model=model)\n"
        "executor = AdkExecutor(agent, session_service=SqliteSessionService('adk.db'))\n"
    )
    run = ("run", f"lasting:{named}", "--tools", "demo_tools:tools", "--store", "s.db", "--session", "k1")
    for name in ("lasting", "demo_tools"):
        sys.modules.pop(name, None)
    first = command(*run, "-p", "Say hi", "--on-ask", "pause", cwd=folder)
    assert first.returncode == 3
    assert f"resume: agentsession run lasting:{named} --store s.db --session k1" in first.stderr
    sys.modules.pop("lasting", None)
    done = command(*run, "--allow", "run_shell", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert '[1] run_shell "echo hi"' in done.stderr


def test_of_two_calls_that_wait_each_is_named_with_what_is_asked_about_it(command: Command, tmp_path: Path) -> None:
    (tmp_path / "careful.py").write_text(
        "from google.adk.agents import LlmAgent\n"
        "from google.adk.tools.function_tool import FunctionTool\n"
        "from agentsession.adapters.adk import ScriptedLlm, call, calls\n"
        "def wipe(disk: str): 'Wipe.'\n"
        "def look(disk: str): 'Look.'\n"
        "asked = calls(call('wipe', {'disk': 'a'}), call('look', {'disk': 'c'}), call('wipe', {'disk': 'b'}))\n"
        "tools = [FunctionTool(wipe, require_confirmation=True), look]\n"
        "agent = LlmAgent(name='careful', model=ScriptedLlm(script=[asked]), tools=tools)\n"
    )
    sys.modules.pop("careful", None)
    paused = command("run", "careful:agent", "-p", "go", "--on-ask", "pause", cwd=tmp_path)
    waits = [line.removeprefix("waits for you: ") for line in paused.stderr.splitlines() if line.startswith("waits")]
    assert sorted(waits) == ["[1] wipe a: May wipe run?", "[2] look c", "[3] wipe b: May wipe run?"]
