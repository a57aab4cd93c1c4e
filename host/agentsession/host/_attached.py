"""What a host remembers of a session between its turns.

Not for: what a turn remembers (``_turn.py``, ``_turn_facts.py``). Rules carried: none of its own.
May import: ``_lineage``, ``_rest``, ``_settings``, ``protocol``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from agentsession.host._lineage import Above, Child
from agentsession.host._rest import Used
from agentsession.host._settings import Settings
from agentsession.protocol import (
    AgentSession,
    ExecutionOptions,
    OpenOptions,
    RecordStore,
    SessionUpdate,
    ToolDescriptor,
)

if TYPE_CHECKING:
    from agentsession.host._host import Host

__all__ = ["Attached", "recorded_mode"]


@dataclasses.dataclass(slots=True)
class Attached:
    """One session of a host."""

    session: AgentSession
    cursor: int
    """The last event that the observer saw."""
    permission_mode: str = "default"
    turn_mode: tuple[str | None, str] | None = None
    """A turn whose options set a mode, and that mode: it holds to the end of that turn, over its pauses."""
    user_id: str | None = None
    execution: ExecutionOptions | None = None
    """The options that it was opened with; ``None`` for a session that was opened by hand."""
    declared: tuple[ToolDescriptor, ...] = ()
    """The host's own tools among them."""
    found_seq: int = 0
    """The record's last seq when this host found the session: what was started before, another host has started."""
    host: Host | None = None
    options: OpenOptions | None = None
    """What it was opened with; ``None`` when it was opened by hand."""
    store: RecordStore | None = None
    settings: Settings | None = None
    """A sub-agent's: those of the host, with its own tools."""
    above: Above | None = None
    """A sub-agent's: the call that it works for."""
    children: dict[str, Child] = dataclasses.field(default_factory=dict[str, Child])
    """The sub-agents that are at work or wait, by the id of the request that they work for."""
    used_below: tuple[str, dict[str, Used]] | None = None
    """A turn, and what its sub-agents have used, by the request that they work for."""


async def recorded_mode(session: AgentSession, default: str = "default") -> str:
    """The permission mode that a host last set in this session; an agent's own word for it does not count."""
    mode = default
    async for event in session.events(types={"session_update"}):
        if isinstance(event, SessionUpdate) and event.source == "host" and event.permission_mode is not None:
            mode = event.permission_mode
    return mode
