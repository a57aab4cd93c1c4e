"""A question to a person as a card: JSON for a web page, and what an answer from one means.

Not for: keeping cards or waiting for answers (``_elicitation_queue.py``). Pure. Rules carried: HITL-01, HITL-02,
HITL-08, HITL-09, SEC-01. May import: ``_elicitation``, ``_policy``, ``protocol``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from agentsession.host._elicitation import Approval, Position
from agentsession.host._policy import PolicyDecision
from agentsession.protocol import (
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    JsonError,
    SchemaProblem,
    ToolRequest,
    accept,
    cancel,
    check_json,
    decline,
    find_problem,
    marks_secret,
)

__all__ = ["Card", "approval_card", "question_card", "read_approval", "read_question"]

_REMEMBER: Final = ("once", "session", "always")
_LONGEST_REASON: Final = 2_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What waits for a person. Its id is of this one question: asked again, it is another card."""

    id: str
    kind: Literal["approval", "question"]
    session_id: str
    request_id: str
    turn_id: str | None = None
    user_id: str | None = None
    """Whose session it is."""
    agent_id: str | None = None
    agents: tuple[str, ...] = ()
    """From the root agent to the one that asks."""
    position: Position = dataclasses.field(default_factory=Position)
    asked_at: str = ""
    """ISO 8601, UTC."""
    expires_at: str | None = None
    """When it counts as cancelled, if nobody has answered."""
    tool: str | None = None
    """Of an approval: which tool is to run."""
    args: Mapping[str, Any] | None = None
    """With these."""
    owner: str | None = None
    """Who runs it: host or agent."""
    why: Mapping[str, Any] | None = None
    """Of an approval: ``by`` (the rule or hook that asked), ``reason``, and ``where`` and ``scope`` if known."""
    question: str | None = None
    """Of a question: the elicitation's kind, such as ``clarification`` or ``auth_required``."""
    title: str | None = None
    message: str | None = None
    schema: Mapping[str, Any] | None = None
    """What its answer must satisfy."""
    url: str | None = None
    """Where the person is to go before they answer: show it whole, and open it only when they say so."""
    context: Any = None
    has_secrets: bool = False
    """What is typed must not be shown, and will not be recorded."""

    def to_json(self) -> dict[str, Any]:
        """As JSON, without what is absent."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "position"]
        found = {name: getattr(self, name) for name in names}
        place: dict[str, Any] = {"index": self.position.index, "total": self.position.total}
        if self.position.problem is not None:
            place["problem"] = self.position.problem
        shown = {name: value for name, value in found.items() if value is not None}
        return {**shown, "agents": list(self.agents), "position": place}


def approval_card(
    card_id: str, request: ToolRequest, decision: PolicyDecision, position: Position, asked_at: str
) -> Card:
    """The card of a call that waits for a yes."""
    return Card(
        id=card_id,
        kind="approval",
        session_id=request.session_id,
        request_id=request.request_id,
        turn_id=request.turn_id,
        user_id=position.user_id,
        agent_id=request.agent_id,
        agents=position.principals,
        position=position,
        asked_at=asked_at,
        expires_at=position.expires_at,
        tool=request.name,
        args=dict(request.args or {}),
        owner=request.owner,
        why=why_asked(decision),
    )


def why_asked(decision: PolicyDecision) -> dict[str, str]:
    """Why a person is asked about a call: ``by``, and ``reason``, ``where`` and ``scope`` where they are known."""
    known = {"by": decision.by, "reason": decision.reason, "where": decision.where, "scope": decision.scope or None}
    return {name: value for name, value in known.items() if value is not None}


def question_card(card_id: str, request: ElicitationRequest, position: Position, asked_at: str) -> Card:
    """The card of a question of the agent."""
    return Card(
        id=card_id,
        kind="question",
        session_id=request.session_id,
        request_id=request.request_id,
        turn_id=request.turn_id,
        user_id=position.user_id,
        agent_id=request.agent_id,
        agents=position.principals,
        position=position,
        asked_at=asked_at,
        expires_at=position.expires_at or request.expires_at,
        question=request.kind,
        title=request.title,
        message=request.message,
        schema=request.requested_schema,
        url=request.url,
        context=request.context,
        has_secrets=request.kind == "auth_required" or marks_secret(request.requested_schema),
    )


def read_approval(card: Card, given: Mapping[str, Any], by: str) -> Approval | str:
    """The word that an answer is, or what is wrong with it. Only ``approve`` is a yes."""
    extra = _unknown(given, ("action", "args", "remember", "reason"))
    if extra is not None:
        return extra
    action, reason = given.get("action"), given.get("reason")
    if reason is not None and (not isinstance(reason, str) or len(reason) > _LONGEST_REASON):
        return f"the reason is no text of at most {_LONGEST_REASON} characters"
    if action != "approve" and (given.get("args") is not None or given.get("remember", "once") != "once"):
        return "args and remember go with approve alone"
    if action == "deny":
        return Approval.no(reason, by=by)
    if action == "cancel":
        return Approval.cancel(reason, by=by)
    if action == "pause":
        return Approval.pause()
    if action != "approve":
        return "unknown action; known are approve, deny, cancel and pause"
    remember = given.get("remember", "once")
    if remember not in _REMEMBER:
        return f"remember is none of {', '.join(_REMEMBER)}"
    args = given.get("args")
    if args is None:
        return Approval.yes(reason=reason, by=by, remember=remember)
    try:
        checked = check_json(args)
    except JsonError as error:
        return f"the arguments are not JSON: {error}"
    if not isinstance(checked, dict):
        return "the arguments are no object"
    return Approval.yes(cast("dict[str, Any]", checked), reason=reason, by=by, remember=remember)


def read_question(card: Card, given: Mapping[str, Any], by: str) -> ElicitationAnswer | str | None:
    """The answer that is meant, ``None`` to leave it waiting, or what is wrong with it: without a value's own words."""
    extra = _unknown(given, ("action", "content"))
    if extra is not None:
        return extra
    action = given.get("action")
    if action != "accept" and given.get("content") is not None:
        return "content goes with accept alone"
    if action == "pause":
        return None
    if action in ("decline", "cancel"):
        made = decline(card.request_id) if action == "decline" else cancel(card.request_id)
        return made.model_copy(update={"decision": Decision(by=by)})
    if action != "accept":
        return "unknown action; known are accept, decline, cancel and pause"
    try:
        content = check_json(given["content"]) if "content" in given else None
    except JsonError as error:
        return "the content is not JSON" if card.has_secrets else f"the content is not JSON: {error}"
    if card.schema is not None:
        problem = find_problem(card.schema, content)
        if problem is not None:
            return _missing(card, content) or f"{problem.pointer}: {_told(card, problem)}"
    answer = accept(card.request_id, content) if "content" in given else accept(card.request_id)
    return answer.model_copy(update={"decision": Decision(by=by)})


def _missing(card: Card, content: object) -> str | None:
    """Which field is missing, where some are secret; the names are the schema's."""
    required: Any = (card.schema or {}).get("required") if card.has_secrets else None
    if not isinstance(required, list) or not isinstance(content, dict):
        return None
    given, listed = cast("dict[str, Any]", content), [*required]
    names = [name for name in listed if isinstance(name, str) and name not in given]
    return f"/: {names[0]!r} is missing" if names else None


def _told(card: Card, problem: SchemaProblem) -> str:
    """What is wrong; where there are secrets, only what would do: a secret may have been typed into any field."""
    if not card.has_secrets:
        return problem.message
    return f"expected {problem.expected}" if problem.expected else "it does not fit what is asked for"


def _unknown(given: Mapping[str, Any], known: tuple[str, ...]) -> str | None:
    """A key that is not known may be one that was spelled wrong, and changes what is meant."""
    extra = [name for name in given if name not in known]
    return f"unknown key {str(extra[0])[:40]!r}; known are {', '.join(known)}" if extra else None
