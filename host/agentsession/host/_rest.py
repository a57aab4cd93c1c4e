"""What was used of a turn's limits, and what is left of them: model calls, money, time, the deadline.

Not for: counting (``_turn_limits.py``), or keeping limits, which each session does itself. Rules carried: CTL-08.
May import: ``protocol``.

Model steps (``max_turns``) are each agent's own.
"""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime
from typing import TypeVar

from agentsession.protocol import Constraints, Spent, tightest

__all__ = ["Rest", "Used", "earliest", "least"]

N = TypeVar("N", int, float)


@dataclasses.dataclass(slots=True)
class Used:
    """Model calls, and US dollars: infinite once nobody knows what a call has cost."""

    calls: int = 0
    cost: float = 0.0

    @classmethod
    def of(cls, spent: Spent) -> Used:
        """What a result says that its call has used."""
        unknown = spent.cost is None and spent.model_calls > 0
        return cls(spent.model_calls, math.inf if unknown else spent.cost or 0.0)

    @property
    def spent(self) -> Spent:
        """As it is said with a result."""
        return Spent(model_calls=self.calls, cost=None if self.cost == math.inf else self.cost)

    def call(self, cost: float | None) -> None:
        """Count a model call."""
        self.join(Used(1, math.inf if cost is None else cost))

    def join(self, other: Used) -> None:
        """Count another's too."""
        self.calls += other.calls
        self.cost += other.cost

    def missing(self, whole: Used) -> Used | None:
        """What ``whole`` has that is not counted here; ``None``: nothing."""
        calls = max(0, whole.calls - self.calls)
        cost = 0.0 if self.cost >= whole.cost else whole.cost - self.cost
        return Used(calls, cost) if calls or cost else None


@dataclasses.dataclass(frozen=True, slots=True)
class Rest:
    """What is left."""

    limits: Constraints = dataclasses.field(default_factory=Constraints)
    deadline: str | None = None
    used_up: str | None = None
    """The first limit of which nothing is left."""

    def under(self, above: Rest) -> Rest:
        """The tighter one of this and what is left further up."""
        deadline = earliest(self.deadline, above.deadline)
        return Rest(tightest(self.limits, above.limits), deadline, above.used_up or self.used_up)


def earliest(*deadlines: str | None) -> str | None:
    """The first of some moments in time; one that cannot be read goes before all, and the session refuses it."""

    def moment(text: str) -> datetime:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            return datetime.min.replace(tzinfo=UTC)
        return found if found.tzinfo is not None else datetime.min.replace(tzinfo=UTC)

    return min((item for item in deadlines if item is not None), key=moment, default=None)


def least(first: N | None, second: N | None) -> N | None:
    """The smaller of two limits, where ``None`` is none."""
    return min((value for value in (first, second) if value is not None), default=None)
