"""The command as a process: exit codes, what goes to which output, errors that help. No terminal here."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.host.cli.command import PROJECT, Command, read_until, run_command, started_command

from agentsession.host.cli._setup import RunOptions
from agentsession.protocol import SessionMachine, read_ndjson

TOOLS = ("--tools", "host_tools:tools")


def test_alone_it_shows_examples_and_exits_2(command: Command) -> None:
    done = command()
    assert done.returncode == 2
    assert "agentsession demo" in done.stderr
    assert done.stdout == ""


def test_the_version_names_the_contract_too(command: Command) -> None:
    done = command("--version")
    assert done.returncode == 0
    assert "contract 1.0" in done.stdout


@pytest.mark.parametrize("command", [["--version"], ["schema", "event"], ["explain", "LIFE-05"]])
def test_a_look_up_loads_no_agent_framework_no_terminal_library_and_no_database(command: list[str]) -> None:
    code = (
        "import sys; from agentsession.host.cli import main; main(sys.argv[1:]);"
        "heavy = ('google', 'rich', 'prompt_toolkit', 'sqlalchemy');"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("args", "code", "error", "fix"),
    [
        (["run", "scripted_agent:worker", "-p", "x"], 2, "module-missing", "agentsession run scripted_agents:worker"),
        (["run", "scripted_agents:workr", "-p", "x"], 2, "not-an-agent", "agentsession run scripted_agents:worker"),
        (["run", "scripted_agents", "-p", "x"], 2, "not-an-agent", "agentsession run scripted_agents:"),
        (["run", "scripted_agents:make_with", "-p", "x"], 2, "not-an-agent", "agentsession run scripted_agents:"),
        (["run", "scripted_agents:make_later", "-p", "x"], 2, "not-an-agent", "agentsession run scripted_agents:"),
        (["run", "scripted_agents:number", "-p", "x"], 2, "not-an-agent", "agentsession run scripted_agents:"),
        (["run", "scripted_agents:Say", "-p", "x"], 2, "not-an-agent", "agentsession run scripted_agents:"),
        (["run", "./scripted_agents.py:worker", "-p", "x"], 2, "usage", "agentsession run scripted_agents:worker"),
        (["run", "broken_agent:agent", "-p", "x"], 2, "module-broken", "python -c 'import broken_agent'"),
        (["run", "leaving_agent:agent", "-p", "x"], 2, "module-broken", "python -c 'import leaving_agent'"),
        (["run", "odd_modules:leave", "-p", "x"], 2, "module-broken", "--debug"),
        (["run", "../other/agents.py:agent", "-p", "x"], 2, "usage", "cd ../other && agentsession run agents:agent"),
        (["run", "/srv/my agents/a.py", "-p", "x"], 2, "usage", "cd '/srv/my agents' && agentsession run a:agent"),
        (
            ["run", "scripted_agents:worker", "-p", "x", "--tools", "host_tools:READS"],
            2,
            "tools-invalid",
            "host_tools:tools",
        ),
        (
            ["run", "scripted_agents:worker", "-p", "x", "--tools", "host_tools:tols"],
            2,
            "tools-invalid",
            "host_tools:tools",
        ),
        (
            ["run", "scripted_agents:worker", "-p", "x", "--tools", "host_tools"],
            2,
            "tools-invalid",
            "--tools host_tools:",
        ),
        (
            ["run", "scripted_agents:worker", "-p", "x", "--tools", "host_tool:tools"],
            2,
            "module-missing",
            "host_tools:tools",
        ),
        (
            ["run", "scripted_agents:worker", "-p", "x", "--tools", "odd_modules:make_tools"],
            2,
            "module-broken",
            "--debug",
        ),
        (["explain", "LIFE-99"], 2, "unknown-id", "agentsession explain LIFE-"),
        (["explain", "nope"], 2, "unknown-id", "agentsession rules"),
        (["run", "scripted_agents:worker", "-p", " "], 2, "usage", "-p"),
        (["run", "scripted_agents:worker", "-p", "x", "--session", "s-1"], 2, "usage", "--store"),
        (["run", "scripted_agents:worker"], 2, "no-prompt", "agentsession run scripted_agents:worker -p"),
        (["run"], 2, "usage", "agentsession run --help"),
        (["nope"], 2, "usage", "agentsession --help"),
        (["policy"], 2, "usage", "agentsession policy --help"),
        (["hooks"], 2, "usage", "agentsession hooks --help"),
        (["run", "scripted_agents:worker", "--nope"], 2, "usage", "agentsession run --help"),
        (["replay", "no-such-file"], 2, "file-missing", "check the path"),
        (["explain", "schemma"], 2, "unknown-id", "agentsession explain schema"),
    ],
)
def test_a_mistake_is_named_and_ends_in_something_to_type(
    command: Command, args: list[str], code: int, error: str, fix: str
) -> None:
    done = command(*args)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"error[{error}]: ")
    assert fix in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("odd_modules:nothing", "odd_modules:nothing() returned None"),
        ("odd_modules:needs", "odd_modules:needs is a function that needs arguments: settings"),
        ("scripted_agents:make_later", "scripted_agents:make_later is an async function"),
        ("scripted_agents:Say", "scripted_agents:Say is a class"),
    ],
)
def test_what_is_no_agent_is_said_in_its_own_words(command: Command, target: str, what: str) -> None:
    done = command("run", target, "-p", "x")
    assert done.stderr.startswith(f"error[not-an-agent]: {what}\n")


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("odd_modules:mixed", "item 2 of odd_modules:mixed is of type int"),
        ("odd_modules:make_tools_later", "odd_modules:make_tools_later is an async function"),
        ("odd_modules:make_tools", "odd_modules:make_tools() failed: ValueError: no database"),
        ("odd_modules:tools", "two tools are called 'scale'"),
    ],
)
def test_what_is_no_tool_is_said_in_its_own_words(command: Command, target: str, what: str) -> None:
    done = command("run", "scripted_agents:worker", "--tools", target, "-p", "x")
    assert what in done.stderr.splitlines()[0]
    assert done.returncode == 2


def test_whatever_can_be_called_is_a_tool(command: Command) -> None:
    done = command("run", "scripted_agents:worker", "--tools", "odd_modules:callables", "-p", "x")
    assert done.returncode == 0


def test_a_wrong_choice_is_told_without_the_words_of_a_library(command: Command) -> None:
    done = command("run", "scripted_agents:worker", "--on-ask", "foo")
    assert "Invalid value for '--on-ask': 'foo' is not one of 'deny', 'pause'" in done.stderr


def test_a_module_may_run_an_event_loop_of_its_own_while_it_is_imported(command: Command, tmp_path: Path) -> None:
    (tmp_path / "looping.py").write_text(
        "import asyncio\nfrom agentsession.adapters.scripted import Say, ScriptedExecutor\n"
        "async def make():\n    return ScriptedExecutor([[Say('Made.')]])\nagent = asyncio.run(make())\n"
    )
    assert command("run", "looping:agent", "-p", "x", cwd=tmp_path).stdout == "Made.\n"


def test_ctrl_c_while_a_module_is_imported_leaves_at_once(tmp_path: Path) -> None:
    (tmp_path / "slow_import.py").write_text(
        "import threading\nprint('importing', flush=True)\nthreading.Event().wait()\n"
    )
    with started_command("run", "slow_import:agent", "-p", "x", cwd=tmp_path) as process:
        read_until("importing", process)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate()
        assert (process.returncode, rest) == (130, "")


@pytest.mark.parametrize("sent", [1, 2])
def test_a_tool_that_no_signal_can_stop_does_not_keep_the_command(tmp_path: Path, sent: int) -> None:
    (tmp_path / "stuck_tools.py").write_text(
        "import threading\nfrom agentsession.host import tool\n"
        "@tool(read_only=True)\ndef wait_long() -> str:\n"
        "    print('begun', flush=True)\n    threading.Event().wait()\n    return ''\n"
    )
    path = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = ("run", "scripted_agents:slow", "--tools", "stuck_tools:wait_long", "-p", "x")
    with started_command(*run, cwd=tmp_path, env={"PYTHONPATH": path}) as process:
        read_until("begun", process)
        for _ in range(sent):
            process.send_signal(signal.SIGINT)
        _, rest = process.communicate()
        assert process.returncode == 130
        assert "Traceback" not in rest
        assert sent == 2 or "left behind" in rest


@pytest.mark.skipif(sys.platform == "win32", reason="a shell there closes no descriptor")
@pytest.mark.parametrize(
    ("args", "closed", "code", "told"),
    [
        (["run", "scripted_agents:worker", "--json"], 0, 0, '"type":"initialize"'),
        (["run", "scripted_agents:worker"], 0, 2, "error[no-prompt]"),
        (["run", "scripted_agents:worker", "-p", "-"], 0, 2, "error[usage]: the prompt is empty"),
        (["replay", "-"], 0, 2, "error[empty-record]"),
        (["run", "scripted_agents:worker", "-p", "x"], 1, 0, "completed"),
        (["run", "scripted_agents:worker", "-p", "x"], 2, 0, "All done."),
        (["rules"], 1, 0, ""),
    ],
)
def test_a_stream_that_is_closed_is_an_empty_one(args: list[str], closed: int, code: int, told: str) -> None:
    shell = f'exec "$@" {closed}{"<" if closed == 0 else ">"}&-'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", sys.executable, "-m", "agentsession.host.cli", *args],
        capture_output=True,
        cwd=PROJECT,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, told in done.stdout + done.stderr) == (code, True), done
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "args",
    [
        ["run", "scripted_agents:worker", "-p", "x"],
        ["run", "scripted_agents:worker", "-p", "x", "--json"],
        ["run", "scripted_agents:worker", "--json"],
        ["demo"],
        ["demo", "--json"],
        ["rules"],
    ],
)
def test_output_that_cannot_be_written_is_no_success(args: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "agentsession.host.cli", *args],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=PROJECT,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "error[output-failed]: the output cannot be written" in done.stderr
    assert "got:      No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_module_is_named_with_file_line_and_cause_and_debug_shows_the_traceback(command: Command) -> None:
    quiet = command("inspect", "broken_agent:agent")
    assert "RuntimeError: no database" in quiet.stderr
    assert "broken_agent.py, line 3" in quiet.stderr
    assert "Traceback" in command("inspect", "broken_agent:agent", "--debug").stderr


def test_a_start_that_fails_in_json_mode_is_a_line_of_json(command: Command) -> None:
    import json

    done = command("run", "scripted_agent:worker", "--json")
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["error"] == "module-missing"
    assert json.loads(line)["fix"] == "agentsession run scripted_agents:worker"
    assert (done.returncode, done.stderr) == (2, "")


R76 = """
from google.adk.agents import LlmAgent
from agentsession.adapters.adk import ScriptedLlm, fail

def stop(callback_context):
    raise RuntimeError("stopped")

keyless = LlmAgent(name="keyless", model="gemini-2.5-flash")
refused = LlmAgent(name="refused", model=ScriptedLlm(script=[fail(PermissionError("no key"))]))
stopped = LlmAgent(name="stopped", model=ScriptedLlm(), before_agent_callback=stop)
"""


def r76(tmp_path: Path, name: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "r76_agents.py").write_text(R76)
    keys = ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT")
    return run_command("run", f"r76_agents:{name}", "-p", "x", "--json", cwd=tmp_path, env=dict.fromkeys(keys, ""))


def test_r76_without_credentials_for_the_model_stdout_has_a_line_of_json_that_says_so(tmp_path: Path) -> None:
    """R76: a run that cannot begin leaves a program that reads its stdout no riddle."""
    import json

    done = r76(tmp_path, "keyless")
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["error"] == "no-key"
    assert done.returncode != 0


@pytest.mark.parametrize("name", ["refused", "stopped"])
def test_r76_a_turn_that_fails_before_its_first_answer_ends_with_an_error_and_an_end(tmp_path: Path, name: str) -> None:
    """R76: credentials that the provider refuses, and an agent that is stopped before its first model call."""
    done = r76(tmp_path, name)
    events = list(read_ndjson(done.stdout.splitlines()))
    assert SessionMachine.fold(events).state == "idle"
    assert [event.type for event in events if event.type in ("error", "stream_end")] == ["error", "stream_end"]
    assert events[-1].to_wire()["reason"] == "failed"
    assert (done.returncode, "Traceback" in done.stdout) == (1, False)


def test_a_prompt_gives_lines_on_stderr_and_only_the_answer_on_stdout(command: Command) -> None:
    done = command("run", "scripted_agents:worker", *TOOLS, "-p", "Read it")
    assert (done.returncode, done.stdout) == (0, "All done.\n")
    assert "2 calls at once" in done.stderr
    assert "completed" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_factory_and_a_function_that_returns_tools_are_called(command: Command) -> None:
    done = command("run", "scripted_agents:make", "--tools", "host_tools:make_tools", "-p", "-", stdin="Read it")
    assert (done.returncode, done.stdout) == (0, "All done.\n")


def test_a_question_without_a_terminal_is_denied_and_nothing_hangs(command: Command) -> None:
    done = command("run", "scripted_agents:denier", "-p", "Edit it")
    assert done.returncode == 0
    assert "The host said: no_channel" in done.stdout
    assert "DENIED" in done.stderr
    assert "edit ran" not in done.stderr
    assert done.stderr.splitlines()[-1] == "nobody could be asked; to allow it: --allow edit_file"


def test_what_asks_is_named_where_no_option_would_allow_it(command: Command, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        'version = 1\n[[rule]]\nid = "edits"\ntools = ["edit_file"]\ndecision = "ask_user"\n'
    )
    (tmp_path / "hooks.toml").write_text(
        '[[hook]]\nid = "h"\npoint = "before_tool"\ncommand = ["echo", "{\\"action\\": \\"ask\\"}"]\n'
    )
    run = ("run", "scripted_agents:denier", "-p", "Edit it", "--allow", "edit_file")
    ruled = command(*run, "--policy", str(tmp_path / "policy.toml")).stderr.splitlines()[-1]
    assert ruled == f"nobody could be asked; rule edits, {tmp_path / 'policy.toml'}:2 asks about edit_file"
    hooked = command(*run, "--hooks", str(tmp_path / "hooks.toml")).stderr.splitlines()[-1]
    assert hooked == "nobody could be asked; a hook asks about edit_file"


def test_what_a_group_of_commands_holds_is_said_where_none_is_named(command: Command) -> None:
    assert "expected: explain, check, trust, untrust, remembered, revoke" in command("policy").stderr
    assert "expected: check, try, trust, untrust" in command("hooks").stderr


def test_a_form_without_a_terminal_is_declined(command: Command) -> None:
    done = command("run", "scripted_agents:asker", "-p", "Deploy")
    assert done.returncode == 0
    assert "declined" in done.stderr


def test_a_tool_can_be_allowed_and_denied_by_name(command: Command) -> None:
    allowed = command("run", "scripted_agents:editor", "-p", "Edit", "--allow", "edit_*")
    assert "edit ran 2 time(s)" in allowed.stderr
    denied = command("run", "scripted_agents:denier", "-p", "Edit", "--allow", "*", "--deny", "edit_*")
    assert "rule --deny edit_*" in denied.stderr
    assert "edit ran" not in denied.stderr


@pytest.mark.parametrize(
    ("agent", "code"),
    [("refuser", 10), ("talker", 11), ("failer", 1), ("breaker", 1), ("stranger", 19)],
)
def test_the_exit_code_tells_how_the_turn_ended(command: Command, agent: str, code: int) -> None:
    assert command("run", f"scripted_agents:{agent}", "-p", "x").returncode == code


def test_json_gives_the_record_and_every_line_of_it_is_valid(command: Command) -> None:
    done = command("run", "scripted_agents:worker", *TOOLS, "-p", "Read it", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line for line in done.stdout.splitlines() if '"receipt"' not in line]
    machine = SessionMachine.fold(read_ndjson(lines))
    assert machine.state == "idle"
    assert len(lines) < len(done.stdout.splitlines())


def test_a_record_can_be_replayed_as_it_was_shown(command: Command, tmp_path: Path) -> None:
    record = tmp_path / "record.ndjson"
    shown = command("run", "scripted_agents:worker", *TOOLS, "-p", "Read it")
    record.write_text(command("run", "scripted_agents:worker", *TOOLS, "-p", "Read it", "--json").stdout)
    replayed = command("replay", str(record))
    assert replayed.returncode == 0
    # Two calls at once may end in either order, and take their time.
    first, again = (re.sub(r"\d+\.\ds$", "", text, flags=re.M) for text in (shown.stderr, replayed.stdout))
    assert sorted(again.splitlines()[:6]) == sorted(first.splitlines()[:6])


def test_a_record_that_breaks_a_rule_is_refused_with_that_rule(command: Command, tmp_path: Path) -> None:
    record = tmp_path / "record.ndjson"
    lines = command("run", "scripted_agents:worker", *TOOLS, "-p", "x", "--json").stdout.splitlines()
    events = [line for line in lines if '"receipt"' not in line]
    record.write_text("\n".join(events[1:]))
    done = command("replay", str(record))
    assert done.returncode == 1
    assert "ProtocolViolation[LIFE-02]" in done.stderr
    assert command("replay", str(record), "--no-rules").returncode == 0


def test_a_line_that_is_no_json_is_named_and_can_be_left_out(command: Command, tmp_path: Path) -> None:
    record = tmp_path / "record.ndjson"
    good = command("run", "scripted_agents:worker", *TOOLS, "-p", "x", "--json").stdout
    record.write_text(good + '{"a" 1}\n')
    done = command("replay", str(record))
    assert done.returncode == 2
    assert f"error[bad-json]: line {len(good.splitlines()) + 1} is not JSON" in done.stderr
    assert f"where:    {record}, line" in done.stderr
    assert "--skip-bad" in done.stderr
    skipped = command("replay", str(record), "--skip-bad")
    assert skipped.returncode == 0
    assert "error[bad-json]" in skipped.stderr


def test_a_tool_that_answers_with_control_codes_is_shown_and_not_obeyed(command: Command) -> None:
    done = command("run", "scripted_agents:painter", *TOOLS, "-p", "x")
    assert "\\x1b[2J" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("env", [{"PYTHONIOENCODING": "cp1252"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_a_poor_terminal_gets_plain_signs_and_no_crash(env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentsession.host.cli", "run", "scripted_agents:denier", "-p", "x"],
        capture_output=True,
        cwd=PROJECT,
        env={**os.environ, **env},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout + done.stderr
    if "PYTHONIOENCODING" in env:
        assert b"x [1] edit_file" in done.stderr


def test_colour_can_be_asked_for(command: Command) -> None:
    done = command("run", "scripted_agents:denier", "-p", "x", "--color", "always")
    assert "\x1b[" in done.stderr


def test_a_reader_that_goes_away_ends_it_with_141() -> None:
    with started_command("run", "scripted_agents:streamer", "-p", "x", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 141
        assert process.stderr.read() == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_aborts_the_turn_and_has_its_exit_code(number: signal.Signals, code: int) -> None:
    with started_command("run", "scripted_agents:slow", *TOOLS, "-p", "x") as process:
        read_until("Working.", process)
        process.send_signal(number)
        _, rest = process.communicate()
        assert process.returncode == code
        assert "aborted" in rest
        assert "UNKNOWN" in rest or "CANCELLED" in rest  # whether the tool had begun when the signal came


def test_a_paused_question_waits_in_the_store_and_the_command_that_resumes_is_printed(
    command: Command, tmp_path: Path
) -> None:
    store = str(tmp_path / "sessions.db")
    asked = ("run", "scripted_agents:keeper", "--store", store)
    first = command(*asked, "-p", "Edit", "--on-ask", "pause")
    assert first.returncode == 3
    resume = next(line for line in first.stderr.splitlines() if line.startswith("resume: "))
    session = resume.split("--session ")[1].split()[0]
    assert "edit ran" not in first.stderr
    again = command(*asked, "--session", session, "--on-ask", "pause")
    assert again.returncode == 3
    done = command(*asked, "--session", session, "--allow", "edit_file")
    assert (done.returncode, done.stdout) == (0, "Edited.\n")
    assert done.stderr.count("edit ran") == 1


def test_after_a_run_that_was_stored_the_command_that_makes_its_report_is_printed_and_works(
    command: Command, tmp_path: Path
) -> None:
    done = command("run", "scripted_agents:worker", "-p", "x", "--store", str(tmp_path / "my sessions.db"))
    told = next(line for line in done.stderr.splitlines() if line.startswith("   next: "))
    words = shlex.split(told.removeprefix("   next: "))
    assert words[:2] == ["agentsession", "report"]
    assert command(*words[1:], "-o", "-").stdout.startswith("<!doctype html>")
    unstored = command("run", "scripted_agents:worker", "-p", "x")
    assert "next:" not in unstored.stderr


def test_the_command_that_resumes_says_all_that_the_policy_of_the_run_was() -> None:
    options = RunOptions(
        target="my_agent:root_agent",
        store="my sessions.db",
        session="s-1",
        tools="my_tools:tools",
        model="gemini-2.5-flash",
        allow=["read_*"],
        deny=["run_shell", "rm"],
        yes_read_only=True,
    )
    assert options.resume_command == (
        "agentsession run my_agent:root_agent --store 'my sessions.db' --session s-1 --tools my_tools:tools"
        " --model gemini-2.5-flash --allow 'read_*' --deny run_shell --deny rm --yes-read-only"
    )


def test_what_the_agents_code_prints_is_never_in_the_answer_or_the_record(command: Command) -> None:
    done = command("run", "scripted_agents:printer", "-p", "x")
    assert (done.returncode, done.stdout) == (0, "Printed.\n")
    assert "printed by a tool" in done.stderr
    record = command("run", "scripted_agents:printer", "-p", "x", "--json").stdout
    assert "printed by a tool" not in record
