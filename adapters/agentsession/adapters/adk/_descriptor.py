"""The descriptor of any ADK agent tree: what a host may know before it opens a session.

Not for: deciding what can be hosted (the live session does). Rules carried: LIFE-01.
May import: ``_tools_schema``, google.adk.agents, protocol.

Nothing is run, no model is made and no network is used: toolsets appear as one entry marked ``dynamic``.
Agent types are told by the names of their classes, so that ADK's deprecated ones need not be imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from google.adk.tools.base_toolset import BaseToolset

from agentsession.adapters.adk._tools_schema import (
    as_tool,
    describe_tool,
    describe_toolset,
    json_schema_of,
    nodes_of,
    tool_of_node,
)
from agentsession.adapters.adk._values import clean_id
from agentsession.protocol import (
    AgentDescriptor,
    Composition,
    ConfigurationError,
    Metadata,
    ToolAnnotations,
    ToolDescriptor,
    args_digest,
    repair_text,
)

__all__ = ["ADK_CAPABILITIES", "check_agent_name", "describe_agent"]

ADK_CAPABILITIES: Final = (
    "streaming",
    "host_tool_execution",
    "elicitation",
    "abort",
    "usage",
    "reasoning",
    "media_input",
    "structured_output",
    "sub_agents",
)
"""What the adapter can do with any agent tree; the live session passes its own, longer or shorter, list."""

_PATTERNS: Final = {
    "SequentialAgent": "sequential",
    "ParallelAgent": "parallel",
    "LoopAgent": "loop",
    "Workflow": "workflow",
    "RemoteA2aAgent": "remote",
    "LangGraphAgent": "langgraph",
    "ManagedAgent": "managed",
}
_ADVICE: Final = "pass an LlmAgent, another BaseAgent, a Workflow or an App"


def describe_agent(
    agent: Any, *, capabilities: Iterable[str] = ADK_CAPABILITIES, executor: str = "adk"
) -> AgentDescriptor:
    """Describe an agent, a Workflow, or the root agent of an App.

    Args:
        agent: Any ADK agent or node; Any, because ADK has no type for "an agent, a Workflow or an App".
        capabilities: What the executor offers for it; the descriptor's children declare the same.
        executor: The factory key under which hosts find the executor.

    Raises:
        ConfigurationError: it is not an ADK agent (``not-an-agent``), or a name in the tree cannot be used.
    """
    # Only an App is asked for its root: an agent has root_agent too, and means the top of its tree.
    root = agent if _is_node(agent) else getattr(agent, "root_agent", None)
    if not _is_node(root):
        raise ConfigurationError(
            f"{_shown(agent)} is not an ADK agent", expected="ADK agent", fix=_ADVICE, id="not-an-agent"
        )
    return _describe(root, tuple(capabilities), executor, ())


def check_agent_name(name: object, where: str) -> str:
    """Return a usable agent name. Raises ConfigurationError (``agent-name``) for one that the contract cannot take."""
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 128:
        raise ConfigurationError(
            f"the agent's name {name!a} cannot be used",
            where=where,
            expected="an identifier: letters, digits and underscores, not starting with a digit",
            fix="rename the agent",
            id="agent-name",
        )
    if name == "user":
        raise ConfigurationError(
            "an agent cannot be named 'user'",
            where=where,
            expected="any other identifier: ADK marks the user's own events with this name",
            fix="rename the agent",
            id="agent-name",
        )
    return name


def _describe(agent: Any, capabilities: tuple[str, ...], executor: str, path: tuple[int, ...]) -> AgentDescriptor:
    where = f"{type(agent).__name__} {getattr(agent, 'name', '?')!r}"
    name = check_agent_name(getattr(agent, "name", None), where)
    path = (*path, id(agent))
    tools, wrapped = _tools(agent)
    below = list(getattr(agent, "sub_agents", None) or ())
    nodes = nodes_of(agent)
    run_by_nodes = [inner for node in nodes for inner in (node, *nodes_of(node))]
    children = _distinct([*below, *wrapped, *(node for node in run_by_nodes if _is_agent(node))])
    tools += [describe_tool(tool) for tool in map(tool_of_node, run_by_nodes) if tool is not None]
    described = [
        _describe(child, capabilities, executor, path)
        for child in children
        if id(child) not in path  # a tree that contains itself is described once
    ]
    composition = _composition(agent, below, wrapped, nodes)
    inputs, outputs = json_schema_of(_own(agent, "input_schema")), json_schema_of(_own(agent, "output_schema"))
    description = getattr(agent, "description", "") or ""
    body: dict[str, Any] = {
        "type": type(agent).__name__,
        "name": name,
        "description": repair_text(description),
        "model": _model(agent),
        "instruction": _instruction(agent),
        "tools": [tool.to_wire() for tool in tools],
        "composition": composition.to_wire() if composition is not None else None,
        "input": inputs,
        "output": outputs,
        "children": [child.metadata.hash for child in described if child.metadata is not None],
    }
    metadata: dict[str, Any] = {"hash": args_digest(body), "adkType": type(agent).__name__}
    if body["model"]:
        metadata["model"] = body["model"]
    return AgentDescriptor(
        name=name,
        description=repair_text(description) or None,
        executor=executor,
        input_schema=inputs,
        output_schema=outputs,
        capabilities=list(capabilities),
        own_tools=tools,
        sub_agents=described,
        composition=composition,
        metadata=Metadata.model_validate(metadata),
    )


def _tools(agent: Any) -> tuple[list[ToolDescriptor], list[Any]]:
    """The descriptors of an agent's tools, and the agents inside its AgentTools.

    ADK itself puts sub-agents in mode task or single_turn among the tools, as tools of their names.
    """
    described: list[ToolDescriptor] = []
    wrapped: list[Any] = []
    for entry in getattr(agent, "tools", None) or ():
        tool = as_tool(entry)
        if isinstance(tool, BaseToolset):
            described.append(describe_toolset(tool))
            continue
        described.append(describe_tool(tool))
        child = getattr(tool, "agent", None)
        if child is not None and _is_node(child):
            described[-1] = _as_agent_tool(described[-1], _mode(child))
            wrapped.append(child)
    return described, wrapped


def _as_agent_tool(tool: ToolDescriptor, mode: str | None) -> ToolDescriptor:
    claims = tool.annotations.to_wire() if tool.annotations is not None else {}
    claims |= {"category": "agent"} | ({"mode": mode} if mode else {})
    return tool.model_copy(update={"annotations": ToolAnnotations.model_validate(claims)})


def _composition(agent: Any, below: Sequence[Any], wrapped: Sequence[Any], nodes: Sequence[Any]) -> Composition | None:
    pattern = next((_PATTERNS[kind] for kind in _kinds(agent) if kind in _PATTERNS), None)
    fields: dict[str, Any] = {}
    targets = [child.name for child in below if _mode(child) not in ("task", "single_turn")]
    if pattern is None and "LlmAgent" in _kinds(agent):
        if targets:
            pattern = "transfer"
            fields["transfer_targets"] = targets
        elif below or wrapped:
            pattern = "hierarchical"
    elif pattern is None:
        pattern = "custom"
    limit = getattr(agent, "max_iterations", None)
    if pattern == "loop" and isinstance(limit, int) and limit >= 1:
        fields["max_iterations"] = limit
    if nodes:
        fields["nodes"] = [{"name": clean_id(node.name), "kind": type(node).__name__} for node in nodes]
    return Composition(pattern=pattern, **fields) if pattern is not None else None


def _kinds(agent: Any) -> list[str]:
    return [kind.__name__ for kind in type(agent).__mro__]


def _is_node(value: object) -> bool:
    return "BaseNode" in _kinds(value) or "BaseAgent" in _kinds(value)


def _is_agent(node: object) -> bool:
    return "BaseAgent" in _kinds(node) or "Workflow" in _kinds(node)


def _distinct(agents: Iterable[Any]) -> list[Any]:
    return list({id(agent): agent for agent in agents}.values())


def _mode(agent: Any) -> str | None:
    mode = getattr(agent, "mode", None)
    return mode if isinstance(mode, str) else None


def _own(agent: Any, field: str) -> object:
    """A schema that the user gave; what ADK infers for nodes that have none is not part of the contract."""
    return getattr(agent, field, None)


def _model(agent: Any) -> str | None:
    """The model's name, an ancestor's or ADK's default where the agent has none; no model object is made for it."""
    default: object = getattr(agent.__class__, "_default_model", None)
    seen = 0
    while agent is not None and seen < 64:
        model = getattr(agent, "model", None)
        name = model if isinstance(model, str) else getattr(model, "model", None)
        if isinstance(name, str) and name:
            return repair_text(name)
        agent, seen = getattr(agent, "parent_agent", None), seen + 1
    return default if isinstance(default, str) else None


def _instruction(agent: Any) -> Any:
    """What the hash knows of the instruction: its text, or the name of the function that makes it."""
    found: list[str] = []
    for field in ("instruction", "global_instruction", "static_instruction"):
        value = getattr(agent, field, None)
        if isinstance(value, str):
            found.append(repair_text(value))
        elif callable(value):
            found.append(f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}")
        elif value is not None:
            found.append(repair_text(str(value)))
    timeout = getattr(agent, "timeout", None)
    if isinstance(timeout, (int, float)) and math.isfinite(timeout):
        found.append(f"timeout={timeout}")
    return found


def _shown(value: object) -> str:
    if callable(value) and hasattr(value, "__name__"):
        return f"{getattr(value, '__module__', '')}:{value.__name__} (a {type(value).__name__})"
    return f"a value of type {type(value).__name__}"
