"""Whether one call may run: hooks, policy, the mode's ceiling, what was remembered, and where it is to be, the person.

Not for: running it (``_toolruns.py``), or reaching the person (``_asker.py``).
Rules carried: HITL-01, HITL-02, HITL-04.
May import: ``_asker``, ``_elicitation``, ``_lineage``, ``_policy``, ``_settings``, ``_telemetry``, ``_tools``,
``_waiting``, ``policy``, ``protocol``.

Stages only tighten: a person's yes, now or remembered, turns an ``ask_user`` into a run, nothing turns a denial into
one. Between the policy and the person come the mode's ceiling and what was remembered, in :meth:`Decider.judge`.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from typing import Any, Final

import anyio

from agentsession.host._asker import Asker, PolicyFacts
from agentsession.host._elicitation import Approval
from agentsession.host._lineage import Above
from agentsession.host._policy import PolicyDecision, PolicyRequest, ceiling
from agentsession.host._policy import decide as ask_policy
from agentsession.host._settings import Settings
from agentsession.host._telemetry import measure_policy
from agentsession.host._tools import Tool
from agentsession.host._waiting import Judged, Waiting
from agentsession.host.policy._remembered import memory_of
from agentsession.protocol import (
    AgentDescriptor,
    Answer,
    ConfigurationError,
    Decision,
    JsonError,
    ToolAnnotations,
    ToolDenial,
    ToolRequest,
    check_json,
)

__all__ = ["Allowed", "Decider", "EndTurn", "denial", "read_args"]

logger = logging.getLogger("agentsession.host")

_TRIES: Final = 3
"""How often a person may give arguments that do not fit, before the answer is no."""


class EndTurn(Exception):
    """The person cancelled: ``answer`` is given, and the turn is aborted."""

    def __init__(self, answer: Answer, reason: str | None) -> None:
        super().__init__(reason)
        self.answer = answer
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class Allowed:
    """The call may run: by whose word, and with which arguments when they were edited."""

    decision: Decision
    edited: dict[str, Any] | None


class Decider:
    """Decides on the calls of one turn."""

    def __init__(
        self, settings: Settings, descriptor: AgentDescriptor, facts: PolicyFacts, asker: Asker, above: Above | None
    ) -> None:
        self._settings = settings
        self._descriptor = descriptor
        self._facts = facts
        self._asker = asker
        self._above = above

    async def decide(
        self, request: ToolRequest, args: dict[str, Any], tool: Tool | None, problem: str | None
    ) -> Allowed | ToolDenial | None:
        """The word on a call with these checked arguments; ``None`` leaves it waiting. ``tool``: ``None`` for a grant.

        ``problem``: why the last answer was refused. Raises :class:`EndTurn` when the person cancelled.
        """
        if self._above is not None and self._above.is_done():
            why = "task_complete: the result was given, and nothing more may run"
            return denial(request, why, Decision(by="host", reason=why))
        blocked = await self._blocked(request, args)
        if blocked is not None:
            return blocked
        if tool is not None and tool.is_completion:
            return Allowed(Decision(by="host", reason="the agent's result"), None)
        judged = await self.judge(request, args, tool)
        if not judged.decision.is_ask:
            return _settled(request, judged.decision)

        def mode() -> str:
            return str(self._facts(request)["permission_mode"])

        with self._settings.waiting.opened(
            Waiting(request, judged, mode, lambda: self.judge(request, args, tool))
        ) as waiting:
            for _ in range(_TRIES):
                approval = await self._ask(waiting, problem)
                if approval is None:
                    assert waiting.settled is not None  # else the question would not have been withdrawn
                    return _settled(request, waiting.settled)
                if approval.verdict == "pause":
                    return None
                word = Decision(by=approval.by, reason=approval.reason)
                if not approval.is_yes:
                    denied = denial(request, approval.reason or "the user said no", word)
                    if approval.verdict == "cancel":
                        raise EndTurn(denied, approval.reason)
                    return denied
                again, edited = waiting.judged, None
                if approval.args is not None:
                    edited, problem = _edited(approval.args, tool)
                    if problem is not None:
                        waiting.is_answered = False
                        continue
                    # The person's arguments pass the policy again: an edit may not go where the model could not.
                    again = await self.judge(request, edited, tool, edited=True)
                elif mode() != again.question.permission_mode:  # the mode was changed while the person thought
                    again = await self.judge(request, args, tool)
                if again.decision.strictness > 1:
                    return _policy_denial(request, again.decision)
                if edited is not None and tool is not None:  # of a grant the executor asks the hooks itself
                    blocked = await self._blocked(request, edited, granted=True)
                    if blocked is not None:
                        return blocked
                await self._remember(again, approval)
                return Allowed(word, edited)
        return denial(request, "invalid_edit: the edited arguments do not fit", Decision(by="host", reason=problem))

    async def refusal(self, request: ToolRequest, args: dict[str, Any]) -> ToolDenial | None:
        """What hooks or policy have against a call that a client of this host is to run; it is asked about nowhere
        else, as who runs it is who would be asked."""
        blocked = await self._blocked(request, args)
        if blocked is not None:
            return blocked
        decision = (await self.judge(request, args, None)).decision
        return _policy_denial(request, decision) if decision.strictness > 1 else None

    async def _ask(self, waiting: Waiting, problem: str | None) -> Approval | None:
        """The person's word; ``None`` when something else settled the request meanwhile, and the question is void."""
        approval: Approval | None = None
        if waiting.settled is None:
            with anyio.CancelScope() as waiting.scope:
                approval = await self._asker.approve(waiting.request, waiting.judged.decision, problem)
        if waiting.settled is not None and (approval is None or waiting.settled.strictness > 1):
            return None
        waiting.is_answered = True
        return approval

    async def _remember(self, judged: Judged, approval: Approval) -> None:
        """Keep a yes that is to hold for more than this call, and settle at once what else it answers."""
        if approval.remember == "once" or not judged.decision.is_ask:
            return
        kept = self._settings.remembered.keep(judged.question, judged.decision, approval.remember)
        self._settings.waiting.settle_remembered()  # before anything is awaited: nobody is asked what was answered
        if kept is None:
            return
        try:
            await self._settings.remembered.save(kept)
        except ConfigurationError as error:
            logger.warning("the answer is not saved, and holds as long as this process: %s", error.what)

    async def judge(
        self, request: ToolRequest, args: dict[str, Any], tool: Tool | None, *, edited: bool = False
    ) -> Judged:
        """The policy's word, held to the mode's ceiling; a question that a remembered answer settles is an allow."""
        judged = await self._ask_policy(request, args, tool, edited=edited)
        question, decision = judged.question, judged.decision
        if self._settings.hooks is not None:
            decision = self._settings.hooks.tighten(request, decision)
        found = self._settings.remembered.find(question, decision)
        if found is not None:
            decision = PolicyDecision("allow", f"remembered:{found.id}")
        elif decision.is_ask:  # the channel offers what can be had
            decision = dataclasses.replace(decision, remember=memory_of(question, decision))
        return Judged(question, decision)

    async def _ask_policy(
        self, request: ToolRequest, args: dict[str, Any], tool: Tool | None, *, edited: bool
    ) -> Judged:
        """The policy's word, in the mode that still holds when it is given."""
        question = self._question(request, args, tool, edited=edited)
        for _ in range(_TRIES):
            # A copy: what a policy does to the arguments must not reach the tool.
            asked = dataclasses.replace(question, args=copy.deepcopy(args))
            with measure_policy() as decided:
                decision = ceiling(question, await ask_policy(self._settings.policy, asked))
                decided(decision.decision)
            now = self._question(request, args, tool, edited=edited)
            if now.permission_mode == question.permission_mode:
                return Judged(question, decision)
            question = now  # the mode was changed while the policy thought
        return Judged(question, PolicyDecision("deny", reason="policy_error: the permission mode changed at each try"))

    def _question(
        self, request: ToolRequest, args: dict[str, Any], tool: Tool | None, *, edited: bool
    ) -> PolicyRequest:
        owner = "agent" if tool is None and request.needs != "result" else "host"
        annotations = self._own_annotations(request.name) if tool is None else tool.descriptor.annotations
        return PolicyRequest(
            tool=request.name,
            args=args,
            annotations=annotations,
            owner=owner,
            provider=None if tool is None else tool.provider,
            provider_tool=None if tool is None else tool.local_name,
            trusted=tool is not None and tool.trusted,
            request_id=self._asker.shown_id(request),
            edited=edited,
            interactive=getattr(self._settings.channel, "interactive", True) is True,
            **self._facts(request),
        )

    async def _blocked(self, request: ToolRequest, args: dict[str, Any], *, granted: bool = False) -> ToolDenial | None:
        """What the hooks say of a call that its executor did not show them, or of a person's arguments."""
        if self._settings.hooks is None:
            return None
        blocked = await self._settings.hooks.before(request, args, self._facts(request), granted=granted)
        return _policy_denial(request, blocked) if blocked is not None else None

    def _own_annotations(self, name: str) -> ToolAnnotations | None:
        agents = [self._descriptor]
        while agents:
            agent = agents.pop(0)
            for descriptor in agent.own_tools:
                if descriptor.name == name:
                    return descriptor.annotations
            agents.extend(agent.sub_agents)
        return None


def read_args(args: object) -> tuple[dict[str, Any], str | None]:
    """A copy of arguments, and what is wrong with them. None is none; an executor may have checked nothing."""
    try:
        read: Any = check_json({} if args is None else args)
    except JsonError as error:
        return {}, str(error)
    if not isinstance(read, dict):
        return {}, f"the arguments must be an object, not {type(args).__name__}"
    return read, None


def _edited(args: object, tool: Tool | None) -> tuple[dict[str, Any], str | None]:
    """A copy of edited arguments, and what is wrong with them. What JSON cannot say could run and never be recorded."""
    edited, problem = read_args(args)
    if problem is not None:
        return edited, problem
    refused = tool.check(edited) if tool is not None else None
    if refused is None:
        return edited, None
    problems = [(one["path"], one["message"]) for one in refused.data["error"]["problems"]]
    return edited, "; ".join(message if path == "/" else f"{path}: {message}" for path, message in problems)


def denial(request: ToolRequest, reason: str, decision: Decision) -> ToolDenial:
    """The answer that nothing runs."""
    return ToolDenial(request_id=request.request_id, reason=reason, decision=decision)


def _settled(request: ToolRequest, decision: PolicyDecision) -> Allowed | ToolDenial:
    """What a decision that is no question comes to."""
    if decision.is_allow:
        return Allowed(Decision(by=decision.by, reason=decision.reason), None)
    return _policy_denial(request, decision)


def _policy_denial(request: ToolRequest, decision: PolicyDecision) -> ToolDenial:
    reason = decision.reason or f"the host's policy does not allow {request.name}"
    return denial(request, reason, Decision(by=decision.by, reason=decision.reason))
