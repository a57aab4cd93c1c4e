"""A process that is killed while a tool of a sub-agent runs, for real, and the next one that goes on from its file."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys
from pathlib import Path

import anyio

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import Host, SqliteRecordStore, SubagentTool, allow_all, child_events, tool
from agentsession.protocol import OpenOptions, ToolResponse

place, dies = Path(sys.argv[1]), sys.argv[2] == "dies"


@tool
def note(n: int) -> int:
    with open(place / "notes", "a") as file:
        file.write(f"{n} ")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def show(event):
    for one in child_events(event):
        if isinstance(one, ToolResponse):
            print(one.name, one.status)


async def main():
    steps = [Call("note", {"n": 1}), Call("note", {"n": 2}), Say("Noted.")]
    fixer = ScriptedExecutor([steps, steps[1:]], name="fixer", reenter=True)
    coder = ScriptedExecutor([[Call("fixer", {"task": "Note it."}), Say("Done.")]], name="coder", reenter=True)
    store = SqliteRecordStore(place / "records.db")
    async with store, fixer, coder:
        host = Host(tools=[note, SubagentTool(fixer, tools=["note"])], policy=allow_all, observer=show)
        if dies:
            session = await host.open(coder, OpenOptions(session_id="s"), store=store)
            await host.run_turn(session, "go")
        async with host.session(coder, load="s", store=store) as session:
            print((await host.run_turn(session)).text)


anyio.run(main)
"""


def _run(place: Path, how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(place), how]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_tool_of_a_sub_agent_that_a_kill_cut_off_is_unknown_and_the_sub_agent_goes_on(tmp_path: Path) -> None:
    killed = _run(tmp_path, "dies")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    after = _run(tmp_path, "lives")
    assert after.returncode == 0, after.stderr
    assert after.stdout.split("\n") == ["note unknown", "note completed", "Done.", ""]
    assert (tmp_path / "notes").read_text() == "1 2 "
