"""Reading a record over HTTP: as server-sent events, or a page of it as JSON.

Not for: writing SSE (``_sse.py``). Rules carried: ORD-05, ORD-07, ORD-11. May import: starlette, the other modules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from typing import Any

from starlette.responses import Response

from agentsession.host.http._inputs import EventsQuery
from agentsession.host.http._limits import Limits
from agentsession.host.http._principals import WRITE, Principal
from agentsession.host.http._problems import Problem
from agentsession.host.http._sse import EventSourceResponse, frame, named_frame
from agentsession.host.live import LiveSession, Started
from agentsession.protocol import CursorGone, EventReader, dumps

__all__ = ["Readers", "started_body"]


class Readers:
    """The readers of one app, counted by user."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: Counter[str] = Counter()

    async def page(self, session: LiveSession, query: EventsQuery) -> dict[str, Any]:
        """Up to ``limit`` events that are there already."""
        _check_cursor(session, query.after)
        reader = _reader(session, query, follow=False)
        events: list[dict[str, Any]] = []
        more = False
        cursor = query.after
        try:
            async for event in reader:
                if len(events) == query.limit:
                    more = True
                    break
                events.append(event.to_wire())
                cursor = event.seq
            if not more:
                cursor = max(cursor, reader.cursor)
        finally:
            await reader.aclose()
        return {"events": events, "cursor": cursor, "lastSeq": session.last_seq, "more": more}

    async def follow(self, session: LiveSession, query: EventsQuery, principal: Principal) -> Response:
        """The events of a query as SSE; 204 where a reader that came back has had all there will be."""
        _check_cursor(session, query.after)
        if query.is_resumed and await _is_read(session, query):
            return Response(status_code=204)
        self.check(principal)
        # Who may only read may not slow the agent down either.
        holds = query.wants_hold and query.follow and WRITE in principal.scopes
        return self._sse(session, principal, _reader(session, query, query.follow), None, holds)

    def check(self, principal: Principal) -> None:
        """Raise a 429 where the user has as many readers as may be."""
        if self._open[principal.user_id] >= self._limits.readers:
            raise Problem(
                429, "too-many-readers", "too many readers of this user are open", headers={"retry-after": "5"}
            )

    def drive(self, session: LiveSession, begun: dict[str, Any], principal: Principal) -> Response:
        """The events of a stream, of which :func:`started_body` told, as SSE for who began it. The agent waits for this
        reader when it is slow."""
        reader = session.events(begun["cursor"], True, stream_id=begun["streamId"])
        return self._sse(session, principal, reader, begun, True)

    def _sse(
        self,
        session: LiveSession,
        principal: Principal,
        reader: EventReader,
        started: dict[str, Any] | None,
        holds: bool,
    ) -> Response:
        held = ExitStack()
        held.enter_context(session.hold())
        self._open[principal.user_id] += 1

        async def leave() -> None:
            self._open[principal.user_id] -= 1
            if self._open[principal.user_id] <= 0:
                del self._open[principal.user_id]
            held.close()
            await reader.aclose()

        async def frames() -> AsyncGenerator[bytes]:
            if started is not None:
                yield named_frame("started", dumps(started))
            if holds:
                await reader.__aenter__()  # the agent waits for it from when it has caught up; `leave` detaches it
            async for event in reader:
                yield frame(event.seq, event.to_wire_json())
            if session.state == "closed" and not session.is_stopping:
                yield named_frame("closed", "{}")

        response = EventSourceResponse(frames(), leave, ping_s=self._limits.ping_s, stall_s=self._limits.stall_s)
        if holds and started is None:
            response.headers["preference-applied"] = "hold"
        return response


def started_body(started: Started) -> dict[str, Any]:
    """What 202 says of a stream that was begun."""
    return {
        "streamId": started.stream_id,
        "turnId": started.turn_id,
        "receipts": [receipt.to_wire() for receipt in started.receipts],
        "cursor": started.cursor,
    }


def _reader(session: LiveSession, query: EventsQuery, follow: bool) -> EventReader:
    return session.events(query.after, follow, types=query.types, stream_id=query.stream_id, thread_id=query.thread_id)


def _check_cursor(session: LiveSession, after: int) -> None:
    """Before an answer is begun: later it would be too late for a status."""
    if after > session.last_seq:
        raise CursorGone(
            "this cursor is beyond the last event",
            got=str(after),
            expected=f"0 to {session.last_seq}",
            fix="read from the start, or from a cursor that you were given",
        )


async def _is_read(session: LiveSession, query: EventsQuery) -> bool:
    """Whether nothing is left to come for a reader that has had everything up to its cursor."""
    if session.state == "closed":
        return True
    if query.follow and query.stream_id is None:
        return False
    if await _has_any(_reader(session, query, follow=False)):
        return False
    if not query.follow:
        return True
    ends = session.events(0, False, types={"stream_end"}, stream_id=query.stream_id)
    return await _has_any(ends)


async def _has_any(reader: EventReader) -> bool:
    try:
        async for _ in reader:
            return True
        return False
    finally:
        await reader.aclose()
