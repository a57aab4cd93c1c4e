"""What a sub-agent does, as progress of the request that it works for: placed, thinned, bounded; and read back.

Not for: the sub-agent's own record, which holds everything. Rules carried: TOOL-12. May import: anyio, ``protocol``.

An update's ``data`` is ``{"childEvents": [event, ...]}``, events in wire form. Threads, and ids of requests and
messages, are made unique in the caller's session: ``reviewer-1f0c5a7e`` and ``reviewer-1f0c5a7e:r1``. What a sub-agent
of the sub-agent does arrives in the same way, one thread deeper, never as an update inside an update.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

import anyio

from agentsession.protocol import (
    AgentStart,
    Event,
    Initialize,
    Message,
    SchemaError,
    StreamEnd,
    ToolProgress,
    ToolRequest,
    ToolUpdate,
    merge_parts,
    parse_event,
)

__all__ = ["ChildEvents", "child_events", "placed", "tells_of_children", "thread_of", "works_for"]

_KEY: Final = "childEvents"
_ID_LIMIT: Final = 512
_SIZE: Final = 16_384
"""Characters of an event that are shown whole; of a longer one each text and list is cut."""
_TEXT: Final = 1_000
_ITEMS: Final = 40
_DEEPEST: Final = 10
_EVERY_S: Final = 0.1
"""Deltas that come closer together are joined."""

E = TypeVar("E", bound=Event)


def child_events(event: Event) -> list[Event]:
    """What sub-agents did, of an update of the request that they work for; empty for every other event.

    Threads and ids are those of the caller's session (see this module). What cannot be read is left out.
    """
    if not isinstance(event, ToolUpdate) or not tells_of_children(event.data):
        return []
    listed = cast("dict[str, Any]", event.data).get(_KEY)
    found: list[Event] = []
    for item in listed if isinstance(listed, list) else []:
        try:
            found.append(parse_event(item))
        except SchemaError:
            continue
    return found


def tells_of_children(data: Any) -> bool:
    """Whether :func:`child_events` would read this as what sub-agents did."""
    return isinstance(data, dict) and _KEY in data


def thread_of(request: ToolRequest, agent: str) -> str:
    """The thread of the sub-agent that works for ``request``: the same after a restart, its own beside its siblings."""
    name = f"{agent}-{_digest(request.request_id)}"
    return f"{request.thread_id}.{name}" if request.thread_id else name


def works_for(thread: str, request: ToolRequest) -> bool:
    """Whether the sub-agent on ``thread`` works for ``request``, both as they are placed in a caller's session."""
    above = f"{request.thread_id}." if request.thread_id else ""
    name = thread.removeprefix(above)
    own_id = request.request_id.removeprefix(f"{request.thread_id}:")
    return thread.startswith(above) and "." not in name and name.endswith(f"-{_digest(own_id)}")


def _digest(request_id: str) -> str:
    return hashlib.sha256(request_id.encode()).hexdigest()[:8]


def placed(event: E, thread: str, agent: str, parent_thread: str | None) -> E:
    """A sub-agent's event as its caller sees it: on ``thread``, with ids that nothing else in that session has."""
    given: dict[str, Any] = {
        "thread_id": f"{thread}.{event.thread_id}" if event.thread_id else thread,
        "agent_id": event.agent_id or agent,
    }
    for name in ("request_id", "tool_request_id", "message_id"):
        value: object = getattr(event, name, None)
        if isinstance(value, str):
            given[name] = _unique(thread, value)
    if isinstance(event, StreamEnd):
        given["pending"] = [_unique(thread, item) for item in event.pending]
    if isinstance(event, AgentStart):
        if event.thread_id is None:
            given["parent_thread_id"] = parent_thread
        else:
            given["parent_thread_id"] = f"{thread}.{event.parent_thread_id}" if event.parent_thread_id else thread
    return event.model_copy(update=given)


def _unique(thread: str, value: str) -> str:
    joined = f"{thread}:{value}"
    return joined if len(joined) <= _ID_LIMIT else hashlib.sha256(joined.encode()).hexdigest()


class ChildEvents:
    """Observes a sub-agent's session, and sends what is worth seeing as progress of ``request``."""

    def __init__(
        self, request: ToolRequest, thread: str, agent: str, send: Callable[[ToolProgress], Awaitable[None]]
    ) -> None:
        self._request = request
        self._thread = thread
        self._agent = agent
        self._send = send
        self._held: list[Message] = []
        self._sent_at = -_EVERY_S

    async def __call__(self, event: Event) -> None:
        """Send it, or keep it to be joined with the next."""
        match event:
            case Initialize() | ToolRequest(partial=True):
                return
            case ToolUpdate() if nested := child_events(event):
                await self._out([self._placed(item) for item in nested])
            case Message(partial=True):
                if self._held and self._held[-1].message_id != event.message_id:
                    await self._out([])
                self._held.append(event)
                if anyio.current_time() - self._sent_at >= _EVERY_S:
                    await self._out([])
            case _:
                await self._out([self._placed(event)])

    def _placed(self, event: Event) -> Event:
        return placed(event, self._thread, self._agent, self._request.thread_id)

    async def _out(self, events: list[Event]) -> None:
        held, self._held = self._held, []
        if held:
            self._sent_at = anyio.current_time()
            joined = held[-1].model_copy(
                update={"content": merge_parts(part for delta in held for part in delta.content), "index": None}
            )
            events = [self._placed(joined), *events]
        if events:
            data = {_KEY: [_bounded(event) for event in events]}
            await self._send(ToolProgress(request_id=self._request.request_id, data=data))


def _bounded(event: Event) -> dict[str, Any]:
    wire = event.to_wire()
    if len(json.dumps(wire, ensure_ascii=False)) <= _SIZE:
        return wire
    short = cast("dict[str, Any]", _cut(wire, 0))
    if len(json.dumps(short, ensure_ascii=False)) > 4 * _SIZE:
        for name in ("data", "args", "result", "context", "display"):
            short.pop(name, None)
        if "content" in short:
            short["content"] = []
    short["_meta"] = {**cast("dict[str, Any]", short.get("_meta") or {}), "cut": True}
    return short


def _cut(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _TEXT else value[: _TEXT - 1] + "…"
    if depth > _DEEPEST:
        return None
    if isinstance(value, list):
        return [_cut(item, depth + 1) for item in value[:_ITEMS]]
    if isinstance(value, dict):
        items = list(cast("dict[str, Any]", value).items())[:_ITEMS]
        return {name: _cut(item, depth + 1) for name, item in items}
    return value
