"""The options of the command, and what counts in the folder of each session: rules, hooks, remembered answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from acp import RequestError
from tests.host.acp.editor import Editor, text
from tests.host.acp.process import editing_process

from agentsession.adapters.scripted import Call, ScriptedExecutor
from agentsession.host import Approval, CallbackChannel, Host, tool
from agentsession.host.cli._command_policy import CommandPolicy
from agentsession.host.cli._setup import RunOptions
from agentsession.host.hooks import WORKSPACE_FILE, HookConsent, workspace_hooks
from agentsession.host.policy import WORKSPACE_POLICY, PolicyConsent, RememberedAnswers, workspace_policy
from agentsession.protocol import OpenOptions

pytestmark = pytest.mark.anyio

AGENT = """
import os
from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import tool

@tool(category="edit", read_only=False)
def write(path: str) -> str:
    \"\"\"Write a file.\"\"\"
    return f"written {path}"

turn = [Call("write", {"path": os.environ["WHERE"]}), Say("Done.")]
agent = ScriptedExecutor([turn] * 3)
"""
TOOLS = ("my_module:agent", "--tools", "my_module:write")
DENY = "version = 1\n[[rule]]\nid = 'no'\ntools = ['write']\ndecision = 'deny'\npriority = 999\n"
ALLOW = DENY.replace("deny", "allow")
HOOKS = """[[hook]]
id = "guard"
point = "before_tool"
command = ["sh", "-c", "echo 'not here' >&2; exit 2"]
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where the process is at work, and a project of the editor's."""
    made = tmp_path / "process", tmp_path / "project"
    for place in made:
        (place / ".agentsession").mkdir(parents=True)
    monkeypatch.setenv("WHERE", "a.txt")
    return made


def ended(editor: Editor) -> str:
    """How the one call ended."""
    last = editor.of("tool_call_update")[-1]
    status = (last.field_meta or {})["agentsession"].get("status", last.status)
    return str(status)


async def test_a_denial_of_the_sessions_folder_holds_there_and_not_elsewhere(places: tuple[Path, Path]) -> None:
    here, project = places
    (project / WORKSPACE_POLICY).write_text(DENY)
    editor = Editor()
    async with editing_process(here, AGENT, *TOOLS, "--mode", "autonomous", editor=editor) as (client, _):
        for folder, end in ((project, "denied"), (here, "completed")):
            made = await client.new_session(str(folder), mcp_servers=[])
            await client.prompt(made.session_id, text("go"))
            assert ended(editor) == end
    assert editor.asked == []


async def test_a_project_cannot_allow_what_nobody_agreed_to(places: tuple[Path, Path]) -> None:
    here, project = places
    (project / WORKSPACE_POLICY).write_text(ALLOW)
    editor = Editor(lambda call: "reject_once")
    async with editing_process(here, AGENT, *TOOLS, editor=editor) as (client, process):
        made = await client.new_session(str(project), mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
        assert process.stderr is not None
        told = (await process.stderr.readuntil(b"\n")).decode()
    assert (len(editor.asked), ended(editor)) == (1, "denied")
    assert f"agentsession policy trust {project}" in told


async def test_what_a_person_agreed_to_counts_in_full(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, project = places
    (project / WORKSPACE_POLICY).write_text(ALLOW)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "config"))
    found = workspace_policy(project)
    assert found.digest is not None
    PolicyConsent().give(found.path, found.digest)
    editor = Editor(lambda call: "reject_once")
    async with editing_process(here, AGENT, *TOOLS, editor=editor) as (client, _):
        made = await client.new_session(str(project), mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
    assert (editor.asked, ended(editor)) == ([], "completed")


async def test_a_policy_that_cannot_be_read_refuses_the_session(places: tuple[Path, Path]) -> None:
    here, project = places
    (project / WORKSPACE_POLICY).write_text("version = 1\n[[rule]]\ntools = 7\n")
    async with editing_process(here, AGENT, *TOOLS, "--allow", "write", editor=Editor()) as (client, process):
        with pytest.raises(RequestError) as refused:
            await client.new_session(str(project), mcp_servers=[])
        assert process.stderr is not None
        told = (await process.stderr.readuntil(b"\n")).decode()
    assert (refused.value.data or {})["code"] == "policy"
    assert str(project / WORKSPACE_POLICY) in told


async def test_auto_edit_is_about_the_sessions_folder(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, project = places
    for file, asked in ((project / "a.txt", 0), (here / "a.txt", 1)):
        monkeypatch.setenv("WHERE", str(file))
        editor = Editor()
        async with editing_process(here, AGENT, *TOOLS, "--mode", "auto_edit", editor=editor) as (client, _):
            made = await client.new_session(str(project), mcp_servers=[])
            await client.prompt(made.session_id, text("go"))
        assert len(editor.asked) == asked


@pytest.mark.skipif(os.name == "nt", reason="a hook for sh")
async def test_hooks_of_the_sessions_folder_hold_where_a_person_agreed(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, project = places
    (project / WORKSPACE_FILE).write_text(HOOKS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "config"))
    found = workspace_hooks(project)
    assert found.digest is not None
    HookConsent().give(found.path, found.digest)
    editor = Editor()
    async with editing_process(here, AGENT, *TOOLS, "--allow", "write", editor=editor) as (client, _):
        for folder, end in ((project, "denied"), (here, "completed")):
            made = await client.new_session(str(folder), mcp_servers=[])
            await client.prompt(made.session_id, text("go"))
            assert ended(editor) == end


async def test_a_limit_ends_a_turn_with_its_reason(places: tuple[Path, Path]) -> None:
    here, project = places
    words = ("--allow", "write", "--max-calls", "1", "--no-grace")
    async with editing_process(here, AGENT, *TOOLS, *words, editor=Editor()) as (client, _):
        made = await client.new_session(str(project), mcp_servers=[])
        assert (await client.prompt(made.session_id, text("go"))).stop_reason == "max_turn_requests"


async def test_what_was_answered_always_holds_in_its_folder(places: tuple[Path, Path]) -> None:
    here, project = places

    @tool(category="edit", read_only=False)
    def write(path: str) -> str:
        """Write a file."""
        return path

    async def always(*_: object) -> Approval:
        return Approval.yes(remember="always")

    remembered = RememberedAnswers(here / "agentsession" / "remembered.json", workspace=project)
    policy = CommandPolicy(RunOptions(target=""), None)
    host = Host(tools=[write], policy=policy, channel=CallbackChannel(always), remembered=remembered)
    async with ScriptedExecutor([[Call("write", {"path": "a.txt"})]]) as executor:
        await host.run(executor, "go", OpenOptions(user_id="local"))
    assert len(remembered.answers()) == 1
    for folder, asked in ((project, 0), (here, 1)):
        editor = Editor()
        async with editing_process(here, AGENT, *TOOLS, editor=editor) as (client, _):
            made = await client.new_session(str(folder), mcp_servers=[])
            await client.prompt(made.session_id, text("go"))
        assert len(editor.asked) == asked
