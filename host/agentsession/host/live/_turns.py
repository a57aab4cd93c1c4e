"""The turns of one session that the server's host drives, for a client that only asks, answers and looks.

Not for: what the client answers (``_answers.py``), or what the host decides (``agentsession.host``).
Rules carried: TOOL-07 to TOOL-10 of turns that go on.
May import: anyio, ``_desk``, ``agentsession.host``, ``protocol``.

One task drives one turn, and ends with it or as soon as only people and clients are waited for. What they say then has
the turn run again, and everything is judged anew by the policy of that moment.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import TypeGuard

import anyio
import anyio.abc

from agentsession.host._host import Host
from agentsession.host._jobs import is_a_job
from agentsession.host.live._desk import Desk
from agentsession.protocol import (
    AbortResult,
    AgentSession,
    AgentSessionError,
    Event,
    EventStream,
    ExecutionOptions,
    Message,
    MessageInput,
    NothingToContinue,
    PendingRequest,
    Receipt,
    StreamActive,
    StreamEnd,
    ToolRequest,
)

__all__ = ["Begun", "Drive", "Turns"]

logger = logging.getLogger("agentsession.host.live")

Begun = tuple[str, str, Sequence[Receipt], int]
"""Of a stream: its id, its turn's, the receipts of what it was begun with, and a seq before its first event."""


@dataclasses.dataclass(slots=True, eq=False)
class Drive:
    """The task that drives a turn."""

    scope: anyio.CancelScope = dataclasses.field(default_factory=anyio.CancelScope)
    begun: Begun | None = None
    """Its first stream, once it is open."""
    failure: Exception | None = None
    is_over: bool = False


class Turns:
    """Drives the turns of one session, one at a time."""

    def __init__(self, host: Host, tasks: anyio.abc.TaskGroup) -> None:
        self.host = host
        self._tasks = tasks
        self._changed = anyio.Event()
        self.desk = Desk(self._look)
        self.client_tools: set[str] = set()
        """The names of the tools that the client declared."""
        self._unclaimed: set[str] = set()
        """Calls found at loading of tools that neither the host nor a client is known to have. They wait for one who
        declares the tool: after a restart that is all that tells a client's tool from one that the host dropped."""
        self._allowed: set[str] = set()
        """Calls of the client's that hooks and policy let pass; of others no result is taken."""
        self.session: AgentSession
        self.driving: Drive | None = None
        """The task that is at work."""
        self.last: Drive | None = None
        """The last one that there was."""
        self._is_closing = False

    def begin(self, session: AgentSession) -> None:
        """Take up the session, which the host has opened with :attr:`desk`, and this object as its client's tools."""
        self.session = session
        self._unclaimed = {
            request.request_id
            for request in session.pending
            if _is_a_hosts(request) and not self.has(request.name) and self.host.tools.get(request.name) is None
        }

    def has(self, name: str) -> bool:
        """Whether the client declared the tool, and the host has none of this name."""
        return name in self.client_tools and self.host.tools.get(name) is None

    def takes(self, request: ToolRequest) -> bool:
        """Whether the host leaves this call to the client."""
        return self.is_left(request)

    def allow(self, request: ToolRequest) -> None:
        """The client may run this call."""
        self._allowed = {request.request_id, *(one.request_id for one in self.session.pending if self._is_allowed(one))}
        self._tell()

    async def judged(self, request: PendingRequest) -> bool:
        """Whether the client may run a call of its own. Where nobody judged it since the session was loaded, the turn
        is run again for it."""
        if not self._is_allowed(request) and not self.is_driving and self.session.state == "input_required":
            self.drive(None, None)
        while not self._is_allowed(request) and self.is_driving and self.waits(request.request_id):
            await self.change()
        return self._is_allowed(request)

    def _is_allowed(self, request: PendingRequest) -> bool:
        return request.request_id in self._allowed

    def waits(self, request_id: str) -> bool:
        """Whether this request waits for an answer."""
        return any(item.request_id == request_id for item in self.session.pending)

    @property
    def is_driving(self) -> bool:
        """Whether the host is at work in a turn."""
        return self.driving is not None

    def is_left(self, request: PendingRequest) -> bool:
        """Whether a request waits for the client alone."""
        return _is_a_hosts(request) and (self.has(request.name) or request.request_id in self._unclaimed)

    def begins_work(self) -> bool:
        """Whether something that is pending is the host's own to do, such as after a restart."""
        return any(not self.is_left(request) for request in self.session.pending)

    # --- turns -------------------------------------------------------------------------------------------------------

    async def message(self, message: MessageInput, options: ExecutionOptions | None) -> Begun:
        """Begin a turn with a message, or find the one that it began before."""
        while self.is_driving and self._is_leaving():
            await self.change()
        if self._is_closing:
            raise StreamActive("the session is being closed", where=self.where)
        if self.is_driving or self.session.state == "running":
            if not await self._was_seen(message):
                raise StreamActive(f"a turn of session {self.session.session_id} runs", where=self.where)
            stream = self.session.stream(message, options)  # attached to the one that it began
            attached: Begun = (stream.stream_id, stream.turn_id, (), min(self.session.last_seq, stream.cursor))
            await stream.aclose()
            return attached
        driven = self.drive(message, options)
        begun = await self.begins(driven)
        if begun is None:
            raise NothingToContinue("nothing began", where=self.where)
        return begun

    def _is_leaving(self) -> bool:
        """Whether the turn's task has nothing to do but to end: its last event is there before it has left."""
        if self.session.state == "input_required":
            return all(self.is_left(item) or item.request_id in self.desk.left for item in self.session.pending)
        return self.session.state != "running"

    async def _was_seen(self, message: MessageInput) -> bool:
        """Whether the record has the message, by its key: else it would settle the turn that the host drives."""
        key = message.idempotency_key
        if key is None:
            return False
        async for event in self.session.events(types={"message"}):
            if isinstance(event, Message) and (event.meta or {}).get("idempotencyKey") == key:
                return True
        return False

    def drive(self, message: MessageInput | None, options: ExecutionOptions | None) -> Drive:
        """Begin the task that drives the turn; its first stream is told to who waits in :meth:`begins`."""
        driven = self.driving = self.last = Drive()
        cursor = self.session.last_seq

        def opened(stream: EventStream) -> None:
            if driven.begun is None:
                driven.begun = (stream.stream_id, stream.turn_id, (), min(cursor, stream.cursor))
            self._tell()

        async def drive() -> None:
            try:
                with driven.scope:
                    async with anyio.create_task_group() as watching:
                        watching.start_soon(self._watch)
                        await self.host.run_turn(self.session, message, options, on_stream=opened)
                        watching.cancel_scope.cancel()
            except Exception as error:
                driven.failure = _alone(error)
                if not isinstance(driven.failure, AgentSessionError):
                    logger.exception("the turn of session %s failed", self.session.session_id)
            finally:
                driven.is_over = True
                self.driving = None
                if self.session.state not in ("running", "input_required"):
                    self.desk.settle()
                self._go_on_if_answered(driven)
                self._tell()

        self._tasks.start_soon(drive)
        return driven

    def _go_on_if_answered(self, before: Drive) -> None:
        """What was said while the task was on its way out found nobody who would go on with the turn."""
        if self._is_closing or before.failure is not None or before.scope.cancel_called:
            return
        if self.session.state == "input_required" and (self.desk.untried() or not self.session.pending):
            self.drive(None, None)

    async def begins(self, driven: Drive) -> Begun | None:
        """Wait until the turn that is being driven has opened a stream; ``None`` if it ended without one."""
        while driven.begun is None and not driven.is_over:
            await self.change()
        if driven.begun is None and driven.failure is not None:
            raise driven.failure
        return driven.begun

    # --- who is waited for -------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """See when a stream ends or a request is settled: then it may be that only people are waited for."""
        types = {"stream_end", "tool_response", "elicitation_response", "tool_decision"}
        async for _ in self.session.events(after=self.session.last_seq, follow=True, types=types):
            self._look()
            self._tell()

    def _look(self) -> None:
        """Leave the turn waiting if nobody but people and clients is waited for."""
        if self.session.state != "input_required" or not self.desk.asked:
            return
        asked = len(self.desk.asked)
        if asked >= self._waited_for(self.session):
            self.desk.release()

    def _waited_for(self, session: AgentSession) -> int:
        """How many requests wait for somebody, in a session and its sub-agents'; more than all if one works."""
        children = {child.request_id: child for child in self.host.children(session)}
        count = 0
        for request in session.pending:
            child = children.get(request.request_id)
            if child is None:
                is_clients = session is self.session and self.is_left(request)
                count += 0 if is_clients or is_a_job(request) else 1
            elif child.session.state != "input_required":
                return 1_000_000
            else:
                count += self._waited_for(child.session)
        return count

    # --- control -----------------------------------------------------------------------------------------------------

    async def abort(self, reason: str | None) -> AbortResult:
        """End the turn; the host's tools are cancelled first."""
        if not self.is_driving:
            return await self.session.abort(reason)
        before, last = self.session.state, self.session.last_seq
        await self.host.abort(reason, session=self.session)
        await self.at_rest()
        if self.session.state in ("running", "input_required"):  # its task was on its way out, and left it waiting
            return await self.session.abort(reason)
        end: Event | None = None
        async for event in self.session.events(after=last, types={"stream_end"}):
            end = event
        if not isinstance(end, StreamEnd):
            return AbortResult(status="idle" if before == "idle" else "too_late")
        return AbortResult(status="aborted" if end.reason == "aborted" else "too_late", stream_id=end.stream_id)

    async def at_rest(self) -> None:
        """Wait until no turn is being driven."""
        while self.is_driving:
            await self.change()

    async def aclose(self) -> None:
        """Close the session; a running turn of it is aborted."""
        self._is_closing = True
        try:
            self.desk.release()
            await self.host.close(self.session)
            await self.at_rest()
        finally:
            if self.driving is not None:
                self.driving.scope.cancel()

    @property
    def where(self) -> str:
        return f"session {self.session.session_id}"

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def change(self) -> None:
        await self._changed.wait()


def _is_a_hosts(request: PendingRequest) -> TypeGuard[ToolRequest]:
    """Whether it is a call of a tool that the agent does not run."""
    return isinstance(request, ToolRequest) and request.needs == "result" and request.owner != "agent"


def _alone(error: Exception) -> Exception:
    """The error itself, where a task group has wrapped it."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
