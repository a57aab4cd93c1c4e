"""The host's hooks before and after a tool of a real ADK run: what a block does, and what a change does."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from tests.adapters.adk.driving import (
    Driven,
    agent,
    assert_valid_history,
    driven,
    history,
    host_tool,
    verify,
)
from tests.adapters.adk.hooking import Box, Desk, errors

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.protocol import (
    MemoryRecordStore,
    OpenOptions,
    args_digest,
    block,
    deny,
    grant,
    modify,
    result,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own sequential and parallel agents
]


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("gated", [True, False])
async def test_a_blocked_tool_runs_zero_times_nobody_is_asked_and_the_model_is_told(gated: bool) -> None:
    box = Box()
    desk = Desk(before_tool=block("not on Fridays", by="calendar", reason="freeze"))
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])
    async with driven(root, hooks=desk, execution={"host_tool_execution": gated}) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts, box.ran) == ("completed", ["done"], [])
        assert driver.responses() == {"write": "denied"}
        (decision,) = turn.of("tool_decision")
        assert (decision.decision, decision.by, decision.reason) == ("denied", "hook:calendar", "freeze")
        assert "denied: not on Fridays" in dict(history(root.model))["result c1"]
        assert_valid_history(root.model)


@pytest.mark.parametrize("parked", [True, False])
async def test_a_blocked_tool_of_the_host_is_never_asked_of_it(parked: bool) -> None:
    desk = Desk(before_tool=lambda p: block("no") if p.name == "look" else None)
    root = agent(calls(call("look", id="c1"), call("find", id="c2")), say("done"))
    async with driven(root, tools=[host_tool("look"), host_tool("find")], hooks=desk, parked=parked) as driver:
        turn = await driver.stream("go")
        assert [request.name for request in driver.session.pending] == ["find"]  # type: ignore[union-attr]
        turn = await driver.stream(result(driver.pending("find"), 1))
        assert (turn.reason, turn.texts) == ("completed", ["done"])
        assert driver.responses() == {"look": "denied", "find": "completed"}
        assert_valid_history(root.model)


@pytest.mark.rule("HITL-04")
async def test_changed_arguments_are_what_is_asked_what_is_approved_and_what_runs() -> None:
    box = Box()
    desk = Desk(before_tool=modify(args={"path": "/safe/a"}, by="jail"))
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])
    async with driven(root, hooks=desk) as driver:
        turn = await driver.stream("go")
        (request,) = turn.of("tool_request")
        assert (request.args, request.meta["hook"]) == ({"path": "/safe/a"}, {"by": "hook:jail", "changed": ["args"]})
        turn = await driver.stream(grant(request.request_id))
        (decision,) = turn.of("tool_decision")
        assert (decision.args_digest, decision.args) == (args_digest({"path": "/safe/a"}), None)
        assert (box.ran, turn.texts) == (["/safe/a"], ["done"])
    assert len(desk.at("before_tool")) == 1


async def test_changed_arguments_of_a_host_tool_are_those_that_the_host_gets() -> None:
    desk = Desk(before_tool=modify(args={"q": 2}))
    async with driven(agent(call("look", {"q": 1}, id="c1"), say("done")), tools=[host_tool("look")], hooks=desk) as d:
        await d.stream("go")
        assert d.session.pending[0].args == {"q": 2}  # type: ignore[union-attr]
        assert (await d.stream(result(d.pending("look"), 1))).reason == "completed"


@pytest.mark.rule("TOOL-04")
async def test_changed_arguments_that_do_not_fit_the_schema_block_the_call() -> None:
    box = Box()
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])
    async with driven(root, hooks=Desk(before_tool=modify(args={"path": 7}))) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, box.ran, driver.responses()) == ("completed", [], {"write": "denied"})
        assert errors(turn) == [("hook-failed", "a hook at before_tool gave arguments that do not fit write")]


@pytest.mark.rule("HITL-04")
async def test_arguments_that_the_host_edited_pass_the_hook_again_and_it_can_only_block() -> None:
    def jail(payload: Any) -> Any:
        path = payload.args["path"]
        return None if path.startswith("/safe/") else block("outside")

    box = Box()
    root = agent(*(call("write", {"path": "/safe/a"}, id=f"c{n}") for n in (1, 2)), say("done"), tools=[box.write])
    desk = Desk(before_tool=jail)
    async with driven(root, hooks=desk) as driver:
        await driver.stream("go")
        turn = await driver.stream(grant(driver.pending("write"), {"path": "/etc/passwd"}))
        assert (box.ran, turn.reason) == ([], "input_required")
        turn = await driver.stream(grant(driver.pending("write"), {"path": "/safe/b"}))
        assert (box.ran, turn.texts) == (["/safe/b"], ["done"])
        assert driver.responses() == {"write": "denied completed"}
    assert [payload.granted for payload in desk.at("before_tool")] == [False, True, False, True]


@pytest.mark.rule("HITL-04")
async def test_a_hook_that_changes_what_was_approved_blocks_the_call() -> None:
    box = Box()
    desk = Desk(before_tool=lambda p: modify(args={"path": "/etc/passwd"}) if p.granted else None)
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])
    async with driven(root, hooks=desk) as driver:
        await driver.stream("go")
        turn = await driver.stream(grant(driver.pending("write"), {"path": "b"}))
        assert (turn.reason, box.ran, driver.responses()) == ("completed", [], {"write": "denied"})
        assert "hook-failed" in [code for code, _ in errors(turn)]


@pytest.mark.rule("HITL-04")
async def test_a_call_that_outlives_its_process_runs_with_the_arguments_that_the_hook_gave_it(tmp_path: Any) -> None:
    box = Box()
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()
    options = OpenOptions(session_id="s1")

    def root() -> LlmAgent:
        return agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])

    async with AdkExecutor(root(), session_service=service, store=store) as executor:
        session = await executor.open(options, hooks=Desk(before_tool=modify(args={"path": "/safe/a"})))
        await Driven(executor, session).stream("go")
    later = Desk(before_tool=modify(args={"path": "/etc/passwd"}))
    last = agent(say("done"), tools=[box.write])
    async with AdkExecutor(last, session_service=service, store=store) as executor:
        session = await executor.load("s1", options, hooks=later)
        driver = Driven(executor, session)
        turn = await driver.stream(grant(driver.pending("write")))
        assert (turn.reason, turn.texts, box.ran) == ("completed", ["done"], ["/safe/a"])
        verify(session)
    assert later.at("before_tool") == []


async def test_a_hook_cannot_allow_what_the_host_denies() -> None:
    box = Box()
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])
    async with driven(root, hooks=Desk(before_tool=modify(args={"path": "b"}))) as driver:
        await driver.stream("go")
        turn = await driver.stream(deny(driver.pending("write"), "no"))
        assert (turn.reason, box.ran, driver.responses()) == ("completed", [], {"write": "denied"})


@pytest.mark.parametrize("word", ["allow", "ask", "PROCEED"])
async def test_a_word_that_is_no_action_is_a_failure_and_blocks_before_a_tool(word: str) -> None:
    from agentsession.protocol import HookOutcome

    box = Box()
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])
    async with driven(root, hooks=Desk(before_tool=HookOutcome(action=word))) as driver:
        await driver.stream("go")
        assert (box.ran, driver.responses()) == ([], {"write": "denied"})


async def test_a_changed_result_is_what_the_model_and_the_record_read() -> None:
    box = Box({"token": "sk-123", "ok": True})
    desk = Desk(after_tool=lambda p: modify(data={**p.data, "token": "***"}))
    root = agent(call("write", {"path": "a"}, id="c1"), say("done"), tools=[box.write])
    async with driven(root, hooks=desk) as driver:
        turn = await driver.turn("go")
        (response,) = turn.of("tool_response")
        assert response.data == {"token": "***", "ok": True}
        assert dict(history(root.model))["result c1"] == '{"ok": true, "token": "***"}'
        assert "sk-123" not in str([event.to_wire() for event in driver.session.record])
    assert box.answer == {"token": "sk-123", "ok": True}, "the tool's own object was changed"


async def test_a_result_that_waits_for_its_sibling_is_recorded_as_the_hook_left_it() -> None:
    box = Box({"token": "sk-123"})
    desk = Desk(after_tool=lambda p: modify(data="***") if p.name == "write" else None)
    root = agent(calls(call("write", {"path": "a"}, id="c1"), call("look", id="c2")), say("done"), tools=[box.write])
    async with driven(root, tools=[host_tool("look")], hooks=desk) as driver:
        await driver.stream("go")
        await driver.stream(grant(driver.pending("write")))
        assert driver.responses() == {"write": "completed"}
        assert "sk-123" not in str([event.to_wire() for event in driver.session.record])
        assert (await driver.stream(result(driver.pending("look"), 1))).reason == "completed"


async def test_a_blocked_result_is_withheld_from_the_model() -> None:
    root = agent(call("look", id="c1"), say("done"))
    async with driven(root, tools=[host_tool("look")], hooks=Desk(after_tool=block("withheld"))) as driver:
        await driver.turn("go", {"look": {"pin": 4711}})
        assert dict(history(root.model))["result c1"] == '{"error": "withheld"}'


async def test_a_hooks_result_takes_the_place_of_an_exception() -> None:
    def broken() -> str:
        raise RuntimeError("key=sk-123")

    desk = Desk(on_tool_error=modify(data={"retry": "later"}))
    root = agent(call("broken", id="c1"), say("done"), tools=[broken])
    async with driven(root, hooks=desk) as driver:
        turn = await driver.turn("go")
        (response,) = turn.of("tool_response")
        assert (response.status, response.data) == ("completed", {"retry": "later"})
    (payload,) = desk.at("on_tool_error")
    assert (payload.name, payload.error_type) == ("broken", "RuntimeError")
    assert "sk-123" not in payload.to_wire_json()
