"""Many sessions in one process: what 10,000 idle ones hold, and how opening and turns grow with their number.

Each measurement has a process of its own, since memory that was once taken is not always given back. Memory is the
resident set above what it was after the imports.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks._rows import Row

__all__ = ["rows"]

_GOAL_MB = 400.0

_PROGRAM = """
import asyncio, gc, json, sys, time
import os

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import Host, allow_all, tool

count, turns = int(sys.argv[1]), int(sys.argv[2])

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

@tool(read_only=True)
def look() -> str:
    return "seen"

async def main():
    host = Host(tools=[look], policy=allow_all)
    gc.collect()
    before = resident_mb()
    laps = []
    async with ScriptedExecutor([[Call("look"), Say("I have looked at it.")]] * max(turns, 1)) as executor:
        kept = []
        for tenth in range(10):
            start = time.process_time()
            for _ in range(count // 10):
                session = await host.open(executor)
                for _ in range(turns):
                    await host.run_turn(session, "Look at it.")
                kept.append(session)
            laps.append(time.process_time() - start)
        gc.collect()
        print(json.dumps({"mb": resident_mb() - before, "tasks": len(asyncio.all_tasks()), "laps": laps}), flush=True)
        os._exit(0)

asyncio.run(main())
"""


def _measure(count: int, turns: int) -> dict[str, object]:
    words = [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(count), str(turns)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def rows() -> Iterator[Row]:
    for turns, name in ((0, "opened"), (1, "after a turn with a tool")):
        found = _measure(10_000, turns)
        laps = found["laps"]
        assert isinstance(laps, list)
        assert isinstance(found["mb"], float)
        note = f"{found['tasks']} task in the loop"
        yield Row(f"10,000 idle sessions, {name}", found["mb"], "MB", _GOAL_MB, note)
        yield Row(f"last 1,000 beside the first, {name}", laps[-1] / laps[0], "times")
