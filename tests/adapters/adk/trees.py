"""Building trees of agents in tests, and reading who worked where from a record."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from google.adk.events.event import Event as AdkEvent
from google.genai import types
from tests.adapters.adk.make import old_agent

from agentsession.protocol import AgentEnd, AgentStart, Event, Message

__all__ = ["End", "brackets", "by_hand", "ends", "loop", "parallel", "said", "sequential", "write"]


def _old(kind: str, agents: Sequence[Any], **fields: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return old_agent(kind, sub_agents=list(agents), **fields)


def sequential(*agents: Any, name: str = "pipe", **fields: Any) -> Any:
    return _old("SequentialAgent", agents, name=name, **fields)


def parallel(*agents: Any, name: str = "par", **fields: Any) -> Any:
    return _old("ParallelAgent", agents, name=name, **fields)


def loop(*agents: Any, name: str = "round", **fields: Any) -> Any:
    return _old("LoopAgent", agents, name=name, **fields)


def brackets(events: Sequence[Event]) -> list[tuple[str, str | None]]:
    """Who begins and ends, and on which thread: ``("+root", None)``, ``("-root completed", None)``."""
    out: list[tuple[str, str | None]] = []
    for event in events:
        if isinstance(event, AgentStart):
            out.append((f"+{event.agent_id}{' again' if event.resumed else ''}", event.thread_id))
        elif isinstance(event, AgentEnd):
            out.append((f"-{event.agent_id} {event.reason}", event.thread_id))
    return out


End = tuple[str, str | None, str, Any]


def ends(events: Sequence[Event]) -> list[End]:
    """The ends that say more than a reason: who, on which thread, why, and what."""
    return [
        (event.agent_id, event.thread_id, event.reason, event.data)
        for event in events
        if isinstance(event, AgentEnd) and event.data is not None
    ]


def said(events: Sequence[Event]) -> list[tuple[str | None, str | None, str]]:
    """What the agents said: who, on which thread, and what."""
    return [
        (event.agent_id, event.thread_id, event.content[0].text)  # type: ignore[union-attr]
        for event in events
        if isinstance(event, Message) and not event.partial and event.source == "agent"
    ]


def by_hand(author: str, invocation_id: str, *parts: types.Part, role: str = "model", **fields: Any) -> AdkEvent:
    """An event such as an agent of one's own makes."""
    content = types.Content(role=role, parts=list(parts)) if parts else None
    return AdkEvent(author=author, invocation_id=invocation_id, content=content, **fields)


def write(path: str = "") -> str:
    """Write a file."""
    return f"wrote {path}"
