"""One ADK run under host control: what the gate's callbacks decide, and how ADK's events get into the record.

Not for: sessions and the driving loop (``_executor.py``), translation (``_translate.py``).
Rules carried: LIFE-04, LIFE-16, TOOL-05, TOOL-06, HITL-01 to HITL-03, CTL-06.
May import: ``agentsession.protocol``, ``agentsession.adapters.base``, the modules beside it, google.adk.

Fail closed: a tool of the agent runs only when its request is in the record, needs no grant or has one, and, where it
declares its own confirmation, that was accepted. Everything else answers the model with an error.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, Final

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.events.event import Event as AdkEvent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from agentsession.adapters.adk._content import content_to_parts
from agentsession.adapters.adk._host_tools import HostTool
from agentsession.adapters.adk._replies import DECLINED, tool_result
from agentsession.adapters.adk._session_state import AdkSessionState
from agentsession.adapters.adk._spans import CURRENT, Span, SpanTree
from agentsession.adapters.adk._translate import CONTROL_TOOLS, TextDelta
from agentsession.adapters.adk._values import lossy_json, thread_of
from agentsession.adapters.base import RunContext
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Message,
    RunEnded,
    ToolGrant,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
)

__all__ = ["LiveRun", "current_run"]

_RUN: contextvars.ContextVar[LiveRun | None] = contextvars.ContextVar("agentsession_adk_run", default=None)

UNNAMED: Final = "unnamed_tool"
"""The name given to a call for which the model gave none."""

_LEAVE_S: Final = 0.05
"""How long a settled wait lets ADK end by itself before it cancels its tool: custom agents look at the abort signal
only between events."""

_NOT_ASKED: Final = CONTROL_TOOLS | {"adk_request_confirmation", "adk_request_credential", "adk_request_input"}


def current_run() -> LiveRun | None:
    """The run that the present task belongs to, if its loop is the run's."""
    live = _RUN.get()
    if live is None or live.loop is not asyncio.get_running_loop():
        return None
    return live


class LiveRun:
    """What one call of ``Runner.run_async`` needs while it goes on, perhaps over several streams."""

    def __init__(self, ctx: RunContext, state: AdkSessionState) -> None:
        self.ctx = ctx
        self.state = state
        self.loop = asyncio.get_running_loop()
        self.abort_signal = asyncio.Event()
        self.spans = SpanTree(self._all_waits)
        self._results: dict[str, dict[str, Any]] = {}
        """Results of tools that have finished in a step that is not over, by request id."""
        self._held_error: Error | None = None
        self._done_agents: set[tuple[str | None, str]] = set()
        self._transfer = False
        _RUN.set(self)
        CURRENT.set(self.spans.root)
        ctx.on_abort(self._abort)

    async def _attached(self) -> None:
        """Wait for an open stream; a settled run ends by cancellation, so that no callback of ADK reports a failure."""
        try:
            await self.ctx.attached()
        except RunEnded:
            raise asyncio.CancelledError from None

    # -- from ADK's events to the record --------------------------------------------------------------------------------

    async def take(self, event: AdkEvent) -> None:
        """Record what an ADK event says."""
        await self._attached()
        if event.actions is not None and event.actions.transfer_to_agent:
            self._transfer = True
        quick = self.state.translator.quick_delta(event) if event.partial else None
        if quick is not None:
            await self._delta(quick)
            return
        for made in self.state.translator.feed(event):
            await self.record(made)

    async def _delta(self, piece: TextDelta) -> None:
        if self.ctx.aborting or not piece.text:
            return
        await self.flush_error()
        if not self.ctx.is_ready():
            await self.ctx.ready()
        self.ctx.emit_delta(
            piece.kind,
            piece.text,
            piece.message_id,
            "agent",
            piece.index,
            agent_id=piece.agent_id,
            thread_id=piece.thread_id,
        )

    async def record(self, event: Event) -> None:
        """Record one translated event, unless the record already has what it says."""
        ctx = self.ctx
        await self.flush_error()
        if isinstance(event, Error):
            # ADK reports an exception as an event and raises it as well: whoever sees the exception drops this one.
            self._held_error = event
            return
        if isinstance(event, (ToolResponse, ToolUpdate, ElicitationResponse)):
            if not ctx.is_open_request(event.request_id):
                return
            if isinstance(event, ToolUpdate):
                # The first answer of a long-running tool of the agent ends its request here; see docs/adk-limits.md.
                event = _as_response(event, self.state)
        elif ctx.aborting or (isinstance(event, Message) and not event.partial and not event.content):
            return
        if event.source == "agent":
            self._see_agent_open(event)
        await ctx.emit(event)

    async def flush_error(self) -> None:
        """Record an error event that no exception followed."""
        held, self._held_error = self._held_error, None
        if held is not None and not self.ctx.aborting:
            self._see_agent_open(held)
            await self.ctx.emit(held)

    def drop_error(self) -> None:
        """An exception followed the error event: the exception is reported instead."""
        self._held_error = None

    def _see_agent_open(self, event: Event) -> None:
        """An event on a thread on which ADK announced no agent: its author is at work there."""
        agents = self.ctx.open_agents
        if agents.get(event.thread_id):
            return
        parent = event.thread_id.rpartition(".")[0] or None if event.thread_id else None
        while parent is not None and not agents.get(parent):
            parent = parent.rpartition(".")[0] or None
        if event.thread_id is not None and not agents.get(parent):
            self.ctx.emit_nowait(AgentStart(agent_id=self.ctx.agent_id))
        agent_id = event.agent_id or self.ctx.agent_id
        self.ctx.emit_nowait(AgentStart(agent_id=agent_id, thread_id=event.thread_id, parent_thread_id=parent))

    # -- agents -----------------------------------------------------------------------------------------------------------

    async def agent_begins(self, agent: BaseAgent, context: CallbackContext) -> None:
        """Before an agent runs: its bracket, unless a pause left it open."""
        thread, parent = self._thread(context, agent)
        self.spans.open("agent", _agent_key(agent, context), thread, inherit=False)
        await self._attached()
        stack = self.ctx.open_agents.get(thread, [])
        while stack and ((thread, stack[-1]) in self._done_agents or (self._transfer and stack[-1] != agent.name)):
            top = stack[-1]
            reason = "handoff" if self._transfer else "completed"
            self._done_agents.discard((thread, top))
            self.ctx.emit_nowait(AgentEnd(agent_id=top, thread_id=thread, reason=reason))
            stack = self.ctx.open_agents.get(thread, [])
        self._transfer = False
        if agent.name not in stack:
            self.ctx.emit_nowait(AgentStart(agent_id=agent.name, thread_id=thread, parent_thread_id=parent))

    async def agent_is_done(self, agent: BaseAgent, context: CallbackContext) -> None:
        """After an agent ran. On the main thread its bracket is closed later, when the reason is known."""
        span = self.spans.find("agent", _agent_key(agent, context))
        thread = span.thread_id if span is not None else self._thread(context, agent)[0]
        if self.ctx.is_settled:
            return
        await self._attached()
        if thread is not None and self.ctx.open_agents.get(thread, [None])[-1] == agent.name:
            self.ctx.close_thread(thread, agent.name)
        else:
            self._done_agents.add((thread, agent.name))
        if span is not None:
            self.spans.close(span)

    def agent_failed(self, agent: BaseAgent, context: CallbackContext) -> None:
        """An agent raised; its siblings may be about to be cancelled."""
        self.spans.failed()
        span = self.spans.find("agent", _agent_key(agent, context))
        if span is not None:
            self.spans.close(span)

    def _thread(self, context: CallbackContext, agent: BaseAgent) -> tuple[str | None, str | None]:
        """The thread that an agent works on, and the thread that this one hangs under."""
        around = self._around()
        session_id = context.session.id
        if session_id == self.state.adk_session_id:
            thread = thread_of(context._invocation_context.branch)
            return thread, around.thread_id if around.thread_id != thread else None
        # The session of an AgentTool's child: named after the agent, below the thread that called it.
        known = self.state.child_threads.get(session_id)
        if known is None:
            base = agent.name if around.thread_id is None else f"{around.thread_id}.{agent.name}"
            known, number = base, 2
            while known in self.ctx.open_agents:
                known, number = f"{base}-{number}", number + 1
            self.state.child_threads[session_id] = known
        return known, around.thread_id if around.thread_id != known else known.rpartition(".")[0] or None

    def _around(self) -> Span:
        span = CURRENT.get()
        while span is not None and not span.is_open:
            span = span.parent
        return span or self.spans.root

    # -- model calls --------------------------------------------------------------------------------------------------------

    async def before_model(self, context: CallbackContext, request: LlmRequest) -> None:
        """Before each model call: the host's tools, what the host changed, and what it wants said."""
        span = self.spans.find("agent", _agent_key_of(context))
        if span is not None:
            self.spans.close_children(span)
        await self._attached()
        state = self.state
        is_child = context.session.id != state.adk_session_id
        own = dict(request.tools_dict)
        hosts = [
            HostTool(tool, parked=state.parked and not is_child)
            for tool in state.host_tools.values()
            if tool.name not in own
        ]
        if hosts:
            request.append_tools(list(hosts))
        state.know_tools(request.tools_dict.values())
        if state.model is not None:
            request.model = state.model
        if state.state_changes:
            changes, state.state_changes = state.state_changes, {}
            for key, value in changes.items():
                context.state[key] = value
        if not is_child:
            await self._inject_steers(context, request)

    def after_model(self, response: LlmResponse) -> None:
        """Make the calls of a response ones that ADK can pair with their results; in place, so that others see it too.

        A model may repeat an id of an earlier call, and may call a tool without a name: ADK names its answer to that
        ``<unnamed>``, does not recognise it as an answer, and would run the call again for ever.
        """
        if response.partial or response.content is None:
            return
        for part in response.content.parts or ():
            made = part.function_call
            if made is None:
                continue
            if not made.name:
                made.name = UNNAMED
            if made.id and made.id in self.state.call_ids:
                made.id = self.ctx.new_id("call-")
            if made.id:
                self.state.call_ids.add(made.id)

    async def _inject_steers(self, context: CallbackContext, request: LlmRequest) -> None:
        for steer in await self.ctx.steers():
            content = types.Content(role="user", parts=content_to_parts(steer.content))
            request.contents.append(content)
            invocation = context._invocation_context  # private: the session service has no public way in from here
            last = invocation.session.events[-1].timestamp if invocation.session.events else None
            event = AdkEvent(
                author="user",
                invocation_id=invocation.invocation_id,
                branch=invocation.branch,
                content=content,
                custom_metadata={"agentsession_steer": steer.message_id},
            )
            if last is not None:
                # SQLite reloads in the order of timestamps, and ADK has stamped the model's event already.
                event.timestamp = last + 1e-6
            await invocation.session_service.append_event(session=invocation.session, event=event)

    # -- tool calls -----------------------------------------------------------------------------------------------------------

    async def before_tool(self, tool: BaseTool, args: Any, context: ToolContext) -> dict[str, Any] | None:
        """Before each tool call: ``None`` lets it run, an object answers the model instead."""
        self.spans.open("tool", (context.session.id, context.function_call_id, tool.name))
        await self._attached()
        if not isinstance(args, dict):
            return {"error": f"the arguments of {tool.name} must be an object, not {type(args).__name__}"}
        if type(tool) is BaseTool or tool.name in _NOT_ASKED:
            return None  # a name the model made up, which ADK answers with an error; or a call that steers ADK itself
        if isinstance(tool, AgentTool):
            if not tool.include_plugins:
                return {"error": "blocked: an AgentTool with include_plugins=False cannot be controlled"}
            return None
        if isinstance(tool, HostTool):
            return None  # it asks the host itself
        return await self._permit(tool, args, context)

    async def _permit(self, tool: BaseTool, args: dict[str, Any], context: ToolContext) -> dict[str, Any] | None:
        request_id = self._request_of(tool, args, context, self.state.needs(tool.name, tool.is_long_running))
        request = self.ctx.open_request(request_id)
        if request is None:
            return {"error": "blocked: this call was answered before"}
        if request.needs == "grant" and request.status == "waiting":
            answer = await self.wait(request_id)
            instead = tool_result(answer)
            if instead is not None:
                return instead
            if isinstance(answer, ToolGrant) and answer.args is not None:
                args.clear()
                args.update(answer.args)
        elif not (request.needs == "grant" and request.status == "granted") and not self._may_run_unasked(tool):
            return {"error": "blocked: no grant for this call"}
        if context.tool_confirmation is None and await tool.check_require_confirmation(args, context):
            answer = await self._confirm(tool, request_id, None)
            if answer.action != "accept":
                self.state.declined(request_id)
                return {"error": DECLINED}
            context.tool_confirmation = ToolConfirmation(confirmed=True, payload=_payload(answer))
        return None

    def _may_run_unasked(self, tool: BaseTool) -> bool:
        """A tool whose request needs no grant: the host left tools to the executor, or it asks for confirmation itself."""
        return not self.state.gates_tools or self.state.confirms_itself(tool)

    async def after_tool(
        self, tool: BaseTool, args: dict[str, Any], context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        """After each tool call: a question from inside the tool is asked here, then the tool runs again."""
        changed = None
        call_id = context.function_call_id or ""
        asked = context.actions.requested_tool_confirmations.pop(call_id, None)
        while asked is not None:
            request_id = self.state.translator.request_id(call_id)
            if request_id is None or self.ctx.open_request(request_id) is None:
                changed = {"error": DECLINED}
                break
            answer = await self._confirm(tool, request_id, asked)
            if answer.action != "accept":
                self.state.declined(request_id)
                changed = {"error": DECLINED}
                break
            context.tool_confirmation = ToolConfirmation(
                hint=asked.hint or "", confirmed=True, payload=_payload(answer) or asked.payload
            )
            again = await tool.run_async(args=args, tool_context=context)
            changed = again if isinstance(again, dict) else {"result": again}
            asked = context.actions.requested_tool_confirmations.pop(call_id, None)
        waits_for_key = call_id in context.actions.requested_auth_configs
        parked = tool.is_long_running and not (changed or result)
        if not waits_for_key and not parked:
            request_id = self.state.translator.request_id(call_id)
            if request_id is not None:
                self._results[request_id] = changed if changed is not None else result
        span = self.spans.find("tool", (context.session.id, context.function_call_id, tool.name))
        if span is not None:
            self.spans.close(span)
        return changed

    def tool_failed(self) -> None:
        """A tool raised, or was cancelled because a sibling did."""
        self.spans.failed()

    def tool_error(self, tool: BaseTool, error: BaseException) -> dict[str, Any]:
        """What the model reads of an exception: its type, and its text only where the host said so."""
        text = f"{tool.name} failed with {type(error).__name__}"
        return {"error": f"{text}: {error}" if self.state.exposes_errors else text}

    async def host_result(self, tool: HostTool, args: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """The host's result for a call of one of its tools."""
        request_id = self._request_of(tool, args, context, "result")
        return tool_result(await self.wait(request_id)) or {"error": "blocked: the host cannot grant its own tool"}

    def _request_of(self, tool: BaseTool, args: dict[str, Any], context: ToolContext, needs: str) -> str:
        """The request in the record for a call; one is made for a call that was no event of the run's session."""
        known = self.state.translator.request_id(context.function_call_id or "")
        if known is not None and context.session.id == self.state.adk_session_id:
            return known
        key = (context.session.id, context.function_call_id)
        made = self.state.child_requests.get(key)
        if made is None:
            made = self.ctx.new_id("r")
            self.state.child_requests[key] = made
            shown, _ = lossy_json(args)
            self.ctx.emit_nowait(
                ToolRequest(
                    request_id=made,
                    name=tool.name,
                    args=shown if isinstance(shown, dict) else None,
                    owner="host" if isinstance(tool, HostTool) else "agent",
                    needs=needs,
                    agent_id=context.agent_name,
                    thread_id=self._around().thread_id,
                )
            )
        return made

    async def _confirm(self, tool: BaseTool, request_id: str, asked: ToolConfirmation | None) -> ElicitationAnswer:
        """Ask the person for the confirmation that a tool itself wants."""
        payload, _ = lossy_json(asked.payload if asked is not None else None)
        question = self.ctx.emit_nowait(
            ElicitationRequest(
                request_id=self.ctx.new_id("q"),
                kind="tool_confirmation",
                message=(asked.hint if asked is not None else "") or f"May {tool.name} run?",
                tool_request_id=request_id,
                thread_id=self._around().thread_id,
                **({"context": payload} if payload is not None else {}),
            )
        )
        answer = await self.wait(question.request_id)
        if isinstance(answer, ElicitationAnswer):
            return answer
        return ElicitationAnswer(request_id=question.request_id, action="cancel")

    # -- waiting --------------------------------------------------------------------------------------------------------------

    async def wait(self, request_id: str) -> Answer:
        """The host's answer to a request. A wait that is settled ends its tool by cancellation, never by a result."""
        reply = self.ctx.expect(request_id)
        span = self.spans.wait(reply)
        try:
            answers = await reply.wait()
            await self._attached()
            return answers[request_id]
        except RunEnded:
            await asyncio.sleep(_LEAVE_S)  # ADK sees its abort signal meanwhile, and ends the tool itself
            raise asyncio.CancelledError from None
        finally:
            if not reply.released:
                self.ctx.abandon(reply)
            self.spans.close(span)

    def _all_waits(self) -> None:
        if not self.ctx.aborting:
            self.flush_results()
            self.ctx.pause()

    def flush_results(self) -> None:
        """Record what finished in a step that is not over: ADK tells of a step only when all of it is."""
        for request_id, result in list(self._results.items()):
            del self._results[request_id]
            request = self.ctx.open_request(request_id)
            if request is None or request.status == "waiting":
                continue
            data, _ = lossy_json(result)
            failed = isinstance(data, dict) and data.get("error") not in (None, False, "")
            declined = request.confirmation not in (None, "accept")
            self.ctx.emit_nowait(
                ToolResponse(
                    request_id=request_id,
                    name=request.name,
                    data=data["result"] if isinstance(data, dict) and set(data) == {"result"} else data,
                    is_error=failed,
                    status="denied" if failed and declined else "failed" if failed else "completed",
                    agent_id=request.agent_id,
                    thread_id=request.thread_id,
                )
            )
            self.state.translator.resolve(request_id)

    def _abort(self) -> float:
        """The host aborts: ADK ends itself by its signal; the base class cancels what is left after a second."""
        try:
            if self.ctx.is_attached:
                self.flush_results()
        finally:
            self.abort_signal.set()
        return 1.0


def _agent_key(agent: BaseAgent, context: CallbackContext) -> tuple[str, str | None, str]:
    return (context.session.id, context._invocation_context.branch, agent.name)


def _agent_key_of(context: CallbackContext) -> tuple[str, str | None, str]:
    return (context.session.id, context._invocation_context.branch, context.agent_name)


def _payload(answer: ElicitationAnswer) -> Any:
    return answer.content.get("payload") if isinstance(answer.content, dict) else None


def _as_response(update: ToolUpdate, state: AdkSessionState) -> ToolResponse:
    call = state.translator.book.get(update.request_id)
    state.translator.resolve(update.request_id)
    given = {"data": update.data} if "data" in update.model_fields_set else {}
    return ToolResponse(
        request_id=update.request_id,
        name=call.name if call is not None else "",
        content=update.content,
        agent_id=update.agent_id,
        thread_id=update.thread_id,
        timestamp=update.timestamp,
        meta=update.meta,
        **given,
    )
