"""When each thread's model was at work: a record tells where model calls ended, and what happened in between.

Not for: calls and questions (``_build.py``). May import: ``agentsession.protocol``, ``_model``, ``_stretches``.

An agent works from its thread's first event in a stream to its last. Of that, the model has what is left when the
thread's calls and questions are taken out, and the time in which an agent below it works; each usage event ends one
model call. So "model" is the model with all that is not told apart from it.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from agentsession.host.report._model import Span, UsagePoint
from agentsession.host.report._stretches import Stretch, minus, union
from agentsession.protocol import AgentEnd, AgentStart, Event, StreamEnd

__all__ = ["Work"]


class Work:
    """Follows threads through the streams of a record."""

    def __init__(self) -> None:
        self.agents: dict[str | None, tuple[str, ...]] = {None: ()}
        self._parents: dict[str, str | None] = {}
        self._present: dict[tuple[str | None, tuple[str, bool]], tuple[float, float, int]] = {}
        """From, to and the turn of each thread in each stream."""

    def note(self, event: Event, now: float, turn: int, *, inside: bool = False) -> None:
        """A thread is at work where it has an event in a stream; the main thread wherever there is a stream.

        ``inside``: it is of a sub-agent's own session, whose streams are not those of the main thread.
        """
        if event.stream_id is None:
            return
        stream = (event.stream_id, inside)
        threads: list[str | None] = [event.thread_id]
        if not inside and (event.thread_id, stream) not in self._present:
            threads.append(None)
        if isinstance(event, StreamEnd) and not inside:
            threads = [None]
        for thread in threads:
            start, _, began_in = self._present.get((thread, stream), (now, now, turn))
            self._present[thread, stream] = (start, now, began_in)
        if event.thread_id is not None:
            self.agents.setdefault(event.thread_id, ())
        if event.agent_id and event.source == "agent" and event.agent_id not in self.agents.get(event.thread_id, ()):
            self.agents[event.thread_id] = (*self.agents.get(event.thread_id, ()), event.agent_id)

    def bracket(self, event: AgentStart | AgentEnd, now: float) -> None:
        """An agent begins or ends on a thread."""
        known = self.agents.get(event.thread_id, ())
        if event.agent_id not in known:
            self.agents[event.thread_id] = (*known, event.agent_id)
        if isinstance(event, AgentStart) and event.thread_id is not None:
            parent = event.parent_thread_id
            self._parents.setdefault(event.thread_id, parent if parent != event.thread_id else None)

    def spans(self, others: Sequence[Span], usage: Sequence[UsagePoint]) -> list[Span]:
        """The model's spans of every thread."""
        busy: dict[str | None, list[Stretch]] = {}
        for span in others:
            busy.setdefault(span.thread_id, []).append(span.stretch)
        for (thread, _), (start, end, _) in self._present.items():
            for above in self._above(thread):
                busy.setdefault(above, []).append((start, end))
        unions = {thread: union(stretches) for thread, stretches in busy.items()}
        told: dict[str | None, list[UsagePoint]] = {}
        for point in usage:
            told.setdefault(point.thread_id, []).append(point)
        out: list[Span] = []
        for (thread, _), (start, end, turn) in self._present.items():
            free = minus([(start, end)], _within(unions.get(thread, []), start, end))
            out += _cut(free, told.get(thread, []), thread, turn)
        return out

    def _above(self, thread: str | None) -> list[str | None]:
        out: list[str | None] = []
        while thread is not None and len(out) < 64:
            parent = self._parents.get(thread)
            if parent is None and "." in thread:
                parent = thread.rpartition(".")[0]
            thread = parent
            if thread in out:
                break
            out.append(thread)
        return out


def _within(stretches: list[Stretch], start: float, end: float) -> list[Stretch]:
    """Those of a union that may touch what is between ``start`` and ``end``."""
    first = bisect.bisect_left(stretches, (start, start))
    last = bisect.bisect_right(stretches, (end, end))
    return stretches[max(0, first - 1) : last]


def _cut(free: Sequence[Stretch], told: Sequence[UsagePoint], thread: str | None, turn: int) -> list[Span]:
    """One span for each model call: each usage ends one."""
    times = [point.at for point in told]
    out: list[Span] = []
    for start, end in free:
        at = start
        for index in range(bisect.bisect_right(times, start), bisect.bisect_right(times, end)):
            point = told[index]
            if point.at > at:
                out.append(Span("model", at, point.at, thread, point.model or "", "", turn))
            at = point.at
        if end > at:
            out.append(Span("model", at, end, thread, "", "", turn))
    return out
