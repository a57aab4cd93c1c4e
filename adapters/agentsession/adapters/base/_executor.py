"""The executor base class: an author writes one coroutine, the rest of the contract comes from here.

Not for: the session's calls (``_session.py``), how sessions begin (``_opening.py``).
Rules carried: LIFE-09, LIFE-13, SEC-01. May import: ``agentsession.protocol``, anyio, the modules beside it.

::

    class Echo(BaseExecutor):
        descriptor = AgentDescriptor(name="echo", executor="echo", capabilities=["abort"])

        async def run(self, ctx: RunContext) -> None:
            await ctx.say(ctx.input.content)

    async with Echo() as executor:
        session = await executor.open()

``run`` may also be an async generator that yields events to record. It may wait for answers inside (the run stays open
over several streams), or emit requests with ``ctx.post``, return, and be called again with ``ctx.answers``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Self

import anyio
from anyio.abc import TaskGroup

from agentsession.adapters.base._arguments import need, wrong_args
from agentsession.adapters.base._clock import Milliseconds
from agentsession.adapters.base._context import RunContext
from agentsession.adapters.base._hooked import hear
from agentsession.adapters.base._keeping import KeptRuns
from agentsession.adapters.base._opening import SessionOpener, new_owner
from agentsession.adapters.base._rewinding import rewind_session
from agentsession.adapters.base._run import Outcome, Run
from agentsession.adapters.base._session import BaseSession
from agentsession.protocol import (
    AgentDescriptor,
    AgentSessionError,
    AgentStart,
    Answer,
    ConfigurationError,
    Error,
    Event,
    InvalidInput,
    LifecycleInterceptor,
    MessageInput,
    OpenOptions,
    ProtocolViolation,
    Receipt,
    RecordInfo,
    RecordKey,
    RecordStore,
    RequestState,
    RunEnded,
    SessionConfig,
    StreamEnd,
    ToolGrant,
    Unimplemented,
    check_id,
)

__all__ = ["BaseExecutor", "RunResult"]

_logger = logging.getLogger("agentsession.adapters")
# A library says nothing unless its user wants to hear it: what an exception was goes here, never into events.
_logger.addHandler(logging.NullHandler())


class RunResult:
    """How a run that ended by itself ended, when it is not plainly completed.

    ``reason`` and ``data`` are those of ``StreamEnd``; ``data`` must be JSON. ``input_required`` cannot be chosen: a
    stream ends so if and only if something is pending. Nor can ``undelivered`` in ``data``, which the session lists.
    """

    __slots__ = ("data", "reason")

    def __init__(self, reason: str = "completed", data: dict[str, Any] | None = None) -> None:
        end = StreamEnd(reason=reason, data=data)  # raises here, where the author can see it
        if "undelivered" in (end.data or ()):
            raise InvalidInput("the session lists undelivered steers itself", fix="give it another name in the data")
        self.reason = end.reason
        self.data = end.data


RunReturn = Awaitable[RunResult | None] | AsyncIterator[Event]
"""What ``run`` gives back: a coroutine, or an async iterator of events."""


class BaseExecutor:
    """Base of executors; satisfies ``agentsession.protocol.AgentExecutor``.

    ``store`` keeps the records of sessions that are opened without one of their own. ``window`` is how many events a
    reader may fall behind before it holds the producer; ``grace_s`` how many seconds an abort waits for the executor to
    end; ``now`` gives the time in milliseconds; ``max_kept_runs`` is how many runs may stay open while their turns
    wait for the host: beyond it those that can be answered without their run are let go, or a new turn is refused.
    ``kept_events`` is how many events of ended turns a session keeps in memory where a store has its record, and
    ``snapshot_every`` after how many events a snapshot is stored beside it; ``None`` keeps all, and stores none.
    """

    descriptor: AgentDescriptor
    brackets_itself: ClassVar[bool] = False
    """The executor emits agent_start and agent_end itself; else each turn is bracketed with the root agent."""
    counts_model_calls: ClassVar[bool] = False
    """The executor ends a turn that needs more model calls or steps than ``ctx.limits`` allows, with the reason
    ``max_llm_calls`` or ``max_turns``; else a host that sets these limits is refused."""
    fires_hooks: ClassVar[bool] = False
    """The executor asks the host's hooks about messages and tool calls itself; else ``ctx`` does, at
    ``on_user_message``, ``before_tool`` and ``after_tool``."""
    gives_grace: ClassVar[bool] = False
    """The executor makes one last model call when it is called with ``ctx.grace``; else a turn that reached a limit
    ends without a last word."""

    measures_models: ClassVar[bool] = True
    """The base measures agents, model calls and tokens by their ``gen_ai`` names; not where a framework does."""
    needs_whole_record: ClassVar[bool] = False
    """The executor reads events of ended turns in ``ctx.record`` or ``session.record``: a session keeps all of them in
    memory, and is loaded by reading all of them."""

    def __init__(
        self,
        *,
        store: RecordStore | None = None,
        window: int = 256,
        grace_s: float = 5.0,
        now: Milliseconds | None = None,
        max_kept_runs: int = 1000,
        kept_events: int | None = 2000,
        snapshot_every: int | None = 1000,
    ) -> None:
        if window < 2:
            raise InvalidInput("the window is too small", got=str(window), expected="2 or more events")
        if max_kept_runs < 1:
            raise InvalidInput("no run could be kept open", got=str(max_kept_runs), expected="1 or more")
        for given in (kept_events, snapshot_every):
            if given is not None and given < 1:
                raise InvalidInput("this number is too small", got=str(given), expected="1 or more events, or None")
        # No fewer than some windows: a reader that holds the producer finds its place in memory.
        self.kept_events = None if kept_events is None else max(kept_events, 2 * window)
        self.snapshot_every = snapshot_every
        self.kept = KeptRuns(max_kept_runs)
        self.store = store
        self.window = window
        self.grace_s = grace_s
        self.now = now
        # An author's class may have a _group, a _call or a _sessions of its own: what is ours alone is out of its way.
        self.__group: TaskGroup | None = None
        self.__sessions: dict[RecordKey, BaseSession] = {}
        self.opener = SessionOpener(self, self.__sessions)
        """What makes them."""

    # -- what an author writes ----------------------------------------------------------------------------------------

    def run(self, ctx: RunContext) -> RunReturn:
        """Work on one turn. ``ctx.input`` is the message, or ``None`` when re-entered with ``ctx.answers``."""
        raise NotImplementedError(f"{type(self).__name__} must define run()")

    async def on_open(self, session: BaseSession) -> None:
        """A session is new: make what the agent behind needs for it. An exception refuses the session."""

    def check_record(self, events: Sequence[Event]) -> None:
        """A record was read to be loaded: raise to refuse it, before anything of it is changed.

        ``events`` are all of it if the executor ``needs_whole_record``, else those that the session keeps.
        """

    async def on_cut(self, session: BaseSession) -> Sequence[Event]:
        """A record was read that ends in the middle of a stream: what the agent behind knows of it beyond the record.

        The stream is closed then. Events that the state machine refuses are left out.
        """
        return ()

    async def on_load(self, session: BaseSession) -> None:
        """A stored session was read and repaired; an exception refuses it."""

    async def on_close(self, session: BaseSession) -> None:
        """A session was closed, after its ``on_open``, ``on_load`` or ``on_fork`` had returned. Called once."""

    async def on_delete(self, key: RecordKey) -> None:
        """A session's record is about to be removed: remove what the agent behind keeps of it.

        Also of a new session that cannot be started after its ``on_open`` or ``on_fork`` has returned.
        """

    async def on_fork(self, source: RecordKey, session: BaseSession, at: int) -> None:
        """``session`` was forked from ``source`` at seq ``at``: copy what the agent behind keeps."""

    async def on_rewind(self, session: BaseSession, to: int) -> None:
        """``session`` was rewound to seq ``to``, by its last event: the agent behind forgets what came after.

        ``on_load`` must do the same where a process was killed between the marker and this.
        """

    def check_message(self, message: MessageInput) -> None:
        """Raise :class:`InvalidInput` for a message that this executor cannot take."""
        if not message.content:
            raise InvalidInput("the message is empty", expected="text or parts", fix="say something")

    def check_answer(self, session: BaseSession, request: RequestState, answer: Answer) -> Receipt | None:
        """A receipt that refuses an answer the machine takes, or ``None``. Edited arguments must fit their schema."""
        if isinstance(answer, ToolGrant) and answer.args is not None:
            wrong = wrong_args(self.descriptor, request.name, answer.args)
            if wrong is not None:
                return Receipt(
                    status="invalid", request_id=request.id, rule="TOOL-04", reason=f"the edited arguments: {wrong}"
                )
        return None

    def check_update(self, session: BaseSession, config: SessionConfig) -> str | None:
        """Why an update cannot be applied wholly, or ``None``.

        By default a title, state and the permission mode can be set; the mode is the host's to keep.
        """
        given = [name for name in config.model_fields_set if getattr(config, name) is not None]
        refused = [name for name in given if name not in ("title", "state", "permission_mode")]
        if refused:
            return f"this executor cannot change {', '.join(sorted(refused))}"
        return None if given else "nothing to update"

    def apply_update(self, session: BaseSession, config: SessionConfig) -> None:
        """An update was recorded: make it hold from the next model call on. Must not raise."""

    def volatile(self, session: BaseSession) -> Sequence[str]:
        """The open requests that would not survive this process; by default all, unless ``resume`` is declared."""
        return [] if self.can_resume(session) else list(session.machine.requests)

    def pause_data(self, session: BaseSession) -> Mapping[str, Any]:
        """What the ``data`` of a pause's ``stream_end`` shall tell a process that loads the session. Must not raise."""
        return {}

    def can_let_go(self, session: BaseSession) -> bool:
        """Whether the turn that waits can be answered without the run that is kept for it, by calling ``run`` again."""
        return self.can_resume(session) and not self.volatile(session)

    def can_resume(self, session: BaseSession) -> bool:
        """Whether a waiting turn of this session can be continued by another process."""
        return self.descriptor.supports("resume")

    def has_begun(self, session: BaseSession, request: RequestState) -> bool:
        """Whether the tool of a request that was allowed may have begun, for all that is known: its turn ends, and it
        is ``unknown`` then; one that never began is ``cancelled``. Must not raise."""
        return True

    def describe_error(self, error: BaseException) -> Error:
        """The error event for an exception that left ``run``: no traceback, and no text that could hold a secret."""
        if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            return self.describe_error(error.exceptions[0])
        if isinstance(error, ProtocolViolation):
            return Error(status="INTERNAL", message=error.headline(), fatal=True, code=error.rule)
        if isinstance(error, AgentSessionError):
            return Error(status="INTERNAL", message=error.what, fatal=True, code=error.id)
        return Error(status="INTERNAL", message=f"the executor failed with {type(error).__name__}", fatal=True)

    # -- the executor's own life --------------------------------------------------------------------------------------

    @property
    def open_sessions(self) -> Mapping[RecordKey, BaseSession]:
        """The sessions that are open, or being opened."""
        return MappingProxyType(self.__sessions)

    @property
    def task_group(self) -> TaskGroup:
        """The only task group: runs and flushers are its tasks. Raises :class:`ConfigurationError` when not entered."""
        if self.__group is None:
            raise ConfigurationError(
                "the executor is not running", fix="enter it: async with executor:", id="executor-not-entered"
            )
        return self.__group

    async def __aenter__(self) -> Self:
        if self.__group is not None:
            raise ConfigurationError("the executor is running already", fix="enter it once, and open sessions in there")
        group = anyio.create_task_group()
        await group.__aenter__()
        self.__group = group
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        group = self.task_group
        failures: list[Exception] = []
        try:
            with anyio.CancelScope(shield=True):
                while self.__sessions:  # one may be opened while another is closed
                    session = next(iter(self.__sessions.values()))
                    try:
                        await session.aclose()
                    except Exception as failure:  # noqa: BLE001 - raised below; the others must be closed first
                        failures.append(failure)
                    self.forget(session)
        finally:
            group.cancel_scope.cancel()
            # The reason of leaving is not handed on: the group has no children that failed, and must not wrap it.
            await group.__aexit__(None, None, None)
            self.__group = None
        if failures and error is None:
            raise failures[0]
        return None

    def start_run(self, session: BaseSession, run: Run) -> None:
        """Start the task of a run."""
        with (
            session.spans.attached() if session.spans is not None else nullcontext()
        ):  # a task keeps the context it began in
            self.task_group.start_soon(self.__run_main, session, run, name=f"agentsession run {run.turn_id}")

    async def __run_main(self, session: BaseSession, run: Run) -> None:
        outcome = Outcome(cancelled=True)
        try:
            with anyio.CancelScope() as scope:
                run.scope = scope
                if run.muted or (run.aborting is not None and not run.on_abort):
                    scope.cancel()
                await self.__after(run.previous)
                run.previous = []
                result = await self.__call(session, run)
                if result is not None:
                    outcome.reason, outcome.data = result.reason, result.data
                outcome.cancelled = False
        except RunEnded:
            outcome.cancelled = False
        except Exception as error:
            outcome.cancelled = False
            if not _only_run_ended(error):
                outcome.error = error
                _logger.error("session %s: the run failed", session.session_id, exc_info=error)
        finally:
            run.scope = None
            session.ending.run_exited(run, outcome)

    async def __after(self, previous: Sequence[Run]) -> None:
        """A turn's executor starts only after those of the turns before have exited."""
        with anyio.move_on_after(self.grace_s):
            for run in previous:
                await run.exited.wait()
        if not all(run.is_over for run in previous):
            raise AgentSessionError(
                "the work of the turn before did not end", fix="close the session and load it", id="abort-timeout"
            )

    async def __call(self, session: BaseSession, run: Run) -> RunResult | None:
        working = session.machine.agents.get(None) if run.message is None else None
        ctx = RunContext(session, run, working[-1] if working else self.descriptor.name)
        begins = run.message is not None or (run.grace is not None and not run.answers)
        if not self.brackets_itself and begins:
            await ctx.emit(AgentStart(agent_id=self.descriptor.name))
        # First what the run acts on, then its acts: a killed process must find the stream that it was in (PER-04).
        await ctx.stored()
        if ctx.hooked is not None:
            ended = await hear(ctx, ctx.hooked, run, starts=self.brackets_itself)
            if ended is not None:
                return RunResult("aborted", {"cause": ended})
        made: Any = self.run(ctx)
        if inspect.isawaitable(made):
            result = await made
            if result is None or isinstance(result, RunResult):
                return result
            raise InvalidInput(f"run() returned {type(result).__name__}", expected="RunResult, or nothing")
        if not isinstance(made, AsyncIterable):
            raise InvalidInput(
                f"run() gave {type(made).__name__}", expected="a coroutine, or an async iterator of events"
            )
        try:
            async for event in made:
                await ctx.post_any(event)
        finally:
            close = getattr(made, "aclose", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await close()
        return None

    def forget(self, session: BaseSession) -> None:
        """The session was closed."""
        self.kept.discard(session)
        for key, held in list(self.__sessions.items()):
            if held is session:
                del self.__sessions[key]

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def open(
        self,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> BaseSession:
        """Start a session (see ``AgentExecutor.open``)."""
        return await self.opener.open(options, store, hooks)

    async def load(
        self,
        session_id: str,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> BaseSession:
        """Open a stored session (see ``AgentExecutor.load``). Rules: PER-01, PER-04."""
        self.__require("load")
        return await self.opener.load(session_id, self.opener.checked(options), store, hooks)

    async def list(self, user_id: str = "local", *, store: RecordStore | None = None) -> Sequence[RecordInfo]:
        """The user's stored sessions with this agent, newest first."""
        self.__require("list")
        return await self.opener.store_of(store).list(self.descriptor.name, check_id(user_id, "user id"))

    async def delete(self, session_id: str, user_id: str = "local", *, store: RecordStore | None = None) -> None:
        """Remove a stored session and all it holds."""
        self.__require("delete")
        kept = self.opener.store_of(store)
        key = self.record_key(session_id, user_id)
        await kept.info(key)
        owner = new_owner()
        await kept.lock(key, owner)
        try:
            await self.on_delete(key)
        finally:
            await kept.unlock(key, owner)
        await kept.delete(key)

    async def fork(
        self,
        session_id: str,
        at: int,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> BaseSession:
        """Copy the record up to seq ``at`` under a new id; what is pending there is settled in the fork. PER-05."""
        self.__require("fork")
        return await self.opener.fork(session_id, at, options, store, hooks)

    async def rewind(
        self, session_id: str, to: int, user_id: str = "local", *, store: RecordStore | None = None
    ) -> None:
        """Take back what came after seq ``to`` (see ``AgentExecutor.rewind``). PER-06."""
        self.__require("rewind")
        to = need(to, int, "seq", "pass the seq of an event")
        session = self.__sessions.get(self.record_key(session_id, user_id))
        if session is not None:
            await rewind_session(session, to)
            return
        session = await self.opener.load(session_id, OpenOptions(user_id=user_id), store, None)
        try:
            await rewind_session(session, to)
        finally:
            await session.aclose()

    def record_key(self, session_id: str, user_id: str) -> RecordKey:
        """What a session is kept under. Raises :class:`InvalidInput` for ids that cannot be kept."""
        return RecordKey(self.descriptor.name, user_id, session_id)

    def __require(self, capability: str) -> None:
        if not self.descriptor.supports(capability):
            raise Unimplemented(
                f"agent {self.descriptor.name} does not offer {capability}",
                expected=f"the capability {capability} in its descriptor",
            )


def _only_run_ended(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_only_run_ended(item) for item in error.exceptions)
    return isinstance(error, RunEnded)
