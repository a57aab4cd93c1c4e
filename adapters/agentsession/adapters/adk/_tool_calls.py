"""Each tool call of a run: may it run, what does the host say, what did it return.

Not for: model calls (``_model_calls.py``), how a wait works (``_live.py``).
Rules carried: TOOL-04 to TOOL-06, TOOL-11, HITL-01 to HITL-04, HITL-10.
May import: ``agentsession.protocol``, the modules beside it, google.adk.

Fail closed: a tool of the agent runs only when its request is in the record, needs no grant or was granted in this very
run, has not run before, and, where it wants a confirmation of its own, that was accepted. Everything else answers the
model with an error, also every failure of this code.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import TYPE_CHECKING, Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from agentsession.adapters.adk._callbacks import may_change_args, may_change_result
from agentsession.adapters.adk._hooked_calls import args_of_hook
from agentsession.adapters.adk._host_tools import AskedCredential, HostTool, InlineInput
from agentsession.adapters.adk._long_running import PENDING, is_first_word, outcome, waits_inside
from agentsession.adapters.adk._mcp_results import without_exception
from agentsession.adapters.adk._replies import (
    DECLINED,
    NO_CREDENTIAL,
    confirmation_given,
    granted_args,
    tool_result,
)
from agentsession.adapters.adk._requests import is_failure, result_body
from agentsession.adapters.adk._session_state import STEERING_NAMES, is_agent_tool, steers_adk
from agentsession.adapters.adk._step_actions import StepActions
from agentsession.adapters.adk._tool_questions import ToolQuestions
from agentsession.adapters.adk._tools_schema import wrong_args
from agentsession.adapters.adk._unannounced import Unannounced
from agentsession.adapters.adk._values import lossy_json
from agentsession.protocol import (
    Answer,
    Error,
    RunEnded,
    ToolGrant,
    ToolResponse,
    repair_text,
)

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["ToolCalls"]

_logger = logging.getLogger("agentsession.adapters.adk")


class ToolCalls:
    """The tool calls of one run, those of its children included."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self.questions = ToolQuestions(live)
        self._begun: set[str] = set()
        """Requests whose tool has been let run, or whose call was answered in its place."""
        self.unannounced = Unannounced(live)
        self.step_actions = StepActions()
        self._allowed: dict[str, dict[str, Any]] = {}
        """What each tool was let run with, by request id; the tool may change what it was given."""
        self._results: dict[str, dict[str, Any]] = {}
        """Results of tools that have finished in a step that is not over, by request id."""
        self.unstored: set[str] = set()
        """ADK's ids of calls of the session's own agents that were entered and have no response in ADK's session."""

    # -- before -------------------------------------------------------------------------------------------------------

    async def before(self, tool: BaseTool, args: Any, context: ToolContext) -> dict[str, Any] | None:
        """Before each tool call: ``None`` lets it run, an object answers the model instead."""
        live = self._live
        if isinstance(tool, AskedCredential):
            return {}  # not ``None``: a plugin or callback of the agent's author would be asked, and might answer it
        live.spans.open("tool", _key(tool, context), live.brackets.thread_at(context), inherit=False)
        if context.function_call_id and self._is_of_session(context):
            self.unstored.add(context.function_call_id)
        try:
            await live.attached()
            self.step_actions.note(context)
            return await self._decide(tool, args, context)
        except RunEnded:
            raise asyncio.CancelledError from None
        except Exception:
            _logger.exception("session %s: a call of %s could not be checked", live.ctx.session_id, tool.name)
            return {"error": "blocked: this call could not be checked"}

    async def _decide(self, tool: BaseTool, args: Any, context: ToolContext) -> dict[str, Any] | None:
        grace = self._live.ctx.grace
        if grace is not None and tool.name != grace.completion_tool:
            return {"error": "denied: the turn has reached its limit"}
        hooked, request_id = self._live.hooked_calls, self._known_request(context)
        if isinstance(args, dict):
            # Not the hooks' affair alone: who loads the session may have none, and the host has seen what was changed.
            changed = args_of_hook(self._live, request_id, args) if request_id is not None else None
            if changed is not None:
                self._take_args(args, changed)
            elif hooked is not None:
                refused = await hooked.enter(tool, args, context, request_id)
                if refused is not None:
                    return refused
        if type(tool) is BaseTool:
            return None  # a name that no tool has: ADK answers it with an error
        if not isinstance(args, dict):
            return {"error": f"the arguments of {tool.name} must be an object, not {type(args).__name__}"}
        if isinstance(tool, InlineInput):
            return await self.questions.input(context)
        if steers_adk(tool):
            return _wrong_transfer(tool, args)
        if tool.name in STEERING_NAMES:
            return {"error": f"blocked: {tool.name} is named like a call that steers ADK, so nobody was asked about it"}
        if isinstance(tool, HostTool):
            return None  # it asks the host itself
        if is_agent_tool(tool):
            if not getattr(tool, "include_plugins", True):
                return {"error": "blocked: an AgentTool with include_plugins=False cannot be controlled"}
            return await self._confirm_agent(tool, args, context)
        return await self._permit(tool, args, context)

    def _is_of_session(self, context: ToolContext) -> bool:
        """Whether the call is of the session's own agents, not of a child that an AgentTool runs."""
        return context.session.id == self._live.state.adk_session_id

    async def _confirm_agent(self, tool: BaseTool, args: dict[str, Any], context: ToolContext) -> dict[str, Any] | None:
        """An agent as a tool needs no grant; a subclass of ADK's may want a yes before its agent works."""
        state, request_id = self._live.state, self._known_request(context) or ""
        confirmed = state.confirmed.pop(request_id, None)
        if confirmed is None and await tool.check_require_confirmation(args, context):
            if not self._live.ctx.is_open_request(request_id):
                return {"error": "blocked: nobody was asked about this call"}
            confirmed = await self.questions.confirmation(tool, request_id)
            if confirmed is None:
                return {"error": DECLINED}
        context.tool_confirmation = confirmed  # ADK looks too, and would ask again
        state.never_began.discard(request_id)
        return None

    async def _permit(self, tool: BaseTool, args: dict[str, Any], context: ToolContext) -> dict[str, Any] | None:
        live, ctx, state = self._live, self._live.ctx, self._live.state
        asked = context.tool_confirmation
        if context.node is not None and asked is not None and not asked.confirmed:
            return {"error": DECLINED}  # a node is run again to be told so, and would tell its tool alone
        request_id = self._request_of(tool, args, context)
        request = ctx.open_request(request_id)
        if request_id in state.refused:
            return {"error": NO_CREDENTIAL}
        if request_id in state.resumed and request is not None:
            # It was let run before, asked for a credential, and the credential has come.
            state.resumed.discard(request_id)
            state.begun.add(request_id)
            self.questions.enter_again(context)
            self._take_args(args, granted_args(ctx.record, request_id))
            context.tool_confirmation = confirmation_given(ctx.record, request_id)
            await self._let_run(request_id, args, context)
            return None
        if request_id in self._begun:
            return {"error": "blocked: this call was answered before"}
        call = state.translator.book.get(request_id)
        needs = request.needs if request is not None else call.needs if call is not None else ""
        if call is not None and call.hidden:
            return {"error": "blocked: this call must not run"}
        # A grant or a yes that came after its wait had gone with the run.
        granted, confirmed = state.granted.pop(request_id, None), state.confirmed.pop(request_id, None)
        if granted is not None or confirmed is not None:
            self.questions.enter_again(context)
        if needs == "grant":
            answer: Answer | None = granted or await live.wait(request_id)
            instead = {"error": "blocked: this call was answered before"} if answer is None else tool_result(answer)
            if request_id in self._begun:  # another call under the same id has taken the answer meanwhile
                return {"error": "blocked: this call was answered before"}
            if instead is not None:
                self._begun.add(request_id)
                return instead
            if isinstance(answer, ToolGrant) and answer.args is not None and live.hooked_calls is not None:
                refused = await live.hooked_calls.granted(tool, request_id, answer.args, context)
                if refused is not None:
                    self._begun.add(request_id)
                    state.declined(request_id)
                    return {"error": f"denied: {refused}"}
            if not isinstance(answer, ToolGrant) or not ctx.is_open_request(request_id):
                return {"error": "blocked: no grant for this call"}
            self._take_args(args, answer.args)
        elif request is None:
            return {"error": "blocked: this call was answered before"}
        elif state.gates_tools and not state.confirms_itself(tool) and confirmed is None:
            return {"error": "blocked: no grant for this call"}
        self._begun.add(request_id)
        wrong = wrong_args(tool, args) if self.unannounced.known(context) is None else None
        if wrong is not None:
            return {"error": f"{tool.name} was not run, its arguments do not fit: {wrong}"}
        state.begun.add(request_id)
        if confirmed is not None:
            context.tool_confirmation = confirmed
        elif await tool.check_require_confirmation(args, context) or (needs != "grant" and state.gates_tools):
            # The last: it declares that it always asks, so nobody was asked for a grant, whatever it says now.
            context.tool_confirmation = await self.questions.confirmation(tool, request_id)
            if context.tool_confirmation is None:
                return {"error": DECLINED}
        elif self.unannounced.known(context) is None:
            # An answer that ADK found in its session was to a question of an earlier call, not to one about this.
            context.tool_confirmation = None
        await self._let_run(request_id, args, context)
        return None

    async def _let_run(self, request_id: str, args: dict[str, Any], context: ToolContext) -> None:
        if self.unannounced.known(context) is None:  # a node may be given what cannot be copied
            self._allowed[request_id] = copy.deepcopy(args)
        await self._stored()
        self._live.state.never_began.discard(request_id)

    async def _stored(self) -> None:
        """First the record, then the tool: one that ran before it is stored that it may would be let run once more."""
        ctx = self._live.ctx
        await ctx.stored()
        if ctx.aborting or ctx.is_settled:
            raise asyncio.CancelledError

    def _take_args(self, args: dict[str, Any], edited: dict[str, Any] | None) -> None:
        if edited is not None:
            args.clear()
            args.update(edited)

    async def host_result(self, tool: HostTool, args: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """The host's result for a call of one of its tools."""
        try:
            request_id = self._request_of(tool, args, context)
            answer = await self._live.wait(request_id)
        except RunEnded:
            raise asyncio.CancelledError from None
        if request_id in self._begun or answer is None:
            return {"error": "blocked: this call was answered before"}
        self._begun.add(request_id)
        return tool_result(answer) or {"error": "blocked: the host cannot grant its own tool"}

    def _request_of(self, tool: BaseTool, args: dict[str, Any], context: ToolContext) -> str:
        """The request in the record for a call; one is made for a call that no event announced."""
        live = self._live
        call_id = context.function_call_id
        call = live.state.translator.book.known(call_id or "")
        if call is not None and call.name == repair_text(tool.name) and call.kind == "tool":
            return call.request_id
        return self.unannounced.request(tool, args, context)

    def _known_request(self, context: ToolContext) -> str | None:
        """The request for a call, if the record has one."""
        return self.unannounced.known(context) or self._live.state.translator.request_id(context.function_call_id or "")

    # -- after --------------------------------------------------------------------------------------------------------

    async def after(
        self, tool: BaseTool, args: dict[str, Any], context: ToolContext, result: Any
    ) -> dict[str, Any] | None:
        """After each tool call: a question from inside the tool is asked here, then the tool runs again."""
        live = self._live
        if isinstance(tool, AskedCredential):
            return {}
        try:
            await live.attached()
            changed = await self._ask_from_inside(tool, args, context)
        except RunEnded:
            raise asyncio.CancelledError from None
        said = without_exception(tool, changed if changed is not None else result)
        if said is not None and not live.state.exposes_errors:
            if changed is not None:
                changed = {"error": said}
            else:
                result.clear()  # in place: an answer to ADK would keep the user's own callbacks from seeing any result
                result["error"] = said
        request_id = self._known_request(context)
        asked = context.actions.requested_auth_configs.get(context.function_call_id or "")
        if asked is not None:
            if request_id is not None:
                self.questions.left_to_adk(request_id, asked, context)
        else:
            told = changed if changed is not None else result
            live.state.vault.used((context.session.id, context.function_call_id), is_failure(told))
            shown = changed if changed is not None else result
            over = False
            ran = request_id is not None and live.ctx.is_open_request(request_id)
            if request_id is not None and ran and waits_inside(tool) and is_first_word(shown):
                # What a callback may take secrets out of is not shown before it has.
                first = PENDING if not shown or may_change_result(context) else shown
                if live.hooked_calls is not None and first is not PENDING:
                    told = await live.hooked_calls.result(tool, args, context, first, request_id)
                    first = told if told is not None else first
                over = not is_first_word(first)  # a hook has put an end to it
                allowed = self._allowed.get(request_id, args)
                shown = first if over else await outcome(live, tool, allowed, context, first, request_id)
                if changed is None and isinstance(result, dict) and may_change_result(context):
                    result.clear()  # in place: an answer to ADK would keep the callbacks from seeing the outcome
                    result.update(shown)
                else:
                    changed = shown
            if isinstance(shown, dict) and not all(isinstance(key, str) for key in shown):
                shown = changed = lossy_json(shown)[0]  # ADK would fail to make its event of it
            parked = tool.is_long_running and not shown
            if live.hooked_calls is not None and not parked and not over:
                told = await live.hooked_calls.result(tool, args, context, shown, request_id)
                if told is not None and changed is None and isinstance(result, dict) and may_change_result(context):
                    # In place: an answer to ADK would keep the user's own callbacks from seeing any result.
                    result.clear()
                    result.update(told)
                    shown = result
                elif told is not None:
                    shown = changed = told
            deferred = parked or getattr(tool, "_defers_response", False) or may_change_result(context)
            if request_id is not None and not deferred and self.unannounced.known(context) is None:
                self._results[request_id] = shown
        self.questions.see_end_of_call()
        span = live.spans.find("tool", _key(tool, context))
        if span is not None:
            live.brackets.end_children(span)
        return changed

    async def _ask_from_inside(
        self, tool: BaseTool, args: dict[str, Any], context: ToolContext
    ) -> dict[str, Any] | None:
        """Put the questions that a tool asked while it ran; the result of its last run, ``None`` if it asked nothing.

        ADK would end its run on them: an AgentTool loses the question then, and a pipeline the rest of its steps.
        Only a credential of an agent that can be resumed is left to ADK, because that survives the process.
        """
        changed: dict[str, Any] | None = None
        request_id = self._known_request(context)
        inline = not self._is_of_session(context) or not self._live.state.is_resumable
        while True:
            told = await self.questions.from_inside(tool, request_id, context, inline=inline)
            if not isinstance(told, bool):
                return told
            if request_id is None or not told:
                return changed
            if not may_change_args(context):
                self._take_args(args, copy.deepcopy(self._allowed.get(request_id)))
            await self._stored()
            try:
                again = await tool.run_async(args=args, tool_context=context)
            except asyncio.CancelledError as error:
                self.failed(tool, error)
                raise
            except Exception as error:  # noqa: BLE001  # as ADK's own call of the tool: the model reads of it
                return self.error(tool, error)
            changed = again if isinstance(again, dict) else {"result": again}

    # -- failures and results -----------------------------------------------------------------------------------------

    def failed(self, tool: BaseTool, error: BaseException) -> None:
        """A tool raised, or was cancelled: because a sibling raised, because the run ends, or by itself."""
        live, task = self._live, asyncio.current_task()
        live.spans.failed()
        asked = task is not None and task.cancelling() > 0
        ends = live.ctx.aborting or live.ctx.is_settled or live.stopped is not None
        if isinstance(error, asyncio.CancelledError) and not asked and not ends:
            # ADK takes it for an abort: it would end the run as if nothing had happened.
            message = f"{tool.name} was cancelled from inside"
            live.stop("failed", Error(status="CANCELLED", message=message, code="tool-cancelled"))

    def error(self, tool: BaseTool, error: BaseException) -> dict[str, Any]:
        """What the model reads of an exception: its type, and its text only where the host said so."""
        text = f"{tool.name} failed with {type(error).__name__}"
        return {"error": f"{text}: {error}" if self._live.state.exposes_errors else text}

    async def hooked_error(
        self, tool: BaseTool, args: Any, context: ToolContext, error: BaseException
    ) -> dict[str, Any] | None:
        """What a hook of the host's gives for a result where a tool raised."""
        hooked = self._live.hooked_calls
        return await hooked.error(tool, args, context, error, self._known_request(context)) if hooked else None

    def flush(self) -> None:
        """Record what finished in a step that is not over: ADK tells of a step only when all of it is."""
        for request_id, result in list(self._results.items()):
            del self._results[request_id]
            request = self._live.ctx.open_request(request_id)
            if request is None or request.status == "waiting":
                continue
            data, _ = lossy_json(result)
            failed = is_failure(result)
            declined = request.confirmation not in (None, "accept")
            self._live.ctx.emit_nowait(
                ToolResponse(
                    request_id=request_id,
                    name=request.name,
                    **result_body(data),
                    is_error=failed,
                    status="denied" if failed and declined else "failed" if failed else "completed",
                    agent_id=request.agent_id,
                    thread_id=request.thread_id,
                )
            )
            self._live.state.translator.resolve(request_id)


def _key(tool: BaseTool, context: ToolContext) -> tuple[str, str | None, str]:
    return (context.session.id, context.function_call_id, tool.name)


def _wrong_transfer(tool: BaseTool, args: dict[str, Any]) -> dict[str, Any] | None:
    """What the model reads of a hand-over to an agent that is none of those it may choose: ADK would fail the run."""
    names = getattr(tool, "_agent_names", None)  # private: they are in the tool's declaration, as an enum
    if not isinstance(names, list) or args.get("agent_name") in names:
        return None
    return {"error": f"there is no agent of this name to hand over to; there are: {', '.join(map(str, names))}"}
