"""How a host asks its person: approvals of tool calls, and questions of the agent.

Not for: a terminal (that is the command's) or deciding whether to ask (``_policy.py``).
Rules carried: HITL-01, HITL-02, HITL-09. May import: ``_policy``, ``protocol``.

Only a clear yes runs a tool. :class:`Approval` has one value that means yes; a channel that raises, returns something
else or nothing has said no.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable

from agentsession.host._policy import PolicyDecision
from agentsession.protocol import (
    ConfigurationError,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    ToolRequest,
    repair_text,
)

__all__ = [
    "Approval",
    "CallbackChannel",
    "ElicitationChannel",
    "NoChannel",
    "Position",
    "ScriptedChannel",
    "as_approval",
    "expiry",
]

logger = logging.getLogger("agentsession.host")

Verdict = Literal["yes", "no", "cancel", "pause"]
Remember = Literal["once", "session", "always"]
_REMEMBER: Final = ("once", "session", "always")


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """Where a question stands among those that wait: "1 of 2"."""

    index: int = 1
    """From 1."""
    total: int = 1
    """How many were asked or wait now; may grow."""
    problem: str | None = None
    """Asked again: why the last answer could not be taken."""
    principals: tuple[str, ...] = ()
    """The agents from the root to the one that asks, sub-agents in other sessions among them."""
    user_id: str | None = None
    """Whose session it is."""
    expires_at: str | None = None
    """When nobody's answer counts as cancelling (ISO 8601, UTC), if the host waits no longer than that."""


@dataclasses.dataclass(frozen=True, slots=True)
class Approval:
    """A person's word on a tool call. Make one with :meth:`yes`, :meth:`no`, :meth:`cancel` or :meth:`pause`.

    Raises :class:`agentsession.protocol.ConfigurationError` for a ``remember`` that there is not.
    """

    verdict: Verdict
    """``yes`` runs it, ``no`` tells the model, ``cancel`` says no and ends the turn, ``pause`` leaves it waiting."""
    args: dict[str, Any] | None = None
    """With ``yes``: the whole arguments, when they were edited. They are checked like the model's own."""
    reason: str | None = None
    """With ``no``: told to the model."""
    by: str = "user"
    """Recorded: ``user``, ``user:NAME``, ``host``."""
    remember: Remember = "once"
    """With ``yes``: whether it holds for this call, for calls like it in this session, or always. Where the rule that
    asked wants to be asked each time, it holds once."""

    def __post_init__(self) -> None:
        if self.remember not in _REMEMBER:
            raise ConfigurationError(f"remember is {self.remember!r:.60}", expected=", ".join(_REMEMBER))

    @classmethod
    def yes(
        cls,
        args: dict[str, Any] | None = None,
        *,
        reason: str | None = None,
        by: str = "user",
        remember: Remember = "once",
    ) -> Approval:
        """Run it, with the requested arguments or with ``args``."""
        return cls("yes", args, reason, by, remember)

    @classmethod
    def no(cls, reason: str | None = None, *, by: str = "user") -> Approval:
        """Do not run it; the model is told."""
        return cls("no", None, reason, by)

    @classmethod
    def cancel(cls, reason: str | None = None, *, by: str = "user") -> Approval:
        """Do not run it, and end the turn: nothing that waits in it runs either."""
        return cls("cancel", None, reason, by)

    @classmethod
    def pause(cls) -> Approval:
        """Leave it waiting; the turn ends ``input_required`` and can be continued later."""
        return cls("pause")

    @property
    def is_yes(self) -> bool:
        """The one clear yes."""
        return self.verdict == "yes"


def as_approval(value: object) -> Approval:
    """Read a channel's answer strictly: an :class:`Approval`, ``True`` or ``False``; all else is an unclear no."""
    if isinstance(value, Approval) and value.verdict in ("yes", "no", "cancel", "pause"):
        # What cannot be recorded is no word of a person. A reason is repaired; who said it is not guessed.
        is_named = isinstance(value.by, str) and repair_text(value.by) == value.by
        return value if is_named and isinstance(value.reason, str | None) else _unclear(value)
    if value is True:
        return Approval.yes()
    if value is False:
        return Approval.no()
    return _unclear(value)


def _unclear(value: object) -> Approval:
    # Whoever wrote the channel must be able to learn of it; the model is told no more than that it was denied.
    logger.warning("the channel answered a %s, which is no clear Approval, so it was denied", type(value).__name__)
    return Approval.no("unclear_answer", by="host")


def expiry(timeout_s: float | None) -> str | None:
    """When ``timeout_s`` from now is, as ISO 8601 in UTC; ``None`` for no limit."""
    if timeout_s is None:
        return None
    moment = datetime.now(UTC) + timedelta(seconds=timeout_s)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@runtime_checkable
class ElicitationChannel(Protocol):
    """Reaches the person. Both calls may take as long as people do; a call is cancelled when its question is settled.

    The host asks one thing at a time, unless the channel has ``concurrent = True`` (a web page that shows cards).
    """

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        """May this call run? ``decision`` says which rule made the host ask."""
        ...

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer | None:
        """The person's answer to a question of the agent; ``None`` leaves it waiting."""
        ...


class NoChannel:
    """Nobody to ask: says no to everything at once (``no_channel``), or with ``mode="pause"`` leaves it waiting."""

    concurrent = True
    interactive = False
    """What rules that are only for people, or only for nobody there, go by; without it a channel has a person."""

    def __init__(self, mode: Literal["deny", "pause"] = "deny") -> None:
        self.mode = mode

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        """No, or wait."""
        if self.mode == "pause":
            return Approval.pause()
        return Approval.no("no_channel: nobody can be asked", by="host")

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer | None:
        """Decline, or wait."""
        if self.mode == "pause":
            return None
        why = Decision(by="host", reason="no_channel: nobody can be asked")
        return ElicitationAnswer(request_id=request.request_id, action="decline", decision=why)


class CallbackChannel:
    """Two functions, sync or async. Without one, what it would answer is refused.

    ``approve`` gets the request, the decision and the position, and returns an :class:`Approval`, ``True`` or
    ``False``. ``ask`` gets the request and the position and returns an answer (``accept(request.request_id, content)``,
    ``decline``, ``cancel``) or ``None``, which leaves it waiting.
    """

    def __init__(
        self,
        approve: Callable[[ToolRequest, PolicyDecision, Position], Any] | None = None,
        ask: Callable[[ElicitationRequest, Position], Any] | None = None,
        *,
        concurrent: bool = False,
    ) -> None:
        self.concurrent = concurrent
        self._approve = approve
        self._ask = ask
        self._none = NoChannel()

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        """Ask the function."""
        if self._approve is None:
            return await self._none.approve(request, decision, position)
        value = self._approve(request, decision, position)
        return as_approval(await value if inspect.isawaitable(value) else value)

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer | None:
        """Ask the function."""
        if self._ask is None:
            return await self._none.ask(request, position)
        value = self._ask(request, position)
        answer = await value if inspect.isawaitable(value) else value
        if answer is None or isinstance(answer, ElicitationAnswer):
            return answer
        logger.warning(
            "the channel answered a %s to a %r, so it was declined: give accept(request.request_id, content), decline, "
            "cancel or None",
            type(answer).__name__,
            request.kind,
        )
        why = Decision(by="host", reason="unclear_answer")
        return ElicitationAnswer(request_id=request.request_id, action="decline", decision=why)


class ScriptedChannel:
    """Answers from a script, for tests and demos: by the tool's name or the question's kind, or in order.

    A script is a mapping or a sequence. Its values are, for approvals, an :class:`Approval` or a bool; for answers, an
    action (``"decline"``), an ``(action, content)`` pair, or ``None`` to leave it waiting; or a function of the
    request that returns one of these. What the script does not cover is refused with ``not_scripted``.
    """

    def __init__(
        self,
        approvals: Mapping[str, Any] | Iterable[Any] = (),
        answers: Mapping[str, Any] | Iterable[Any] = (),
        *,
        concurrent: bool = False,
    ) -> None:
        self.concurrent = concurrent
        self._approvals = _Script(approvals)
        self._answers = _Script(answers)
        self.asked: list[tuple[ToolRequest | ElicitationRequest, Position]] = []
        """Every question, in order."""

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        """The next scripted word for this tool."""
        self.asked.append((request, position))
        found, value = self._approvals.take(request.name, request)
        return as_approval(value) if found else Approval.no("not_scripted", by="host")

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer | None:
        """The next scripted answer for this kind of question."""
        self.asked.append((request, position))
        found, value = self._answers.take(request.kind, request)
        if not found:
            why = Decision(by="host", reason="not_scripted")
            return ElicitationAnswer(request_id=request.request_id, action="decline", decision=why)
        if value is None or isinstance(value, ElicitationAnswer):
            return value
        action, content = (value, None) if isinstance(value, str) else value
        given = {} if content is None else {"content": content}
        return ElicitationAnswer(request_id=request.request_id, action=action, decision=Decision(by="user"), **given)


class _Script:
    def __init__(self, script: Mapping[str, Any] | Iterable[Any]) -> None:
        self._by_key = _mapping(script)
        self._in_order = iter(()) if self._by_key is not None else iter(script)

    def take(self, key: str, request: object) -> tuple[bool, Any]:
        missing = object()
        value = self._by_key.get(key, missing) if self._by_key is not None else next(self._in_order, missing)
        if value is missing:
            return False, None
        return True, value(request) if callable(value) else value


def _mapping(script: Mapping[str, Any] | Iterable[Any]) -> dict[str, Any] | None:
    return dict(cast("Mapping[str, Any]", script)) if isinstance(script, Mapping) else None
