"""Jobs of the agent's own: calls whose outcome comes from elsewhere, and from no client.

Not for: answering them (the program that serves does). Rules carried: none. May import: ``protocol``.
"""

from __future__ import annotations

from agentsession.protocol import PendingRequest, ToolRequest

__all__ = ["is_a_job"]


def is_a_job(request: PendingRequest) -> bool:
    """Whether ``request`` waits for the outcome of a job of the agent's. Under a host the program that serves tells it,
    and no client can."""
    return isinstance(request, ToolRequest) and request.needs == "result" and request.owner == "agent"
