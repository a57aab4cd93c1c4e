"""The host's tools, and the agent's questions, as ADK sees them: proxies that ask the host and wait.

Not for: running anything. Rules carried: TOOL-05 (the executor never runs a tool of the host), TOOL-11.
May import: ``agentsession.protocol``, google.adk, ``_live`` at run time.

Two ways to wait. *Inline*: the proxy's coroutine waits while ADK's run stays open: one pause costs next to nothing.
*Parked*: the proxy is long-running and returns nothing, which ends ADK's run; the answer starts it again, also in
another process.
"""

from __future__ import annotations

from typing import Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from agentsession.adapters.adk._elicit import CREDENTIAL, INLINE_INPUT
from agentsession.protocol import ToolDescriptor

__all__ = ["AskedCredential", "HostTool", "InlineInput"]

_ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


class HostTool(BaseTool):
    """One tool that the host declares and runs."""

    def __init__(self, descriptor: ToolDescriptor, *, parked: bool) -> None:
        super().__init__(name=descriptor.name, description=descriptor.description or "", is_long_running=parked)
        self.descriptor = descriptor

    def _get_declaration(self) -> types.FunctionDeclaration:
        # Private, and the only way: BaseTool.process_llm_request and append_tools ask it for the declaration.
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self.descriptor.parameters_schema or _ANY_OBJECT,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """The host's result, when it has come; nothing when parked."""
        from agentsession.adapters.adk._live import current_run

        if self.is_long_running:
            return None
        live = current_run()
        if live is None:
            return {"error": "blocked: this tool runs only in a session of the host"}
        return await live.tools.host_result(self, args, tool_context)


class AskedCredential(BaseTool):
    """The question for a credential, where the adapter puts it in ADK's place: a call that ADK's run ends on."""

    def __init__(self) -> None:
        super().__init__(name=CREDENTIAL, description="Asks for a credential.", is_long_running=True)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Nothing: the answer is a message of its own, as to a question of ADK's."""
        return None


class InlineInput(BaseTool):
    """The agent's question to a person, waited for inside ADK's run: a call like any other, which pauses nothing."""

    def __init__(self) -> None:
        super().__init__(name=INLINE_INPUT, description="Asks the user.")

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Nobody was asked: the gate gives the answer before this is reached."""
        return {"error": "blocked: this question is asked only in a session of the host"}
