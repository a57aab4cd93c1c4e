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


async def _part(session: BaseSession) -> tuple[float, float]:
    """Turns until a thousand events more are stored: seconds elapsed, and of the processor, for a thousand."""
    begin, cpu, first = time.perf_counter(), time.process_time(), session.recorder.known.events
    while session.recorder.known.events - first < _PART:
        await _turn(session)
    count = session.recorder.known.events - first
    return (time.perf_counter() - begin) / count * _PART, (time.process_time() - cpu) / count * _PART


async def _at_the_end(long: BaseSession, path: Path, found: dict[str, float]) -> None:
    """A part of the long session and the first parts of a new one in turn: what else the machine does, both feel."""
    pairs: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for number in range(10):
        async with SqliteRecordStore(path.with_name(f"{number}.db")) as store, _Clerk(store=store) as executor:
            new = await executor.open(OpenOptions(session_id="new"))
            await _turn(new)  # what is done once
            pairs.append((await _part(long), await _part(new)))
    for place, name in ((0, ""), (1, " cpu")):
        found[f"last{name}"] = statistics.median(old[place] for old, _ in pairs)
        found[f"first{name}"] = statistics.median(new[place] for _, new in pairs)
        found[f"ratio{name}"] = statistics.median(old[place] / new[place] for old, new in pairs)


async def _grow(path: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    async with SqliteRecordStore(path) as store, _Clerk(store=store) as executor:
        session = await executor.open(OpenOptions(session_id="long"))
        while session.recorder.known.events < _EVENTS:
            await _turn(session)
        await _at_the_end(session, path, found)
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
    yield Row("appending 1,000 to it", found["last cpu"], "s of the processor")
    yield Row("appending the first 1,000 to a new one", found["first cpu"], "s of the processor")
    yield Row("the one in terms of the other", found["ratio cpu"], "times, processor", 1.2)
    yield Row("the same, elapsed", found["ratio"], "times, elapsed", 1.2)
    yield Row("events in memory at the end", found["in memory"], "events")
    yield Row("the last 50, read from the store", found["tail"] * 1000, "ms")
    yield Row("title, counts and state", found["info"] * 1000, "ms")
    yield Row("load, with snapshots", found["load"], "s")
    yield Row("load, without", found["fold"], "s")
    yield Row("memory that a reader from the start takes, at most", found["reader"], "MB")
