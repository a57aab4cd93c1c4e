"""A descriptor as AG-UI's capabilities.

Not for: serving them. Pure. Rules carried: LIFE-01 as far as showing goes. May import: ``protocol``, ``_out_wire``.
"""

from __future__ import annotations

from typing import Any

from agentsession.host.agui._out_wire import KEY, Wire
from agentsession.protocol import AgentDescriptor

__all__ = ["capabilities"]


def capabilities(descriptor: AgentDescriptor) -> Wire:
    """The ``AgentCapabilities`` of an agent. What it does not declare is left out: not known to be there."""
    has = descriptor.supports
    identity: Wire = {"name": descriptor.display_name or descriptor.name, "type": descriptor.executor}
    if descriptor.description is not None:
        identity["description"] = descriptor.description
    if descriptor.metadata is not None and descriptor.metadata.version is not None:
        identity["version"] = descriptor.metadata.version
    found: Wire = {
        "identity": identity,
        "transport": {"streaming": True},
        "tools": _tools(descriptor),
        "state": {"snapshots": True, "deltas": True, **({"persistentState": True} if has("load") else {})},
        "multiAgent": _agents(descriptor),
        "humanInTheLoop": {
            "supported": has("elicitation") or has("host_tool_execution"),
            "approvals": has("host_tool_execution"),
            "interrupts": True,
            "approveWithEdits": has("host_tool_execution"),
        },
        "custom": {KEY: {"capabilities": list(descriptor.capabilities)}},
    }
    if has("reasoning"):
        found["reasoning"] = {"supported": True, "streaming": has("streaming")}
    if has("structured_output"):
        found["output"] = {"structuredOutput": True}
    if has("media_input"):
        found["multimodal"] = {"input": {"image": True, "audio": True, "video": True, "pdf": True, "file": True}}
    limits = descriptor.constraints
    if limits is not None:
        execution: dict[str, Any] = {}
        if limits.max_turns is not None:
            execution["maxIterations"] = min(limits.max_turns, 2**53 - 1)
        if limits.max_time_seconds is not None:
            execution["maxExecutionTime"] = min(int(limits.max_time_seconds * 1000), 2**53 - 1)
        if execution:
            found["execution"] = execution
    return found


def _tools(descriptor: AgentDescriptor) -> Wire:
    items = [
        {
            "name": tool.name,
            "description": tool.description or "",
            **({"parameters": tool.parameters_schema} if tool.parameters_schema is not None else {}),
        }
        for tool in descriptor.own_tools
    ]
    found: Wire = {"supported": True, "parallelCalls": True}
    if descriptor.supports("host_tool_execution"):
        found["clientProvided"] = True
    return {**found, "items": items} if items else found


def _agents(descriptor: AgentDescriptor) -> Wire:
    if not (descriptor.sub_agents or descriptor.supports("sub_agents")):
        return {"supported": False}
    found: Wire = {"supported": True}
    if descriptor.composition is not None and descriptor.composition.pattern == "transfer":
        found["handoffs"] = True
    if descriptor.sub_agents:
        found["subagents"] = [
            {"name": agent.name, **({"description": agent.description} if agent.description is not None else {})}
            for agent in descriptor.sub_agents
        ]
    return found
