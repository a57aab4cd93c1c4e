"""What a run does to its session while it works: it records, waits, pauses the stream, and closes threads.

Not for: what the executor's author sees (``_context.py``), starting runs (``_turns.py``) or ending them
(``_ending.py``). Rules carried: TOOL-06, HITL-07, LIFE-18.
May import: ``agentsession.protocol``, the modules beside it.

Every method is one synchronous step. A run whose turn was settled, or that another one has followed, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agentsession.adapters.base._arguments import need
from agentsession.adapters.base._run import Reply, Run
from agentsession.protocol import (
    ElicitationRequest,
    Error,
    Event,
    Initialize,
    ProtocolViolation,
    RunEnded,
    StreamEnd,
    Usage,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["Work"]

E = TypeVar("E", bound=Event)

_SPECIAL: Final = frozenset({"stream_end", "initialize", "elicitation_request", "error", "usage"})
"""Types of events that a run may not emit, or that more than recording follows."""


class Work:
    """The runs of one session at work."""

    def __init__(self, session: BaseSession) -> None:
        self._session = session
        self._recorder = session.recorder
        self._machine = session.recorder.machine
        self._answers = session.answers
        self._turns = session.turns
        self._loops = session.loops

    def record_for(self, run: Run, event: E, agent_id: str, thread_id: str | None) -> E:
        """Record what ``run`` emits, with the context's agent and thread where the event names none."""
        if run.muted or run is not self._turns.run or run.attach is not None:
            self.check_open(run)
        try:
            special = event.type in _SPECIAL
            if special:
                self._check_emitted(run, event)
                event = self._session.limits.priced(run, self._dated(event))
            made = self._recorder.record(event, agent_id, thread_id)
        except AttributeError:  # asked here and not before: it costs nothing as long as events are emitted
            need(event, Event, "emitted value", "emit an event; say text with ctx.say()")
            raise
        if special:
            if isinstance(made, ElicitationRequest):
                self._answers.cancel_unsupported(made)
            elif isinstance(made, Error) and made.fatal and run.scope is not None:
                run.scope.cancel()  # fatal ends the stream at once: LIFE-18
                self._session.ending.expect_exit()
            elif isinstance(made, Usage):
                self._session.limits.spent(run, made)
        if run.grace is not None:
            self._session.last_word.check(run, made)
        if self._session.limits.due:
            self._session.limits.check_spent(run)
        if self._loops.due is not None:
            self._loops.act(run)
        if run.busy <= 0:
            self.pause_again(run)
        return made

    @staticmethod
    def _check_emitted(run: Run, event: Event) -> None:
        """Refuse what only the session records."""
        if isinstance(event, (StreamEnd, Initialize)):
            raise ProtocolViolation(
                "LIFE-05" if isinstance(event, StreamEnd) else "LIFE-03",
                f"an executor emits {event.type}, which the session does",
                where=f"turn {run.turn_id}",
                fix="return from the run; a RunResult gives the reason",
            )

    def _dated(self, event: E) -> E:
        """A question says until when it may be answered, where the turn has a deadline and its author gave none."""
        expires_at = self._session.limits.expires_at
        if expires_at is None or not isinstance(event, ElicitationRequest) or event.expires_at is not None:
            return event
        return event.model_copy(update={"expires_at": expires_at})

    def record_delta(self, run: Run, template: dict[str, Any], kind: str, text: str, index: int) -> None:
        """What :meth:`record_for` does, for a delta."""
        if run.muted or run is not self._turns.run or run.attach is not None:
            self.check_open(run)
        self._recorder.record_delta(template, kind, text, index)
        if self._loops.due is not None:
            self._loops.act(run)
        if run.busy <= 0:
            self.pause_again(run)

    def check_open(self, run: Run) -> None:
        """Raise :class:`RunEnded` where ``run`` has no stream to emit into."""
        if run.muted or run is not self._turns.run:
            raise RunEnded("the turn was settled", where=f"turn {run.turn_id}", fix="return from the run")
        if run.attach is not None:
            raise RunEnded("no stream is open", where=f"turn {run.turn_id}", fix="await ctx.attached() first")

    def wait_for(self, run: Run, ids: Sequence[str], *, counts: bool) -> Reply:
        """Register a wait; when it makes the run idle, the stream pauses."""
        for request_id in ids:
            if request_id not in run.kept and request_id not in self._machine.requests:
                self._answers.find(run, request_id)
        if run.attach is None:
            self._answers.take_secrets(ids)
        reply = run.reply(list(ids), counts=counts)
        if run.muted or run.aborting:
            run.replies.remove(reply)
            reply.kill()
        elif reply.complete:
            run.replies.remove(reply)
            reply.release()
        elif counts:
            self.idle(run)
        return reply

    def idle(self, run: Run) -> None:
        """One context of ``run`` stopped working; the last one pauses the stream."""
        run.busy -= 1
        if run.busy <= 0:
            self.pause(run)

    def pause(self, run: Run) -> bool:
        """End the stream ``input_required`` if something is pending; whether it was."""
        ends = run is not self._turns.run or run.muted or run.aborting is not None or self._machine.fatal
        if ends or run.attach is not None or not self._machine.pending:
            return False
        run.pause()
        self._session.ending.end("input_required")
        return True

    def pause_again(self, run: Run) -> None:
        """Work that no context stands for has emitted what it held, while all contexts wait."""
        if run.holding == 0:
            self.pause(run)

    def abandon(self, run: Run, reply: Reply) -> None:
        """A context stopped waiting without its answers: what it waited for is settled, its answers are stale."""
        if not reply.released:
            if reply in run.replies:
                run.replies.remove(reply)
            if reply.counts:
                run.busy += 1
        self.abandon_ids(run, reply.ids)

    def abandon_ids(self, run: Run, ids: Sequence[str]) -> None:
        """Nobody waits for these any more."""
        if run.muted or run is not self._turns.run or run.aborting or self._machine.state == "closed":
            return
        open_ids = [request_id for request_id in ids if request_id in self._machine.requests]
        for request_id in open_ids:
            self._answers.secrets.pop(request_id, None)
        if run.attach is None:
            self._session.ending.settle_ids(open_ids)
        else:
            run.dead.update(open_ids)
            run.woken = True

    def close_thread(
        self,
        run: Run,
        thread_id: str | None,
        agent_id: str,
        reason: str = "completed",
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """The agent that a context stands for is done: its messages are closed, then the agent."""
        if run.muted or run is not self._turns.run:
            return
        self.check_open(run)
        self._session.ending.close_thread(thread_id, agent_id, reason, data)

    def break_thread(self, run: Run, thread_id: str | None, reason: str) -> None:
        """An exception leaves a thread: what it had open is closed, also below it."""
        if run.muted or run is not self._turns.run or run.aborting or self._machine.state != "running":
            if run is self._turns.run and not run.muted and run.attach is not None:
                run.broken.append((thread_id, reason))
            return
        self._session.ending.break_thread(thread_id, reason)
