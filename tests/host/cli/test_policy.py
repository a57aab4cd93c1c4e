"""``agentsession policy`` and ``run --policy``: what a person reads, and what a program gets."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from tests.host.cli.command import PROJECT, Command

from agentsession.host import PolicyEngine, PolicyRequest, RememberedAnswers, builtin_rules

TEXT = """\
version = 1

[[rule]]
id = "git-push"
tools = ["fs:shell"]
shell = [["git", "push"]]
decision = "ask_user"
remember = "exact"
match = [{ command = "git push origin main" }]

[[rule]]
id = "no-rm"
tools = ["fs:shell"]
shell = [["rm"]]
decision = "deny"
reason = "nothing is removed here"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "policy.toml"
    place.write_text(TEXT)
    return place


def test_explain_names_the_rule_its_line_its_reason_and_who_lost(command: Command, file: Path) -> None:
    call = 'fs:shell {"command": "git push && rm x"}'
    done = command("policy", "explain", call, "--policy", "policy.toml", cwd=file.parent)
    assert done.returncode == 0
    assert done.stdout.splitlines()[:4] == [
        f"deny  {call}",
        "  rule no-rm, policy.toml:11 (deny, user, priority 100), command 2 of the line",
        "  why: nothing is removed here",
        "  mode default, asked by main",
    ]
    assert "rule git-push, policy.toml:3" in done.stdout


def test_explain_says_what_a_yes_could_be_remembered_for(command: Command, file: Path) -> None:
    asked = ("policy", "explain", 'fs:shell {"command": "git push"}', "--policy", str(file))
    assert "a yes can be remembered for: fs:shell with exactly these arguments" in command(*asked).stdout
    assert "nobody can be asked, so it is denied" in command(*asked, "--headless").stdout


def test_explain_tells_a_program_that_nobody_can_be_asked(command: Command) -> None:
    told = json.loads(command("policy", "explain", "edit", "--json", "--headless").stdout)
    assert (told["decision"], told["interactive"]) == ("ask_user", False)


@pytest.mark.parametrize(
    ("more", "decision"),
    [
        ((), "ask_user"),
        (("--annotations", "read_only"), "allow"),
        (("--annotations", "read_only", "--untrusted"), "ask_user"),
        (("--annotations", "read_only", "--agent-owned"), "ask_user"),
        (("--annotations", "category=edit", "--mode", "auto_edit"), "allow"),
        (("--mode", "plan"), "deny"),
        (("--mode", "autonomous", "--principal", "main/child"), "allow"),
    ],
)
def test_explain_takes_what_a_request_is_made_of(command: Command, more: tuple[str, ...], decision: str) -> None:
    done = command("policy", "explain", 'edit {"path": "a"}', "--json", *more)
    assert json.loads(done.stdout)["decision"] == decision


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (('x {"a"',), "the arguments of x are not JSON: expected ':' delimiter"),
        (("x [1]",), "the arguments of x must be a JSON object"),
        (("",), "no tool is named"),
        (("x", "--mode", "plna"), "unknown mode 'plna'"),
        (("x", "--annotations", "readonly"), "unknown annotation 'readonly'"),
    ],
)
def test_a_call_that_cannot_be_read_is_a_usage_error(command: Command, args: tuple[str, ...], what: str) -> None:
    done = command("policy", "explain", *args)
    assert done.returncode == 2
    assert what in done.stderr


def test_check_tries_the_examples_and_says_where_a_file_is_wrong(command: Command, file: Path) -> None:
    done = command("policy", "check", "policy.toml", cwd=file.parent)
    assert (done.returncode, done.stdout) == (0, "policy.toml: 2 rules, 1 example tried\n")
    file.write_text(TEXT.replace('"deny"', '"dney"'))
    wrong = command("policy", "check", "policy.toml", cwd=file.parent)
    assert wrong.returncode == 2
    assert wrong.stderr == (
        'error[policy]: unknown decision "dney"\n'
        "  where:    policy.toml:15, rule no-rm\n"
        "  fix:      allow, deny or ask_user\n"
    )


def test_a_policy_that_does_not_load_starts_nothing(command: Command, file: Path) -> None:
    file.write_text(TEXT + "colour = 1\n")
    done = command("run", "scripted_agents:editor", "-p", "go", "--policy", str(file))
    assert done.returncode == 2
    assert "error[policy]: unknown key 'colour'" in done.stderr
    assert done.stdout == ""


def test_what_is_remembered_is_listed_and_revoked(command: Command, state: Path) -> None:
    assert "nothing is remembered" in command("policy", "remembered").stdout
    answer = {
        "id": "abc123",
        "scope": "always",
        "tool": "host:edit_file",
        "owner": "host",
        "narrowing": "",
        "digest": None,
        "permission_mode": "default",
        "principal_path": ["coder"],
        "user_id": None,
        "session_id": None,
        "workspace": "/home/ann/shop",
        "words": "edit_file",
        "at": "2026-01-31T12:00:00+00:00",
    }
    kept = state / "agentsession" / "remembered.json"
    kept.parent.mkdir()
    kept.write_text(json.dumps({"version": 1, "answers": [answer]}))
    kept.chmod(0o600)
    asked = command("policy", "explain", "edit_file", "--principal", "coder", cwd=state)
    assert "not asked" not in asked.stdout  # it was given in another folder
    listed = command("policy", "remembered")
    assert listed.stdout.startswith("abc123  edit_file\n  in /home/ann/shop, mode default and looser, asked by coder,")
    assert json.loads(command("policy", "remembered", "--json").stdout) == answer
    assert command("policy", "revoke", "abc123").stdout == "abc123 is forgotten; it is asked again\n"
    again = command("policy", "revoke", "abc123")
    assert again.returncode == 2
    assert "fix:      agentsession policy remembered" in again.stderr


def test_explain_says_that_an_answer_was_remembered(command: Command, state: Path, tmp_path: Path) -> None:
    async def remember() -> None:
        request = PolicyRequest(tool="edit_file", args={}, principal_path=("main",), user_id="local")
        store = RememberedAnswers(state / "agentsession" / "remembered.json", workspace=tmp_path)
        await store.remember(request, PolicyEngine(builtin_rules()).evaluate(request), "always")

    anyio.run(remember)
    assert "was remembered, edit_file" in command("policy", "explain", "edit_file", cwd=tmp_path).stdout
    other = command("policy", "explain", "edit_file", "--principal", "sales", cwd=tmp_path).stdout
    assert "it was remembered for main: --principal main" in other
    assert "was remembered" not in command("policy", "explain", "other", cwd=tmp_path).stdout


def test_a_rule_of_a_file_decides_in_a_run_and_is_told_with_its_line(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('version = 1\n[[rule]]\nid = "hands-off"\ntools = ["*"]\ndecision = "deny"\nreason = "not today"\n')
    (tmp_path / "asking.py").write_text(
        "from agentsession.adapters.scripted import Call, Say, ScriptedExecutor\n"
        "def work() -> str:\n    '''Work.'''\n    raise AssertionError('it ran')\n"
        "def agent() -> ScriptedExecutor:\n    return ScriptedExecutor([[Call('work', {}), Say('Done.')]])\n"
    )
    done = command("run", "asking:agent", "--tools", "asking:work", "-p", "go", "--policy", "policy.toml", cwd=tmp_path)
    assert done.returncode == 0
    assert "DENIED  rule hands-off, policy.toml:2" in done.stderr
    assert "model was told: not today" in done.stderr


@pytest.mark.parametrize(
    ("options", "decision"),
    [
        (("--allow", "edit*"), "allow"),
        (("--allow", "edit*", "--deny", "*"), "deny"),
        (("--policy", "ask.toml", "--allow", "edit*"), "ask_user"),
        (("--policy", "allow.toml", "--deny", "edit*"), "deny"),
    ],
)
def test_allow_and_deny_are_rules_beside_those_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], decision: str
) -> None:
    from agentsession.host.cli._command_policy import CommandPolicy
    from agentsession.host.cli._setup import RunOptions

    monkeypatch.chdir(tmp_path)
    rule = 'version = 1\n[[rule]]\nid = "mine"\ntools = ["edit_file"]\ndecision = "{}"\n'
    Path("ask.toml").write_text(rule.format("ask_user"))
    Path("allow.toml").write_text(rule.format("allow"))
    given: dict[str, list[str]] = {"allow": [], "deny": [], "policy": []}
    for name, value in zip(options[::2], options[1::2], strict=True):
        given[name.removeprefix("--")].append(value)
    policy = CommandPolicy(RunOptions(target="", **given))  # type: ignore[arg-type]  # lists of text
    assert policy.evaluate(PolicyRequest(tool="edit_file", args={})).decision == decision


@pytest.mark.parametrize(("mode", "ran"), [("plan", False), ("default", False), ("autonomous", True)])
def test_the_mode_of_a_run_is_that_of_its_session(command: Command, tmp_path: Path, mode: str, ran: bool) -> None:
    (tmp_path / "moded.py").write_text(
        "from pathlib import Path\n"
        "from agentsession.adapters.scripted import Call, Say, ScriptedExecutor\n"
        "def work() -> None:\n    '''Work.'''\n    Path('ran').touch()\n"
        "def agent() -> ScriptedExecutor:\n    return ScriptedExecutor([[Call('work', {}), Say('Done.')]])\n"
    )
    done = command("run", "moded:agent", "--tools", "moded:work", "-p", "go", "--mode", mode, cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "ran").exists() is ran


WORKSPACE = """\
version = 1
[[rule]]
id = "edits"
tools = ["edit_file"]
args = { "/path" = { under = "src" } }
decision = "allow"
[[rule]]
id = "no-look"
tools = ["look"]
decision = "deny"
"""


def test_rules_of_a_workspace_only_tighten_until_they_were_agreed_to(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    work = tmp_path / "work"
    (work / ".agentsession").mkdir(parents=True)
    file = work / ".agentsession" / "policy.toml"
    file.write_text(WORKSPACE)

    def decides(call: str) -> str:
        done = command("policy", "explain", call, "--json", cwd=work)
        assert ("policy trust" in done.stderr) is not is_trusted
        return str(json.loads(done.stdout)["decision"])

    is_trusted = False
    calls = ('edit_file {"path": "src/a"}', "look")
    assert [decides(call) for call in calls] == ["ask_user", "deny"]
    agreed = command("policy", "trust", cwd=work)
    assert "edits: allow edit_file; with /path under 'src'" in agreed.stdout
    assert "agreed to, as they are now" in agreed.stdout
    is_trusted = True
    assert [decides(call) for call in calls] == ["allow", "deny"]
    assert "agreed to before" in command("policy", "trust", cwd=work).stdout
    assert "no longer agreed to" in command("policy", "untrust", cwd=work).stdout
    is_trusted = False
    assert [decides(call) for call in calls] == ["ask_user", "deny"]


def test_there_must_be_rules_to_agree_to(command: Command, tmp_path: Path) -> None:
    done = command("policy", "trust", str(tmp_path))
    assert done.returncode == 2
    assert "there is no .agentsession/policy.toml" in done.stderr


def test_a_run_is_held_to_the_rules_of_the_workspace(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    work = tmp_path / "work"
    (work / ".agentsession").mkdir(parents=True)
    rule = '[[rule]]\nid = "no-reads"\ntools = ["read_*"]\ndecision = "deny"\n'
    (work / ".agentsession" / "policy.toml").write_text(f"version = 1\n{rule}")
    for source in PROJECT.glob("*.py"):
        (work / source.name).write_bytes(source.read_bytes())
    done = command("run", "scripted_agents:worker", "--tools", "host_tools:tools", "-p", "go", cwd=work)
    assert "can only tighten: nobody agreed to it; to agree: agentsession policy trust" in done.stderr
    assert done.stderr.count("DENIED") == done.stderr.count("rule no-reads") == 2
