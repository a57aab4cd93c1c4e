"""An ADK agent, a host, and the tools of a real MCP server: whole, as a user has them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from tests.host.cli.command import Command
from tests.host.mcp.serving import LIMIT_S, SERVER, Log, relisted, served

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say
from agentsession.host import Host, Rule, RulePolicy, ScriptedChannel
from agentsession.host.mcp import McpTools
from agentsession.protocol import ToolResponse

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def stock_of(item: str) -> int:
    """How many there are."""
    return 3


def offered(model: Any, number: int) -> set[str]:
    declared = model.requests[number].config.tools
    return {each.name for tool in declared for each in tool.function_declarations}


async def test_an_agent_uses_a_servers_tools_beside_a_function_and_gets_a_new_one_in_its_next_turn() -> None:
    script = [
        call("stock_of", {"item": "pens"}),
        call("fs_grow"),
        call("fs_greet"),
        say("grown"),
        call("fs_new"),
        say("done"),
    ]
    model = ScriptedLlm(script=script)
    channel = ScriptedChannel(answers={"clarification": ("accept", {"name": "Ann"})})
    policy = RulePolicy([Rule("allow", ["stock_*", "fs_*"])])
    with served(Log()) as port, anyio.fail_after(LIMIT_S):
        async with McpTools.http("fs", f"http://127.0.0.1:{port}/mcp") as tools:
            host = Host(tools=[tools, stock_of], policy=policy, channel=channel)
            executor = AdkExecutor(LlmAgent(name="clerk", model=model))
            async with executor, host.session(executor) as session:
                changed = relisted(tools)
                assert (await host.run_turn(session, "grow")).text == "grown"
                await changed.wait()
                assert (await host.run_turn(session, "use it")).text == "done"
                responses = [event async for event in session.events() if isinstance(event, ToolResponse)]
    assert [(each.name, each.data) for each in responses] == [
        ("stock_of", 3),
        ("fs_grow", {"result": "grown"}),
        ("fs_greet", {"result": "hello Ann"}),
        ("fs_new", "new"),
    ]
    assert "fs_new" not in offered(model, 0)
    assert {"fs_new", "stock_of"} <= offered(model, 4)


def test_the_command_connects_the_servers_that_its_tools_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = Command(monkeypatch, capfd)
    (tmp_path / "mcp_shop.py").write_text(
        f"""
from google.adk.agents import LlmAgent
from agentsession.adapters.adk import ScriptedLlm, call, say
from agentsession.host import McpTools

agent = LlmAgent(name="clerk", model=ScriptedLlm(script=[call("fs_write", {{"path": "a"}}), say("Written.")]))
tools = [McpTools.stdio("fs", {[sys.executable, str(SERVER), str(tmp_path / "log")]!r})]
broken = [McpTools.stdio("fs", ["/nowhere/server"])]
"""
    )
    given = ("--allow", "fs_*", "-p", "Write.")
    done = command("run", "mcp_shop:agent", "--tools", "mcp_shop:tools", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Written." in done.stdout
    assert "write a 1" in (tmp_path / "log").read_text()
    failed = command("run", "mcp_shop:agent", "--tools", "mcp_shop:broken", *given, cwd=tmp_path)
    assert "error[mcp-unavailable]" in failed.stderr
    assert "Traceback" not in failed.stderr
