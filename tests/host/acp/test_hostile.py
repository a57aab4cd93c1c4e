"""Clients that send what they should not: ``_meta`` over arguments, broken lines, answers that nobody asked for."""

from __future__ import annotations

import pytest
from tests.host.acp.editor import CWD, Lines, wire

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor, Step
from agentsession.host import ask_all

pytestmark = pytest.mark.anyio


async def test_meta_names_no_other_session_and_no_other_prompt() -> None:
    script: list[list[Step]] = [[Say("Mine.")], [Say("Mine again.")]]
    async with wire(ScriptedExecutor(script)) as (reader, writer, _):
        lines = Lines(reader, writer)
        mine = await lines.session()
        other = (await lines.call("session/new", {"cwd": CWD, "mcpServers": []}, 1))["result"]["sessionId"]
        hostile = {"session_id": other, "prompt": [], "mode_id": "autonomous", "update": {}, "cwd": "relative"}
        prompt = {"sessionId": mine, "prompt": [{"type": "text", "text": "go"}], "_meta": hostile}
        lines.send("session/prompt", prompt, 2)
        answer, before = await lines.until(2)
        assert answer["result"]["stopReason"] == "end_turn"
        told = {m["params"]["sessionId"] for m in before if m["params"]["update"]["sessionUpdate"].endswith("chunk")}
        assert told == {mine}
        mode = {"sessionId": mine, "modeId": "plan", "_meta": hostile}
        assert "result" in await lines.call("session/set_mode", mode, 3)
        loaded = await lines.call(
            "session/load", {"sessionId": mine, "cwd": CWD, "mcpServers": [], "_meta": hostile}, 4
        )
        assert loaded["result"]["modes"]["currentModeId"] == "plan"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"[]", -32700),
        (b"\xff\xfe", -32700),
        (b'{"a": NaN}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"x": "' + b"y" * 2_000_000 + b'"}', -32700),
        (b"{}", -32600),
        (b'{"jsonrpc": "2.0", "id": [1], "method": "initialize"}', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "result": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "error": "no"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
    ],
)
async def test_a_broken_line_is_answered_and_the_next_is_read(line: bytes, code: int) -> None:
    async with wire(ScriptedExecutor([[Say("Still here.")]])) as (reader, writer, _):
        lines = Lines(reader, writer)
        lines.raw(line)
        told = await lines.next()
        assert (told["id"], told["error"]["code"]) == (None, code)
        assert await lines.session()


async def test_answers_that_nobody_asked_for_change_nothing() -> None:
    async with wire(ScriptedExecutor([[Say("Still here.")]])) as (reader, writer, _):
        lines = Lines(reader, writer)
        for answer in (b'{"jsonrpc":"2.0","id":0,"result":{}}', b'{"jsonrpc":"2.0","id":"0","result":null}'):
            lines.raw(answer)
        assert await lines.session()


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"outcome": "selected", "optionId": "allow_once"},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "allowed", "optionId": "allow_once"}},
        {"outcome": {"outcome": "selected", "optionId": True}},
        None,
        True,
    ],
)
async def test_a_permission_that_cannot_be_read_runs_nothing(result: object) -> None:
    ran: list[str] = []

    def wipe(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return "gone"

    script: list[list[Step]] = [[Call("wipe", {"path": "a"}), Say("Well.")]]
    async with wire(ScriptedExecutor(script), tools=[wipe], policy=ask_all) as (reader, writer, _):
        lines = Lines(reader, writer)
        session = await lines.session()
        lines.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}, 1)
        while (asked := await lines.next()).get("method") != "session/request_permission":
            pass
        lines.raw(Lines.dump({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
        answer, _before = await lines.until(1)
    assert (ran, answer["result"]["stopReason"]) == ([], "end_turn")


async def test_cancel_request_of_a_prompt_cancels_it() -> None:
    script: list[list[Step]] = [[Call("_wipe", {"path": "a"}), Say("Not reached.")]]
    async with wire(ScriptedExecutor(script), tools=[_wipe], policy=ask_all) as (reader, writer, _):
        lines = Lines(reader, writer)
        session = await lines.session()
        lines.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}, 9)
        while (await lines.next()).get("method") != "session/request_permission":
            pass
        lines.send("$/cancel_request", {"requestId": 9})
        answer, _before = await lines.until(9)
        assert answer["result"]["stopReason"] == "cancelled"


async def test_a_prompt_and_its_cancel_in_one_write_end_cancelled() -> None:
    script: list[list[Step]] = [[Call("_wipe", {"path": "a"}), Say("Not reached.")]]
    async with wire(ScriptedExecutor(script), tools=[_wipe], policy=ask_all) as (reader, writer, _):
        lines = Lines(reader, writer)
        session = await lines.session()
        lines.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}, 9)
        lines.send("session/cancel", {"sessionId": session})
        answer, _before = await lines.until(9)
        assert answer["result"]["stopReason"] == "cancelled"


def _wipe(path: str) -> str:
    """Delete a file."""
    raise AssertionError(path)
