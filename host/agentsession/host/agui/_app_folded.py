"""What is remembered of each open session between its runs: folded from its record, once, and never read again.

Not for: what is in it (``_in_memory.py``, ``_out_known.py``). Rules carried: PER-03.
May import: the host's ``report``, ``live``, ``_app_below``, ``_in_memory``, ``_out_known``, ``_out_wire``,
``protocol``.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from agentsession.host.agui._app_below import subagents
from agentsession.host.agui._in_memory import Mark, Memory
from agentsession.host.agui._out_known import Known
from agentsession.host.agui._out_wire import milliseconds
from agentsession.host.live import LiveSession
from agentsession.host.report import stored
from agentsession.protocol import Event, ToolRequest, ToolUpdate

__all__ = ["Folded", "FoldedSessions", "record_of"]


class Folded:
    """Both halves' knowledge of one session."""

    def __init__(self, known: Known, memory: Memory) -> None:
        self.known = known
        self.memory = memory


class FoldedSessions:
    """Those of an application. What is known of a session goes with it, when it is closed."""

    def __init__(self) -> None:
        self._folded: WeakKeyDictionary[LiveSession, Folded] = WeakKeyDictionary()

    async def of(self, live: LiveSession) -> Folded:
        """What is known of a session up to its last event; only the first call after a load reads the record."""
        folded = self._folded.get(live)
        if folded is not None and folded.memory.seq < live.last_seq:
            async for event in live.events(after=folded.memory.seq):
                folded.memory.add(event)
                folded.known.note(event)
        if folded is None or folded.known.is_stale:
            folded = self._folded[live] = await _fold(live)
        return folded


async def _fold(live: LiveSession) -> Folded:
    record = await record_of(live)
    memory = Memory()
    for event in record:
        memory.add(event)
    return Folded(Known.of(record), memory)


async def record_of(live: LiveSession, before: Mark | None = None) -> list[Event]:
    """The record, up to a moment if one is given.

    What the sub-agents did that the host runs in sessions of their own is among it, as progress of their calls. The
    session itself keeps that only while it streams, and not over a restart: their own records have it.
    """
    names = subagents(live)
    if not names or live.agent.store is None:
        return [event async for event in live.events() if before is None or event.seq <= before.seq]
    calls: set[str] = set()
    found: list[Event] = []
    for event in await stored(live.agent.store, live.key):
        if isinstance(event, ToolRequest) and event.name in names:
            calls.add(event.request_id)
        if isinstance(event, ToolUpdate) and not event.started:  # of a sub-agent: its seq is that of its call
            # The result of any other call may name a session, too: whoever gave it is not believed.
            is_kept = event.request_id in calls and (
                before is None or (milliseconds(event.timestamp) or 0) <= before.ms
            )
        else:
            is_kept = before is None or event.seq <= before.seq
        if is_kept:
            found.append(event)
    return found
