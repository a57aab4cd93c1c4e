"""What the sub-agents ask that a host runs in sessions of their own, as the front end is to see it.

Not for: running them (``agentsession.host``). Rules carried: HITL-11. May import: the host's ``_child_events``,
``_jobs``, ``live``, ``_out_known``, ``protocol``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentsession.host import Host, SubagentTool
from agentsession.host._child_events import placed, thread_of, works_for
from agentsession.host._jobs import is_a_job
from agentsession.host.agui._out_known import Asked, Known
from agentsession.host.live import LiveSession
from agentsession.protocol import AgentSession, PendingRequest, ToolRequest

__all__ = ["asked_below", "subagents"]

Shown = Callable[[PendingRequest], PendingRequest]


def subagents(live: LiveSession) -> frozenset[str]:
    """The names of the tools of a session's host that are agents."""
    host = live.agent.host
    names = () if host is None else (tool.name for tool in host.tools.descriptors)
    return frozenset(name for name in names if host is not None and isinstance(host.tools.get(name), SubagentTool))


def asked_below(live: LiveSession, known: Known) -> dict[str, list[PendingRequest]]:
    """By the request of the session that it is asked for: with ids and threads as its record has them.

    Of a sub-agent that is not open, such as after a restart, ``known`` tells: it is opened when an answer comes.
    """
    host = live.agent.host
    if host is None:
        return {}
    found = _below(host, live.session, lambda request: request)
    for request in live.pending:
        asked = list(known.below.get(request.request_id, {}).values())
        if not asked or request.request_id in found or not isinstance(request, ToolRequest):
            continue
        if request.name in subagents(live):
            found[request.request_id] = [each for each in asked if not _is_worked_for(each, asked)]
    return {name: [each for each in asked if not is_a_job(each)] for name, asked in found.items()}


def _is_worked_for(request: Asked, asked: Sequence[Asked]) -> bool:
    """Whether a call asks nothing itself, as a sub-agent below does."""
    if not isinstance(request, ToolRequest):
        return False
    return any(each.thread_id is not None and works_for(each.thread_id, request) for each in asked)


def _below(host: Host, session: AgentSession, shown: Shown) -> dict[str, list[PendingRequest]]:
    found: dict[str, list[PendingRequest]] = {}
    pending = {request.request_id: request for request in session.pending}
    for child in host.children(session):
        caller = pending.get(child.request_id)
        if not isinstance(caller, ToolRequest):
            continue
        agent, above = child.principal_path[-1], caller.thread_id
        thread = thread_of(caller, agent)  # in this session: the child's own says where it is in the outermost

        def place(
            request: PendingRequest, thread: str = thread, agent: str = agent, above: str | None = above
        ) -> PendingRequest:
            return shown(placed(request, thread, agent, above))

        deeper = _below(host, child.session, place)
        asked = [place(request) for request in child.session.pending if request.request_id not in deeper]
        found[child.request_id] = [*asked, *(request for requests in deeper.values() for request in requests)]
    return found
