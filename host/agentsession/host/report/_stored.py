"""The record of a stored session, with those of its sub-agents put where an observer was told of them.

Not for: the timeline (``_build.py``), which takes the events as they are. Rules carried: none.
May import: ``_child_events``, ``_child_ids``, ``records``, ``_stretches``, ``agentsession.protocol``.

A store keeps a sub-agent's session as one of its own: the caller's record has the request and its response alone.
"""

from __future__ import annotations

import collections
import datetime
import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from agentsession.host._child_events import child_events, placed, thread_of
from agentsession.host._child_ids import caller_mark, mark_of, session_id_of
from agentsession.host.records._find import all_records
from agentsession.host.report._stretches import moment_of
from agentsession.protocol import (
    Event,
    Initialize,
    RecordCatalog,
    RecordKey,
    RecordStore,
    SessionNotFound,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
)

__all__ = ["stored"]

_Told = collections.deque[tuple[datetime.datetime, ToolUpdate]]
_Named = tuple[str, str]
"""A sub-agent, and the id of its session."""


async def stored(store: RecordStore, key: RecordKey) -> list[Event]:
    """The record of ``key``, and as updates of the request that it works for what each sub-agent of its host did.

    :func:`agentsession.host.child_events` reads the updates, as it does those of a session at work. A sub-agent whose
    record is not in this store is left out. Raises :class:`SessionNotFound` for the session itself.
    """
    return await _Reader(store, key).whole(key)


class _Reader:
    def __init__(self, store: RecordStore, key: RecordKey) -> None:
        self._store = store
        self._seen = {key}
        """Each record is told once, whatever the others say."""
        self._called: dict[str, list[RecordKey]] | None = None

    async def whole(self, key: RecordKey) -> list[Event]:
        events = await self._store.read(key)
        told: dict[str, _Told] = {}
        for request, named in _delegated(events):
            child = await self._child(key, request, named)
            if child is None or child in self._seen:
                continue
            self._seen.add(child)
            try:
                record = await self.whole(child)
            except SessionNotFound:
                continue
            told[request.request_id] = _updates(request, child.agent, record)
        return list(_merged(events, told)) if told else events

    async def _child(self, caller: RecordKey, request: ToolRequest, named: _Named | None) -> RecordKey | None:
        """Where the sub-agent's record is. Without its response, as where the call still runs or was cut off, its id
        tells; a store that cannot list all it holds is asked for an agent that has the tool's name."""
        if named is not None:
            return RecordKey(named[0], caller.user_id, named[1])
        if not isinstance(self._store, RecordCatalog):
            session_id = session_id_of(caller.session_id, request.request_id, request.name)
            return RecordKey(request.name, caller.user_id, session_id)
        if self._called is None:
            self._called = {}
            async for info in all_records(self._store, user_id=caller.user_id):
                mark = caller_mark(info.key.session_id)
                if mark is not None:
                    self._called.setdefault(mark, []).append(info.key)
        for found in self._called.get(mark_of(caller.session_id), ()):
            if found.session_id == session_id_of(caller.session_id, request.request_id, found.agent):
                return found
        return None


def _delegated(events: Iterable[Event]) -> Iterator[tuple[ToolRequest, _Named | None]]:
    """The requests that a sub-agent may work for, with its agent and its session's id where the response names them."""
    requests: dict[str, ToolRequest] = {}
    named: dict[str, _Named] = {}
    for event in events:
        if isinstance(event, ToolRequest) and not event.partial and event.needs == "result":
            requests[event.request_id] = event
        elif isinstance(event, ToolResponse) and event.request_id in requests:
            at_work: Any = (event.display or {}).get("subagent")
            worker = cast("Mapping[str, Any]", at_work) if isinstance(at_work, dict) else {}
            agent, session_id = worker.get("agent"), worker.get("sessionId")
            if isinstance(agent, str) and isinstance(session_id, str) and agent and session_id:
                named[event.request_id] = agent, session_id
            elif event.status in ("completed", "denied"):
                del requests[event.request_id]
    for request_id, request in requests.items():
        yield request, named.get(request_id)


def _updates(request: ToolRequest, agent: str, record: Iterable[Event]) -> _Told:
    thread = thread_of(request, agent)
    told: _Told = collections.deque()
    at = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    for event in record:
        if isinstance(event, Initialize) or (isinstance(event, ToolRequest) and event.partial):
            continue
        at = max(at, moment_of(event.timestamp) or at)
        shown = [placed(one, thread, agent, request.thread_id) for one in child_events(event) or [event]]
        update = ToolUpdate(
            id=f"{thread}:{event.id}",
            seq=request.seq,
            timestamp=event.timestamp,
            session_id=request.session_id,
            stream_id=request.stream_id,
            turn_id=request.turn_id,
            thread_id=request.thread_id,
            agent_id=request.agent_id,
            source="host",
            request_id=request.request_id,
            data={"childEvents": [one.to_wire() for one in shown]},
        )
        told.append((at, update))
    return told


def _merged(events: Iterable[Event], told: Mapping[str, _Told]) -> Iterator[Event]:
    """In order of time; what a sub-agent did stands behind its request, before its response and its turn's end."""
    at_work: dict[str, _Told] = {}
    turns: dict[str, str | None] = {}
    for event in events:
        moment = moment_of(event.timestamp)
        if moment is not None:
            yield from _until(moment, at_work)
        done: list[str] = []
        if isinstance(event, ToolResponse):
            done = [event.request_id]
        elif isinstance(event, StreamEnd) and event.reason != "input_required":
            done = [request_id for request_id in at_work if turns[request_id] == event.turn_id]
        for request_id in done:
            for _, update in at_work.pop(request_id, ()):
                yield update
        yield event
        if isinstance(event, ToolRequest) and event.request_id in told and event.request_id not in turns:
            at_work[event.request_id], turns[event.request_id] = told[event.request_id], event.turn_id
    yield from _until(datetime.datetime.max.replace(tzinfo=datetime.UTC), at_work)


def _until(moment: datetime.datetime, at_work: Mapping[str, _Told]) -> Iterator[Event]:
    heads = [(queue[0][0], request_id) for request_id, queue in at_work.items() if queue]
    heapq.heapify(heads)
    while heads and heads[0][0] <= moment:
        _, request_id = heapq.heappop(heads)
        queue = at_work[request_id]
        yield queue.popleft()[1]
        if queue:
            heapq.heappush(heads, (queue[0][0], request_id))
