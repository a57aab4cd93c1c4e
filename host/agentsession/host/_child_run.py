"""One run of a sub-agent for one call: find or open its session, run its turn, hand back what it came to.

Not for: what the tool looks like (``_subagents.py``). Rules carried: none of its own. May import: anyio, the other
modules of this package, ``protocol``.

The id of its session is made of the caller's session and request, so that a host that was killed finds it again: what
was finished is used and not run again, what waits goes on waiting, and what was cut off is told to the sub-agent.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.host._child_events import ChildEvents, thread_of
from agentsession.host._child_holds import close_orphans, held, hold, release
from agentsession.host._child_ids import session_id_of
from agentsession.host._child_standing import NUDGE_ID, outcome_of, read_standing
from agentsession.host._completion import COMPLETE_TASK, CompletionTool
from agentsession.host._host import Host
from agentsession.host._lineage import Above, Caller, Child
from agentsession.host._outcome import LEFT_WAITING, ToolOutcome
from agentsession.host._rest import earliest
from agentsession.host._settings import Settings
from agentsession.host._toolbox import ToolProvider
from agentsession.host._toolcontext import ToolContext
from agentsession.host._tools import Tool
from agentsession.host.hooks._host_hooks import ChildHooks
from agentsession.protocol import (
    AgentDescriptor,
    AgentExecutor,
    AgentSession,
    AgentSessionError,
    ConfigurationError,
    ExecutionOptions,
    MessageInput,
    OpenOptions,
    RecordStore,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    Spent,
    ToolDescriptor,
    Unimplemented,
    as_content,
    tightest,
)

__all__ = ["ChildPlan", "ChildRun", "refusal", "session_id_of"]

logger = logging.getLogger("agentsession.host")

_RESULT_WANTED: Final = f"\n\nWhen you are done, call {COMPLETE_TASK} with your result. Nothing else you say is kept."
_NUDGE: Final = f"You have not called {COMPLETE_TASK}. Call it now with your result, and call nothing else."
_RESUMED: Final = (
    "You were interrupted. A call of yours without a result may have run, or in part: look before you make it again. "
    "Go on with your task."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """What a sub-agent tool was made with; see :class:`agentsession.host.SubagentTool`."""

    descriptor: AgentDescriptor
    entered: AgentExecutor | None
    create: Callable[[], AgentExecutor] | None
    tools: tuple[str, ...]
    options: ExecutionOptions
    needs_result: bool
    result_schema: Mapping[str, Any] | None
    max_depth: int
    store: RecordStore | None


class _NothingLeft(Exception):
    """A limit above has nothing left for a turn of the sub-agent."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


def refusal(plan: ChildPlan, caller: Caller) -> ToolOutcome | None:
    """Why no such sub-agent may be begun under this caller; ``None``: it may."""
    name, deepest = plan.descriptor.name, _depth(plan, caller)
    if name in (*caller.path, *caller.agents):
        return ToolOutcome.failure("subagent_refused", f"{name} is at work above, and may not be called in itself")
    if caller.depth + 1 > deepest:
        return ToolOutcome.failure("subagent_refused", f"sub-agents may not be nested deeper than {deepest}")
    return None


def _depth(plan: ChildPlan, caller: Caller) -> int:
    return min(plan.max_depth, caller.max_depth or plan.max_depth)


class ChildRun:
    """See the module."""

    def __init__(self, plan: ChildPlan, context: ToolContext, caller: Caller, message: str) -> None:
        self._plan = plan
        self._context = context
        self._caller = caller
        self._message = message + (_RESULT_WANTED if plan.needs_result else "")
        self._completion = CompletionTool(plan.result_schema) if plan.needs_result else None
        host = caller.attached.host
        assert host is not None  # every session that a host runs a turn of has it
        self._host: Host = host
        request = caller.request
        self._thread = thread_of(request, plan.descriptor.name)
        self._above = Above(
            caller=caller,
            thread_id=self._thread,
            agent=plan.descriptor.name,
            max_depth=_depth(plan, caller),
            is_done=lambda: self._completion is not None and self._completion.is_done,
        )

    async def outcome(self) -> ToolOutcome:
        """Run it. Raises nothing but cancellation; then its turn was aborted before."""
        try:
            return await self._run()
        except _NothingLeft as reached:
            failed = ToolOutcome.failure("subagent_limit", "nothing is left for a sub-agent", reason=reached.limit)
            return self._marked(failed)
        except SessionBusy:
            return LEFT_WAITING  # another process is at work on the same call, and will say what came of it
        except SessionExists:
            message = "the sub-agent was at work when its host ended, and cannot go on; it was not run again"
            return self._marked(dataclasses.replace(ToolOutcome.failure("outcome_unknown", message), unknown=True))
        except failures() as error:
            raise_if_cancelled(error)
            logger.warning("sub-agent %s failed: %s", self._plan.descriptor.name, type(error).__name__)
            logger.debug("the sub-agent's failure", exc_info=error)
            kind = error.id if isinstance(error, AgentSessionError) else type(error).__name__
            what = f": {error.what}" if isinstance(error, AgentSessionError) else ""
            shown = what if self._caller.settings.expose_tool_errors else ""
            return self._marked(ToolOutcome.failure("subagent_failed", f"the sub-agent could not work: {kind}{shown}"))

    def _marked(self, failed: ToolOutcome) -> ToolOutcome:
        """With what it has used all the same, and which session worked, if one did."""
        spent = self._caller.limits.used_by(self._caller.answers)
        return dataclasses.replace(failed, subagent=self._context.subagent, spent=spent)

    # --- the session --------------------------------------------------------------------------------------------

    async def _run(self) -> ToolOutcome:
        children, request_id = self._caller.attached.children, self._caller.answers
        calling = self._caller.attached.session
        await close_orphans()
        waiting = children.get(request_id)
        if waiting is not None and waiting.session.state == "closed":  # by the program: it is loaded, like after a kill
            waiting = None
        taken = held(calling, request_id) if waiting is not None else hold(self._host, calling, request_id)
        if taken is None:
            return LEFT_WAITING  # another host of this process has it
        keep = waiting is not None
        try:
            async with self._executor() as executor:
                if waiting is not None:
                    session = waiting.session
                    self._host.take_up_child(session, settings=self._settings(), above=self._above)
                else:
                    session = await self._session(executor)
                self._context.subagent = {
                    "agent": self._plan.descriptor.name,
                    "sessionId": session.session_id,
                    "threadId": self._thread,
                }
                child = children[request_id] = taken.child = Child(
                    session=session,
                    request_id=request_id,
                    thread_id=self._above.shown_thread,
                    principal_path=(*self._caller.path, self._plan.descriptor.name),
                )
                keep = False
                try:
                    outcome = await self._turns(session)
                    keep = outcome is LEFT_WAITING and self._plan.entered is not None
                    return outcome
                finally:
                    child.at_rest.set()
                    if not keep:
                        children.pop(request_id, None)
                        with anyio.CancelScope(shield=True):  # closing is bounded
                            await self._close(session)
        finally:
            if not keep:
                release(calling, request_id)

    @asynccontextmanager
    async def _executor(self) -> AsyncGenerator[AgentExecutor]:
        if self._plan.entered is not None:
            yield self._plan.entered
            return
        assert self._plan.create is not None
        async with self._plan.create() as executor:
            yield executor

    def _settings(self) -> Settings:
        """The host's, with the sub-agent's tools; what it does is told to its caller."""
        plan, above = self._plan, self._caller.settings
        return dataclasses.replace(
            above,
            tools=_Tools(above.tools, plan.tools, self._completion),
            observer=ChildEvents(self._caller.request, self._thread, plan.descriptor.name, self._caller.send),
            hooks=None if above.hooks is None else ChildHooks(above.hooks, self._above.told),
            client_tools=None,  # nobody declared them to the sub-agent, and no client could answer there
        )

    async def _session(self, executor: AgentExecutor) -> AgentSession:
        """Its session: the stored one of an earlier process, or a new one. Raises :class:`_NothingLeft`."""
        plan, attached = self._plan, self._caller.attached
        session_id = session_id_of(attached.session.session_id, self._caller.request.request_id, plan.descriptor.name)
        given = attached.options or OpenOptions()
        limits = self._limits(self._caller.limits.used_by(self._caller.answers))
        options = OpenOptions(
            session_id=session_id,
            user_id=attached.user_id or given.user_id,
            host=given.host,
            workspace=given.workspace,
            execution=plan.options.model_copy(
                update={
                    "ephemeral": plan.options.ephemeral or given.execution.ephemeral,
                    "limits": limits.limits,
                    "deadline": limits.deadline,
                }
            ),
        )
        settings = self._settings()
        has = {item.name for item in self._host.tools.descriptors}
        if absent := [name for name in plan.tools if name not in has]:  # a wrong name, or one of a server that is away
            logger.warning("sub-agent %s: the host has no tool %s", plan.descriptor.name, ", ".join(sorted(absent)))
        store = plan.store or attached.store or self._store_of_caller(executor)
        try:
            return await self._host.open_child(
                executor, options, load=session_id, store=store, settings=settings, above=self._above
            )
        except (SessionNotFound, Unimplemented, ConfigurationError) as error:
            if isinstance(error, ConfigurationError) and error.id != "store-missing":
                raise
            was_found = not isinstance(error, SessionNotFound)
            may_be_there = isinstance(error, Unimplemented)  # then it is unknown what it did, whatever is left
        if not may_be_there:
            self._require_something_left()
        try:
            return await self._host.open_child(executor, options, store=store, settings=settings, above=self._above)
        except SessionExists:
            if was_found:  # it was at work before, and cannot be gone on with
                raise
            # Its opening was cut off by a kill: there is nothing in it.
            await executor.delete(session_id, options.user_id, store=store)
            return await self._host.open_child(executor, options, store=store, settings=settings, above=self._above)

    def _store_of_caller(self, executor: AgentExecutor) -> RecordStore | None:
        """Where its caller's executor keeps the caller's session, unless its own executor has a store itself.

        Executors have a store or not as they like; that of the base class shows it, and so do its sessions.
        """
        if getattr(executor, "store", None) is not None:
            return None
        found = getattr(self._caller.attached.session, "store", None)
        return found if isinstance(found, RecordStore) else None

    def _limits(self, returning: Spent | None = None) -> ExecutionOptions:
        """Its own limits, as far as they are within what is left above it (see :meth:`TurnLimits.rest`)."""
        own, rest = self._plan.options, self._caller.limits.rest(returning)
        return ExecutionOptions(
            limits=tightest(own.limits, rest.limits), deadline=earliest(own.deadline, rest.deadline)
        )

    def _require_something_left(self) -> None:
        used_up = self._caller.limits.rest().used_up
        if used_up is not None:
            raise _NothingLeft(used_up)

    async def _close(self, session: AgentSession) -> None:
        try:
            await self._host.close(session)
        except Exception as error:  # noqa: BLE001 - what it came to is known
            logger.warning("sub-agent session %s failed to close: %s", session.session_id, type(error).__name__)

    # --- the turns ----------------------------------------------------------------------------------------------

    async def _turns(self, session: AgentSession) -> ToolOutcome:
        """Its turn, and one more where its result is missing."""
        standing = await read_standing(session)
        self._caller.limits.learn(self._caller.answers, standing.spent)
        if self._completion is not None:
            self._completion.is_done = standing.has_result
        given: str | MessageInput | None = None
        runs = True
        if session.state == "input_required":
            pass
        elif not standing.has_task:
            given = self._message
        elif standing.was_lost and not standing.has_result:
            given = _RESUMED
        else:
            runs = False
        while True:
            if runs:
                if given is not None:
                    self._require_something_left()
                result = await self._host.run_turn(session, given, None if given is None else self._limits())
                if result.end.reason == "input_required":
                    return LEFT_WAITING
                standing = await read_standing(session)
            ended = standing.end is not None and standing.end.reason == "completed"
            if self._completion is None or standing.has_result or standing.nudged or not ended:
                outcome = outcome_of(
                    standing,
                    needs_result=self._completion is not None,
                    session_id=session.session_id,
                    agent=self._plan.descriptor.name,
                    thread_id=self._thread,
                )
                return dataclasses.replace(outcome, spent=standing.spent)
            given, runs = MessageInput(content=as_content(_NUDGE), message_id=NUDGE_ID), True


class _Tools:
    """The tools of a sub-agent: those that were named, of those that its caller has, and the one for its result."""

    def __init__(self, above: ToolProvider, names: Sequence[str], completion: Tool | None) -> None:
        self._above = above
        self._names = frozenset(names)
        self._completion = completion

    @property
    def descriptors(self) -> list[ToolDescriptor]:
        """What is declared to it."""
        found = [item for item in self._above.descriptors if item.name in self._names]
        return found if self._completion is None else [*found, self._completion.descriptor]

    def get(self, name: str | None) -> Tool | None:
        """The tool of this name, if the sub-agent has it."""
        if self._completion is not None and name == self._completion.name:
            return self._completion
        return self._above.get(name) if name in self._names else None
