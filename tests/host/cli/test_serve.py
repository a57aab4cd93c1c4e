"""The command ``serve``: a process behind a port, who may connect, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

AGENT = '''
from agentsession.adapters.scripted import Call, Calls, Say, ScriptedExecutor

agent = ScriptedExecutor([[Calls(Call("wipe", {"path": "a"})), Say("Done.")]], reenter=True)


def wipe(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


tools = [wipe]


class NotAsync:
    def verify(self, request):
        return None


not_async = NotAsync()
'''
TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "clerk.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "tokens").write_text(f"# who may connect\nann {TOKEN}\n", encoding="utf-8")
    (tmp_path / "umlaut").write_text(f"ann \u00fc{TOKEN}\n", encoding="utf-8")
    (tmp_path / "same").write_text(f"ann {TOKEN}\nbob {TOKEN}\n", encoding="utf-8")
    return tmp_path


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "agentsession.host.cli", "serve", "clerk:agent", *args]


@contextmanager
def serving(folder: Path, *args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command, and its address."""
    process = subprocess.Popen(command("--port", "0", *args), cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving scripted at http://"), line + process.stderr.read()
        yield process, line.split()[3]
    finally:
        process.kill()
        process.communicate()


def call(
    address: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, method: str | None = None
) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    given = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(address + path, data=data, headers=given, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


RUN = {"threadId": "t1", "runId": "r1", "messages": [{"id": "u1", "role": "user", "content": "clean up"}]}
FULL_RUN = {**RUN, "state": {}, "tools": [], "context": [], "forwardedProps": {}}


def test_the_contract_ag_ui_and_the_page_are_served_at_one_port(folder: Path) -> None:
    with serving(folder, "--agui", "--ui", "--tools", "clerk:tools") as (_, address):
        assert call(address, "/api/agents")[0] == 200
        status, page = call(address, "/")
        assert (status, b"<html" in page) == (200, True)
        status, events = call(address, "/agui/scripted", FULL_RUN)
        assert status == 200
        assert b'"type":"interrupt"' in events


@pytest.mark.parametrize("given", [{}, {"execution": {"limits": {"maxTurns": 9}}}])
def test_a_limit_holds_for_every_session_whatever_its_client_asks_for(folder: Path, given: Any) -> None:
    with serving(folder, "--tools", "clerk:tools", "--allow", "wipe", "--max-turns", "1") as (_, address):
        assert call(address, "/api/agents/scripted/sessions", {"sessionId": "s", **given})[0] == 201
        assert call(address, "/api/agents/scripted/sessions/s/stream", {"input": "clean up"})[0] == 202
        assert end_of_turn(address, "/api/agents/scripted/sessions/s") == "max_turns"


def test_only_those_with_a_token_are_let_in(folder: Path) -> None:
    with serving(folder, "--agui", "--tokens", "tokens") as (_, address):
        known = {"Authorization": f"Bearer {TOKEN}"}
        for path, body in (("/api/agents", None), ("/agui/scripted", FULL_RUN)):
            assert call(address, path, body)[0] == 401
            assert call(address, path, body, {"Authorization": "Bearer another-token-of-nobody"})[0] == 401
            assert call(address, path, body, known)[0] == 200


def test_other_machines_are_served_only_where_users_log_in(folder: Path) -> None:
    done = subprocess.run(
        command("--host", "0.0.0.0", "--port", "0"), cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "--tokens" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_order_while_somebody_reads(folder: Path, number: signal.Signals, code: int) -> None:
    with serving(folder, "--store", "s.db", "--tools", "clerk:tools") as (process, address):
        call(address, "/api/agents/scripted/sessions", {"sessionId": "s"})
        message = {"kind": "message", "content": "clean up"}
        assert call(address, "/api/agents/scripted/sessions/s/stream", {"input": message})[0] == 202
        follow = urllib.request.Request(
            address + "/api/agents/scripted/sessions/s/events?follow=true", headers={"Accept": "text/event-stream"}
        )
        with urllib.request.urlopen(follow, timeout=30) as response:
            assert any(b"stream_end" in line for line in response)
            process.send_signal(number)
            assert process.wait(timeout=30) == code
        assert process.stderr is not None
        said = process.stderr.read()
        assert said.endswith("stopped; the sessions are kept in s.db\n")
        assert "Traceback" not in said
    with serving(folder, "--store", "s.db", "--tools", "clerk:tools") as (_, address):
        found = json.loads(call(address, "/api/agents/scripted/sessions/s")[1])
        assert (found["state"], len(found["pending"])) == ("input_required", 1)


def test_where_nothing_is_served_it_is_said_what_is(folder: Path) -> None:
    with serving(folder, "--agui") as (_, address):
        status, told = call(address, "/agents")
        assert (status, json.loads(told)["code"]) == (404, "not-found")
        assert "/api/agents, /api/openapi.json, /agui/scripted;" in json.loads(told)["fix"]


@pytest.mark.parametrize("allowed", [(), ("--allow-host", "agent.example")])
def test_at_all_addresses_it_names_one_that_answers_and_says_under_which_names_it_does(
    folder: Path, allowed: tuple[str, ...]
) -> None:
    with serving(folder, "--host", "0.0.0.0", "--tokens", "tokens", *allowed) as (process, address):
        assert call(address, "/api/agents", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(2)][1]
        assert ("agent.example" if allowed else "--allow-host NAME") in said


def test_a_port_that_is_taken_is_said_with_one_that_may_be_free(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(command("--port", str(port)), cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"error[port-in-use]: 127.0.0.1:{port} is taken" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--bare", "--deny", "wipe"), "--deny does not go with --bare"),
        (("--bare", "--hooks", "hooks.toml"), "--hooks does not go with --bare"),
        (("--bare", "--max-calls", "1"), "--max-calls does not go with --bare"),
        (("--tokens", "tokens", "--auth", "clerk:tools"), "--auth and --tokens were given"),
        (("--auth", "clerk:agent"), "auth-invalid"),
        (("--auth", "clerk:not_async"), "auth-invalid"),
        (("--tokens", "umlaut"), "where:    serve --tokens umlaut"),
        (("--tokens", "same"), "make one with"),
        (("--allow-host", "agent.example"), "--allow-host needs users who log in"),
        (("--tokens", "clerk.py"), "auth-invalid"),
        (("--tokens", "nowhere"), "auth-invalid"),
        (("--tools", "clerk:nothing"), "fix:      agentsession serve --tools clerk:tools"),
        (("--store", "clerk.py"), "the record database cannot be used"),
        (("--port", "99999"), "a port from 0 to 65535"),
        (("--allow-origin", "app.example"), "where:    allowed_origins"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_is_opened(
    folder: Path, args: tuple[str, ...], said: str
) -> None:
    done = subprocess.run(command("--port", "0", *args), cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert TOKEN not in done.stderr


def test_a_token_of_the_environment_that_cannot_be_one_is_said_with_the_variable(folder: Path) -> None:
    environment = {**os.environ, "AGENTSESSION_TOKEN": "secret-short"}
    done = subprocess.run(
        command("--port", "0"), cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "AGENTSESSION_TOKEN" in done.stderr
    assert "secret-short" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")
def test_a_second_server_at_one_file_changes_no_session_of_the_first_until_that_is_dead(folder: Path) -> None:
    (folder / "clerk.py").write_text(
        AGENT.replace('    return f"', '    open("ran", "a").write("1")\n    return f"'), "utf-8"
    )
    session = "/api/agents/scripted/sessions/s"
    args = ("--store", "s.db", "--tools", "clerk:tools")
    with serving(folder, *args) as (first, address), serving(folder, *args) as (_, other):
        call(address, "/api/agents/scripted/sessions", {"sessionId": "s"})
        assert call(address, session + "/stream", {"input": "clean up"})[0] == 202
        waiting = until_it_waits(address, session)
        before = call(address, session + "/events")[1]
        grant = {"kind": "tool_grant", "requestId": waiting["requestId"]}
        for path, body in (
            ("", None),
            ("/stream", {"input": "more"}),
            ("/respond", {"answers": [grant]}),
            ("/abort", {}),
            ("/steer", {"message": "hurry"}),
            ("/rewind", {"to": 1}),
        ):
            status, told = call(other, session + path, body)
            assert (status, json.loads(told)["code"]) == (423, "session-busy"), path
        assert call(other, session, method="DELETE")[0] == 423
        assert call(address, session + "/events")[1] == before
        assert not (folder / "ran").exists()

        first.kill()
        first.wait(timeout=30)
        assert until_it_waits(other, session)["requestId"] == waiting["requestId"]
        answers = {"answers": [grant]}
        told = json.loads(call(other, session + "/respond", answers)[1])
        assert told["receipts"][0]["status"] == "applied"
        events = until_the_turn_has_ended(other, session)
        told = json.loads(call(other, session + "/respond", answers)[1])
        assert told["receipts"][0]["status"] == "stale"
        assert (folder / "ran").read_text("utf-8") == "1"
        assert [event["type"] for event in events].count("tool_request") == 1
        assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})


def until_it_waits(address: str, session: str) -> Any:
    """The one request that waits, once it does."""
    follow(address, session, b"stream_end")
    (waiting,) = json.loads(call(address, session)[1])["pending"]
    return waiting


def until_the_turn_has_ended(address: str, session: str) -> list[Any]:
    """All events, once the last turn has ended."""
    follow(address, session, b'"reason":"completed"')
    return list(json.loads(call(address, session + "/events?limit=1000")[1])["events"])


def end_of_turn(address: str, session: str) -> str:
    """The reason of the first stream that ends for another reason than that something waits."""
    path = address + session + "/events?types=stream_end"
    asked = urllib.request.Request(path, headers={"Accept": "text/event-stream"})
    with urllib.request.urlopen(asked, timeout=30) as response:
        for line in response:
            if line.startswith(b"data: ") and (reason := json.loads(line[6:])["reason"]) != "input_required":
                return str(reason)
    raise AssertionError("the events ended before the turn")


def follow(address: str, session: str, wanted: bytes) -> None:
    """Read events until one holds ``wanted``."""
    asked = urllib.request.Request(address + session + "/events", headers={"Accept": "text/event-stream"})
    with urllib.request.urlopen(asked, timeout=30) as response:
        assert any(wanted in line for line in response)
