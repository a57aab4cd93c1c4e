"""How many runs an executor keeps open while their turns wait for the host, and which are let go beyond that.

Not for: runs that end by themselves at a question. Rules carried: none; it bounds memory. May import:
``agentsession.protocol``, the modules beside it.

A run that waits holds all that its coroutine holds. Beyond the cap the run that has waited longest is let go, if its
turn can be answered without it: the run is cancelled, the turn stays as it is, and its answers go the way that they
would go after a restart. Where every run that waits would be lost with its turn, none is taken from the person who is
about to answer it; a new turn is refused instead, so that the host hears of it while it can still do something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsession.protocol import AgentSessionError

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["KeptRuns"]


class KeptRuns:
    """The waiting runs of one executor, the one that has waited longest first."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self._sessions: dict[BaseSession, None] = {}

    def __len__(self) -> int:
        self._forget_ended()
        return len(self._sessions)

    def paused(self, session: BaseSession) -> None:
        """A turn of ``session`` waits from now on; let runs go until there are no more than the cap."""
        self._sessions.pop(session, None)
        if not session.turns.is_kept:
            return
        self._sessions[session] = None
        if len(self._sessions) > self.cap:
            self._let_go(self.cap)

    def discard(self, session: BaseSession) -> None:
        """``session`` goes on, or is closed."""
        self._sessions.pop(session, None)

    def check_room(self, session: BaseSession) -> None:
        """Raise (``too-many-waiting``) when a new turn of ``session`` could not be kept, and no other can be let go."""
        if len(self._sessions) < self.cap:
            return
        others = self.cap - (session not in self._sessions)
        self._let_go(others)
        if len(self._sessions) > others:
            raise AgentSessionError(
                f"{len(self._sessions)} turns wait for the host, each with a run that must be kept for it",
                where=f"agent {session.descriptor.name}",
                expected=f"fewer than {self.cap} (max_kept_runs)",
                fix="answer or abort turns that wait, give turns a deadline, or raise max_kept_runs",
                id="too-many-waiting",
            )

    def _let_go(self, most: int) -> None:
        self._forget_ended()
        for session in list(self._sessions):
            if len(self._sessions) <= most:
                return
            if session.turns.can_let_go():
                del self._sessions[session]
                session.ending.let_go()

    def _forget_ended(self) -> None:
        for session in [session for session in self._sessions if not session.turns.is_kept]:
            del self._sessions[session]
