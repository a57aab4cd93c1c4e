"""Questions to the person, put to the host's channel: may this call run, and what an agent or a tool asks.

Not for: whether to ask (``_decider.py``) or how a channel reaches anybody (``_elicitation.py``).
Rules carried: HITL-01, HITL-02, HITL-09, HITL-11, SEC-01.
May import: anyio, ``_cancellation``, ``_elicitation``, ``_lineage``, ``_policy``, ``_results``, ``_settings``,
``_urls``, ``protocol``.

Only a clear yes is one: a channel that fails, is late or answers unclearly has said no.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from agentsession.host._cancellation import failures, raise_if_cancelled
from agentsession.host._elicitation import Approval, Position, as_approval, expiry
from agentsession.host._lineage import Above
from agentsession.host._policy import PolicyDecision
from agentsession.host._results import Stopwatch
from agentsession.host._settings import Settings
from agentsession.host._urls import unsafe_url
from agentsession.protocol import Decision, ElicitationAnswer, ElicitationRequest, ToolRequest

__all__ = ["Asker", "PolicyFacts", "question_answer"]

logger = logging.getLogger("agentsession.host")

_R = TypeVar("_R", ToolRequest, ElicitationRequest)

PolicyFacts = Callable[[ToolRequest | ElicitationRequest], dict[str, Any]]
"""Who asks, where and in which mode: the fields of a :class:`PolicyRequest` that the turn knows."""


class Asker:
    """Puts questions to the channel, one at a time unless it takes several; whatever goes wrong there is a no."""

    def __init__(self, settings: Settings, waiting: Stopwatch, facts: PolicyFacts, above: Above | None = None) -> None:
        self._channel = settings.channel
        self._timeout_s = settings.question_timeout_s
        self._waiting = waiting
        self._facts = facts
        self._above = above
        self._one = None if getattr(self._channel, "concurrent", False) else anyio.Lock()
        self._open = 0
        self._asked = 0

    async def approve(self, request: ToolRequest, decision: PolicyDecision, problem: str | None) -> Approval:
        """The person's word on a tool call."""
        async with self.queued() as place:
            try:
                with anyio.move_on_after(self._timeout_s):
                    shown, position = self.shown(request), self._position(request, place(problem))
                    return as_approval(await self._channel.approve(shown, decision, position))
                # The person may be away: nothing else of the turn is to run, or be asked, meanwhile.
                return Approval.cancel(self._timed_out, by="host")
            except failures() as error:  # a channel that fails has not said yes
                raise_if_cancelled(error)
                logger.warning("the channel failed at %r, so it was denied: %s", request.name, type(error).__name__)
                logger.debug("the channel's failure", exc_info=error)
                return Approval.no(f"channel_error: {type(error).__name__}", by="host")

    async def ask(self, request: ElicitationRequest, problem: str | None) -> ElicitationAnswer | None:
        """The person's answer to a question, or ``None`` to leave it waiting."""
        unsafe = unsafe_url(request.url) if request.url is not None else None
        if unsafe is not None:  # whoever asks may not send a person anywhere
            return question_answer(request, "cancel", Decision(by="host", reason=f"unsafe_url: {unsafe}"))
        answer: ElicitationAnswer | None = None
        shown = self.shown(request)
        shown_id = shown.request_id  # what is handed over is the channel's
        async with self.queued() as place:
            try:
                with anyio.move_on_after(self._timeout_s) as limit:
                    answer = await self._channel.ask(shown, self._position(request, place(problem)))
                if limit.cancelled_caught:
                    return question_answer(request, "cancel", Decision(by="host", reason=self._timed_out))
            except failures() as error:  # a channel that fails has not said yes
                raise_if_cancelled(error)
                logger.warning(
                    "the channel failed at a %r, so it was cancelled: %s", request.kind, type(error).__name__
                )
                logger.debug("the channel's failure", exc_info=error)
                return question_answer(
                    request, "cancel", Decision(by="host", reason=f"channel_error: {type(error).__name__}")
                )
        if answer is None:
            return None
        if not isinstance(answer, ElicitationAnswer) or answer.action not in ("accept", "decline", "cancel"):
            return question_answer(request, "cancel", Decision(by="host", reason="unclear_answer"))
        if answer.request_id not in (request.request_id, shown_id):
            # What was said to another question, perhaps a secret, is not for whoever asked this one.
            logger.warning("the channel answered another request than it was asked, so it was cancelled")
            return question_answer(
                request, "cancel", Decision(by="host", reason="unclear_answer: it answers another request")
            )
        word = answer.decision or Decision(by="user")
        if answer.action != "accept":
            return question_answer(request, answer.action, word)  # no content with a no: rule HITL-09
        return answer.model_copy(update={"request_id": request.request_id, "decision": word})

    def shown(self, request: _R) -> _R:
        """As it is asked. A copy: what a channel does to the request must reach neither the tool nor the record."""
        copied = request.model_copy(deep=True)
        return copied if self._above is None else self._above.shown(copied)

    def shown_id(self, request: ToolRequest) -> str:
        """The id under which it is asked."""
        return request.request_id if self._above is None else self._above.shown(request).request_id

    def _position(self, request: ToolRequest | ElicitationRequest, position: Position) -> Position:
        facts = self._facts(request)
        return dataclasses.replace(
            position,
            principals=facts["principal_path"],
            user_id=facts.get("user_id"),
            expires_at=expiry(self._timeout_s),
        )

    @property
    def _timed_out(self) -> str:
        return f"timed_out: nobody answered within {self._timeout_s:g} s"

    @asynccontextmanager
    async def queued(self) -> AsyncGenerator[Callable[[str | None], Position]]:
        """Wait for one's turn to ask. One person is over all agents of a turn, so the root's turn has the queue."""
        if self._above is not None:
            async with self._above.asking() as place:
                with self._waiting.running():
                    yield place
            return
        self._open += 1
        try:
            if self._one is not None:
                await self._one.acquire()
            try:
                # The place may have come free because the person ended the turn: then nothing more is asked.
                await anyio.lowlevel.checkpoint_if_cancelled()
                with self._waiting.running():
                    yield lambda problem: Position(self._asked + 1, self._asked + self._open, problem)
            finally:
                if self._one is not None:
                    self._one.release()
        finally:
            self._open -= 1
            self._asked = self._asked + 1 if self._open else 0


def question_answer(request: ElicitationRequest, action: str, decision: Decision) -> ElicitationAnswer:
    """An answer without content."""
    return ElicitationAnswer(request_id=request.request_id, action=action, decision=decision)
