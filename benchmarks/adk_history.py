"""What a turn costs after 10, 100, 1,000 and 5,000 events: raw ADK, and a session of this adapter.

Each has a session of every length in a service of its own. The lengths take turns, from the shortest to the longest, so
that all of them see the same minutes; all turns of raw ADK come before ours, for one of its long turns goes over so
much that it leaves the processor's caches empty for whoever comes next. The model answers at once. What is read once,
by the first turn after a load, has a row of its own.
Elapsed seconds, with the garbage collector on.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, say
from agentsession.protocol import OpenOptions
from benchmarks._adk import APP, Services, fill, old_turns, opened, raw_runner, raw_turn, turn
from benchmarks._rows import Row

__all__ = ["rows"]

_LENGTHS = (10, 100, 1_000, 5_000)
_TURNS = 8
_GOAL = 2.0
"""A turn with the longest history costs at most this many times one with the shortest."""


def _agent() -> tuple[LlmAgent, ScriptedLlm]:
    model = ScriptedLlm(forever=say("Yes."))
    return LlmAgent(name=APP, model=model), model


async def _measure(services: Services) -> dict[tuple[str, int], list[float]]:
    times: dict[tuple[str, int], list[float]] = {}
    turns: list[tuple[tuple[str, int], ScriptedLlm, Any]] = []
    async with AsyncExitStack() as stack:
        for length in _LENGTHS:
            theirs = services.sessions()
            await theirs.create_session(app_name=APP, user_id="u", session_id="s")
            await fill(theirs, "u", "s", old_turns(length))
            agent, model = _agent()
            runner = raw_runner(agent, theirs)
            turns.append((("raw ADK", length), model, lambda runner=runner: raw_turn(runner)))
            ours = services.sessions()
            agent, model = _agent()
            executor = await stack.enter_async_context(AdkExecutor(agent, session_service=ours))
            session = await executor.open(OpenOptions(user_id="u", session_id="s"))
            await fill(ours, "u", "s", old_turns(length))
            turns.append((("adapter", length), model, lambda session=session: _timed(session)))
        for who in ("raw ADK", "adapter"):
            for _ in range(_TURNS + 1):
                for key, model, take in turns:
                    if key[0] == who:
                        times.setdefault(key, []).append(await take())
                        model.requests.clear()  # else the model would keep every history that it was shown
    return times


async def _timed(session: Any) -> float:
    start = time.perf_counter()
    assert await turn(session.stream("go")) == "completed"
    return time.perf_counter() - start


async def _with(folder: Path | None) -> dict[tuple[str, int], list[float]]:
    async with opened(Services(folder)) as services:
        return await _measure(services)


def rows() -> Iterator[Row]:
    """In memory and on SQLite: each length, raw ADK and here; the longest in terms of the shortest."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as place:
        for where, folder in (("in memory", None), ("SQLite", Path(place))):
            times = asyncio.run(_with(folder))
            for (who, length), taken in sorted(times.items(), key=lambda item: (item[0][0], item[0][1])):
                yield Row(f"{where}, {who}, {length:,} events", 1e3 * statistics.median(taken[1:]), "ms a turn")
            for who in ("raw ADK", "adapter"):
                pairs = zip(times[who, _LENGTHS[-1]][1:], times[who, _LENGTHS[0]][1:], strict=True)
                grows = statistics.median(long / short for long, short in pairs)
                goal = _GOAL if who == "adapter" else None
                yield Row(f"{where}, {who}, {_LENGTHS[-1]:,} events in terms of {_LENGTHS[0]}", grows, "times", goal)
            first = 1e3 * times["adapter", _LENGTHS[-1]][0]
            yield Row(f"{where}, adapter, {_LENGTHS[-1]:,} events, the first turn", first, "ms", note="reads all, once")
