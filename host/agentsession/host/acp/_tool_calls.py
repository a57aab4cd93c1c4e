"""How a tool's call is shown: its kind, where it is at work, and its state.

Not for: the other updates (``_updates.py``). Rules carried: none of the contract.
May import: ``acp.schema``, ``_blocks``, ``protocol``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast, get_args

from acp.schema import ToolCallLocation, ToolKind

from agentsession.host.acp._blocks import absolute
from agentsession.protocol import AgentDescriptor, ToolAnnotations, ToolDescriptor

__all__ = ["Lookup", "Status", "kind_of", "locations_of", "own_tool", "tool_meta"]

Status = Literal["pending", "in_progress", "completed", "failed"]
Lookup = Callable[[str], ToolDescriptor | None]

_KINDS: Final = frozenset(get_args(ToolKind))
_PATHS: Final = ("path", "file_path", "filename", "file", "absolute_path")
_LINES: Final = ("line", "line_number", "start_line")


def own_tool(descriptor: AgentDescriptor, name: str) -> ToolDescriptor | None:
    """The agent's own tool of this name, in it or in a sub-agent."""
    agents = [descriptor]
    while agents:
        agent = agents.pop(0)
        for tool in agent.own_tools:
            if tool.name == name:
                return tool
        agents.extend(agent.sub_agents)
    return None


def tool_meta(name: str, **more: Any) -> dict[str, Any]:
    """The ``_meta`` of a call: ACP has no field for the tool's name, and a client's rules go by it."""
    return {"agentsession": {"name": name, **more}}


def kind_of(descriptor: ToolDescriptor | None) -> ToolKind:
    """By the annotations, which are a claim: for the icon, not for a decision."""
    marks = descriptor.annotations if descriptor is not None else None
    if marks is None:
        return "other"
    if marks.category in _KINDS:
        return cast(ToolKind, marks.category)
    return _by_marks(marks)


def _by_marks(marks: ToolAnnotations) -> ToolKind:
    if marks.read_only:
        return "fetch" if marks.open_world else "read"
    if marks.destructive:
        return "execute" if marks.open_world else "edit"
    return "other"


def locations_of(args: Mapping[str, Any] | None, cwd: str | None) -> list[ToolCallLocation] | None:
    """The file that the arguments name, if they do so in one of the usual words."""
    if not args:
        return None
    line = next((args[name] for name in _LINES if name in args), None)
    is_line = isinstance(line, int) and not isinstance(line, bool) and line >= 0
    found: list[ToolCallLocation] = []
    for name in _PATHS:
        given = args.get(name)
        path = absolute(given, cwd) if isinstance(given, str) and "://" not in given else None
        if path is not None:
            found.append(ToolCallLocation(path=path, line=line if is_line else None))
    return found or None
