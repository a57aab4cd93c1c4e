"""Whether a run may be handed the recent part of a session's history instead of all of it: what the agents tell.

Not for: what the events tell (``_window.py``), handing it out (``_sessions.py``).
Rules carried: none of the contract's. May import: google.adk, ``_setup``, ``_tools_schema``.

Everything that reads ``session.events`` would see the recent part. ADK's own readers were gone through one by one
(docs/decisions/0012-recent-history.md); where one of them reads further back, there is no window. Code of the author's
cannot be gone through, so by default there is none either where such code is given something that leads to the session:
callbacks, plugins, tools with a context, instructions made by functions, toolsets, tools and agents of its own classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

from google.adk.agents.llm_agent import LlmAgent
from google.adk.apps.app import App
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool

from agentsession.adapters.adk._setup import is_plain
from agentsession.adapters.adk._tools_schema import as_tool

__all__ = ["adk_reads_back", "authors_code_may_look", "deciding_agents"]

_CALLBACKS: Final = (
    "before_agent_callback",
    "after_agent_callback",
    "before_model_callback",
    "after_model_callback",
    "on_model_error_callback",
    "before_tool_callback",
    "after_tool_callback",
    "on_tool_error_callback",
    "on_agent_error_callback",
)
_SAFE_TOOLS: Final = (FunctionTool, LongRunningFunctionTool, AgentTool)


def adk_reads_back(app: App) -> bool:
    """Whether ADK itself reads a part of the history that a window would leave out, or changes the older contents.

    Compaction and context caching look for what they may take from the start; a resumable App looks for the states of
    its agents; tasks span turns; a planner edits all contents before a plugin sees them; a static instruction and the
    interactions API place contents by what is before them.
    """
    if app.events_compaction_config or app.context_cache_config:
        return True
    if app.resumability_config is not None and app.resumability_config.is_resumable:
        return True
    return not is_plain(app.root_agent) or any(_agent_reads_back(agent) for agent in _agents(app.root_agent))


def _agent_reads_back(agent: LlmAgent) -> bool:
    model = agent.model
    return bool(
        agent.mode not in (None, "chat")
        or agent.planner
        or agent.static_instruction
        or agent.code_executor
        or getattr(model, "use_interactions_api", False)
    )


def authors_code_may_look(app: App) -> bool:
    """Whether code of the author's is given something through which it can read ``session.events``."""
    return bool(app.plugins) or any(_agent_may_look(agent) for agent in _agents(app.root_agent))


def _agent_may_look(agent: LlmAgent) -> bool:
    if type(agent) is not LlmAgent:
        return True
    if any(getattr(agent, name, None) for name in _CALLBACKS):
        return True
    if callable(agent.instruction) or callable(agent.global_instruction):
        return True
    return any(_tool_may_look(entry) for entry in agent.tools)


def _tool_may_look(entry: Any) -> bool:
    tool = as_tool(entry)
    if type(tool) not in _SAFE_TOOLS:
        return True
    if not isinstance(tool, FunctionTool):
        return False  # the child of an AgentTool has a session of its own
    # Whether to ask may be decided by a function, which gets the context too.
    return callable(getattr(tool, "_require_confirmation", True)) or _takes_context(tool)


def _takes_context(tool: FunctionTool) -> bool:
    try:
        names = inspect.signature(tool.func).parameters
    except (TypeError, ValueError):
        return True  # it cannot be told
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in names.values()):
        return True
    return bool(set(names) & {*tool._ignore_params, "tool_context"})


def deciding_agents(root: Any) -> frozenset[str] | None:
    """The agents whose last reply says who goes on with the session; ``None``: nobody but the root ever does.

    ADK looks for it from the end of the history, and passes over agents that could not hand over to others again.
    """
    if not root.sub_agents:
        return None
    return frozenset(agent.name for agent in _agents(root) if agent is root or _hands_over(agent, root))


def _hands_over(agent: Any, root: Any) -> bool:
    while agent is not None:
        if getattr(agent, "disallow_transfer_to_parent", True):
            return False
        agent = agent.parent_agent
    return True


def _agents(root: Any) -> Iterator[Any]:
    yield root
    for child in getattr(root, "sub_agents", None) or ():
        yield from _agents(child)
