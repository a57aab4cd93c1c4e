"""Events per second through the executor base class: from the author's ``await`` to the host's ``async for``.

An event is built, stamped, checked by the state machine, appended, stored where there is a store, and read by every
reader. ``deltas`` are pieces of one message, ``whole`` are messages of one text part that the executor builds itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio

from agentsession.adapters.base import BaseExecutor, RunContext
from agentsession.adapters.base._stamping import delta, delta_template
from agentsession.protocol import (
    AgentDescriptor,
    AgentStart,
    ContentPart,
    EventReader,
    Initialize,
    MemoryRecordStore,
    Message,
    RecordStore,
    SessionMachine,
    Text,
)
from benchmarks._rows import Row, best_of

__all__ = ["rows"]

_EVENTS: Final = 20_000
_RUNS: Final = 3
_GOALS: Final = {("deltas", 1): 80_000.0, ("deltas", 10): 42_000.0}
"""Twice what a rough prototype did on the machine of the design."""


class _Talker(BaseExecutor):
    descriptor = AgentDescriptor(name="talker", executor="benchmark", capabilities=["abort"])

    def __init__(self, kind: str, count: int, store: RecordStore | None = None) -> None:
        super().__init__(store=store)
        self.kind = kind
        self.count = count

    async def run(self, ctx: RunContext) -> None:
        if self.kind == "deltas":
            async with ctx.message() as message:
                for _ in range(self.count):
                    await message.text("hello")
        else:
            content: list[ContentPart] = [Text(text="hello")]
            for number in range(self.count):
                await ctx.emit(Message(message_id=f"x{number}", content=content))


async def _talk(kind: str, count: int, readers: int, store: RecordStore | None = None) -> None:
    async def read(reader: EventReader) -> None:
        async with reader:
            async for _ in reader:
                pass

    async with _Talker(kind, count, store) as executor:
        session = await executor.open()
        async with anyio.create_task_group() as group:
            stream = session.stream("go")
            group.start_soon(read, stream)
            for _ in range(readers - 1):
                group.start_soon(read, session.events(follow=True, stream_id=stream.stream_id))


def _rate(
    kind: str, readers: int, backend: str, *, count: int = _EVENTS, runs: int = _RUNS, path: Path | None = None
) -> float:
    def work() -> None:
        store: RecordStore | None = None
        if path is not None:
            from agentsession.host import SqliteRecordStore

            store = SqliteRecordStore(path)
        anyio.run(_talk, kind, count, readers, store, backend=backend)

    return count / best_of(runs, work)


def _machine_alone() -> float:
    template = delta_template("m", "agent", "s", "s1", "t1", "a", None)
    deltas = [delta(template, "text", "hello", index, index + 3, "") for index in range(_EVENTS)]
    first = Initialize(id="e1", seq=1, session_id="s", protocol_version="1.0", descriptor=_Talker.descriptor)
    start = AgentStart(id="e2", seq=2, session_id="s", stream_id="s1", turn_id="t1", agent_id="a")

    def work() -> None:
        machine = SessionMachine()
        machine.feed(first)
        machine.feed(start)
        for event in deltas:
            machine.feed(event)

    return _EVENTS / best_of(_RUNS, work)


def _built() -> float:
    content: list[ContentPart] = [Text(text="hello")]
    return _EVENTS / best_of(_RUNS, lambda: [Message(message_id="m", content=content) for _ in range(_EVENTS)])


def rows() -> Iterator[Row]:
    """Deltas and whole messages, one and ten readers, asyncio and trio; what they are made of; stores."""
    for kind in ("deltas", "whole"):
        for readers in (1, 10):
            for backend in ("asyncio", "trio"):
                name = f"{kind}, {readers} reader{'s' if readers > 1 else ''}, {backend}"
                yield Row(name, _rate(kind, readers, backend), goal=_GOALS.get((kind, readers)))
    yield Row("the state machine alone, deltas", _machine_alone())
    yield Row("building a message of one text part", _built())
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield Row("whole, 1 reader, SQLite store, asyncio", _stored(Path(folder)))
        except ModuleNotFoundError:
            yield Row("whole, 1 reader, SQLite store, asyncio", 0.0, note="skipped: SQLAlchemy is not installed")
    yield Row("whole, 1 reader, memory store, asyncio", _in_memory())


def _stored(folder: Path) -> float:
    return _rate("whole", 1, "asyncio", count=2_000, runs=1, path=folder / "records.db")


def _in_memory() -> float:
    count = 10_000
    return count / best_of(_RUNS, lambda: anyio.run(_talk, "whole", count, 1, MemoryRecordStore()))
