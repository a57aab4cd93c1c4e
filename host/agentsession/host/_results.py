"""What a turn came to: its end, its answers, its text, what it used, and how long who took.

Not for: running it (``_turn.py``). May import: anyio, ``protocol``.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator

import anyio

from agentsession.protocol import (
    REDACTED,
    AgentSession,
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    Error,
    Receipt,
    StreamEnd,
    Usage,
    redact_marked,
)

__all__ = ["Answered", "Stopwatch", "TimeBetweenStreams", "TurnResult", "UsageTotals", "without_secrets"]


@dataclasses.dataclass(frozen=True, slots=True)
class Answered:
    """One answer that the host gave, and what became of it."""

    answer: Answer
    receipt: Receipt


@dataclasses.dataclass(slots=True)
class UsageTotals:
    """The sum of the usage events of a turn. A count that no call reported is ``None``, not 0."""

    calls: int = 0
    """Model calls that reported usage."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    cost: float | None = None
    """US dollars, of the calls that reported it."""
    cost_complete: bool = True
    """Whether every call reported its cost; when not, ``cost`` is a lower bound."""

    def add(self, usage: Usage) -> None:
        """Count one model call."""
        self.calls += 1
        self.input_tokens = _plus(self.input_tokens, usage.input_tokens)
        self.output_tokens = _plus(self.output_tokens, usage.output_tokens)
        self.cached_tokens = _plus(self.cached_tokens, usage.cached_tokens)
        self.reasoning_tokens = _plus(self.reasoning_tokens, usage.reasoning_tokens)
        self.total_tokens = _plus(self.total_tokens, usage.total_tokens)
        if usage.cost is None:
            self.cost_complete = False
        else:
            self.cost = (self.cost or 0.0) + usage.cost


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn ended, or where it waits."""

    end: StreamEnd
    """The last stream's end; with reason ``input_required`` the turn waits and ``run_turn(session)`` continues it."""
    text: str
    """What the agent said last on the main thread."""
    messages: tuple[str, ...] = ()
    """The text of each of its messages on the main thread."""
    answers: tuple[Answered, ...] = ()
    """Every answer of the host, with its receipt, progress left out."""
    unanswered: tuple[str, ...] = ()
    """The requests that wait for the host."""
    usage: UsageTotals
    errors: tuple[Error, ...] = ()
    still_running: tuple[str, ...] = ()
    """Requests whose sync tool was given up and whose thread could not be stopped: it may still have effects."""
    elapsed_s: float = 0.0
    people_s: float = 0.0
    """Seconds in which at least one person was asked."""
    tools_s: float = 0.0
    """Seconds in which at least one host tool ran and asked nobody."""

    @property
    def completed(self) -> bool:
        """Whether the turn came to its own end."""
        return self.end.reason == "completed"

    @property
    def session_id(self) -> str:
        """The session that the turn is of."""
        return self.end.session_id


class Stopwatch:
    """Measures the union of overlapping stretches, by the clock of the event loop."""

    def __init__(self) -> None:
        self._total = 0.0
        self._running = 0
        self._since = 0.0

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        """Count the time inside, once however many are inside."""
        if self._running == 0:
            self._since = anyio.current_time()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0:
                self._total += anyio.current_time() - self._since

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Inside :meth:`running`: leave this stretch out; others that run meanwhile still count."""
        self._running -= 1
        if self._running == 0:
            self._total += anyio.current_time() - self._since
        try:
            yield
        finally:
            if self._running == 0:
                self._since = anyio.current_time()
            self._running += 1

    @property
    def total_s(self) -> float:
        """Seconds so far."""
        return self._total + (anyio.current_time() - self._since if self._running else 0.0)


class TimeBetweenStreams:
    """Of what a stopwatch measures, the part in which no stream was open: the session has not seen it."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._is_open = False
        self._since_s = 0.0
        self._untold_s = 0.0

    @contextlib.contextmanager
    def stream(self) -> Generator[None]:
        """Leave out the time inside."""
        self._read()
        self._is_open = True
        try:
            yield
        finally:
            self._is_open, self._since_s = False, self._watch.total_s

    def take(self) -> float:
        """Seconds since the last :meth:`take`."""
        self._read()
        taken, self._untold_s = self._untold_s, 0.0
        return taken

    def put_back(self, seconds: float) -> None:
        """They could not be told."""
        self._untold_s += seconds

    def _read(self) -> None:
        if not self._is_open:
            now = self._watch.total_s
            self._untold_s += now - self._since_s
            self._since_s = now


def _plus(total: int | None, more: int | None) -> int | None:
    return total if more is None else (total or 0) + more


def without_secrets(answer: Answer, session: AgentSession) -> Answer:
    """``answer`` as it may be shown and kept: what its question marks as a secret, or a credential, is taken out."""
    if not isinstance(answer, ElicitationAnswer) or answer.action != "accept" or answer.content is None:
        return answer
    question = next((one for one in session.pending if one.request_id == answer.request_id), None)
    if not isinstance(question, ElicitationRequest) or question.kind == "auth_required":
        return answer.model_copy(update={"content": REDACTED})  # fail closed: nobody says what it is
    return answer.model_copy(update={"content": redact_marked(answer.content, question.requested_schema)})
