"""How a host drives a session: the calls, as typing protocols that every executor's sessions satisfy.

Not for: an implementation (executors get one from ``agentsession.adapters``). Rules carried: the calls' parts of LIFE,
ORD and CTL, named at each call. May import: the models, ``_services``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self, runtime_checkable

from agentsession.protocol._content import Content
from agentsession.protocol._descriptor import AgentDescriptor
from agentsession.protocol._events import ElicitationRequest, Event, StreamEnd, ToolRequest
from agentsession.protocol._hooks import LifecycleInterceptor
from agentsession.protocol._inputs import (
    AbortResult,
    Answer,
    ExecutionOptions,
    MessageInput,
    OpenOptions,
    Receipt,
    SessionConfig,
    SteerData,
)
from agentsession.protocol._services import RecordInfo, RecordStore

__all__ = [
    "AgentExecutor",
    "AgentSession",
    "EventReader",
    "EventStream",
    "PendingRequest",
    "SessionState",
    "SharesLimits",
]

SessionState = Literal["new", "idle", "running", "input_required", "closed"]
"""Where a session stands: see the state table in docs/reference/lifecycle.md."""

PendingRequest = ToolRequest | ElicitationRequest
"""A request that waits for the host."""


@runtime_checkable
class EventReader(Protocol):
    """Reads the record from a cursor. Leaving the iteration detaches and stops nothing. Rules: ORD-03 to ORD-11."""

    @property
    def cursor(self) -> int:
        """The seq of the last event that was passed, also of one that a filter skipped."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Event:
        """The next event. Raises :class:`ConnectionLost` when the executor vanished."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def aclose(self) -> None:
        """Detach."""
        ...


@runtime_checkable
class EventStream(EventReader, Protocol):
    """The events of one stream, ending after its ``stream_end``. Rules: LIFE-05, LIFE-06, LIFE-08."""

    @property
    def stream_id(self) -> str:
        """Known before any event of the stream. Rule: LIFE-06."""
        ...

    @property
    def turn_id(self) -> str:
        """The turn that the stream belongs to."""
        ...

    @property
    def receipts(self) -> Sequence[Receipt]:
        """One for each answer that was given to ``stream()``."""
        ...

    @property
    def end(self) -> StreamEnd | None:
        """The last event, once it was read."""
        ...


@runtime_checkable
class AgentSession(Protocol):
    """One conversation with one agent, driven by a host."""

    @property
    def session_id(self) -> str: ...

    @property
    def descriptor(self) -> AgentDescriptor: ...

    @property
    def state(self) -> SessionState: ...

    @property
    def pending(self) -> Sequence[PendingRequest]:
        """The requests that wait for the host, oldest first."""
        ...

    @property
    def last_seq(self) -> int:
        """The last seq of the record: the largest valid cursor."""
        ...

    def stream(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> EventStream:
        """Start a turn with a message, or continue the waiting one with answers or with nothing.

        A message while requests are pending first settles them in a stream of its own. Options hold for that turn.

        Raises:
            StreamActive: a stream runs; nothing was recorded. Rule: LIFE-07.
            NothingToContinue: no answer applied, or nothing waits; nothing was opened.
            SessionClosed: the session is closed.
        """
        ...

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        """Answer pending requests, in any state but closed, also while the stream runs.

        Returns a receipt for each, in order, once stored: applied, stale, not_found or invalid.
        Raises :class:`SessionClosed`. Rules: TOOL-07 to TOOL-10, TOOL-14, HITL-08.
        """
        ...

    async def steer(self, data: Content | SteerData) -> Receipt:
        """Give the working agent something to read before its next model call; queued or rejected, at once.

        Raises :class:`Unimplemented` without the capability ``steering``, :class:`SessionClosed`. Rule: CTL-06.
        """
        ...

    async def update(self, config: SessionConfig) -> Receipt:
        """Change model, mode, tools, title, state or open config, wholly or not at all. Rule: CTL-07."""
        ...

    async def abort(self, reason: str | None = None) -> AbortResult:
        """End the turn; returns after its final ``stream_end``. Idempotent. Rules: CTL-01 to CTL-05.

        Raises :class:`AbortTimeout` when the executor does not end in the grace time; the session is then closed.
        """
        ...

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> EventReader:
        """Read the record after a cursor (default: from its start); ``follow`` keeps reading live.

        Raises :class:`CursorGone` for a cursor beyond the last. Rules: ORD-05 to ORD-10.
        """
        ...

    async def aclose(self) -> None:
        """Close from any task of the loop: aborts a running stream. Rule: LIFE-13."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class SharesLimits(Protocol):
    """A session whose turn may be at work beside others under one limit, such as the sub-agents of a host.

    A session need not have this: its turns then keep the limits that they began with.
    """

    def limit_own(self, *, model_calls: int | None = None, cost: float | None = None) -> None:
        """What the present turn's own model calls may come to in all, those made before among them.

        Its limits only become tighter by it; at them it ends as at its own, before its next model call. Costs are in
        US dollars. ``None``, and a call outside a turn, changes nothing.
        """
        ...


@runtime_checkable
class AgentExecutor(Protocol):
    """Runs an agent; entered with ``async with``, which owns the only task group."""

    @property
    def descriptor(self) -> AgentDescriptor: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...

    async def open(
        self,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> AgentSession:
        """Start a session; ``hooks`` are asked at the points of its life.

        Raises :class:`SessionExists`, :class:`InvalidInput`, :class:`ConfigurationError`.
        """
        ...

    async def load(
        self,
        session_id: str,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> AgentSession:
        """Open a stored session, taking its lock; read-only but for closing a stream that was cut. Rule: PER-04.

        Raises :class:`SessionNotFound`, :class:`SessionBusy`, :class:`Unimplemented`.
        """
        ...

    async def list(self, user_id: str = "local", *, store: RecordStore | None = None) -> Sequence[RecordInfo]:
        """The user's stored sessions with this agent, newest first."""
        ...

    async def delete(self, session_id: str, user_id: str = "local", *, store: RecordStore | None = None) -> None:
        """Remove a stored session and all it holds. Raises :class:`SessionNotFound`, :class:`SessionBusy`."""
        ...

    async def fork(
        self,
        session_id: str,
        at: int,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> AgentSession:
        """Copy the record up to seq ``at`` to a new session; its pending requests are settled there. Rule: PER-05."""
        ...

    async def rewind(
        self, session_id: str, to: int, user_id: str = "local", *, store: RecordStore | None = None
    ) -> None:
        """Take back what came after seq ``to``, in a session that is open here and not running, or in a stored one.

        The record keeps everything and gets a ``custom`` event of the kind ``rewind``; ``without_rewound`` gives what
        counts. What is pending is settled first. Rule: PER-06.

        Raises :class:`CursorGone` and :class:`InvalidInput` for a seq that cannot be rewound to, :class:`StreamActive`,
        :class:`SessionNotFound`, :class:`SessionBusy`, :class:`Unimplemented`.
        """
        ...
