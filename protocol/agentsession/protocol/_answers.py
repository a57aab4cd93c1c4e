"""What an answer must look like to count: its kind fits, its content is valid, and a yes is a clear yes.

Not for: recording it (the base class emits the events). Rules carried: TOOL-09, TOOL-10, TOOL-14, HITL-02, HITL-08,
HITL-09. May import: ``_inputs``, ``_json_schema``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from agentsession.protocol._inputs import (
    Answer,
    ElicitationAnswer,
    Receipt,
    ToolDenial,
    ToolGrant,
    ToolProgress,
    ToolResult,
)
from agentsession.protocol._json_schema import check_schema

__all__ = ["CONFIRMATIONS", "AnswerCheck", "RequestState", "check_answer", "contradicts_yes"]

AnswerCheck = Callable[[Mapping[str, Any], Any], str | None]
"""Validates a value against a JSON Schema: what is wrong, or ``None``."""


@dataclasses.dataclass(slots=True)
class RequestState:
    """A request without a response. ``status``: waiting, granted, denied, or in_flight (needs none)."""

    id: str
    kind: str
    """``tool`` or ``elicitation``."""
    name: str
    """The tool's name, or the elicitation's kind."""
    needs: str
    status: str
    thread_id: str | None = None
    agent_id: str | None = None
    args: dict[str, Any] | None = None
    requested_schema: dict[str, Any] | None = None
    tool_request_id: str | None = None
    confirmation: str | None = None
    """Of a tool with a linked confirmation: ``waiting``, or the action it was answered with."""
    started: bool = False
    """Of a tool that the host runs: the host said that it runs."""

    @property
    def status_if_left(self) -> str:
        """Of a tool: the status of its response where nobody will give its result: ``cancelled`` if it cannot have
        started, ``denied``, or ``unknown``. Rule: TOOL-16."""
        if self.started:
            return "unknown"
        if self.status == "waiting" or self.confirmation not in (None, "accept"):
            return "cancelled"
        return "denied" if self.status == "denied" else "unknown"


CONFIRMATIONS: Final = frozenset({"tool_confirmation", "user_approval"})
"""The kinds of question whose acceptance lets something happen: it must be a clear yes."""

_YES_WORDS: Final = frozenset(
    {
        *("y", "yes", "ok", "okay", "true", "accept", "accepted", "agree", "agreed", "allow", "allowed"),
        *("approve", "approved", "confirm", "confirmed", "grant", "granted"),
    }
)
_NO_WORDS: Final = frozenset(
    {
        *("n", "no", "false", "abort", "block", "blocked", "cancel", "cancelled", "canceled", "decline", "declined"),
        *("deny", "denied", "disagree", "disallow", "forbid", "never", "refuse", "refused", "reject", "rejected"),
        *("skip", "stop"),
    }
)
_WORD_KEYS: Final = frozenset({"decision", "action", "answer", "outcome", "response", "verdict"})
"""Keys whose value says yes or no in a word."""


def contradicts_yes(content: Any) -> bool:
    """Whether the content of an ``accept`` does not say yes as clearly as the action does.

    For confirmations only, where content that hints at a no must never run a tool: ``false``, ``"no"``, ``0``, ``1``,
    ``{"confirmed": false}``, ``{"decision": "deny"}``. No content at all, ``true``, a word of assent, or an object
    whose telling keys all agree is a clear yes. Telling are the words of assent (``confirmed``), those of refusal
    (``denied``) and such as ``decision``; in an object without any, a word of refusal under any key tells.
    """
    if content is None or content is True:
        return False
    if isinstance(content, str):
        return _word(content) not in _YES_WORDS
    if not isinstance(content, dict):
        return True
    told = False
    for key, value in content.items():
        name = _word(key)
        if name in _NO_WORDS:
            if value is not False:
                return True
        elif name in _YES_WORDS or name in _WORD_KEYS:
            if not (value is True or (isinstance(value, str) and name in _WORD_KEYS and _word(value) in _YES_WORDS)):
                return True
            told = True
    return not told and any(isinstance(value, str) and _word(value) in _NO_WORDS for value in content.values())


def _word(text: str) -> str:
    return text.strip().lower()


def check_answer(
    requests: Mapping[str, RequestState], resolved: Collection[str], answer: Answer, check: AnswerCheck | None
) -> Receipt:
    """The receipt for ``answer``, given the open requests and the ids of those that are resolved.

    ``check`` validates accepted content against the question's schema; without one the package's own does.
    """
    request = requests.get(answer.request_id)
    if request is None:
        if answer.request_id in resolved:
            return _receipt(answer, "stale", "TOOL-09", "it was answered or settled before")
        return _receipt(answer, "not_found", "TOOL-10", "there is no request with this id")
    if answer.name is not None and answer.name != request.name:
        return _receipt(answer, "invalid", "TOOL-14", f"the request is for {request.name!r}, not {answer.name!r}")
    if isinstance(answer, ToolProgress):
        if request.kind != "tool" or request.needs in ("grant", "none") or request.status != "waiting":
            return _receipt(answer, "invalid", "TOOL-14", "progress is for tools that the host runs")
        if answer.started and request.started:
            return _receipt(answer, "stale", "TOOL-16", "it was started before")
        return Receipt(status="applied", request_id=request.id)
    if request.needs == "none":
        return _receipt(answer, "invalid", "TOOL-14", "this request is shown, not asked")
    if request.status != "waiting":
        return _receipt(answer, "stale", "TOOL-09", "it was answered before")
    if not _kind_fits(request, answer):
        wanted = "an elicitation response" if request.kind == "elicitation" else _wanted(request.needs)
        return _receipt(answer, "invalid", "TOOL-14", f"a {answer.kind} does not answer it; send {wanted}")
    if request.started and isinstance(answer, ToolDenial):
        return _receipt(answer, "invalid", "TOOL-16", "it was started: send its result, perhaps as unknown")
    if isinstance(answer, ElicitationAnswer):
        return _check_elicitation(request, answer, check)
    return Receipt(status="applied", request_id=request.id)


def _kind_fits(request: RequestState, answer: Answer) -> bool:
    if request.kind == "elicitation":
        return isinstance(answer, ElicitationAnswer)
    if request.needs == "grant":
        return isinstance(answer, (ToolResult, ToolGrant, ToolDenial))
    return isinstance(answer, (ToolResult, ToolDenial))


def _wanted(needs: str) -> str:
    return "a grant, a denial or a result" if needs == "grant" else "a result or a denial"


def _check_elicitation(request: RequestState, answer: ElicitationAnswer, check: AnswerCheck | None) -> Receipt:
    if answer.action not in ("accept", "decline", "cancel"):
        return _receipt(answer, "invalid", "HITL-02", f"unknown action {answer.action!r}: accept, decline or cancel")
    if answer.action != "accept":
        if answer.content is not None:
            return _receipt(answer, "invalid", "HITL-09", f"{answer.action} carries no content")
        return Receipt(status="applied", request_id=request.id)
    if request.name in CONFIRMATIONS and contradicts_yes(answer.content):
        return _receipt(answer, "invalid", "HITL-08", "the content contradicts the acceptance")
    given = "content" in answer.model_fields_set
    if request.requested_schema is not None:
        wrong = (check or check_schema)(request.requested_schema, answer.content)
        # A bare yes to a confirmation is complete; anything else must satisfy the schema.
        if wrong is not None and (given or request.name not in CONFIRMATIONS):
            return _receipt(answer, "invalid", "HITL-08", wrong)
    return Receipt(status="applied", request_id=request.id)


def _receipt(answer: Answer, status: str, rule: str, reason: str) -> Receipt:
    return Receipt(status=status, request_id=answer.request_id, rule=rule, reason=reason)
