"""What a turn and the sub-agents below it have used of its limits, what is left, and who is told of it.

Not for: ending a turn at a limit, which its session does. Rules carried: CTL-08, HITL-11 (time of people does not
count). May import: anyio, ``_attached``, ``_rest``, ``_results``, ``protocol``.

Theory of operation. Sub-agents at work side by side share what is left to their callers, model calls and money. Each
model call is counted as it is seen, at the turn that made it and at each one above. Then every turn of the tree tells
its session what its *own* calls may come to: those that it has made, and what is left to it and all above it. So it
ends at its own next model call where others have used the rest, with its own reason and its own last word; together
they go beyond a limit by the calls that were in flight, and no more.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from datetime import datetime

import anyio

from agentsession.host._attached import Attached
from agentsession.host._rest import Rest, Used, least
from agentsession.host._results import UsageTotals
from agentsession.protocol import (
    Constraints,
    ExecutionOptions,
    SharesLimits,
    Spent,
    ToolResponse,
    Usage,
    tightest,
)

__all__ = ["TurnLimits"]


class TurnLimits:
    """Those of one turn."""

    def __init__(self, attached: Attached, people_s: Callable[[], float]) -> None:
        self._attached = attached
        self._session = attached.session
        self._people_s = people_s
        self.usage = UsageTotals()
        """Of this turn's agent and of its sub-agents, as far as this host saw them at work."""
        self._turn_id: str | None = None
        self._limits = Constraints()
        self._deadline: str | None = None
        self._began_at = 0.0
        self._before_s = 0.0
        """How long the turn was at work before, in streams of which this knows by the record alone."""
        self._own = Used()
        self._counted_seq = 0
        self._below: dict[str, Used] = {}
        """By the request that a sub-agent, or a tool that tells what it used, works for."""
        self._turns_below: set[TurnLimits] = set()

    # --- its life -----------------------------------------------------------------------------------------------

    def begin(self, options: ExecutionOptions | None) -> None:
        """Its time runs from now. Of its limits, what it does not give comes from its session."""
        self._began_at = anyio.current_time()
        given = [item for item in (options, self._attached.execution) if item is not None]
        limits = next((item.limits for item in given if item.limits is not None), None)
        self._limits = tightest(self._session.descriptor.constraints, limits)
        self._deadline = next((item.deadline for item in given if item.deadline is not None), None)

    def end(self) -> None:
        """No turn is at work here."""
        if self._attached.above is not None:
            self._attached.above.caller.limits._turns_below.discard(self)

    async def found(self, turn_id: str, *, goes_on: bool) -> None:
        """Which turn it is. One that goes on has used something before: by its record, and by what this host saw of
        its sub-agents."""
        if turn_id == self._turn_id:
            return
        self._turn_id = turn_id
        if self._attached.used_below is None or self._attached.used_below[0] != turn_id:
            self._attached.used_below = (turn_id, {})
        self._below = self._attached.used_below[1]
        if goes_on and (self._is_limited or self.is_timed):
            await self._recall(turn_id)
        # Not before: it would be told that its calls of before are more than it may make.
        if self._attached.above is not None:
            self._attached.above.caller.limits._turns_below.add(self)

    async def _recall(self, turn_id: str) -> None:
        spans: dict[str, tuple[datetime, datetime]] = {}
        async for event in self._session.events(types=None if self.is_timed else {"usage", "tool_response"}):
            if event.turn_id != turn_id:
                continue
            if isinstance(event, Usage):
                self._own.call(event.cost)
                self._counted_seq = event.seq
            elif isinstance(event, ToolResponse) and event.spent is not None:
                self._below.setdefault(event.request_id, Used.of(event.spent))
                self._before_s += event.spent.seconds or 0.0
            if event.stream_id is not None:
                with contextlib.suppress(ValueError):  # a foreign record with another form of time
                    moment = datetime.fromisoformat(event.timestamp)
                    spans[event.stream_id] = (spans.get(event.stream_id, (moment,))[0], moment)
        self._before_s += sum((last - first).total_seconds() for first, last in spans.values())

    @property
    def is_timed(self) -> bool:
        """Whether it may be at work for so long and no longer."""
        return self._limits.max_time_seconds is not None

    @property
    def _is_limited(self) -> bool:
        above = self._attached.above
        limits = self._limits
        own = limits.max_llm_calls is not None or limits.max_budget_usd is not None
        return own or (above is not None and above.caller.limits._is_limited)

    # --- counting -----------------------------------------------------------------------------------------------

    def count(self, event: Usage) -> None:
        """A model call of this turn's agent."""
        self.usage.add(event)
        if event.seq > self._counted_seq:
            self._counted_seq = event.seq
            self._own.call(event.cost)
        self._count_above(event)
        self._root.tell()

    def count_below(self, request_id: str, event: Usage) -> None:
        """A model call of a sub-agent, however deep, that works for a request of this turn."""
        self.usage.add(event)
        self._below.setdefault(request_id, Used()).call(event.cost)
        self._count_above(event)

    def _count_above(self, event: Usage) -> None:
        above = self._attached.above
        if above is not None:
            above.caller.limits.count_below(above.caller.answers, event)

    def count_response(self, event: ToolResponse) -> None:
        """A response came; of what it says was used, what a sub-agent has used was counted as it went."""
        self.learn(event.request_id, event.spent)

    def learn(self, request_id: str, spent: Spent | None) -> None:
        """What the call of this request has used in all, part of it perhaps where nobody here saw it."""
        if spent is None:
            return
        more = self._below.get(request_id, Used()).missing(Used.of(spent))
        if more is None:
            return
        limits: TurnLimits = self
        while True:
            limits._below.setdefault(request_id, Used()).join(more)
            above = limits._attached.above
            if above is None:
                break
            limits, request_id = above.caller.limits, above.caller.answers
        limits.tell()

    def used_by(self, request_id: str) -> Spent | None:
        """What the call of this request is known to have used."""
        used = self._below.get(request_id)
        return None if used is None else used.spent

    # --- what is left -------------------------------------------------------------------------------------------

    def rest(self, returning: Spent | None = None) -> Rest:
        """What is left of the turn's limits, and of those of the turns above it.

        ``returning``: what was used by one that counts it again, as a session does that goes on with its turn.
        """
        limits = self._limits
        active_s = self._before_s + anyio.current_time() - self._began_at - self._people_s()
        left = self._left_here(Used() if returning is None else Used.of(returning))
        seconds = None if limits.max_time_seconds is None else limits.max_time_seconds - active_s
        values: dict[str, float | int | None] = {
            "max_llm_calls": left[0],
            "max_budget_usd": left[1],
            "max_time_seconds": seconds,
        }
        used_up = next((name for name, value in values.items() if value is not None and value <= 0), None)
        given = {name: value for name, value in values.items() if value is not None and value > 0}
        found = Rest(Constraints.model_validate(given), self._deadline, used_up)
        above = self._attached.above
        return found if above is None else found.under(above.caller.limits.rest(returning))

    def _left_here(self, returning: Used) -> tuple[int | None, float | None]:
        used = Used(-returning.calls, -returning.cost if returning.cost != math.inf else 0.0)
        for each in (self._own, *self._below.values()):
            used.join(each)
        calls, cost = self._limits.max_llm_calls, self._limits.max_budget_usd
        return None if calls is None else calls - used.calls, None if cost is None else cost - used.cost

    def _left(self) -> tuple[int | None, float | None]:
        calls, cost = self._left_here(Used())
        if self._attached.above is None:
            return calls, cost
        calls_above, cost_above = self._attached.above.caller.limits._left()
        return least(calls, calls_above), least(cost, cost_above)

    # --- telling ------------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Tell this turn's session, and those of its sub-agents, what their own model calls may come to."""
        session = self._session
        if isinstance(session, SharesLimits):
            calls, cost = self._left()
            if calls is not None or cost is not None:
                session.limit_own(
                    model_calls=None if calls is None else self._own.calls + max(0, calls),
                    cost=None if cost is None else self._own.cost + max(0.0, cost),
                )
        for turn in list(self._turns_below):
            turn.tell()

    @property
    def _root(self) -> TurnLimits:
        found = self
        while found._attached.above is not None:
            found = found._attached.above.caller.limits
        return found
