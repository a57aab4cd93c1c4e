"""Short ways to write tests of sub-agents: scripted agents that call one another, and what was seen of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import anyio

from agentsession.adapters.scripted import Call, ScriptedExecutor, Step
from agentsession.host import Host, TurnResult, child_events, tool
from agentsession.protocol import AgentExecutor, Event, OpenOptions, ToolResponse

__all__ = ["agent", "calls", "limited", "read_file", "responses", "run", "seen_of_children"]


@tool(read_only=True)
def read_file(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


def agent(name: str, *steps: Step, turns: Sequence[Sequence[Step]] = (), **given: Any) -> ScriptedExecutor:
    """A scripted agent with one turn of these steps, and more."""
    return ScriptedExecutor([list(steps), *turns], name=name, **given)


def limited(name: str, *steps: Any, **given: Any) -> tuple[ScriptedExecutor, list[OpenOptions]]:
    """An agent that tells what its calls cost, and the options that its sessions were opened with."""
    opened: list[OpenOptions] = []

    class Seen(ScriptedExecutor):
        async def open(self, options: Any = None, **others: Any) -> Any:
            opened.append(options)
            return await super().open(options, **others)

    made = Seen([list(steps)], name=name, **given)
    capabilities = [*made.descriptor.capabilities, "cost"]
    made.descriptor = made.descriptor.model_copy(update={"capabilities": capabilities})
    return made, opened


def calls(name: str, request_id: str = "r1") -> Call:
    """A call of a sub-agent."""
    return Call(name, {"task": "do it"}, id=request_id)


async def run(host: Host, executor: AgentExecutor, message: str = "go") -> TurnResult:
    """One turn of a new session."""
    with anyio.fail_after(5):
        async with host.session(executor) as session:
            return await host.run_turn(session, message)


def seen_of_children(events: Iterable[Event]) -> list[Event]:
    """What the sub-agents did, as it was seen from the root's session."""
    return [child for event in events for child in child_events(event)]


def responses(events: Iterable[Event]) -> dict[str, ToolResponse]:
    """The responses by request id."""
    return {event.request_id: event for event in events if isinstance(event, ToolResponse)}
