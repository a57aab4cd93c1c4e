"""One ADK run under host control: how ADK's events get into the record, and how the run waits for the host.

Not for: sessions and the driving loop (``_executor.py``), translation (``_translate.py``), agents at work
(``_brackets.py``), model calls (``_model_calls.py``) and tool calls (``_tool_calls.py``), which are parts of a run.
Rules carried: LIFE-04, TOOL-06, TOOL-08, CTL-01, CTL-03, HITL-10.
May import: ``agentsession.protocol``, ``agentsession.adapters.base``, the modules beside it, google.adk.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any, Final, NamedTuple

from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event as AdkEvent
from google.adk.models.llm_response import LlmResponse

from agentsession.adapters.adk._brackets import Brackets
from agentsession.adapters.adk._call_ids import CallIds, make_distinct
from agentsession.adapters.adk._errors import names_exception, safe_message
from agentsession.adapters.adk._events import code_of
from agentsession.adapters.adk._hooked_calls import HookedCalls
from agentsession.adapters.adk._hooks import RunHooks
from agentsession.adapters.adk._model_calls import STOPPED_CODE, ModelCalls
from agentsession.adapters.adk._session_state import AdkSessionState
from agentsession.adapters.adk._spans import CURRENT, SpanTree
from agentsession.adapters.adk._storable import make_storable
from agentsession.adapters.adk._tool_calls import ToolCalls
from agentsession.adapters.adk._translate import Slot, TextDelta, Translator
from agentsession.adapters.base import RunContext, restamp
from agentsession.protocol import (
    Answer,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Message,
    RequestState,
    RunEnded,
    SessionUpdate,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
)

__all__ = ["LiveRun", "Stopped", "current_run"]

_logger = logging.getLogger("agentsession.adapters.adk")

_RUN: contextvars.ContextVar[LiveRun | None] = contextvars.ContextVar("agentsession_adk_run", default=None)

_LEAVE_S: Final = 0.05
"""How long a settled wait lets ADK end by itself before it cancels its tool: custom agents look at the abort signal
only between events."""

_GRACE_S: Final = 1.0
"""How long ADK may take to end by its abort signal before its task is cancelled."""


def current_run() -> LiveRun | None:
    """The run that the present task belongs to, if its loop is the run's."""
    live = _RUN.get()
    if live is None or live.loop is not asyncio.get_running_loop():
        return None
    return live


class Stopped(NamedTuple):
    """Why this adapter ended a run itself: the reason of the stream's end, and the error event that says it."""

    reason: str
    error: Error


class LiveRun:
    """What one call of ``Runner.run_async`` needs while it goes on, perhaps over several streams."""

    def __init__(self, ctx: RunContext, state: AdkSessionState, *, root: object = None) -> None:
        """``root``: what ADK's Runner runs."""
        self.ctx = ctx
        self.state = state
        self.root = root
        self.loop = asyncio.get_running_loop()
        self.abort_signal = asyncio.Event()
        self.spans = SpanTree(self._all_waits)
        self.stopped: Stopped | None = None
        self.credentials: dict[str, Any] = {}
        """Answers that hold a secret, by ADK's id of the question: ADK stores a redacted message in their place."""
        self.brackets = Brackets(self)
        self.models = ModelCalls(self)
        self.tools = ToolCalls(self)
        hooks = ctx.hooks
        self.hooks = RunHooks(self, hooks) if hooks is not None else None
        """The host's hooks; ``None``, and nothing is fired, where it gave none."""
        self.hooked_calls = HookedCalls(self, self.hooks) if self.hooks is not None else None
        self._children: dict[str, Translator] = {}
        self._held_error: Error | None = None
        self._call_ids = CallIds()
        self._raised: set[str] = set()
        """The texts of exceptions that ADK has told of and may store."""
        _RUN.set(self)
        CURRENT.set(self.spans.root)
        ctx.on_abort(self._abort)

    # -- from ADK's events to the record ------------------------------------------------------------------------------

    def take_delta(self, event: AdkEvent) -> bool:
        """Record a partial event that goes on with plain text, if that needs no waiting: a long answer is thousands of
        these. False: :meth:`take` it, nothing was done."""
        ctx = self.ctx
        if not event.partial or self._held_error is not None or ctx.aborting or not ctx.is_ready():
            return False
        return self._emit_piece(self.state.translator.quick_delta(event))

    async def take_chunk(self, slot: Slot, chunk: LlmResponse) -> bool:
        """Record a model's chunk that goes on with plain text, as :meth:`take_delta` does with its event; waits for
        readers that hold the run. False: ADK has to see it, nothing was done."""
        ctx = self.ctx
        if not ctx.is_ready():
            await self.attached()
            try:
                await ctx.ready()
            except RunEnded:  # no failure of the model: who asked for it is told of those, and may have it called again
                raise asyncio.CancelledError from None
        if self._held_error is not None or ctx.aborting:
            return False
        return self._emit_piece(self.state.translator.chunk_delta(slot, chunk))

    def _emit_piece(self, piece: TextDelta | None) -> bool:
        if piece is None:
            return False
        self.spans.stirred()
        if piece.text:
            self.ctx.emit_delta(
                piece.kind,
                piece.text,
                piece.message_id,
                "agent",
                piece.index,
                agent_id=piece.agent_id,
                thread_id=piece.thread_id,
            )
        return True

    async def take(self, event: AdkEvent) -> None:
        """Record what an event of the session's own run says."""
        self.spans.stirred()
        await self.attached()
        if event.partial and not self.ctx.aborting:
            await self.flush_error()
            await self.ctx.ready()
            if self.take_delta(event):  # it was a delta like the others, and only had to wait
                return
        state = self.state
        if not event.partial:
            event = self._call_ids.restored(event)
        await self.tools.unannounced.see(event)
        state.speaker = event.author
        self.brackets.see_actions(event)
        for made in state.translator.feed(event):
            await self.record(made)

    async def before_append(self, context: InvocationContext, event: AdkEvent) -> None:
        """Before ADK stores an event: make it storable; an event of an AgentTool's child is recorded here, for ADK
        shows its caller no more of a child than the result."""
        if event.partial:
            return
        book, state = self.state.translator.book, self.state
        lost = self.tools.step_actions.settle(context.session.id, event)
        if lost:
            await self.attached()
            keys = ", ".join(ascii(key) for key in lost[:5])
            text = f"calls of one step have set {keys} in the state to different values; one is kept"
            self.ctx.emit_nowait(Error(status="ABORTED", code="state-conflict", message=text))
        make_distinct(
            event, lambda call_id: book.known(call_id) is not None, lambda: state.new_call_id(self.ctx.new_id, "call-")
        )
        if len(context.plugin_manager.plugins) > 1:
            self._call_ids.note(event)
        self._leave_out_text_of_exceptions(event)
        if event.actions is not None:
            self.state.vault.withhold(event.actions.state_delta)
        problems = make_storable(event)
        if problems:
            await self.attached()
            shown = "; ".join(problems[:5])
            self.ctx.emit_nowait(
                Error(status="INVALID_ARGUMENT", code="not-json", message=f"JSON cannot say: {shown}"),
            )
        session_id = context.session.id
        if session_id == self.state.adk_session_id:
            self.tools.unstored.difference_update(response.id or "" for response in event.get_function_responses())
            return
        if event.author == "user":
            return
        thread = self.brackets.child_thread(session_id)
        if thread is None:
            return
        await self.attached()
        child = self._children.get(session_id)
        if child is None:
            state = self.state
            child = self._children[session_id] = Translator(
                needs=state.needs,
                owner=state.owner,
                long_running=state.is_long_running,
                thread_prefix=thread,
                parent=state.translator,
            )
        self.state.speaker = event.author
        self.brackets.see_actions(event, thread)
        for made in child.feed(event):
            # State goes up to the parent with the tool's result; confirmations and credentials are asked by the call
            # that waits for them.
            asks = isinstance(made, ElicitationRequest) and made.kind != "clarification"
            if not asks and not isinstance(made, (SessionUpdate, ElicitationResponse)):
                await self.record(made, of_child=True)

    async def compacted(self, event: AdkEvent) -> None:
        """Record that ADK will show the model a summary from now on; no agent said it."""
        await self.attached()
        for made in self.state.translator.feed(event):
            await self.record(restamp(made, source="ext:adk"))

    def saw_exception(self, error: BaseException) -> None:
        """ADK makes an event of an exception that ends an agent, and stores it."""
        text = str(error)
        if text:
            self._raised.add(text)

    def _leave_out_text_of_exceptions(self, event: AdkEvent) -> None:
        """The text of an exception may hold a secret, such as a URL with a key: neither told nor stored (SEC-01)."""
        code, text = code_of(event.error_code), event.error_message
        if code is None or not text or self.state.exposes_errors or event.content is not None:
            return
        if text in self._raised or names_exception(code):
            event.error_message = safe_message(code, None)

    async def record(self, event: Event, *, of_child: bool = False) -> None:
        """Record one translated event, unless the record already has what it says."""
        ctx = self.ctx
        if isinstance(event, Error) and event.code == STOPPED_CODE:
            return  # an agent below or beside the one that reached a limit; the limit is told once, at the end
        await self.flush_error()
        if isinstance(event, Error) and not of_child:
            # ADK reports an exception as an event and raises it as well: whoever sees the exception drops this one.
            self._held_error = event
            return
        if isinstance(event, (ToolResponse, ToolUpdate, ElicitationResponse)):
            request = ctx.open_request(event.request_id)
            if request is None:
                return
            if request.status == "waiting" and isinstance(event, ToolResponse):
                # The call was answered in the place of its tool, which has not run: an error of the gate's.
                event = event.model_copy(update={"source": "ext:adk"})
            begun = request.started or self.state.has_begun(request)
            if isinstance(event, ToolResponse) and event.status == "unknown" and not begun:
                # ADK says of every call of a step that it aborts that it was aborted.
                event = event.model_copy(update={"status": "cancelled"})
            if isinstance(event, ToolUpdate):
                # The first answer of a long-running tool of the agent ends its request here; see docs/adk-limits.md.
                event = _as_response(event, self.state)
        elif isinstance(event, Message) and event.source == "user":
            # The person's own message is in the record already: this is what an agent's code says in the user's name.
            event = event.model_copy(update={"source": "ext:adk"})
        elif ctx.aborting or (isinstance(event, Message) and not event.partial and not event.content):
            return
        if event.source == "agent":
            self.brackets.see_agent_open(event)
        if isinstance(event, Usage):
            self.models.told(event)
        if of_child and isinstance(event, (ToolRequest, ElicitationRequest)):
            self.state.of_children.add(event.request_id)
        grace = ctx.grace
        if isinstance(event, ToolRequest) and grace is not None and event.name != grace.completion_tool:
            await ctx.emit(event)  # it is denied in the same step: no hook is asked, and nothing waits for it
            return
        if isinstance(event, ToolRequest):
            event = self._unless_invalid(event)
            self.state.never_began.add(event.request_id)
            if self.hooked_calls is not None and not event.partial:
                await self.hooked_calls.record(event)
                return
        if isinstance(event, (ElicitationRequest, ToolRequest)):
            await self.emit_request(event)
        else:
            await ctx.emit(event)

    async def emit_request(self, request: ElicitationRequest | ToolRequest) -> None:
        """Record a request. A run that ends on a question or a parked call is entered again with the answer, even one
        that comes early."""
        parks = isinstance(request, ElicitationRequest) or (
            request.needs == "result" and self.state.parked and request.request_id not in self.state.of_children
        )
        if parks:
            self.state.parked_calls.add(request.request_id)
            await self.ctx.post_any(request)
        else:
            await self.ctx.emit(request)

    def _unless_invalid(self, request: ToolRequest) -> ToolRequest:
        """A call whose arguments are no object runs nothing, so nobody is asked about it."""
        marks = (request.meta or {}).get("adk")
        if request.partial or not (isinstance(marks, dict) and marks.get("invalidArgs")):
            return request
        call = self.state.translator.book.get(request.request_id)
        if call is not None:
            call.needs = "none"
        return request.model_copy(update={"needs": "none"})

    async def end_answers(self) -> None:
        """The run is over: answers that have had no end will have none."""
        for made in self.state.translator.close_messages(broken=self.models.asked):
            await self.record(made)
        await self.flush_error()

    async def flush_error(self) -> None:
        """Record an error event that no exception followed."""
        held, self._held_error = self._held_error, None
        if held is not None and not self.ctx.aborting:
            self.brackets.see_agent_open(held)
            await self.ctx.emit(held)

    async def tell_owed_usage(self) -> None:
        """ADK's run raised: what its last responses used was spent all the same."""
        for usage in self.models.owed():
            if not self.ctx.aborting and self.ctx.open_agents.get(None):
                await self.ctx.emit(usage)

    async def settle_left_open(self) -> None:
        """The run is over: calls that an agent's own code made up have no known outcome, nor have those of agents that
        were left in the middle, such as the branches beside one that escalated."""
        self.tools.flush()
        waits = self.ctx.has_posted or any(item.status == "waiting" for item in self.ctx.open_requests.values())
        for request in list(self.ctx.open_requests.values()):
            if (
                request.kind == "elicitation"
                or request.status == "waiting"
                or (waits and not self._is_made_up(request))
            ):
                continue
            response = ToolResponse(
                request_id=request.id,
                name=request.name,
                is_error=True,
                status="unknown" if self.state.has_begun(request) else "cancelled",
                agent_id=request.agent_id,
                thread_id=request.thread_id,
                source="ext:adk",
            )
            self.state.translator.resolve(request.id)
            await self.ctx.emit(response)

    def _is_made_up(self, request: RequestState) -> bool:
        call = self.state.translator.book.get(request.id)
        if call is None or call.kind != "tool" or request.needs != "none":
            return False
        # What the gate has let run was made by a model, perhaps in another process, and asks for something now.
        return request.id not in self.state.begun and not self.state.offers(call.agent_id or "", call.name)

    def drop_error(self) -> None:
        """An exception followed the error event: the exception is reported instead."""
        self._held_error = None

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def attached(self) -> None:
        """Wait for an open stream; a settled run ends by cancellation, so that no callback of ADK reports a failure."""
        try:
            await self.ctx.attached()
        except RunEnded:
            raise asyncio.CancelledError from None

    async def wait(self, request_id: str) -> Answer | None:
        """The host's answer to a request, also one that came before anybody asked for it.

        A wait that is settled ends its tool by cancellation, never by a result. ``None``: nobody can answer it any
        more, because it was answered in a run that is over; the request is settled then.
        """
        request = self.ctx.open_request(request_id)
        reply = self.ctx.expect(request_id)
        if request is not None and request.status != "waiting" and not (reply.released or reply.complete):
            self.ctx.abandon(reply)
            return None
        span = self.spans.wait(reply)
        try:
            answers = await reply.wait()
            await self.attached()
            await self.ctx.stored()  # or ADK's session would have an answer that a killed process's record waits for
            await self.attached()
            return answers[request_id]
        except RunEnded:
            await asyncio.sleep(_LEAVE_S)  # ADK sees its abort signal meanwhile, and ends the tool itself
            raise asyncio.CancelledError from None
        finally:
            if not reply.released:
                self.ctx.abandon(reply)
            self.spans.close(span)

    def _all_waits(self) -> None:
        if self.ctx.aborting or self.stopped is not None:
            return
        try:
            self.tools.flush()
            self.brackets.sweep(None)
            self.ctx.pause()
        except Exception as error:  # nobody else would hear of it, and the run would wait for ever
            _logger.exception("session %s: the stream could not be paused", self.ctx.session_id)
            self.stop("failed", Error(status="INTERNAL", message=f"pausing failed with {type(error).__name__}"))

    # -- ending -------------------------------------------------------------------------------------------------------

    def stop(self, reason: str, error: Error) -> None:
        """End the run from inside, for ``reason``; the first reason counts. ADK ends itself by its abort signal."""
        if self.stopped is None:
            self.stopped = Stopped(reason, error)
            self.abort_signal.set()

    def _abort(self) -> float | None:
        """The host aborts: ADK ends itself by its signal; the base class cancels what is left after a second.

        A run that is left while it waits is cancelled at once, without the signal: by it ADK would close the waiting
        calls in its session, and their answers could not be given to another process.
        """
        if self.hooks is not None:
            self.hooks.cancel()
        if self.ctx.is_settled:
            return None
        try:
            if self.ctx.is_attached:
                self.tools.flush()
                self.brackets.cut()
        finally:
            self.abort_signal.set()
        return _GRACE_S


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
