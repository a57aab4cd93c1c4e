"""What is left of a turn's limits for a sub-agent that it begins: model calls, money, time, the deadline.

Not for: keeping limits, which each session does itself. Rules carried: CTL-08, HITL-11 (time of people does not count).
May import: ``protocol``.

Model steps (``max_turns``) are each agent's own. Sub-agents that are at work side by side are each given what is left
as they begin: together they may pass it, by what the others use meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime

from agentsession.protocol import AgentSession, Constraints, Usage, tightest

__all__ = ["Rest", "earliest", "rest_of"]


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


async def rest_of(
    session: AgentSession, turn_id: str | None, limits: Constraints, children: Sequence[Usage], active_s: float
) -> Rest:
    """``limits`` without what the turn has used: by its record, by its sub-agents, and ``active_s`` seconds."""
    used = [*children]
    async for event in session.events(types={"usage"}):
        if isinstance(event, Usage) and event.turn_id == turn_id:
            used.append(event)
    left: dict[str, float | int | None] = {
        "max_llm_calls": None if limits.max_llm_calls is None else limits.max_llm_calls - len(used),
        "max_budget_usd": None
        if limits.max_budget_usd is None
        else limits.max_budget_usd - sum(item.cost or 0.0 for item in used),
        "max_time_seconds": None if limits.max_time_seconds is None else limits.max_time_seconds - active_s,
    }
    used_up = next((name for name, value in left.items() if value is not None and value <= 0), None)
    given = {name: value for name, value in left.items() if value is not None and value > 0}
    return Rest(Constraints.model_validate(given), None, used_up)
