"""A session of 200,000 durable events on SQLite: appending, loading, reading from the end, memory.

Each turn is a host's tool that is asked for and answered, and some messages. ``python -m benchmarks record_growth``.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio

from agentsession.adapters.base import BaseExecutor, BaseSession, RunContext
from agentsession.host import SqliteRecordStore
from agentsession.protocol import AgentDescriptor, OpenOptions, ToolRequest, result
from benchmarks._rows import Row

__all__ = ["rows"]

_EVENTS: Final = 200_000
_PART: Final = 1000
_SAYS: Final = 12


class _Clerk(BaseExecutor):
    descriptor = AgentDescriptor(
        name="clerk", executor="benchmark", capabilities=["abort", "load", "host_tool_execution"]
    )

    async def run(self, ctx: RunContext) -> None:
        name = ctx.new_id("c")
        await ctx.request(ToolRequest(request_id=name, name="look", args={"item": name}, needs="result"))
        for number in range(_SAYS):
            await ctx.say(f"{number}: there are three of them in stock, and two more on their way")


async def _turn(session: BaseSession) -> None:
    async with session.stream("How many are there?") as stream:
        async for _ in stream:
            pass
    answers = [result(request.request_id, "3") for request in session.pending]
    async with session.stream(answers) as stream:
        async for _ in stream:
            pass


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    begin = time.perf_counter()
    await work()
    return time.perf_counter() - begin


async def _grow(path: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    async with SqliteRecordStore(path) as store, _Clerk(store=store) as executor:
        session = await executor.open(OpenOptions(session_id="long"))
        parts: list[tuple[float, float, int]] = []
        while session.recorder.known.events < _EVENTS:
            begin, cpu, first = time.perf_counter(), time.process_time(), session.recorder.known.events
            while session.recorder.known.events - first < _PART:
                await _turn(session)
            count = session.recorder.known.events - first
            parts.append((time.perf_counter() - begin, time.process_time() - cpu, count))
        # The median of ten parts at either end, past the first, in which everything is done for the first time.
        for number, name in ((0, ""), (1, " cpu")):
            found[f"first{name}"] = statistics.median(part[number] / part[2] * _PART for part in parts[1:11])
            found[f"last{name}"] = statistics.median(part[number] / part[2] * _PART for part in parts[-10:])
        found["in memory"] = len(session.record)
        await session.aclose()
        key = session.recorder.key

        async def tail() -> None:
            assert len(await store.select(key, newest=True, limit=50)) == 50

        found["tail"] = await _timed(tail)
        found["info"] = await _timed(lambda: store.info(key))
        found["events"] = float((await store.info(key)).events or 0)

    for name, every in (("load", 1000), ("fold", None)):
        async with SqliteRecordStore(path) as store, _Clerk(store=store, snapshot_every=every) as executor:
            gc.collect()
            begin = time.perf_counter()
            await executor.load("long")
            found[name] = time.perf_counter() - begin
    async with SqliteRecordStore(path) as store, _Clerk(store=store) as executor:
        session = await executor.load("long")
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        count = 0
        async for _ in session.events():
            count += 1
            if count == 20_000:
                break
        found["reader"] = (tracemalloc.get_traced_memory()[1] - before) / 1e6
        tracemalloc.stop()
    return found


def rows() -> Iterator[Row]:
    """One session, grown, left, loaded and read."""
    with tempfile.TemporaryDirectory() as folder:
        found = anyio.run(_grow, Path(folder) / "records.db")
    yield Row("durable events in one session", found["events"], "events")
    yield Row("appending 1,000, the first ten times", found["first cpu"], "s of the processor")
    yield Row("the last ten times", found["last cpu"], "s of the processor")
    yield Row("the last in terms of the first", found["last cpu"] / found["first cpu"], "times, processor", 1.2)
    yield Row("the last in terms of the first, elapsed", found["last"] / found["first"], "times, elapsed")
    yield Row("events in memory at the end", found["in memory"], "events")
    yield Row("the last 50, read from the store", found["tail"] * 1000, "ms")
    yield Row("title, counts and state", found["info"] * 1000, "ms")
    yield Row("load, with snapshots", found["load"], "s")
    yield Row("load, without", found["fold"], "s")
    yield Row("memory that a reader from the start takes, at most", found["reader"], "MB")
