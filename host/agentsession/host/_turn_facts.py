"""What a turn knows for those who decide on its requests, and for sub-agents: who asks, in which mode, what is left.

Not for: deciding (``_requests.py``) or reading the stream (``_turn.py``). Rules carried: CTL-08.
May import: anyio, ``_attached``, ``_lineage``, ``_principals``, ``_rest``, ``_results``, ``protocol``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import anyio

from agentsession.host._attached import Attached
from agentsession.host._lineage import stricter
from agentsession.host._principals import Principals
from agentsession.host._rest import Rest, rest_of
from agentsession.host._results import UsageTotals
from agentsession.protocol import (
    Constraints,
    ElicitationRequest,
    ExecutionOptions,
    ToolRequest,
    Usage,
    tightest,
)

__all__ = ["TurnFacts"]


class TurnFacts:
    """Those of one turn."""

    def __init__(self, attached: Attached) -> None:
        self._attached = attached
        self._session = attached.session
        self.principals = Principals(attached.session)
        self.requests: dict[str, ToolRequest] = {}
        """The tool requests that were seen, by id."""
        self.turn_id: str | None = None
        self.usage = UsageTotals()
        """Of this turn's agent and of its sub-agents."""
        self._began_at = 0.0
        self._limits = Constraints()
        self._deadline: str | None = None

    # --- who asks ------------------------------------------------------------------------------------------------

    def of(self, request: ToolRequest | ElicitationRequest) -> dict[str, Any]:
        """The fields of a :class:`agentsession.host.PolicyRequest` that the turn knows."""
        above = self._attached.above
        path = (*(above.path if above is not None else ()), *self.principals.path(request))
        return {
            "principal": path[-1],
            "principal_path": path,
            "session_id": self._session.session_id,
            "turn_id": request.turn_id,
            "user_id": self._attached.user_id,
            "permission_mode": self._mode(request.turn_id),
            "root_session_id": self._session.session_id if above is None else above.root_session_id,
        }

    def _mode(self, turn_id: str | None) -> str:
        chosen, above = self._attached.turn_mode, self._attached.above
        mode = chosen[1] if chosen is not None and chosen[0] == turn_id else self._attached.permission_mode
        return mode if above is None else stricter(above.mode(), mode)

    def set_turn_mode(self, turn_id: str | None, options: ExecutionOptions | None) -> None:
        """Keep the mode that a turn's options set, if they do."""
        if options is not None and options.permission_mode is not None:
            self._attached.turn_mode = (turn_id, options.permission_mode)

    async def find_request(self, request_id: str) -> ToolRequest | None:
        """A tool request of the session, also one of before this turn."""
        found = self.requests.get(request_id)
        if found is None:
            async for event in self._session.events(types={"tool_request"}):
                if isinstance(event, ToolRequest) and event.request_id == request_id and not event.partial:
                    found = event
        return found

    # --- what is left --------------------------------------------------------------------------------------------

    def begin(self, options: ExecutionOptions | None) -> None:
        """Its time runs from now. Of its limits, what it does not give comes from its session."""
        self._began_at = anyio.current_time()
        given = [item for item in (options, self._attached.execution) if item is not None]
        limits = next((item.limits for item in given if item.limits is not None), None)
        self._limits = tightest(self._session.descriptor.constraints, limits)
        self._deadline = next((item.deadline for item in given if item.deadline is not None), None)

    @property
    def is_timed(self) -> bool:
        """Whether it may be at work for so long and no longer."""
        return self._limits.max_time_seconds is not None

    def add_usage(self, event: Usage) -> None:
        """Count one model call of this turn's agent or of a sub-agent's, here and in the turns above."""
        self.usage.add(event)
        if event.thread_id is not None and event.session_id != self._session.session_id:
            self._below().append(event)
        if self._attached.above is not None:
            self._attached.above.add_usage(event)

    def _below(self) -> list[Usage]:
        """The model calls of this turn's sub-agents, also of those that were at work before a pause."""
        if self._attached.usage_below is None or self._attached.usage_below[0] != self.turn_id:
            self._attached.usage_below = (self.turn_id, [])
        return self._attached.usage_below[1]

    async def rest(self, people_s: float) -> Rest:
        """What is left of the turn's limits, and of those of the turns above it; ``people_s`` of it people took."""
        active_s = anyio.current_time() - self._began_at - people_s
        found = await rest_of(self._session, self.turn_id, self._limits, self._below(), active_s)
        found = dataclasses.replace(found, deadline=self._deadline)
        above = self._attached.above
        return found if above is None else found.under(await above.caller.rest())
