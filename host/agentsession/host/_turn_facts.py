"""What a turn knows for those who decide on its requests: who asks, where, in which mode.

Not for: deciding (``_decider.py``), or what is left of the turn's limits (``_turn_limits.py``).
Rules carried: none of its own. May import: ``_attached``, ``_lineage``, ``_principals``, ``protocol``.
"""

from __future__ import annotations

from typing import Any

from agentsession.host._attached import Attached
from agentsession.host._lineage import stricter
from agentsession.host._principals import Principals
from agentsession.protocol import ElicitationRequest, ExecutionOptions, ToolRequest

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
