"""The runs of a turn's host tools: in a free place, within their time, said in the record before they begin.

Not for: whether a tool may run (``_decider.py``), or the tool itself (``_tools.py``).
Rules carried: CTL-01, HITL-11, TOOL-12, TOOL-16.
May import: anyio, ``_asker``, ``_decider``, ``_lineage``, ``_outcome``, ``_places``, ``_results``, ``_settings``,
``_telemetry``, ``_toolcontext``, ``_toolquestions``, ``_tools``, ``protocol``.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel

from agentsession.host._asker import Asker, PolicyFacts
from agentsession.host._decider import Allowed
from agentsession.host._lineage import Caller
from agentsession.host._outcome import ToolOutcome, together
from agentsession.host._places import hold_places
from agentsession.host._results import Stopwatch
from agentsession.host._settings import Settings
from agentsession.host._telemetry import tool_span
from agentsession.host._toolcontext import ToolContext
from agentsession.host._toolquestions import ToolQuestions
from agentsession.host._tools import Tool
from agentsession.protocol import Answer, Spent, ToolProgress, ToolRequest

__all__ = ["ToolRuns"]

logger = logging.getLogger("agentsession.host")

_RUNNING: set[tuple[str, str]] = set()
"""The requests whose tools run in this process now, by session: several hosts may serve one session."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """A tool at work for a request."""

    context: ToolContext
    verdict: Allowed
    spent: Spent | None
    """What the tools before it have used that handed over to it."""


class ToolRuns:
    """Those of one turn."""

    def __init__(
        self,
        settings: Settings,
        facts: PolicyFacts,
        asker: Asker,
        send_progress: Callable[[ToolProgress], Awaitable[None]],
        tell_start: Callable[[str], Awaitable[bool]],
        caller: Callable[[ToolRequest], Caller] | None,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._asker = asker
        self._send_progress = send_progress
        self._tell_start = tell_start
        self._caller = caller
        self.time = Stopwatch()
        """In which at least one of them ran."""
        self.still_running: list[str] = []
        """The requests whose sync tool was given up, and whose thread could not be stopped."""
        self._running: dict[str, _Run] = {}
        self._cut: dict[str, _Run] = {}
        self._marked: set[tuple[str, str]] = set()
        """Those of :data:`_RUNNING` that are of this turn."""
        self._slots = anyio.CapacityLimiter(settings.max_parallel_tools)
        # Threads of tools that were given up keep their place until they end; these must not starve the others.
        self._threads = anyio.CapacityLimiter(settings.max_parallel_tools + 32)

    async def run(
        self,
        request: ToolRequest,
        tool: Tool,
        args: dict[str, Any],
        verdict: Allowed,
        first: ToolRequest | None = None,
        spent: Spent | None = None,
    ) -> ToolOutcome | None:
        """Run a host tool in one of the free places; waiting for a place or a person is not its time. Rule: HITL-11.

        ``None`` where somebody else has started it: whoever that is tells its result. Rule: TOOL-16.
        ``first``: the request that is answered by it, when another tool handed over to this one; ``spent``: what that
        one has used.
        """
        answered = (first or request).request_id

        async def send_progress(progress: ToolProgress) -> None:
            await self._send_progress(progress.model_copy(update={"request_id": answered}))

        settings = self._settings
        limit_s = settings.tool_timeout_s if tool.timeout_s is None and not tool.keeps_time else tool.timeout_s
        questions = ToolQuestions(request, self._asker.ask, self.time)
        # What a sub-agent does is progress of the request that is answered by it, like that of any tool.
        caller = None if self._caller is None else self._caller(first or request)
        if caller is not None:
            caller = dataclasses.replace(caller, request=request, send=send_progress)
        context = ToolContext(
            request.request_id,
            tool_name=tool.name,
            session_id=request.session_id,
            turn_id=request.turn_id,
            thread_id=request.thread_id,
            ask=questions.ask,
            caller=caller,
            user_id=self._facts(request)["user_id"] or "local",
        )
        refused = tool.refuses(context)
        if refused is not None:
            return refused
        outcome: ToolOutcome | None = None
        is_late = False
        async with hold_places(tool.places, context), self._slots:
            # In the record before the tool runs: after a crash nobody can say whether a tool ran that left no trace.
            if first is None and tool.tells_start and not await self._tell_start(request.request_id):
                return None
            # Stopped while it got its place: from here to the tool's first line nothing is awaited.
            await anyio.lowlevel.checkpoint_if_cancelled()
            try:
                self._running[answered] = _Run(context, verdict, spent)
                self._marked.add((request.session_id, answered))
                _RUNNING.add((request.session_id, answered))
                with self.time.running(), tool_span(tool.name, request.request_id, request.session_id, args) as span:
                    async with anyio.create_task_group() as progress:
                        progress.start_soon(context.forward, send_progress)
                        with anyio.move_on_after(limit_s) as scope:
                            questions.limit = scope
                            outcome = await tool.run(
                                args,
                                context,
                                limiter=self._threads,
                                expose_errors=settings.expose_tool_errors,
                                is_checked=True,
                            )
                        is_late = scope.cancel_called
                        context.finish()
                    if outcome is None or outcome.is_error:
                        code = "tool_timeout" if outcome is None or is_late else outcome.error_code
                        span.failed(code or "tool_error")
                    if outcome is not None:
                        span.result(outcome)
            except anyio.get_cancelled_exc_class():
                # The whole turn is being cancelled, perhaps before anybody asked what runs.
                if answered in self._running:
                    self._cut[answered] = _Run(context, verdict, spent)
                raise
            finally:
                self._running.pop(answered, None)
                context.cancel()
                if context.thread_running:
                    self.still_running.append(answered)
                    logger.warning("tool %r was given up; its thread still runs", tool.name)
        if outcome is None or (is_late and outcome.is_error):
            running = True if context.thread_running else None
            outcome = ToolOutcome.failure("tool_timeout", f"no result within {limit_s} s", stillRunning=running)
        return outcome

    def stopped(self) -> list[Answer]:
        """What to say of the tools that run now, when they are about to be stopped: their effects may be partial.

        The session only knows that their requests wait, and would settle them as never started. Said once of each.
        """
        running, self._running, self._cut = {**self._cut, **self._running}, {}, {}
        return [
            _stopped(run).answer(request_id, run.verdict.decision, run.verdict.edited)
            for request_id, run in running.items()
        ]

    def over(self, request: ToolRequest) -> None:
        """The request is answered: until here, no other host of this process is to call its outcome unknown."""
        key = (request.session_id, request.request_id)
        if key in self._marked:
            self._marked.discard(key)
            _RUNNING.discard(key)

    @staticmethod
    def is_running(request: ToolRequest) -> bool:
        """Whether a host of this process runs the tool of this request now, or is about to tell its result."""
        return (request.session_id, request.request_id) in _RUNNING

    @staticmethod
    def lost(request: ToolRequest) -> Answer:
        """What to say of a tool that was started by a host that is gone. It is never run again."""
        answer: Answer = _cut_off(
            "outcome_unknown",
            "its host ended after it had started; whether it had its effects is not known, and it was not run again",
        ).answer(request.request_id)
        return answer

    async def shown(self, request: ToolRequest, args: Mapping[str, Any] | None, outcome: ToolOutcome) -> ToolOutcome:
        """What the hooks make of a result, before anybody else has it."""
        if self._settings.hooks is None:
            return outcome
        shown = await self._settings.hooks.after(request, args or {}, self._facts(request), outcome)
        # Whatever the model is told of it: what it has used, who worked, and whether it was cut off, is as it was.
        return dataclasses.replace(shown, spent=outcome.spent, unknown=outcome.unknown, subagent=outcome.subagent)


def _stopped(run: _Run) -> ToolOutcome:
    running = True if run.context.thread_running else None
    cut = _cut_off("cancelled", "the tool was stopped; its effects may be partial", stillRunning=running)
    caller = run.context.caller
    used = None if caller is None else caller.limits.used_by(caller.answers)
    return dataclasses.replace(cut, subagent=run.context.subagent, spent=together(run.spent, used))


def _cut_off(code: str, message: str, **details: Any) -> ToolOutcome:
    return dataclasses.replace(ToolOutcome.failure(code, message, **details), unknown=True)
