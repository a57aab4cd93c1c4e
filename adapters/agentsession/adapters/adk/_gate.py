"""The plugins through which a session controls an ADK run: the gate before every model and tool call, and the tail.

Not for: the decisions (``_live.py``). Rules carried: TOOL-05, HITL-01, LIFE-04, CTL-06.
May import: google.adk, ``_live``.

Plugins are shared by all sessions of an executor, so they hold no state: everything is found through a ContextVar that
is set in the task that drives the run and that asyncio hands to every task below it. Where it is missing, nothing runs.
The gate is first in the list and the tail last: ADK stops at the first plugin that returns something.
"""

from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event as AdkEvent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from agentsession.adapters.adk._chunks import GATE, TAIL
from agentsession.adapters.adk._credentials import put_back
from agentsession.adapters.adk._live import current_run
from agentsession.adapters.adk._routed_model import is_break
from agentsession.adapters.adk._stand_in import StandIn

__all__ = ["GatePlugin", "TailPlugin"]

_BLOCKED = {"error": "blocked: no session allows this call"}


class GatePlugin(BasePlugin):
    """First plugin: brackets, tools and steers before each model call, and the grant before each tool call."""

    def __init__(self, *, is_last: bool = False) -> None:
        """``is_last``: no plugin of the user's follows, so the gate is the tail too; each plugin costs every event."""
        super().__init__(name=GATE)
        self._is_last = is_last

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> types.Content | None:
        live = current_run()
        if live is None or live.hooks is None:
            return None
        return await live.hooks.told_child(invocation_context, user_message)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> types.Content | None:
        live = current_run()
        if live is None:
            return None
        put_back(invocation_context.session, live.credentials)
        live.state.vault.put_back(invocation_context.session.state)
        return await live.hooks.before_run(invocation_context) if live.hooks is not None else None

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        live = current_run()
        if live is not None and live.hooks is not None:
            await live.hooks.after_run(invocation_context)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        live = current_run()
        if live is not None and live.hooks is not None:
            await live.hooks.on_run_error(invocation_context, error)

    async def before_agent_callback(
        self, *, agent: BaseAgent, callback_context: CallbackContext
    ) -> types.Content | None:
        live = current_run()
        if live is None:
            return None
        await live.brackets.begin(agent, callback_context)
        instead = await live.hooks.before_agent(callback_context) if live.hooks is not None else None
        if instead is not None:  # ADK tells of no end of an agent that did not work
            await live.brackets.end(agent, callback_context)
        return instead

    async def after_agent_callback(
        self, *, agent: BaseAgent, callback_context: CallbackContext
    ) -> types.Content | None:
        live = current_run()
        if live is None:
            return None
        StandIn.take(callback_context)  # of a call that a callback answered in its place
        more = await live.hooks.after_agent(callback_context) if live.hooks is not None else None
        await live.brackets.end(agent, callback_context)
        return more

    async def on_agent_error_callback(
        self, *, agent: BaseAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        live = current_run()
        if live is not None:
            StandIn.take(callback_context)
            live.saw_exception(error)
            live.brackets.failed(callback_context)
            if live.hooks is not None:
                await live.hooks.on_agent_error(callback_context, error)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        live = current_run()
        return await live.models.before(callback_context, llm_request) if live is not None else None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        if llm_response.partial and not _holds_calls(llm_response):
            if llm_response.finish_reason is not None and (live := current_run()) is not None:
                live.models.keep_finish(callback_context, llm_response)
            return None  # a long answer is thousands of these
        live = current_run()
        if live is not None:
            if live.hooks is not None and not is_break(llm_response):
                await live.hooks.after_model(callback_context, llm_response)
            live.models.after(callback_context, llm_response)
        return None

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        live = current_run()
        if live is None:
            return dict(_BLOCKED)
        StandIn.take(tool_context)
        return await live.tools.before(tool, tool_args, tool_context)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: dict[str, Any]
    ) -> dict[str, Any] | None:
        live = current_run()
        if live is None:
            return None
        return await live.tools.after(tool, tool_args, tool_context, result)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> dict[str, Any] | None:
        live = current_run()
        if live is not None:
            live.tools.failed(tool, error)
            if live.hooked_calls is not None and not isinstance(error, asyncio.CancelledError):
                instead = await live.tools.hooked_error(tool, tool_args, tool_context, error)
                if instead is not None:
                    return instead
        return _error_result(tool, tool_context, error) if self._is_last else None

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: AdkEvent) -> AdkEvent | None:
        if event.partial:
            return None  # never stored, and the children of an AgentTool have none
        live = current_run()
        if live is not None:
            if live.hooks is not None:
                await live.hooks.on_event(invocation_context, event)
            await live.before_append(invocation_context, event)
        return None


class TailPlugin(BasePlugin):
    """Last plugin: a tool that raised becomes a result the model can read, unless its agent handles errors itself.

    ADK would end the run, and lose the results of the siblings that had finished.
    """

    def __init__(self) -> None:
        super().__init__(name=TAIL)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> dict[str, Any] | None:
        return _error_result(tool, tool_context, error)


def _holds_calls(response: LlmResponse) -> bool:
    parts = response.content.parts if response.content is not None else None
    return any(part.function_call is not None for part in parts or ())


def _error_result(tool: BaseTool, tool_context: ToolContext, error: BaseException) -> dict[str, Any] | None:
    """The result that stands for an exception of a tool; ``None`` where ADK or the agent answers better."""
    live = current_run()
    # ADK also tells of cancellation here, although it is no Exception; a cancelled call is not recovered.
    if live is None or isinstance(error, asyncio.CancelledError) or type(tool) is BaseTool:
        return None  # the last: a name that no tool has, for which ADK's own answer lists those there are
    if live.tools.unannounced.known(tool_context) is not None:
        return None  # a node of a graph: it fails, and its graph may try it again
    agent = tool_context._invocation_context.agent  # private, and the only way to the agent that called
    if getattr(agent, "canonical_on_tool_error_callbacks", None):
        return None
    return live.tools.error(tool, error)
