"""What a turn cost, read from its events: time by who it was spent on, tokens, money.

Not for: a live clock (the terminal has one). May import: ``_child_events``, ``_waits``, ``agentsession.protocol``.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable

from agentsession.host._child_events import child_events
from agentsession.host._waits import is_answer, waited_s
from agentsession.protocol import (
    ElicitationRequest,
    ElicitationResponse,
    Event,
    SessionUpdate,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
)

__all__ = ["Totals", "at"]

_Span = tuple[float, float]


def at(event: Event) -> float | None:
    """When the event happened, in seconds since the epoch; ``None`` when its timestamp cannot be read."""
    try:
        return datetime.datetime.fromisoformat(event.timestamp).timestamp()
    except (ValueError, OverflowError):
        return None


@dataclasses.dataclass(slots=True)
class Totals:
    """The running totals of one turn. What was never reported stays ``None``: unknown is not 0."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    context_used: float | None = None
    """The share of the model's context window that its last call filled, 0 to 1."""
    model: str | None = None
    first: float | None = None
    last: float | None = None
    _cost_unknown: bool = False
    _waiting: dict[str, float] = dataclasses.field(default_factory=dict[str, float])
    _asked: dict[str, float] = dataclasses.field(default_factory=dict[str, float])
    _running: dict[str, float] = dataclasses.field(default_factory=dict[str, float])
    _started: set[str] = dataclasses.field(default_factory=set[str])
    _host_runs: set[str] = dataclasses.field(default_factory=set[str])
    _waits: set[str] = dataclasses.field(default_factory=set[str])
    _decided_anew: set[str] = dataclasses.field(default_factory=set[str])
    """What waited when the mode was changed: what then decides on it is a rule, and until then a person was asked."""
    _you: list[_Span] = dataclasses.field(default_factory=list[_Span])
    _tools: list[_Span] = dataclasses.field(default_factory=list[_Span])

    def feed(self, event: Event) -> None:
        """Take the next event of the turn."""
        if inside := child_events(event):
            self._running.pop(getattr(event, "request_id", ""), None)  # it is no tool: its agent's own time counts
            for child in inside:
                self.feed(child)
            return
        now = at(event)
        if now is not None:
            self.first = now if self.first is None else min(self.first, now)
            self.last = now if self.last is None else max(self.last, now)
            self._time(event, now)
        if isinstance(event, Usage):
            self._usage(event)

    def _time(self, event: Event, now: float) -> None:
        if isinstance(event, ToolRequest) and not event.partial:
            self._running[event.request_id] = self._asked[event.request_id] = now
            if event.needs in ("result", "grant"):
                self._waits.add(event.request_id)
            if event.needs == "result":  # its decision is recorded together with its result
                self._host_runs.add(event.request_id)
        elif isinstance(event, ToolUpdate):
            if event.started and event.request_id in self._running:
                self._running[event.request_id] = now
                self._started.add(event.request_id)
            if (waited := waited_s(event)) is not None:
                self._you.append((now - waited, now))
        elif isinstance(event, SessionUpdate):
            if event.permission_mode is not None:
                self._decided_anew |= self._waits - self._started
        elif isinstance(event, ElicitationRequest):
            self._waiting[event.request_id] = now
        elif isinstance(event, ElicitationResponse):
            asked = self._waiting.pop(event.request_id, None)
            if asked is not None:
                self._you.append((asked, now))
        elif isinstance(event, ToolDecision):
            asked = self._asked.get(event.request_id)
            self._waits.discard(event.request_id)
            if asked is not None and (is_answer(event) or event.request_id in self._decided_anew):
                self._you.append((asked, self._running[event.request_id] if event.request_id in self._started else now))
            if asked is not None and event.request_id not in self._host_runs:
                self._running[event.request_id] = now
        elif isinstance(event, ToolResponse):
            began = self._running.pop(event.request_id, None)
            self._asked.pop(event.request_id, None)
            if began is not None and "subagent" in (event.display or {}):
                pass  # an agent's work, not a tool's
            elif began is not None and event.status not in ("denied", "cancelled"):
                self._tools.append((began, now))
            elif began is not None and event.status == "cancelled" and event.request_id in self._waits:
                self._you.append((began, now))  # it had not started: it waited for a word until the turn was ended
            self._waits.discard(event.request_id)

    def _usage(self, event: Usage) -> None:
        self.model = event.model or self.model
        if event.input_tokens is not None:
            self.input_tokens = (self.input_tokens or 0) + event.input_tokens
        out = [tokens for tokens in (event.output_tokens, event.reasoning_tokens) if tokens is not None]
        if out:
            self.output_tokens = (self.output_tokens or 0) + sum(out)
        if event.cost is None:
            self._cost_unknown = True
        else:
            self.cost = (self.cost or 0.0) + event.cost
        if event.context_window and event.input_tokens is not None:
            # A count is any whole number that JSON can say, and a division may have no float.
            self.context_used = min(event.input_tokens, 1000 * event.context_window) / event.context_window

    @property
    def elapsed_s(self) -> float:
        """From the first event to the last."""
        return 0.0 if self.first is None or self.last is None else self.last - self.first

    @property
    def you_s(self) -> float:
        """Time a person was waited for."""
        return _length(_union(self._you))

    @property
    def tools_s(self) -> float:
        """Time a tool ran while nobody was asked anything."""
        return max(0.0, _length(_union([*self._you, *self._tools])) - self.you_s)

    @property
    def model_s(self) -> float:
        """The rest."""
        return max(0.0, self.elapsed_s - self.tools_s - self.you_s)

    @property
    def money(self) -> str:
        """``$0.031``; ``at least $0.031`` when some call did not say; ``cost n/a`` when none did."""
        if self.cost is None:
            return "cost n/a"
        text = f"${self.cost:.3f}"
        return f"at least {text}" if self._cost_unknown else text


def _union(spans: Iterable[_Span]) -> list[_Span]:
    out: list[_Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def _length(spans: Iterable[_Span]) -> float:
    return sum(end - start for start, end in spans)
