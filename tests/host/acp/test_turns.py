"""Prompts: one turn with its updates, its permissions and its end, seen by the SDK's own client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from acp import RequestError
from tests.host.acp.editor import CWD, Editor, editing, text

from agentsession.adapters.scripted import Call, Calls, Deltas, End, Raise, Say, ScriptedExecutor, Step, Think
from agentsession.host import PolicyDecision, PolicyRequest, ask_all

pytestmark = pytest.mark.anyio


class Ran:
    """A tool of the host, and what it was run with."""

    def __init__(self) -> None:
        self.args: list[dict[str, Any]] = []

    def write(self, path: str) -> str:
        """Write a file."""
        self.args.append({"path": path})
        return "written"


async def test_a_prompt_streams_the_text_before_its_answer() -> None:
    editor = Editor()
    async with editing(ScriptedExecutor([[Think("Hm."), Deltas(["Hel", "lo"])]]), editor) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        answer = await client.prompt(made.session_id, text("hi"))
        assert answer.stop_reason == "end_turn"
        assert editor.said == "Hello"
        assert [chunk.content.text for chunk in editor.of("agent_thought_chunk")] == ["Hm."]
        assert len({chunk.message_id for chunk in editor.of("agent_message_chunk")}) == 1
        assert not editor.of("user_message_chunk"), "the client knows what it said"


async def test_a_call_runs_after_the_person_allowed_it() -> None:
    editor, ran = Editor(), Ran()
    script: list[list[Step]] = [[Call("write", {"path": "a.txt"}), Say("Done.")]]
    async with editing(ScriptedExecutor(script), editor, tools=[ran.write], policy=ask_all) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
    assert ran.args == [{"path": "a.txt"}]
    call, options = editor.asked[0]
    assert options == ["allow_once", "allow_always", "reject_once", "reject_always"]
    assert call.raw_input == {"path": "a.txt"}
    assert call.field_meta == {"agentsession": {"name": "write"}}
    [start] = editor.of("tool_call")
    assert (start.tool_call_id, start.status, start.locations[0].path) == (call.tool_call_id, "pending", f"{CWD}/a.txt")
    assert [update.status for update in editor.of("tool_call_update")] == ["in_progress", "completed"]
    assert editor.of("tool_call_update")[-1].content[0].content.text == "written"


@pytest.mark.parametrize("choice", ["reject_once", "reject_always", "yes", "ALLOW_ONCE", ""])
async def test_all_but_the_offered_yes_is_a_denial(choice: str) -> None:
    editor, ran = Editor(lambda call: choice), Ran()
    script: list[list[Step]] = [[Call("write", {"path": "a.txt"}), Say("Well.")]]
    async with editing(ScriptedExecutor(script), editor, tools=[ran.write], policy=ask_all) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        answer = await client.prompt(made.session_id, text("go"))
    assert (ran.args, answer.stop_reason, editor.said) == ([], "end_turn", "Well.")
    last = editor.of("tool_call_update")[-1]
    assert last.status == "failed"
    assert last.field_meta["agentsession"]["status"] == "denied"


async def test_always_is_a_denial_where_the_policy_does_not_offer_it() -> None:
    def ask_each_time(request: PolicyRequest) -> PolicyDecision:
        return PolicyDecision("ask_user", remember="never")

    editor, ran = Editor(lambda call: "allow_always"), Ran()
    script: list[list[Step]] = [[Call("write", {"path": "a.txt"}), Say("Well.")]]
    async with editing(ScriptedExecutor(script), editor, tools=[ran.write], policy=ask_each_time) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
    assert (ran.args, [options for _, options in editor.asked]) == (
        [],
        [["allow_once", "reject_once", "reject_always"]],
    )
    assert editor.of("tool_call_update")[-1].field_meta["agentsession"]["status"] == "denied"


async def test_always_is_asked_once_in_a_session() -> None:
    editor, ran = Editor(lambda call: "allow_always"), Ran()
    script: list[list[Step]] = [[Call("write", {"path": "a.txt"}), Call("write", {"path": "a.txt"}), Say("Done.")]]
    async with editing(ScriptedExecutor(script), editor, tools=[ran.write], policy=ask_all) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
    assert (len(ran.args), len(editor.asked)) == (2, 1)


async def test_reject_always_is_asked_once_in_a_session() -> None:
    editor, ran = Editor(lambda call: "reject_always"), Ran()
    script: list[list[Step]] = [[Call("write", {"path": "a"}), Call("write", {"path": "b"}), Say("Well.")]]
    async with editing(ScriptedExecutor(script), editor, tools=[ran.write], policy=ask_all) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        await client.prompt(made.session_id, text("go"))
    assert (len(ran.args), len(editor.asked)) == (0, 1)


async def test_a_cancelled_permission_ends_the_turn() -> None:
    editor, ran = Editor(lambda call: None), Ran()
    script: list[list[Step]] = [[Call("write", {"path": "a.txt"}), Say("Not reached.")]]
    async with editing(ScriptedExecutor(script), editor, tools=[ran.write], policy=ask_all) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        answer = await client.prompt(made.session_id, text("go"))
    assert (ran.args, answer.stop_reason, editor.said) == ([], "cancelled", "")


async def test_cancel_during_two_permissions_ends_the_prompt_with_cancelled_and_runs_nothing() -> None:
    ran, both, never = Ran(), asyncio.Event(), asyncio.Event()

    async def permit(call: Any) -> str:
        if len(editor.asked) == 2:
            both.set()
        await never.wait()
        return "allow_once"

    editor = Editor(permit)
    script: list[list[Step]] = [
        [Calls(Call("write", {"path": "a"}), Call("write", {"path": "b"})), Say("Not reached.")],
        [Say("Next.")],
    ]
    async with editing(ScriptedExecutor(script), editor, tools=[ran.write], policy=ask_all) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        prompt = asyncio.create_task(client.prompt(made.session_id, text("go")))
        await both.wait()
        await client.cancel(made.session_id)
        assert (await prompt).stop_reason == "cancelled"
        assert [update.status for update in editor.of("tool_call_update")] == ["failed", "failed"]
        told = len(editor.updates)
        never.set()  # answers that come too late
        assert (await client.prompt(made.session_id, text("and now?"))).stop_reason == "end_turn"
        assert [update.session_update for update in editor.updates[told:]] == ["agent_message_chunk"]
    assert ran.args == []


async def test_a_second_prompt_is_refused_while_one_runs() -> None:
    go = asyncio.Event()

    async def permit(call: Any) -> str:
        await go.wait()
        return "reject_once"

    editor = Editor(permit)
    script: list[list[Step]] = [[Call("write", {"path": "a"}), Say("First.")]]
    async with editing(ScriptedExecutor(script), editor, tools=[Ran().write], policy=ask_all) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        prompt = asyncio.create_task(client.prompt(made.session_id, text("go")))
        await editor.was_asked.wait()
        with pytest.raises(RequestError) as refused:
            await client.prompt(made.session_id, text("me too"))
        assert refused.value.code == -32600
        go.set()
        assert (await prompt).stop_reason == "end_turn"
    assert editor.said == "First."


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_tokens", "max_tokens"), ("max_turns", "max_turn_requests"), ("refusal", "refusal")],
)
async def test_ends_have_their_stop_reason(reason: str, stop: str) -> None:
    async with editing(ScriptedExecutor([[Say("x"), End(reason)]]), Editor()) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        assert (await client.prompt(made.session_id, text("go"))).stop_reason == stop


async def test_an_exception_of_the_agent_is_an_error_without_its_text() -> None:
    async with editing(ScriptedExecutor([[Raise(RuntimeError("hunter2"))]]), Editor()) as client:
        made = await client.new_session(CWD, mcp_servers=[])
        with pytest.raises(RequestError) as failed:
            await client.prompt(made.session_id, text("go"))
        told = failed.value.data or {}
        assert (failed.value.code, told["code"]) == (-32603, "failed")
        assert "hunter2" not in str(failed.value) + str(told)
