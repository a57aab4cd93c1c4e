"""Our client drives our own server: what it knows of a call is enough for rules by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from agentsession.adapters.acp import AcpExecutor
from agentsession.host import Host, Rule, RulePolicy
from agentsession.protocol import ToolRequest, ToolResponse

pytestmark = pytest.mark.anyio

SERVED = """
from pathlib import Path
from agentsession.adapters.scripted import Call, Calls, Say, ScriptedExecutor

def write(path: str) -> str:
    \"\"\"Write a file.\"\"\"
    Path(path).touch()
    return "written"

def wipe(path: str) -> str:
    \"\"\"Delete a file.\"\"\"
    Path(path).touch()
    return "gone"

tools = [write, wipe]
agent = ScriptedExecutor([[Calls(Call("write", {"path": "written"}), Call("wipe", {"path": "wiped"})), Say("Done.")]])
"""


async def test_a_rule_by_name_decides_on_each_call_of_our_own_server(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    command = [sys.executable, "-m", "agentsession.host.cli", "acp", "served:agent", "--tools", "served:tools"]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "XDG_STATE_HOME": str(tmp_path)}
    policy = RulePolicy([Rule("allow", "write"), Rule("deny", "wipe")])
    async with AcpExecutor(command, cwd=tmp_path, env=env) as executor:
        host = Host(policy=policy)
        with anyio.fail_after(30):
            async with host.session(executor) as session:
                result = await host.run_turn(session, "go")
                record = [event async for event in session.events()]
    assert {event.name for event in record if isinstance(event, ToolRequest)} == {"write", "wipe"}
    decided = {event.name: event.status for event in record if isinstance(event, ToolResponse)}
    assert decided == {"write": "completed", "wipe": "denied"}
    assert (result.end.reason, result.text) == ("completed", "Done.")
    assert [name for name in ("written", "wiped") if (tmp_path / name).exists()] == ["written"]
