"""The questions that tools ask a person in a run that is kept open: confirmation, credential, input.

Not for: whether a tool may run (``_tool_calls.py``); questions that ADK itself asks, which its events tell.
Rules carried: HITL-01, HITL-02, HITL-10. May import: ``agentsession.protocol``, the modules beside it, google.adk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext

from agentsession.adapters.adk._credentials import store_credential
from agentsession.adapters.adk._elicit import hint_for_person, question_of
from agentsession.adapters.adk._replies import DECLINED, NO_CREDENTIAL, function_response
from agentsession.adapters.adk._values import lossy_json
from agentsession.protocol import ElicitationAnswer, ElicitationRequest

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["ToolQuestions"]


class ToolQuestions:
    """The questions of the tools of one run, those of its children included."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live

    async def confirmation(
        self, tool: BaseTool, request_id: str, asked: ToolConfirmation | None = None
    ) -> ToolConfirmation | None:
        """A person's yes to a call, as its tool sees it; ``None`` is a no, and the call is denied.

        ``asked``: what the tool itself asked with while it ran.
        """
        payload, _ = lossy_json(asked.payload if asked is not None else None)
        answer = await self._ask(
            ElicitationRequest(
                request_id=self._live.state.new_request_id(self._live.ctx.new_id, "q"),
                kind="tool_confirmation",
                message=hint_for_person(asked.hint if asked is not None else None, tool.name),
                tool_request_id=request_id,
                thread_id=self._thread_of(request_id),
                **({"context": payload} if payload is not None else {}),
            )
        )
        if answer.action != "accept":
            self._live.state.declined(request_id)
            return None
        given = answer.content.get("payload") if isinstance(answer.content, dict) else None
        if asked is None:
            return ToolConfirmation(confirmed=True, payload=given)
        return ToolConfirmation(
            hint=asked.hint or "", confirmed=True, payload=given if given is not None else asked.payload
        )

    async def credential(self, tool: BaseTool, request_id: str, config: AuthConfig, context: ToolContext) -> bool:
        """Ask a person for the credential that a tool wants; whether there is one now, where the tool finds it."""
        args = {"authConfig": config.model_dump(mode="json", by_alias=True, exclude_none=True)}
        answer = await self._ask(
            ElicitationRequest(
                request_id=self._live.state.new_request_id(self._live.ctx.new_id, "q"),
                kind="auth_required",
                tool_request_id=request_id,
                thread_id=self._thread_of(request_id),
                **question_of("auth_required", args, tool.name),
            )
        )
        if answer.action != "accept":
            return False
        return await store_credential(config, answer.content, context)

    async def input(self, context: ToolContext) -> dict[str, Any] | None:
        """The person's answer to an agent's own question, which the call's event has put."""
        call = self._live.state.translator.book.known(context.function_call_id or "")
        if call is None or call.kind != "clarification":
            return {"error": "blocked: nobody was asked"}
        answer = await self._live.wait(call.request_id)
        if answer is None:
            return {"error": "cancel"}
        return function_response(call, answer).response

    async def from_inside(
        self, tool: BaseTool, request_id: str | None, context: ToolContext, *, inline: bool
    ) -> dict[str, Any] | bool:
        """Put one question that a tool asked while it ran: whether there was one, and the tool may run again with its
        answer; or what the model reads instead.

        ``inline``: a credential is asked for here, too, and not by ADK.
        """
        actions, call_id = context.actions, context.function_call_id or ""
        confirmation = actions.requested_tool_confirmations.pop(call_id, None)
        config = actions.requested_auth_configs.pop(call_id, None) if inline else None
        if confirmation is None and config is None:
            return False
        actions.skip_summarization = None  # ADK sets it where it means to end the run
        if request_id is None or not self._live.ctx.is_open_request(request_id):
            return {"error": DECLINED}
        if confirmation is not None:
            context.tool_confirmation = await self.confirmation(tool, request_id, confirmation)
            return context.tool_confirmation is not None or {"error": DECLINED}
        assert config is not None
        return await self.credential(tool, request_id, config, context) or {"error": NO_CREDENTIAL}

    def _thread_of(self, request_id: str) -> str | None:
        request = self._live.ctx.open_request(request_id)
        return request.thread_id if request is not None else None

    async def _ask(self, question: ElicitationRequest) -> ElicitationAnswer:
        self._live.state.asked(question)
        self._live.ctx.emit_nowait(question)
        answer = await self._live.wait(question.request_id)
        self._live.state.translator.resolve(question.request_id)
        if isinstance(answer, ElicitationAnswer):
            return answer
        return ElicitationAnswer(request_id=question.request_id, action="cancel")
