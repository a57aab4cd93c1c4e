"""A record as what happened when: turns, spans on lanes, items in order, what was used.

Not for: reading events (``_build.py``) or drawing (``_chart.py``, ``_page.py``). Rules carried: none.
May import: ``agentsession.protocol``, ``_stretches``.

Times are seconds from the first event of the record. They never go back: an event whose clock is behind, or whose
timestamp cannot be read, stands at the time of the event before it.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Literal

from agentsession.host.report._stretches import Stretch, length, minus, union
from agentsession.protocol import Event

__all__ = ["PROBLEMS", "Item", "ItemKind", "Span", "SpanKind", "Spent", "Timeline", "Turn", "UsagePoint", "spent"]

SpanKind = Literal["model", "tool", "wait"]
"""Who is at work: the model (with all that is not told apart from it), a tool, a person who was asked."""

ItemKind = Literal["message", "thought", "call", "question", "error", "steer", "note"]

Problem = Literal["error", "denied", "unknown"]
PROBLEMS: tuple[Problem, ...] = ("error", "denied", "unknown")
"""What the filter finds: something failed, was refused, or had started with effects that nobody knows."""


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time on a lane."""

    kind: SpanKind
    start: float
    end: float
    thread_id: str | None
    """Whose time it is; ``None`` is the main thread."""
    label: str
    status: str
    """Of a tool: its response's status, ``failed`` also for an error result; of a wait: what was answered. ``open``:
    the record has no end of it."""
    turn: int
    """The turn's number; 0 before the first."""
    item: int | None = None
    """The index of what it belongs to in :attr:`Timeline.items`."""
    carries: bool = False
    """Of a tool: a sub-agent works for it, whose own time counts in its place."""

    @property
    def stretch(self) -> Stretch:
        """From and to."""
        return (self.start, self.end)


@dataclasses.dataclass(slots=True)
class Item:
    """Something that happened, with the events that tell it: a message, a call with all that came of it, an error."""

    kind: ItemKind
    start: float
    end: float
    turn: int
    thread_id: str | None
    agent: str | None
    events: list[Event]
    number: int | None = None
    """Of a call, as the terminal numbers it."""
    status: str = ""
    problem: Problem | None = None
    text: str = ""
    """Of a message: what deltas said whose message was never closed."""

    @property
    def first_seq(self) -> int:
        """The seq of its first event."""
        return self.events[0].seq

    @property
    def last_seq(self) -> int:
        """The seq of its last event."""
        return self.events[-1].seq


@dataclasses.dataclass(frozen=True, slots=True)
class UsagePoint:
    """One model call's usage, where it was told. ``None``: not reported, which is not 0."""

    at: float
    turn: int
    thread_id: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    """With the reasoning tokens."""
    cached_tokens: int | None
    cost: float | None
    context_share: float | None
    """How much of the model's context window it filled, 0 to 1."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spent:
    """Where the time went. Overlapping stretches count once: people before tools, tools before the model.

    A tool that runs another agent is not counted while that agent's model works.
    """

    elapsed_s: float
    model_s: float
    tools_s: float
    people_s: float
    idle_s: float = 0.0
    """Between turns; not part of ``elapsed_s``."""


@dataclasses.dataclass(slots=True)
class Turn:
    """One turn of the session."""

    number: int
    turn_id: str
    start: float
    end: float
    task: str = ""
    """What the person said first."""
    reason: str | None = None
    """How it ended; ``input_required`` where it still waits; ``None`` where the record stops before its end."""
    cause: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Timeline:
    """A whole record, ready to be drawn. Made by :func:`agentsession.host.report.timeline`."""

    session_id: str
    agent: str
    title: str
    """The session's title, else what the person said first."""
    began: datetime.datetime | None
    """When the first event was recorded, in UTC; ``None`` where its timestamp cannot be read."""
    length_s: float
    turns: Sequence[Turn]
    items: Sequence[Item]
    spans: Sequence[Span]
    usage: Sequence[UsagePoint]
    agents: dict[str | None, tuple[str, ...]]
    """Which agents worked on each thread, in the order in which the threads came up; the main thread is ``None``."""
    models: tuple[str, ...] = ()
    others: Sequence[Item] = ()
    """Items that are not shown, where this is one turn of a record: what is a secret in them is one here, too."""

    @property
    def reason(self) -> str | None:
        """How the last turn ended; ``None`` where the record stops before that, or holds no turn."""
        return self.turns[-1].reason if self.turns else None

    @property
    def spent(self) -> Spent:
        """Where the time of the whole record went."""
        return spent(self.turns, self.spans)

    @property
    def input_tokens(self) -> int | None:
        """Of all model calls that said so; ``None`` when none did."""
        return _sum(point.input_tokens for point in self.usage)

    @property
    def output_tokens(self) -> int | None:
        """With reasoning, of all model calls that said so."""
        return _sum(point.output_tokens for point in self.usage)

    @property
    def cost(self) -> float | None:
        """US dollars, of the model calls that said so."""
        known = [point.cost for point in self.usage if point.cost is not None]
        return sum(known) if known else None

    @property
    def is_cost_complete(self) -> bool:
        """Whether every model call said what it cost; when not, the sum is a lower bound."""
        return all(point.cost is not None for point in self.usage)

    def count(self, problem: str) -> int:
        """How many items have this problem, or are of this kind."""
        return sum(1 for item in self.items if problem in (item.problem, item.kind))


def spent(turns: Sequence[Turn], spans: Sequence[Span]) -> Spent:
    """Where the time of these turns went, of which ``spans`` are all."""
    if not turns:
        return Spent(0.0, 0.0, 0.0, 0.0)
    whole = union((turn.start, turn.end) for turn in turns)
    people = union(span.stretch for span in spans if span.kind == "wait")
    tools: dict[str | None, list[Stretch]] = {}
    model: dict[str | None, list[Stretch]] = {}
    for span in spans:
        if span.kind != "wait" and not span.carries:
            (tools if span.kind == "tool" else model).setdefault(span.thread_id, []).append(span.stretch)
    running: list[Stretch] = []
    for thread, stretches in tools.items():
        below = union(one for other, inner in model.items() if _is_below(other, thread) for one in inner)
        running += minus(union(stretches), below)
    elapsed, people_s = length(whole), length(people)
    tools_s = length(minus(union(running), people))
    idle = minus([(whole[0][0], whole[-1][1])], union([*whole, *people]))
    return Spent(elapsed, max(0.0, elapsed - people_s - tools_s), tools_s, people_s, length(idle))


def _is_below(thread: str | None, other: str | None) -> bool:
    return thread is not None and thread != other and (other is None or thread.startswith(f"{other}."))


def _sum(counts: object) -> int | None:
    known = [count for count in counts if count is not None]  # type: ignore[attr-defined]  # an iterable of counts
    return sum(known) if known else None
