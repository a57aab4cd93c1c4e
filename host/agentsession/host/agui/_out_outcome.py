"""How a run ends: usage summed over its model calls, and which of AG-UI's outcomes a stream's end is.

Not for: closing what is open, or snapshots (``_out.py``). Pure. Rules carried: none of the contract's.
May import: the host's ``_jobs``, ``protocol``, ``_out_interrupts``, ``_out_known``, ``_out_wire``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from agentsession.host._jobs import is_a_job
from agentsession.host.agui._out_interrupts import is_client_call, known_interrupt
from agentsession.host.agui._out_known import Asked, Known
from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import Error, StreamEnd, Usage

__all__ = ["Outcome", "Spending", "outcome_of", "waits"]

_LARGEST: Final = 2**53 - 1
_ERRORS: Final = {
    "failed": "The run failed.",
    "max_turns": "The run took more steps than it may.",
    "max_llm_calls": "The run called the model more often than it may.",
    "max_budget": "The run cost more than it may.",
    "max_time": "The run took longer than it may.",
    "deadline": "The run was not done at its deadline.",
}
"""Ends that are a ``RUN_ERROR``, with what is said where no error was told."""


class Spending:
    """What the model calls of one run used, a row for each model. A count that nobody reported is absent."""

    def __init__(self) -> None:
        self._rows: dict[str | None, dict[str, int]] = {}
        self.cost: float | None = None
        """US dollars; absent where none was reported."""

    def add(self, usage: Usage) -> None:
        """Count one call."""
        row = self._rows.setdefault(usage.model, {})
        output = usage.output_tokens
        if usage.reasoning_tokens is not None:
            output = (output or 0) + usage.reasoning_tokens  # AG-UI's count has both
        counts = {
            "inputTokens": usage.input_tokens,
            "outputTokens": output,
            "totalTokens": usage.total_tokens,
            "reasoningTokens": usage.reasoning_tokens,
            "cachedInputTokens": usage.cached_tokens,
        }
        for name, count in counts.items():
            if count is not None:
                row[name] = min(_LARGEST, row.get(name, 0) + count)
        if usage.cost is not None:
            self.cost = (self.cost or 0.0) + usage.cost

    def rows(self) -> list[Wire]:
        """As the last event of the run has it."""
        named = ((model, row) for model, row in self._rows.items() if row)
        return [row if model is None else {"model": model, **row} for model, row in named]


class Outcome(NamedTuple):
    """The terminal event's own part: an outcome, or an error's message and code."""

    outcome: Wire | None
    message: str = ""
    code: str | None = None
    about: dict[str, Any] = {}  # noqa: RUF012  # never written to
    needs_snapshots: bool = False
    """Whether a client must know the whole conversation before it: a person decides on it."""


def waits(end: StreamEnd, known: Known) -> list[Asked]:
    """What an end says that waits, in the order in which it was asked."""
    pending = set(end.pending)
    return [request for request_id, request in known.asked.items() if request_id in pending]


def outcome_of(
    end: StreamEnd,
    known: Known,
    fatal: Error | None,
    client_tools: Collection[str] | None,
    more: Sequence[Wire] = (),
) -> Outcome:
    """The outcome of ``end``. ``fatal``: the error that ended it; ``more``: interrupts that the host itself has."""
    data = end.data or {}
    about: dict[str, Any] = {"reason": end.reason}
    about |= {name: data[name] for name in ("empty", "cause", "undelivered", "grace") if name in data}
    if fatal is not None or end.reason in _ERRORS:
        message = fatal.message if fatal is not None else _ERRORS[end.reason]
        code = (fatal.code or fatal.status) if fatal is not None else end.reason
        return Outcome(None, message, code, about)
    if end.reason == "aborted":
        return Outcome({"type": "cancelled"}, about=about)
    if end.reason != "input_required":
        return Outcome({"type": "success"}, about=about)
    asked = [request for request in waits(end, known) if client_tools is None or not is_a_job(request)]
    calls = [request.request_id for request in asked if is_client_call(request, client_tools)]
    interrupts = [known_interrupt(request, known) for request in asked if not is_client_call(request, client_tools)]
    interrupts += more
    if not interrupts:
        return Outcome({"type": "success", "pendingToolCallIds": calls}, about=about)
    if calls:
        about["pendingToolCallIds"] = calls
    return Outcome({"type": "interrupt", "interrupts": interrupts}, about=about, needs_snapshots=True)
