"""Before a session opens: make an App of what was given, and refuse what cannot be controlled.

Not for: describing agents (``_descriptor.py``). Rules carried: TOOL-05, HITL-01 (fail closed). May import: google.adk.

What ADK runs without asking anybody, a gate cannot hold: code that the model wrote, and the tools of a child that was
given no plugins. Such an agent is refused loudly here, not silently later (docs/adk-limits.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.adk.agents.base_agent import BaseAgent
from google.adk.apps.app import App
from google.adk.tools.agent_tool import AgentTool

from agentsession.protocol import AgentDescriptor, ConfigurationError, ToolDescriptor

__all__ = ["app_of", "check_agent", "check_host_tools"]


def app_of(agent: Any) -> App:  # Any: an agent, a node or an App, for which ADK has no common type
    """The user's App, or a new one around an agent or node."""
    if isinstance(agent, App):
        return agent
    name = getattr(agent, "name", None)
    if not isinstance(name, str) or not hasattr(agent, "model_copy"):
        raise ConfigurationError(
            f"a {type(agent).__name__} is not an ADK agent",
            expected="an agent, a Workflow or an App of google-adk",
            fix="pass the agent object itself",
            id="not-an-agent",
        )
    try:
        return App(name=name, root_agent=agent)
    except ValueError as error:
        raise ConfigurationError(
            f"ADK cannot make an App of agent {name!r}",
            got=str(error).splitlines()[-1].strip(),
            fix="rename the agent, or pass an App with a name of letters, digits, _ and -",
            id="agent-name",
        ) from error


def check_agent(agent: Any) -> None:
    """Raise :class:`ConfigurationError` (``adk-refused``) for an agent tree that the gate cannot control."""
    for member in _tree(agent, ()):
        name = getattr(member, "name", "?")
        if getattr(member, "code_executor", None) is not None:
            raise _refused(
                f"agent {name} has a code_executor, which runs the model's code without asking",
                "remove it, and offer a tool of the host that runs code",
            )
        for tool in getattr(member, "tools", None) or ():
            if isinstance(tool, AgentTool) and not tool.include_plugins:
                raise _refused(
                    f"agent {name} has AgentTool({tool.name!r}, include_plugins=False), whose tools run unseen",
                    "leave include_plugins at True",
                )


def _refused(what: str, fix: str) -> ConfigurationError:
    return ConfigurationError(
        what, expected="agents whose every tool call can be granted or denied", fix=fix, id="adk-refused"
    )


def _tree(agent: Any, seen: tuple[int, ...]) -> Iterator[Any]:
    if agent is None or id(agent) in seen:
        return
    seen = (*seen, id(agent))
    yield agent
    for child in getattr(agent, "sub_agents", None) or ():
        yield from _tree(child, seen)
    for tool in getattr(agent, "tools", None) or ():
        if isinstance(tool, AgentTool):
            yield from _tree(tool.agent, seen)


def check_host_tools(tools: Sequence[ToolDescriptor], descriptor: AgentDescriptor) -> None:
    """Raise :class:`ConfigurationError` for host tools that ADK could not tell from the agent's own, or from each other.

    With two tools of one name ADK silently takes the agent's.
    """
    own = {tool.name for tool in descriptor.own_tools}
    seen: set[str] = set()
    for tool in tools:
        if tool.name in own or tool.name in seen:
            whose = "agent has a tool" if tool.name in own else "host offers two tools"
            raise ConfigurationError(
                f"the {whose} named {tool.name!r}",
                expected="one tool for each name",
                fix="rename the host's tool",
                id="tool-name",
            )
        seen.add(tool.name)


def is_agent(value: object) -> bool:
    """Whether ``value`` is an ADK agent or App, for commands that look an object up by name."""
    return isinstance(value, (BaseAgent, App))
