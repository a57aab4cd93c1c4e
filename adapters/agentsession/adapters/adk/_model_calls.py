"""What happens before and after each model call of a run: tools, changes, steers, limits, ids.

Not for: tool calls (``_tool_calls.py``). Rules carried: CTL-06, CTL-07, CTL-08, TOOL-03.
May import: ``agentsession.protocol``, the modules beside it, google.adk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from google.adk.agents.callback_context import CallbackContext
from google.adk.events.event import Event as AdkEvent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from agentsession.adapters.adk._brackets import agent_key
from agentsession.adapters.adk._call_order import put_in_order
from agentsession.adapters.adk._catch_up import MESSAGE
from agentsession.adapters.adk._chunks import LanedCall, lane_for
from agentsession.adapters.adk._elicit import INLINE_INPUT, INPUT
from agentsession.adapters.adk._errors import is_error
from agentsession.adapters.adk._events import usage_event
from agentsession.adapters.adk._hearing import hear
from agentsession.adapters.adk._host_tools import HostTool, InlineInput
from agentsession.adapters.adk._long_running import keep_open
from agentsession.adapters.adk._refused_forms import args_as_asked
from agentsession.adapters.adk._replies import said_parts
from agentsession.adapters.adk._routed_model import RoutedCall
from agentsession.adapters.adk._stand_in import StandIn
from agentsession.adapters.adk._toolset_auth import judge_listing
from agentsession.adapters.adk._window import put_older
from agentsession.adapters.base import ModelCallSpan, Steer
from agentsession.protocol import Error, Usage

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["DEFAULT_CALLS", "STOPPED_CODE", "ModelCalls"]

UNNAMED: Final = "unnamed_tool"
"""The name given to a call for which the model gave none."""

STOPPED_CODE: Final = "AGENTSESSION_STOPPED"
"""The code of the answer that stands for a model call which is not made. Never an error: the run's end tells why."""

DEFAULT_CALLS: Final = 500
"""How many model calls a turn may make when nobody said: ADK's own limit for a run."""


class ModelCalls:
    """The model calls of one run, those of its children included."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self.asked: set[str] = set()
        """Agents whose model was called."""
        self._told: set[str] = set()
        self._unlisted: set[int] = set()
        """Toolsets whose tools could not be listed, as was told."""
        self._uncounted: set[tuple[str, str | None, str]] = set()
        """Agents whose last model call has not told what it used, by ``agent_key``."""
        self._timed: dict[object, ModelCallSpan] = {}
        """By agent: a call whose answer has not begun."""
        self._owed: dict[str, tuple[types.GenerateContentResponseUsageMetadata, str | None]] = {}
        """By agent: the usage of a response of which ADK has not made an event yet."""

    async def before(self, context: CallbackContext, request: LlmRequest) -> LlmResponse | None:
        """Before a model call: the host's tools, what the host changed, and what it wants said.

        A response instead of the call ends the agent: a limit was reached, or something cannot be controlled.
        """
        live, state = self._live, self._live.state
        StandIn.take(context)  # of a call that a plugin answered in its place
        span = live.spans.find("agent", agent_key(context))
        if span is not None:
            live.spans.close_children(span)
        await live.attached()
        if span is not None:
            live.brackets.step_begins(span)
        state.go_on(live.ctx.options)
        for lost in await judge_listing(state.vault, context, self._unlisted):
            thread = live.brackets.current_thread()
            live.ctx.emit_nowait(
                Error(
                    status="UNAVAILABLE",
                    message=lost,
                    code="toolset-failed",
                    agent_id=context.agent_name,
                    thread_id=thread,
                )
            )
        is_child = context.session.id != state.adk_session_id
        if not is_child and self._step_waits(context):
            return LlmResponse(content=None)  # no event, no model call: the run ends, and is entered again
        if self._over_budget(context):
            return LlmResponse(error_code=STOPPED_CODE, error_message="the turn's budget is spent")
        question = live.tools.questions.unheard(context, request) if not is_child else None
        if question is not None:
            return question
        stop = self._over_limit(is_child) or self._uncontrolled(request)
        if stop is not None:
            live.stop(*stop)
            return LlmResponse(error_code=STOPPED_CODE, error_message=stop[1].message)
        parked = state.parked and not is_child and not _works_for_a_caller(context)
        self._offer_host_tools(request, parked=parked)
        if INPUT in request.tools_dict and not parked:
            request.tools_dict[INLINE_INPUT] = InlineInput()
        _as_shown(request.contents, context.session.events)
        keep_open(request.tools_dict)
        may_change = live.hooks is not None and live.hooks.wants("before_model")
        await put_older(context, request, prepare=_as_shown, copies=may_change)
        state.know_tools(context.agent_name, request.tools_dict.values())
        model = state.model_of(live.ctx.options)
        if model is not None:
            request.model = model
        if state.state_changes:
            changes, state.state_changes = state.state_changes, {}
            for key, value in changes.items():
                context.state[key] = value
        was_aborting = live.ctx.aborting
        await self._inject_steers(context, request, is_child=is_child)
        if live.ctx.aborting and not was_aborting:  # it goes in circles; ADK is on its way to a model call all the same
            return LlmResponse(error_code=STOPPED_CODE, error_message="the turn was stopped")
        self._calls_model(context, True)
        self.asked.add(context.agent_name)
        asked = request.model
        instead = await live.hooks.before_model(context, request) if live.hooks is not None else None
        if instead is None:
            self._timed[agent_key(context)] = live.ctx.model_call(request.model).__enter__()
            self._stand_in(context, is_routed=model is not None or request.model != asked)
        return instead

    def _stand_in(self, context: CallbackContext, *, is_routed: bool) -> None:
        """Take the model's place in the call that is about to be made, where there is a reason to."""
        live = self._live
        lane = lane_for(live, context)
        repeats = live.hooks is not None and live.hooks.wants("on_model_error")
        is_counted = live.ctx.limits.max_budget_usd is not None  # the user's callbacks may still answer in its place
        if repeats or is_counted or is_routed:
            RoutedCall(live, context, lane).put()
        elif lane is not None:
            LanedCall(lane, context).put()

    def calls(self, context: CallbackContext) -> None:
        """The model is called: what it has used is to be told."""
        self._uncounted.add(agent_key(context))

    def again(self, context: CallbackContext) -> LlmResponse | None:
        """A call is about to be made again: it counts like any; a response instead of it when it is one too many."""
        stop = self._over_limit(context.session.id != self._live.state.adk_session_id, again=True)
        if stop is not None:
            self._live.stop(*stop)
            return LlmResponse(error_code=STOPPED_CODE, error_message=stop[1].message)
        self._calls_model(context, True)
        return None

    def _calls_model(self, context: CallbackContext, calls: bool) -> None:
        span = self._live.spans.find("agent", agent_key(context))
        if span is not None:
            span.calls_model = calls

    def after(self, context: CallbackContext, response: LlmResponse) -> None:
        """After a response: its calls are put right, and its usage is told where ADK would drop it."""
        if response.usage_metadata is not None or response.error_code:
            self._uncounted.discard(agent_key(context))
        timed = self._timed.pop(agent_key(context), None)
        if timed is not None:  # ADK measures the call itself, but not when its answer began
            timed.chunk()
        if not response.partial:
            self._calls_model(context, False)
        if response.content is None:
            self.keep_finish(context, response)
            self._tell_dropped_usage(context, response)
            return
        _rename_calls([response.content], INLINE_INPUT, INPUT)
        if self._live.state.offers(context.agent_name, INLINE_INPUT):
            _rename_calls([response.content], INPUT, INLINE_INPUT)
        if not response.partial:
            self._put_calls_right(response.content)
            if response.usage_metadata is not None:
                self._owed[context.agent_name] = (response.usage_metadata, response.model_version)

    def keep_finish(self, context: CallbackContext, response: LlmResponse) -> None:
        """ADK makes no event of a response without content or an error, and drops with it why the answer ended."""
        reason = response.finish_reason.name if response.finish_reason is not None else None
        if reason is None or response.error_code or response.content is not None:
            return
        if response.partial:  # its aggregate may follow, and say the same
            invocation = context._invocation_context  # private: the branch is there only
            self._live.state.translator.note_finish(
                invocation.invocation_id, context.agent_name, invocation.branch, reason
            )
        elif is_error(reason):
            response.error_code = reason  # as ADK's own Gemini has it

    def told(self, usage: Usage) -> None:
        """The usage of an agent's response was recorded."""
        self._owed.pop(usage.agent_id or "", None)

    def owed(self) -> list[Usage]:
        """What responses used that ADK refused after they were made, such as one that does not fit its schema."""
        owed, self._owed = self._owed, {}
        made = [usage_event(usage, model, {"agent_id": agent}) for agent, (usage, model) in owed.items()]
        return [usage for usage in made if usage is not None]

    def _tell_dropped_usage(self, context: CallbackContext, response: LlmResponse) -> None:
        """ADK makes no event of a response without content, and with it the call's usage would be gone."""
        ctx = self._live.ctx
        marked_empty = response.finish_reason == types.FinishReason.STOP and ctx.options.streaming is False
        becomes_event = response.error_code or response.interrupted or response.grounding_metadata or marked_empty
        if response.usage_metadata is None or response.partial or becomes_event:
            return
        if not ctx.is_attached or ctx.aborting:
            return
        common = {"agent_id": context.agent_name, "thread_id": self._live.brackets.thread_at(context)}
        counted = usage_event(response.usage_metadata, response.model_version, common)
        if counted is not None:
            ctx.emit_nowait(counted)

    def _over_budget(self, context: CallbackContext) -> bool:
        """Whether the session has ended the turn for its budget; ADK may be on its way to a model call all the same.

        A call of the agent's that has not said what it used is told of here, before it makes another: at a call whose
        cost nobody knows the session ends the turn.
        """
        live, place = self._live, agent_key(context)
        is_uncounted = place in self._uncounted
        self._uncounted.discard(place)
        if live.ctx.limits.max_budget_usd is None or live.ctx.grace is not None:
            return False
        if is_uncounted and not live.ctx.aborting:
            thread = live.brackets.thread_at(context)
            live.ctx.emit_nowait(Usage(agent_id=context.agent_name, thread_id=thread))
        return live.ctx.aborting

    def _put_calls_right(self, content: types.Content) -> None:
        """Make the calls of a response ones that ADK can pair with their results; in place, so that others see it too.

        A model may repeat an id of an earlier call, and may call a tool without a name: ADK names its answer to that
        ``<unnamed>``, does not recognise it as an answer, and would run the call again for ever.
        """
        for part in content.parts or ():
            made = part.function_call
            if made is None:
                continue
            if not made.name:
                made.name = UNNAMED
            if made.id and made.id in self._live.state.call_ids:
                made.id = self._live.state.new_call_id(self._live.ctx.new_id, "call-")
            if made.id:
                self._live.state.call_ids.add(made.id)

    def _step_waits(self, context: CallbackContext) -> bool:
        """Whether a call of this agent's last step was parked: ADK would call the model without its answer."""
        state, invocation_id = self._live.state, context._invocation_context.invocation_id
        calls = [call for call in map(state.translator.book.get, state.parked_calls) if call is not None and call.open]
        state.parked_calls = {call.request_id for call in calls}
        return any((call.invocation_id, call.agent_id) == (invocation_id, context.agent_name) for call in calls)

    def _over_limit(self, is_child: bool, *, again: bool = False) -> tuple[str, Error] | None:
        """Count a model call; the reason to end the turn when it is one too many. ``again``: in the same step.

        ADK counts anew in every run, and in every child of an AgentTool; the contract counts a turn.
        """
        state, limits, grace = self._live.state, self._live.ctx.limits, self._live.ctx.grace
        if grace is not None:
            if is_child or (state.said_last_word and not again):
                return grace.limit, _limit(grace.limit, "the turn has had its last word")
            state.said_last_word = True
            return None
        max_turns = limits.max_turns
        if state.llm_calls >= (DEFAULT_CALLS if limits.max_llm_calls is None else limits.max_llm_calls):
            return "max_llm_calls", _limit("max_llm_calls", f"the turn has made {state.llm_calls} model calls")
        if not is_child and not again and max_turns is not None and state.steps >= max_turns:
            return "max_turns", _limit("max_turns", f"the turn has made {state.steps} model steps")
        state.llm_calls += 1
        state.steps += not is_child and not again
        return None

    def _uncontrolled(self, request: LlmRequest) -> tuple[str, Error] | None:
        """A toolset may add tools that the model's provider runs: those that could be seen were refused before."""
        if self._live.state.allows_uncontrolled:
            return None
        for tool in request.config.tools or ():
            if not isinstance(tool, types.Tool):
                continue
            found = [name for name in tool.model_fields_set if name != "function_declarations" and getattr(tool, name)]
            if found:
                message = f"{found[0]} would run at the model's provider, where no host can grant or deny it"
                return "failed", Error(status="FAILED_PRECONDITION", message=message, code="adk-refused")
        return None

    def _offer_host_tools(self, request: LlmRequest, *, parked: bool) -> None:
        state = self._live.state
        hosts: list[HostTool] = []
        for tool in state.tools_of(self._live.ctx.options).values():
            if tool.name not in request.tools_dict:
                hosts.append(HostTool(tool, parked=parked))
            elif tool.name not in self._told:
                # A toolset brought it: names known before are refused when the session opens.
                self._told.add(tool.name)
                message = f"the agent has a tool {tool.name!r} of its own, so the host's is not offered"
                self._live.ctx.emit_nowait(Error(status="ALREADY_EXISTS", message=message, code="tool-name"))
        if hosts:
            request.append_tools(list(hosts))

    async def _inject_steers(self, context: CallbackContext, request: LlmRequest, *, is_child: bool) -> None:
        """What the host has queued, for the session's own agents; what the session has to say to this one, for all."""
        ctx, thread = self._live.ctx, self._live.brackets.thread_at(context)
        for steer in [] if is_child else await ctx.steers():
            content: types.Content | None = types.Content(role="user", parts=said_parts(steer.content)[0])
            if steer.source == "user" and content is not None:
                content = await hear(self._live, content, steer=True)
            if content is not None:
                await self._inject(steer, content, context, request)
        for note in await ctx.notes(thread, context.agent_name) if thread is not None else ():
            content = types.Content(role="user", parts=said_parts(note.content)[0])
            await self._inject(note, content, context, request)

    async def _inject(
        self, steer: Steer, content: types.Content, context: CallbackContext, request: LlmRequest
    ) -> None:
        request.contents.append(content)
        invocation = context._invocation_context  # private: the session service has no public way in from here
        last = invocation.session.events[-1].timestamp if invocation.session.events else None
        event = AdkEvent(
            author="user",
            invocation_id=invocation.invocation_id,
            branch=invocation.branch,
            isolation_scope=invocation.isolation_scope,
            content=content,
            custom_metadata={MESSAGE: steer.message_id},
        )
        if last is not None:
            # SQLite reloads in the order of timestamps, and ADK has stamped the model's event already.
            event.timestamp = last + 1e-6
        await invocation.session_service.append_event(session=invocation.session, event=event)


def _works_for_a_caller(context: CallbackContext) -> bool:
    """Whether the agent works inside a call of another's that ADK does not find its way back into."""
    # Private, and the only way to the agent that works; Any, because what is above an agent may be none.
    agent: Any = context._invocation_context.agent
    while agent is not None and getattr(agent, "mode", None) != "single_turn":
        agent = getattr(agent, "parent_agent", None)
    return agent is not None


def _rename_calls(contents: Iterable[types.Content], name: str, to: str) -> None:
    """Give calls and responses of one name another, in the parts that hold them; events of the session share the
    calls themselves."""
    for content in contents:
        for part in content.parts or ():
            if part.function_call is not None and part.function_call.name == name:
                part.function_call = part.function_call.model_copy(update={"name": to})
            if part.function_response is not None and part.function_response.name == name:
                part.function_response = part.function_response.model_copy(update={"name": to})


def _as_shown(contents: Sequence[types.Content], events: Sequence[AdkEvent]) -> None:
    """What ADK made of the events as the model is to see it: each step's results in the order of its calls, the tool
    that asks a person under the name that it was offered under, and its questions as the model wrote them."""
    put_in_order(contents, events)
    for content in contents:
        for part in content.parts or ():
            call, response = part.function_call, part.function_response
            if call is not None and call.name in (INLINE_INPUT, INPUT):
                part.function_call = call.model_copy(update={"name": INPUT, "args": args_as_asked(call.args)})
            elif response is not None and response.name == INLINE_INPUT:
                part.function_response = response.model_copy(update={"name": INPUT})


def _limit(code: str, message: str) -> Error:
    return Error(status="RESOURCE_EXHAUSTED", message=message, code=code)
