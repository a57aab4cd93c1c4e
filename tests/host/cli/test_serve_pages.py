"""What the pages say about serving: the commands are typed as they stand there, against a server that runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.doc_pages import ROOT, read_page
from tests.host.cli.command import Command

from agentsession.host import Host, allow_all
from agentsession.protocol import NothingToContinue, StreamActive

pytest.importorskip("google.adk")

HOW_TO = "docs/how-to"
PAGES = ["README.md", *sorted(f"{HOW_TO}/{page.name}" for page in (ROOT / HOW_TO).glob("*.md"))]
_SERVED = re.compile(r"agentsession (?:serve|acp) [^`#\n]*")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the agent of the README."""
    for item in read_page("README.md"):
        if item.name == "yours.py":
            item.save(tmp_path)
    return tmp_path


@contextmanager
def serving(folder: Path, typed: str) -> Iterator[str]:
    """What the page types, at a free port; gives its address."""
    words = [sys.executable, "-m", "agentsession.host.cli", *shlex.split(typed)[1:], "--port", "0"]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving clerk at http://"), line + process.stderr.read()
        yield line.split()[3]
    finally:
        process.kill()
        process.communicate()


def until_completed(events: str) -> None:
    """Read events until the turn has ended."""
    asked = urllib.request.Request(events, headers={"Accept": "text/event-stream"})
    with urllib.request.urlopen(asked, timeout=60) as response:
        assert any(b'"reason":"completed"' in line for line in response)


def test_the_commands_that_serve_have_options_that_there_are(command: Command) -> None:
    typed = [line for page in PAGES for line in _SERVED.findall((ROOT / page).read_text(encoding="utf-8"))]
    assert len(typed) >= 8
    for line in typed:
        assert command(*shlex.split(line)[1:], "--help").returncode == 0, line


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page types curl")
def test_the_page_about_http_makes_a_session_says_yes_and_reads_what_came_of_it(folder: Path) -> None:
    served, opened, answered = [
        item.text.splitlines() for item in read_page(f"{HOW_TO}/serve-sessions-over-http.md") if not item.name
    ]

    def curl(line: str) -> str:
        words = shlex.split(line.replace("http://127.0.0.1:8000", address))
        done = subprocess.run([*words, "-sS"], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    with serving(folder, served[0]) as address:
        agents, made, stream = (curl(line) for line in opened)
        assert json.loads(agents)["agents"][0]["name"] == "clerk"
        assert json.loads(made)["sessionId"] == "s"
        assert '"reason":"input_required"' in stream
        session, grant, events = answered
        (waits,) = json.loads(curl(session))["pending"]
        receipts = json.loads(curl(grant.replace("REQUEST_ID", waits["requestId"])))["receipts"]
        assert [receipt["status"] for receipt in receipts] == ["applied"]
        until_completed(f"{address}/api/agents/clerk/sessions/s/events")
        assert any(event["type"] == "tool_response" for event in json.loads(curl(events))["events"])


@pytest.mark.parametrize(("name", "how"), [("remote.py", ""), ("host_it.py", " --bare")])
def test_the_programs_of_the_page_about_remote_agents_print_what_the_page_says(
    folder: Path, name: str, how: str
) -> None:
    pytest.importorskip("httpx2")
    (program,) = [item for item in read_page(f"{HOW_TO}/drive-a-remote-agent.md") if item.name == name]
    with serving(folder, "agentsession serve yours:agent" + how) as address:
        text = program.text.replace("http://127.0.0.1:8000", address)
        (folder / program.name).write_text(text, encoding="utf-8")
        assert program.run(folder) == program.prints


def test_a_host_over_an_agent_that_has_one_is_told_to_take_it_bare(folder: Path) -> None:
    remote = pytest.importorskip("agentsession.adapters.remote")

    async def main(base_url: str) -> None:
        async with remote.RemoteExecutor(base_url) as executor:
            with pytest.raises((StreamActive, NothingToContinue)) as told:
                await Host(policy=allow_all).run(executor, "please clean up")
        assert "--bare" in str(told.value.fix)

    with serving(folder, "agentsession serve yours:agent") as address:
        anyio.run(main, f"{address}/api")


def test_an_agent_that_is_served_elsewhere_is_served_and_shown_under_its_own_name(folder: Path) -> None:
    pytest.importorskip("agentsession.adapters.remote")
    with serving(folder, "agentsession serve yours:agent --bare") as address:
        text = (
            f"from agentsession.adapters.remote import RemoteExecutor\n\nfar = RemoteExecutor({address + '/api'!r})\n"
        )
        (folder / "there.py").write_text(text, encoding="utf-8")
        words = [sys.executable, "-m", "agentsession.host.cli", "inspect", "there:far"]
        shown = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
        assert shown.stdout.startswith("clerk ")
        with serving(folder, "agentsession serve there:far") as near:
            session = f"{near}/api/agents/clerk/sessions/s"
            post(f"{near}/api/agents/clerk/sessions", {"sessionId": "s"})
            post(f"{session}/stream", {"input": "hello"})
            until_completed(f"{session}/events")


def post(address: str, body: object) -> None:
    """Post JSON, and read the answer."""
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(address, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=60) as response:
        response.read()
