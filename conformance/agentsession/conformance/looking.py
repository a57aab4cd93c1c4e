"""Short ways to look at a list of events, as pure functions.

Not for: judging what they show (``engine.py``, ``scenarios``). Rules carried: none.
May import: ``agentsession.protocol``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

from agentsession.protocol import Event, Message, Text, ToolRequest

__all__ = ["of", "recited", "requests", "texts"]

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
