"""A session that stays open for clients that come and go: the contract's calls, with or without a host in between.

Not for: opening, finding and closing sessions (``_sessions.py``). Rules carried: LIFE-06 and TOOL-07 to TOOL-10 of what
clients are told. May import: anyio, ``_hosted``, ``agentsession.host``, ``protocol``.

Bare, the client is the host: calls go to the session as they are. Hosted, the server's host drives each turn; a grant
or an answer of the client is what a person says to that host, and no client can grant what its policy denies.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Generator, Sequence

import anyio

from agentsession.host._host import Host
from agentsession.host.live._hosted import Hosted
from agentsession.protocol import (
    AbortResult,
    AgentDescriptor,
    AgentExecutor,
    AgentSession,
    Answer,
    Content,
    EventReader,
    ExecutionOptions,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    RecordKey,
    RecordStore,
    SessionConfig,
    SessionState,
    SteerData,
    ToolDescriptor,
)

__all__ = ["LiveSession", "ServedAgent", "Started"]


@dataclasses.dataclass(frozen=True, slots=True)
class ServedAgent:
    """An agent under the name that clients use."""

    name: str
    executor: AgentExecutor
    host: Host | None = None
    """Decides on calls and runs its tools; ``None``: each client is the host of its sessions. Its channel is not
    used: the client answers what it asks."""
    store: RecordStore | None = None
    """Where records are kept; ``None``: as long as the process lives."""
    model: str | None = None
    """The model of sessions whose client names none; ``None``: the agent's own."""

    def completed(self, options: OpenOptions) -> OpenOptions:
        """The options with what this agent is served with."""
        if self.model is None or options.execution.model is not None:
            return options
        execution = options.execution.model_copy(update={"model": self.model})
        return options.model_copy(update={"execution": execution})


@dataclasses.dataclass(frozen=True, slots=True)
class Started:
    """A stream that began, or that a message sent again was attached to; it goes on whoever reads it."""

    stream_id: str
    turn_id: str
    receipts: Sequence[Receipt]
    """One for each answer that was given."""
    cursor: int
    """A seq before the stream's first event: ``events(after=cursor, follow=True)`` misses none of them."""


class LiveSession:
    """One open session of :class:`agentsession.host.live.LiveSessions`; made there."""

    def __init__(
        self,
        key: RecordKey,
        agent: ServedAgent,
        session: AgentSession,
        hosted: Hosted | None,
        tell: Callable[[], None],
        options: OpenOptions,
    ) -> None:
        self.key = key
        self.agent = agent
        self.session = session
        self._hosted = hosted
        self._tell = tell
        self.options = options
        """What it was opened with, and what was changed since: to load it with."""
        self._holders = 0
        self.used_at = anyio.current_time()
        """When somebody last held it, or it was last seen at work (the event loop's clock, seconds)."""
        self.was_busy = False
        """At the last look something worked in it."""
        self.is_closing = False
        self.is_stopping = False
        """Closed because its server stops: whoever reads it may go on with the next one."""
        """Who asks for it now waits for that, and gets it loaded anew."""

    def __repr__(self) -> str:
        return f"LiveSession({self.key.agent!r}, {self.key.session_id!r}, {self.state})"

    # --- what is known ---------------------------------------------------------------------------------------------

    @property
    def is_hosted(self) -> bool:
        """Whether the server's host drives its turns."""
        return self._hosted is not None

    @property
    def client_tools(self) -> frozenset[str]:
        """The names of the tools that the client declared; bare, it has them all."""
        return frozenset(self._hosted.client_tools if self._hosted is not None else ())

    @property
    def session_id(self) -> str:
        return self.key.session_id

    @property
    def descriptor(self) -> AgentDescriptor:
        return self.session.descriptor

    @property
    def state(self) -> SessionState:
        return self.session.state

    @property
    def pending(self) -> Sequence[PendingRequest]:
        """What waits for the client, oldest first. Hosted, also what the host is still deciding on or running; and
        ``_meta.why`` of a call says why the host asks about it: ``by``, and ``reason``, ``where`` and ``scope`` where
        they are known. No agent's word is under that name."""
        return self.session.pending if self._hosted is None else self._hosted.pending

    @property
    def asked_below(self) -> Sequence[PendingRequest]:
        """Hosted, what sub-agents ask, oldest first: with threads and ids of this session, under which they are
        answered, and ``_meta.why`` as in :attr:`pending`."""
        return () if self._hosted is None else self._hosted.asked_below

    @property
    def last_seq(self) -> int:
        return self.session.last_seq

    @property
    def is_busy(self) -> bool:
        """Whether something works in it: a stream, or a host between two streams."""
        return self.state == "running" or (self._hosted is not None and self._hosted.is_driving)

    @property
    def is_held(self) -> bool:
        """Whether somebody uses it."""
        return self._holders > 0

    # --- the contract's calls --------------------------------------------------------------------------------------

    async def stream(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> Started:
        """Begin a stream, and return as soon as its id is known.

        A message whose idempotency key was seen is attached to its stream. Hosted, answers are taken as
        :meth:`respond` takes them, and the turn goes on when the last of them is there.

        Raises what ``AgentSession.stream`` raises: StreamActive, NothingToContinue, InvalidInput, SessionClosed.
        """
        with self.hold():
            if self._hosted is not None:
                return Started(*await self._hosted.stream(input, options))
            cursor = self.last_seq
            stream = self.session.stream(input, options)
            try:
                if stream.receipts:  # they hold when what they are for is stored: entering waits for that
                    await stream.__aenter__()
                # A stream that was attached to began before: its events begin where its reader does.
                return Started(stream.stream_id, stream.turn_id, tuple(stream.receipts), min(cursor, stream.cursor))
            finally:
                await stream.aclose()  # detaches; the work goes on

    def declare(self, tools: Sequence[ToolDescriptor]) -> None:
        """Hosted, say which tools the client runs: of those its results are taken. Those of a stream's options are
        declared with it; after the server was started again, nobody else says whose a waiting call is.

        Raises :class:`InvalidInput` for a name of the host's own.
        """
        if self._hosted is not None:
            self._hosted.declare(tools)

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        """Answer what waits; a receipt for each, once it is stored.

        Hosted, a grant or an answer is the person's word: the host judges again, and a waiting turn goes on by
        itself. A ``tool_grant`` allows the host's own tool, too; a ``tool_result`` is taken for a tool that the client
        declared, and for no other.
        """
        with self.hold():
            if self._hosted is not None:
                return await self._hosted.respond(answers)
            return await self.session.respond(*answers)

    async def steer(self, data: Content | SteerData) -> Receipt:
        """Give the working agent something to read (see ``AgentSession.steer``)."""
        with self.hold():
            return await self.session.steer(data)

    async def update(self, config: SessionConfig) -> Receipt:
        """Change model, mode, tools, title, state or config (see ``AgentSession.update``)."""
        with self.hold():
            calls = self._hosted if self._hosted is not None else self.session
            receipt = await calls.update(config)
            if receipt.ok:
                self._keep(config)
            return receipt

    def _keep(self, config: SessionConfig) -> None:
        changed: dict[str, object] = {}
        if config.tools is not None:
            changed["tools"] = config.tools
        if config.model is not None:
            changed["model"] = config.model
        if config.permission_mode is not None:
            changed["permission_mode"] = None  # the record has it from now on
        execution = self.options.execution.model_copy(update=changed)
        self.options = self.options.model_copy(update={"execution": execution})

    async def abort(self, reason: str | None = None) -> AbortResult:
        """End the turn (see ``AgentSession.abort``); what a host runs for it is cancelled first."""
        with self.hold():
            if self._hosted is not None:
                return await self._hosted.abort(reason)
            return await self.session.abort(reason)

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> EventReader:
        """Read the record from a cursor (see ``AgentSession.events``)."""
        return self.session.events(after, follow, types=types, stream_id=stream_id, thread_id=thread_id)

    async def at_rest(self) -> None:
        """Wait until nobody works: no stream runs, and no host is about to go on with one."""
        if self._hosted is not None:
            await self._hosted.at_rest()
            return
        if self.state == "running":
            async for _ in self.session.events(after=self.last_seq, follow=True, types={"stream_end"}):
                return

    @contextlib.contextmanager
    def hold(self) -> Generator[None]:
        """It is not closed for idleness meanwhile."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            self.used_at = anyio.current_time()
            self._tell()

    async def aclose(self) -> None:
        """Close it; a waiting turn stays in the record where the agent declares ``resume``."""
        if self._hosted is not None:
            await self._hosted.aclose()
        else:
            await self.session.aclose()
