"""The host's hooks in an ADK run: each of ADK's plugin callbacks fires its point, and what a hook says is done to ADK.

Not for: asking the interceptor safely (``agentsession.adapters.base``), or calls of tools (``_hooked_calls.py``).
Rules carried: SEC-01, CTL-01 (an abort cancels a hook that hangs).
May import: ``agentsession.protocol``, ``agentsession.adapters.base``, the modules beside it, google.adk.

The gate is the first plugin, and ADK asks no other once one has answered. So what a hook changes is changed in place
wherever that can be, and the user's plugins and callbacks work on with it; only what blocks is answered to ADK.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event as AdkEvent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from agentsession.adapters.adk._events import code_of
from agentsession.adapters.adk._hooked_content import SETTINGS, Parts, change_request, instruction_text, is_fixed
from agentsession.adapters.adk._model_failures import ModelFailure
from agentsession.adapters.adk._values import lossy_json
from agentsession.adapters.base import PROCEED, Hooked, Hooks, hook_events
from agentsession.protocol import (
    AgentHook,
    ContentChange,
    ContentPart,
    ElicitationAnswer,
    ElicitationRequest,
    ErrorHook,
    EventHook,
    FallbackQuestion,
    HookPayload,
    InvalidInput,
    ModelContent,
    ModelErrorChange,
    ModelErrorHook,
    ModelRequestChange,
    ModelRequestHook,
    ModelResponseHook,
    RunEnded,
    RunHook,
    UserMessageHook,
)

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["RunHooks", "ToldOfError"]

BLOCKED: Final = "blocked by the host"
"""What is told where a hook blocks and gives no message."""

P = TypeVar("P", bound=HookPayload)


class ToldOfError(NamedTuple):
    """What a hook wants done about a model call that raised: see ``ModelErrorChange``. All absent: it is raised."""

    content: types.Content | None = None
    next_model: str | None = None
    after_s: float | None = None
    ask: FallbackQuestion | None = None
    fail_as: str | None = None
    reason: str | None = None

    @property
    def repeats(self) -> bool:
        """The call is made again."""
        return self.next_model is not None or self.after_s is not None


class RunHooks:
    """Fires the host's hooks from one run, its children included."""

    def __init__(self, live: LiveRun, hooks: Hooks) -> None:
        self._live = live
        self._hooks = hooks
        self._asking: set[asyncio.Task[Hooked]] = set()
        self._halted: dict[str, str] = {}
        """By the session of an AgentTool's child that may not hear what it was told: what is said instead."""
        self.ended_by: str | None = None
        """The hook that blocked the last step of the session's own agents: it has ended the turn."""
        self.message = BLOCKED
        """What that hook says instead."""
        self.resumed = False
        """The run goes on with answers."""

    # -- asking -------------------------------------------------------------------------------------------------------

    def wants(self, point: str) -> bool:
        """Whether a hook wants to be asked at this point, and the turn is not ending."""
        ctx = self._live.ctx
        return self._hooks.wants(point) and not ctx.aborting and not ctx.is_settled

    def payload(self, kind: type[P], agent_id: str | None = None, thread_id: str | None = None, **fields: Any) -> P:
        """What a hook is told, with where it is."""
        ctx = self._live.ctx
        return kind(
            session_id=ctx.session_id,
            user_id=ctx.user_id,
            turn_id=ctx.turn_id,
            agent_id=agent_id,
            thread_id=thread_id,
            permission_mode=ctx.permission_mode,
            **fields,
        )

    async def ask(self, point: str, payload: HookPayload, **data: Any) -> Hooked:
        """Fire a point and record what came of it. An abort cancels a hook that hangs, and with it what waits for it.

        ``data`` goes to the record with the rest.
        """
        hooked = await self.fire(point, payload)
        self.tell(point, hooked, payload, **data)
        return hooked

    async def fire(self, point: str, payload: HookPayload) -> Hooked:
        """Fire a point, as :meth:`ask` does, and record nothing."""
        if not self.wants(point):
            return PROCEED
        asking = asyncio.ensure_future(self._hooks.fire(point, payload))
        self._asking.add(asking)
        try:
            with self._live.spans.at_work():
                hooked = await asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._live.ctx.aborting or self._live.ctx.is_settled or (task is not None and task.cancelling()):
                raise
            hooked = Hooks.failed(point, f"the hook at {point} was cancelled from inside")
        finally:
            self._asking.discard(asking)
        await self._live.attached()
        return hooked

    def tell(self, point: str, hooked: Hooked, payload: HookPayload, **data: Any) -> None:
        """Record what came of a point."""
        for event in hook_events(point, hooked, thread_id=payload.thread_id):
            if event.type == "custom":
                event = event.model_copy(update={"data": {**event.data, **data}})
            self._live.ctx.emit_nowait(event)

    def misused(self, point: str, payload: HookPayload, error: InvalidInput, by: str | None = None) -> Hooked:
        """A hook's change that cannot be made is a failure of the hook; what came of it."""
        hooked = Hooks.failed(point, error.what, by)
        self.tell(point, hooked, payload)
        return hooked

    def cancel(self) -> None:
        """The turn is aborted."""
        for asking in list(self._asking):
            asking.cancel()

    # -- runs and messages --------------------------------------------------------------------------------------------

    async def said(self, content: types.Content, *, steer: bool = False) -> types.Content | None:
        """What the user said, as the agent shall hear it; ``None``: it shall not, and the turn is over (no steer)."""
        if not self.wants("on_user_message"):
            return content
        shown = Parts(content.parts)
        payload = self.payload(UserMessageHook, content=shown.content, steer=steer)
        hooked = await self.ask("on_user_message", payload)
        if hooked.blocked:
            if not steer:
                self._end(hooked)
            return None
        parts = self._changed("on_user_message", payload, hooked, shown)
        return content if parts is None else types.Content(role=content.role, parts=parts)

    async def told_child(self, context: InvocationContext, content: types.Content) -> types.Content | None:
        """What an agent says to one that it uses as a tool. A child that may not hear it is kept from running."""
        if not self._is_child(context) or not self.wants("on_user_message"):
            return None
        shown = Parts(content.parts)
        payload = self.payload(
            UserMessageHook, getattr(context.agent, "name", None), self._thread(), content=shown.content, source="agent"
        )
        hooked = await self.ask("on_user_message", payload)
        if hooked.blocked:
            self._halted[context.session.id] = hooked.message or BLOCKED
            return types.Content(role="user", parts=[types.Part(text=hooked.message or BLOCKED)])
        parts = self._changed("on_user_message", payload, hooked, shown)
        if parts is not None:
            content.parts = parts  # in place: the user's plugins hear it too
        return None

    async def before_run(self, context: InvocationContext) -> types.Content | None:
        """Before ADK runs: content instead of the run, when a hook blocks it."""
        halted = self._halted.pop(context.session.id, None)
        if halted is not None:
            return _said(halted)
        hooked = await self.ask("before_run", self._of_run(RunHook, context, resumed=self.resumed))
        if not hooked.blocked:
            return None
        if not self._is_child(context):
            self._end(hooked)
        return _said(hooked.message or BLOCKED)

    async def after_run(self, context: InvocationContext) -> None:
        """After ADK ran, without an exception."""
        await self.ask("after_run", self._of_run(RunHook, context, resumed=self.resumed))

    async def on_run_error(self, context: InvocationContext, error: BaseException) -> None:
        """ADK's run ends by an exception."""
        await self.ask("on_run_error", self._of_run(ErrorHook, context, error_type=type(error).__name__))

    def _of_run(self, kind: type[P], context: InvocationContext, **fields: Any) -> P:
        agent = context.agent  # a graph has nodes
        return self.payload(kind, getattr(agent, "name", None), self._thread(), **fields)

    async def on_event(self, context: InvocationContext, event: AdkEvent) -> None:
        """Before a whole event is stored and shown: other content, in place. Its calls and results stay."""
        if not self.wants("on_event"):
            return
        shown = Parts(event.content.parts if event.content is not None else None)
        payload = self.payload(
            EventHook, event.author or None, self._thread(), content=shown.content, error_code=code_of(event.error_code)
        )
        hooked = await self.ask("on_event", payload)
        if event.content is None:
            return
        if hooked.blocked:
            kept = [part for _, part in shown.pairs if is_fixed(part)]
            said = [types.Part(text=hooked.message or BLOCKED)] if len(kept) < len(shown.pairs) else []
            event.content = types.Content(role=event.content.role, parts=[*said, *kept])
            return
        parts = self._changed("on_event", payload, hooked, shown, keeps=True)
        if parts is not None:
            event.content = types.Content(role=event.content.role, parts=parts)

    # -- agents -------------------------------------------------------------------------------------------------------

    async def before_agent(self, context: CallbackContext) -> types.Content | None:
        """Before an agent works: content in its place, when a hook blocks it."""
        hooked = await self.ask("before_agent", self._of_agent(AgentHook, context))
        if not hooked.blocked:
            return None
        if not self._is_child(context):
            self._end(hooked)
        return _said(hooked.message or BLOCKED)

    async def after_agent(self, context: CallbackContext) -> types.Content | None:
        """After an agent has worked: what is said in addition."""
        if not self.wants("after_agent"):
            return None
        payload = self._of_agent(AgentHook, context)
        parts = self._changed("after_agent", payload, await self.ask("after_agent", payload), Parts(()))
        return types.Content(role="model", parts=parts) if parts else None

    async def on_agent_error(self, context: CallbackContext, error: BaseException) -> None:
        """An agent ends by an exception."""
        await self.ask("on_agent_error", self._of_agent(ErrorHook, context, error_type=type(error).__name__))

    def _of_agent(self, kind: type[P], context: CallbackContext, **fields: Any) -> P:
        return self.payload(kind, context.agent_name, self._thread(), **fields)

    # -- models -------------------------------------------------------------------------------------------------------

    async def before_model(self, context: CallbackContext, request: LlmRequest) -> LlmResponse | None:
        """Before a model call: the request is changed in place; a response instead of the call blocks it."""
        if not self._is_child(context):
            self.ended_by = None  # the agents go on after what a hook blocked before
        if not self.wants("before_model"):
            return None
        shown = [Parts(content.parts) for content in request.contents]
        config = request.config
        settings = {name: getattr(config, name) for name in SETTINGS if getattr(config, name) is not None}
        payload = self._of_agent(
            ModelRequestHook,
            context,
            model=request.model,
            contents=[
                ModelContent(role=content.role, content=parts.content)
                for content, parts in zip(request.contents, shown, strict=True)
            ],
            system_instruction=instruction_text(config.system_instruction),
            tools=list(request.tools_dict),
            config=lossy_json(settings)[0],
        )
        hooked = await self.ask("before_model", payload)
        if isinstance(hooked.change, ModelRequestChange):
            try:
                change_request(request, hooked.change, shown)
            except InvalidInput as error:
                hooked = self.misused("before_model", payload, error)
        if not hooked.blocked:
            return None
        if not self._is_child(context):
            self._end(hooked)
        return LlmResponse(content=_said(hooked.message or BLOCKED))

    async def after_model(self, context: CallbackContext, response: LlmResponse) -> None:
        """After a model's whole answer: other content, in place. Calls can be dropped, none can be made or changed."""
        if not self.wants("after_model"):
            return
        shown = Parts(response.content.parts if response.content is not None else None)
        payload = self._of_agent(
            ModelResponseHook,
            context,
            model=response.model_version,
            content=shown.content,
            finish_reason=code_of(response.finish_reason),
            error_code=code_of(response.error_code),
        )
        hooked = await self.ask("after_model", payload)
        if hooked.blocked:
            response.content = _said(hooked.message or BLOCKED)
            return
        parts = self._changed("after_model", payload, hooked, shown)
        if parts is not None:
            response.content = types.Content(role="model", parts=parts)

    async def on_model_failure(
        self,
        context: CallbackContext,
        model: str | None,
        error: BaseException,
        failure: ModelFailure,
        *,
        attempt: int,
        began: bool,
        answer: dict[str, Any] | None,
        can_retry: bool = True,
    ) -> ToldOfError:
        """A model call raised: what shall become of it. ``answer``: to the question that the hook asked before."""
        if not self.wants("on_model_error"):
            return ToldOfError()
        payload = self._of_agent(
            ModelErrorHook,
            context,
            model=model,
            error_type=type(error).__name__,
            attempt=attempt,
            began=began,
            can_retry=can_retry,
            answer=answer,
            **dataclasses.asdict(failure),
        )
        hooked = await self._asked_of_error(payload)
        if hooked.blocked:
            return ToldOfError(content=_said(hooked.message or BLOCKED))
        change = hooked.change
        if not isinstance(change, ModelErrorChange):
            return ToldOfError()
        if change.content is None:
            return ToldOfError(None, change.next_model, change.after_s, change.ask, change.fail_as, hooked.reason)
        parts = self._changed("on_model_error", payload, hooked, Parts(()), change.content)
        return ToldOfError(content=types.Content(role="model", parts=parts) if parts is not None else None)

    async def _asked_of_error(self, payload: ModelErrorHook) -> Hooked:
        """Fire ``on_model_error``, and record what it chose: from which model to which, and after how long."""
        asking = await self.fire("on_model_error", payload)
        change = asking.change
        data: dict[str, Any] = {}
        if isinstance(change, ModelErrorChange):
            unfit = (change.repeats or change.ask is not None) and not payload.can_retry
            if unfit or (change.ask is not None and payload.answer is not None):
                what = "a call that cannot be made again" if unfit else "one error twice"
                return self.misused("on_model_error", payload, InvalidInput(f"a hook asked for {what}"))
            if change.repeats:
                data = {"from": payload.model, "to": change.next_model or payload.model, "status": payload.status}
                data |= {"code": payload.code, "attempt": payload.attempt, "afterS": change.after_s}
        self.tell("on_model_error", asking, payload, **{key: value for key, value in data.items() if value is not None})
        return asking

    async def ask_fallback(self, context: CallbackContext, ask: FallbackQuestion) -> dict[str, Any]:
        """Ask a person about a model that fails, and wait for the answer: its action, and its content if any."""
        live = self._live
        await live.attached()
        question = ElicitationRequest(
            request_id=live.state.new_request_id(live.ctx.new_id, "q"),
            kind="model_fallback",
            message=ask.message,
            context=ask.context,
            requested_schema=ask.requested_schema,
            agent_id=context.agent_name,
            thread_id=self._thread(),
        )
        try:
            live.ctx.emit_nowait(question)
        except RunEnded:
            raise asyncio.CancelledError from None
        answer = await live.wait(question.request_id)
        if not isinstance(answer, ElicitationAnswer):
            return {"action": "cancel"}
        given = {"content": answer.content} if answer.action == "accept" else {}
        return {"action": answer.action, **given}

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _changed(
        self,
        point: str,
        payload: HookPayload,
        hooked: Hooked,
        shown: Parts,
        content: Sequence[ContentPart] | None = None,
        *,
        keeps: bool = False,
    ) -> list[types.Part] | None:
        """The parts that a hook wants in the place of those it was shown; ``None``: they stay."""
        if content is None and isinstance(hooked.change, ContentChange):
            content = hooked.change.content
        if content is None:
            return None
        try:
            return shown.changed(content, keeps=keeps)
        except InvalidInput as error:
            self.misused(point, payload, error)
            return None

    def _end(self, hooked: Hooked) -> None:
        self.ended_by = hooked.who
        self.message = hooked.message or BLOCKED

    def _is_child(self, context: CallbackContext | InvocationContext) -> bool:
        return context.session.id != self._live.state.adk_session_id

    def _thread(self) -> str | None:
        return self._live.brackets.current_thread()


def _said(text: str) -> types.Content:
    return types.Content(role="model", parts=[types.Part(text=text)])
