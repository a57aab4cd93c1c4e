"""What the sub-agents ask that a host runs in sessions of their own, as the front end is to see it.

Not for: running them (``agentsession.host``). Rules carried: HITL-11. May import: the host's ``_child_events``,
``protocol``.
"""

from __future__ import annotations

from collections.abc import Callable

from agentsession.host import Host
from agentsession.host._child_events import placed
from agentsession.host.live import LiveSession
from agentsession.protocol import AgentSession, PendingRequest

__all__ = ["asked_below"]

Shown = Callable[[PendingRequest], PendingRequest]


def asked_below(live: LiveSession) -> dict[str, list[PendingRequest]]:
    """By the request of the session that it is asked for: with ids and threads as its record has them."""
    host = live.agent.host
    return {} if host is None else _below(host, live.session, lambda request: request)


def _below(host: Host, session: AgentSession, shown: Shown) -> dict[str, list[PendingRequest]]:
    found: dict[str, list[PendingRequest]] = {}
    pending = {request.request_id: request for request in session.pending}
    for child in host.children(session):
        caller = pending.get(child.request_id)
        if caller is None:
            continue
        thread, agent, above = child.thread_id, child.principal_path[-1], caller.thread_id

        def place(
            request: PendingRequest, thread: str = thread, agent: str = agent, above: str | None = above
        ) -> PendingRequest:
            return shown(placed(request, thread, agent, above))

        deeper = _below(host, child.session, place)
        asked = [place(request) for request in child.session.pending if request.request_id not in deeper]
        found[child.request_id] = [*asked, *(request for requests in deeper.values() for request in requests)]
    return found
