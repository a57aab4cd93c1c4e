"""Sessions that stay open, as the routes need them, in their simplest form: bare, and closed by name alone."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from agentsession.protocol import (
    AbortResult,
    AgentDescriptor,
    AgentExecutor,
    AgentSession,
    Answer,
    Content,
    EventReader,
    ExecutionOptions,
    MemoryRecordStore,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    RecordInfo,
    RecordKey,
    RecordStore,
    SessionConfig,
    SessionState,
    SteerData,
)

__all__ = ["BareSession", "BareSessions"]


@dataclasses.dataclass(frozen=True)
class BareAgent:
    name: str
    executor: AgentExecutor
    host: object | None = None


@dataclasses.dataclass(frozen=True)
class Begun:
    stream_id: str
    turn_id: str
    receipts: Sequence[Receipt]
    cursor: int


class BareSession:
    def __init__(self, key: RecordKey, session: AgentSession) -> None:
        self.key = key
        self.session = session
        self.is_hosted = False
        self.holds = 0

    @property
    def state(self) -> SessionState:
        return self.session.state

    @property
    def pending(self) -> Sequence[PendingRequest]:
        return self.session.pending

    @property
    def last_seq(self) -> int:
        return self.session.last_seq

    @property
    def descriptor(self) -> AgentDescriptor:
        return self.session.descriptor

    async def stream(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> Begun:
        before = self.session.last_seq
        stream = self.session.stream(input, options)
        begun = Begun(stream.stream_id, stream.turn_id, stream.receipts, min(before, stream.cursor))
        await stream.aclose()
        return begun

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        return await self.session.respond(*answers)

    async def steer(self, data: Content | SteerData) -> Receipt:
        return await self.session.steer(data)

    async def update(self, config: SessionConfig) -> Receipt:
        return await self.session.update(config)

    async def abort(self, reason: str | None = None) -> AbortResult:
        return await self.session.abort(reason)

    async def close(self) -> None:
        await self.session.aclose()

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> EventReader:
        return self.session.events(after, follow, types=types, stream_id=stream_id, thread_id=thread_id)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        self.holds += 1
        try:
            yield
        finally:
            self.holds -= 1


class BareSessions:
    def __init__(self, *executors: AgentExecutor, store: RecordStore | None = None) -> None:
        self.agents = {one.descriptor.name: BareAgent(one.descriptor.name, one) for one in executors}
        self.store: RecordStore = store or MemoryRecordStore()
        self.open_ones: dict[RecordKey, BareSession] = {}
        self._entered = contextlib.AsyncExitStack()

    async def __aenter__(self) -> BareSessions:
        for agent in self.agents.values():
            await self._entered.enter_async_context(agent.executor)
        return self

    async def __aexit__(self, *error: object) -> None:
        for live in self.open_ones.values():
            await live.close()
        await self._entered.aclose()

    def _add(self, agent: str, user_id: str, session: AgentSession) -> BareSession:
        key = RecordKey(agent, user_id, session.session_id)
        live = self.open_ones[key] = BareSession(key, session)
        return live

    async def open(self, agent: str, user_id: str, options: OpenOptions | None = None) -> BareSession:
        return self._add(agent, user_id, await self.agents[agent].executor.open(options, store=self.store))

    async def get(self, agent: str, user_id: str, session_id: str) -> BareSession:
        found = self.open_ones.get(RecordKey(agent, user_id, session_id))
        if found is not None and found.state != "closed":
            return found
        options = OpenOptions(user_id=user_id)
        loaded = await self.agents[agent].executor.load(session_id, options, store=self.store)
        return self._add(agent, user_id, loaded)

    async def fork(
        self, agent: str, user_id: str, session_id: str, at: int, options: OpenOptions | None = None
    ) -> BareSession:
        executor: Any = self.agents[agent].executor
        return self._add(agent, user_id, await executor.fork(session_id, at, options, store=self.store))

    async def rewind(self, agent: str, user_id: str, session_id: str, to: int) -> None:
        await self.agents[agent].executor.rewind(session_id, to, user_id, store=self.store)

    async def list(self, agent: str, user_id: str) -> Sequence[RecordInfo]:
        return await self.agents[agent].executor.list(user_id, store=self.store)

    async def delete(self, agent: str, user_id: str, session_id: str) -> None:
        live = self.open_ones.pop(RecordKey(agent, user_id, session_id), None)
        if live is not None:
            await live.close()
        await self.agents[agent].executor.delete(session_id, user_id, store=self.store)
