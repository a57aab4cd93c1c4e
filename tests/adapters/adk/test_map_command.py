"""``agentsession map``: records on stdout, errors on stderr, exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.adapters.adk.make import schema_validator

from agentsession.adapters.adk import _version, map_command
from agentsession.adapters.adk.map_command import command
from agentsession.protocol import SessionMachine, read_ndjson

HI = {"author": "user", "content": {"role": "user", "parts": [{"text": "hi"}]}}
YO = {"author": "root", "content": {"role": "model", "parts": [{"text": "yo"}]}}


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.json"
    path.write_text(json.dumps({"id": "s-1", "events": [HI, YO]}))
    return str(path)


@pytest.fixture
def broken(tmp_path: Path) -> str:
    path = tmp_path / "broken.ndjson"
    path.write_text(f"{json.dumps(HI)}\n{{bad\n{json.dumps(YO)}\n")
    return str(path)


def exit_code(files: list[str], *, skip_bad: bool = False, check: bool = True) -> int:
    try:
        command(files, skip_bad, check)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize("check", [True, False])
def test_a_session_is_printed_as_a_record(good: str, check: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([good], check=check) == 0

    machine = SessionMachine.fold(read_ndjson(capsys.readouterr().out.splitlines()))
    assert (machine.session_id, machine.state) == ("s-1", "idle")


def test_a_bad_file_is_one_error_and_the_others_go_on(
    good: str, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code([broken, good]) == 1

    shown = capsys.readouterr()
    assert shown.err.startswith(f"error[bad-json]: {broken} line 2 is not JSON\n  where:    line 2, column 2\n")
    assert shown.err.count("error[") == 1
    assert len({event.session_id for event in read_ndjson(shown.out.splitlines())}) == 1


def test_bad_lines_can_be_left_out_but_are_not_forgotten(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([broken], skip_bad=True) == 1

    shown = capsys.readouterr()
    assert "error[bad-json]" in shown.err
    assert '"text":"yo"' in shown.out


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["nowhere.json"]) == 1

    assert "error[no-file]: nowhere.json cannot be read" in capsys.readouterr().err


def test_stdin_is_read_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps([HI, YO]).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)

    assert exit_code(["-"]) == 0
    assert exit_code(["-", "-"]) == 2
    assert '"sessionId":"stdin"' in capsys.readouterr().out


def test_without_adk_it_says_how_to_get_it(
    good: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise _version.AdkMissing("google-adk is not installed", where="adapter adk", fix="pip install …")

    monkeypatch.setattr(map_command, "require_adk", missing)

    assert exit_code([good]) == 2
    assert "error[extra-missing]: google-adk is not installed" in capsys.readouterr().err


def test_an_event_that_does_not_validate_is_an_error(
    good: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(map_command, "_validator", lambda: schema_validator({"required": ["never"]}))

    assert exit_code([good]) == 1
    assert "does not validate" in capsys.readouterr().err


def test_the_command_can_be_listed_without_loading_google() -> None:
    code = (
        "import sys, agentsession.adapters.adk.map_command;"
        "print([m for m in sys.modules if m.split('.')[0] in ('google', 'typer') or m.startswith('agentsession.host')])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() in ("[]", "['google']")  # some installations make an empty google namespace at start


def test_typer_takes_it() -> None:
    typer = pytest.importorskip("typer")
    from typer.testing import CliRunner

    app = typer.Typer()
    app.command("map")(command)

    shown = CliRunner().invoke(app, ["--help"]).output

    assert "--skip-bad" in shown
    assert "--check" in shown
