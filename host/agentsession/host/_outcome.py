"""What a host tool's call comes to: a value, content, or an error that the model can read.

Not for: making the call (``_tools.py``). Rules carried: TOOL-13, SEC-01.
May import: ``_tailcalls``, ``protocol``.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Any, Final

from agentsession.host._tailcalls import TailCall
from agentsession.protocol import Content, Decision, Spent, ToolResult, as_content, repair_text, to_json

__all__ = ["ERROR_CODES", "LEFT_WAITING", "ToolError", "ToolOutcome", "together", "unknown_tool"]

ERROR_CODES: Final = frozenset(
    {
        "invalid_arguments",
        "unknown_tool",
        "tool_failed",
        "tool_timeout",
        "server_lost",
        "server_unavailable",
        "unserializable_result",
        "tail_call_denied",
        "tail_call_limit",
        "cancelled",
        "host_error",
        "hook_blocked",
        "outcome_unknown",
        "subagent_failed",
        "subagent_limit",
        "subagent_no_result",
        "subagent_refused",
    }
)
"""The codes of error results that hosts make themselves; ``agentsession explain CODE`` says what each means.

A tool may use its own with :class:`ToolError`.
"""

_TEXT_LIMIT: Final = 2_000
_NOT_GIVEN: Final[Any] = object()


class ToolError(Exception):
    """Raised by a tool to tell the model on purpose what went wrong; the message is always shown.

    ``code`` is the tool's own word for it; ``details`` join it in the result.
    """

    def __init__(self, message: str, *, code: str = "tool_failed", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.details = details


@dataclasses.dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool call came to. A tool may return one itself, to give content beside or instead of data."""

    data: Any = _NOT_GIVEN
    """What the model gets: any JSON. Left out when not given."""
    content: Content | None = None
    """Parts such as text, media, diffs."""
    is_error: bool = False
    display: dict[str, Any] | None = None
    """For people's screens; never reaches the model."""
    unknown: bool = False
    """It was cut off after it had started: an error, with effects that nobody knows."""
    tail: TailCall | None = None
    """The call that is to give the result instead: the host makes it, and of the rest here only ``spent`` counts."""
    spent: Spent | None = None
    """What the call has used of the turn's limits, such as model calls of its own or what a paid service took."""
    subagent: dict[str, Any] | None = None
    """Which sub-agent of the host did the work, and in which session: joins ``display``, and no hook takes it away."""

    @classmethod
    def failure(cls, code: str, message: str, **details: Any) -> ToolOutcome:
        """A result that says what went wrong, for the model to read."""
        error = {"code": code, "message": _shortened(message), **details}
        return cls(data={"error": {name: value for name, value in error.items() if value is not None}}, is_error=True)

    @property
    def error_code(self) -> str | None:
        """The code of an error result, if it has one."""
        if not self.is_error:
            return None
        try:
            code: object = self.data["error"]["code"]
        except (TypeError, KeyError, IndexError):
            return None
        return code if isinstance(code, str) else None

    def answer(
        self, request_id: str, decision: Decision | None = None, args: dict[str, Any] | None = None
    ) -> ToolResult:
        """As the answer to a request; ``args`` are what the tool ran with, if they were edited.

        Raises :class:`JsonError` or pydantic's error for what cannot be said.
        """
        given: dict[str, Any] = {} if self.data is _NOT_GIVEN else {"data": to_json(self.data)}
        display = self.display if self.subagent is None else {**(self.display or {}), "subagent": self.subagent}
        if display is not None:
            given["display"] = to_json(display)
        if decision is not None:
            given["decision"] = decision
        if args is not None:
            given["args"] = args
        if self.unknown:
            given["unknown"] = True
        if self.spent is not None:
            given["spent"] = self.spent
        return ToolResult(request_id=request_id, content=as_content(self.content), is_error=self.is_error, **given)


LEFT_WAITING: Final = ToolOutcome()
"""Compared by identity: the tool has no result yet, its request goes on waiting, and the next turn runs it again."""


def together(*parts: Spent | None) -> Spent | None:
    """What several calls have used. Where nobody knows what model calls have cost, nobody knows of all."""
    given = [part for part in parts if part is not None]
    if not given:
        return None
    is_known = all(part.cost is not None or not part.model_calls for part in given)
    cost = {"cost": sum(part.cost or 0.0 for part in given)} if is_known else {}
    return Spent(model_calls=sum(part.model_calls for part in given), **cost)


def unknown_tool(name: str | None, known: Iterable[str]) -> ToolOutcome:
    """The error result for a tool that the host does not have."""
    if not name:
        return ToolOutcome.failure("unknown_tool", "the call names no tool", name="")
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return ToolOutcome.failure("unknown_tool", f'there is no tool "{name[:100]}"{hint}', name=name[:100])


def _shortened(text: str) -> str:
    text = repair_text(text)
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 3] + "..."
