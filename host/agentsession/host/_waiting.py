"""The requests that wait for a person, of all sessions of a host: one answer may settle several.

Not for: asking (``_decider.py``) or what was remembered (``policy``). Rules carried: HITL-01.
May import: anyio, ``_policy``, ``policy``, ``protocol``.

An answer that is remembered, or a change of the permission mode, may decide what others are being asked. Each that is
decided so gets its word here and its question is withdrawn, in the order of the record. A remembered answer settles in
one step: nothing is awaited between the first and the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import anyio

from agentsession.host._policy import PolicyDecision, PolicyRequest
from agentsession.host.policy._remembered import RememberedAnswers
from agentsession.protocol import ToolRequest

__all__ = ["Judged", "Waiting", "WaitingRequests"]


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """What was asked of the policy, and its word after all that may tighten it or answer for the person."""

    question: PolicyRequest
    decision: PolicyDecision


@dataclasses.dataclass(eq=False, slots=True)
class Waiting:
    """One request while its person is asked."""

    request: ToolRequest
    judged: Judged
    mode: Callable[[], str]
    """The permission mode that it is in now."""
    judge_again: Callable[[], Awaitable[Judged]]
    scope: anyio.CancelScope = dataclasses.field(default_factory=anyio.CancelScope)
    """Around the question; cancelled when it is withdrawn."""
    settled: PolicyDecision | None = None
    """The word that it was given meanwhile."""
    is_answered: bool = False
    """The person has answered: nothing settles it any more."""

    def settle(self, decision: PolicyDecision) -> None:
        """Give it this word, and withdraw the question."""
        self.settled = decision
        self.scope.cancel()


class WaitingRequests:
    """Those of one host."""

    def __init__(self, remembered: RememberedAnswers) -> None:
        self._remembered = remembered
        self._open: list[Waiting] = []

    @contextmanager
    def opened(self, waiting: Waiting) -> Generator[Waiting]:
        """Keep a request here while its person is asked."""
        self._open.append(waiting)
        try:
            yield waiting
        finally:
            self._open.remove(waiting)

    def settle_remembered(self) -> None:
        """Settle all that a remembered answer covers, in one step."""
        for waiting in self._in_order():
            question, decision = waiting.judged.question, waiting.judged.decision
            if waiting.mode() != question.permission_mode:
                continue  # the mode changed: it is judged again, with what is remembered
            found = self._remembered.find(question, decision)
            if found is not None:
                waiting.settle(PolicyDecision("allow", f"remembered:{found.id}"))

    async def judge_again(self) -> None:
        """Judge those again whose permission mode is not what it was, and settle what is no question any more."""
        for waiting in self._in_order():
            if waiting.mode() == waiting.judged.question.permission_mode:
                continue
            judged = await waiting.judge_again()
            if waiting.settled is None and not waiting.is_answered:
                waiting.judged = judged
                if not judged.decision.is_ask:
                    waiting.settle(judged.decision)

    def _in_order(self) -> list[Waiting]:
        found = [one for one in self._open if one.settled is None and not one.is_answered]
        return sorted(found, key=lambda one: (one.request.session_id, one.request.seq))
