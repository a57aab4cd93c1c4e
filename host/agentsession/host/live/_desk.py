"""The person of one served session: what the host asks waits here for the word that a client sends.

Not for: whether to ask (the host's policy), or the connection that the word comes over.
Rules carried: HITL-01, HITL-02. May import: ``agentsession.host``'s channels, ``protocol``.

A turn that only waits for people is not kept running for them: :meth:`Desk.release` leaves what waits in the session,
and when the client answers, the turn is run again and asks again. So nothing is kept for a waiting session.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

import anyio

from agentsession.host._elicitation import Approval, Position
from agentsession.host._elicitation_cards import why_asked
from agentsession.host._policy import PolicyDecision
from agentsession.protocol import ElicitationAnswer, ElicitationRequest, PendingRequest, ToolRequest

__all__ = ["Desk", "Said", "Word"]

Word = Approval | ElicitationAnswer
"""What a person says to one request."""


@dataclasses.dataclass(slots=True, eq=False)
class Said:
    """A word that came, and what became of it."""

    request_id: str
    word: Word
    is_taken: bool = False
    """The host has it."""
    problem: str | None = None
    """Why the host could not take it, and asks again."""
    refused: anyio.Event = dataclasses.field(default_factory=anyio.Event)
    was_tried: bool = False
    """A turn was run again for it."""
    is_left: bool = False
    """Whoever said it does not wait to hear what became of it."""


class Desk:
    """An ``ElicitationChannel`` whose questions are answered by :meth:`say`, before or after they are asked."""

    concurrent = True
    interactive = True

    def __init__(self, changed: Callable[[], None]) -> None:
        """``changed`` is called when something is asked."""
        self._changed = changed
        self._asked: dict[str, anyio.Event] = {}
        self._said: dict[str, Said] = {}
        self._shown: dict[str, PendingRequest] = {}
        self.left: set[str] = set()
        """What was asked and left waiting: a sub-agent's requests are in no list of its caller's session."""

    @property
    def asked(self) -> set[str]:
        """The requests that the host asks about now, by the ids that the client knows."""
        return set(self._asked)

    @property
    def waiting(self) -> list[PendingRequest]:
        """What waits for a word, each with why it is asked (see :meth:`shown`)."""
        return [request for name, request in self._shown.items() if name in self._asked or name in self.left]

    def shown(self, request: PendingRequest) -> PendingRequest:
        """A request with ``why`` in its ``_meta``, if the host asks it: ``by``, ``reason``, ``where`` and ``scope``, as
        far as they are known. Only the host says so: what an agent wrote there is left out."""
        asked = self._shown.get(request.request_id)
        return _with_why(request, None if asked is None or asked.meta is None else asked.meta.get("why"))

    # --- for the host ------------------------------------------------------------------------------------------------

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        """Wait for a word on a call; ``pause`` once the turn only waits for people."""
        why = why_asked(decision)
        if "where" in why:  # a client need not know the server's folders
            why["where"] = re.split(r"[\\/]", why["where"])[-1]
        word = await self._wait(_with_why(request, why), position.problem)
        return word if isinstance(word, Approval) else Approval.pause()

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer | None:
        """Wait for the answer to a question."""
        word = await self._wait(_with_why(request, None), position.problem)
        return word if isinstance(word, ElicitationAnswer) else None

    async def _wait(self, request: PendingRequest, problem: str | None) -> Word | None:
        request_id = request.request_id
        before = self._said.get(request_id)
        if before is not None and before.is_taken:  # it came to nothing, and the host asks again
            del self._said[request_id]
            before.problem = problem or "the host asks again"
            before.refused.set()
        said = self._said.get(request_id)
        if said is None:
            self.left.discard(request_id)
            waits = self._asked[request_id] = anyio.Event()
            self._shown[request_id] = request
            self._changed()
            try:
                await waits.wait()
            finally:
                if self._asked.get(request_id) is waits:
                    del self._asked[request_id]
                if request_id not in self._asked and request_id not in self.left:
                    self._shown.pop(request_id, None)
            said = self._said.get(request_id)
        if said is None or said.is_taken:
            return None
        said.is_taken = True
        if said.is_left:
            self.forget(said)
        return said.word

    # --- for the client ----------------------------------------------------------------------------------------------

    def say(self, request_id: str, word: Word) -> Said | None:
        """Give a word to a request; ``None`` where one was given that the host has not dealt with yet."""
        if request_id in self._said:
            return None
        said = self._said[request_id] = Said(request_id, word)
        self.left.discard(request_id)
        waits = self._asked.pop(request_id, None)
        if waits is not None:
            waits.set()
        else:
            self._shown.pop(request_id, None)
        return said

    def untried(self) -> list[Said]:
        """Words that the host has not taken, and that no turn was run again for; once each."""
        found = [said for said in self._said.values() if not said.is_taken and not said.was_tried]
        for said in found:
            said.was_tried = True
        return found

    def leave(self, said: Said) -> None:
        """Nobody waits to hear what becomes of a word. One that the host has not yet taken holds all the same."""
        said.is_left = True
        if said.is_taken:
            self.forget(said)

    def forget(self, said: Said) -> None:
        """The word was dealt with."""
        if self._said.get(said.request_id) is said:
            del self._said[said.request_id]

    def release(self) -> None:
        """Leave everything that was asked waiting in the session."""
        asked, self._asked = self._asked, {}
        self.left.update(asked)
        for waits in asked.values():
            waits.set()

    def settle(self) -> None:
        """The turn has ended: nothing of it waits any more."""
        self.left.clear()
        self._shown = {name: request for name, request in self._shown.items() if name in self._asked}

    def __repr__(self) -> str:
        return f"Desk({len(self._asked)} asked)"


def _with_why(request: PendingRequest, why: Mapping[str, str] | None) -> PendingRequest:
    if why is None and "why" not in (request.meta or {}):
        return request
    meta = {name: value for name, value in (request.meta or {}).items() if name != "why"}
    return request.model_copy(update={"meta": meta if why is None else {**meta, "why": dict(why)}})
