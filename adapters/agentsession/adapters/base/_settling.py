"""Closings: what ends with a stream, in the one legal order.

Not for: deciding that a stream ends. Rules carried: LIFE-14, LIFE-16, TOOL-01, HITL-06, the closing order of contract
§5: waiting requests, messages, tools in flight, agents (children first), stream_end.
May import: ``agentsession.protocol``.

Each function yields events for the session to record; it never raises and never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any

from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    ElicitationResponse,
    Event,
    Message,
    OpenAgent,
    RequestState,
    SessionMachine,
    Text,
    Thought,
    ToolResponse,
    merge_parts,
)

__all__ = ["close_agents", "close_messages", "reopen_agents", "settle_requests"]


def settle_requests(
    requests: Iterable[RequestState],
    *,
    waiting: bool = True,
    started: bool = True,
    has_begun: Callable[[RequestState], bool] = lambda _: True,
) -> Iterator[Event]:
    """The responses of requests that nobody will answer: cancelled where it waited, unknown where it had started.

    Questions come first, so that a tool's confirmation is settled before the tool. ``has_begun``: whether a tool that
    was allowed may have started.
    """
    for request in sorted(requests, key=lambda item: item.kind != "elicitation"):
        waits = request.status == "waiting"
        if (waits and not waiting) or (not waits and not started):
            continue
        base: dict[str, Any] = {"request_id": request.id, "thread_id": request.thread_id, "agent_id": request.agent_id}
        if request.kind == "elicitation":
            yield ElicitationResponse(**base, action="cancel", source="host")
            continue
        status = request.status_if_left
        if status == "unknown" and not request.started and not has_begun(request):
            status = "cancelled"
        yield ToolResponse(**base, name=request.name, status=status, is_error=True, source="host")


def close_messages(
    machine: SessionMachine, log: Sequence[Event], ids: Iterable[str], *, interrupted: bool
) -> Iterator[Event]:
    """The closing event of each of these open messages, with the whole of its deltas."""
    for message_id in ids:
        talk = machine.open_messages[message_id]
        said = sum(len(piece) for pieces in talk.texts.values() for piece in pieces)
        found: list[Message] = []
        for event in reversed(log):
            if isinstance(event, Message) and event.message_id == message_id:
                found.append(event)
                if event.index == 0 and _length(found) == said:
                    break
            elif event.stream_id != machine.stream_id:
                break
        yield Message(
            message_id=message_id,
            role=talk.role,
            content=merge_parts([part for event in reversed(found) for part in event.content]),
            interrupted=interrupted,
            agent_id=talk.agent_id,
            thread_id=talk.thread_id,
            source=found[-1].source if found else "agent",
        )


def _length(messages: Sequence[Message]) -> int:
    return sum(len(part.text) for item in messages for part in item.content if isinstance(part, (Text, Thought)))


def close_agents(machine: SessionMachine, reason: str, threads: Container[str | None] | None = None) -> Iterator[Event]:
    """agent_end for every open agent (of these threads), children's threads before their parents'."""
    chosen = [thread for thread in machine.agents if threads is None or thread in threads]
    for thread in sorted(chosen, key=lambda item: _depth(machine, item), reverse=True):
        for agent in reversed(machine.agents.get(thread, ())[:]):
            yield AgentEnd(agent_id=agent, thread_id=thread, reason=reason)


def reopen_agents(paused: Iterable[OpenAgent]) -> Iterator[Event]:
    """agent_start for every agent that a pause closed, parents before children."""
    for agent in list(paused):
        yield AgentStart(
            agent_id=agent.agent_id,
            thread_id=agent.thread_id,
            parent_thread_id=agent.parent_thread_id,
            resumed=True,
        )


def _depth(machine: SessionMachine, thread: str | None) -> int:
    depth = 0
    while thread is not None and depth < 1000:
        depth += 1
        thread = machine.parents.get(thread)
    return depth
