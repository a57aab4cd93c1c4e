"""Who asks: the path of agents from the root to the one behind a request, for policies.

Not for: deciding (``_policy.py``). Rules carried: LIFE-16 is what it relies on. May import: ``protocol``.
"""

from __future__ import annotations

from agentsession.protocol import AgentEnd, AgentSession, AgentStart, ElicitationRequest, ToolRequest

__all__ = ["Principals"]

_DEEPEST = 64


class Principals:
    """Follows the agents' brackets of one turn."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._agents: dict[str | None, list[str]] = {}
        self._parents: dict[str | None, str | None] = {}

    def bracket(self, event: AgentStart | AgentEnd) -> None:
        """Keep who works on which thread. An agent that only pauses stays: its requests are decided meanwhile."""
        agents = self._agents.setdefault(event.thread_id, [])
        if isinstance(event, AgentStart):
            self._parents[event.thread_id] = event.parent_thread_id
            if event.agent_id not in agents or not event.resumed:
                agents.append(event.agent_id)
        elif event.reason != "input_required" and event.agent_id in agents:
            agents.remove(event.agent_id)

    async def recall(self) -> None:
        """Read the brackets of the turn that waits, which another host may have begun: rules on children hold there."""
        waiting = {request.turn_id for request in self._session.pending}
        if not waiting:
            return
        async for event in self._session.events(types={"agent_start", "agent_end"}):
            if isinstance(event, (AgentStart, AgentEnd)) and event.turn_id in waiting:
                self.bracket(event)

    def path(self, request: ToolRequest | ElicitationRequest) -> tuple[str, ...]:
        """From the root agent to the one that asks; never empty."""
        chain: list[str | None] = [request.thread_id]
        while chain[-1] is not None and len(chain) < _DEEPEST:
            chain.append(self._parents.get(chain[-1]))
        path = [agent for thread in reversed(chain) for agent in self._agents.get(thread, [])]
        principal = request.agent_id or (path[-1] if path else self._session.descriptor.name)
        if principal in path:
            return tuple(path[: path.index(principal) + 1])
        return (*path, principal)
