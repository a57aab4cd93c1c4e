"""Sessions that stay open, as the application needs them, in their simplest form: for its tests."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentsession.host import Approval, CallbackChannel, Host
from agentsession.protocol import (
    AbortResult,
    AgentDescriptor,
    AgentExecutor,
    AgentSession,
    Answer,
    ElicitationAnswer,
    EventReader,
    ExecutionOptions,
    Message,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    RecordStore,
    SessionConfig,
    SessionNotFound,
    SessionState,
    ToolDenial,
    ToolGrant,
    ToolRequest,
)

__all__ = ["LiveSessions", "Person", "ServedAgent"]


class Person(CallbackChannel):
    """Says what clients have said; leaves waiting what nobody has answered."""

    def __init__(self) -> None:
        self.words: dict[str, Answer] = {}
        super().__init__(self._approve, self._ask, concurrent=True)

    def _approve(self, request: ToolRequest, decision: Any, position: Any) -> Approval:
        word = self.words.pop(request.request_id, None)
        if isinstance(word, ToolGrant):
            return Approval.yes(word.args)
        return Approval.no(word.reason) if isinstance(word, ToolDenial) else Approval.pause()

    def _ask(self, request: Any, position: Any) -> ElicitationAnswer | None:
        word = self.words.pop(request.request_id, None)
        return word if isinstance(word, ElicitationAnswer) else None


@dataclasses.dataclass(frozen=True)
class ServedAgent:
    name: str
    executor: AgentExecutor
    host: Host | None = None
    store: RecordStore | None = None
    person: Person | None = None


@dataclasses.dataclass(frozen=True)
class Begun:
    turn_id: str
    receipts: Sequence[Receipt] = ()


class LiveSession:
    def __init__(self, agent: ServedAgent, session: AgentSession) -> None:
        self.agent = agent
        self.session = session
        self.turn: asyncio.Task[Any] | None = None

    @property
    def session_id(self) -> str:
        return self.session.session_id

    @property
    def is_hosted(self) -> bool:
        return self.agent.host is not None

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
        self, input: MessageInput | Sequence[Answer] | None = None, options: ExecutionOptions | None = None
    ) -> Begun:
        if self.agent.host is None:
            async with self.session.stream(input, options) as stream:
                return Begun(stream.turn_id, stream.receipts)
        assert isinstance(input, MessageInput)
        after = self.session.last_seq
        self._go_on(input, options)
        async for event in self.session.events(after, follow=True, types={"message"}):
            if isinstance(event, Message) and event.message_id == input.message_id:
                assert event.turn_id is not None
                return Begun(event.turn_id)
        raise AssertionError

    def _go_on(self, input: MessageInput | None = None, options: ExecutionOptions | None = None) -> None:
        assert self.agent.host is not None
        self.turn = asyncio.create_task(self.agent.host.run_turn(self.session, input, options))

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        if self.agent.person is None:
            return await self.session.respond(*answers)
        self.agent.person.words.update({answer.request_id: answer for answer in answers})
        self._go_on()
        return [Receipt(status="applied", request_id=answer.request_id) for answer in answers]

    async def update(self, config: SessionConfig) -> Receipt:
        return await self.session.update(config)

    async def abort(self, reason: str | None = None) -> AbortResult:
        if self.agent.host is not None:
            await self.agent.host.abort(reason, session=self.session)
        return await self.session.abort(reason)

    async def at_rest(self) -> None:
        if self.turn is not None:
            await asyncio.wait([self.turn])

    def events(self, after: int | None = None, follow: bool = False) -> EventReader:
        return self.session.events(after, follow)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        yield


class LiveSessions:
    def __init__(self, agents: Sequence[ServedAgent]) -> None:
        self.agents: Mapping[str, ServedAgent] = {agent.name: agent for agent in agents}
        self._open: dict[tuple[str, str, str], LiveSession] = {}
        self._entered = contextlib.AsyncExitStack()

    async def __aenter__(self) -> LiveSessions:
        for agent in self.agents.values():
            await self._entered.enter_async_context(agent.executor)
        return self

    async def __aexit__(self, *error: object) -> None:
        for live in self._open.values():
            await live.session.aclose()
        await self._entered.aclose()

    async def open(self, agent: str, user_id: str, options: OpenOptions | None = None) -> LiveSession:
        served = self.agents[agent]
        opener: Any = served.executor.open if served.host is None else _opener(served)
        session = await opener(options, store=served.store)
        return self._open.setdefault((agent, user_id, session.session_id), LiveSession(served, session))

    async def get(self, agent: str, user_id: str, session_id: str) -> LiveSession:
        served = self.agents[agent]
        found = self._open.get((agent, user_id, session_id))
        if found is not None:
            return found
        if served.store is None:
            raise SessionNotFound("no such session")
        options = OpenOptions(user_id=user_id)
        if served.host is not None:
            session = await served.host.open(served.executor, options, load=session_id, store=served.store)
        else:
            session = await served.executor.load(session_id, options, store=served.store)
        return self._open.setdefault((agent, user_id, session_id), LiveSession(served, session))


def _opener(served: ServedAgent) -> Any:
    async def opened(options: OpenOptions | None, store: RecordStore | None) -> AgentSession:
        assert served.host is not None
        return await served.host.open(served.executor, options, store=store)

    return opened
