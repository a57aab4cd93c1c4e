"""``run --json`` without a prompt: another program is the host."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from tests.host.cli.command import PROJECT, Command, run_command

from agentsession.protocol import SessionMachine, parse_event


class Driver:
    """A program that drives the command over its pipes."""

    def __init__(self, agent: str, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentsession.host.cli", "run", f"scripted_agents:{agent}", "--json", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=PROJECT,
            text=True,
        )
        self.seen: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def send(self, **call: Any) -> None:
        """Make one call."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read lines until one is wanted, and return that one."""
        assert self.process.stdout is not None
        guard = threading.Timer(30, self.process.kill)  # a test that waits in vain ends, and says for what
        guard.start()
        try:
            for text in self.process.stdout:
                self.seen.append(json.loads(text))
                if wanted(self.seen[-1]):
                    return self.seen[-1]
        finally:
            guard.cancel()
        raise AssertionError(f"the output ended: {self.seen}")

    def end(self) -> int:
        """Close the input and return the exit code."""
        self.process.communicate(timeout=60)
        return self.process.returncode


def is_type(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: line.get("type") == kind


def message(text: str) -> list[dict[str, Any]]:
    return [{"kind": "message", "content": [{"type": "text", "text": text}]}]


def test_a_grant_goes_in_a_receipt_comes_out_and_the_tool_runs_once() -> None:
    with Driver("denier") as program:
        program.send(call="stream", input=message("Edit"))
        request = program.until(is_type("tool_request"))
        assert request["needs"] == "grant"
        end = program.until(is_type("stream_end"))
        assert (end["reason"], end["pending"]) == ("input_required", [request["requestId"]])
        grant = {"kind": "tool_grant", "requestId": request["requestId"]}
        program.send(call="stream", input=[grant], id=1)
        receipt = program.until(lambda line: "receipt" in line)
        assert receipt == {"receipt": "applied", "requestId": request["requestId"], "id": 1}
        assert program.until(is_type("tool_response"))["data"] == {"text": "edit ran 1 time(s) with cart.py"}
        assert program.until(is_type("stream_end"))["reason"] == "completed"
        assert program.end() == 0
        SessionMachine.fold(parse_event(line) for line in program.seen if "type" in line)


@pytest.mark.skipif(sys.platform == "win32", reason="the programs are lines of shell")
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("echo not that file >&2; exit 2", "not that file"),
        (
            """echo '{"action": "ask", "reason": "odd"}'""",
            "a hook wants a person asked, who is not here: odd",  # the program hears of no question
        ),
    ],
)
def test_hooks_of_the_command_line_are_asked_and_one_that_asks_has_blocked(tmp_path: Path, line: str, why: str) -> None:
    hooks = tmp_path / "hooks.toml"
    hooks.write_text(f'[[hook]]\nid = "guard"\npoint = "before_tool"\ncommand = ["sh", "-c", {json.dumps(line)}]\n')
    with Driver("denier", "--hooks", str(hooks)) as program:
        program.send(call="stream", input="Edit")
        decision = program.until(is_type("tool_decision"))
        assert (decision["decision"], decision["by"], decision["reason"]) == ("denied", "hook:guard", why)
        assert program.until(is_type("stream_end"))["reason"] == "completed"
        assert program.end() == 0


@pytest.mark.parametrize("option", ["--policy", "--allow", "--deny"])
def test_what_would_decide_in_the_programs_place_is_refused(command: Command, option: str) -> None:
    done = command("run", "scripted_agents:worker", "--json", option, "x")
    assert done.returncode == 2
    assert f"{option} needs --prompt" in json.loads(done.stdout)["what"]


def test_respond_and_an_empty_stream_continue_too() -> None:
    with Driver("denier") as program:
        program.send(call="stream", input="Edit")
        request_id = program.until(is_type("tool_request"))["requestId"]
        program.until(is_type("stream_end"))
        program.send(call="respond", input=[{"kind": "tool_denial", "requestId": request_id, "reason": "too risky"}])
        assert program.until(lambda line: "receipt" in line)["receipt"] == "applied"
        program.send(call="stream")
        assert program.until(is_type("tool_response"))["status"] == "denied"
        assert program.until(is_type("stream_end"))["reason"] == "completed"
        assert program.end() == 0


def test_a_wrong_line_is_an_error_object_and_the_next_line_is_served() -> None:
    with Driver("worker") as program:
        assert program.process.stdin is not None
        program.process.stdin.write('{"a" 1}\n')
        program.process.stdin.flush()
        assert program.until(lambda line: "error" in line)["error"] == "bad-json"
        program.send(call="dance", id="x")
        error = program.until(lambda line: "error" in line)
        assert (error["error"], error["id"]) == ("unknown-call", "x")
        program.send(call="stream", input=[{"kind": "tool_grant"}], id=2)
        error = program.until(lambda line: "error" in line)
        assert (error["error"], error["id"]) == ("schema", 2)
        program.send(call="stream")
        assert program.until(lambda line: "error" in line)["error"] == "nothing-to-continue"
        program.send(call="update", title=7)
        assert program.until(lambda line: "error" in line)["error"] == "schema"
        program.send(call="close")
        assert program.end() == 0


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ({"call": "respond", "input": "hello"}, "invalid-input", "stream"),
        ({"call": "respond", "input": [{"kind": "message", "content": "hello"}]}, "invalid-input", "stream"),
        ({"call": "respond", "input": []}, "invalid-input", "answers"),
        ({"call": "respond"}, "invalid-input", "answers"),
        ({"call": "stream", "inptu": "hello"}, "schema", "did you mean 'input'?"),
        ({"call": "steer", "text": "left"}, "schema", "message, action, data"),
        ({"call": "update", "titel": "x"}, "schema", "did you mean 'title'?"),
        ({"call": "stream", "input": "x", "options": {"tools": 7}}, "schema", "/options/tools"),
        ({"call": "stream", "input": "x", "options": 7}, "schema", "/options"),
    ],
)
def test_a_call_that_would_do_nothing_or_something_else_is_refused(
    call: dict[str, Any], error: str, words: str
) -> None:
    done = run_command("run", "scripted_agents:worker", "--json", stdin=json.dumps({**call, "id": 1}) + "\n")
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["error"], told["id"]) == (error, 1)
    assert words in json.dumps(told, ensure_ascii=False)


def test_an_input_that_is_no_file_is_an_input_that_has_ended(command: Command) -> None:
    done = command("run", "scripted_agents:worker", "--json", stdin="")
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[0])["type"] == "initialize"


def test_names_of_the_wire_and_of_python_are_taken_in_a_call() -> None:
    calls = [{"call": "update", "permissionMode": "plan"}, {"call": "update", "permission_mode": "plan"}]
    done = run_command(
        "run", "scripted_agents:worker", "--json", stdin="".join(json.dumps(one) + "\n" for one in calls)
    )
    told = [json.loads(line) for line in done.stdout.splitlines()][1:]
    assert [line["receipt"] for line in told if "receipt" in line] == ["applied", "applied"], told
    assert [line["permissionMode"] for line in told if line.get("type") == "session_update"] == ["plan", "plan"]


def test_a_second_stream_is_refused_a_steer_is_queued_and_an_abort_ends_the_turn() -> None:
    with Driver("waiter") as program:
        program.send(call="stream", input="Go")
        program.until(is_type("message"))
        program.send(call="stream", input="Again")
        assert program.until(lambda line: "error" in line)["error"] == "stream-active"
        program.send(call="steer", message="left")
        assert program.until(lambda line: "receipt" in line)["receipt"] == "queued"
        program.send(call="abort", reason="enough")
        end = program.until(is_type("stream_end"))
        assert end["reason"] == "aborted"
        assert len(end["data"]["undelivered"]) == 1
        program.until(lambda line: line.get("receipt") == "aborted")
        program.send(call="stream", input="And now?")
        assert program.until(is_type("stream_end"))["reason"] == "completed"
        assert program.end() == 0


def test_input_that_ends_while_something_waits_exits_3() -> None:
    call = {"call": "stream", "input": message("Edit")}
    assert run_command("run", "scripted_agents:denier", "--json", stdin=json.dumps(call) + "\n").returncode == 3


def test_close_ends_a_running_turn() -> None:
    with Driver("waiter") as program:
        program.send(call="stream", input="Go")
        program.until(is_type("message"))
        program.send(call="close")
        assert program.end() == 17


def test_no_input_at_all_is_no_turn_and_no_failure() -> None:
    done = run_command("run", "scripted_agents:worker", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[0])["type"] == "initialize"


def test_tools_of_the_command_are_refused_where_a_program_is_the_host() -> None:
    done = run_command("run", "scripted_agents:worker", "--json", "--tools", "host_tools:tools")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] == "usage"
