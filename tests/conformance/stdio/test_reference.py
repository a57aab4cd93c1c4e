"""The page about the wire: its exchange is what the example in Node says, and its tables are what the code knows."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.harnesses.node import example_command, needs_node
from tests.doc_pages import ROOT

from agentsession.conformance.script import STEPS, Call
from agentsession.conformance.stdio._wire import ERRORS, Answered, Noted, Rubbish, read_from_executor, read_request
from agentsession.conformance.stdio.server import _METHODS
from agentsession.protocol import SessionMachine, parse_event

PAGE = (ROOT / "docs/reference/conformance-stdio.md").read_text(encoding="utf-8")
TO, FROM = "→ ", "← "
_VARIES = re.compile(r'"timestamp":"[^"]+"')


def exchange() -> list[str]:
    """The lines of the exchange, each with its arrow."""
    block = re.search(r"^## An exchange$.*?^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert block is not None
    return [line for line in block.group(1).splitlines() if line.startswith((TO, FROM))]


def rows(heading: str) -> Iterator[list[str]]:
    """The cells of the tables below a heading, but for those of their heads."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|") and cells[0].startswith("`"):
            yield cells


@needs_node
def test_the_example_says_what_the_page_shows(tmp_path: Path) -> None:
    lines = exchange()
    with subprocess.Popen(example_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        hangs = threading.Timer(30, process.kill)
        hangs.start()
        assert process.stdin is not None
        assert process.stdout is not None
        said: list[str] = []
        for line in lines:
            if line.startswith(TO):
                request = json.loads(line.removeprefix(TO))
                if request["method"] == "start":
                    request["params"]["folder"] = str(tmp_path)
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                said.append(line)
            else:
                said.append(
                    FROM + _VARIES.sub('"timestamp":"2026-01-31T12:00:00.000Z"', process.stdout.readline()).strip()
                )
        process.stdin.close()
        rest = process.stdout.read()
        hangs.cancel()
    assert said == lines
    assert (rest, process.returncode) == ("", 0)


def test_what_the_page_shows_is_what_the_suite_reads_and_writes() -> None:
    machine = SessionMachine(blame="peer")
    kinds: list[str] = []
    for line in exchange():
        if line.startswith(TO):
            kinds.append(read_request(line.removeprefix(TO).encode()).method)
            continue
        message = read_from_executor(line.removeprefix(FROM).encode())
        assert not isinstance(message, Rubbish)
        events: list[Any] = []
        if isinstance(message, Answered):
            events = list((message.result or {}).get("record", ())) if kinds[-1] == "open" else []
        elif isinstance(message, Noted) and message.kind == "event":
            events = [message.value]
        for event in events:
            machine.feed(parse_event(event))
    assert {"start", "open", "stream", "read", "close", "seen"} <= set(kinds)
    assert machine.state == "idle"


def test_the_page_has_every_method() -> None:
    assert sorted(name.strip("`") for name, *_ in rows("Requests")) == sorted(["start", *_METHODS])


def test_the_page_has_every_error() -> None:
    named = {name for cells in rows("Errors") for name in re.findall(r"`(\w+)`", cells[0])}
    assert named == {*ERRORS, "ProtocolViolation", "CannotPlay"}


def test_the_page_has_every_step_and_every_field_of_a_call() -> None:
    assert {re.findall(r'"step": "(\w+)"', cells[0])[0] for cells in rows("The script")} == STEPS
    shown = re.search(r"^A call is `\{(.*?)\}`", PAGE, re.MULTILINE)
    assert shown is not None
    assert {name.strip('" ') for name in shown.group(1).split(",")} == set(Call.model_fields)
