"""The host: owns the tools, the policy and the person, and runs whole turns of any executor's sessions.

Not for: the turn's mechanics (``_turn.py``, ``_requests.py``) or a terminal (``cli``). Rules carried: none of its own.
May import: anyio, the other modules of this package, ``protocol``. Works on asyncio and trio.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal, cast

import anyio

from agentsession.host._attached import Attached, recorded_mode
from agentsession.host._choices import check_choices
from agentsession.host._elicitation import ElicitationChannel, NoChannel
from agentsession.host._limits import HostLimits
from agentsession.host._lineage import LOOSEST_MODE, Above, Child
from agentsession.host._many import Job, JobResult, Jobs, side_by_side
from agentsession.host._policy import AnnotationPolicy, Policy
from agentsession.host._registry import SessionFactory, checked_executor
from agentsession.host._results import TurnResult
from agentsession.host._settings import AnswerObserver, ClientTools, Observer, Settings, observe
from agentsession.host._telemetry import under_trace
from agentsession.host._toolbox import ToolBox, ToolLike, ToolProvider, is_provider
from agentsession.host._turn import Turn
from agentsession.host._waiting import WaitingRequests
from agentsession.host.hooks import HookChain, HostHooks
from agentsession.host.policy._remembered import RememberedAnswers
from agentsession.protocol import (
    AbortTimeout,
    AgentDescriptor,
    AgentExecutor,
    AgentSession,
    AgentSessionError,
    Answer,
    ConfigurationError,
    Constraints,
    EventStream,
    ExecutionOptions,
    Grace,
    LifecycleInterceptor,
    MessageInput,
    OpenOptions,
    Price,
    RecordStore,
    StreamActive,
)

__all__ = ["Host"]

logger = logging.getLogger("agentsession.host")

_LOOKED_AT = 4
"""At each opening the host looks whether so many of its sessions were closed by hand."""
_CLOSES = 3
"""Closing is an abort, telling the hooks and waiting for the store: each has a grace time."""


class Host:
    """Runs agents under control: every tool call passes schema, policy and, where the policy says so, the person.

    ::

        host = Host(tools=[read_file], policy=RulePolicy([Rule("allow", "read_*")]), observer=print)
        async with executor, host.session(executor) as session:
            result = await host.run_turn(session, "Fix the login bug")

    ``tools``: functions, :func:`tool`\\ s, ``(ToolDescriptor, callable)`` pairs and providers such as a tool server,
    in any mixture, or one provider.
    ``policy``: an evaluator or a function; default :class:`AnnotationPolicy`, which allows only what reads.
    ``channel``: reaches the person; without one, what would be asked is refused.
    ``on_ask``: what ``ask_user`` and questions do: ``channel`` asks, ``deny`` refuses, ``pause`` leaves them waiting.
    ``observer``: called for each event, sync or async, before its request is served; a slow one holds the agent.
    ``on_answer``: called for each answer of the host with its receipt.
    ``tool_timeout_s``: seconds a host tool may run, people's time not counted; ``None`` is no limit.
    ``max_parallel_tools``: host tools that run at once in one turn.
    ``expose_tool_errors``: whether the model sees an exception's message, or only its type.
    ``hooks``: asked at the points of each session's life: one interceptor, or several (``agentsession.host.hooks``).
    ``abort_grace_s``: how long an abort waits for that of the session, also where :meth:`run_turn` is cancelled;
    closing may take three times as long. Sessions have a grace time of their own, which should be shorter.
    ``limits``: of every turn of the sessions that it opens; of these, the agent's own and those of a session or turn
    the tightest hold.
    ``deadline_s``: how many seconds after its begin a turn ends, whether it works or waits.
    ``grace``: the last model call of a turn that reached a limit, in which the agent says where it got to.
    ``prices``: what models cost, for executors that only tell tokens: by them ``max_budget_usd`` is kept.
    ``loop_detection``: whether a turn that only repeats itself is told so, and then stopped.
    ``remembered``: what people answered for the session or always; default: kept while the host is there.
    ``question_timeout_s``: how long a person has for an answer. Then a question is cancelled, and a call that waits for
    a yes is refused and its turn ended, so that nothing else of it runs; ``None`` is no limit.
    """

    def __init__(
        self,
        *,
        tools: Iterable[ToolLike | ToolProvider] | ToolProvider = (),
        policy: Policy | None = None,
        channel: ElicitationChannel | None = None,
        observer: Observer | None = None,
        on_answer: AnswerObserver | None = None,
        tool_timeout_s: float | None = 120.0,
        max_parallel_tools: int = 8,
        on_ask: Literal["channel", "deny", "pause"] = "channel",
        expose_tool_errors: bool = True,
        hooks: LifecycleInterceptor | Sequence[LifecycleInterceptor] | None = None,
        abort_grace_s: float = 10.0,
        limits: Constraints | None = None,
        deadline_s: float | None = None,
        grace: Grace | None = None,
        prices: Mapping[str, Price] | None = None,
        loop_detection: bool = True,
        remembered: RememberedAnswers | None = None,
        question_timeout_s: float | None = None,
    ) -> None:
        check_choices(
            tools=tools,
            policy=policy,
            channel=channel,
            observer=observer,
            on_answer=on_answer,
            on_ask=on_ask,
            tool_timeout_s=tool_timeout_s,
            max_parallel_tools=max_parallel_tools,
            question_timeout_s=question_timeout_s,
        )
        if on_ask != "channel" or channel is None:
            channel = NoChannel("pause" if on_ask == "pause" else "deny")
        if remembered is None:
            remembered = RememberedAnswers()
        self._settings = Settings(
            tools=tools if is_provider(tools) else ToolBox(cast("Iterable[ToolLike]", tools)),
            policy=policy if policy is not None else AnnotationPolicy(),
            channel=channel,
            observer=observer,
            on_answer=on_answer,
            tool_timeout_s=tool_timeout_s,
            max_parallel_tools=max_parallel_tools,
            expose_tool_errors=expose_tool_errors,
            hooks=_host_hooks(hooks),
            abort_grace_s=abort_grace_s,
            limits=HostLimits(
                limits=limits, deadline_s=deadline_s, grace=grace, prices=prices, loop_detection=loop_detection
            ),
            remembered=remembered,
            waiting=WaitingRequests(remembered),
            question_timeout_s=question_timeout_s,
        )
        self._attached: dict[int, Attached] = {}
        self._turns: dict[int, Turn] = {}

    @property
    def tools(self) -> ToolProvider:
        """The host's tools."""
        return self._settings.tools

    def options(self, options: OpenOptions | ExecutionOptions | None = None) -> OpenOptions:
        """``options`` with the host's tools declared in them: for executors that are opened by hand."""
        return self._declared(options, self._settings)

    def _declared(self, options: OpenOptions | ExecutionOptions | None, settings: Settings) -> OpenOptions:
        if isinstance(options, ExecutionOptions):
            options = OpenOptions(execution=options)
        options = options or OpenOptions()
        declared = [*(options.execution.tools or []), *settings.tools.descriptors]
        names = [descriptor.name for descriptor in declared]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigurationError(f"two tools are called {twice!r}", fix="declare a tool once, in the host")
        execution = self._settings.limits.for_session(options.execution).model_copy(update={"tools": declared})
        return options.model_copy(update={"execution": execution})

    async def open(
        self,
        executor: AgentExecutor,
        options: OpenOptions | ExecutionOptions | None = None,
        *,
        load: str | None = None,
        store: RecordStore | None = None,
        channel: ElicitationChannel | None = None,
        client_tools: ClientTools | None = None,
    ) -> AgentSession:
        """Open a session with the host's tools declared, or load the one with the id ``load``; :meth:`close` ends it.

        ``channel``: reaches this session's person, in the place of the host's own. ``client_tools``: the tools
        that a client runs, not the host's own: their calls pass hooks and policy, and wait for the client's results.

        Raises :class:`ConfigurationError` when the agent requires a tool that the host does not have, and what the
        executor's ``open`` or ``load`` raises.
        """
        settings = self._settings
        if channel is not None or client_tools is not None:
            settings = dataclasses.replace(settings, channel=channel or settings.channel, client_tools=client_tools)
        return await self._open(executor, options, load, store, settings)

    async def open_child(
        self,
        executor: AgentExecutor,
        options: OpenOptions,
        *,
        load: str | None = None,
        store: RecordStore | None = None,
        settings: Settings,
        above: Above,
    ) -> AgentSession:
        """Open or load the session of a sub-agent, for :class:`agentsession.host.SubagentTool`."""
        return await self._open(executor, options, load, store, settings, above)

    def take_up_child(self, session: AgentSession, *, settings: Settings, above: Above) -> None:
        """Put a sub-agent that waited over a pause under the turn that goes on, in the place of the one before."""
        attached = self._attached[id(session)]
        attached.settings, attached.above = settings, above

    async def _open(
        self,
        executor: AgentExecutor,
        options: OpenOptions | ExecutionOptions | None,
        load: str | None,
        store: RecordStore | None,
        settings: Settings,
        above: Above | None = None,
    ) -> AgentSession:
        checked_executor(executor)
        full = self._declared(options, settings)
        names = {descriptor.name for descriptor in full.execution.tools or []}
        missing = [name for name in executor.descriptor.required_tools if name not in names]
        if missing:
            raise ConfigurationError(
                f"agent {executor.descriptor.name} requires tools that the host does not have",
                got=", ".join(sorted(names)) or "no tools",
                expected=", ".join(missing),
                fix="add them: Host(tools=[...])",
            )
        # Executors of before there were hooks take no such argument.
        given: dict[str, Any] = {} if settings.hooks is None else {"hooks": settings.hooks}
        if load is None:
            session = await executor.open(full, store=store, **given)
        else:
            session = await executor.load(load, full, store=store, **given)
        try:
            return await self._attach(session, full, load is not None, store, settings, above)
        except BaseException:  # nobody has it, so nobody else would close it
            with anyio.CancelScope(shield=True):  # closing is bounded
                await self._close_quietly(session)
            raise

    async def _attach(
        self,
        session: AgentSession,
        full: OpenOptions,
        is_loaded: bool,
        store: RecordStore | None,
        settings: Settings,
        above: Above | None,
    ) -> AgentSession:
        mode = full.execution.permission_mode
        if mode is None:
            unset = "default" if above is None else LOOSEST_MODE
            mode = await recorded_mode(session, unset) if is_loaded else unset
        self._forget_closed()
        attached = Attached(
            session=session,
            cursor=session.last_seq if is_loaded else 0,
            found_seq=session.last_seq if is_loaded else 0,
            permission_mode=mode,
            user_id=full.user_id,
            execution=full.execution,
            declared=tuple(self._settings.tools.descriptors) if above is None else (),
            host=self,
            options=full,
            store=store,
            settings=settings,
            above=above,
        )
        self._attached[id(session)] = attached
        if not is_loaded:
            async for event in session.events():
                attached.cursor = event.seq
                await observe(settings.observer, event)
        return session

    async def _close_quietly(self, session: AgentSession) -> None:
        try:
            await self.close(session)
        except Exception as error:  # noqa: BLE001 - something else counts more
            logger.warning("session %s failed to close: %s", session.session_id, type(error).__name__)

    def _forget_closed(self) -> None:
        """Sessions that were closed by hand: kept, they would hold their records.

        A few are looked at each time, in rotation, so that each opening costs the same.
        """
        for key in list(itertools.islice(self._attached, _LOOKED_AT)):
            attached = self._attached.pop(key)
            if attached.session.state != "closed":
                self._attached[key] = attached

    async def close(self, session: AgentSession) -> None:
        """Close a session, from any task; a running turn of it is aborted.

        One that does not close in time is left, and what it raises is raised; a running turn ends with an error then.
        """
        attached = self._attached.pop(id(session), None)
        turn = self._turns.get(id(session))
        if turn is None and self._settings.hooks is not None:  # else it forgets at its end
            self._settings.hooks.forget(session.session_id)
        try:
            # Before their caller's session, which must be closed all the same: what waits in them can be found again.
            for child in [] if attached is None else list(attached.children.values()):
                await self._close_quietly(child.session)
            with anyio.move_on_after(_CLOSES * self._settings.abort_grace_s) as waiting:
                await session.aclose()
        except Exception as error:
            if turn is not None:
                turn.give_up(error)
            raise
        if waiting.cancelled_caught:
            logger.warning("session %s did not close in time, and was left", session.session_id)
            if turn is not None:
                turn.give_up(AbortTimeout("the session did not close in time", where=f"session {session.session_id}"))

    def children(self, session: AgentSession) -> list[Child]:
        """The sub-agents that work for ``session``, or wait for a person; theirs are ``children(child.session)``."""
        attached = self._attached.get(id(session))
        return [] if attached is None else list(attached.children.values())

    async def _drop_settled_children(self, attached: Attached) -> None:
        """Sub-agents that waited for a person, and whose request was settled without them."""
        waiting = {request.request_id for request in attached.session.pending}
        for request_id, child in list(attached.children.items()):
            if child.at_rest.is_set() and request_id not in waiting:
                del attached.children[request_id]
                try:
                    with anyio.move_on_after(self._settings.abort_grace_s):
                        await child.session.abort("its call was settled")
                except AgentSessionError as error:
                    logger.info("sub-agent session %s: %s", child.session.session_id, error.what)
                await self._close_quietly(child.session)

    @asynccontextmanager
    async def session(
        self,
        executor: AgentExecutor,
        options: OpenOptions | ExecutionOptions | None = None,
        *,
        load: str | None = None,
        store: RecordStore | None = None,
    ) -> AsyncGenerator[AgentSession]:
        """:meth:`open`, and :meth:`close` at the end. The executor must be entered; it may serve several sessions."""
        session = await self.open(executor, options, load=load, store=store)
        try:
            yield session
        finally:
            with anyio.CancelScope(shield=True):  # closing is bounded
                await self.close(session)

    async def run_turn(
        self,
        session: AgentSession,
        message: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
        *,
        on_stream: Callable[[EventStream], None] | None = None,
    ) -> TurnResult:
        """Run a whole turn, or without a message continue the one that waits, perhaps with answers made elsewhere.

        Cancelling it aborts the turn. ``options`` hold for this turn; tools declared there are not run by this host
        unless it has them. ``on_stream`` is called with each stream of the turn as it is opened, to know its id; it is
        not to be read or closed there.

        Raises:
            StreamActive: a turn of the session runs.
            InvalidInput: what was given is neither a message nor answers.
            NothingToContinue: without a message, and nothing waits.
            AgentSessionError: what the session raises, such as SessionClosed and ConnectionLost.
        """
        if id(session) in self._turns:
            raise StreamActive(
                f"a turn of session {session.session_id} runs", fix="await it, or steer it: session.steer(...)"
            )
        attached = self._attached.get(id(session))
        by_hand = attached is None
        if attached is None:
            self._forget_closed()
            attached = Attached(session=session, cursor=session.last_seq, found_seq=session.last_seq, host=self)
            self._attached[id(session)] = attached
        turn = Turn(attached.settings or self._settings, session, attached, on_stream)
        self._turns[id(session)] = turn
        try:
            if by_hand:
                attached.permission_mode = await recorded_mode(session)
            if isinstance(message, (str, MessageInput)):
                options = self._settings.limits.for_turn(options, attached.execution)
                options = self._with_changed_tools(options, attached)
            else:
                options = self._settings.limits.for_rest(options)
            with under_trace(_trace_context(options, attached)):
                return await turn.run(message, options)
        finally:
            del self._turns[id(session)]
            if self._settings.hooks is not None and session.state != "input_required":
                self._settings.hooks.forget(session.session_id)
            if attached.children:
                with anyio.CancelScope(shield=True):  # each of its steps is bounded
                    await self._drop_settled_children(attached)

    def _with_changed_tools(self, options: ExecutionOptions | None, attached: Attached) -> ExecutionOptions | None:
        """The turn's options, with the tools of now where a provider has others than when the session was opened."""
        if (
            attached.execution is None
            or attached.above is not None
            or (options is not None and options.tools is not None)
        ):
            return options
        now = self._settings.tools.descriptors
        if tuple(now) == attached.declared:
            return options
        others = [each for each in attached.execution.tools or () if each not in attached.declared]
        return (options or ExecutionOptions()).model_copy(update={"tools": [*others, *now]})

    async def abort(self, reason: str | None = None, *, session: AgentSession | None = None) -> None:
        """Abort the running turns, or that of ``session``: host tools are cancelled, then the session ends the turn.

        Returns after each turn's final ``stream_end``; without a running turn nothing happens. Raises
        :class:`AbortTimeout` when an executor does not end in time, and the first error where several fail.
        """
        turns = [turn for key, turn in self._turns.items() if session is None or key == id(session)]
        errors: list[Exception] = []

        async def abort(turn: Turn) -> None:
            try:
                await turn.abort(reason)
            except Exception as error:  # noqa: BLE001 - raised below; one that fails must not spare the others
                errors.append(error)

        for turn in turns:
            turn.stop()  # before anything is awaited
        async with anyio.create_task_group() as tasks:
            for turn in turns:
                tasks.start_soon(abort, turn)
        if errors:
            raise errors[0]

    async def run(
        self,
        executor: AgentExecutor | AgentDescriptor | str,
        message: str | MessageInput,
        options: OpenOptions | ExecutionOptions | None = None,
        *,
        load: str | None = None,
        store: RecordStore | None = None,
        factory: SessionFactory | None = None,
    ) -> TurnResult:
        """Open a session, or load the one with the id ``load``, run one whole turn in it, and close it.

        ``executor`` is one that was entered, or what ``factory`` makes one of without arguments: a descriptor, or the
        key of one that is announced or registered; that one lives as long as the turn. A turn that waits
        (``on_ask="pause"``) is left waiting where it can be loaded, else it ends with its session. Raises what
        :meth:`open` and :meth:`run_turn` raise.
        """
        if isinstance(executor, (str, AgentDescriptor)):
            async with (factory or SessionFactory()).create(executor) as made:
                return await self.run(made, message, options, load=load, store=store)
        async with self.session(executor, options, load=load, store=store) as session:
            return await self.run_turn(session, message)

    def run_many(
        self,
        executor: AgentExecutor,
        jobs: Jobs,
        *,
        max_parallel: int = 8,
        options: OpenOptions | ExecutionOptions | None = None,
        store: RecordStore | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[JobResult]]:
        """Run a turn for each of ``jobs``, each in a session of its own; the results as they come.

        ::

            async with host.run_many(executor, ["first", "second"], max_parallel=20) as results:
                async for done in results:
                    print(done.index, done.session_id, done.completed, done.error)

        A job that fails is a result like any other, and stops no other. Leaving the block, or its cancellation, aborts
        the turns that run. ``jobs`` may be a generator: the next one is taken when there is room for it.
        Raises :class:`ConfigurationError` for what is no executor.
        """
        checked_executor(executor)

        async def run(index: int, job: Job) -> JobResult:
            session_id: str | None = job.load
            try:
                given = job.options if job.options is not None else options
                async with self.session(executor, given, load=job.load, store=store) as session:
                    session_id = session.session_id
                    result = await self.run_turn(session, job.message)
            except Exception as error:  # noqa: BLE001 - one that fails must not end the others
                return JobResult(index=index, job=job, session_id=session_id, error=error)
            return JobResult(index=index, job=job, session_id=session_id, result=result)

        return side_by_side(jobs, run, max_parallel)


def _trace_context(options: ExecutionOptions | None, attached: Attached) -> Mapping[str, Any] | None:
    """The turn's headers, or its session's. A sub-agent works in its caller's tool, and hangs under that."""
    given = options.trace_context if options is not None else None
    if given is not None or attached.above is not None or attached.execution is None:
        return given
    return attached.execution.trace_context


def _host_hooks(hooks: LifecycleInterceptor | Sequence[LifecycleInterceptor] | None) -> HostHooks | None:
    if hooks is None:
        return None
    chain = HookChain(hooks if isinstance(hooks, Sequence) else [hooks])
    return HostHooks(chain) if chain.entries else None
