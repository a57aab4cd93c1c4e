"""What belongs to the limits of a turn beside the limits themselves: which is tighter, prices, and a last word.

Not for: keeping them (an executor does) or the limits (``Constraints`` in ``_descriptor.py``). Rules carried: CTL-08.
May import: ``_base``, ``_descriptor``, ``_events``.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from agentsession.protocol._base import Float, Id, Model, optional
from agentsession.protocol._descriptor import Constraints
from agentsession.protocol._events import Usage

__all__ = ["Grace", "Price", "tightest", "usage_cost"]


class Grace(Model):
    """One more model call for a turn that reached a limit: the agent says where it got to, and starts nothing.

    Given after ``max_turns``, ``max_llm_calls``, ``max_time``, and ``max_budget`` where a part of it is reserved. The
    reason of the ``stream_end`` stays the limit; ``data.grace`` says what came of it: ``completed``, ``failed`` or
    ``skipped``.
    """

    seconds: Float = Field(default=60.0, gt=0)
    """How long it may take, whatever the turn's own time was."""
    reserve_usd: Float | None = optional(gt=0)
    """The part of ``max_budget_usd`` that is kept for it; absent: no last word once the budget is spent."""
    completion_tool: Id | None = optional()
    """The only tool that may be called in it, such as one that hands in what there is."""


class Price(Model):
    """What a million tokens of a model cost, in US dollars."""

    input: Float = Field(ge=0)
    output: Float = Field(ge=0)
    """Of what the model says and of what it reasons."""
    cached_input: Float | None = optional(ge=0)
    """Of the input tokens that came from a cache; absent: as any input."""


def tightest(*limits: Constraints | None) -> Constraints:
    """Of each limit the smallest that is given: an agent's own limits cannot be loosened by a host."""
    found: dict[str, Any] = {}
    for one in limits:
        for name in Constraints.model_fields:
            value = getattr(one, name, None)
            if value is not None:
                found[name] = min(value, found.get(name, value))
    return Constraints(**found)


def usage_cost(usage: Usage, prices: Mapping[str, Price]) -> float | None:
    """What one model call has cost: as it says itself, else by a list of prices; ``None`` where neither tells.

    A key is the name of a model, or a pattern such as ``gemini-*``; a name goes before a pattern, a longer pattern
    before a shorter one. A model that is not in the list, or a call that did not report how many tokens it read and
    wrote, has an unknown cost, never none.
    """
    if usage.cost is not None:
        return usage.cost
    price = _price_of(usage.model or "", prices)
    read, written, total = usage.input_tokens, usage.output_tokens, usage.total_tokens
    reasoned = usage.reasoning_tokens or 0
    if written is None and total is not None and read is not None:
        written = max(0, total - read - reasoned)  # an answer that holds nothing has no count of its own
    if price is None or read is None or written is None:
        return None
    cached = min(usage.cached_tokens or 0, read)
    cheap = price.input if price.cached_input is None else price.cached_input
    return ((read - cached) * price.input + cached * cheap + (written + reasoned) * price.output) / 1_000_000


def _price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    if model in prices:
        return prices[model]
    fitting = [pattern for pattern in prices if fnmatch.fnmatchcase(model, pattern)]
    return prices[max(fitting, key=len)] if fitting else None
