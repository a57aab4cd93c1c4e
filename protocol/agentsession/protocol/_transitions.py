"""The state table: where each call and each end of a stream leads. docs/reference/lifecycle.md is drawn from it.

Not for: checking anything (``SessionMachine`` looks up here). Rules carried: LIFE-07, LIFE-12, LIFE-13.
May import: ``_session`` for the names of the states.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from agentsession.protocol._session import SessionState

__all__ = ["STATES", "TRANSITIONS", "Trigger"]

STATES: Final[tuple[SessionState, ...]] = ("new", "idle", "running", "input_required", "closed")

Trigger = Literal[
    "message", "continue", "answer", "steer", "update", "abort", "open", "end_waiting", "end_final", "close", "abandon"
]
"""What can happen: host calls (``message`` and ``continue`` are ``stream()``), a stream that opens or ends, closing.

``abandon`` closes a session whose stream never ended: AbortTimeout, or a peer that broke a rule.
"""

TRANSITIONS: Final[Mapping[SessionState, Mapping[Trigger, SessionState]]] = MappingProxyType(
    {
        "new": MappingProxyType(
            {
                "message": "running",
                "open": "running",
                "answer": "new",
                "update": "new",
                "abort": "new",
                "close": "closed",
                "abandon": "closed",
            }
        ),
        "idle": MappingProxyType(
            {
                "message": "running",
                "open": "running",
                "answer": "idle",
                "update": "idle",
                "abort": "idle",
                "close": "closed",
                "abandon": "closed",
            }
        ),
        "running": MappingProxyType(
            {
                "answer": "running",
                "steer": "running",
                "update": "running",
                "abort": "running",
                "end_waiting": "input_required",
                "end_final": "idle",
                "abandon": "closed",
            }
        ),
        "input_required": MappingProxyType(
            {
                "message": "running",
                "continue": "running",
                "open": "running",
                "answer": "input_required",
                "steer": "input_required",
                "update": "input_required",
                "abort": "idle",
                "close": "closed",
                "abandon": "closed",
            }
        ),
        "closed": MappingProxyType({}),
    }
)
"""Where each trigger leads; a trigger that is not in a state's row is refused there. One lookup, one place that raises.

``abort`` of a running turn and ``message`` over pending requests take the way through a settlement stream.
"""
