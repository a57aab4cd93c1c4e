"""What sessions were opened with: what of it lasts, is recorded, and is remembered of those that were closed.

Not for: opening them (``_sessions.py``). Rules carried: none. May import: ``protocol``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from agentsession.protocol import AgentSession, OpenOptions, SessionConfig

__all__ = ["Remembered", "lasting", "with_mode_recorded"]

K = TypeVar("K")


class Remembered(Generic[K]):
    """Of closed sessions, at most ``capacity``: what they were opened with, and the names of the client's tools.

    The record does not have these.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._known: OrderedDict[K, tuple[OpenOptions, frozenset[str]]] = OrderedDict()

    def note(self, key: K, options: OpenOptions, names: frozenset[str]) -> None:
        """Remember a session that is being closed; the oldest is forgotten."""
        # Its state was recorded when it was opened: given again it would undo what came after.
        self._known[key] = lasting(options), names
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)

    def options(self, key: K, default: OpenOptions) -> OpenOptions:
        """What it was opened with."""
        return self._known[key][0] if key in self._known else default

    def names(self, key: K) -> frozenset[str]:
        """The names of the client's tools."""
        return self._known[key][1] if key in self._known else frozenset()

    def forget(self, key: K) -> None:
        """It is open, or gone."""
        self._known.pop(key, None)


def lasting(options: OpenOptions) -> OpenOptions:
    """What of the options holds for as long as the session is open."""
    execution = options.execution.model_copy(update={"state": None})
    return options.model_copy(update={"session_id": None, "execution": execution})


async def with_mode_recorded(session: AgentSession, options: OpenOptions) -> OpenOptions:
    """The options without the permission mode, which the record has from now on: it is not to be looser after a
    restart. With it, where the agent takes no such update."""
    mode = options.execution.permission_mode
    if mode is None or not (await session.update(SessionConfig(permission_mode=mode))).ok:
        return options
    execution = options.execution.model_copy(update={"permission_mode": None})
    return options.model_copy(update={"execution": execution})
