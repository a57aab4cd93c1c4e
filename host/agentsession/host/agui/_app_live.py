"""What the application needs of sessions that stay open: the calls of ``agentsession.host.live``, as protocols.

Not for: an implementation. Rules carried: none of its own. May import: ``protocol``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from agentsession.host import Host
from agentsession.protocol import (
    AbortResult,
    AgentDescriptor,
    AgentExecutor,
    AgentSession,
    Answer,
    EventReader,
    ExecutionOptions,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    SessionConfig,
    SessionState,
)

__all__ = ["LiveSession", "LiveSessions", "ServedAgent", "Started"]


class ServedAgent(Protocol):
    """An agent under its name, with the host that controls it, if there is one."""

    @property
    def executor(self) -> AgentExecutor: ...

    @property
    def host(self) -> Host | None: ...


class Started(Protocol):
    """A stream that began; it goes on, whoever reads it."""

    @property
    def turn_id(self) -> str: ...

    @property
    def receipts(self) -> Sequence[Receipt]: ...


class LiveSession(Protocol):
    """One session that stays open for clients that come and go."""

    @property
    def session_id(self) -> str: ...

    @property
    def session(self) -> AgentSession: ...

    @property
    def agent(self) -> ServedAgent: ...

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
        self, input: MessageInput | Sequence[Answer] | None = None, options: ExecutionOptions | None = None
    ) -> Started: ...

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        """Hosted: what a person says; where a turn waits and nothing runs, it goes on by itself."""
        ...

    async def update(self, config: SessionConfig) -> Receipt: ...

    async def abort(self, reason: str | None = None) -> AbortResult: ...

    async def at_rest(self) -> None:
        """Wait until nobody works: no stream runs, and no host is about to go on with one."""
        ...

    def events(self, after: int | None = None, follow: bool = False) -> EventReader: ...

    def hold(self) -> AbstractContextManager[None]:
        """It is not closed for idleness meanwhile."""
        ...


class LiveSessions(Protocol):
    """The sessions of some agents; each is its user's."""

    @property
    def agents(self) -> Mapping[str, ServedAgent]: ...

    async def open(self, agent: str, user_id: str, options: OpenOptions | None = None) -> LiveSession: ...

    async def get(self, agent: str, user_id: str, session_id: str) -> LiveSession: ...
