"""What ADK's session is told between two runs: the answers that a run ended on, refusals, and seals.

Not for: answers inside a run that is kept open (``_tool_calls.py``); the events of a seal (``_sealing.py``).
Rules carried: TOOL-11, LIFE-09, SEC-01. May import: the modules beside it but ``_executor``, google.adk.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final

from google.adk.events.event import Event as AdkEvent
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session
from google.genai import types

from agentsession.adapters.adk._calls import Call
from agentsession.adapters.adk._catch_up import MESSAGE
from agentsession.adapters.adk._credential_answers import credential_response
from agentsession.adapters.adk._credentials import calls_sharing, redacted_response, requested_config
from agentsession.adapters.adk._errors import SEALS
from agentsession.adapters.adk._reentry import confirmed, question_events
from agentsession.adapters.adk._replies import (
    DECLINED,
    NO_CREDENTIAL,
    confirmation_of,
    function_response,
    granted_args,
    recorded_answer,
    recorded_result,
)
from agentsession.adapters.adk._sealing import awaited_calls, dangling_calls, seal
from agentsession.adapters.adk._session_state import AdkSessionState
from agentsession.adapters.adk._sessions import RecentHistory
from agentsession.adapters.base import RunContext
from agentsession.protocol import (
    AgentSessionError,
    Answer,
    ElicitationAnswer,
    ElicitationResponse,
    Event,
    Message,
    SessionNotFound,
    StreamEnd,
    ToolGrant,
    ToolResponse,
)

__all__ = ["Handover", "refuses_toolset"]

_NOT_ON_PURPOSE: Final = ("superseded", "closed", "fork", "rewind")
"""Causes for which a waiting turn is settled though nobody wanted its work to end."""


class _Told:
    """What ADK is about to be told, gathered answer by answer."""

    def __init__(self, session: Session, record: Sequence[Event]) -> None:
        self.session = session
        self.special: list[types.Part] = []
        """Answers to questions that ADK asked as calls; they share no message with results."""
        self.plain: list[types.Part] = []
        self.answered: set[str] = set()
        """ADK's ids of calls that must not be sealed."""
        self.invocation = ""
        self._calls = {
            made.id: (event, made)
            for event, calls in (*awaited_calls(session), *dangling_calls(session))
            for made in calls
            if made.id is not None
        }
        self._entered: dict[str, tuple[AdkEvent, list[types.FunctionCall]]] = {}
        # Settled, not answered: the model must not read that a tool failed which may have done its work.
        self.settled = {
            event.request_id: event
            for event in record
            if isinstance(event, ToolResponse) and event.status in ("cancelled", "unknown")
        }

    @property
    def open_ids(self) -> Collection[str]:
        """ADK's ids of the calls that its session holds without a response, or without the one that is awaited."""
        return self._calls.keys()

    def name_of(self, call: Call) -> str:
        """The name that ADK's session has for an open call: ADK takes no answer under another."""
        return self._calls[call.adk_id][1].name or call.name

    def respond(self, call: Call, response: types.FunctionResponse, *, special: bool) -> None:
        """ADK is given this response."""
        self.answered.add(call.adk_id)
        self.invocation = call.invocation_id or self.invocation
        (self.special if special else self.plain).append(types.Part(function_response=response))

    def enter(self, call: Call) -> None:
        """ADK is led into this call again."""
        event, made = self._calls[call.adk_id]
        self.answered.add(call.adk_id)
        self.invocation = call.invocation_id or self.invocation
        calls = self._entered.setdefault(event.id, (event, []))[1]
        if made not in calls:
            calls.append(made)

    def entered(self) -> Collection[tuple[AdkEvent, list[types.FunctionCall]]]:
        """The calls to enter again, by the event that holds them."""
        return self._entered.values()


class Handover:
    """Hands over to ADK's sessions, which ``service`` keeps, what happened while no run was open."""

    def __init__(self, service: BaseSessionService, app_name: str) -> None:
        self._service = service
        self._app_name = app_name

    async def answers(self, ctx: RunContext, state: AdkSessionState, secrets: dict[str, Any]) -> types.Content:
        """The message that gives ADK the answers its run ended on; what of them is secret goes to ``secrets``.

        Confirmations and credentials never share a message with results: ADK drops an event that holds one of them from
        what the model sees, results and all. So results are appended first, and the run starts with the rest.
        """
        adk_session = await self.session(state)
        told = _Told(adk_session, ctx.record)
        for request_id, answer in ctx.answers.items():
            call = state.translator.book.get(request_id)
            if call is None:
                continue
            if call.kind == "tool_confirmation":
                await self._confirmation(ctx, state, told, call, answer)
            elif call.adk_id not in told.open_ids:
                continue  # it was answered within a run, or ADK has closed the call
            elif isinstance(answer, ToolGrant):
                state.granted[request_id] = answer
                told.enter(call)
            else:
                await self._answer(ctx, state, told, call, answer, secrets)
        if state.needs_sealing:
            await self.seal(ctx, state, keep=told.answered)
            adk_session = await self.session(state)
        special = [*told.special]
        for asked_in, calls in told.entered():
            events, ids = question_events(asked_in, calls, lambda: state.new_call_id(ctx.new_id, "gate-"))
            special += confirmed(ids)
            for event in events:
                await self._service.append_event(session=adk_session, event=event)
        if special and told.plain:
            await self._service.append_event(
                session=adk_session,
                event=AdkEvent(
                    author="user",
                    invocation_id=told.invocation,
                    content=types.Content(role="user", parts=told.plain),
                ),
            )
        if not special and not told.plain:
            raise AgentSessionError(
                "there is no answer that ADK's run could go on with",
                where=f"session {ctx.session_id}",
                fix="abort the turn",
                id="nothing-to-resume",
            )
        return types.Content(role="user", parts=special or told.plain)

    async def _answer(
        self,
        ctx: RunContext,
        state: AdkSessionState,
        told: _Told,
        call: Call,
        answer: Answer,
        secrets: dict[str, Any],
    ) -> None:
        """An answer that ADK takes as the response to a call of its session."""
        response = function_response(call, answer)
        response.name = told.name_of(call)
        settled = told.settled.get(call.request_id)
        if settled is not None:
            response.response = recorded_result(settled)
        if call.kind == "auth_required":
            await self._credential(ctx, state, told, call, answer, secrets)
            if isinstance(answer, ElicitationAnswer) and call.adk_id in secrets:
                response.response = redacted_response(answer.content)
        told.respond(call, response, special=call.kind in ("tool_confirmation", "auth_required"))
        state.translator.resolve(call.request_id)

    async def _confirmation(
        self, ctx: RunContext, state: AdkSessionState, told: _Told, call: Call, answer: Answer
    ) -> None:
        """A person's yes or no to a call of the agent's: with a yes ADK enters it, with a no it is answered here."""
        tool = state.translator.book.get(call.tool_request_id or "")
        waits = tool is not None and ctx.is_open_request(tool.request_id)
        accepted = isinstance(answer, ElicitationAnswer) and answer.action == "accept"
        if tool is None or not waits:
            if call.adk_id in told.open_ids:  # a question of ADK's own about a call that is not in the record
                told.respond(call, function_response(call, answer), special=True)
        elif not accepted:
            state.declined(tool.request_id)
            await self._refuse(ctx, state, told, tool, {"error": DECLINED}, "denied")
        elif call.adk_id in told.open_ids:
            state.confirmed[tool.request_id] = confirmation_of(ctx.record, call.request_id, answer)
            told.respond(call, function_response(call, answer), special=True)
            told.answered.add(tool.adk_id)
        elif tool.adk_id in told.open_ids:
            state.confirmed[tool.request_id] = confirmation_of(ctx.record, call.request_id, answer)
            if tool.needs == "grant":
                args = granted_args(ctx.record, tool.request_id)
                state.granted[tool.request_id] = ToolGrant(request_id=tool.request_id, args=args)
            told.enter(tool)
        state.translator.resolve(call.request_id)

    async def _credential(
        self,
        ctx: RunContext,
        state: AdkSessionState,
        told: _Told,
        call: Call,
        answer: Answer,
        secrets: dict[str, Any],
    ) -> None:
        """A person's credential, or that there is none, for a tool and for those that wait for the same one."""
        tool = state.translator.book.get(call.tool_request_id or "")
        if isinstance(answer, ElicitationAnswer) and answer.action == "accept":
            config = requested_config(told.session, call.adk_id)
            secrets[call.adk_id] = credential_response(config, answer.content)
        if tool is None:
            return
        told.answered.add(tool.adk_id)
        (state.resumed if call.adk_id in secrets else state.refused).add(tool.request_id)
        for shared in calls_sharing(told.session, tool.adk_id):
            other = state.translator.book.known(shared)
            if other is None or not ctx.is_open_request(other.request_id):
                continue
            told.answered.add(shared)
            if call.adk_id in secrets:
                state.resumed.add(other.request_id)
            else:
                await self._refuse(ctx, state, told, other, {"error": NO_CREDENTIAL}, "failed")

    async def _refuse(
        self, ctx: RunContext, state: AdkSessionState, told: _Told, call: Call, result: dict[str, Any], status: str
    ) -> None:
        """A call that must not run, and that ADK does not enter again to be told so: answered here, for both sides."""
        await ctx.emit(
            ToolResponse(
                request_id=call.request_id,
                name=call.name,
                data=result,
                is_error=True,
                status=status,
                agent_id=call.agent_id,
                thread_id=call.thread_id,
            )
        )
        response = types.FunctionResponse(id=call.adk_id, name=call.name, response=result)
        told.respond(call, response, special=False)
        state.translator.resolve(call.request_id)

    async def tell(self, state: AdkSessionState, message: Message, heard: types.Content) -> None:
        """What a person said in an earlier turn and ADK has not heard: ``heard`` is what it shall hear of it."""
        adk_session = await self.session(state)
        state.place = message.seq
        try:
            await self._service.append_event(
                session=adk_session,
                event=AdkEvent(
                    author="user",
                    invocation_id=f"e-{uuid.uuid4()}",  # of its own, as that of a message whose agent did nothing
                    content=heard,
                    custom_metadata={MESSAGE: message.message_id},
                ),
            )
        finally:
            state.place = None

    async def seal(self, ctx: RunContext, state: AdkSessionState, keep: Collection[str] = ()) -> None:
        """Close the calls that ADK's session holds open, each with what the record says of it.

        A task that was delegated goes on over turns: it is given what its user says next, unless the turn was aborted.
        """
        found = await self.session(state)
        if not _was_aborted(ctx.record):
            calls = [call for _, calls in dangling_calls(found) for call in calls]
            keep = {*keep, *(call.id for call in calls if call.id and call.name in state.delegated)}
        dangling = {call.id for _, calls in dangling_calls(found) for call in calls if call.id not in keep}
        if dangling:
            # What the record does not know was shown to nobody, so nothing of it ran.
            responses: dict[str, dict[str, Any]] = {
                adk_id: dict(SEALS["cancelled"])
                for adk_id in dangling
                if adk_id is not None and state.translator.book.known(adk_id) is None
            }
            for event in ctx.record:
                if not isinstance(event, (ToolResponse, ElicitationResponse)):
                    continue
                call = state.translator.book.get(event.request_id)
                if call is None or call.adk_id not in dangling:
                    continue
                if isinstance(event, ElicitationResponse):
                    if call.kind == "clarification" and event.action != "cancel":  # its agent was left before ADK heard
                        responses[call.adk_id] = recorded_answer(call, event)
                    continue
                # A long-running tool's first word is better than that nobody knew its outcome.
                if event.status not in ("cancelled", "unknown") or call.adk_id not in responses:
                    responses[call.adk_id] = recorded_result(event)
            await seal(self._service, found, responses, keep=keep)
        state.needs_sealing = False

    async def session(self, state: AdkSessionState) -> Session:
        """ADK's own session, with at least what belongs to calls that are open. Raises :class:`SessionNotFound`."""
        found = await self._service.get_session(
            app_name=self._app_name,
            user_id=state.user_id,
            session_id=state.adk_session_id,
            config=RecentHistory(),
        )
        if found is None:
            raise SessionNotFound(f"ADK's session {state.adk_session_id} is gone", where=type(self._service).__name__)
        return found


def _was_aborted(record: Sequence[Event]) -> bool:
    """Whether the turn before was ended on purpose: with it ends what it delegated. ADK does the same with a run."""
    for event in reversed(record):
        if isinstance(event, StreamEnd):
            cause = event.data.get("cause") if isinstance(event.data, dict) else None
            return event.reason == "aborted" and cause not in _NOT_ON_PURPOSE
    return False


def refuses_toolset(ctx: RunContext, state: AdkSessionState) -> bool:
    """Whether a credential was refused that no call asked for, but a toolset before its tools are listed: ADK would
    ask for it again before every model call, for ever."""
    for request_id, answer in ctx.answers.items():
        call = state.translator.book.get(request_id)
        refused = isinstance(answer, ElicitationAnswer) and answer.action != "accept"
        if refused and call is not None and call.kind == "auth_required" and call.tool_request_id is None:
            return True
    return False
