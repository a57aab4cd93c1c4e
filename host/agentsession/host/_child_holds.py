"""Which sub-agents the hosts of this process have open: of several hosts at one session, one has that of a call.

Not for: the sub-agents that a host tells of (``Host.children``). Rules carried: none of its own.
May import: ``_host``, ``_lineage``, ``protocol``.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Final

from agentsession.host._host import Host
from agentsession.host._lineage import Child
from agentsession.protocol import AgentSession

__all__ = ["Hold", "close_orphans", "held", "hold", "release"]

logger = logging.getLogger("agentsession.host")


@dataclasses.dataclass(slots=True)
class Hold:
    """A call that a host has a sub-agent for, or is about to."""

    host: Host
    caller: AgentSession
    """Kept here also so that its ``id`` is not given to another session meanwhile."""
    child: Child | None = None


_HELD: Final[dict[tuple[int, str], Hold]] = {}
"""By the caller's session and request."""


def hold(host: Host, caller: AgentSession, request_id: str) -> Hold | None:
    """Take the call for ``host``; ``None`` where a host of this process has it."""
    key = (id(caller), request_id)
    if key in _HELD:
        return None
    held = _HELD[key] = Hold(host, caller)
    return held


def held(caller: AgentSession, request_id: str) -> Hold | None:
    """Who has the call, if anybody."""
    return _HELD.get((id(caller), request_id))


def release(caller: AgentSession, request_id: str) -> None:
    """Nobody has the call any more."""
    _HELD.pop((id(caller), request_id), None)


async def close_orphans() -> None:
    """Close what waits for calls of sessions that were closed without their host: it may be loaded again, by its id."""
    for key, one in list(_HELD.items()):
        if one.child is None or not one.child.at_rest.is_set():
            continue
        if one.child.session.state != "closed" and one.caller.state == "closed":
            try:
                await one.host.close(one.child.session)
            except Exception as error:  # noqa: BLE001 - it has nothing to do with the call that looks for it
                session_id = one.child.session.session_id
                logger.warning("sub-agent session %s failed to close: %s", session_id, type(error).__name__)
        if one.child.session.state == "closed" and _HELD.get(key) is one:
            del _HELD[key]
