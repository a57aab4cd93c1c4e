"""The session that every executor gets for free: the host's calls, the record, the single running stream.

Not for: running the agent (``_run.py`` and the author's coroutine) or the rules (``SessionMachine``). Rules carried:
LIFE-05 to LIFE-18, ORD-01 to ORD-11, TOOL-07 to TOOL-15, HITL-06 to HITL-09, CTL-01 to CTL-07, PER-02, PER-03.
May import: ``agentsession.protocol``, anyio, the modules beside it.

Every decision is one synchronous step: the machine checks, the log appends, nothing awaits in between. What may take
time (storing, the executor's exit) comes after it. No task group and no cancel scope belongs to a session; runs are
tasks of the executor's group, so a session may be closed from any task of its loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import anyio

from agentsession.adapters.base._answering import answer_events, has_secret, recorded_answer
from agentsession.adapters.base._clock import EventClock
from agentsession.adapters.base._context import Steer
from agentsession.adapters.base._flushing import Flusher
from agentsession.adapters.base._log import EventLog
from agentsession.adapters.base._readers import LogReader, LogStream
from agentsession.adapters.base._run import Outcome, Reply, Run
from agentsession.adapters.base._settling import close_agents, close_messages, reopen_agents, settle_requests
from agentsession.adapters.base._stamping import delta, stamp
from agentsession.protocol import (
    AbortResult,
    AbortTimeout,
    AgentDescriptor,
    AgentEnd,
    AgentSessionError,
    AgentStart,
    Answer,
    Content,
    CursorGone,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    ExecutionOptions,
    Message,
    MessageInput,
    Model,
    NothingToContinue,
    OpenOptions,
    PendingRequest,
    ProtocolViolation,
    Receipt,
    RecordKey,
    RecordStore,
    RunEnded,
    SessionClosed,
    SessionConfig,
    SessionMachine,
    SessionState,
    SessionUpdate,
    SteerData,
    StreamActive,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    Unimplemented,
    as_content,
    check_schema,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._executor import BaseExecutor

__all__ = ["BaseSession"]

E = TypeVar("E", bound=Event)

_BREATH: Final = 128
"""A run that emits this often without waiting gives the loop a turn, so that aborts and readers get theirs."""


class BaseSession:
    """One session of a :class:`BaseExecutor`; satisfies ``agentsession.protocol.AgentSession``."""

    def __init__(
        self, executor: BaseExecutor, key: RecordKey, options: OpenOptions, store: RecordStore | None, owner: str
    ) -> None:
        self._executor = executor
        self._key = key
        self._store = store
        self._owner = owner
        self.options = options
        self.machine = SessionMachine(host_kinds=options.host.elicitation_kinds)
        self._log = EventLog(executor.window)
        self._flusher = Flusher(self._log, executor.task_group, store, key)
        self._clock = EventClock(executor.now)
        self._seq = 0
        self._id_prefix = ""
        self._id_count = 0
        self._breath = 0
        self._turns = 0
        self._last_turn: str | None = None
        self._run: Run | None = None
        self._next: tuple[str, str] | None = None
        """The stream and turn id of a stream whose first event is being recorded."""
        self._requests: dict[str, PendingRequest] = {}
        """The request events that have no response yet."""
        self._steers: dict[str, Steer] = {}
        self._keys_seen: dict[str, tuple[str, int]] = {}
        """Idempotency key → turn id, and the seq before its first event."""
        self._secrets: dict[str, Answer] = {}
        """Secret answers that came while no stream ran: in memory only, recorded redacted when the run takes them."""
        self.state_values: dict[str, Any] = {}
        """The session's state, as far as updates and state deltas tell."""

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self._key.session_id

    @property
    def user_id(self) -> str:
        """The user that the session belongs to."""
        return self._key.user_id

    @property
    def descriptor(self) -> AgentDescriptor:
        return self._executor.descriptor

    @property
    def state(self) -> SessionState:
        return self.machine.state

    @property
    def pending(self) -> Sequence[PendingRequest]:
        return [self._requests[id] for id in self.machine.pending if id not in self._secrets]

    @property
    def last_seq(self) -> int:
        return self._log.events[self._log.visible - 1].seq if self._log.visible else 0

    @property
    def record(self) -> Sequence[Event]:
        """Every event that is kept in memory, oldest first, also those that are not stored yet."""
        return self._log.events

    @property
    def turn_number(self) -> int:
        """How many turns the session has had, the present one included."""
        return self._turns

    # -- the host's calls ---------------------------------------------------------------------------------------------

    def stream(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> LogStream:
        """Start a turn with a message, or continue the waiting one (see ``AgentSession.stream``)."""
        if isinstance(input, str):
            input = MessageInput(content=as_content(input))
        if isinstance(input, MessageInput):
            return self._stream_message(input, options)
        if input is None:
            return self._stream_answers([], options)
        return self._stream_answers([input] if isinstance(input, Model) else list(input), options)

    def _stream_message(self, message: MessageInput, options: ExecutionOptions | None) -> LogStream:
        key = message.idempotency_key
        if key is not None and key in self._keys_seen and self.machine.state != "closed":
            return self._reattach(key)
        self.machine.check_call("message")
        self._executor.check_message(message)
        if message.message_id is not None and self.machine.is_closed_message(message.message_id):
            raise NothingToContinue(
                f"message {message.message_id} is in the record already",
                where=f"session {self.session_id}",
                fix="use a new message_id, or an idempotency_key to attach to its turn again",
            )
        previous = self._run
        if self.machine.state == "input_required":
            self._settle_turn("aborted", "superseded")
        turn_id, stream_id = self.new_id("t"), self.new_id("s")
        after = self._seq
        if key is not None:
            self._keys_seen[key] = (turn_id, after)
        run = Run(
            turn_id=turn_id,
            message=message,
            answers={},
            options=self._merged(options),
            previous=previous if previous is not None and not previous.is_over else None,
        )
        self._run = run
        self._next = (stream_id, turn_id)
        meta = {**(message.model_extra or {}).get("_meta", {}), **({"idempotencyKey": key} if key else {})}
        self._record(
            Message(
                message_id=message.message_id or self.new_id("m"),
                role=message.role,
                content=message.content,
                source="user",
                meta=meta or None,
            )
        )
        self._executor.start_run(self, run)
        return self._reader(stream_id, turn_id, after, [])

    def _reattach(self, key: str) -> LogStream:
        """The turn that this message started before: its running stream, or the last one it had."""
        turn_id, after = self._keys_seen[key]
        stream_id = self.machine.stream_id if self.machine.turn_id == turn_id else None
        if stream_id is None:
            stream_id = next(
                event.stream_id for event in reversed(self._log.events) if event.turn_id == turn_id and event.stream_id
            )
        return self._reader(stream_id, turn_id, after, [])

    def _stream_answers(self, answers: Sequence[Answer], options: ExecutionOptions | None) -> LogStream:
        self.machine.check_call("continue")
        run = self._run
        receipts = self._check_all(answers)
        if answers and not any(receipt.ok for receipt in receipts):
            raise NothingToContinue(
                "no answer applied: " + "; ".join(f"{item.request_id} {item.status}" for item in receipts),
                where=f"session {self.session_id}",
                expected=f"answers to {', '.join(self.machine.pending) or 'nothing'}",
                fix="answer what session.pending lists",
            )
        if not answers and not self._can_go_on(run):
            raise NothingToContinue(
                "nothing was answered since the stream paused",
                where=f"session {self.session_id}",
                expected=f"answers to {', '.join(self.machine.pending)}",
                fix="answer with respond() or stream(answers), or abort()",
            )
        turn_id, stream_id, after = cast(str, self.machine.turn_id), self.new_id("s"), self._seq
        self._next = (stream_id, turn_id)
        taken, self._secrets = self._secrets, {}
        for secret in taken.values():
            self._record_answer(secret)
        for answer, receipt in zip(answers, receipts, strict=True):
            if receipt.ok:
                self._record_answer(answer)
        if run is None or run.is_over:
            self._enter_again(run, turn_id, options)
        else:
            self._wake_run(run)
        return self._reader(stream_id, turn_id, after, receipts)

    def _can_go_on(self, run: Run | None) -> bool:
        if not self.machine.pending or self._secrets:
            return True
        if run is None or run.is_over:
            return False
        return run.holding > 0 or any(reply.complete for reply in run.replies)

    def _wake_run(self, run: Run) -> None:
        """Let a run that stayed open go on, or pause again when nothing in it can."""
        self._settle_ids(list(run.dead))
        run.dead.clear()
        if run.holding or any(reply.complete for reply in run.replies):
            self._reopen()
            run.unpause()
            run.release_complete()
        else:
            self._end("input_required", self._waiting_data())

    def _enter_again(self, last: Run | None, turn_id: str, options: ExecutionOptions | None) -> None:
        """Call the executor again with the answers, once every request of its step has one."""
        died = last is not None and (last.dead or (last.outcome is not None and last.outcome.error is not None))
        if last is not None and died:
            self._settle_ids(list(last.dead))
            self._reopen()
            self._finish(last)
            return
        if self.machine.pending:
            self._end("input_required", self._waiting_data())
            return
        answers = last.kept if last is not None else self._answers_of_step(turn_id)
        run = Run(turn_id=turn_id, message=None, answers=dict(answers), options=self._merged(options), previous=None)
        self._run = run
        self._reopen()
        self._executor.start_run(self, run)

    def _answers_of_step(self, turn_id: str) -> Mapping[str, Answer]:
        """The answers of a loaded turn to what its last step asked.

        A stream in which the executor worked brackets its agents; the pending list of the last such stream is what the
        step asked. The answers came in that stream, in later ones, or between streams; the last event of each counts.
        """
        asked: set[str] = set()
        worked: set[str | None] = set()
        answers: dict[str, Answer] = {}
        for event in self._log.events:
            if event.turn_id != turn_id:
                continue
            if isinstance(event, AgentStart):
                worked.add(event.stream_id)
            elif isinstance(event, StreamEnd) and event.stream_id in worked:
                asked = set(event.pending)
            answer = recorded_answer(event)
            if answer is not None:
                answers[answer.request_id] = answer
        return {id: answer for id, answer in answers.items() if id in asked}

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        """Answer pending requests in any state but closed (see ``AgentSession.respond``)."""
        self.machine.check_call("answer")
        receipts = []
        run = self._run
        for answer in answers:
            (receipt,) = self._check_all([answer])
            receipts.append(receipt)
            if receipt.ok:
                request = self.machine.requests[answer.request_id]
                if self.machine.stream_id is None and has_secret(request) and _is_yes(answer):
                    self._secrets[answer.request_id] = answer
                else:
                    self._record_answer(answer)
        if run is not None and self.machine.stream_id is not None:
            run.release_complete()
        await self._flusher.flushed()
        return receipts

    def _check_all(self, answers: Sequence[Answer]) -> list[Receipt]:
        """The receipts; an answer is checked as if those before it in the same call were recorded."""
        receipts: list[Receipt] = []
        answered: set[str] = set()
        for answer in answers:
            id = answer.request_id
            dead = self._run is not None and id in self._run.dead
            if id in self._secrets or id in answered or dead:
                receipts.append(
                    Receipt(status="stale", request_id=id, rule="TOOL-09", reason="it was answered or settled before")
                )
                continue
            receipt = self.machine.check_answer(answer, check_schema)
            if receipt.ok:
                receipt = self._executor.check_answer(self, self.machine.requests[id], answer) or receipt
            if receipt.ok and answer.kind != "tool_progress":
                answered.add(id)
            receipts.append(receipt)
        return receipts

    def _record_answer(self, answer: Answer) -> None:
        request = self.machine.requests[answer.request_id]
        for event in answer_events(request, answer):
            self._record(event)
        if answer.kind != "tool_progress" and self._run is not None:
            self._run.deliver(answer)

    async def steer(self, data: Content | SteerData) -> Receipt:
        """Queue something for the agent to read before its next model call (see ``AgentSession.steer``)."""
        if not self.descriptor.supports("steering"):
            raise Unimplemented("this executor cannot be steered", expected="the capability steering")
        steer = data if isinstance(data, SteerData) else SteerData(message=as_content(data))
        state = self.machine.state
        if state == "closed":
            self.machine.check_call("steer")
        run = self._run
        if state not in ("running", "input_required") or run is None or run.aborting or run.muted:
            return Receipt(status="rejected", rule="CTL-06", reason="no turn is running or waiting")
        if steer.action is not None:
            return Receipt(status="rejected", reason=f"this executor has no action {steer.action!r}")
        if not steer.message:
            return Receipt(status="rejected", reason="a steer needs a message")
        steer_id = self.new_id("m")
        self.machine.queue_steer(steer_id)
        self._steers[steer_id] = Steer(steer_id, list(steer.message))
        return Receipt(status="queued", request_id=steer_id)

    async def update(self, config: SessionConfig) -> Receipt:
        """Change model, mode, tools, title, state or config, wholly or not at all (see ``AgentSession.update``)."""
        self.machine.check_call("update")
        if self.machine.state == "running" and not self.descriptor.supports("mid_turn_update"):
            return Receipt(status="rejected", rule="CTL-07", reason="this executor takes no update while it runs")
        reason = self._executor.check_update(self, config)
        if reason is not None:
            return Receipt(status="rejected", rule="CTL-07", reason=reason)
        self._record(
            SessionUpdate(
                title=config.title,
                model=config.model,
                permission_mode=config.permission_mode,
                tools=config.tools,
                state_delta=config.state,
                config=config.config,
                source="host",
            )
        )
        self._executor.apply_update(self, config)
        await self._flusher.flushed()
        return Receipt(status="applied")

    async def abort(self, reason: str | None = None) -> AbortResult:
        """End the turn (see ``AgentSession.abort``)."""
        run = self._run
        if self.machine.state == "input_required":
            self._settle_turn("aborted", reason or "abort")
            await self._exited(run)
            await self._flusher.flushed()
            return AbortResult(status="aborted")
        stream_id = self.machine.stream_id
        if stream_id is None or run is None:
            if run is not None and not run.is_over and self.machine.state != "closed":
                await self._exited(run)
            return AbortResult(status="idle")
        if run.aborting is None:
            run.aborting = reason or "abort"
            self._settle_waiting()
            run.kill_replies()
            self._cancel(run)
        with anyio.move_on_after(self._executor.grace_s):
            while not self.machine.is_ended(stream_id):
                await self._log.changed()
        if not self.machine.is_ended(stream_id):
            raise self._give_up(stream_id)
        await self._flusher.flushed()
        end = next(
            event for event in reversed(self._log.events) if isinstance(event, StreamEnd) and event.stream_id == stream_id
        )
        return AbortResult(status="aborted" if end.reason == "aborted" else "too_late", stream_id=stream_id)

    def _cancel(self, run: Run) -> None:
        wait_s = 0.0
        for handler in run.on_abort:
            wait_s = max(wait_s, handler() or 0.0)
        if wait_s > 0:
            self._executor.task_group.start_soon(self._cancel_later, run, min(wait_s, self._executor.grace_s))
        elif run.scope is not None:
            run.scope.cancel()

    async def _cancel_later(self, run: Run, wait_s: float) -> None:
        with anyio.move_on_after(wait_s):
            await run.exited.wait()
        if run.scope is not None:
            run.scope.cancel()

    async def _exited(self, run: Run | None) -> None:
        """Wait for a settled run to exit. Raises :class:`AbortTimeout` after the grace time, closing the session."""
        if run is None:
            return
        with anyio.move_on_after(self._executor.grace_s):
            await run.exited.wait()
        if not run.is_over:
            raise self._give_up(None)

    def _give_up(self, stream_id: str | None) -> AbortTimeout:
        error = AbortTimeout(
            f"the executor did not end within {self._executor.grace_s:g} s; the session was closed",
            where=f"session {self.session_id}" + (f", stream {stream_id}" if stream_id else ""),
            fix="load the session: it closes the cut stream; look for work that ignores cancellation",
        )
        self.machine.abandon()
        self._log.close(error)
        return error

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> LogReader:
        """Read the record after a cursor (see ``AgentSession.events``)."""
        cursor = 0 if after is None else after
        if not 0 <= cursor <= self._seq:
            raise CursorGone(
                f"cursor {cursor} is beyond the record",
                where=f"session {self.session_id}",
                expected=f"0 to {self._seq}",
                fix=f"read from {self._seq}, or from the start",
            )
        return LogReader(
            self._log,
            after=cursor,
            follow=follow,
            types=types,
            stream_id=stream_id,
            thread_id=thread_id,
            stream_ended=self.machine.is_ended,
        )

    async def aclose(self) -> None:
        """Close from any task of the loop (see ``AgentSession.aclose``)."""
        if self.machine.state == "closed":
            await self._release()
            return
        with anyio.CancelScope(shield=True):
            try:
                if self.machine.state == "running":
                    await self.abort("closed")
                run = self._run
                if self.machine.state == "input_required":
                    if self._executor.can_resume(self):
                        self._settle_volatile("closed")
                    else:
                        self._settle_turn("aborted", "closed")
                    self._mute(run)
                await self._exited(run)
                await self._flusher.flushed()
            except AgentSessionError:
                if self.machine.state != "closed":
                    self.machine.abandon()
            finally:
                if self.machine.state not in ("closed", "running"):
                    self.machine.close()
                self._log.close(self._log.failure)
                await self._release()

    async def _release(self) -> None:
        self._executor.forget(self)
        if self._store is not None:
            await self._store.unlock(self._key, self._owner)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- what runs use (through RunContext) ---------------------------------------------------------------------------

    def new_id(self, prefix: str) -> str:
        """An id that this session never used: a count, with the load's first seq before it once it was loaded."""
        self._id_count += 1
        return f"{prefix}{self._id_prefix}{self._id_count}"

    def log_is_full(self) -> bool:
        """Whether a reader holds the producer."""
        return self._log.is_full()

    async def room(self) -> None:
        """Wait until no reader holds the producer."""
        await self._log.room()

    def must_breathe(self) -> bool:
        """Whether the run should give the loop a turn now."""
        self._breath += 1
        if self._breath >= _BREATH:
            self._breath = 0
            return True
        return False

    def record_for(self, run: Run, event: E, agent_id: str, thread_id: str | None) -> E:
        """Record what ``run`` emits, with the context's agent and thread where the event names none."""
        if run.muted or run is not self._run:
            raise RunEnded("the turn was settled", where=f"turn {run.turn_id}", fix="return from the run")
        if run.attach is not None:
            raise RunEnded("no stream is open", where=f"turn {run.turn_id}", fix="await ctx.attached() first")
        made = self._record(event, agent_id, thread_id)
        if isinstance(made, ElicitationRequest):
            self._cancel_unsupported(run, made)
        elif isinstance(made, Error) and made.fatal and run.scope is not None:
            run.scope.cancel()  # fatal ends the stream at once: LIFE-18
        return made

    def _cancel_unsupported(self, run: Run, question: ElicitationRequest) -> None:
        host = self.options.host
        kinds, modes = host.elicitation_kinds, host.elicitation_modes
        mode = "url" if question.url is not None else "form"
        if (kinds is None or question.kind in kinds) and (modes is None or mode in modes):
            return
        request = self.machine.requests[question.request_id]
        answer = ElicitationAnswer(request_id=question.request_id, action="cancel")
        for event in answer_events(request, answer):
            self._record(event)
        run.deliver(answer)

    def wait_for(self, run: Run, ids: list[str], *, counts: bool) -> Reply:
        """Register a wait; when it makes the run idle, the stream pauses."""
        reply = run.reply(ids, counts=counts)
        if reply.complete:
            run.replies.remove(reply)
            reply.release()
        elif counts:
            self.idle(run)
        return reply

    def idle(self, run: Run) -> None:
        """One context of ``run`` stopped working; the last one pauses the stream."""
        run.busy -= 1
        if run.busy <= 0:
            self.pause(run)

    def pause(self, run: Run) -> bool:
        """End the stream ``input_required`` if something is pending; whether it was."""
        waits = self.machine.pending
        if run is not self._run or run.muted or run.aborting or run.attach is not None or not waits:
            return False
        run.pause()
        self._end("input_required", self._waiting_data())
        return True

    def abandon(self, run: Run, reply: Reply) -> None:
        """A context stopped waiting without its answers: what it waited for is settled, its answers are stale."""
        if not reply.released:
            if reply in run.replies:
                run.replies.remove(reply)
            if reply.counts:
                run.busy += 1
        if run.muted or run is not self._run or run.aborting:
            return
        open_ids = [id for id in reply.ids if id in self.machine.requests]
        if run.attach is None and self.machine.stream_id is not None:
            self._settle_ids(open_ids)
        else:
            run.dead.update(open_ids)

    def close_thread(self, run: Run, thread_id: str | None, agent_id: str, reason: str = "completed") -> None:
        """The agent that a context stands for is done: its messages are closed, then the agent."""
        if run.muted or run is not self._run:
            return
        for event in close_messages(self.machine, self._log.events, interrupted=False, thread_id=thread_id, only=True):
            self._record(event)
        stack = self.machine.agents.get(thread_id)
        if stack and stack[-1] == agent_id:
            self._record(AgentEnd(agent_id=agent_id, thread_id=thread_id, reason=reason))

    def take_steers(self, run: Run, agent_id: str, thread_id: str | None) -> list[Steer]:
        """Record every queued steer as a user message and hand it to the run. Rule: CTL-06."""
        if run.muted or run is not self._run:
            raise RunEnded("the turn was settled", fix="return from the run")
        taken = [self._steers.pop(id) for id in list(self.machine.steers)]
        for steer in taken:
            message = Message(message_id=steer.message_id, role="user", content=steer.content, source="user")
            self._record(message, agent_id, thread_id)
        return taken

    # -- how a run ends -----------------------------------------------------------------------------------------------

    def run_exited(self, run: Run, outcome: Outcome) -> None:
        """The executor's coroutine has returned, raised or was cancelled: end its stream, in this one step."""
        run.outcome = outcome
        run.exited.set()
        if run is self._run and not run.muted:
            if run.attach is None and self.machine.state == "running":
                self._finish(run)
            elif self.machine.state == "input_required":
                # It died while it waited: its requests answer stale, and the next stream tells how it ended.
                run.dead.update(id for reply in run.replies for id in reply.ids if id in self.machine.requests)
        self._log.wake()

    def _finish(self, run: Run) -> None:
        outcome = run.outcome or Outcome()
        reason, data, error = outcome.reason or "completed", outcome.data, outcome.error
        if run.aborting is not None:
            reason, data, error = "aborted", {"cause": run.aborting}, None
        elif self.machine.fatal:
            reason, error = (reason if outcome.reason else "failed"), None
        if error is None and reason == "completed":
            if self.machine.pending:
                for event in close_messages(self.machine, self._log.events, interrupted=True):
                    self._record(event)
                self._end("input_required", self._waiting_data())
                return
            error = self._left_open()
        if error is not None:
            self._record(self._executor.describe_error(error), agent_id=self.descriptor.name)
            reason = "failed"
        run.muted = True
        run.kill_replies()
        for event in settle_requests(self.machine.requests.values(), started=False):
            self._record(event)
        for event in close_messages(self.machine, self._log.events, interrupted=reason != "completed"):
            self._record(event)
        for event in settle_requests(self.machine.requests.values()):
            self._record(event)
        for event in close_agents(self.machine, reason):
            self._record(event)
        if reason == "completed" and not self._said_something(run.turn_id):
            data = {**(data or {}), "empty": True}
        self._end(reason, data)

    def _left_open(self) -> ProtocolViolation | None:
        """What a run that returned as if it were done has forgotten."""
        if self.machine.requests:
            request = next(iter(self.machine.requests.values()))
            return ProtocolViolation(
                "TOOL-01",
                f"the run returned without a response to {request.name} ({request.id})",
                where=f"session {self.session_id}",
                fix="emit a tool_response for every request that the executor runs",
            )
        if self.machine.steers:
            return ProtocolViolation(
                "CTL-06",
                "the run returned without taking a queued steer",
                where=f"session {self.session_id}",
                fix="call ctx.steers() before each model call, and before returning while ctx.has_steers",
            )
        return None

    def _said_something(self, turn_id: str) -> bool:
        for event in reversed(self._log.events):
            if event.turn_id != turn_id:
                return False
            if event.source != "user" and isinstance(event, (Message, ToolRequest, ElicitationRequest)):
                return True
        return False

    def _settle_turn(self, reason: str, cause: str) -> None:
        """End a turn that waits, in a stream of its own. Nothing is executed by it."""
        run = self._run
        self._mute(run)
        turn_id = cast(str, self.machine.turn_id)
        self._secrets.clear()
        self._next = (self.new_id("s"), turn_id)
        for event in settle_requests(self.machine.requests.values()):
            self._record(event)
        self._end(reason, {"cause": cause}, source="host")

    def _settle_waiting(self) -> None:
        for event in settle_requests(self.machine.requests.values(), started=False):
            self._record(event)

    def _settle_ids(self, ids: Sequence[str]) -> None:
        for event in settle_requests([self.machine.requests[id] for id in ids if id in self.machine.requests]):
            self._record(event)

    def _settle_volatile(self, cause: str) -> None:
        """Settle what would not survive this process; the turn ends with it if nothing else waits."""
        volatile = set(self._executor.volatile(self)) & set(self.machine.requests)
        if not volatile:
            return
        if volatile == set(self.machine.requests):
            self._settle_turn("aborted", cause)
        else:
            self._settle_ids(sorted(volatile, key=list(self.machine.requests).index))

    def _mute(self, run: Run | None) -> None:
        if run is None or run.muted:
            return
        run.muted = True
        run.kill_replies()
        run.unpause()
        if not run.is_over:
            run.aborting = run.aborting or "settled"
            self._cancel(run)

    def _waiting_data(self) -> dict[str, Any] | None:
        volatile = [id for id in self._executor.volatile(self) if id in self.machine.requests]
        return {"volatile": volatile} if volatile else None

    def _end(self, reason: str, data: Mapping[str, Any] | None, source: str = "host") -> None:
        if reason == "input_required":
            for event in close_messages(self.machine, self._log.events, interrupted=True):
                self._record(event)
            for event in close_agents(self.machine, "input_required"):
                self._record(event)
        elif self.machine.steers:
            data = {**(data or {}), "undelivered": list(self.machine.steers)}
            self._steers.clear()
        pending = self.machine.pending if reason == "input_required" else []
        self._record(StreamEnd(reason=reason, pending=pending, data=dict(data) if data else None, source=source))
        self._log.forget_ephemerals(self.machine.ended_streams)

    def _reopen(self) -> None:
        for event in reopen_agents(self.machine.paused):
            self._record(event)

    # -- recording ----------------------------------------------------------------------------------------------------

    def _record(self, event: E, agent_id: str | None = None, thread_id: str | None = None) -> E:
        """The one place where an event enters the record: stamp, check, append, in one synchronous step."""
        machine = self.machine
        if machine.state == "closed":
            raise SessionClosed("the session is closed", where=f"session {self.session_id}")
        stream_id, turn_id = machine.stream_id, machine.turn_id
        opening = self._next
        if opening is not None and stream_id is None:
            stream_id, turn_id = opening
        seq = self._seq + 1
        made = stamp(
            event,
            id=f"e{seq}",
            seq=seq,
            timestamp=self._clock.stamp(),
            session_id=self._key.session_id,
            stream_id=stream_id,
            turn_id=turn_id,
            agent_id=event.agent_id or agent_id,
            thread_id=event.thread_id or thread_id,
            source=event.source,
        )
        machine.feed(made)
        if opening is not None and turn_id != self._last_turn:
            self._last_turn = turn_id
            self._turns += 1
        self._seq = seq
        self._next = None
        self._note(made)
        self._flusher.append(made)
        return made

    def record_delta(
        self, run: Run, kind: str, text: str, message: dict[str, Any], agent_id: str, thread_id: str | None
    ) -> None:
        """What :meth:`record_for` does, for a delta: the same steps with nothing made twice."""
        machine = self.machine
        if run.muted or run is not self._run or run.attach is not None:
            raise RunEnded("no stream is open", where=f"turn {run.turn_id}", fix="return from the run")
        seq = self._seq + 1
        made = delta(
            kind,
            text,
            message,
            {
                "id": f"e{seq}",
                "seq": seq,
                "timestamp": self._clock.stamp(),
                "session_id": self._key.session_id,
                "stream_id": machine.stream_id,
                "turn_id": machine.turn_id,
                "agent_id": agent_id,
                "thread_id": thread_id,
                "source": "agent",
            },
        )
        machine.feed(made)
        self._seq = seq
        self._flusher.append(made)

    def _note(self, event: Event) -> None:
        """Keep what the session itself must know of an event that was accepted."""
        if isinstance(event, ToolRequest):
            if not event.partial:
                self._requests[event.request_id] = event
        elif isinstance(event, ElicitationRequest):
            self._requests[event.request_id] = event
        elif isinstance(event, SessionUpdate):
            if event.state_delta is not None:
                self.state_values.update(event.state_delta)
            if isinstance(event.state_snapshot, dict):
                self.state_values = dict(event.state_snapshot)
        elif isinstance(event, (ToolResponse, ElicitationResponse)):
            self._requests.pop(event.request_id, None)

    def _reader(self, stream_id: str, turn_id: str, after: int, receipts: Sequence[Receipt]) -> LogStream:
        return LogStream(
            self._log,
            stream_id=stream_id,
            turn_id=turn_id,
            after=after,
            receipts=receipts,
            stream_ended=self.machine.is_ended,
        )

    def _merged(self, options: ExecutionOptions | None) -> ExecutionOptions:
        base = self.options.execution
        if options is None:
            return base
        given = {name: getattr(options, name) for name in options.model_fields_set}
        return base.model_copy(update={name: value for name, value in given.items() if value is not None})

    # -- opening and loading ------------------------------------------------------------------------------------------

    def begin(self, event: Event) -> None:
        """Record the first event of a new session."""
        self._record(event)

    def load_record(self, events: Sequence[Event], reserved_seq: int) -> None:
        """Fill an unused session from its stored record, without writing anything."""
        for event in events:
            self.machine.feed(event)
            self._note(event)
            self._log.append(event, visible=True)
            if event.turn_id is not None and event.turn_id != self._last_turn:
                self._last_turn = event.turn_id
                self._turns += 1
            key = (event.meta or {}).get("idempotencyKey") if isinstance(event, Message) else None
            if isinstance(key, str) and event.turn_id is not None:
                self._keys_seen.setdefault(key, (event.turn_id, event.seq - 1))
        self._seq = max(reserved_seq, self.machine.seq)
        self._id_prefix = f"{self._seq}."
        self._flusher.loaded(self._seq)
        if events:
            self._clock.start_after(events[-1].timestamp)

    def repair(self) -> None:
        """Close what a process that was killed left: a cut stream, and requests that lived in its memory. PER-04."""
        machine = self.machine
        if machine.state == "running":
            for event in settle_requests(machine.requests.values()):
                self._record(event)
            for event in close_agents(machine, "failed"):
                self._record(event)
            self._end("failed", {"cause": "lost"})
        elif machine.state == "input_required" and not self._executor.can_resume(self):
            self._settle_turn("failed", "lost")
        elif machine.state == "input_required":
            volatile = [id for id in self._last_volatile() if id in machine.requests]
            if volatile and set(volatile) == set(machine.requests):
                self._settle_turn("failed", "lost")
            else:
                self._settle_ids(volatile)

    def settle_fork(self) -> None:
        """What was pending where the fork was made is settled in the fork. PER-05."""
        if self.machine.state == "input_required":
            self._settle_turn("aborted", "fork")

    def _last_volatile(self) -> list[str]:
        for event in reversed(self._log.events):
            if isinstance(event, StreamEnd):
                listed = (event.data or {}).get("volatile")
                return [id for id in listed if isinstance(id, str)] if isinstance(listed, list) else []
        return []

    async def stored(self) -> None:
        """Wait until all that was recorded is stored."""
        await self._flusher.flushed()


def _is_yes(answer: Answer) -> bool:
    return isinstance(answer, ElicitationAnswer) and answer.action == "accept"
