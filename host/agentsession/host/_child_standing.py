"""Where a sub-agent's session stands, by its record; and what that comes to for the agent that called it.

Not for: running it (``_child_run.py``). Rules carried: none. May import: ``_completion``, ``_outcome``, ``_results``,
``protocol``.

Read from the record and not remembered, so that a result which was there before the process was killed is the same
result after it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from agentsession.host._completion import COMPLETE_TASK, CompletionTool
from agentsession.host._outcome import ToolOutcome, together
from agentsession.host._results import UsageTotals
from agentsession.protocol import (
    AgentSession,
    Error,
    Message,
    Spent,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    Usage,
    plain_text,
)

__all__ = ["NUDGE_ID", "Standing", "outcome_of", "read_standing"]

NUDGE_ID: Final = "subagent-nudge"
"""The id of the message that reminds a sub-agent of its result: once in a session."""

_PARTIAL_LIMIT: Final = 4_000
_LIMITS: Final = frozenset({"max_turns", "max_llm_calls", "max_budget", "max_time", "max_tokens", "deadline"})


@dataclasses.dataclass(slots=True)
class Standing:
    """What the record says."""

    has_task: bool = False
    nudged: bool = False
    has_result: bool = False
    """Whether a result was given by ``complete_task``."""
    result: Any = None
    text: str = ""
    """What the agent said last on its main thread."""
    error: str | None = None
    ran: bool = False
    """Whether a tool ran, or may have."""
    end: StreamEnd | None = None
    """The final end of its last turn."""
    usage: UsageTotals = dataclasses.field(default_factory=UsageTotals)
    """Of its own model calls; those of its sub-agents are told where they were called."""
    below: list[Spent] = dataclasses.field(default_factory=list[Spent])
    """What its own sub-agents and other tools have used."""

    @property
    def spent(self) -> Spent | None:
        """What counts against the limits of the agent that called it."""
        cost = (self.usage.cost or 0.0) if self.usage.cost_complete else None
        found = together(Spent(model_calls=self.usage.calls, cost=cost), *self.below)
        return found if found is not None and (found.model_calls or found.cost) else None

    @property
    def was_lost(self) -> bool:
        """Whether its process ended in the middle of its last turn."""
        return self.end is not None and (self.end.data or {}).get("cause") == "lost"


async def read_standing(session: AgentSession) -> Standing:
    """Fold the record."""
    found = Standing()
    results: dict[str, Any] = {}
    async for event in session.events():
        if isinstance(event, ToolResponse) and event.spent is not None:
            found.below.append(event.spent)
        match event:
            case Message(partial=False, role="user"):
                found.has_task = True
                found.nudged = found.nudged or event.message_id == NUDGE_ID
                found.end = None
            case Message(partial=False, role="agent", thread_id=None):
                found.text = plain_text(event.content) or found.text
            case ToolRequest(partial=False, name=name) if name == COMPLETE_TASK:
                results[event.request_id] = CompletionTool.result_of(event.args)
            case ToolResponse() if event.request_id in results:
                if event.status == "completed" and not event.is_error and not found.has_result:
                    found.has_result, found.result = True, results[event.request_id]
            case ToolResponse(status="completed" | "failed" | "unknown"):
                found.ran = True
            case Usage():
                found.usage.add(event)
            case Error():
                found.error = event.message
            case StreamEnd() if event.reason != "input_required":
                found.end = event
            case _:
                pass
    return found


def outcome_of(standing: Standing, *, needs_result: bool, session_id: str, agent: str, thread_id: str) -> ToolOutcome:
    """What the calling agent reads; and for people and programs, which session did the work, and with how much."""
    usage = standing.usage
    counts = {"calls": usage.calls, "inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}
    told = {
        "agent": agent,
        "sessionId": session_id,
        "threadId": thread_id,
        "usage": {name: value for name, value in {**counts, "cost": usage.cost}.items() if value is not None},
    }
    return dataclasses.replace(_outcome(standing, needs_result=needs_result), subagent=told)


def _outcome(standing: Standing, *, needs_result: bool) -> ToolOutcome:
    """A limit, a failure and an abort are errors that say how far it got."""
    end = standing.end
    reason = end.reason if end is not None else "failed"
    partial = _partial(standing.text)
    if reason == "aborted":
        effects = "its effects may be partial" if standing.ran else "before any of its tools ran"
        stopped = ToolOutcome.failure("cancelled", f"the sub-agent was stopped; {effects}", partialText=partial)
        return dataclasses.replace(stopped, unknown=True) if standing.ran else stopped
    if standing.has_result:
        return ToolOutcome(data=standing.result)
    if reason == "completed" and not needs_result:
        return ToolOutcome(data=standing.text)
    if reason == "completed":
        return ToolOutcome.failure(
            "subagent_no_result", f"the sub-agent ended without calling {COMPLETE_TASK}", partialText=partial
        )
    if reason in _LIMITS:
        return ToolOutcome.failure(
            "subagent_limit", f"the sub-agent was stopped by a limit: {reason}", reason=reason, partialText=partial
        )
    message = f"the sub-agent ended with {reason}" + (f": {standing.error}" if standing.error else "")
    return ToolOutcome.failure("subagent_failed", message, reason=reason, partialText=partial)


def _partial(text: str) -> str | None:
    if len(text) > _PARTIAL_LIMIT:
        return "…" + text[1 - _PARTIAL_LIMIT :]
    return text or None
