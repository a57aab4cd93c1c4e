"""A prompt turn of an ACP agent as events: what it says, does and asks, in the order of the wire."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.acp.acting import LS, OPTIONS, agent, answer, ask, asks, chunk, end, of, permission, said, update

from agentsession.protocol import (
    Custom,
    ElicitationRequest,
    ExecutionOptions,
    Message,
    OpenOptions,
    SessionUpdate,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    Usage,
    accept,
    decline,
    deny,
    grant,
    plain_text,
    result,
)

pytestmark = pytest.mark.anyio


async def test_chunks_become_deltas_and_one_closing(tmp_path: Path) -> None:
    async with agent(tmp_path, [chunk("Hel"), chunk("lo"), answer()]) as executor:
        events = of(await said(await executor.open(), "hi"), Message)[1:]
    assert [(each.partial, plain_text(each.content)) for each in events] == [
        (True, "Hel"),
        (True, "lo"),
        (False, "Hello"),
    ]


async def test_a_thought_without_an_id_closes_the_text_before_it(tmp_path: Path) -> None:
    turn = [chunk("a"), chunk("b", "agent_thought_chunk"), chunk("c"), answer()]
    async with agent(tmp_path, turn) as executor:
        whole = [each for each in of(await said(await executor.open(), "hi"), Message)[1:] if not each.partial]
    assert [each.content[0].type for each in whole] == ["text", "thought", "text"]


async def test_a_call_is_held_until_its_permission_request_makes_it_whole(tmp_path: Path) -> None:
    async with agent(tmp_path, asks(answer())) as executor:
        events = await said(await executor.open(), "hi")
    requests = of(events, ToolRequest)
    assert [(each.partial, each.needs, each.args) for each in requests] == [
        (True, "grant", None),
        (False, "grant", {"command": "ls"}),
    ]
    assert end(events).reason == "input_required"
    assert end(events).data == {"volatile": [requests[0].request_id]}


async def test_a_permission_request_that_leaves_out_the_name_does_not_change_it(tmp_path: Path) -> None:
    named = update("tool_call", toolCallId="t1", _meta={"claudeCode": {"toolName": "Bash"}}, **LS)
    async with agent(tmp_path, [named, permission(7, "t1", _meta={"more": 1}), {"read": 1}, answer()]) as executor:
        events = await said(await executor.open(), "hi")
    assert [(each.name, each.partial) for each in of(events, ToolRequest)] == [("Bash", True), ("Bash", False)]


async def test_a_grant_allows_once_and_not_always(tmp_path: Path) -> None:
    finished = update("tool_call_update", toolCallId="t1", status="completed", rawOutput={"files": 2})
    async with agent(tmp_path, asks(finished, answer())) as executor:
        session = await executor.open()
        await said(session, "hi")
        events = await said(session, grant(session.pending[0].request_id))
        assert executor.reply_to(7)["result"] == {"outcome": {"outcome": "selected", "optionId": "yes"}}
    (response,) = of(events, ToolResponse)
    assert (response.status, response.data) == ("completed", {"files": 2})
    assert end(events).reason == "completed"


async def test_a_denial_rejects_once(tmp_path: Path) -> None:
    late = update("tool_call_update", toolCallId="t1", status="failed")
    async with agent(tmp_path, asks(late, answer())) as executor:
        session = await executor.open()
        await said(session, "hi")
        events = await said(session, deny(session.pending[0].request_id, "no"))
        assert executor.reply_to(7)["result"] == {"outcome": {"outcome": "selected", "optionId": "no"}}
    assert [each.status for each in of(session.record, ToolResponse)] == ["denied"]
    assert end(events).reason == "completed"


async def test_a_denial_that_the_agent_has_no_option_for_cancels_the_prompt(tmp_path: Path) -> None:
    turn: list[Any] = asks({"until": "session/cancel"}, answer("cancelled"), options=OPTIONS[:1])
    async with agent(tmp_path, turn) as executor:
        session = await executor.open()
        await said(session, "hi")
        events = await said(session, deny(session.pending[0].request_id))
        assert executor.reply_to(7)["result"] == {"outcome": {"outcome": "cancelled"}}
    assert end(events).reason == "aborted"


async def test_edited_arguments_are_invalid_and_stay_pending(tmp_path: Path) -> None:
    async with agent(tmp_path, asks(answer())) as executor:
        session = await executor.open()
        await said(session, "hi")
        (receipt,) = await session.respond(grant(session.pending[0].request_id, {"command": "pwd"}))
        assert receipt.status == "invalid"
        assert len(session.pending) == 1


async def test_a_grant_is_invalid_where_the_agent_can_only_be_allowed_for_ever(tmp_path: Path) -> None:
    async with agent(tmp_path, asks(answer(), options=OPTIONS[1:])) as executor:
        session = await executor.open()
        await said(session, "hi")
        (receipt,) = await session.respond(grant(session.pending[0].request_id))
        assert receipt.status == "invalid"


async def test_a_call_that_never_asks_needs_nobody(tmp_path: Path) -> None:
    turn: list[Any] = [
        update("tool_call", toolCallId="t1", **LS),
        update("tool_call_update", toolCallId="t1", status="in_progress"),
        update("tool_call_update", toolCallId="t1", status="failed"),
        update("tool_call_update", toolCallId="t1", status="completed"),
        answer(),
    ]
    async with agent(tmp_path, turn) as executor:
        events = await said(await executor.open(), "hi")
    assert [each.needs for each in of(events, ToolRequest) if not each.partial] == ["none"]
    assert [(each.status, each.is_error) for each in of(events, ToolResponse)] == [("failed", True)]


async def test_what_has_begun_and_never_ended_is_unknown_and_what_has_not_is_cancelled(tmp_path: Path) -> None:
    turn: list[Any] = [
        update("tool_call", toolCallId="a", status="in_progress", **LS),
        update("tool_call", toolCallId="b", status="pending", **LS),
        answer(),
    ]
    async with agent(tmp_path, turn) as executor:
        events = await said(await executor.open(), "hi")
    assert [each.status for each in of(events, ToolResponse)] == ["unknown", "cancelled"]


async def test_two_permissions_are_asked_at_once_and_an_abort_cancels_both(tmp_path: Path) -> None:
    turn: list[Any] = [
        permission(7, "a", **LS),
        permission(8, "b", **LS),
        {"until": "session/cancel"},
        answer("cancelled"),
    ]
    async with agent(tmp_path, turn) as executor:
        session = await executor.open()
        events = await said(session, "hi")
        assert len(end(events).pending) == 2
        await session.abort("stop")
        assert (await said(session, "again"))[-1].reason == "completed"  # type: ignore[attr-defined]
        for number in (7, 8):
            assert executor.reply_to(number)["result"] == {"outcome": {"outcome": "cancelled"}}
    assert [each.status for each in of(session.record, ToolResponse)] == ["cancelled", "cancelled"]


async def test_meta_cannot_stand_in_for_what_was_checked(tmp_path: Path) -> None:
    attack: dict[str, Any] = {
        "session_id": "other",
        "sessionId": "other",
        "tool_call": {"toolCallId": "x"},
        "options": [],
    }
    turn: list[Any] = [
        permission(7, "t1", **LS),
        {"read": 1},
        ask(8, "fs/read_text_file", path="/etc/passwd", _meta={"path": str(tmp_path / "a")}),
        {"read": 1},
        answer(),
    ]
    turn[0]["send"]["params"]["_meta"] = attack
    options = OpenOptions(execution=ExecutionOptions(tools=[ToolDescriptor(name="read_text_file", owner="host")]))
    async with agent(tmp_path, turn) as executor:
        session = await executor.open(options)
        events = await said(session, "hi")
        assert [each.args for each in of(events, ToolRequest)] == [{"command": "ls"}]
        await said(session, grant(session.pending[0].request_id))
        assert executor.reply_to(8)["error"]["code"] == -32602


async def test_unknown_updates_content_and_reasons_are_kept(tmp_path: Path) -> None:
    turn: list[Any] = [
        update("mind_reading", depth=3),
        update("plan", entries=[{"content": "look", "priority": "high", "status": "pending"}]),
        update("agent_message_chunk", content={"type": "smell", "of": "rain"}),
        update(
            "tool_call", toolCallId="t", title="?", kind="teleport", status="completed", content=[{"type": "hologram"}]
        ),
        answer("tired"),
    ]
    async with agent(tmp_path, turn) as executor:
        events = await said(await executor.open(), "hi")
    kinds = {each.kind: each.data for each in of(events, Custom)}
    assert kinds["acp:mind_reading"]["depth"] == 3
    assert kinds["plan"]["entries"][0]["content"] == "look"
    assert "acp:smell" in [part.type for each in of(events, Message) for part in each.content]
    assert of(events, ToolRequest)[0].name == "teleport"
    assert of(events, ToolResponse)[0].content[0].type == "acp:hologram"
    assert end(events).reason == "tired"


async def test_title_mode_and_usage_are_taken(tmp_path: Path) -> None:
    turn: list[Any] = [
        update("session_info_update", title="A day"),
        update("current_mode_update", currentModeId="plan"),
        update("usage_update", used=10, size=1000, cost={"amount": 0.25, "currency": "USD"}),
        update("usage_update", cost={"amount": 10**400, "currency": "USD"}),
        answer(usage={"totalTokens": 9, "inputTokens": 5, "outputTokens": 4}),
    ]
    async with agent(tmp_path, turn) as executor:
        events = await said(await executor.open(), "hi")
    updates = of(events, SessionUpdate)
    assert (updates[0].title, updates[1].config) == ("A day", {"mode": "plan"})
    first, second = of(events, Usage)
    assert (first.context_window, first.cost) == (1000, 0.25)
    assert (second.input_tokens, second.output_tokens, second.total_tokens) == (5, 4, 9)


async def test_malformed_lines_are_left_out(tmp_path: Path) -> None:
    lines = ["{", "[]", "null", '{"id": [1], "result": 1}', '{"id": 3, "error": "x"}', '{"method": 5}', "NaN"]
    async with agent(tmp_path, [*({"line": line} for line in lines), chunk("on"), answer()]) as executor:
        events = await said(await executor.open(), "hi")
    assert end(events).reason == "completed"
    assert plain_text(of(events, Message)[-1].content) == "on"


async def test_a_call_that_was_denied_is_not_asked_about_again(tmp_path: Path) -> None:
    async with agent(tmp_path, asks(permission(8, "t1", **LS), {"read": 1}, answer())) as executor:
        session = await executor.open()
        await said(session, "hi")
        events = await said(session, deny(session.pending[0].request_id))
        assert executor.reply_to(8)["result"] == {"outcome": {"outcome": "selected", "optionId": "no"}}
    assert (of(events, ElicitationRequest), end(events).reason) == ([], "completed")


async def test_a_granted_call_that_asks_with_other_arguments_is_decided_on_anew(tmp_path: Path) -> None:
    other = permission(8, "t1", title="Remove", kind="delete", rawInput={"command": "rm"})
    async with agent(tmp_path, asks(other, {"read": 1}, answer())) as executor:
        session = await executor.open()
        await said(session, "hi")
        await said(session, grant(session.pending[0].request_id))
        (asked,) = session.pending
        assert isinstance(asked, ToolRequest)
        assert (asked.name, asked.args, asked.needs) == ("delete", {"command": "rm"}, "grant")
        events = await said(session, deny(asked.request_id))
        assert executor.reply_to(8)["result"] == {"outcome": {"outcome": "selected", "optionId": "no"}}
    assert [each.status for each in of(events, ToolResponse)] == ["denied", "unknown"]


async def test_a_call_that_waits_is_not_asked_about_in_another_way(tmp_path: Path) -> None:
    turn = [permission(7, "t1", **LS), permission(8, "t1", **LS), {"read": 2}, answer()]
    async with agent(tmp_path, turn) as executor:
        session = await executor.open()
        await said(session, "hi")
        assert [each.type for each in session.pending] == ["tool_request"]
        await said(session, grant(session.pending[0].request_id))
        assert executor.reply_to(8)["error"]["code"] == -32600
        assert executor.reply_to(7)["result"] == {"outcome": {"outcome": "selected", "optionId": "yes"}}


async def test_a_form_is_asked_and_its_content_given_back(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    turn: list[Any] = [
        ask(7, "elicitation/create", mode="form", message="Which?", requestedSchema=schema),
        {"read": 1},
        answer(),
    ]
    async with agent(tmp_path, turn) as executor:
        session = await executor.open()
        (question,) = of(await said(session, "hi"), ElicitationRequest)
        assert (question.kind, question.requested_schema) == ("clarification", schema)
        await said(session, accept(question.request_id, {"color": "blue"}))
        assert executor.reply_to(7)["result"] == {"action": "accept", "content": {"color": "blue"}}


async def test_a_url_is_a_question_for_a_login(tmp_path: Path) -> None:
    url = {"mode": "url", "url": "https://example.com/login", "elicitationId": "e1"}
    async with agent(
        tmp_path, [ask(7, "elicitation/create", message="Log in", **url), {"read": 1}, answer()]
    ) as executor:
        session = await executor.open()
        (question,) = of(await said(session, "hi"), ElicitationRequest)
        assert (question.kind, question.url) == ("auth_required", "https://example.com/login")
        await said(session, decline(question.request_id))
        assert executor.reply_to(7)["result"] == {"action": "decline"}


FILES = OpenOptions(
    execution=ExecutionOptions(
        tools=[ToolDescriptor(name=name, owner="host") for name in ("read_text_file", "write_text_file", "terminal")]
    )
)


async def test_a_file_is_read_by_the_host_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    turn: list[Any] = [ask(7, "fs/read_text_file", path=str(tmp_path / "link"), line=2), {"read": 1}, answer()]
    async with agent(tmp_path, turn) as executor:
        session = await executor.open(FILES)
        (request,) = of(await said(session, "hi"), ToolRequest)
        assert (request.owner, request.needs) == ("host", "result")
        assert request.args == {"path": os.path.realpath(tmp_path / "a.txt"), "line": 2}
        await said(session, result(request.request_id, "text"))
        assert executor.reply_to(7)["result"] == {"content": "text"}


@pytest.mark.parametrize("path", ["relative", "/etc/passwd", "$ROOT/../x", "$ROOT/out/x", "$ROOT\0"])
async def test_a_path_out_of_the_root_is_refused_and_nobody_is_asked(tmp_path: Path, path: str) -> None:
    (tmp_path / "out").symlink_to("/etc")
    asked = ask(7, "fs/write_text_file", path=path.replace("$ROOT", str(tmp_path)), content="x")
    async with agent(tmp_path, [asked, {"read": 1}, answer()]) as executor:
        events = await said(await executor.open(FILES), "hi")
        assert executor.reply_to(7)["error"]["code"] == -32602
    assert of(events, ToolRequest) == []


async def test_what_was_not_offered_is_no_method(tmp_path: Path) -> None:
    turn: list[Any] = [
        ask(7, "fs/read_text_file", path=str(tmp_path)),
        {"read": 1},
        ask(8, "terminal/create", command="ls"),
        {"read": 1},
        ask(9, "_agentsession/call_tool", name=["ls"], args={}),
        {"read": 1},
        answer(),
    ]
    async with agent(tmp_path, turn) as executor:
        events = await said(await executor.open(), "hi")
        assert [executor.reply_to(number)["error"]["code"] for number in (7, 8, 9)] == [-32601] * 3
    assert (of(events, ToolRequest), end(events).reason) == ([], "completed")


async def test_a_terminal_is_a_tool_of_the_hosts(tmp_path: Path) -> None:
    turn: list[Any] = [
        ask(7, "terminal/create", command="ls", args=["-l"], outputByteLimit=4),
        {"read": 1},
        ask(8, "terminal/wait_for_exit", terminalId="terminal-1"),
        {"read": 1},
        ask(9, "terminal/output", terminalId="terminal-1"),
        {"read": 1},
        answer(),
    ]
    async with agent(tmp_path, turn) as executor:
        session = await executor.open(FILES)
        (request,) = of(await said(session, "hi"), ToolRequest)
        assert request.args == {"command": "ls", "args": ["-l"], "cwd": os.path.realpath(tmp_path)}
        await said(session, result(request.request_id, {"output": "a.txt", "exit_code": 0}))
        assert executor.reply_to(8)["result"] == {"exitCode": 0, "signal": None}
        assert executor.reply_to(9)["result"]["output"] == ".txt"


async def test_a_denied_terminal_has_no_exit(tmp_path: Path) -> None:
    turn: list[Any] = [
        ask(7, "terminal/create", command="ls"),
        {"read": 1},
        ask(8, "terminal/wait_for_exit", terminalId="terminal-1"),
        {"read": 1},
        answer(),
    ]
    async with agent(tmp_path, turn) as executor:
        session = await executor.open(FILES)
        await said(session, "hi")
        await said(session, deny(session.pending[0].request_id))
        assert executor.reply_to(8)["error"]["code"] == -32001
