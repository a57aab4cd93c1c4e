"""Which of the user's callbacks and plugins stand around a tool call, after the gate.

Not for: calling them (ADK does). Rules carried: TOOL-05, SEC-01. May import: google.adk.
"""

from __future__ import annotations

from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.tool_context import ToolContext

__all__ = ["may_change_args", "may_change_result"]


def may_change_args(context: ToolContext) -> bool:
    """Whether a callback may have given the tool other arguments than the gate let pass, such as an account's id."""
    return _has(context, "before_tool_callback")


def may_change_result(context: ToolContext) -> bool:
    """Whether a callback may put another result in the place of the tool's, such as one without secrets.

    What the tool returned is then not recorded: the record says what the model reads, when ADK tells it.
    """
    return _has(context, "after_tool_callback")


def _has(context: ToolContext, name: str) -> bool:
    invocation = context._invocation_context  # private, and the only way to the plugins and the agent that called
    if getattr(invocation.agent, f"canonical_{name}s", None):
        return True
    others = invocation.plugin_manager.plugins[1:]
    callbacks = (getattr(getattr(plugin, name), "__func__", None) for plugin in others)  # one may be an attribute
    return any(callback is not getattr(BasePlugin, name) for callback in callbacks)
