"""What an editor offers: its files as tools, and forms for questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from acp.schema import (
    AcceptElicitationResponse,
    ClientCapabilities,
    CreateTerminalResponse,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    ReadTextFileResponse,
    WriteTextFileResponse,
)
from tests.host.acp.editor import Editor, editing, text

from agentsession.adapters.scripted import Ask, Call, Say, ScriptedExecutor, Step
from agentsession.host import allow_all
from agentsession.host.acp._editor_tools import EditorTools

pytestmark = pytest.mark.anyio

FILES = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True))
FORMS = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))
SECRET = {
    "type": "object",
    "properties": {"colour": {"type": "string", "$ref": "#/$defs/key"}},
    "$defs": {"key": {"format": "password"}},
}
COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


class Offering(Editor):
    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, str] = {}
        self.questions: list[str] = []

    async def read_text_file(self, path: str, **_: Any) -> ReadTextFileResponse:
        return ReadTextFileResponse(content=f"old text of {Path(path).name}")

    async def write_text_file(self, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        self.written[path] = content
        return WriteTextFileResponse()

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> AcceptElicitationResponse:
        self.questions.append(message)
        return AcceptElicitationResponse(action="accept", content={"colour": "red"})


async def test_a_file_is_written_through_the_editor_and_shown_as_a_diff(tmp_path: Path) -> None:
    editor = Offering()
    script: list[list[Step]] = [[Call("editor_write_text_file", {"path": "a.txt", "content": "new"}), Say("Done.")]]
    async with editing(ScriptedExecutor(script), editor, FILES, policy=allow_all) as client:
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
    path = str(tmp_path / "a.txt")
    assert editor.written == {path: "new"}
    diff = editor.of("tool_call_update")[-1].content[0]
    assert (diff.type, diff.path, diff.old_text, diff.new_text) == ("diff", path, "old text of a.txt", "new")


@pytest.mark.parametrize("path", ["../a.txt", "/etc/passwd", "link/a.txt"])
async def test_a_file_outside_the_sessions_folders_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    editor = Offering()
    script: list[list[Step]] = [[Call("editor_write_text_file", {"path": path, "content": "new"}), Say("Well.")]]
    async with editing(ScriptedExecutor(script), editor, FILES, policy=allow_all) as client:
        made = await client.new_session(str(tmp_path / "in"), mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
    assert editor.written == {}
    assert editor.of("tool_call_update")[-1].status == "failed"


@pytest.mark.parametrize(("client_can", "asked", "action"), [(FORMS, 1, "accept"), (ClientCapabilities(), 0, "cancel")])
async def test_a_question_is_a_form_where_the_editor_has_forms(
    client_can: ClientCapabilities, asked: int, action: str
) -> None:
    editor = Offering()
    script: list[list[Step]] = [
        [Ask("Which colour?", schema=COLOUR), Say(lambda memory: getattr(memory.last, "action", "none"))]
    ]
    async with editing(ScriptedExecutor(script), editor, client_can) as client:
        made = await client.new_session(str(Path.cwd()), mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
    assert (len(editor.questions), editor.said) == (asked, action)


async def test_a_form_with_a_secret_behind_a_reference_is_not_shown() -> None:
    editor = Offering()
    script: list[list[Step]] = [
        [Ask("Which key?", schema=SECRET), Say(lambda memory: getattr(memory.last, "action", "none"))]
    ]
    async with editing(ScriptedExecutor(script), editor, FORMS) as client:
        made = await client.new_session(str(Path.cwd()), mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
    assert (editor.questions, editor.said) == ([], "cancel")


class Slow:
    """A connection to an editor that takes its time to make a terminal."""

    session_id = "s"

    def __init__(self) -> None:
        self.is_asked, self.may_make = anyio.Event(), anyio.Event()
        self.told: list[str] = []

    async def create_terminal(self, *_: Any) -> CreateTerminalResponse:
        self.is_asked.set()
        await self.may_make.wait()
        return CreateTerminalResponse(terminal_id="t1")

    async def kill_terminal(self, session_id: str, terminal_id: str) -> None:
        self.told.append(f"kill {terminal_id}")

    async def release_terminal(self, session_id: str, terminal_id: str) -> None:
        self.told.append(f"release {terminal_id}")


async def test_a_call_that_is_cancelled_while_its_terminal_is_made_ends_what_runs_in_it(tmp_path: Path) -> None:
    editor = Slow()
    tools = EditorTools(
        cast(Any, editor), ClientCapabilities(terminal=True), editor, [str(tmp_path)], lambda made: None
    )
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            call = anyio.CancelScope()

            async def run() -> None:
                with call:
                    await tools.run({"command": "make"}, cast(Any, None))

            tasks.start_soon(run)
            await editor.is_asked.wait()
            call.cancel()
            await anyio.wait_all_tasks_blocked()
            editor.may_make.set()
    assert editor.told == ["kill t1", "release t1"]
