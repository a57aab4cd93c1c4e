"""The questions that tools ask a person: confirmation, credential, input.

Not for: whether a tool may run (``_tool_calls.py``); questions that ADK itself asks, which its events tell.
Rules carried: HITL-01, HITL-02, HITL-10, PER-01.
May import: ``agentsession.protocol``, the modules beside it, google.adk.

Most are waited for in the run, which is kept open. A credential of an agent that can be resumed is asked for by ADK,
because that survives the process: its run ends on a call that stands for the question. But ADK does not hear a tool
that asks when it is entered again, after a restart or with a credential that was of no use: it would show its model the
words that stand for a result. So there the adapter makes that call, in the place of the model's next answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from google.adk.agents.callback_context import CallbackContext
from google.adk.auth.auth_tool import AuthConfig
from google.adk.flows.llm_flows.functions import build_auth_request_event
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext

from agentsession.adapters.adk._credentials import store_credential
from agentsession.adapters.adk._elicit import hint_for_person, question_of
from agentsession.adapters.adk._host_tools import AskedCredential
from agentsession.adapters.adk._replies import DECLINED, NO_CREDENTIAL, function_response
from agentsession.adapters.adk._values import lossy_json
from agentsession.protocol import ElicitationAnswer, ElicitationRequest

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["ToolQuestions"]


class _Unheard(NamedTuple):
    """A credential that a tool wants, and that nobody was asked for."""

    agent: str
    request_id: str
    config: AuthConfig


class ToolQuestions:
    """The questions of the tools of one run, those of its children included."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._entered: dict[str, ToolContext] = {}
        """By ADK's id: the calls that ADK has entered again in this run, where it hears no question."""
        self._unheard: dict[str, _Unheard] = {}
        """What such calls ended on, also by ADK's id."""

    # -- waited for in the run ----------------------------------------------------------------------------------------

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

    # -- put in ADK's place -------------------------------------------------------------------------------------------

    def enter_again(self, context: ToolContext) -> None:
        """ADK has entered a call again: it does not hear what its tool asks for."""
        self._entered[context.function_call_id or ""] = context

    def left_to_adk(self, request_id: str, config: AuthConfig, context: ToolContext) -> None:
        """A call ended on the question for a credential, which ADK puts if it hears it."""
        self._live.state.credential_keys[request_id] = config.credential_key
        call_id = context.function_call_id or ""
        if call_id in self._entered:
            self._unheard[call_id] = _Unheard(context.agent_name, request_id, config)

    def see_end_of_call(self) -> None:
        """A call is over. None that was entered again beside one that asks may say that the model need not be called:
        the question goes out in the place of its answer."""
        if self._unheard:
            for context in self._entered.values():
                context.actions.skip_summarization = None

    def unheard(self, context: CallbackContext, request: LlmRequest) -> LlmResponse | None:
        """The call that asks for what the tools of this agent wanted and ADK did not hear; ``None``: nothing."""
        configs: dict[str, AuthConfig] = {}
        for call_id, asked in list(self._unheard.items()):
            if asked.agent == context.agent_name:
                del self._unheard[call_id]
                if self._live.ctx.is_open_request(asked.request_id):
                    configs[call_id] = asked.config
        if not configs:
            return None
        tool = AskedCredential()
        request.tools_dict[tool.name] = tool
        invocation = context._invocation_context  # private: what ADK makes its own question with
        # One question for all that need the same credential, as ADK has it.
        return LlmResponse(content=build_auth_request_event(invocation, configs, role="model").content)

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
