"""The command as an editor starts it: a process, its stdin and its stdout."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.host.acp.editor import Lines
from tests.host.acp.process import command

pytestmark = pytest.mark.anyio

SCRIPTED = """
import os, subprocess, sys
from agentsession.adapters.scripted import Call, Deltas, Say, ScriptedExecutor

print("a module that prints when it is imported")

def write(path: str) -> str:
    \"\"\"Write a file.\"\"\"
    print("a tool that prints")
    subprocess.run([sys.executable, "-c", "print('and its child')"], check=True)
    os.write(1, b"and below Python\\n")
    return "written"

agent = ScriptedExecutor([[Deltas(["Hel", "lo"])], [Call("write", {"path": "a"}), Say("Done.")]])
"""
ADK = """
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from agentsession.adapters.adk import ScriptedLlm, call, say

def shout(word: str) -> str:
    \"\"\"Say it loudly.\"\"\"
    print("loud")
    return word.upper()

root_agent = LlmAgent(
    name="root",
    model=ScriptedLlm(script=[call("shout", {"word": "hi"}), say("It is HI.")]),
    tools=[FunctionTool(shout)],
)
"""


async def test_stdout_carries_protocol_lines_alone(tmp_path: Path) -> None:
    async with command(tmp_path, SCRIPTED, "my_module:agent", "--tools", "my_module:write", "--allow", "write") as (
        lines,
        process,
    ):
        session = await lines.session()
        for number in (1, 2):
            prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
            answer = await lines.call("session/prompt", prompt, number)
            assert answer["result"]["stopReason"] == "end_turn"
        assert process.stdin is not None
        process.stdin.close()
        assert (await lines.reader.read()) == b""
        assert process.stderr is not None
        told = await process.stderr.read()
        assert await process.wait() == 0
    for words in (b"when it is imported", b"a tool that prints", b"and its child", b"and below Python"):
        assert words in told


SERVES = """
import asyncio
import os
from agentsession.adapters.scripted import ScriptedExecutor
from agentsession.host.acp import serve_acp

asyncio.run(serve_acp(ScriptedExecutor([])))
print("afterwards")
"""


async def test_stdout_is_the_programs_again_once_the_client_is_gone() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVES), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        told, _ = await process.communicate(b"")
    assert (told, process.returncode) == (b"afterwards\n", 0)


async def test_an_adk_agent_asks_and_runs_its_tool(tmp_path: Path) -> None:
    async with command(tmp_path, ADK, "my_module:root_agent") as (lines, _):
        session = await lines.session()
        lines.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}, 7)
        said, permissions = "", 0
        while True:
            message = await lines.next()
            if message.get("method") == "session/request_permission":
                permissions += 1
                outcome = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
                lines.raw(Lines.dump({"jsonrpc": "2.0", "id": message["id"], "result": outcome}))
            elif message.get("method") == "session/update":
                update = message["params"]["update"]
                if update["sessionUpdate"] == "agent_message_chunk":
                    said += update["content"]["text"]
            elif message.get("id") == 7:
                assert message["result"]["stopReason"] == "end_turn"
                break
    assert (said, permissions) == ("It is HI.", 1)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
async def test_sigterm_ends_the_process_and_its_turn(tmp_path: Path) -> None:
    async with command(tmp_path, SCRIPTED, "my_module:agent", "--tools", "my_module:write", "--store", "r.db") as (
        lines,
        process,
    ):
        session = await lines.session()
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
        await lines.call("session/prompt", prompt, 1)
        lines.send("session/prompt", prompt, 2)
        while (await lines.next()).get("method") != "session/request_permission":
            pass
        process.send_signal(signal.SIGTERM)
        assert await process.wait() != 0
    async with command(tmp_path, SCRIPTED, "my_module:agent", "--store", "r.db") as (lines, _):
        await lines.call("initialize", {"protocolVersion": 1}, 1)
        lines.send("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}, 2)
        answer, before = await lines.until(2)
        assert "result" in answer
        told = [message["params"]["update"] for message in before]
    assert [update["sessionUpdate"] for update in told] == [
        *("user_message_chunk", "agent_message_chunk", "user_message_chunk", "tool_call")
    ]
    assert told[-1]["status"] == "failed"


@pytest.mark.skipif(os.name == "nt", reason="files can be read and written there")
@pytest.mark.parametrize("name", ["stdin", "stdout"])
def test_a_file_in_the_place_of_an_editor_is_said_before_the_agent_is_loaded(tmp_path: Path, name: str) -> None:
    words = [sys.executable, "-m", "agentsession.host.cli", "acp", "no_such_module:agent"]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    with (tmp_path / "lines").open("w+b") as file:
        streams[name] = file
        done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60, check=False, **streams)
    assert done.returncode == 2
    assert f"{name} is a file" in done.stderr
    assert "an editor starts the command" in done.stderr
