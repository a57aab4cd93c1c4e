"""Show a descriptor: what an agent is, before anything runs.

Not for: making one (adapters do). May import: ``agentsession.protocol`` and the modules beside it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from agentsession.host.cli._agents import descriptor_of, load_executor
from agentsession.host.cli._lines import Line, line
from agentsession.host.cli._out import Out
from agentsession.host.cli._shapes import as_list, as_object
from agentsession.host.cli._text import cut, escape, wrap
from agentsession.protocol import AgentDescriptor, ToolDescriptor

__all__ = ["descriptor_lines", "inspect"]


def inspect(out: Out, target: str, *, as_json: bool) -> None:
    """Print the descriptor of the agent."""
    descriptor = asyncio.run(descriptor_of(load_executor(target, "inspect")))
    if as_json:
        out.text(json.dumps(descriptor.to_wire(), indent=2, ensure_ascii=False) + "\n")
    else:
        out.lines(descriptor_lines(descriptor, out.width))


def descriptor_lines(descriptor: AgentDescriptor, width: int, indent: str = "") -> list[Line]:
    """A descriptor for a person; sub-agents indented below."""
    room = width - len(indent)
    out = [line(indent, (escape(descriptor.name), "strong"), f"  executor {escape(descriptor.executor)}")]
    if descriptor.description:
        out += [line(indent, "  ", row) for row in wrap(escape(descriptor.description).replace("\n", " "), room - 2)]
    out += _list(indent, room, "can", descriptor.capabilities)
    out += _list(indent, room, "needs", descriptor.required_tools)
    if descriptor.composition is not None:
        targets = descriptor.composition.transfer_targets or ()
        out += _list(indent, room, "works", [descriptor.composition.pattern, *(f"to {name}" for name in targets)])
    if descriptor.constraints is not None:
        limits = descriptor.constraints.to_wire()
        out += _list(indent, room, "limits", [f"{name} {value}" for name, value in limits.items()])
    for tool in descriptor.own_tools:
        out += [line(indent, one.plain) for one in _tool_lines(tool, room)]
    for child in descriptor.sub_agents:
        out += descriptor_lines(child, width, indent + "  ")
    return out


def _list(indent: str, room: int, label: str, items: Iterable[str]) -> list[Line]:
    text = escape(", ".join(items))
    if not text:
        return []
    first, *rest = wrap(text, room - 10)
    return [line(indent, (f"  {label:<8}", "dim"), first), *(line(indent, " " * 10, row) for row in rest)]


def _tool_lines(tool: ToolDescriptor, room: int) -> list[Line]:
    schema = tool.parameters_schema or {}
    names = list(as_object(schema.get("properties")) or {})
    required = as_list(schema.get("required"))
    shown = ", ".join(name if name in required else f"{name}?" for name in names)
    marks = tool.annotations.to_wire() if tool.annotations is not None else {}
    notes = [name for name, value in marks.items() if value is True]
    text = f"  tool    {tool.name}({shown}){'  ' + ', '.join(notes) if notes else ''}"
    out = [line(cut(escape(text), room))]
    if tool.description:
        first = escape(tool.description.strip().split("\n", 1)[0])
        out.append(line(" " * 10, (cut(first, room - 10), "dim")))
    return out
