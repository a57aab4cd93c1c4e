"""The calls that a tool hands its own over to: each decided on and run like any, and told in the record.

Not for: what a tool returns to hand over (``_tailcalls.py``). Rules carried: HITL-01, TOOL-04.
May import: ``_decider``, ``_outcome``, ``_settings``, ``_tailcalls``, ``_toolruns``, ``protocol``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Awaitable, Callable

from agentsession.host._decider import Allowed, Decider, EndTurn, read_args
from agentsession.host._outcome import LEFT_WAITING, ToolOutcome, together, unknown_tool
from agentsession.host._settings import Settings
from agentsession.host._tailcalls import MAX_TAIL_CALLS, TailCall
from agentsession.host._toolruns import ToolRuns
from agentsession.protocol import Spent, ToolProgress, ToolRequest

__all__ = ["TailChain"]


class TailChain:
    """Makes the calls that the tools of one turn hand over."""

    def __init__(
        self,
        settings: Settings,
        decider: Decider,
        runs: ToolRuns,
        send_progress: Callable[[ToolProgress], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._decider = decider
        self._runs = runs
        self._send_progress = send_progress

    async def follow(self, first: ToolRequest, outcome: ToolOutcome, verdict: Allowed) -> ToolOutcome:
        """Make the calls that a tool of ``first`` hands its own over to; what the last one comes to.

        What each of them has used counts, however the chain ends. Raises :class:`EndTurn` when the person cancelled.
        """
        spent = outcome.spent
        for step in range(1, MAX_TAIL_CALLS + 1):
            if outcome.tail is None:
                break
            outcome = await self._step(first, outcome.tail, step, verdict, spent)
            spent = together(spent, outcome.spent)
        if outcome.tail is not None:
            outcome = ToolOutcome.failure("tail_call_limit", f"the tools handed over more than {MAX_TAIL_CALLS} times")
        return dataclasses.replace(outcome, spent=spent)

    async def _step(
        self, first: ToolRequest, tail: TailCall, step: int, verdict: Allowed, spent: Spent | None
    ) -> ToolOutcome:
        try:
            request = tail.request(first, step)
        except (TypeError, ValueError) as error:  # what a tool returns may be anything
            return ToolOutcome.failure("invalid_arguments", f"of the call that it hands over to: {error}")
        args, problem = read_args(request.args)
        tool = self._settings.tools.get(request.name)
        if tool is None:
            return unknown_tool(request.name, [each.name for each in self._settings.tools.descriptors])
        refused = ToolOutcome.failure("invalid_arguments", problem) if problem is not None else tool.check(args)
        if refused is not None:
            return refused
        try:
            word = await self._decider.decide(request, args, tool, None)
        except EndTurn as end:
            stopped = dataclasses.replace(_tail_denied(request, end.reason or "the user said no"), spent=spent)
            raise EndTurn(stopped.answer(first.request_id, verdict.decision, verdict.edited), end.reason) from None
        if not isinstance(word, Allowed):
            by = None if word is None else word.decision
            # What has run has run: the request is answered, and cannot wait any more.
            why = "nobody decided" if word is None else word.reason or "it was denied"
            await self._send_progress(TailCall.told(first, request, step, by, "denied"))
            return _tail_denied(request, why)
        await self._send_progress(TailCall.told(first, request, step, word.decision, "granted", word.edited))
        if word.edited is not None:
            args = copy.deepcopy(word.edited)
        outcome = await self._runs.run(request, tool, args, verdict, first, spent)
        if outcome is None or outcome is LEFT_WAITING:
            return _tail_denied(request, "it waits for somebody, and a call that was handed over cannot")
        if outcome.tail is not None:
            return outcome
        return await self._runs.shown(request, request.args if word.edited is None else word.edited, outcome)


def _tail_denied(request: ToolRequest, why: str) -> ToolOutcome:
    return ToolOutcome.failure(
        "tail_call_denied", f"the tool ran, and handed over to {request.name}, which did not: {why}", tool=request.name
    )
