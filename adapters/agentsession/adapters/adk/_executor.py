"""The executor for Google ADK agents: real Runner, real session services, the host in control.

Not for: what happens inside a run (``_live.py``), translation (``_translate.py``).
Rules carried: LIFE-09, CTL-01 to CTL-06, CTL-08, PER-01, PER-04. May import: everything beside it, google.adk.

::

    from google.adk.agents import LlmAgent
    from agentsession.adapters.adk import AdkExecutor

    async with AdkExecutor(LlmAgent(name="coder", model="gemini-2.5-flash", tools=[...])) as executor:
        session = await executor.open()

The user's agents and App stay untouched: a Runner of our own runs a copy of the App whose plugin list has the gate
first and the tail last. ADK needs asyncio; under trio this executor refuses to start.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, Self

from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.run_config import RunConfig, ToolThreadPoolConfig
from google.adk.apps.app import App
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.models.base_llm import BaseLlm
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from agentsession.adapters.adk._answer_checks import content_problem
from agentsession.adapters.adk._credential_service import SessionCredentials
from agentsession.adapters.adk._descriptor import ADK_CAPABILITIES, describe_agent
from agentsession.adapters.adk._errors import error_status, safe_message
from agentsession.adapters.adk._gate import GatePlugin, TailPlugin
from agentsession.adapters.adk._handover import Handover, refuses_toolset
from agentsession.adapters.adk._hearing import hear, hear_missed, must_stop
from agentsession.adapters.adk._history import History
from agentsession.adapters.adk._live import LiveRun
from agentsession.adapters.adk._replies import said_parts
from agentsession.adapters.adk._routed_model import ModelCallFailed, ModelTable
from agentsession.adapters.adk._scopes import wrong_state
from agentsession.adapters.adk._session_state import AdkSessionState
from agentsession.adapters.adk._sessions import RecentHistory, RecentSessions
from agentsession.adapters.adk._setup import (
    app_of,
    check_agent,
    check_host_tools,
    delegated_names,
    is_resumable,
)
from agentsession.adapters.adk._stored import AdkSessions
from agentsession.adapters.adk._telemetry import without_content
from agentsession.adapters.base import BaseSession, RunContext, RunResult, check_limits
from agentsession.protocol import (
    AgentSessionError,
    Answer,
    ConfigurationError,
    Constraints,
    ElicitationAnswer,
    Error,
    InvalidInput,
    MessageInput,
    Receipt,
    RecordStore,
    RequestState,
    SessionConfig,
)

__all__ = ["AdkExecutor", "entry_point"]

_logger = logging.getLogger("agentsession.adapters.adk")

_UNLIMITED: Final = sys.maxsize - 1
_ALWAYS: Final = ("steering", "mid_turn_update", "list", "delete", "load", "fork", "rewind", "sub_agents")


class AdkExecutor(AdkSessions):
    """Runs one ADK agent (or App, or Workflow) for any number of sessions.

    Args:
        agent: An ADK agent, node or App. It is not changed.
        session_service: Where ADK keeps its own history; in memory when absent. With a lasting one, a waiting turn
            survives the process (capability ``resume``).
        artifact_service, memory_service, credential_service: Handed to ADK's Runner.
        parked: Calls of the host's tools end ADK's run instead of keeping it open: no memory is held while a person
            thinks, and each answer costs a run. For turns that wait for days.
        exposes_tool_errors: The model and the events get the text of an exception that a tool of the agent raised;
            by default only its type, because such text may hold secrets.
        allows_uncontrolled: Take agents that run elsewhere and tools that the model's provider runs, which no host can
            grant or deny; otherwise they are refused.
        allows_node_timeouts: Take agents and graphs with a ``timeout`` of ADK's, which goes on while a person thinks.
        tool_threads: Run synchronous tools in this many threads. By default they run on the event loop, as ADK runs
            them: nothing else happens until they return, not even an abort.
        constraints: Limits of each turn that the agent itself declares; a host can only set tighter ones.
        history_window: How many recent events a run's ``session.events`` holds at least; the model is still shown the
            whole history. ``"auto"``: some, where neither ADK nor code of the agent's author could tell. A number: that
            many, though callbacks, tools and plugins see no more. ``None``: always all events, and a turn costs what
            ADK makes it cost. See docs/explanation/performance.md.
        models: Models by the names that options, updates and hooks may ask for. Another name is one that the agent's
            own model takes, or one that ADK makes a model of.
        retry_wait: What is awaited for the seconds before a failed model call is made again; for tests.
        base: ``store``, ``window``, ``grace_s``, ``now``, ``max_kept_runs`` of :class:`BaseExecutor`.

    Raises:
        ConfigurationError: the agent cannot be hosted safely (``adk-refused``), or has no usable name.
    """

    brackets_itself: ClassVar[bool] = True
    fires_hooks: ClassVar[bool] = True
    counts_model_calls: ClassVar[bool] = True
    gives_grace: ClassVar[bool] = True
    measures_models: ClassVar[bool] = False  # ADK does, by the same names
    needs_whole_record: ClassVar[bool] = True
    """What ADK's own session holds is compared with the record from its beginning."""

    def __init__(
        self,
        agent: Any,  # an agent, a Workflow node or an App: ADK has no common type for them
        *,
        session_service: BaseSessionService | None = None,
        artifact_service: BaseArtifactService | None = None,
        memory_service: BaseMemoryService | None = None,
        credential_service: BaseCredentialService | None = None,
        parked: bool = False,
        exposes_tool_errors: bool = False,
        allows_uncontrolled: bool = False,
        allows_node_timeouts: bool = False,
        tool_threads: int | None = None,
        constraints: Constraints | None = None,
        history_window: int | Literal["auto"] | None = "auto",
        store: RecordStore | None = None,
        models: Mapping[str, BaseLlm] | None = None,
        retry_wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
        **base: Any,
    ) -> None:
        super().__init__(store=store, **base)
        app = app_of(agent)
        check_agent(
            app.root_agent,
            allows_uncontrolled=allows_uncontrolled,
            parked=parked,
            allows_node_timeouts=allows_node_timeouts,
        )
        if tool_threads is not None and tool_threads < 1:
            raise ConfigurationError("there are no threads for tools", got=str(tool_threads), expected="1 or more")
        self.session_service = session_service or InMemorySessionService()
        self.parked = parked
        self.exposes_tool_errors = exposes_tool_errors
        self.allows_uncontrolled = allows_uncontrolled
        self.tool_threads = tool_threads
        self._models = ModelTable(models, retry_wait)
        self._resumable = is_resumable(app)
        self._delegated = delegated_names(app.root_agent)
        lasting = not isinstance(self.session_service, InMemorySessionService)
        capabilities = [*ADK_CAPABILITIES, *_ALWAYS, *(("resume",) if lasting and self._resumable else ())]
        described = describe_agent(app.root_agent, capabilities=list(dict.fromkeys(capabilities)))
        self.descriptor = described.model_copy(update={"constraints": constraints}) if constraints else described
        check_limits(self.descriptor, constraints)
        self._tapped = RecentSessions(
            self.session_service, self._before_append, self._after_append, app, window=history_window
        )
        self._graph = None if isinstance(app.root_agent, BaseAgent) else self.descriptor.name
        self._runner = Runner(
            app=_controlled(app),
            session_service=self._tapped,
            artifact_service=artifact_service,
            memory_service=memory_service,
            credential_service=SessionCredentials(credential_service),
        )
        self._handover = Handover(self._tapped, self._runner.app_name)
        self._history = History(self.session_service, artifact_service, self._runner.app_name)
        self._states: dict[tuple[str, str], AdkSessionState] = {}

    @classmethod
    def kept_in(cls, agent: Any, path: str, **options: Any) -> Self:
        """An executor for ``agent`` whose ADK sessions live in the SQLite file ``path``; made when it is first used.

        What ``agentsession run --store`` calls, so that a turn that waits survives the process.
        """
        from google.adk.sessions.sqlite_session_service import SqliteSessionService

        return cls(agent, session_service=SqliteSessionService(path), **options)

    async def __aenter__(self) -> Self:
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise ConfigurationError(
                "google-adk runs on asyncio only",
                got="another event loop",
                fix='run the host with asyncio, such as anyio.run(main, backend="asyncio")',
                id="asyncio-only",
            ) from error
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # The Runner is not closed: that would close toolsets, which the user's agents may share with others.
        return await super().__aexit__(kind, error, trace)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def _state(self, session: BaseSession) -> AdkSessionState:
        key = (session.user_id, session.session_id)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = AdkSessionState(
                user_id=session.user_id,
                adk_session_id=session.session_id,
                options=session.options.execution,
                parked=self.parked,
                exposes_errors=self.exposes_tool_errors,
                is_resumable=self._resumable,
                allows_uncontrolled=self.allows_uncontrolled,
                delegated=self._delegated,
                models=self._models,
            )
        return state

    def volatile(self, session: BaseSession) -> Sequence[str]:
        """Requests that wait only inside a run that is kept open; docs/adk-limits.md says which."""
        if not self.can_resume(session):
            return list(session.machine.requests)
        state = self._state(session)
        return [request.id for request in session.machine.requests.values() if state.is_volatile(request)]

    def has_begun(self, session: BaseSession, request: RequestState) -> bool:
        """Whether the gate may have let the tool in, here or in the process before."""
        state = self._states.get((session.user_id, session.session_id))
        return state is None or state.has_begun(request)

    def can_let_go(self, session: BaseSession) -> bool:
        """Also where nothing outlives this process: ADK's session is there as long as its service is."""
        state = self._state(session)
        return not any(state.is_volatile(request) for request in session.machine.requests.values())

    def pause_data(self, session: BaseSession) -> Mapping[str, Any]:
        """How many model calls a limited turn has made: the limits go on counting in another process."""
        limits, state = session.limits.present, self._state(session)
        if limits.max_llm_calls is None and limits.max_turns is None:
            return {}
        return {"modelCalls": state.llm_calls, "modelSteps": state.steps}

    def check_message(self, message: MessageInput) -> None:
        """A person cannot answer calls by what they say: ADK would take it for the answer of a tool."""
        super().check_message(message)
        if said_parts(message.content)[1]:
            raise InvalidInput(
                "the message holds a function call, a response, or what ADK cannot take",
                expected="text, media, references",
                fix="answer what session.pending lists with stream() or respond()",
            )

    def check_answer(self, session: BaseSession, request: RequestState, answer: Answer) -> Receipt | None:
        """What is accepted must be what ADK can be given; edited arguments must fit their schema."""
        if isinstance(answer, ElicitationAnswer) and answer.action == "accept":
            problem = content_problem(session.record, request, answer.content)
            if problem is not None:
                return Receipt(status="invalid", request_id=request.id, rule="HITL-08", reason=problem)
        return super().check_answer(session, request, answer)

    def check_update(self, session: BaseSession, config: SessionConfig) -> str | None:
        """Title, model, tools, state and permission mode can change."""
        if config.tools is not None:
            try:
                check_host_tools(config.tools, self.descriptor)
            except ConfigurationError as error:
                return error.what
        if config.config is not None:
            return "this executor takes no open config"
        wrong = wrong_state(config.state or ())
        if wrong is not None:
            return wrong
        given = [name for name in config.model_fields_set if getattr(config, name) is not None]
        return None if given else "nothing to update"

    def apply_update(self, session: BaseSession, config: SessionConfig) -> None:
        """From the next model call on."""
        state = self._state(session)
        if config.model is not None:
            state.model = config.model
            state.called.clear()
        if config.tools is not None:
            state.host_tools = {tool.name: tool for tool in config.tools}
        if config.state is not None:
            state.state_changes.update(config.state)

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(self, ctx: RunContext) -> RunResult | None:
        """One turn, or the rest of one: drive ADK's Runner until it is done or waits for the host."""
        state = self._states[(ctx.user_id, ctx.session_id)]
        secrets: dict[str, Any] = {}
        if ctx.input is not None:
            if ctx.options.tools is not None:
                check_host_tools(ctx.options.tools, self.descriptor)
            state.begin_turn(ctx.options)
            if state.needs_sealing:
                await self._handover.seal(ctx, state)
            content = types.Content(role="user", parts=said_parts(ctx.input.content)[0])
        elif ctx.grace is not None and not ctx.answers:
            state.go_on(ctx.options)
            state.said_last_word = False
            if state.needs_sealing:
                await self._handover.seal(ctx, state)
            content = types.Content(role="user", parts=[types.Part(text=ctx.grace.note)])
        else:
            state.go_on(ctx.options)
            state.said_last_word = ctx.grace is not None
            if refuses_toolset(ctx, state):
                state.needs_sealing = True
                message = "the agent's tools need a credential to be listed, and it was refused"
                await ctx.emit(Error(status="UNAUTHENTICATED", message=message, code="credential-refused"))
                return RunResult("failed")
            content = await self._handover.answers(ctx, state, secrets)
        said, steer = ctx.input is not None, False
        while True:
            live = LiveRun(ctx, state, root=self._runner.agent)
            live.credentials = secrets
            if live.hooks is not None:
                live.hooks.resumed = ctx.input is None
            if said:
                goes_on = steer or await hear_missed(live, self._handover)
                heard = await hear(live, content, steer=steer) if goes_on else None
                if heard is None:
                    return self._end_of(live, None)
                content = heard
            result = await self._drive(live, content)
            if result is not None or ctx.aborting or not ctx.has_steers:
                return result
            if any(call.waits and ctx.is_open_request(call.request_id) for call in state.translator.book.open_calls()):
                return None  # the run waits: the steer is taken when it goes on
            # A steer that came after the last model call: it is a message of its own to ADK, in the same turn.
            if state.needs_sealing:
                await self._handover.seal(ctx, state)
            said = steer = True
            content = types.Content(
                role="user", parts=[part for steer in await ctx.steers() for part in said_parts(steer.content)[0]]
            )

    async def _drive(self, live: LiveRun, content: types.Content) -> RunResult | None:
        ctx, state = live.ctx, live.state
        if self._graph is not None:
            live.brackets.begin_graph(self._graph)
        state.needs_sealing = True  # until it is known that ADK's session was left in order
        try:
            await self._consume(live, content)
        except asyncio.CancelledError:
            if (not ctx.aborting and live.stopped is None) or must_stop():
                raise
            if ctx.aborting:
                return None  # ADK ended itself by cancelling what waited; the base class closes the stream
        except Exception as error:
            live.drop_error()
            await live.tell_owed_usage()
            if live.stopped is None:
                raise
            _logger.info("session %s: ADK's run was stopped, and raised %s", ctx.session_id, type(error).__name__)
        finally:
            live.spans.end()
        if ctx.aborting:
            return None
        if live.stopped is not None:
            live.drop_error()
            if ctx.grace is None:
                live.brackets.see_agent_open(live.stopped.error)
                await ctx.emit(live.stopped.error)
            return RunResult(live.stopped.reason)
        await live.flush_error()
        await live.end_answers()
        state.needs_sealing = state.has_open_calls() or bool(live.tools.unstored)
        await live.settle_left_open()
        reason = state.translator.end_reason
        result = self._end_of(live, None if reason in ("completed", "aborted") else RunResult(reason))
        if result is None and not ctx.open_requests:
            live.brackets.end_escalated()
        return result

    @staticmethod
    def _end_of(live: LiveRun, result: RunResult | None) -> RunResult | None:
        """How a run ended; one whose last step a hook blocked was ended by the host."""
        by = live.hooks.ended_by if live.hooks is not None else None
        return RunResult("aborted", {"cause": by}) if by is not None and result is None else result

    async def _consume(self, live: LiveRun, content: types.Content) -> None:
        config = RunConfig(
            telemetry=without_content(),
            streaming_mode=StreamingMode.NONE if live.ctx.options.streaming is False else StreamingMode.SSE,
            get_session_config=RecentHistory(),
            max_llm_calls=_UNLIMITED,  # counted by turn, not by run: see ``_model_calls``
            tool_thread_pool_config=(
                ToolThreadPoolConfig(max_workers=self.tool_threads) if self.tool_threads is not None else None
            ),
        )
        events = self._runner.run_async(
            user_id=live.state.user_id,
            session_id=live.state.adk_session_id,
            new_message=content,
            run_config=config,
            abort_signal=live.abort_signal,
        )
        async with aclosing(events) as stream:
            async for event in stream:
                if not live.take_delta(event):
                    await live.take(event)

    def describe_error(self, error: BaseException) -> Error:
        """ADK's and the provider's errors by their code; no text that could hold a secret."""
        if isinstance(error, ModelCallFailed):
            return Error(status="UNAVAILABLE", message=error.what, fatal=True, code=error.id)
        if isinstance(error, AgentSessionError):
            return super().describe_error(error)
        code = getattr(error, "code", None)
        name = str(code) if isinstance(code, int) else type(error).__name__
        return Error(status=error_status(name), message=safe_message(name, None), fatal=True, code=name)


def _controlled(app: App) -> App:
    """A copy of the App with the gate before and the tail behind the user's plugins."""
    plugins = [GatePlugin(), *app.plugins, TailPlugin()] if app.plugins else [GatePlugin(is_last=True)]
    return app.model_copy(update={"plugins": plugins})


def entry_point() -> type[AdkExecutor]:
    """What the entry point ``agentsession.executors: adk`` gives: the class, called with an agent."""
    return AdkExecutor
