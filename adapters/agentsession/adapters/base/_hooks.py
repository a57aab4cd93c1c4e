"""Asking a host's hooks: one question, one answer that can be used, whatever the interceptor does.

Not for: what the points are (``agentsession.protocol``), or what a block does at one of them (whoever fires it).
Rules carried: SEC-01 (no text of an exception). May import: ``agentsession.protocol``.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from typing import Any, Final

from agentsession.protocol import (
    HOOK_POINTS,
    Custom,
    Error,
    HookChange,
    HookOutcome,
    HookPayload,
    InvalidInput,
    LifecycleInterceptor,
    read_change,
    wants_hook,
)

__all__ = ["PROCEED", "Hooked", "Hooks", "hook_events"]

_logger = logging.getLogger("agentsession.adapters")

_FAILED: Final = "a hook of the host failed"


@dataclasses.dataclass(frozen=True, slots=True)
class Hooked:
    """What came of a point: proceed, perhaps with a change, or block."""

    blocked: bool = False
    message: str | None = None
    """Of a block: what is told in the place of what was blocked."""
    by: str | None = None
    reason: str | None = None
    change: HookChange | None = None
    failure: str | None = None
    """Why the hook counts as failed: the type of its exception, or what was wrong with its answer."""

    @property
    def who(self) -> str:
        """For decisions and causes: ``hook``, or ``hook:ID``."""
        return f"hook:{self.by}" if self.by else "hook"


PROCEED: Final = Hooked()


class Hooks:
    """A session's interceptor, made safe: :meth:`fire` raises nothing."""

    def __init__(self, interceptor: LifecycleInterceptor) -> None:
        self._interceptor = interceptor

    def wants(self, point: str) -> bool:
        """Whether the interceptor wants to be asked at this point."""
        return wants_hook(self._interceptor, point)

    def has_seen(self, point: str, session_id: str, request_id: str) -> bool:
        """Whether the interceptor says that it was asked about this call at this point, and has nothing more to say.

        A host that runs a tool shows the result to its hooks itself. It may have a method ``has_seen`` that tells so;
        then no payload is made for nothing.
        """
        told: Any = getattr(self._interceptor, "has_seen", None)
        return callable(told) and told(point, session_id, request_id) is True

    async def fire(self, point: str, payload: HookPayload) -> Hooked:
        """Ask at a point. A failure blocks where the point fails closed, and proceeds elsewhere."""
        if not self.wants(point):
            return PROCEED
        try:
            answer: Any = self._interceptor.fire(point, payload)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is None:
                return PROCEED
            if not isinstance(answer, HookOutcome):
                raise InvalidInput(f"a hook answered a {type(answer).__name__}", expected="HookOutcome or None")
            change = read_change(point, answer)
        except InvalidInput as error:
            _logger.warning("the hook at %s gave an answer that cannot be used: %s", point, error.what)
            return self.failed(point, error.what)
        except Exception as error:  # fail closed, or go on: never end a turn by a hook's exception
            _logger.warning("the hook at %s failed", point, exc_info=error)
            return self.failed(point, f"the hook at {point} failed with {type(error).__name__}")
        return Hooked(
            blocked=answer.action == "block",
            message=answer.message,
            by=answer.by,
            reason=answer.reason,
            change=change,
            failure=answer.failure,
        )

    @staticmethod
    def failed(point: str, failure: str, by: str | None = None) -> Hooked:
        """What a failure at a point comes to. ``by``: whose it is, where that is known."""
        closed = HOOK_POINTS[point].fails_closed
        return Hooked(blocked=closed, message=_FAILED if closed else None, by=by, failure=failure)


def hook_events(point: str, hooked: Hooked, **base: Any) -> list[Custom | Error]:
    """What the record says of a point: nothing where a hook let pass what it saw. Never what it was told or changed."""
    out: list[Custom | Error] = []
    if hooked.failure is not None:
        out.append(Error(status="INTERNAL", code="hook-failed", message=hooked.failure, source="host", **base))
    changed = sorted(hooked.change.model_fields_set) if hooked.change is not None else []
    if hooked.blocked or changed:
        data: dict[str, Any] = {"point": point, "action": "block" if hooked.blocked else "modify"}
        data |= {"changed": changed} if changed else {}
        data |= {name: value for name, value in (("by", hooked.by), ("reason", hooked.reason)) if value is not None}
        out.append(Custom(kind="hook", data=data, source="host", **base))
    return out
