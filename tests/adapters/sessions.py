"""What the tests of the base class share: an executor with a work function, checked sessions, a mortal store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from agentsession.adapters.base import BaseExecutor, BaseSession, RunContext, RunResult
from agentsession.adapters.scripted import Call, Calls, Deltas, Say, Step
from agentsession.protocol import (
    AgentDescriptor,
    Event,
    EventStream,
    MemoryRecordStore,
    Message,
    OpenOptions,
    RecordInfo,
    RecordKey,
    RecordStore,
    SessionMachine,
    StreamEnd,
    ToolDescriptor,
    ToolRequest,
    is_ephemeral,
    plain_text,
)

Work = Callable[[RunContext], Awaitable[RunResult | None]]

ALL = (
    "streaming",
    "host_tool_execution",
    "elicitation",
    "steering",
    "mid_turn_update",
    "abort",
    "load",
    "list",
    "delete",
    "fork",
    "rewind",
    "sub_agents",
)


class Puppet(BaseExecutor):
    """Runs ``work``; ``resume=True`` says that its waiting turns survive the process."""

    def __init__(
        self,
        work: Work,
        *,
        resume: bool = False,
        without: Iterable[str] = (),
        own_tools: Sequence[ToolDescriptor] = (),
        **base: Any,
    ) -> None:
        super().__init__(**base)
        self.work = work
        capabilities = [name for name in ALL if name not in set(without)] + (["resume"] if resume else [])
        self.descriptor = AgentDescriptor(
            name="puppet", executor="puppet", capabilities=capabilities, own_tools=list(own_tools)
        )
        self.closed: list[str] = []
        self.deleted: list[str] = []

    async def run(self, ctx: RunContext) -> RunResult | None:
        return await self.work(ctx)

    async def on_close(self, session: BaseSession) -> None:
        self.closed.append(session.session_id)

    async def on_delete(self, key: RecordKey) -> None:
        self.deleted.append(key.session_id)


@asynccontextmanager
async def session_of(work: Work | BaseExecutor, options: OpenOptions | None = None, **base: Any) -> AsyncIterator[Any]:
    """A session of an executor that runs ``work``; at its end the record is checked against the live state."""
    executor = work if isinstance(work, BaseExecutor) else Puppet(work, **base)
    with anyio.fail_after(5):
        async with executor:
            session = await executor.open(options)
            yield session
            await session.aclose()
            check(session)


def check(session: BaseSession) -> None:
    """The fold of the record is the live state. Rule: PER-03."""
    folded = SessionMachine.fold(session.record)
    live, told = session.machine.snapshot(ephemeral=False), folded.snapshot(ephemeral=False)
    if session.state == "closed":  # closing is no event
        live = live.model_copy(update={"state": told.state})
    assert told == live


async def read(stream: EventStream) -> list[Event]:
    """All events of a stream."""
    async with stream:
        return [event async for event in stream]


async def say(session: Any, text: str = "go") -> list[Event]:
    """The events of a new turn's first stream."""
    return await read(session.stream(text))


def kinds(events: Iterable[Event]) -> list[str]:
    return [event.type for event in events]


def only(events: Iterable[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def texts(events: Iterable[Event]) -> list[str]:
    """What was said in whole messages."""
    return [plain_text(event.content) for event in only(events, Message) if not event.partial]


def end_of(events: Sequence[Event]) -> StreamEnd:
    end = events[-1]
    assert isinstance(end, StreamEnd)
    return end


async def until(stream: Any, kind: type) -> Any:
    """Read on to the first event of that class."""
    async for event in stream:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


def asking() -> list[list[Step]]:
    """A script: a turn that asks for a result and for a grant, and another turn."""
    return [[Say("one"), Calls(Call("a", id="a"), Call("b", id="b", needs="grant")), Say("never")], [Say("next")]]


def tool(name: str = "look", needs: str = "result", **fields: Any) -> ToolRequest:
    """A tool request with an id of its name."""
    fields = {"request_id": name, "args": {}, "owner": "host" if needs == "result" else "agent", **fields}
    return ToolRequest(name=name, needs=needs, **fields)


class Killed(RuntimeError):
    """The process died."""


class MortalStore:
    """A record store whose process can be killed: from then on nothing reaches the records, and locks are free."""

    def __init__(self, inner: RecordStore | None = None, *, dies_at: int | None = None) -> None:
        self.inner = inner or MemoryRecordStore()
        self.dies_at = dies_at
        self.appends = 0
        self.dead = False
        self._locks: dict[RecordKey, str] = {}

    async def kill(self) -> MortalStore:
        """The process dies; the store as the next process finds it."""
        self.dead = True
        for key, owner in self._locks.items():
            await self.inner.unlock(key, owner)
        return type(self)(self.inner)

    def _alive(self) -> None:
        if self.dead:
            raise Killed

    async def create(self, key: RecordKey) -> None:
        self._alive()
        await self.inner.create(key)

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        self._alive()
        self.appends += 1
        if self.appends == self.dies_at:
            self.dead = True
            self._alive()
        assert not any(is_ephemeral(event) for event in events)
        await self.inner.append(key, events, reserved_seq=reserved_seq)

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> list[Event]:
        self._alive()
        return await self.inner.read(key, after=after, limit=limit)

    async def info(self, key: RecordKey) -> RecordInfo:
        self._alive()
        return await self.inner.info(key)

    async def list(self, agent: str, user_id: str) -> list[RecordInfo]:
        self._alive()
        return await self.inner.list(agent, user_id)

    async def delete(self, key: RecordKey) -> None:
        self._alive()
        await self.inner.delete(key)

    async def lock(self, key: RecordKey, owner: str) -> None:
        self._alive()
        await self.inner.lock(key, owner)
        self._locks[key] = owner

    async def unlock(self, key: RecordKey, owner: str) -> None:
        if not self.dead:
            await self.inner.unlock(key, owner)


def three_turns() -> list[list[Step]]:
    """A script for tests of stores: a turn with deltas, a host tool and a grant, and two that only say something."""
    return [
        [Deltas(["one ", "two"]), Calls(Call("a", id="a"), Call("b", id="b", needs="grant")), Say("done")],
        [Say("next")],
        [Say("third")],
    ]


async def stored(store: RecordStore, session: BaseSession) -> list[Event]:
    """The session's events as they are in the store."""
    return await store.read(session.recorder.key)
