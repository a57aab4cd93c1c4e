"""The two ways an AG-UI input is refused: malformed before a run begins, or a protocol fault that ends its run.

Not for: failures of the agent (those are events). Rules carried: SEC-01. May import: ``protocol``.

A client rejects its promise at an HTTP 4xx, and shows a ``RUN_ERROR`` where it shows the run. So what no agent could
read is a 4xx, and what the conversation does not allow is a run that ends at once. Neither has changed anything.
"""

from __future__ import annotations

from typing import Literal

from agentsession.protocol import InvalidInput

__all__ = ["Fault", "Malformed", "RunRefused"]

Fault = Literal[
    "history_conflict",
    "interrupts_open",
    "interrupt_duplicate",
    "interrupt_expired",
    "interrupt_missing",
    "interrupt_stale",
    "interrupt_unknown",
    "answer_invalid",
    "cancelled",
    "result_conflict",
    "tool_conflict",
    "message_empty",
]
"""The codes of a ``RUN_ERROR`` that the conversation, not the agent, is the cause of."""


class Malformed(InvalidInput):
    """A body that is no ``RunAgentInput``, or one with an id, size or role that is not taken: HTTP 400.

    ``pointer`` is the JSON pointer of the place. What was sent is not repeated: it may be a secret.
    """

    def __init__(self, what: str, *, pointer: str = "/", expected: str | None = None) -> None:
        self.pointer = pointer
        super().__init__(what, where=pointer, expected=expected)


class RunRefused(Exception):
    """The run ends with a ``RUN_ERROR`` of this code; nothing was recorded, and what waited goes on waiting."""

    def __init__(self, code: Fault, message: str) -> None:
        self.code: Fault = code
        self.message = message
        super().__init__(f"{code}: {message}")
