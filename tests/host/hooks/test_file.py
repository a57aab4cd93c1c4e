"""Files of hooks: all of them or nothing, with the line that is wrong; and consent to those of a workspace."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agentsession.host.hooks import (
    WORKSPACE_FILE,
    CommandHook,
    HookConsent,
    HookFailed,
    load_hooks,
    workspace_hooks,
)
from agentsession.protocol import ConfigurationError, ToolCallHook

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are those of a shell")

GOOD = """\
version = 1

[[hook]]
id = "guard"
point = "before_tool"
match = ["run_*", "shell"]
command = ["sh", "-c", "exit 0"]
timeout_s = 2.5
order = 7
on_error = "proceed"
env = ["LOG_DIR"]

[[hook]]
id = "audit"
point = "after_tool"
command = ["sh", "-c", "exit 0"]
observes = true
"""


def written(place: Path, text: str, name: str = "hooks.toml") -> Path:
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    guard, audit = load_hooks(written(tmp_path, GOOD), tier="admin", cwd="/")
    assert (guard.id, set(guard.points), guard.match) == ("guard", {"before_tool"}, ["run_*", "shell"])
    assert (guard.timeout_s, guard.order, guard.on_error, guard.env) == (2.5, 7, "proceed", ("LOG_DIR",))
    assert (guard.tier, guard.cwd, Path(guard.command[0]).name) == ("admin", "/", "sh")
    assert (audit.timeout_s, audit.order, audit.on_error, audit.env, audit.observes) == (60.0, 100, None, (), True)


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("timeout_s", "timeuot_s", 8, "unknown key 'timeuot_s'"),
        ("version = 1", "versoin = 1", 1, "unknown key 'versoin'"),
        ("version = 1", "version = 2", 1, "this version of the file is not known"),
        ('"after_tool"', '"after_tools"', 15, "there is no hook point 'after_tools'"),
        ('id = "audit"', 'id = "guard"', 14, "two hooks have the id 'guard'"),
        ('id = "audit"', 'id = "a b"', 14, "the id cannot be used"),
        ('id = "audit"\n', "", 13, "a hook without id"),
        ('"proceed"', '"ignore"', 10, "unknown on_error 'ignore'"),
        ("timeout_s = 2.5", "timeout_s = 0", 8, "timeout_s is no time limit"),
        ("timeout_s = 2.5", "timeout_s = inf", 8, "timeout_s is no time limit"),
        ("order = 7", "order = 7.5", 9, "order is no whole number"),
        ("observes = true", 'observes = "yes"', 17, "observes is neither true nor false"),
        ('["LOG_DIR"]', '"LOG_DIR"', 11, "env is no list of texts"),
        ('["run_*", "shell"]', "[]", 6, "match is no list of texts"),
        ('["run_*", "shell"]', '["run_*", ""]', 6, "match holds an empty text"),
        ('["sh", "-c", "exit 0"]\nobserves', '["", "-c"]\nobserves', 16, "command names no program"),
        ('["sh", "-c", "exit 0"]\nobserves', '"sh"\nobserves', 16, "command is no list of texts"),
        ('["sh", "-c", "exit 0"]\nobserves', '["no-such-program-here"]\nobserves', 16, "is not on the PATH"),
        ('["sh", "-c", "exit 0"]\nobserves', '["./guard"]\nobserves', 16, "the program './guard' is not there"),
        ('["sh", "-c", "exit 0"]\nobserves', '["python3", "-X", "dev", "no.py"]\nobserves', 16, "is not there"),
        ("order = 7", "order = ", 9, "the file is no TOML"),
    ],
)
def test_a_file_with_one_wrong_word_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, what: str
) -> None:
    assert GOOD.count(old) == 1
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigurationError) as caught:
        load_hooks(path)
    assert caught.value.id == "hooks-invalid"
    assert what in caught.value.what
    assert caught.value.where == f"{path}:{line}"


def test_an_argument_of_a_command_may_be_an_empty_text(tmp_path: Path) -> None:
    (_, audit) = load_hooks(written(tmp_path, GOOD.replace('"exit 0"]\nobserves', '"exit 0", ""]\nobserves')))
    assert audit.command[1:] == ("-c", "exit 0", "")


def test_on_error_block_is_refused_where_nothing_can_be_blocked(tmp_path: Path) -> None:
    text = GOOD.replace('"before_tool"', '"session_end"').replace('"proceed"', '"block"')
    with pytest.raises(ConfigurationError, match="nothing can be blocked at session_end"):
        load_hooks(written(tmp_path, text))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_hooks(tmp_path / "none.toml")
    assert caught.value.where == str(tmp_path / "none.toml")


def test_a_program_and_a_script_are_found_beside_the_file(tmp_path: Path) -> None:
    written(tmp_path, "", "guard.py")
    program = written(tmp_path, "#!/bin/sh\n", "bin/guard")
    text = GOOD.replace('["sh", "-c", "exit 0"]\ntimeout_s', '["./bin/guard"]\ntimeout_s')
    text = text.replace('["sh", "-c", "exit 0"]', '["python3", "-X", "dev", "guard.py", "x"]')
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError, match="cannot be executed"):
        load_hooks(path)
    program.chmod(0o755)
    guard, audit = load_hooks(path)
    assert guard.command == (str(program),)
    assert audit.command[1:] == ("-X", "dev", str(tmp_path / "guard.py"), "x")


# --- a workspace's ----------------------------------------------------------------------------------------------------

ONE = '[[hook]]\nid = "guard"\npoint = "before_tool"\ncommand = ["sh", "guard.sh"]\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    written(root, ONE, WORKSPACE_FILE)
    written(root, "exit 0\n", ".agentsession/guard.sh")
    return root


@pytest.fixture
def consent(tmp_path: Path) -> HookConsent:
    return HookConsent(tmp_path / "config" / "trusted.json")


def agree(workspace: Path, consent: HookConsent) -> list[CommandHook]:
    found = workspace_hooks(workspace, consent)
    assert found.digest is not None
    consent.give(found.path, found.digest)
    return list(workspace_hooks(workspace, consent).hooks)


def test_a_workspace_without_a_file_brings_none(tmp_path: Path, consent: HookConsent) -> None:
    found = workspace_hooks(tmp_path, consent)
    assert (found.hooks, found.refused) == ((), None)


def test_hooks_of_a_workspace_that_nobody_agreed_to_are_not_loaded_and_that_is_said(
    workspace: Path, consent: HookConsent
) -> None:
    found = workspace_hooks(workspace, consent)
    assert found.hooks == ()
    assert found.refused == f"1 hook of {workspace / WORKSPACE_FILE} not loaded: nobody agreed to them"


def test_hooks_that_were_agreed_to_are_loaded_in_the_tier_of_the_workspace_and_run_there(
    workspace: Path, consent: HookConsent
) -> None:
    (hook,) = agree(workspace, consent)
    assert (hook.tier, hook.cwd) == ("workspace", str(workspace))


@pytest.mark.parametrize("changed", [WORKSPACE_FILE, ".agentsession/guard.sh"])
def test_a_change_of_the_file_or_of_its_script_takes_the_consent_away(
    workspace: Path, consent: HookConsent, changed: str
) -> None:
    agree(workspace, consent)
    written(workspace, (workspace / changed).read_text() + "# other\n", changed)
    found = workspace_hooks(workspace, consent)
    assert found.hooks == ()
    assert found.refused is not None
    assert "changed since they were agreed to" in found.refused


def test_a_script_that_leads_elsewhere_now_takes_the_consent_away(
    workspace: Path, consent: HookConsent, tmp_path: Path
) -> None:
    script = workspace / ".agentsession" / "guard.sh"
    same = [written(tmp_path, "exit 0\n", name) for name in ("one.sh", "two.sh")]
    script.unlink()
    script.symlink_to(same[0])
    agree(workspace, consent)
    written(tmp_path, "exit 2\n", "one.sh")
    assert workspace_hooks(workspace, consent).hooks == ()
    agree(workspace, consent)
    script.unlink()
    script.symlink_to(same[1])
    assert workspace_hooks(workspace, consent).hooks == ()


def test_a_file_of_the_workspace_that_a_command_is_given_counts_too(workspace: Path, consent: HookConsent) -> None:
    written(workspace, ONE.replace('"guard.sh"]', '"guard.sh", "rules.txt"]'), WORKSPACE_FILE)
    written(workspace, "one\n", "rules.txt")
    (hook,) = agree(workspace, consent)
    assert workspace / "rules.txt" in hook.bound
    written(workspace, "two\n", "rules.txt")
    assert workspace_hooks(workspace, consent).hooks == ()


@pytest.mark.anyio
@pytest.mark.parametrize("becomes", ["another", "gone", "pipe"])
async def test_a_script_that_changes_while_the_host_runs_is_not_run(
    workspace: Path, consent: HookConsent, becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hook,) = agree(workspace, consent)
    call = ToolCallHook(session_id="s", user_id="u", request_id="r", name="run", args={})
    assert await hook.fire("before_tool", call) is None
    script = written(workspace, "touch ran\n", ".agentsession/guard.sh")
    if becomes != "another":
        script.unlink()
    if becomes == "pipe":
        os.mkfifo(script)
        monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("it would wait"))
    with pytest.raises(HookFailed, match="not what was agreed to"):
        await hook.fire("before_tool", call)
    assert not (workspace / "ran").exists()


def test_a_file_that_was_agreed_to_and_is_gone_is_told_of(workspace: Path, consent: HookConsent) -> None:
    agree(workspace, consent)
    (workspace / WORKSPACE_FILE).unlink()
    found = workspace_hooks(workspace, consent)
    assert found.refused == f"{workspace / WORKSPACE_FILE} is not there any more, and was agreed to"


def test_what_a_person_is_shown_is_what_the_digest_is_of(workspace: Path, consent: HookConsent) -> None:
    found = workspace_hooks(workspace, consent)
    written(workspace, ONE.replace("guard.sh", "other.sh"), WORKSPACE_FILE)
    written(workspace, "exit 0\n", ".agentsession/other.sh")
    assert found.digest is not None
    consent.give(found.path, found.digest)
    assert [Path(hook.command[-1]).name for hook in found.found] == ["guard.sh"]
    assert workspace_hooks(workspace, consent).hooks == ()


def test_a_record_of_consent_that_others_may_write_agrees_to_nothing_and_takes_nothing(
    workspace: Path, consent: HookConsent
) -> None:
    agree(workspace, consent)
    consent.path.chmod(0o620)
    found = workspace_hooks(workspace, consent)
    assert found.hooks == ()
    assert found.digest is not None
    with pytest.raises(PermissionError):
        consent.give(found.path, found.digest)


def test_a_file_that_was_agreed_to_and_is_broken_now_does_not_start(workspace: Path, consent: HookConsent) -> None:
    agree(workspace, consent)
    written(workspace, "[[hook]]\n", WORKSPACE_FILE)
    with pytest.raises(ConfigurationError):
        workspace_hooks(workspace, consent)


@pytest.mark.parametrize("kind", ["loop", "pipe", "folder"])
def test_what_is_no_file_is_neither_left_out_in_silence_nor_waited_for(
    workspace: Path, consent: HookConsent, kind: str
) -> None:
    file = workspace / WORKSPACE_FILE
    file.unlink()
    if kind == "loop":
        file.symlink_to(file)
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    assert workspace_hooks(workspace, consent).refused is not None
    consent.give(file, "0")
    with pytest.raises(ConfigurationError):
        workspace_hooks(workspace, consent)


def test_a_workspace_that_cannot_be_looked_at_is_told_of(tmp_path: Path, consent: HookConsent) -> None:
    found = workspace_hooks(tmp_path / ("x" * 300), consent)
    assert found.refused is not None
    assert found.refused.startswith("the hooks cannot be read")


def test_a_broken_file_that_nobody_agreed_to_stops_nobody(workspace: Path, consent: HookConsent) -> None:
    written(workspace, "[[hook]]\n", WORKSPACE_FILE)
    found = workspace_hooks(workspace, consent)
    assert found.hooks == ()
    assert found.refused is not None


def test_consent_can_be_taken_back(workspace: Path, consent: HookConsent) -> None:
    agree(workspace, consent)
    assert consent.revoke(workspace / WORKSPACE_FILE)
    assert workspace_hooks(workspace, consent).hooks == ()
    assert not consent.revoke(workspace / WORKSPACE_FILE)


@pytest.mark.parametrize("kept", ["", "{", "[]", '{"v": 2, "files": {}}', '{"v": 1, "files": 3}'])
def test_a_record_of_consent_that_cannot_be_read_agrees_to_nothing(
    workspace: Path, consent: HookConsent, kept: str
) -> None:
    agree(workspace, consent)
    consent.path.write_text(kept)
    assert workspace_hooks(workspace, consent).hooks == ()


def test_consent_is_kept_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert HookConsent().path == tmp_path / "agentsession" / "trusted-hooks.json"
