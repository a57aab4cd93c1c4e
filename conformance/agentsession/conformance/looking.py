"""Short ways to look at a list of events, as pure functions.

Not for: judging what they show (``engine.py``, ``scenarios``). Rules carried: none.
May import: ``agentsession.protocol``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from agentsession.protocol import ElicitationRequest, Event, Message, PendingRequest, Text, ToolRequest

__all__ = ["of", "ran_early", "recited", "requests", "texts"]

E = TypeVar("E", bound=Event)


def of(events: Iterable[Event], kind: type[E]) -> list[E]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def requests(events: Iterable[Event], *names: str) -> list[ToolRequest]:
    """The whole tool requests, of these tools or of all."""
    return [event for event in of(events, ToolRequest) if not event.partial and (not names or event.name in names)]


def texts(events: Iterable[Event], thread_id: str | None = None) -> list[str]:
    """What the agents on a thread said, one text for each whole message; the main thread unless another is named."""
    return [
        "".join(part.text for part in event.content if isinstance(part, Text))
        for event in of(events, Message)
        if not event.partial and event.role != "user" and event.thread_id == thread_id
    ]


def recited(events: Iterable[Event], thread_id: str | None = None) -> list[dict[str, Any]] | None:
    """What the model said that it was told (the step ``Recite``), the last time; ``None``: it said no such thing."""
    for text in reversed(texts(events, thread_id)):
        try:
            told = json.loads(text)
        except ValueError:
            continue
        if isinstance(told, list):
            return told
    return None


def ran_early(
    waiting: Sequence[PendingRequest], asked: Iterable[ToolRequest], ran: Iterable[str]
) -> tuple[str, str] | None:
    """The rule that is broken, and how, where a tool has run whose call waits for a grant or for a person's yes.

    ``asked`` are all calls so far, ``ran`` the names of the tools whose bodies have begun.
    """
    names = {request.request_id: request.name for request in asked}
    waits: Counter[tuple[str, str]] = Counter()
    for request in waiting:
        if isinstance(request, ToolRequest):
            waits["TOOL-05", request.name] += 1
        elif isinstance(request, ElicitationRequest) and request.tool_request_id in names:
            waits["HITL-01", names[request.tool_request_id]] += 1
    began, called = Counter(ran), Counter(names.values())
    for (rule, name), count in waits.items():
        if began[name] > called[name] - count:
            return rule, f"{name} ran {began[name]} times, and {count} of its {called[name]} calls wait"
    return None
