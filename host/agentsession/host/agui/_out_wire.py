"""AG-UI events as they go on the wire: one function an event, and how one becomes a frame of the stream.

Not for: deciding what to send (the other ``_out`` modules). Rules carried: none of the contract's.
May import: ``ag_ui`` (the protocol's version), pydantic_core.

Events are plain objects that validate as the models of ``ag_ui.core``, which the tests hold each one to. To build a
model of a delta and write it took 6 µs, the object 0.5 µs. A field without a value is absent, never null.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ag_ui.core.events import EventType
from ag_ui.core.version import PROTOCOL_VERSION
from pydantic_core import to_json

from agentsession.protocol import Event

__all__ = [
    "KEY",
    "PREFIX",
    "Wire",
    "activity",
    "custom",
    "encode",
    "messages_snapshot_event",
    "milliseconds",
    "own",
    "raw",
    "run_error",
    "run_finished",
    "run_started",
    "stamped",
]

Wire = dict[str, Any]
"""One AG-UI event, or one of its messages, as a JSON object."""

KEY: Final = "agentsession"
"""The key of what is ours in a ``metadata``."""

PREFIX: Final = "agentsession:"
"""Before the names of our custom events and activities: a name without a colon is anybody's."""

_TYPES: Final = frozenset(EventType.__members__)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def encode(event: Wire) -> bytes:
    """The event as one frame of a ``text/event-stream``, without an ``id`` line. Lines end with LF alone.

    A client of AG-UI takes a frame that ends with CR and LF for the middle of one.
    """
    return b"data: " + to_json(event) + b"\n\n"


@functools.lru_cache(maxsize=64)
def milliseconds(timestamp: str) -> int | None:
    """The time of one of our events in AG-UI's unit; ``None`` where it cannot be read."""
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


_MILLISECOND: Final = (datetime(1970, 1, 1, 0, 0, 1) - datetime(1970, 1, 1)) / 1000


def stamped(events: list[Wire], event: Event) -> list[Wire]:
    """The events, each with the time of the one that they come from."""
    at = milliseconds(event.timestamp)
    if at is not None:
        for item in events:
            item["timestamp"] = at
    return events


def own(**values: Any) -> dict[str, Any]:
    """The ``metadata`` of an event, to be given as keywords: nothing where no value is given."""
    given = {name: value for name, value in values.items() if value is not None}
    return {"metadata": {KEY: given}} if given else {}


def run_started(thread_id: str, run_id: str, parent_run_id: str | None, **about: Any) -> Wire:
    """``RUN_STARTED``, always with the protocol's version."""
    event: Wire = {
        "type": "RUN_STARTED",
        "threadId": thread_id,
        "runId": run_id,
        "protocolVersion": PROTOCOL_VERSION,
        **own(**about),
    }
    if parent_run_id is not None:
        event["parentRunId"] = parent_run_id
    return event


def run_finished(
    thread_id: str, run_id: str, outcome: Wire, usage: Sequence[Wire], result: Sequence[Any], **about: Any
) -> Wire:
    """``RUN_FINISHED``. ``result`` is empty, or holds the one value, which may be ``None``."""
    event: Wire = {"type": "RUN_FINISHED", "threadId": thread_id, "runId": run_id, "outcome": outcome, **own(**about)}
    if result and result[0] is not None:  # a null reads as no result in every SDK
        event["result"] = result[0]
    if usage:
        event["usage"] = list(usage)
    return event


def run_error(message: str, code: str | None, usage: Sequence[Wire], **about: Any) -> Wire:
    """``RUN_ERROR``."""
    event: Wire = {"type": "RUN_ERROR", "message": message, **own(**about)}
    if code is not None:
        event["code"] = code
    if usage:
        event["usage"] = list(usage)
    return event


def custom(name: str, value: Any) -> Wire:
    """``CUSTOM``, its name with our prefix."""
    return {"type": "CUSTOM", "name": PREFIX + name, "value": value}


def raw(event: Mapping[str, Any]) -> Wire:
    """``RAW``: an event that has no other form here. One whose type reads like AG-UI's is put into an object."""
    return {"type": "RAW", "event": {"event": event} if event.get("type") in _TYPES else event, "source": KEY}


def activity(message_id: str, kind: str, content: Any, **tag: str) -> Wire:
    """``ACTIVITY_SNAPSHOT``, which replaces one of the same id; content that is no object becomes its ``data``."""
    return {
        "type": "ACTIVITY_SNAPSHOT",
        "messageId": message_id,
        "activityType": PREFIX + kind,
        "content": content if isinstance(content, dict) else {"data": content},
        "replace": True,
        **tag,
    }


def messages_snapshot_event(messages: list[Wire]) -> Wire:
    """``MESSAGES_SNAPSHOT``."""
    return {"type": "MESSAGES_SNAPSHOT", "messages": messages}
