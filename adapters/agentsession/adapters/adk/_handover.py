"""What ADK's session is told between two runs: the answers that a run ended on, refusals, and seals.

Not for: answers inside a run that is kept open (``_tool_calls.py``); the events of a seal (``_sealing.py``).
Rules carried: TOOL-11, LIFE-09, SEC-01. May import: the modules beside it but ``_executor``, google.adk.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from google.adk.events.event import Event as AdkEvent
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session
from google.genai import types

from agentsession.adapters.adk._calls import Call
from agentsession.adapters.adk._credentials import (
    REDACTED_RESPONSE,
    calls_sharing,
    credential_response,
    requested_config,
)
from agentsession.adapters.adk._replies import NO_CREDENTIAL, function_response, recorded_result
from agentsession.adapters.adk._sealing import dangling_calls, seal
from agentsession.adapters.adk._session_state import AdkSessionState
from agentsession.adapters.base import RunContext
from agentsession.protocol import AgentSessionError, ElicitationAnswer, SessionNotFound, ToolResponse

__all__ = ["Handover", "refuses_toolset"]


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
        special: list[types.Part] = []
        plain: list[types.Part] = []
        answered: set[str] = set()
        invocation: str | None = None
        adk_session = await self.session(state)
        open_ids = {call.id for _, calls in dangling_calls(adk_session) for call in calls}
        # Settled, not answered: the model must not read that a tool failed which may have done its work.
        closed = {
            event.request_id: event
            for event in ctx.record
            if isinstance(event, ToolResponse) and event.status in ("cancelled", "unknown")
        }
        for request_id, answer in ctx.answers.items():
            call = state.translator.book.get(request_id)
            if call is None or call.adk_id not in open_ids:
                continue  # it was answered within a run, or ADK has closed the call
            answered.add(call.adk_id)
            invocation = call.invocation_id or invocation
            response = function_response(call, answer)
            settled = closed.get(request_id)
            if settled is not None:
                response.response = recorded_result(settled)
            if call.kind == "auth_required":
                tool = state.translator.book.get(call.tool_request_id or "")
                if isinstance(answer, ElicitationAnswer) and answer.action == "accept":
                    config = requested_config(adk_session, call.adk_id)
                    secrets[call.adk_id] = credential_response(config, answer.content)
                    response.response = dict(REDACTED_RESPONSE)
                if tool is not None:
                    answered.add(tool.adk_id)
                    (state.resumed if call.adk_id in secrets else state.refused).add(tool.request_id)
                    for shared in calls_sharing(adk_session, tool.adk_id):
                        other = state.translator.book.known(shared)
                        if other is None or not ctx.is_open_request(other.request_id):
                            continue
                        answered.add(shared)
                        if call.adk_id in secrets:
                            state.resumed.add(other.request_id)
                        else:
                            plain.append(await self._refuse(ctx, state, other))
            part = types.Part(function_response=response)
            (special if call.kind in ("tool_confirmation", "auth_required") else plain).append(part)
            state.translator.resolve(request_id)
        if state.needs_sealing:
            await self.seal(ctx, state, keep=answered)
            adk_session = await self.session(state)
        if special and plain:
            await self._service.append_event(
                session=adk_session,
                event=AdkEvent(
                    author="user",
                    invocation_id=invocation or "",
                    content=types.Content(role="user", parts=plain),
                ),
            )
            plain = []
        if not special and not plain:
            raise AgentSessionError(
                "there is no answer that ADK's run could go on with",
                where=f"session {ctx.session_id}",
                fix="abort the turn",
                id="nothing-to-resume",
            )
        return types.Content(role="user", parts=special or plain)

    async def _refuse(self, ctx: RunContext, state: AdkSessionState, call: Call) -> types.Part:
        """A call whose credential was refused by the question of another: ADK enters that one again, but not this."""
        told = {"error": NO_CREDENTIAL}
        await ctx.emit(
            ToolResponse(
                request_id=call.request_id,
                name=call.name,
                data=told,
                is_error=True,
                status="failed",
                agent_id=call.agent_id,
                thread_id=call.thread_id,
            )
        )
        state.translator.resolve(call.request_id)
        return types.Part(function_response=types.FunctionResponse(id=call.adk_id, name=call.name, response=told))

    async def seal(self, ctx: RunContext, state: AdkSessionState, keep: Collection[str] = ()) -> None:
        """Close the calls that ADK's session holds open, each with what the record says of it."""
        found = await self.session(state)
        dangling = {call.id for _, calls in dangling_calls(found) for call in calls if call.id not in keep}
        if dangling:
            responses: dict[str, dict[str, Any]] = {}
            for event in ctx.record:
                call = state.translator.book.get(event.request_id) if isinstance(event, ToolResponse) else None
                if call is not None and call.adk_id in dangling and isinstance(event, ToolResponse):
                    responses[call.adk_id] = recorded_result(event)
            await seal(self._service, found, responses, keep=keep)
        state.needs_sealing = False

    async def session(self, state: AdkSessionState) -> Session:
        """ADK's own session. Raises :class:`SessionNotFound`."""
        found = await self._service.get_session(
            app_name=self._app_name, user_id=state.user_id, session_id=state.adk_session_id
        )
        if found is None:
            raise SessionNotFound(f"ADK's session {state.adk_session_id} is gone", where=type(self._service).__name__)
        return found


def refuses_toolset(ctx: RunContext, state: AdkSessionState) -> bool:
    """Whether a credential was refused that no call asked for, but a toolset before its tools are listed: ADK would
    ask for it again before every model call, for ever."""
    for request_id, answer in ctx.answers.items():
        call = state.translator.book.get(request_id)
        refused = isinstance(answer, ElicitationAnswer) and answer.action != "accept"
        if refused and call is not None and call.kind == "auth_required" and call.tool_request_id is None:
            return True
    return False
