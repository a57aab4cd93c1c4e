"""What the routes need of sessions that are kept open: the shape of ``agentsession.host.live``.

Not for: keeping them. Rules carried: none. May import: ``agentsession.protocol``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from agentsession.protocol import (
    AbortResult,
    AgentDescriptor,
    AgentExecutor,
    Answer,
    Content,
    EventReader,
    ExecutionOptions,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    RecordInfo,
    RecordKey,
    SessionConfig,
    SessionState,
    SteerData,
)

__all__ = ["Agent", "Session", "Sessions", "Started"]


class Agent(Protocol):
    """One agent that is served."""

    @property
    def name(self) -> str: ...

    @property
    def executor(self) -> AgentExecutor: ...

    @property
    def host(self) -> object | None: ...


class Started(Protocol):
    """What a call of ``stream`` has begun."""

    @property
    def stream_id(self) -> str: ...

    @property
    def turn_id(self) -> str: ...

    @property
    def receipts(self) -> Sequence[Receipt]: ...

    @property
    def cursor(self) -> int: ...


class Session(Protocol):
    """One session that is open."""

    @property
    def key(self) -> RecordKey: ...

    @property
    def is_hosted(self) -> bool: ...

    @property
    def state(self) -> SessionState: ...

    @property
    def pending(self) -> Sequence[PendingRequest]: ...

    @property
    def last_seq(self) -> int: ...

    @property
    def descriptor(self) -> AgentDescriptor: ...

    async def stream(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> Started: ...

    async def respond(self, *answers: Answer) -> Sequence[Receipt]: ...

    async def steer(self, data: Content | SteerData) -> Receipt: ...

    async def update(self, config: SessionConfig) -> Receipt: ...

    async def abort(self, reason: str | None = None) -> AbortResult: ...

    async def close(self) -> None: ...

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> EventReader: ...

    def hold(self) -> AbstractContextManager[object]: ...


class Sessions(Protocol):
    """All of them."""

    @property
    def agents(self) -> Mapping[str, Agent]: ...

    async def open(self, agent: str, user_id: str, options: OpenOptions | None = None) -> Session: ...

    async def get(self, agent: str, user_id: str, session_id: str) -> Session: ...

    async def fork(
        self, agent: str, user_id: str, session_id: str, at: int, options: OpenOptions | None = None
    ) -> Session: ...

    async def rewind(self, agent: str, user_id: str, session_id: str, to: int) -> None: ...

    async def list(self, agent: str, user_id: str) -> Sequence[RecordInfo]: ...

    async def delete(self, agent: str, user_id: str, session_id: str) -> None: ...
