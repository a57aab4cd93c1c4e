"""What a host hands to its sessions as their hooks, and remembers of what they said about each call.

Not for: running hooks (``_chain.py``) or deciding (``_decider.py``, which asks here). Rules carried: HITL-01, HITL-04.
May import: ``_outcome``, ``_policy``, ``protocol``, the modules beside it.

Executors know ``proceed`` and ``block``; ``ask`` is between a hook and its host. So the host keeps it, by session and
request, and lets the executor go on; when the request comes to be decided, an allow becomes a question.

*Each point is fired once for each call*, whoever comes to it first. A request that no executor asked the hooks about in
this process (it was loaded, or its executor has no hooks) is asked about here, before it is decided: an ``ask`` of a
process that is gone is not lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from agentsession.host._outcome import ToolOutcome
from agentsession.host._policy import PolicyDecision
from agentsession.host.hooks._chain import ASK, HookChain
from agentsession.protocol import (
    HookOutcome,
    HookPayload,
    ToolArgsChange,
    ToolCallHook,
    ToolRequest,
    ToolResultChange,
    ToolResultHook,
    args_digest,
    read_change,
    wants_hook,
)

__all__ = ["ChildHooks", "HostHooks"]

_BLOCKED: Final = "blocked by the host"
_CHANGED_AFTER: Final = "a hook changed arguments that are recorded already"

_UNSEEN: Final = HookOutcome()

Key = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class _Word:
    """What the hooks said of a call at ``before_tool``."""

    asks: bool = False
    by: str = "hook"
    reason: str | None = None


class HostHooks:
    """A host's hooks, as its sessions see them."""

    def __init__(self, chain: HookChain) -> None:
        self.chain = chain
        self.points = chain.points
        self._before: dict[Key, _Word] = {}
        self._after: dict[Key, HookOutcome | None] = {}
        """By call whose result the host has shown to the hooks: what came of it, for the record."""

    # --- for executors -----------------------------------------------------------------------------------------------

    def has_seen(self, hook_point: str, session_id: str, request_id: str) -> bool:
        """Whether the host has shown this result to the hooks, and they have left it as it was."""
        return hook_point == "after_tool" and self._after.get((session_id, request_id), _UNSEEN) is None

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        """Ask the chain; what it says of a call is kept."""
        if isinstance(payload, ToolResultHook) and payload.request_id is not None:
            key = (payload.session_id, payload.request_id)
            if key in self._after:  # the host has run this tool, and fired the point
                said, self._after[key] = self._after[key], None
                return _told(said, payload) if said is not None else None
        outcome = await self.chain.fire(hook_point, payload)
        if isinstance(payload, ToolCallHook):
            return self._keep(payload, outcome)
        return outcome

    def _keep(self, payload: ToolCallHook, outcome: HookOutcome | None) -> HookOutcome | None:
        asks = outcome is not None and outcome.action == ASK
        if not payload.granted:  # else: a person has just given these arguments
            word = _Word(True, _who(outcome), outcome.reason) if outcome is not None and asks else _Word()
            self._before[payload.session_id, payload.request_id] = word
        if outcome is None or not asks:
            return outcome
        return outcome.model_copy(update={"action": "proceed"})

    # --- for the host ------------------------------------------------------------------------------------------------

    def tighten(self, request: ToolRequest, decision: PolicyDecision) -> PolicyDecision:
        """The policy's word, made the hook's question where a hook wants one. A denial stays.

        A yes to it can be remembered for these very arguments alone.
        """
        word = self._before.get((request.session_id, request.request_id))
        if word is None or not word.asks or decision.strictness > 1:
            return decision
        # Both may ask: an answer that was remembered for the policy's question alone does not answer the hook's.
        asked = decision.narrowing if decision.narrowing is not None else f"by {decision.by}"
        reasons = [reason for reason in (word.reason, decision.reason if decision.is_ask else None) if reason]
        return dataclasses.replace(
            decision,
            decision="ask_user",
            by=word.by,
            reason="; ".join(reasons) or None,
            # A yes to this call is none to others of its tool, which the hook may have other doubts about.
            remember="exact" if decision.remember in (None, "tool", "exact") else decision.remember,
            narrowing=f"{asked}\nby {word.by}",
            scope="",
        )

    async def before(
        self, request: ToolRequest, args: Mapping[str, Any], facts: Mapping[str, Any], *, granted: bool = False
    ) -> PolicyDecision | None:
        """Ask about a call that nobody has asked about yet, or with ``granted`` about a person's arguments.

        Its arguments are recorded, or approved, so hooks can only block. The denial, or ``None``.
        """
        key = (request.session_id, request.request_id)
        if not wants_hook(self, "before_tool") or (not granted and key in self._before):
            return None
        payload = ToolCallHook(
            **_place(request, facts),
            request_id=request.request_id,
            name=request.name,
            args=dict(args),
            owner=request.owner,
            granted=granted,
        )
        outcome = await self.fire("before_tool", payload)
        if outcome is None:
            return None
        change = read_change("before_tool", outcome)
        if outcome.action == "block":
            return PolicyDecision("deny", _who(outcome), outcome.message or outcome.reason or _BLOCKED)
        if isinstance(change, ToolArgsChange) and args_digest(change.args) != args_digest(dict(args)):
            return PolicyDecision("deny", _who(outcome), _CHANGED_AFTER)
        return None

    async def after(
        self, request: ToolRequest, args: Mapping[str, Any], facts: Mapping[str, Any], outcome: ToolOutcome
    ) -> ToolOutcome:
        """What a tool of the host returned, with what the hooks make of it; the executor will not ask them again."""
        if not wants_hook(self, "after_tool"):
            return outcome
        key = (request.session_id, request.request_id)
        self._after[key] = None
        told = outcome.answer(request.request_id)
        payload = ToolResultHook(
            **_place(request, facts),
            request_id=request.request_id,
            name=request.name,
            args=dict(args),
            content=told.content,
            is_error=told.is_error,
            **({"data": told.data} if "data" in told.model_fields_set else {}),
        )
        said = await self.chain.fire("after_tool", payload)
        if said is None:
            return outcome
        self._after[key] = said
        if said.action == "block":
            return ToolOutcome.failure("hook_blocked", said.message or _BLOCKED, by=_who(said))
        change = read_change("after_tool", said)
        if not isinstance(change, ToolResultChange):
            return outcome
        return ToolOutcome(data=change.data, is_error=outcome.is_error)

    def forget(self, session_id: str) -> None:
        """A turn is over: what was said of its calls is needed no longer."""
        for key in [key for key in self._before if key[0] == session_id]:
            del self._before[key]
        for key in [key for key in self._after if key[0] == session_id]:
            del self._after[key]


def _who(outcome: HookOutcome) -> str:
    return f"hook:{outcome.by}" if outcome.by else "hook"


def _told(said: HookOutcome, payload: ToolResultHook) -> HookOutcome:
    """What came of a result that the host has changed already: for the record that it was, and nothing changes again.

    A block needs no word: the result itself is the error, and names the hook.
    """
    if said.action != "block" and said.modifications and "data" in payload.model_fields_set:
        return said.model_copy(update={"modifications": {"data": payload.data}})
    return HookOutcome(failure=said.failure)


class ChildHooks(HostHooks):
    """A host's hooks, as the session of a sub-agent sees them: ``told`` says in each payload who is above it."""

    def __init__(self, hooks: HostHooks, told: Callable[[HookPayload], HookPayload]) -> None:
        super().__init__(hooks.chain)
        self._before, self._after = hooks._before, hooks._after
        self._told = told

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        """Ask the chain; what it says of a call is kept with the host's own."""
        return await super().fire(hook_point, self._told(payload))


def _place(request: ToolRequest, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "session_id": request.session_id,
        "user_id": facts.get("user_id") or "local",
        "turn_id": request.turn_id,
        "agent_id": request.agent_id or facts.get("principal"),
        "thread_id": request.thread_id,
        "permission_mode": facts.get("permission_mode"),
        "principal_path": list(facts.get("principal_path") or ()) or None,
    }
