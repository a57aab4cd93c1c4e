"""All that an editor can ask of us, by the SDK's own client on the pipes of the command."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    AcpMcpServer,
    AudioContentBlock,
    BlobResourceContents,
    ClientCapabilities,
    CreateTerminalResponse,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ElicitationUrlCapabilities,
    EmbeddedResourceContentBlock,
    HttpMcpServer,
    ImageContentBlock,
    KillTerminalResponse,
    McpServerStdio,
    ReleaseTerminalResponse,
    ResourceContentBlock,
    SseMcpServer,
    TerminalExitStatus,
    TerminalOutputResponse,
    TextContentBlock,
    TextResourceContents,
    WaitForTerminalExitResponse,
)
from tests.host.acp.editor import Editor, text
from tests.host.acp.process import editing_process
from tests.host.mcp.serving import SERVER, Log, served

pytestmark = pytest.mark.anyio

MODULE = Path(__file__).with_name("whole_agent.py").read_text()
WORDS = ("my_module:agent", "--tools", "my_module:tools")
ALLOWED = (*WORDS, "--allow", "edit", "--allow", "shop_*")
TERMINAL = ClientCapabilities(terminal=True)
QUESTIONS = ClientCapabilities(
    elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities(), url=ElicitationUrlCapabilities())
)
PIXEL = "bm90IHJlYWxseSBhIHBpY3R1cmU="


class Full(Editor):
    """An editor with terminals and questions."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.terminals: list[str] = []
        self.questions: list[Any] = []
        self.runs = asyncio.Event()
        self.may_end = asyncio.Event()

    async def create_terminal(self, session_id: str, command: str, args: Any = None, **more: Any) -> Any:
        self.terminals.append(f"create {command} {' '.join(args or [])} in {more['cwd']}")
        return CreateTerminalResponse(terminal_id="t1")

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.runs.set()
        await self.may_end.wait()
        return WaitForTerminalExitResponse(exit_code=0)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        status = TerminalExitStatus(exit_code=0)
        return TerminalOutputResponse(output="2 passed", truncated=False, exit_status=status)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.terminals.append("kill")
        return KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
        self.terminals.append("release")
        return ReleaseTerminalResponse()

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.questions.append(mode)
        return AcceptElicitationResponse(action="accept", content={"colour": "red"})


async def test_a_plan_is_told_with_all_its_entries_each_time(tmp_path: Path) -> None:
    editor = Editor()
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        await client.prompt(made.session_id, text("plan"))
        plans = [[(one.content, one.status) for one in plan.entries] for plan in editor.of("plan")]
        assert plans == [
            [("step 0", "pending"), ("step 1", "pending")],
            [("step 0", "completed"), ("step 1", "in_progress")],
        ]
        editor.updates.clear()
        await client.load_session(str(tmp_path), made.session_id, mcp_servers=[])
    assert editor.of("plan")[-1].entries[0].status == "completed"


async def test_a_diff_is_told_by_its_absolute_path(tmp_path: Path) -> None:
    editor = Editor()
    async with editing_process(tmp_path, MODULE, *ALLOWED, editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        await client.prompt(made.session_id, text("edit"))
    last = editor.of("tool_call_update")[-1]
    diff = last.content[0]
    assert (last.status, diff.type, diff.path) == ("completed", "diff", str(tmp_path / "a.txt"))
    assert (diff.old_text, diff.new_text) == ("one\n", "two\n")


async def test_two_permissions_are_asked_with_their_options_and_answered_apart(tmp_path: Path) -> None:
    both = asyncio.Event()

    async def permit(call: Any) -> str:
        if len(editor.asked) == 2:
            both.set()
        await both.wait()  # the second is asked while the first waits
        return "allow_once" if call.raw_input["path"] == "a.txt" else "reject_once"

    editor = Editor(permit)
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        answer = await client.prompt(made.session_id, text("edits"))
    assert [options for _, options in editor.asked] == [
        ["allow_once", "allow_always", "reject_once", "reject_always"]
    ] * 2
    ended = {call.tool_call_id: call.raw_input["path"] for call, _ in editor.asked}
    last = {update.tool_call_id: update.status for update in editor.of("tool_call_update")}
    assert {ended[key]: status for key, status in last.items()} == {"a.txt": "completed", "b.txt": "failed"}
    assert answer.stop_reason == "end_turn"


async def test_cancel_while_a_permission_is_open_runs_nothing(tmp_path: Path) -> None:
    never = asyncio.Event()

    async def permit(call: Any) -> str:
        await never.wait()
        return "allow_once"

    editor = Editor(permit)
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        prompt = asyncio.create_task(client.prompt(made.session_id, text("edit")))
        await editor.was_asked.wait()
        await client.cancel(made.session_id)
        assert (await prompt).stop_reason == "cancelled"
        never.set()  # a yes that comes too late
        assert (await client.prompt(made.session_id, text("deltas"))).stop_reason == "end_turn"
    assert editor.of("tool_call_update")[-1].status == "failed"


async def test_sub_agents_are_calls_with_what_they_said(tmp_path: Path) -> None:
    editor = Editor()
    async with editing_process(tmp_path, MODULE, *ALLOWED, editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        await client.prompt(made.session_id, text("agents"))
    titles = {start.tool_call_id: start.title for start in editor.of("tool_call")}
    assert sorted(titles.values()) == ["agent: reader", "agent: writer", "edit"]
    ended = {titles[update.tool_call_id]: update for update in editor.of("tool_call_update")}
    for name, words in (("reader", "I read."), ("writer", "I wrote.")):
        update = ended[f"agent: {name}"]
        assert (update.status, update.content[0].content.text) == ("completed", words)
    assert editor.said == "", "what a sub-agent said is no message of the agent's"


async def test_every_block_is_taken_by_an_agent_that_takes_media(tmp_path: Path) -> None:
    editor = Editor()
    link = ResourceContentBlock(type="resource_link", uri="file:///b.txt", name="b")
    note = TextResourceContents(uri="note:1", text="a note")
    blob = BlobResourceContents(uri="file:///c.pdf", blob=PIXEL, mime_type="application/pdf")
    blocks: list[Any] = [
        TextContentBlock(type="text", text="look"),
        ImageContentBlock(type="image", data=PIXEL, mime_type="image/png"),
        AudioContentBlock(type="audio", data=PIXEL, mime_type="audio/wav"),
        link,
        EmbeddedResourceContentBlock(type="resource", resource=note),
        EmbeddedResourceContentBlock(type="resource", resource=blob),
    ]
    async with editing_process(tmp_path, MODULE, "my_module:seeing", editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        await client.prompt(made.session_id, blocks)
    assert editor.said.split(" ", 2)[:2] == ["text:look", f"media:image/png:{PIXEL}"]
    assert editor.said.endswith(
        f"media:audio/wav:{PIXEL} reference:file:///b.txt:b reference:note:1:None text:a note"
        f" reference:file:///c.pdf:None media:application/pdf:{PIXEL}"
    )


async def test_a_block_that_the_agent_does_not_take_is_refused_by_its_name(tmp_path: Path) -> None:
    editor = Editor()
    blob = BlobResourceContents(uri="file:///c.pdf", blob=PIXEL)
    blocks: dict[str, Any] = {
        "image": ImageContentBlock(type="image", data=PIXEL, mime_type="image/png"),
        "audio": AudioContentBlock(type="audio", data=PIXEL, mime_type="audio/wav"),
        "resource with a blob": EmbeddedResourceContentBlock(type="resource", resource=blob),
    }
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        for named, block in blocks.items():
            with pytest.raises(RequestError, match=f"does not take {named} blocks") as refused:
                await client.prompt(made.session_id, [TextContentBlock(type="text", text="look"), block])
            assert (refused.value.code, refused.value.data) == (-32602, {"code": "block_undeclared"})
            assert editor.said == ""
        await client.prompt(made.session_id, text("deltas"))
    assert editor.said == "One, two."


async def test_a_command_runs_in_a_terminal_of_the_editor(tmp_path: Path) -> None:
    editor = Full()
    editor.may_end.set()
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor, capabilities=TERMINAL) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        await client.prompt(made.session_id, text("terminal"))
    assert [call.raw_input for call, _ in editor.asked] == [{"command": "make", "args": ["test"]}]
    assert editor.terminals == [f"create make test in {tmp_path}", "release"]
    contents = [one for update in editor.of("tool_call_update") for one in update.content or ()]
    assert {(one.type, one.terminal_id) for one in contents} == {("terminal", "t1")}
    assert editor.of("tool_call_update")[-1].raw_output["output"] == "2 passed"


async def test_a_cancelled_turn_kills_the_editors_terminal(tmp_path: Path) -> None:
    editor = Full()
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor, capabilities=TERMINAL) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        prompt = asyncio.create_task(client.prompt(made.session_id, text("terminal")))
        await editor.runs.wait()
        await client.cancel(made.session_id)
        assert (await prompt).stop_reason == "cancelled"
        editor.may_end.set()
    assert editor.terminals[1:] == ["kill", "release"]


async def test_a_terminal_that_is_rejected_is_never_made(tmp_path: Path) -> None:
    editor = Full(lambda call: "reject_once")
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor, capabilities=TERMINAL) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        await client.prompt(made.session_id, text("terminal"))
    assert (len(editor.asked), editor.terminals) == (1, [])


async def test_a_tool_server_of_the_editor_runs_after_a_yes_and_ends_with_its_session(tmp_path: Path) -> None:
    choices = ["reject_once", "allow_once"]
    editor, log = Editor(lambda call: choices.pop(0)), tmp_path / "server.log"
    server = McpServerStdio(name="shop", command=sys.executable, args=[str(SERVER), str(log)], env=[])
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[server])
        for received in ([], ["write a 1"]):
            await client.prompt(made.session_id, text("shop"))
            first, *lines = log.read_text().splitlines()
            assert lines == received
        assert [call.field_meta["agentsession"]["name"] for call, _ in editor.asked] == ["shop_write"] * 2
        await client.close_session(made.session_id)
        with pytest.raises(ProcessLookupError):
            os.kill(int(first.removeprefix("pid ")), 0)


async def test_a_tool_server_over_http_is_taken(tmp_path: Path) -> None:
    editor, log = Editor(), Log()
    with served(log) as port:
        server = HttpMcpServer(type="http", name="shop", url=f"http://127.0.0.1:{port}/mcp", headers=[])
        async with editing_process(tmp_path, MODULE, *ALLOWED, editor=editor) as (client, _):
            made = await client.new_session(str(tmp_path), mcp_servers=[server])
            await client.prompt(made.session_id, text("shop"))
    assert log.lines == ["write a 1"]


async def test_a_tool_server_over_another_way_is_refused_by_its_name(tmp_path: Path) -> None:
    servers: list[Any] = [
        SseMcpServer(type="sse", name="shop", url="http://127.0.0.1:9/mcp", headers=[]),
        AcpMcpServer(type="acp", name="shop", server_id="s1"),
    ]
    async with editing_process(tmp_path, MODULE, *WORDS, editor=Editor()) as (client, _):
        for server in servers:
            with pytest.raises(RequestError, match=f"no MCP servers over {server.type}") as refused:
                await client.new_session(str(tmp_path), mcp_servers=[server])
            assert (refused.value.code, refused.value.data) == (-32602, {"code": "mcp_unsupported"})
        await client.new_session(str(tmp_path), mcp_servers=[])


async def test_a_tool_server_that_cannot_be_started_refuses_the_session(tmp_path: Path) -> None:
    server = McpServerStdio(name="shop", command=str(tmp_path / "nothing"), args=["--key=hunter2"], env=[])
    async with editing_process(tmp_path, MODULE, *WORDS, editor=Editor()) as (client, _):
        with pytest.raises(RequestError) as refused:
            await client.new_session(str(tmp_path), mcp_servers=[server])
        assert refused.value.code == -32603
        assert "hunter2" not in f"{refused.value} {refused.value.data}"
        await client.new_session(str(tmp_path), mcp_servers=[])


@pytest.mark.parametrize(
    ("capabilities", "said", "asked"),
    [(QUESTIONS, "accept {'colour': 'red'}accept None", 2), (ClientCapabilities(), "cancel Nonecancel None", 0)],
)
async def test_a_question_is_asked_where_the_editor_can_and_else_cancelled(
    tmp_path: Path, capabilities: ClientCapabilities, said: str, asked: int
) -> None:
    editor = Full()
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor, capabilities=capabilities) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        await client.prompt(made.session_id, text("form"))
        await client.prompt(made.session_id, text("login"))
    assert (editor.said, len(editor.questions)) == (said, asked)
    if editor.questions:
        assert str(editor.questions[1].url) == "https://login.example/start"


async def test_a_mode_is_told_and_holds(tmp_path: Path) -> None:
    editor = Editor()
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        assert made.modes is not None
        modes = [mode.id for mode in made.modes.available_modes]
        assert modes == ["default", "plan", "auto_edit", "autonomous"]
        await client.set_session_mode(mode_id="autonomous", session_id=made.session_id)
        await client.prompt(made.session_id, text("edit"))
        assert (editor.asked, editor.of("tool_call_update")[-1].status) == ([], "completed")
        await client.set_session_mode(mode_id="plan", session_id=made.session_id)
        await client.prompt(made.session_id, text("edit"))
        assert (editor.asked, editor.of("tool_call_update")[-1].status) == ([], "failed")


async def test_sessions_outlive_the_process_and_go_on(tmp_path: Path) -> None:
    words = (*ALLOWED, "--store", str(tmp_path / "sessions.db"))
    async with editing_process(tmp_path, MODULE, *words, editor=Editor()) as (client, _):
        first = (await client.new_session(str(tmp_path), mcp_servers=[])).session_id
        await client.prompt(first, text("edit"))
    editor = Editor()
    async with editing_process(tmp_path, MODULE, *words, editor=editor) as (client, _):
        assert [(one.session_id, one.cwd) for one in (await client.list_sessions()).sessions] == [
            (first, str(tmp_path))
        ]
        await client.load_session(str(tmp_path), first, mcp_servers=[])
        told = [update.session_update for update in editor.updates]
        assert told[:3] == ["user_message_chunk", "tool_call", "agent_message_chunk"]
        assert editor.of("tool_call")[0].content[0].path == str(tmp_path / "a.txt")
        fork = (await client.fork_session(first, str(tmp_path), mcp_servers=[])).session_id
        await client.close_session(first)
        editor.updates.clear()
        await client.resume_session(session_id=first, cwd=str(tmp_path), mcp_servers=[])
        for session in (first, fork):
            await client.prompt(session, text("deltas"))
    assert editor.said == "One, two.One, two."


async def test_an_editor_is_told_that_there_are_no_commands_and_a_slash_is_text(tmp_path: Path) -> None:
    editor = Editor()
    async with editing_process(tmp_path, MODULE, *WORDS, editor=editor) as (client, _):
        made = await client.new_session(str(tmp_path), mcp_servers=[])
        await client.prompt(made.session_id, text("/plan all"))
    assert [update.available_commands for update in editor.of("available_commands_update")] == [[]]
    assert editor.said == "text:/plan all"
