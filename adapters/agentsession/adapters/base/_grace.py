"""The last word of a turn that reached a limit: one more model call, in which nothing is started.

Not for: limits (``_limits.py``), how streams end (``_ending.py``). Rules carried: CTL-04, CTL-08.
May import: ``agentsession.protocol``, the modules beside it.

The run that reached the limit has exited and what it had open is closed. Then the executor is called again, in the same
stream, with ``ctx.grace``: a run like any other, but that every call it asks for is denied, every question cancelled,
and that it changes nothing about why the turn ends. What the agent is told is a message of the host's in the record;
by it a process that loads the session knows that the turn has had its limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agentsession.adapters.base._run import Run
from agentsession.adapters.base._stamping import restamp
from agentsession.protocol import (
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    Error,
    Event,
    Grace,
    Message,
    Text,
    Thought,
    ToolDenial,
    ToolRequest,
    ToolResponse,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["GRACE_LIMITS", "GraceCall", "LastWord", "denies"]

GRACE_LIMITS: Final = frozenset({"max_turns", "max_llm_calls", "max_time", "max_budget"})
"""Reasons after which there may be a last word: never after an abort, a deadline or a failure."""

_DENIED: Final = "the turn has reached its limit: nothing may be started any more"
_BY: Final = "host:limit"
_SHOWN: Final = {
    "max_turns": "model steps",
    "max_llm_calls": "model calls",
    "max_time": "time",
    "max_budget": "budget",
}


@dataclasses.dataclass(frozen=True, slots=True)
class GraceCall:
    """Why an executor is called for a last word, and what it shall tell its model."""

    limit: str
    """The reason of the turn's end, such as ``max_llm_calls``."""
    note: str
    """What the model is to be told, as the user's; it is in the record already."""
    message_id: str
    """The message of the record that holds it."""
    completion_tool: str | None
    """The only tool that may run."""
    seq: int
    """The seq of that message: what the agent says comes after it."""
    data: Mapping[str, Any]
    """What the ``stream_end`` would have told without it."""


class LastWord:
    """The last word of the present turn of one session."""

    def __init__(self, session: BaseSession) -> None:
        self._session = session
        self._recorder = session.recorder
        self._machine = session.recorder.machine

    def asked_for(self, run: Run, reason: str) -> bool:
        """Whether the host wants one when a run ends for this reason."""
        return run.options.grace is not None and reason in GRACE_LIMITS

    def may_begin(self, run: Run, reason: str) -> bool:
        """Whether there can be one now: the executor gives it, nobody has ended the turn, and its cost is reserved."""
        grace = run.options.grace
        if grace is None or run.no_grace or run.grace is not None or self._machine.fatal:
            return False
        if reason == "max_budget" and not self._session.limits.has_reserve(run, grace):
            return False
        return self._session.executor.gives_grace

    def begin(self, run: Run, reason: str, data: Mapping[str, Any] | None) -> GraceCall:
        """Record what the agent is told; all that the run had open is closed."""
        grace = run.options.grace or Grace()
        note = _note(reason, self._last_step(run.turn_id), grace.completion_tool)
        marks: dict[str, Any] = {"limit": reason}
        if grace.completion_tool is not None:
            marks["completionTool"] = grace.completion_tool
        if data:
            marks["data"] = dict(data)
        told = self._recorder.record(
            Message(
                message_id=self._recorder.new_id("m"),
                role="user",
                content=[Text(text=note)],
                source="host",
                meta={"grace": marks},
            )
        )
        return GraceCall(reason, note, told.message_id, grace.completion_tool, told.seq, data or {})

    def of_record(self, turn_id: str | None) -> GraceCall | None:
        """The last word that a loaded turn is in, by the record."""
        for event in reversed(self._recorder.log.events) if turn_id is not None else ():
            if event.turn_id is not None and event.turn_id != turn_id:
                return None
            found = _read(event)
            if found is not None:
                return found
        return None

    def check(self, run: Run, event: Event) -> None:
        """Answer in this very step what a run asks for in its last word: no tool runs, and nobody is asked."""
        grace = run.grace
        if grace is None:
            return
        if isinstance(event, ElicitationRequest) and event.request_id in self._machine.requests:
            cancelled = ElicitationAnswer(
                request_id=event.request_id, action="cancel", decision=Decision(by=_BY, reason=_DENIED)
            )
            self._session.answers.keep(cancelled)
            return
        if not isinstance(event, ToolRequest) or not denies(grace, event):
            return
        if event.needs == "none":
            self._recorder.record(
                ToolResponse(
                    request_id=event.request_id,
                    name=event.name,
                    status="denied",
                    is_error=True,
                    data={"error": _DENIED, "denied": True},
                    agent_id=event.agent_id,
                    thread_id=event.thread_id,
                    source="host",
                )
            )
        else:
            denied = ToolDenial(request_id=event.request_id, reason=_DENIED, decision=Decision(by=_BY, reason=_DENIED))
            self._session.answers.keep(denied)

    def failed(self, error: Error) -> None:
        """Tell of an exception of the last word: it is not why the turn ends."""
        self._recorder.record(restamp(error, fatal=False), agent_id=self._session.descriptor.name)

    def end_data(self, grace: GraceCall, *, failed: bool) -> dict[str, Any]:
        """The data of the turn's end: what came of the last word."""
        came = not failed and not self._machine.fatal and self._came_to_something(grace)
        return {**grace.data, "grace": "completed" if came else "failed"}

    def _came_to_something(self, grace: GraceCall) -> bool:
        for event in reversed(self._recorder.log.events):
            if event.seq <= grace.seq:
                return False
            if isinstance(event, ToolResponse) and event.name == grace.completion_tool:
                if event.status == "completed":
                    return True
            elif _says_something(event):
                return True
        return False

    def _last_step(self, turn_id: str) -> str | None:
        """The last tool that the turn has called, and what became of it."""
        for event in reversed(self._recorder.log.events):
            if event.turn_id is not None and event.turn_id != turn_id:
                return None
            if isinstance(event, ToolResponse):
                return f"{event.name} ({event.status})"
        return None


def denies(grace: GraceCall, event: Event) -> bool:
    """Whether this is a call that is denied in the step that records it: no hook need be asked about it."""
    return isinstance(event, ToolRequest) and not event.partial and event.name != grace.completion_tool


def _says_something(event: Event) -> bool:
    said = event.content if isinstance(event, Message) and event.role == "agent" and not event.partial else ()
    return any(not isinstance(part, Thought) for part in said)


def _note(limit: str, last: str | None, completion_tool: str | None) -> str:
    last_step = f" The last step was {last}." if last is not None else ""
    hand_in = f" You may call {completion_tool} to hand in what you have." if completion_tool is not None else ""
    return (
        f"The limit of {_SHOWN[limit]} of this turn is reached ({limit}).{last_step} "
        "This is your last message in it. Do not start anything: no tool will run." + hand_in + " "
        "Report briefly: what is done, what is still open, and what you are not certain of."
    )


def _read(event: Event) -> GraceCall | None:
    """The last word that a message begins; ``None`` for every other event, and for what an agent wrote under it."""
    if not isinstance(event, Message) or event.source != "host" or event.role != "user":
        return None
    marks = (event.meta or {}).get("grace")
    limit = marks.get("limit") if isinstance(marks, dict) else None
    if not isinstance(marks, dict) or limit not in GRACE_LIMITS:
        return None
    tool, data = marks.get("completionTool"), marks.get("data")
    text = "".join(part.text for part in event.content if isinstance(part, Text))
    return GraceCall(
        str(limit),
        text,
        event.message_id,
        tool if isinstance(tool, str) else None,
        event.seq,
        data if isinstance(data, dict) else {},
    )
