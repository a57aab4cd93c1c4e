"""One request on its way to its answer: schema check, policy, the person, the run.

Not for: the stages themselves (``_decider.py``, ``_asker.py``, ``_toolruns.py``, ``_tailchain.py``), scheduling and
sending (``_serving.py``). Rules carried: TOOL-04, TOOL-05, HITL-01.
May import: ``_asker``, ``_decider``, ``_lineage``, ``_outcome``, ``_results``, ``_settings``, ``_tailchain``,
``_toolruns``, ``protocol``.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable

from agentsession.host._asker import Asker, PolicyFacts, question_answer
from agentsession.host._decider import Allowed, Decider, EndTurn, denial, read_args
from agentsession.host._lineage import Above, Caller
from agentsession.host._outcome import LEFT_WAITING, ToolOutcome, unknown_tool
from agentsession.host._results import Stopwatch
from agentsession.host._settings import Settings
from agentsession.host._tailchain import TailChain
from agentsession.host._toolruns import ToolRuns
from agentsession.protocol import (
    AgentDescriptor,
    Answer,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    ToolGrant,
    ToolProgress,
    ToolRequest,
)

__all__ = ["EndTurn", "Pipeline"]


class Pipeline:
    """Makes the answers of one turn."""

    def __init__(
        self,
        settings: Settings,
        descriptor: AgentDescriptor,
        facts: PolicyFacts,
        find_request: Callable[[str], Awaitable[ToolRequest | None]],
        send_progress: Callable[[ToolProgress], Awaitable[None]],
        tell_start: Callable[[str], Awaitable[bool]],
        caller: Callable[[ToolRequest], Caller] | None = None,
        above: Above | None = None,
    ) -> None:
        self._settings = settings
        self._find_request = find_request
        self.people = Stopwatch()
        """In which at least one person was asked."""
        self.asker = Asker(settings, self.people, facts, above)
        self._decider = Decider(settings, descriptor, facts, self.asker, above)
        self.runs = ToolRuns(settings, facts, self.asker, send_progress, tell_start, caller)
        self._tails = TailChain(settings, self._decider, self.runs, send_progress)

    async def answer(self, request: ToolRequest | ElicitationRequest, problem: str | None = None) -> Answer | None:
        """The answer to ``request``; ``None`` leaves it waiting. ``problem``: why the last answer was refused.

        Raises :class:`EndTurn` when the person cancelled.
        """
        if isinstance(request, ToolRequest):
            return await self._answer_tool(request, problem)
        return await self._answer_question(request, problem)

    # --- tools --------------------------------------------------------------------------------------------------

    async def _answer_tool(self, request: ToolRequest, problem: str | None) -> Answer | None:
        args, problem_with_args = read_args(request.args)
        if problem_with_args is not None:
            return _refused(request, problem_with_args)
        if request.needs == "grant":
            verdict = await self._decider.decide(request, args, None, problem)
            if not isinstance(verdict, Allowed):
                return verdict
            return ToolGrant(request_id=request.request_id, args=verdict.edited, decision=verdict.decision)
        if request.needs != "result":
            why = f"unsupported_needs: this host does not know {request.needs[:40]!r}"
            return denial(request, why, Decision(by="host", reason=why))
        if request.owner == "agent" and request.long_running:
            return None  # the outcome of a job of the agent's, which comes from elsewhere
        tool = self._settings.tools.get(request.name)
        clients = self._settings.client_tools
        if tool is None and clients is not None and clients.takes(request):
            refusal = await self._decider.refusal(request, args)
            if refusal is None:  # it waits for the client's result
                clients.allow(request)
            return refusal
        if tool is None:
            known = [descriptor.name for descriptor in self._settings.tools.descriptors]
            return unknown_tool(request.name, known).answer(request.request_id)
        refused = tool.check(args)
        if refused is not None:
            return refused.answer(request.request_id)
        verdict = await self._decider.decide(request, args, tool, problem)
        if not isinstance(verdict, Allowed):
            return verdict
        if verdict.edited is not None:
            args = copy.deepcopy(verdict.edited)  # what the tool does to them must not reach the record
        outcome = await self.runs.run(request, tool, args, verdict)
        if outcome is None or outcome is LEFT_WAITING:
            return None
        if outcome.tail is not None:
            outcome = await self._tails.follow(request, outcome, verdict)
        # Not ``args``, which the tool had in its hands.
        outcome = await self.runs.shown(request, request.args if verdict.edited is None else verdict.edited, outcome)
        return outcome.answer(request.request_id, verdict.decision, verdict.edited)

    # --- questions ----------------------------------------------------------------------------------------------

    async def _answer_question(self, request: ElicitationRequest, problem: str | None) -> ElicitationAnswer | None:
        if request.kind == "tool_confirmation" and request.tool_request_id is not None:
            # A tool that brings its own confirmation is not asked for by needs: the policy's no holds here.
            call = await self._find_request(request.tool_request_id)
            if call is not None:
                decision = (await self._decider.judge(call, call.args or {}, None)).decision
                if decision.strictness > 1:
                    return question_answer(request, "decline", Decision(by=decision.by, reason=decision.reason))
        return await self.asker.ask(request, problem)


def _refused(request: ToolRequest, problem: str) -> Answer:
    if request.needs != "result":
        why = f"invalid_arguments: {problem}"
        return denial(request, why, Decision(by="host", reason=why))
    answer: Answer = ToolOutcome.failure("invalid_arguments", problem).answer(request.request_id)
    return answer
