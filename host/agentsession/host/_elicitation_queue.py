"""A channel for web hosts: questions wait in a box, any page shows them as cards, any task answers one by its id.

Not for: what a card holds and what an answer means (``_elicitation_cards.py``), or HTTP.
Rules carried: HITL-01, HITL-02, HITL-08, HITL-09, SEC-01.
May import: anyio, ``_elicitation``, ``_elicitation_cards``, ``_policy``, ``protocol``.

What waits is here and not in a page: one that reconnects asks again, and two pages of a person see the same. An answer
is checked before it is taken; what cannot be taken leaves the card as it is. Each card is answered once: a second
answer, by whomever, is ``stale``. Nothing is kept of an answer but that there was one.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import anyio

from agentsession.host._elicitation import Approval, Position
from agentsession.host._elicitation_cards import Card, approval_card, question_card, read_approval, read_question
from agentsession.host._policy import PolicyDecision
from agentsession.protocol import (
    ConfigurationError,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    Receipt,
    ToolRequest,
    cancel,
)

__all__ = ["CardChange", "QueueChannel"]

logger = logging.getLogger("agentsession.host")

_KEPT: Final = 10_000
"""How many cards that are over are still known."""


@dataclasses.dataclass(frozen=True, slots=True)
class CardChange:
    """Something that a page should show."""

    card_id: str
    card: Card | None = None
    """A card that waits now; ``None``: it does not any more."""
    how: str | None = None
    """Then: ``answered``, ``withdrawn`` (settled elsewhere) or ``expired``."""

    def to_json(self) -> dict[str, Any]:
        """``{"asked": CARD}`` or ``{"settled": ID, "how": …}``."""
        if self.card is not None:
            return {"asked": self.card.to_json()}
        return {"settled": self.card_id, "how": self.how}


class _Waits:
    """A card that waits, and whoever waits for its answer."""

    __slots__ = ("answer", "card", "done", "is_answered")

    def __init__(self, card: Card) -> None:
        self.card = card
        self.done = anyio.Event()
        self.answer: Approval | ElicitationAnswer | None = None
        self.is_answered = False


class QueueChannel:
    """An :class:`ElicitationChannel` whose questions are answered by :meth:`answer`, from any task of its event loop.

    ``capacity``: how many cards may wait; a question beyond it is refused. Raises :class:`ConfigurationError` below 1.
    """

    concurrent = True
    interactive = True

    def __init__(self, *, capacity: int = 1000) -> None:
        if capacity < 1:
            raise ConfigurationError(f"the capacity is {capacity}", where="QueueChannel", expected="1 or more")
        self._capacity = capacity
        self._waits: dict[str, _Waits] = {}
        self._over: collections.OrderedDict[str, tuple[str | None, str]] = collections.OrderedDict()
        """By card that waits no more: whose it was, and how it ended."""
        self._changed: anyio.Event | None = None

    def __repr__(self) -> str:
        return f"QueueChannel({len(self._waits)} waiting)"

    # --- for the host ------------------------------------------------------------------------------------------------

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        """Put a call into the box, and wait for a word on it."""
        if len(self._waits) >= self._capacity:
            logger.warning("a call of %r was denied: %d cards wait already", request.name, len(self._waits))
            return Approval.no("channel_full: too many questions wait already", by="host")
        answer = await self._wait(approval_card(_new_id(), request, decision, position, _now()))
        return answer if isinstance(answer, Approval) else Approval.pause()

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer | None:
        """Put a question into the box, and wait for its answer."""
        if len(self._waits) >= self._capacity:
            logger.warning("a %r was cancelled: %d cards wait already", request.kind, len(self._waits))
            why = Decision(by="host", reason="channel_full: too many questions wait already")
            return cancel(request.request_id).model_copy(update={"decision": why})
        answer = await self._wait(question_card(_new_id(), request, position, _now()))
        return answer if isinstance(answer, ElicitationAnswer) else None

    async def _wait(self, card: Card) -> Approval | ElicitationAnswer | None:
        waits = self._waits[card.id] = _Waits(card)
        self._tell()
        try:
            await waits.done.wait()
        finally:
            if self._waits.pop(card.id, None) is not None:
                expired = card.expires_at is not None and card.expires_at <= _now()
                self._end(card, "expired" if expired else "withdrawn")
        answer, waits.answer = waits.answer, None  # a secret is not to stay here
        return answer

    # --- for pages ---------------------------------------------------------------------------------------------------

    def waiting(self, *, user_id: str | None = None, session_id: str | None = None) -> list[Card]:
        """The cards that wait now, oldest first: all, or those of a user or a session."""
        return [
            waits.card
            for waits in self._waits.values()
            if (user_id is None or waits.card.user_id == user_id)
            and (session_id is None or waits.card.session_id == session_id)
        ]

    def answer(
        self, card_id: str, given: Mapping[str, Any], *, user_id: str | None = None, by: str | None = None
    ) -> Receipt:
        """Answer a card: what a page sends, as JSON.

        An approval: ``{"action": "approve"}``, if wanted with ``args`` (the whole arguments) and ``remember`` (once,
        session, always); ``deny`` with a ``reason``, ``cancel``, or ``pause``, which leaves it waiting in the session.
        A question: ``{"action": "accept", "content": …}``, ``decline``, ``cancel``, ``pause``. Nothing else is a yes.

        ``user_id``: who is logged in; a card of somebody else is not found. ``by``: their name, for the record.
        The receipt is ``applied``; ``stale``, where it was answered or settled before; ``not_found``; or ``invalid``,
        with the reason, and the card waits on. The host may find edited arguments wrong later: then it asks again.
        """
        waits = self._waits.get(card_id) if isinstance(card_id, str) else None
        if waits is None:
            whose, how = self._over.get(card_id, (None, None)) if isinstance(card_id, str) else (None, None)
            if how is None or (user_id is not None and whose != user_id):
                return Receipt(status="not_found", reason="there is no such card")
            return Receipt(status="stale", request_id=card_id, rule="TOOL-09", reason=f"it was {how}")
        card = waits.card
        if user_id is not None and card.user_id != user_id:
            return Receipt(status="not_found", reason="there is no such card")
        name = f"user:{by}" if by else "user"
        read: Approval | ElicitationAnswer | str | None
        if not _is_object(given):
            read = "the answer is no object"
        elif card.kind == "approval":
            read = read_approval(card, given, name)
        else:
            read = read_question(card, given, name)
        if isinstance(read, str):
            return Receipt(status="invalid", request_id=card_id, rule="HITL-08", reason=read)
        waits.answer = read
        del self._waits[card_id]
        self._end(card, "answered")
        waits.done.set()
        return Receipt(status="applied", request_id=card_id)

    async def changes(self, *, user_id: str | None = None) -> AsyncGenerator[CardChange]:
        """What waits now, and then each change, for one page: of all, or of one user. Ends only when it is closed.

        A slow page is told less, never wrongly: a card that came and went meanwhile is not told of at all.
        """
        told: dict[str, None] = {}
        while True:
            changed = self._changed = self._changed or anyio.Event()
            now = {card.id: card for card in self.waiting(user_id=user_id)}
            for card_id in [card_id for card_id in told if card_id not in now]:
                del told[card_id]
                yield CardChange(card_id, how=self._over.get(card_id, (None, "withdrawn"))[1])
            for card_id, card in now.items():
                if card_id not in told and card_id in self._waits:
                    told[card_id] = None
                    yield CardChange(card_id, card)
            await changed.wait()

    def _end(self, card: Card, how: str) -> None:
        self._over[card.id] = (card.user_id, how)
        while len(self._over) > _KEPT:
            self._over.popitem(last=False)
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()


def _is_object(given: object) -> bool:
    """A page may send anything."""
    return isinstance(given, Mapping)


def _new_id() -> str:
    return f"c-{secrets.token_urlsafe(12)}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
