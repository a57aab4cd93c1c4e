"""What a failed model call means, when to call again, and which models can be called. Pure: no clock, no randomness.

Not for: choosing a model (``_router.py``). Rules carried: none of its own. May import: ``protocol``.

A model is ``healthy``; ``sticky_retry`` after it failed once in a turn, so that it is tried once more; or terminal for
a while: ``quota`` (used up, until it is reset), ``capacity`` (overloaded) or ``missing`` (there is none of that name).
"""

from __future__ import annotations

import dataclasses
import random
from typing import Final, Literal

from agentsession.protocol import ModelErrorHook

__all__ = [
    "CAPACITY_S",
    "HEALTHY",
    "LONGEST_WAIT_S",
    "TRIES",
    "TRIES_IN_CHAIN",
    "Failure",
    "Health",
    "HealthEvent",
    "classify",
    "next_delay",
    "transition",
]

TRIES: Final = 10
"""Calls of a model for one answer, where no other is left."""

TRIES_IN_CHAIN: Final = 3
"""The same where another model can be called instead."""

FIRST_S: Final = 5.0
LONGEST_S: Final = 30.0
_JITTER: Final = 0.3
_ON_TOP: Final = 0.2
"""How much is added at most to what the provider asks for, so that not all come back at once."""

LONGEST_WAIT_S: Final = 300.0
"""A provider that asks for more is not waited for."""

CAPACITY_S: Final = 30.0
"""How long an overloaded model is left alone."""

QUOTA_S: Final = 3600.0
"""The same for a used up quota of which nobody says when it is reset."""

_CROWDED_S: Final = (1.0, 3.0)
"""Waits for an overloaded model where another can be called instead."""

_TRANSIENT: Final = frozenset(
    {"ABORTED", "CANCELLED", "DATA_LOSS", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
)
_TRANSIENT_CODES: Final = frozenset({408, 425, 429, 499})

FailureKind = Literal["terminal", "transient", "not_found", "unknown"]
"""``terminal``: a quota is used up. ``transient``: it may work soon. ``unknown``: calling again does not help."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """What a failed call means."""

    kind: FailureKind
    hint: float | None = None
    """Seconds that the provider asks to wait."""
    crowded: bool = False
    """The provider is overloaded, which is nobody's quota."""

    @property
    def can_recover(self) -> bool:
        """Another call, of this or another model, may work."""
        return self.kind != "unknown"


def classify(error: ModelErrorHook) -> Failure:
    """What a model's error means, by its status and code: its text is not known."""
    code, status, hint = error.code, error.status, error.retry_after_s
    if error.exhausted:
        return Failure("terminal", hint)
    if code == 404 or (code is None and status == "NOT_FOUND"):
        return Failure("not_found")
    again = code in _TRANSIENT_CODES or code >= 500 if code is not None else status in _TRANSIENT
    if not again or status == "UNIMPLEMENTED" or code == 501:
        return Failure("unknown")
    if hint is not None and hint > LONGEST_WAIT_S:
        return Failure("terminal", hint)
    return Failure("transient", hint, crowded=code in (503, 529) or (code is None and status == "UNAVAILABLE"))


def next_delay(
    n: int, hint: float | None, rng: random.Random, *, tries: int = TRIES, crowded: bool = False
) -> float | None:
    """Seconds to wait after the ``n``-th call failed (from 1); ``None``: no further call.

    The provider's ``hint`` is the least that is waited. ``crowded``: the model is overloaded and another stands ready.
    """
    if n >= tries or (hint is not None and hint > LONGEST_WAIT_S):
        return None
    if hint is not None and hint >= 1:
        return hint * (1 + _ON_TOP * rng.random())
    if crowded:
        return _CROWDED_S[min(n, len(_CROWDED_S)) - 1]
    delay = min(LONGEST_S, FIRST_S * 2.0 ** min(n - 1, 10))
    return delay * (1 + _JITTER * (2 * rng.random() - 1))


# --- health -----------------------------------------------------------------------------------------------------------

HealthState = Literal["healthy", "sticky_retry", "capacity", "quota", "missing"]
HealthEvent = Literal["success", "turn", "transient", "capacity", "quota", "missing"]
"""``turn``: somebody speaks to the agent. ``transient``: it failed, and may be tried once more."""

_RANK: Final[dict[str, int]] = {"healthy": 0, "sticky_retry": 1, "capacity": 2, "quota": 3, "missing": 4}


@dataclasses.dataclass(frozen=True, slots=True)
class Health:
    """A model's state, and until when it holds; ``None``: until it answers."""

    state: HealthState = "healthy"
    until: float | None = None

    def is_available(self, now: float) -> bool:
        """Whether it can be called."""
        return _RANK[self.state] < _RANK["capacity"] or (self.until is not None and now >= self.until)


HEALTHY: Final = Health()


def transition(health: Health, event: HealthEvent, now: float, hint: float | None = None) -> Health:
    """The state after an event. A terminal state is never made milder but by success, or when its time is over."""
    if event == "success":
        return HEALTHY
    present = HEALTHY if health.until is not None and now >= health.until else health
    if event == "turn":
        return HEALTHY if present.state == "sticky_retry" else present
    if event == "transient":
        event = "capacity" if present.state == "sticky_retry" else event
        if present.state == "healthy":
            return Health("sticky_retry")
    if event == "transient" or _RANK[event] < _RANK[present.state]:
        return present
    if event == "missing":
        return Health("missing")
    lasts = CAPACITY_S if event == "capacity" else hint if hint is not None else QUOTA_S
    until = now + lasts
    if present.state == event and present.until is not None:
        until = max(until, present.until)
    return Health(event, until)
