"""The session that every executor gets for free: the host's calls.

Not for: the record (``_recording.py``), answers (``_pending.py``), what runs (``_turns.py``, ``_work.py``) and how it
ends (``_ending.py``), running the agent (``_run.py`` and the author's coroutine) or the rules (``SessionMachine``).
Rules carried: the calls' parts of LIFE, ORD, TOOL, HITL and CTL, through the modules named here.
May import: ``agentsession.protocol``, anyio, the modules beside it.

Every decision is one synchronous step: the machine checks, the log appends, nothing awaits in between. What may take
time (storing, the executor's exit) comes after it. No task group and no cancel scope belongs to a session; runs are
tasks of the executor's group, so a session may be closed from any task of its loop.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

from agentsession.adapters.base._arguments import need
from agentsession.adapters.base._ending import Ending
from agentsession.adapters.base._grace import LastWord
from agentsession.adapters.base._hooks import Hooks
from agentsession.adapters.base._limits import Limits
from agentsession.adapters.base._loopwatch import LoopWatch
from agentsession.adapters.base._pending import AnswerBook
from agentsession.adapters.base._readers import LogReader, LogStream
from agentsession.adapters.base._recording import Recorder
from agentsession.adapters.base._steering import Steers
from agentsession.adapters.base._telemetry import stream_spans
from agentsession.adapters.base._turns import Turns
from agentsession.adapters.base._work import Work
from agentsession.protocol import (
    AbortResult,
    AbortTimeout,
    AgentDescriptor,
    AgentSessionError,
    Answer,
    Content,
    Event,
    ExecutionOptions,
    LifecycleInterceptor,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    RecordKey,
    RecordStore,
    SessionClosed,
    SessionConfig,
    SessionHook,
    SessionMachine,
    SessionState,
    SessionUpdate,
    SteerData,
    StreamActive,
    StreamEnd,
    Unimplemented,
    as_answers,
    as_content,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._executor import BaseExecutor

__all__ = ["BaseSession"]

E = TypeVar("E", bound=Event)

_logger = logging.getLogger("agentsession.adapters")


class BaseSession:
    """One session of a :class:`BaseExecutor`; satisfies ``agentsession.protocol.AgentSession``."""

    def __init__(
        self,
        executor: BaseExecutor,
        key: RecordKey,
        options: OpenOptions,
        store: RecordStore | None,
        owner: str,
        hooks: LifecycleInterceptor | None = None,
    ) -> None:
        self.executor = executor
        self.options = options
        self.hooks = Hooks(hooks) if hooks is not None else None
        """The host's hooks; a session without any pays nothing for them."""
        self._store = store
        self._owner = owner
        self.is_hooked = False
        self._started = False
        self._mode: str | None = options.execution.permission_mode
        self._released = False
        self._closing = False
        self.rewinding = False
        """The session is being rewound: no stream may begin, and nothing may be changed."""
        self.recorder = Recorder(
            key,
            options.host,
            window=executor.window,
            now=executor.now,
            group=executor.task_group,
            store=store,
            on_failure=self._stop,
            kept_events=None if executor.needs_whole_record else executor.kept_events,
            snapshot_every=executor.snapshot_every if self.uses_snapshots else None,
        )
        self.spans = self.recorder.spans = stream_spans(
            executor.descriptor.name,
            key.session_id,
            executor.descriptor.metadata.version if executor.descriptor.metadata is not None else None,
            counts_models=executor.measures_models,
        )
        self.answers = AnswerBook(self)
        self.limits = Limits(self)
        self.last_word = LastWord(self)
        self.ending = Ending(self)
        self.turns = Turns(self)
        self.loops = LoopWatch(self)
        self.work = Work(self)
        self.steers = Steers(self)

    def _stop(self, failure: AgentSessionError) -> None:
        self.ending.stop(failure)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        return self.recorder.key.session_id

    @property
    def user_id(self) -> str:
        """The user that the session belongs to."""
        return self.recorder.key.user_id

    @property
    def descriptor(self) -> AgentDescriptor:
        return self.executor.descriptor

    @property
    def machine(self) -> SessionMachine:
        """The state machine; only to be read."""
        return self.recorder.machine

    @property
    def state(self) -> SessionState:
        return self.recorder.machine.state

    @property
    def pending(self) -> Sequence[PendingRequest]:
        return [self.recorder.requests[request_id] for request_id in self.answers.pending_ids()]

    @property
    def last_seq(self) -> int:
        return self.recorder.shown_seq

    @property
    def record(self) -> Sequence[Event]:
        """The events that are kept in memory, oldest first, also those that are not stored yet.

        Those are all, or, where a store has the record, the turn that is open and the last ones before it
        (``BaseExecutor.kept_events``). :meth:`whole_record` gives all.
        """
        return self.recorder.log.events

    async def whole_record(self) -> Sequence[Event]:
        """Every event: those that are not in memory are read from the store."""
        log, store = self.recorder.log, self._store
        if not log.dropped_seq or store is None:
            return log.events
        stored = [event for event in await store.read(self.recorder.key) if event.seq <= log.dropped_seq]
        return [*stored, *log.events]

    @property
    def uses_snapshots(self) -> bool:
        """Whether the session is loaded from its snapshots and what came after them."""
        return self.executor.snapshot_every is not None and not self.executor.needs_whole_record

    @property
    def state_values(self) -> dict[str, Any]:
        """The session's state, as far as updates and state deltas tell."""
        return self.recorder.state_values

    @property
    def permission_mode(self) -> str | None:
        """The permission mode as the session was opened with it, or as it was last changed."""
        return self._mode

    @property
    def turn_number(self) -> int:
        """How many turns the session has had, the present one included."""
        return self.recorder.turns

    @property
    def store(self) -> RecordStore | None:
        """Where the record is kept; ``None`` for a session that lives in memory alone."""
        return self._store

    @property
    def readers(self) -> int:
        """How many readers are attached."""
        return self.recorder.log.readers

    # -- the host's calls ---------------------------------------------------------------------------------------------

    def stream(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> LogStream:
        """Start a turn with a message, or continue the waiting one (see ``AgentSession.stream``)."""
        self._check_not_closing()
        if options is not None:
            need(options, ExecutionOptions, "options argument", "pass ExecutionOptions(...)")
        if isinstance(input, str):
            return self.turns.start(MessageInput(content=as_content(input)), options)
        if isinstance(input, MessageInput):
            return self.turns.start(input, options)
        return self.turns.go_on([] if input is None else as_answers(input), options)

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        """Answer pending requests in any state but closed (see ``AgentSession.respond``)."""
        self.machine.check_call("answer")
        receipts = self.answers.respond(as_answers(answers))
        await self.stored()
        return receipts

    def limit_own(self, *, model_calls: int | None = None, cost: float | None = None) -> None:
        """What the present turn's own model calls may come to in all (see ``SharesLimits.limit_own``)."""
        self.limits.limit_own(model_calls, cost)

    async def steer(self, data: Content | SteerData) -> Receipt:
        """Queue something for the agent to read before its next model call (see ``AgentSession.steer``)."""
        self._require("steering")
        self._check_not_closing()
        steer = data if isinstance(data, SteerData) else SteerData(message=as_content(data))
        if steer.action is not None:
            return Receipt(status="rejected", reason=f"this executor has no action {steer.action!r}")
        if not steer.message:
            return Receipt(status="rejected", reason="a steer needs a message")
        receipt = self.steers.queue(steer.message)
        await self.stored()
        return receipt

    async def update(self, config: SessionConfig) -> Receipt:
        """Change model, mode, tools, title, state or config, wholly or not at all (see ``AgentSession.update``)."""
        self.machine.check_call("update")
        need(config, SessionConfig, "update", "pass SessionConfig(...)")
        if self.rewinding:
            return Receipt(status="rejected", rule="CTL-07", reason="the session is being rewound")
        if self.state == "running" and not self.descriptor.supports("mid_turn_update"):
            return Receipt(status="rejected", rule="CTL-07", reason="this executor takes no update while it runs")
        reason = self.executor.check_update(self, config)
        if reason is not None:
            return Receipt(status="rejected", rule="CTL-07", reason=reason)
        self.recorder.record(
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
        self._mode = config.permission_mode or self._mode
        if config.tools is not None:
            self.loops.know_tools(config.tools)
        self.executor.apply_update(self, config)
        await self.stored()
        return Receipt(status="applied")

    async def abort(self, reason: str | None = None) -> AbortResult:
        """End the turn (see ``AgentSession.abort``)."""
        self._require("abort")
        if reason is not None:
            need(reason, str, "reason", "say it in words, such as str(error)")
        return await self._abort(reason or "abort")

    async def _abort(self, cause: str) -> AbortResult:
        if self.state == "closed":
            return AbortResult(status="idle")
        turns, run, stream_id = self.turns, self.turns.run, self.machine.stream_id
        waited = self.state == "input_required"
        if waited:
            stream_id = self.ending.settle_turn("aborted", cause)
        elif stream_id is not None and run is not None:
            self.ending.interrupt(run, "aborted", cause)
        try:
            # Also when there is nothing to end: an abort before this one may still be waiting for the executor.
            await self.ending.wait_exited([run] if run is not None and not waited else turns.unfinished())
        except AbortTimeout:
            await self.release()
            raise
        await self.stored()
        if stream_id is None:
            return AbortResult(status="idle")
        ends = (event for event in reversed(self.record) if isinstance(event, StreamEnd))
        end = next((event for event in ends if event.stream_id == stream_id), None)
        if end is None:  # the session was stopped meanwhile, as its store failed
            raise SessionClosed("the session is closed", where=f"session {self.session_id}")
        return AbortResult(status="aborted" if end.reason == "aborted" else "too_late", stream_id=stream_id)

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
        return self.recorder.reader(after, follow, types, stream_id, thread_id)

    def _check_not_closing(self) -> None:
        """Closing waits for the executor and for the store: what began meanwhile would be cut off in the middle."""
        if self._closing or self.state == "closed":
            raise SessionClosed(
                "the session is closed" if self.state == "closed" else "the session is being closed",
                where=f"session {self.session_id}",
                fix="load it, or open another one",
            )
        if self.rewinding:
            raise StreamActive(
                "the session is being rewound", where=f"session {self.session_id}", fix="wait for rewind() to return"
            )

    def _require(self, capability: str) -> None:
        if not self.descriptor.supports(capability):
            raise Unimplemented(
                f"agent {self.descriptor.name} does not offer {capability}",
                expected=f"the capability {capability} in its descriptor",
            )

    # -- closing ------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close from any task of the loop (see ``AgentSession.aclose``)."""
        self._closing = True
        with anyio.CancelScope(shield=True):
            try:
                if self.state != "closed":
                    await self._end_all()
            except AgentSessionError as error:  # the executor does not end, or the store failed: readers are told
                _logger.warning("session %s was closed as it stood: %s", self.session_id, error.what)
                self.ending.stop(error)
            finally:
                if self.state != "closed":
                    self.machine.abandon()
                self.limits.forget()
                if not self.recorder.log.closed:
                    self.recorder.log.close()
                await self.release()

    async def _end_all(self) -> None:
        if self.state == "running":
            await self._abort("closed")
        if self.state == "input_required":
            if self.executor.can_resume(self):
                self.ending.settle_volatile("closed", "aborted", self.executor.volatile(self))
                self.ending.mute(self.turns.run)
            else:
                self.ending.settle_turn("aborted", "closed")
        await self.ending.wait_exited(self.turns.unfinished())
        await self.stored()

    def hooked(self) -> None:
        """The executor's ``on_open``, ``on_load`` or ``on_fork`` has returned: ``on_close`` is due."""
        self.is_hooked = True

    async def fire_start(self, reason: str) -> None:
        """Fire ``session_start``. Raises :class:`AgentSessionError` (``hook-blocked``) when it is blocked."""
        if self.hooks is not None:
            if self._mode is None:  # a loaded session may have changed it
                self._mode = self.recorder.known.permission_mode
            hooked = await self.hooks.fire("session_start", self._payload(reason))
            if hooked.blocked:
                raise AgentSessionError(
                    hooked.message or "a hook of the host does not allow this session",
                    where=f"session {self.session_id}",
                    got=hooked.who,
                    id="hook-blocked",
                )
        self._started = True

    def _payload(self, reason: str) -> SessionHook:
        return SessionHook(session_id=self.session_id, user_id=self.user_id, permission_mode=self._mode, reason=reason)

    async def release(self) -> None:
        """Give back the record's lock and what the executor holds for a session that is closed."""
        if self._released:
            return
        self._released = True
        if self.spans is not None:
            self.spans.close()
        self.executor.forget(self)
        # Shielded: a caller that is cancelled in here would leave the record locked for the life of the process.
        with anyio.CancelScope(shield=True):
            try:
                if self.hooks is not None and self._started:
                    with anyio.move_on_after(self.executor.grace_s):  # only told: it must not hold the record's lock
                        await self.hooks.fire("session_end", self._payload("closed"))
                if self.is_hooked:
                    await self.executor.on_close(self)
            finally:
                if self._store is not None:
                    await self._unlock(self._store)

    async def _unlock(self, store: RecordStore) -> None:
        flusher = self.recorder.flusher
        # Whoever takes the lock reads the record: a write of ours that came after would not be in what it read.
        with anyio.move_on_after(self.executor.grace_s):
            await flusher.idle()
        if flusher.is_writing:
            _logger.error("session %s: its store does not answer; the record stays locked", self.session_id)
            return
        try:
            await store.unlock(self.recorder.key, self._owner)
        except Exception:
            if flusher.failure is None:
                raise
            _logger.exception("session %s: its record could not be unlocked", self.session_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- what executors and runs use ----------------------------------------------------------------------------------

    async def stored(self) -> None:
        """Wait until what has been recorded by now is stored."""
        await self.recorder.flusher.flushed()
