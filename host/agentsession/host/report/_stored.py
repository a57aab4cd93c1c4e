"""The record of a stored session, with those of its sub-agents put where an observer was told of them.

Not for: the timeline (``_build.py``), which takes the events as they are. Rules carried: none.
May import: ``_child_events``, ``_child_run``, ``_stretches``, ``agentsession.protocol``.

A store keeps a sub-agent's session as one of its own: the caller's record has the request and its response alone.
"""

from __future__ import annotations

import collections
import datetime
import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from agentsession.host._child_events import child_events, placed, thread_of
from agentsession.host._child_run import session_id_of
from agentsession.host.report._stretches import moment_of
from agentsession.protocol import (
    Event,
    Initialize,
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


async def stored(store: RecordStore, key: RecordKey) -> list[Event]:
    """The record of ``key``, and as updates of the request that it works for what each sub-agent of its host did.

    :func:`agentsession.host.child_events` reads the updates, as it does those of a session at work. A sub-agent whose
    record is not in this store is left out. Raises :class:`SessionNotFound` for the session itself.
    """
    return await _whole(store, key, {key})


async def _whole(store: RecordStore, key: RecordKey, seen: set[RecordKey]) -> list[Event]:
    events = await store.read(key)
    told: dict[str, _Told] = {}
    for request, agent, session_id in _delegated(events, key.session_id):
        child = RecordKey(agent, key.user_id, session_id)
        if child in seen:  # each is told once, whatever a record says
            continue
        seen.add(child)
        try:
            record = await _whole(store, child, seen)
        except SessionNotFound:
            continue
        told[request.request_id] = _updates(request, agent, record)
    return list(_merged(events, told)) if told else events


def _delegated(events: Iterable[Event], caller: str) -> Iterator[tuple[ToolRequest, str, str]]:
    """The requests that a sub-agent may work for, with its agent and its session's id.

    A response that the sub-agent's host gave names both. Without one, as where the call still runs or was cut off, the
    agent is taken to be that of the tool's other calls, or to have the tool's name.
    """
    requests: dict[str, ToolRequest] = {}
    named: dict[str, tuple[str, str]] = {}
    agents: dict[str, str] = {}
    for event in events:
        if isinstance(event, ToolRequest) and not event.partial and event.needs == "result":
            requests[event.request_id] = event
        elif isinstance(event, ToolResponse) and event.request_id in requests:
            at_work: Any = (event.display or {}).get("subagent")
            worker = cast("Mapping[str, Any]", at_work) if isinstance(at_work, dict) else {}
            agent, session_id = worker.get("agent"), worker.get("sessionId")
            if isinstance(agent, str) and isinstance(session_id, str) and agent and session_id:
                named[event.request_id] = agent, session_id
                agents[event.name] = agent
            elif event.status in ("completed", "denied"):
                del requests[event.request_id]
    for request_id, request in requests.items():
        guess = agents.get(request.name, request.name)
        agent, session_id = named.get(request_id) or (guess, session_id_of(caller, request_id, guess))
        yield request, agent, session_id


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
