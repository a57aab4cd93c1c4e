"""Before a session opens: make an App of what was given, and refuse what cannot be controlled.

Not for: describing agents (``_descriptor.py``). Rules carried: TOOL-05, HITL-01 (fail closed). May import: google.adk.

What ADK runs without asking anybody, a gate cannot hold: code that the model wrote, the tools of a child that was given
no plugins, tools that the model's provider runs, agents elsewhere. Such an agent is refused loudly here, not silently
later (docs/adk-limits.md says what to do instead).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.adk.apps.app import App
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset

from agentsession.adapters.adk._session_state import STEERING_NAMES, steers_adk
from agentsession.adapters.adk._tools_schema import as_tool, nodes_of, tool_of_node
from agentsession.protocol import AgentDescriptor, ConfigurationError, ToolDescriptor

__all__ = [
    "app_of",
    "check_agent",
    "check_host_tools",
    "check_same_tree",
    "delegated_names",
    "is_plain",
    "is_resumable",
]

_ELSEWHERE: Final = frozenset({"RemoteA2aAgent", "LangGraphAgent", "ManagedAgent"})
_PIPELINES: Final = frozenset({"LoopAgent", "SequentialAgent"})
_OPT_IN: Final = "pass allows_uncontrolled=True to say that this is meant"
_NEVER_WAITS: Final = frozenset({"FunctionNode", "JoinNode"})
"""Nodes whose work is the author's own code; a person is asked before it or after it."""
_AT_THE_PROVIDER: Final = frozenset(
    {
        "ComputerUseTool",
        "EnterpriseWebSearchTool",
        "GoogleMapsGroundingTool",
        "GoogleSearchTool",
        "UrlContextTool",
        "VertexAiRagRetrieval",
        "VertexAiSearchTool",
    }
)


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
            got=(str(error).splitlines() or [type(error).__name__])[-1].strip(),
            fix="rename the agent, or pass an App with a name of letters, digits, _ and -",
            id="agent-name",
        ) from error


def check_agent(agent: Any, *, allows_uncontrolled: bool, parked: bool, allows_node_timeouts: bool = False) -> None:
    """Raise :class:`ConfigurationError` (``adk-refused``) for an agent tree that the gate cannot control."""
    if parked and not is_plain(agent):
        raise _refused(
            f"the host's calls cannot be parked: {getattr(agent, 'name', '?')} is or holds a pipeline",
            "leave parked at False; ADK does not find its way back into the middle of a pipeline",
        )
    for member in _tree(agent, ()):
        name = getattr(member, "name", "?")
        if getattr(member, "code_executor", None) is not None:
            raise _refused(
                f"agent {name} has a code_executor, which runs the model's code without asking",
                "remove it, and offer a tool of the host that runs code",
            )
        kinds = {kind.__name__ for kind in type(member).__mro__}
        if getattr(member, "timeout", None) is not None and not kinds & _NEVER_WAITS and not allows_node_timeouts:
            raise _refused(
                f"{name} has a timeout, which goes on while a person thinks about a call of it",
                "give the turn a deadline of the host's, or pass allows_node_timeouts=True to say that this is meant",
            )
        if kinds & _ELSEWHERE and not allows_uncontrolled:
            raise _refused(f"agent {name} runs elsewhere, where its tools cannot be granted or denied", _OPT_IN)
        for tool in _tools(member):
            _check_tool(tool, name, allows_uncontrolled)


def _check_tool(tool: BaseTool, agent: str, allows_uncontrolled: bool) -> None:
    kinds = {kind.__name__ for kind in type(tool).__mro__}
    if isinstance(tool, AgentTool) and not tool.include_plugins:
        raise _refused(
            f"agent {agent} has AgentTool({tool.name!r}, include_plugins=False), whose tools run unseen",
            "leave include_plugins at True",
        )
    if tool.name in STEERING_NAMES and not steers_adk(tool):
        raise _refused(
            f"agent {agent} has a tool named {tool.name!r}, like one of ADK's that nobody is asked about",
            "rename the tool",
        )
    if kinds & _AT_THE_PROVIDER and not allows_uncontrolled:
        raise _refused(
            f"agent {agent} has {type(tool).__name__}, which the model's provider runs without asking", _OPT_IN
        )


def delegated_names(agent: Any) -> frozenset[str]:
    """The names of the agents in a tree to which tasks are delegated: calls of these names are delegations."""
    return frozenset(
        child.name
        for member in _tree(agent, ())
        for child in getattr(member, "sub_agents", None) or ()
        if getattr(child, "mode", None) == "task"
    )


def is_plain(agent: Any) -> bool:
    """Whether a tree is an LlmAgent with LlmAgents below it that it can hand over to: no pipeline, no graph."""
    below = getattr(agent, "sub_agents", None) or ()
    if "LlmAgent" not in {kind.__name__ for kind in type(agent).__mro__}:
        return False
    return all(is_plain(child) for child in below)


def is_resumable(app: App) -> bool:
    """Whether ADK finds its way back into a turn of this app after its run has ended.

    Of plain agents always; of pipelines where the App says so, for then ADK keeps what step it was at.
    """
    config = app.resumability_config
    keeps_its_place = config is not None and config.is_resumable
    return is_plain(app.root_agent) or (keeps_its_place and all(map(_has_one_place, _tree(app.root_agent, ()))))


def _has_one_place(agent: Any) -> bool:
    """Whether ADK comes back to the one step of it that works.

    Of branches that wait it enters one again and loses the others; of a pipeline that an agent handed over to, it goes
    on with the step alone.
    """
    kind = type(agent)
    return is_plain(agent) or (kind.__module__.startswith("google.adk.") and kind.__name__ in _PIPELINES)


def check_same_tree(recorded: AgentDescriptor, present: AgentDescriptor) -> None:
    """Raise :class:`ConfigurationError` (``tree-changed``) where a turn that waits would go on in other agents.

    ADK finds its place by the names of the agents: in a tree of another shape it would skip agents without a word.
    """
    if recorded.supports("resume") and not present.supports("resume"):
        raise ConfigurationError(
            "a turn of this session waits, and the agent given now cannot be resumed",
            where=f"agent {present.name}",
            expected="a lasting session service, and an App with is_resumable=True for a pipeline",
            fix="load it with the agent and services that it was opened with",
            id="tree-changed",
        )
    if _is_pipeline(recorded) and _shape(recorded) != _shape(present):
        raise ConfigurationError(
            "a turn of this session waits in a pipeline of another shape",
            where=f"agent {present.name}",
            got=_shape(present),
            expected=_shape(recorded),
            fix="load it with the agents that it was opened with, and change them when nothing waits",
            id="tree-changed",
        )


def _is_pipeline(agent: AgentDescriptor) -> bool:
    pattern = agent.composition.pattern if agent.composition is not None else None
    return pattern in ("sequential", "parallel", "loop") or any(map(_is_pipeline, agent.sub_agents))


def _shape(agent: AgentDescriptor) -> str:
    pattern = agent.composition.pattern if agent.composition is not None else None
    below = ", ".join(map(_shape, agent.sub_agents))
    return f"{agent.name}{f' {pattern}' if pattern else ''}{f'({below})' if below else ''}"


def _refused(what: str, fix: str) -> ConfigurationError:
    return ConfigurationError(
        what, expected="agents whose every tool call can be granted or denied", fix=fix, id="adk-refused"
    )


def _tools(agent: Any) -> Iterator[BaseTool]:
    for entry in getattr(agent, "tools", None) or ():
        tool = as_tool(entry)
        if not isinstance(tool, BaseToolset):
            yield tool
    if (node_tool := tool_of_node(agent)) is not None:
        yield node_tool


def _tree(agent: Any, seen: tuple[int, ...]) -> Iterator[Any]:
    if agent is None or id(agent) in seen:
        return
    seen = (*seen, id(agent))
    yield agent
    for child in getattr(agent, "sub_agents", None) or ():
        yield from _tree(child, seen)
    for node in nodes_of(agent):
        yield from _tree(node, seen)
    for tool in _tools(agent):
        # An AgentTool has an agent, a NodeTool a node.
        yield from _tree(getattr(tool, "agent", None) or getattr(tool, "node", None), seen)


def check_host_tools(tools: Sequence[ToolDescriptor], descriptor: AgentDescriptor) -> None:
    """Raise :class:`ConfigurationError` for host tools that ADK could not tell from the agents', or from each other.

    With two tools of one name ADK silently takes the agent's.
    """
    own = STEERING_NAMES | _own_names(descriptor)
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


def _own_names(descriptor: AgentDescriptor) -> set[str]:
    """The names of all tools in a tree of agents: the host's tools are offered to every one of them."""
    names = {tool.name for tool in descriptor.own_tools or ()}
    for child in descriptor.sub_agents or ():
        names |= _own_names(child)
    return names
