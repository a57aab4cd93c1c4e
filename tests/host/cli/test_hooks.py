"""``run --hooks`` and ``hooks``: what is asked, what is shown, and what is not loaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.host.cli.command import PROJECT, Command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are lines of shell")

RUN = ("run", "scripted_agents:worker", "--tools", "host_tools:tools", "-p", "go")
REFUSES = """\
[[hook]]
id = "guard"
point = "before_tool"
match = "read_*"
command = ["sh", "-c", "grep -q b.py && { echo not that file >&2; exit 2; } || exit 0"]
"""


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who has agreed to nothing."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def hooks(tmp_path: Path) -> str:
    path = tmp_path / "hooks.toml"
    path.write_text(REFUSES)
    return str(path)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The project of the other tests, with hooks that it brings along."""
    root = tmp_path / "work"
    (root / ".agentsession").mkdir(parents=True)
    (root / ".agentsession" / "hooks.toml").write_text(REFUSES)
    for file in PROJECT.glob("*.py"):
        (root / file.name).write_bytes(file.read_bytes())
    return root


def test_a_hook_of_a_file_blocks_one_call_and_lets_the_other_run(command: Command, hooks: str) -> None:
    done = command(*RUN, "--hooks", hooks)
    assert done.returncode == 0
    assert "DENIED  hook guard" in done.stderr
    assert "not that file" in done.stderr
    assert done.stderr.count("DENIED") == 1


def test_a_file_that_cannot_be_used_starts_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(REFUSES.replace("match", "mach"))
    done = command(*RUN, "--hooks", str(tmp_path / "bad.toml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[hooks-invalid]: unknown key 'mach'" in done.stderr


def test_hooks_of_a_workspace_are_asked_only_once_they_were_agreed_to(command: Command, workspace: Path) -> None:
    before = command(*RUN, cwd=workspace)
    assert "DENIED" not in before.stderr
    assert "not loaded: nobody agreed to them; to agree: agentsession hooks trust" in before.stderr
    agreed = command("hooks", "trust", cwd=workspace)
    assert "guard" in agreed.stdout
    assert "agreed to, as they are now" in agreed.stdout
    after = command(*RUN, cwd=workspace)
    assert "DENIED  hook guard" in after.stderr
    assert "no longer agreed to" in command("hooks", "untrust", cwd=workspace).stdout
    assert "not loaded" in command(*RUN, cwd=workspace).stderr


def test_hooks_that_cannot_be_used_are_not_agreed_to(command: Command, workspace: Path) -> None:
    (workspace / ".agentsession" / "hooks.toml").write_text("[[hook]]\nid = 'a'\n")
    done = command("hooks", "trust", cwd=workspace)
    assert (done.returncode, done.stdout) == (2, "")
    assert "a hook without point" in done.stderr
    assert "hooks.toml:1" in done.stderr


def test_the_hooks_of_a_file_are_listed(command: Command, hooks: str) -> None:
    done = command("hooks", "check", hooks)
    assert done.returncode == 0
    assert "1 hook, asked in this order" in done.stdout
    assert "at before_tool, about read_*" in done.stdout
    assert "blocks when it fails" in done.stdout


def test_a_hook_can_be_tried(command: Command, hooks: str) -> None:
    payload = '{"name": "read_file", "args": {"path": "b.py"}}'
    done = command("hooks", "try", hooks, "before_tool", "--payload", payload)
    assert done.returncode == 0
    assert "outcome: block by guard; not that file" in done.stdout
    told = command("hooks", "try", hooks, "before_tool", "--payload", payload, "--json")
    assert json.loads(told.stdout) == {
        "action": "block",
        "by": "guard",
        "message": "not that file",
        "reason": "not that file",
    }
    other = command("hooks", "try", hooks, "before_tool", "--payload", '{"name": "write"}')
    assert "guard  not asked: it does not match" in other.stdout


def test_a_hook_that_fails_when_it_is_tried_is_an_error(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "hooks.toml"
    path.write_text('[[hook]]\nid = "a"\npoint = "after_tool"\ncommand = ["sh", "-c", "exit 3"]\n')
    done = command("hooks", "try", str(path), "after_tool")
    assert done.returncode == 1
    assert "outcome: proceed; FAILED: hook a at after_tool ended with exit code 3" in done.stdout


def test_what_a_hook_that_fails_wrote_is_shown_once_it_is_tried(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "hooks.toml"
    path.write_text(
        '[[hook]]\nid = "a"\npoint = "before_tool"\ncommand = ["sh", "-c", "echo no such file >&2; exit 3"]\n'
    )
    done = command("hooks", "try", str(path), "before_tool")
    assert "a  block by a; FAILED: hook a at before_tool ended with exit code 3" in done.stdout
    assert "    wrote no such file" in done.stdout
    path.write_text('[[hook]]\nid = "a"\npoint = "before_tool"\ncommand = ["sh", "-c", "echo all is well"]\n')
    assert "    wrote all is well" in command("hooks", "try", str(path), "before_tool").stdout


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("before_tool", "--payload", '{"arg": {}}'), "before_tool is told nothing that is called 'arg'"),
        (("before_tols",), "there is no hook point 'before_tols'"),
        (("before_tool", "--payload", "{"), "the payload is not JSON"),
        (("before_tool", "--payload", "[]"), "the payload is no JSON object"),
        (("before_tool", "--payload", '{"args": 3}'), "the payload does not fit before_tool: args"),
    ],
)
def test_a_try_that_is_called_wrongly_is_told(command: Command, hooks: str, args: tuple[str, ...], what: str) -> None:
    done = command("hooks", "try", hooks, *args)
    assert done.returncode == 2
    assert what in done.stderr
