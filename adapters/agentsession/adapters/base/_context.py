"""What an executor's author sees: emit events, ask, wait, work in parallel, read steers.

Not for: the record, ids or closings (the session does them). Rules carried: TOOL-03, TOOL-06, HITL-07, LIFE-14.
May import: ``agentsession.protocol``, anyio, the modules beside it.

One wait per context: parallel requests go through one :meth:`RunContext.requests`, parallel work through
:meth:`RunContext.parallel`. An executor that finds out itself when all its work waits (as the one for ADK does) uses
:meth:`RunContext.expect` and :meth:`RunContext.pause` instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anyio.lowlevel import checkpoint

from agentsession.adapters.base._grace import GraceCall, denies
from agentsession.adapters.base._hooked import RunHooked
from agentsession.adapters.base._hooks import Hooks
from agentsession.adapters.base._message import MessageWriter
from agentsession.adapters.base._parallel import side_by_side
from agentsession.adapters.base._run import Reply, Run
from agentsession.adapters.base._steering import Steer
from agentsession.adapters.base._telemetry import ModelCallSpan
from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    AgentStart,
    Answer,
    Constraints,
    Content,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    InvalidInput,
    Message,
    MessageInput,
    RequestState,
    ToolRequest,
    ToolResponse,
    Usage,
    as_content,
    merge_parts,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["RunContext"]

E = TypeVar("E", bound=Event)

_BREATH: Final = 128
"""A run that emits this often without waiting gives the loop a turn, so that aborts and readers get theirs."""


class RunContext:
    """One agent at work on one thread of a run."""

    def __init__(
        self, session: BaseSession, run: Run, agent_id: str, thread_id: str | None = None, parent: str | None = None
    ) -> None:
        self._session = session
        self._work = session.work
        self._log = session.recorder.log
        self._run = run
        self.agent_id = agent_id
        self.thread_id = thread_id
        self._parent_thread_id = parent
        self._template: dict[str, Any] | None = None
        fires = session.hooks is not None and not session.executor.fires_hooks
        self.hooked = RunHooked(self, session.hooks) if fires and session.hooks is not None else None
        """The host's hooks around what this context emits; ``None`` where there are none, or the executor asks them."""

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session.session_id

    @property
    def user_id(self) -> str:
        """The user that the session belongs to."""
        return self._session.user_id

    @property
    def turn_id(self) -> str:
        """The turn that the run works on."""
        return self._run.turn_id

    @property
    def permission_mode(self) -> str | None:
        """The permission mode of this turn, if the host gave it one, else the session's."""
        given = self.options.permission_mode
        return given if given != self._session.options.execution.permission_mode else self._session.permission_mode

    @property
    def hooks(self) -> Hooks | None:
        """The host's hooks, if it gave the session any."""
        return self._session.hooks

    @property
    def descriptor(self) -> AgentDescriptor:
        """The agent's descriptor."""
        return self._session.descriptor

    @property
    def input(self) -> MessageInput | None:
        """What the user said; ``None`` when the run is re-entered with answers."""
        return self._run.message

    @property
    def answers(self) -> Mapping[str, Answer]:
        """When re-entered: the answer to each request that was pending, by request id."""
        return self._run.answers

    @property
    def grace(self) -> GraceCall | None:
        """Set when the turn has reached a limit and the executor, which ``gives_grace``, is called for a last word: one
        model call that is told ``ctx.grace.note``, in which nothing is started. What is asked for is denied."""
        return self._run.grace

    @property
    def turn_number(self) -> int:
        """Which turn of the session this is, from 1."""
        return self._session.turn_number

    @property
    def record(self) -> Sequence[Event]:
        """The session's events so far, oldest first: what a re-entered run finds its place from.

        Those of this turn are always there; of a long session, earlier ones may be in the store alone (see
        ``BaseSession.whole_record``), unless the executor ``needs_whole_record``.
        """
        return self._session.record

    @property
    def options(self) -> ExecutionOptions:
        """The session's options with those of this turn over them."""
        return self._run.options

    @property
    def limits(self) -> Constraints:
        """The limits of this turn, the tighter ones of the agent's own and the host's. The session itself keeps those
        of time and budget; model calls and steps are the executor's to count, if it says ``counts_model_calls``."""
        return self._session.limits.of(self._run)

    @property
    def aborting(self) -> bool:
        """Whether the host has asked for the end of the turn."""
        return self._run.aborting is not None

    def new_id(self, prefix: str) -> str:
        """An id that this session never used and never will again, such as for a message or a request."""
        return self._session.recorder.new_id(prefix)

    def is_open_message(self, message_id: str) -> bool:
        """Whether that message has deltas and no closing event."""
        return message_id in self._session.machine.open_messages

    def is_closed_message(self, message_id: str) -> bool:
        """Whether that message has had its closing event."""
        return self._session.recorder.machine.is_closed_message(message_id)

    def open_request(self, request_id: str) -> RequestState | None:
        """A request without a response, as the state machine knows it."""
        return self._session.machine.requests.get(request_id)

    def is_open_request(self, request_id: str) -> bool:
        """Whether that request has no response yet."""
        return request_id in self._session.machine.requests

    @property
    def has_posted(self) -> bool:
        """Whether the executor will be called again with answers to what this run has posted."""
        return bool(self._run.posted)

    @property
    def open_requests(self) -> Mapping[str, RequestState]:
        """The requests without a response, by id."""
        return self._session.machine.requests

    @property
    def open_agents(self) -> Mapping[str | None, Sequence[str]]:
        """The agents that are open, by thread, outermost first."""
        return self._session.machine.agents

    @property
    def is_settled(self) -> bool:
        """Whether the turn was settled: nothing that this run emits is recorded any more."""
        return self._run.muted

    @property
    def is_attached(self) -> bool:
        """Whether a stream is open that this run may emit into."""
        return self._run.attach is None and not self._run.muted

    def close_thread(
        self,
        thread_id: str | None,
        agent_id: str,
        reason: str = "completed",
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """The innermost agent of a thread is done: close the thread's messages, then the agent."""
        self._work.close_thread(self._run, thread_id, agent_id, reason, data)

    def abandon(self, reply: Reply) -> None:
        """A wait made with :meth:`expect` ended without its answers: what it waited for is settled."""
        self._work.abandon(self._run, reply)

    def on_abort(self, handler: Callable[[], float | None]) -> None:
        """Call ``handler`` when the turn is aborted. It may return for how many seconds cancelling should wait, to let
        the executor end by itself; without a handler the run is cancelled at once."""
        self._run.on_abort.append(handler)

    # -- emitting -----------------------------------------------------------------------------------------------------

    async def emit(self, event: E) -> E:
        """Record ``event``; the stamped event.

        Waits while a reader that keeps up is a full window behind, and between streams for the next one.
        The host's hooks see a whole request and a response before they are recorded: go on with the event that is
        returned, whose arguments or data may be other.
        Raises :class:`agentsession.protocol.ProtocolViolation` with the rule that the event breaks,
        :class:`agentsession.protocol.RunEnded` when the turn was settled, :class:`HookBlocked` when a hook blocks a
        call that needs nobody's grant: it must not run.
        """
        if not self.is_ready():
            await self.ready()
        hooked = self.hooked if self._run.grace is None or not denies(self._run.grace, event) else None
        if hooked is not None and isinstance(event, (ToolRequest, ToolResponse)) and hooked.wants(event):
            shown: Any = hooked.request(event) if isinstance(event, ToolRequest) else hooked.response(event)
            made: E = await shown
            return made
        return self.emit_nowait(event)

    def is_ready(self) -> bool:
        """Whether :meth:`emit` would record at once; now and then not, so that other tasks get their turn."""
        run = self._run
        if run.attach is not None or run.muted or self._log.is_full():
            return False
        run.breath += 1
        if run.breath < _BREATH:
            return True
        run.breath = 0
        return False

    async def ready(self) -> None:
        """Wait for an open stream and for readers that hold the producer; gives the loop a turn in any case."""
        run, log = self._run, self._log
        await checkpoint()
        await log.room()
        while run.attach is not None or run.muted:
            await run.attached()
            await log.room()

    def emit_delta(
        self,
        kind: str,
        text: str,
        message_id: str,
        role: str,
        index: int,
        *,
        agent_id: str | None = None,
        thread_id: str | None = None,
    ) -> None:
        """Record a partial message of one ``text`` or ``thought`` part, in this very step (see :meth:`emit_nowait`).

        ``agent_id`` and ``thread_id`` are those of this context unless given.
        """
        template = self._delta_template(message_id, role, agent_id or self.agent_id, thread_id or self.thread_id)
        self._work.record_delta(self._run, template, kind, text, index)

    def _delta_template(self, message_id: str, role: str, agent_id: str, thread_id: str | None) -> dict[str, Any]:
        """What the deltas of a message have in common, as long as the stream and the agent stay the same."""
        found, recorder = self._template, self._session.recorder
        if (
            found is None
            or found["message_id"] != message_id
            or found["stream_id"] != recorder.machine.stream_id
            or found["agent_id"] != agent_id
            or found["thread_id"] != thread_id
            or found["role"] != role
        ):
            found = self._template = recorder.delta_template(message_id, role, agent_id, thread_id)
        return found

    def emit_nowait(self, event: E) -> E:
        """Record ``event`` in this very step: for decisions that must not be split, and where awaiting is impossible.

        Raises :class:`agentsession.protocol.RunEnded` when no stream is open (see :meth:`attached`).
        """
        return self._work.record_for(self._run, event, self.agent_id, self.thread_id)

    async def stored(self) -> None:
        """Wait until what has been recorded by now is stored: to be awaited before what must not happen twice.

        A tool that runs before its grant is stored would be granted and run again, were the process killed meanwhile.
        """
        await self._session.stored()

    async def attached(self) -> None:
        """Wait until a stream is open; the events of work that goes on over a pause belong to the next stream."""
        await self._run.attached()

    async def say(self, content: Content, *, role: str = "agent", message_id: str | None = None) -> Message:
        """Emit one whole message."""
        return await self.emit(
            Message(message_id=message_id or self.new_id("m"), role=role, content=merge_parts(as_content(content)))
        )

    def message(self, *, role: str = "agent", message_id: str | None = None) -> MessageWriter:
        """A message to be said in deltas: ``async with ctx.message() as message: await message.text("...")``."""
        return MessageWriter(self, message_id or self.new_id("m"), role)

    async def usage(self, **counts: Any) -> Usage:
        """Emit what one model call used (the fields of :class:`agentsession.protocol.Usage`)."""
        return await self.emit(Usage(**counts))

    def model_call(self, model: str | None = None, *, provider: str | None = None) -> ModelCallSpan:
        """A model call of the executor's own, for who traces it: ``with ctx.model_call("m", provider="p") as call``.

        Makes the span ``chat MODEL`` and measures the call; does nothing without OpenTelemetry.
        """
        return ModelCallSpan(self._session.spans, model, provider)

    async def respond(self, request: ToolRequest, data: Any = None, **fields: Any) -> ToolResponse:
        """Emit the response to a tool that the executor itself ran; tell the model what the returned event holds."""
        return await self.emit(ToolResponse(request_id=request.request_id, name=request.name, data=data, **fields))

    # -- asking -------------------------------------------------------------------------------------------------------

    async def request(self, request: ToolRequest | ElicitationRequest) -> Answer:
        """Emit a request and wait for its answer."""
        return (await self.requests(request))[0]

    async def requests(self, *requests: ToolRequest | ElicitationRequest) -> list[Answer]:
        """Emit all ``requests``, then wait until each has its answer; the answers in the same order.

        The stream pauses when every context of the run waits. Rules: TOOL-06 to TOOL-08.
        """
        for request in requests:
            if isinstance(request, ToolRequest) and (request.partial or request.needs == "none"):
                raise InvalidInput(
                    f"a wait for {request.name} ({request.request_id}), which asks nobody",
                    got="partial" if request.partial else "needs none",
                    expected="a whole request that needs a result or a grant",
                    fix="emit() it",
                )
        ids: list[str] = []
        calls: dict[str, ToolRequest] = {}
        try:
            for request in requests:
                made = await self.emit(request)
                ids.append(made.request_id)
                if isinstance(made, ToolRequest):
                    calls[made.request_id] = made
        except BaseException:
            self._work.abandon_ids(self._run, ids)
            raise
        reply = self._work.wait_for(self._run, ids, counts=True)
        try:
            answers = await reply.wait()
        except BaseException:
            self._work.abandon(self._run, reply)
            raise
        await self.stored()
        if self.hooked is not None:
            answers = await self.hooked.answered(calls, answers)
        return [answers[request_id] for request_id in ids]

    async def elicit(
        self,
        kind: str,
        message: str,
        *,
        schema: Mapping[str, Any] | None = None,
        context: Any = None,
        tool_request_id: str | None = None,
        **fields: Any,
    ) -> ElicitationAnswer:
        """Ask the person. A kind that the host cannot show is requested and cancelled in one step (HITL-07)."""
        question = ElicitationRequest(
            request_id=self.new_id("q"),
            kind=kind,
            message=message,
            requested_schema=None if schema is None else dict(schema),
            tool_request_id=tool_request_id,
            **({} if context is None else {"context": context}),
            **fields,
        )
        answer = await self.request(question)
        assert isinstance(answer, ElicitationAnswer)
        return answer

    async def post(self, *requests: ToolRequest | ElicitationRequest) -> list[str]:
        """Emit requests without waiting, to return from the run and be re-entered with their answers; their ids."""
        return [(await self.post_any(request)).request_id for request in requests]

    async def post_any(self, event: E) -> E:
        """Emit ``event``; a request among them is posted (see :meth:`post`)."""
        made = await self.emit(event)
        waits = isinstance(made, ElicitationRequest) or (
            isinstance(made, ToolRequest) and not made.partial and made.needs != "none"
        )
        if waits:
            self._run.posted[made.request_id] = None  # type: ignore[attr-defined]  # both request classes have it
        return made

    def expect(self, *request_ids: str) -> Reply:
        """A wait on requests that were emitted, for an executor that pauses by itself: ``await reply.wait()``."""
        return self._work.wait_for(self._run, list(request_ids), counts=False)

    def settle(self, answer: Answer) -> None:
        """Answer a request of this run in this very step, as if the host had: one of its hooks has decided.

        The answer must fit the request; it is not checked.
        """
        self._session.answers.keep(answer)

    def pause(self) -> bool:
        """All the work that the executor can see waits: end the stream ``input_required``, if something is pending.

        The run stays open; its next event waits for the next stream. Whether the stream was ended.
        """
        return self._work.pause(self._run)

    async def parallel(self, *children: tuple[str, Callable[[RunContext], Awaitable[None]]]) -> None:
        """Run agents side by side, each ``(agent_id, coroutine function)`` on a thread of its own; wait for all.

        Threads are named after the agents, below this context's thread. When one of them raises, the others are
        cancelled, what they had open is settled, and the exceptions are raised as a group.
        """
        session, run, thread_id = self._session, self._run, self.thread_id
        await side_by_side(
            session, run, thread_id, children, lambda agent, thread: RunContext(session, run, agent, thread, thread_id)
        )

    async def handoff(self, agent_id: str) -> None:
        """This thread's agent ends, another starts in its place."""
        await self.attached()
        self._work.close_thread(self._run, self.thread_id, self.agent_id, "handoff", {"to": agent_id})
        self.agent_id = agent_id
        await self.emit(AgentStart(agent_id=agent_id, parent_thread_id=self._parent_thread_id))

    async def end_agent(self, agent_id: str, reason: str = "completed", **fields: Any) -> AgentEnd:
        """Emit the end of an agent that this executor started itself."""
        return await self.emit(AgentEnd(agent_id=agent_id, reason=reason, **fields))

    # -- steering -----------------------------------------------------------------------------------------------------

    @property
    def has_steers(self) -> bool:
        """Whether a steer waits to be taken."""
        return self._run.grace is None and bool(self._session.machine.steers)

    async def steers(self) -> Sequence[Steer]:
        """Take what the host has queued: each becomes a user message in the record, exactly once (CTL-06).

        Call it before each model call. Returns when they are stored: to a process that loads the session a steer that
        was not would be undelivered, though the model has heard it. What a hook blocks is not among them.
        """
        await self.attached()
        taken = self._session.steers.take(self._run, self.agent_id, self.thread_id)
        notes = await self.notes(self.thread_id)
        if taken or notes:
            await self.stored()
        if taken and self.hooked is not None:
            taken = list(await self.hooked.steers(taken))
        return [*taken, *notes]

    async def notes(self, thread_id: str | None, agent_id: str | None = None) -> list[Steer]:
        """Take what the session itself has to say to the agent of a thread: that it goes in circles.

        For an executor that knows of threads which no context stands for; :meth:`steers` takes those of its own. Where
        such an agent was told before, or what its calls have used is more than it may, its turn ends here instead: look
        at :attr:`aborting` before a model call.
        """
        if self._session.loops.due is not None or self._session.limits.due:
            self._session.limits.check_spent(self._run)
            self._session.loops.act(self._run)
            await checkpoint()
        return self._session.steers.take_notes(self._run, agent_id or self.agent_id, thread_id)
