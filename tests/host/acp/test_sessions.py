"""Sessions of an editor: opened, loaded, resumed, listed, forked, closed; their modes; what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from acp import RequestError
from acp.schema import ImageContentBlock
from tests.host.acp.editor import CWD, Editor, Lines, editing, text, wire

from agentsession.adapters.scripted import Call, Deltas, Say, ScriptedExecutor, Step
from agentsession.host import allow_all, ask_all
from agentsession.protocol import MemoryRecordStore, StreamEnd

pytestmark = pytest.mark.anyio

SSE = {"type": "sse", "name": "x", "url": "http://x", "headers": []}
TWICE: list[list[Step]] = [[Deltas(["One", "."])], [Say("Two.")], [Say("Three.")]]


def write(path: str) -> str:
    """Write a file."""
    return "written"


async def test_load_tells_whole_messages_and_final_calls_before_its_answer() -> None:
    script: list[list[Step]] = [[Call("write", {"path": "a"}), Deltas(["Do", "ne."])], [Say("More.")]]
    async with wire(ScriptedExecutor(script), tools=[write], policy=allow_all) as (reader, writer, _):
        lines = Lines(reader, writer)
        session = await lines.session()
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
        await lines.call("session/prompt", prompt, 1)
        for number in (2, 3):  # twice: a load changes nothing
            lines.send("session/load", {"sessionId": session, "cwd": CWD, "mcpServers": []}, number)
            answer, before = await lines.until(number)
            assert answer["result"]["modes"]["currentModeId"] == "default"
            told = [message["params"]["update"] for message in before]
            told = [update for update in told if update["sessionUpdate"] != "available_commands_update"]
            kinds = [update["sessionUpdate"] for update in told]
            assert kinds == ["user_message_chunk", "tool_call", "agent_message_chunk"]
            assert (told[1]["status"], told[1]["rawInput"], told[2]["content"]["text"]) == (
                *("completed", {"path": "a"}, "Done."),
            )
        assert (await lines.call("session/prompt", prompt, 4))["result"]["stopReason"] == "end_turn"


async def test_resume_tells_nothing_again() -> None:
    editor = Editor()
    async with editing(ScriptedExecutor(TWICE), editor) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
        await client.close_session(made.session_id)
        editor.updates.clear()
        await client.resume_session(session_id=made.session_id, cwd=CWD, mcp_servers=[])
        await client.prompt(made.session_id, text("on"))
    assert [update.session_update for update in editor.updates if "chunk" in update.session_update] == [
        "agent_message_chunk"
    ]
    assert editor.said == "Two."


async def test_a_fork_goes_on_beside_the_first() -> None:
    editor = Editor()
    async with editing(ScriptedExecutor(TWICE), editor) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
        fork = await client.fork_session(made.session_id, CWD, mcp_servers=[])
        assert fork.session_id != made.session_id
        for session_id in (fork.session_id, made.session_id):
            await client.prompt(session_id, text("on"))
        assert editor.said == "One.Two.Two."
        listed = await client.list_sessions()
        assert {one.session_id for one in listed.sessions} == {fork.session_id, made.session_id}
        assert {one.cwd for one in listed.sessions} == {CWD}


async def test_a_closed_session_takes_no_prompt() -> None:
    async with editing(ScriptedExecutor(TWICE), Editor()) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        await client.close_session(made.session_id)
        with pytest.raises(RequestError) as refused:
            await client.prompt(made.session_id, text("go"))
        assert refused.value.code == -32002


async def test_a_mode_is_changed_by_both_ways_and_unknown_ones_are_refused() -> None:
    async with editing(ScriptedExecutor(TWICE), Editor()) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        assert made.modes is not None
        assert made.modes.current_mode_id == "default"
        await client.set_session_mode(mode_id="plan", session_id=made.session_id)
        told = await client.set_config_option("mode", made.session_id, "auto_edit")
        assert told is not None
        assert [option.current_value for option in told.config_options] == ["auto_edit"]
        loaded = await client.load_session(CWD, made.session_id, mcp_servers=[])
        assert loaded is not None
        assert loaded.modes is not None
        assert loaded.modes.current_mode_id == "auto_edit"
        for refused in (
            client.set_session_mode(mode_id="root", session_id=made.session_id),
            client.set_config_option("colour", made.session_id, "plan"),
        ):
            with pytest.raises(RequestError) as wrong:
                await refused
            assert wrong.value.code == -32602


async def test_a_mode_holds_in_the_next_turn() -> None:
    ran: list[str] = []

    def wipe(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return "gone"

    script: list[list[Step]] = [[Call("wipe", {"path": "a"}), Say("Well.")]]
    editor = Editor()
    async with editing(ScriptedExecutor(script), editor, tools=[wipe]) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        await client.set_session_mode(mode_id="plan", session_id=made.session_id)
        await client.prompt(made.session_id, text("go"))
    assert (ran, editor.asked) == ([], [])


async def test_a_block_that_is_not_declared_is_refused_and_nothing_runs() -> None:
    editor = Editor()
    async with editing(ScriptedExecutor(TWICE), editor) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        image: list[Any] = [ImageContentBlock(type="image", data="AAAA", mime_type="image/png")]
        with pytest.raises(RequestError) as refused:
            await client.prompt(made.session_id, image)
        assert refused.value.code == -32602
        await client.prompt(made.session_id, text("go"))
    assert editor.said == "One."


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("session/new", {"cwd": "here", "mcpServers": []}, -32602),
        ("session/new", {"cwd": CWD, "additionalDirectories": ["."], "mcpServers": []}, -32602),
        ("session/new", {"cwd": CWD, "mcpServers": [SSE]}, -32602),
        ("session/load", {"cwd": CWD, "sessionId": "nobody", "mcpServers": []}, -32002),
        ("session/prompt", {"sessionId": "nobody", "prompt": []}, -32002),
        ("session/delete", {"sessionId": "nobody"}, -32601),
        ("no/such", {}, -32601),
        ("initialize", {"protocolVersion": 1}, -32600),
    ],
)
async def test_what_cannot_be_is_refused_with_its_code(method: str, params: Any, code: int) -> None:
    async with wire(ScriptedExecutor(TWICE)) as (reader, writer, _):
        lines = Lines(reader, writer)
        await lines.session()
        assert (await lines.call(method, params, 1))["error"]["code"] == code


async def test_nothing_is_served_before_initialize() -> None:
    async with wire(ScriptedExecutor(TWICE)) as (reader, writer, _):
        answer = await Lines(reader, writer).call("session/new", {"cwd": CWD, "mcpServers": []}, 1)
        assert answer["error"]["code"] == -32600


async def test_sessions_wait_for_a_check_that_says_yes() -> None:
    known: list[bool] = [False, True]
    async with wire(ScriptedExecutor(TWICE), auth={"key": lambda: known.pop(0)}) as (reader, writer, _):
        lines = Lines(reader, writer)
        told = await lines.call("initialize", {"protocolVersion": 1}, 0)
        assert [method["id"] for method in told["result"]["authMethods"]] == ["key"]
        new = {"cwd": CWD, "mcpServers": []}
        assert (await lines.call("session/new", new, 1))["error"]["code"] == -32000
        assert (await lines.call("authenticate", {"methodId": "key"}, 2))["error"]["code"] == -32000
        assert (await lines.call("session/new", new, 3))["error"]["code"] == -32000
        assert "result" in await lines.call("authenticate", {"methodId": "key"}, 4)
        assert "result" in await lines.call("session/new", new, 5)


async def test_a_client_that_dies_in_a_prompt_leaves_nothing_running() -> None:
    ran: list[str] = []

    def wipe(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return "gone"

    store = MemoryRecordStore()
    executor = ScriptedExecutor([[Call("wipe", {"path": "a"}), Say("Not reached.")]], store=store)
    before = asyncio.all_tasks()
    async with wire(executor, tools=[wipe], policy=ask_all) as (reader, writer, serving):
        lines = Lines(reader, writer)
        session = await lines.session()
        lines.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}, 1)
        while (await lines.next()).get("method") != "session/request_permission":
            pass
        writer.transport.abort()
        await serving
        again = await executor.load(session)  # nobody has it open any more
        ends = [event async for event in again.events(types={"stream_end"})]
        assert [event.reason for event in ends if isinstance(event, StreamEnd)][-1] == "aborted"
        assert list(again.pending) == []
        await again.aclose()
    assert (ran, asyncio.all_tasks() - before) == ([], set())
