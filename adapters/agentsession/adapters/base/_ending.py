"""How streams, runs and turns end: closings in their one legal order, settlements, aborts, repairs.

Not for: starting or continuing (``_turns.py``), limits (``_limits.py``). Rules carried: LIFE-05, LIFE-09, LIFE-14,
LIFE-16 to LIFE-18, TOOL-01, HITL-06, CTL-01 to CTL-06, PER-04, PER-05. May import: ``agentsession.protocol``,
anyio, the modules beside it.

Three ways lead to a ``stream_end``. A run that *exits* has its stream closed by :meth:`Ending.finish`; aborts, limits
and fatal errors only see to it that the run exits. A run whose work all waits *pauses* (``Turns.pause``). A turn that
waits is *settled* in a stream of its own, which executes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import anyio

from agentsession.adapters.base._arguments import need
from agentsession.adapters.base._run import Outcome, Run
from agentsession.adapters.base._settling import close_agents, close_messages, reopen_agents, settle_requests
from agentsession.adapters.base._stamping import restamp
from agentsession.protocol import (
    AbortTimeout,
    AgentEnd,
    AgentSessionError,
    AgentStart,
    ElicitationAnswer,
    Error,
    Event,
    Message,
    ProtocolViolation,
    RequestState,
    SessionError,
    StreamEnd,
    Thought,
    ToolDenial,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["Ending"]

_logger = logging.getLogger("agentsession.adapters")


class Ending:
    """Ends what :class:`Turns` starts, for one session."""

    def __init__(self, session: BaseSession) -> None:
        self._session = session
        self._executor = session.executor
        self._recorder = session.recorder
        self._machine = session.recorder.machine

    # -- a run has exited ---------------------------------------------------------------------------------------------

    def run_exited(self, run: Run, outcome: Outcome) -> None:
        """The executor's coroutine has returned, raised or was cancelled: end its stream, in this one step."""
        run.outcome = outcome
        run.exited.set()
        run.on_abort.clear()
        self._session.turns.unfinished()  # forgets it, if its turn was left
        if run is not self._session.turns.run or run.muted:
            return
        if self._machine.state == "running":
            try:
                self.finish(run)
            except Exception as error:
                # Not reachable by anything that an executor does; the group with all its sessions must not die of it.
                _logger.exception("session %s: the stream could not be closed", self._session.session_id)
                self.stop(
                    SessionError(
                        "the stream could not be closed; the session was stopped",
                        where=f"session {self._session.session_id}",
                        got=type(error).__name__,
                        fix="load the session; report this as a defect",
                    )
                )
        elif self._machine.state == "input_required":
            # It died while it waited: its requests answer stale, and the next stream tells how it ended.
            run.dead.update(
                request_id for reply in run.replies for request_id in reply.ids if request_id in self._machine.requests
            )

    def finish(self, run: Run) -> None:
        """Close the stream of a run that has exited."""
        machine, recorder = self._machine, self._recorder
        outcome = run.outcome or Outcome()
        reason, data, error = outcome.reason or "completed", outcome.data, outcome.error
        if machine.fatal:
            reason, error = ("failed" if reason in ("completed", "input_required") else reason), None
        elif run.aborting is not None:
            reason, data, error = run.end_reason, {"cause": run.aborting}, None
        elif error is None and reason in ("completed", "input_required"):
            reason = "completed"
            if not outcome.cancelled:
                if self._session.answers.pending_ids():
                    self.end("input_required")
                    return
                if (run.grace is None or _has_handed_in(run)) and self._session.turns.enter_on(run):
                    return
                error = self._left_open(steers=run.grace is None)
        last_word = self._session.last_word
        if run.grace is not None:
            if error is not None and not machine.fatal:
                last_word.failed(self._describe(error))
            over = run.aborting is not None or outcome.cancelled or reason in ("failed", "refusal", "aborted")
            data = last_word.end_data(run.grace, failed=over or error is not None)
            self._close_run(run, run.grace.limit)
            self.end(run.grace.limit, data)
            return
        if error is not None or (outcome.cancelled and reason == "completed"):
            recorder.record(self._describe(error), agent_id=self._session.descriptor.name)
            reason = "failed"
        self._close_run(run, reason)
        if last_word.asked_for(run, reason):
            if last_word.may_begin(run, reason):
                self._session.turns.start_last_word(run, reason, data)
                return
            data = {**(data or {}), "grace": "skipped"}
        if reason == "completed" and not self._said_something(run.turn_id):
            data = {**(data or {}), "empty": True}
        self.end(reason, data)

    def _close_run(self, run: Run, reason: str) -> None:
        """Close all that a run has open; nothing that it emits is recorded any more."""
        machine = self._machine
        run.muted = True
        run.kill_replies()
        self._session.answers.secrets.clear()
        self._close_all(machine.requests.values(), list(machine.open_messages), interrupted=reason != "completed")
        for event in close_agents(machine, reason):
            self._recorder.record(event)

    def _describe(self, error: BaseException | None) -> Error:
        if error is None:
            return Error(status="CANCELLED", message="the executor's work was cancelled from inside", fatal=True)
        try:
            described = need(
                self._executor.describe_error(error), Error, "result of describe_error", "return an Error event"
            )
            # What has left the run has ended it, whatever its author thinks of it: LIFE-09.
            return described if described.fatal else restamp(described, fatal=True)
        except Exception:  # logged; the stream must be closed in any case
            _logger.exception("describe_error failed")
            return Error(status="INTERNAL", message=f"the executor failed with {type(error).__name__}", fatal=True)

    def _left_open(self, *, steers: bool) -> ProtocolViolation | None:
        """What a run that returned as if it were done has forgotten."""
        machine, where = self._machine, f"session {self._session.session_id}"
        if machine.requests:
            request = next(iter(machine.requests.values()))
            return ProtocolViolation(
                "TOOL-01",
                f"the run returned without a response to {request.name} ({request.id})",
                where=where,
                fix="emit a tool_response for every request that the executor runs",
            )
        if machine.steers and steers:
            return ProtocolViolation(
                "CTL-06",
                "the run returned without taking a queued steer",
                where=where,
                fix="call ctx.steers() before each model call, and before returning while ctx.has_steers",
            )
        return None

    def _said_something(self, turn_id: str) -> bool:
        for event in reversed(self._recorder.log.events):
            if event.turn_id != turn_id:
                return False
            said = event.content if isinstance(event, Message) and event.source != "user" else ()
            if any(not isinstance(part, Thought) for part in said):
                return True
        return False

    # -- closing ------------------------------------------------------------------------------------------------------

    def end(self, reason: str, data: Mapping[str, Any] | None = None) -> None:
        """Record a stream_end; before a pause, close what is open."""
        machine, recorder, turns = self._machine, self._recorder, self._session.turns
        pending: list[str] = []
        if reason == "input_required":
            self._close_all((), list(machine.open_messages), interrupted=True)
            for event in close_agents(machine, "input_required"):
                recorder.record(event)
            pending = machine.pending
            data = self._waiting_data(turns.run)
            if turns.run is not None:
                turns.run.asked = {**turns.run.posted, **dict.fromkeys(pending)}
        else:
            if machine.steers:
                data = {**(data or {}), "undelivered": list(machine.steers)}
            self._session.steers.clear()
        self._session.limits.stream_ended(final=reason != "input_required")
        recorder.record(StreamEnd(reason=reason, pending=pending, data=dict(data) if data else None, source="host"))
        if reason == "input_required":
            self._executor.kept.paused(self._session)

    def _waiting_data(self, run: Run | None) -> dict[str, Any] | None:
        requests = self._machine.requests
        data: dict[str, Any] = {}
        volatile = [request_id for request_id in self._executor.volatile(self._session) if request_id in requests]
        if volatile:
            data["volatile"] = volatile
        answered = (
            [request_id for request_id in run.posted if request_id not in self._machine.pending]
            if run is not None
            else []
        )
        if answered:  # what a loaded session could not tell from answers of earlier steps
            data["answered"] = answered
        return {**data, **self._executor.pause_data(self._session)} or None

    def _close_all(self, requests: Iterable[RequestState], messages: Iterable[str], *, interrupted: bool) -> None:
        """Close in the legal order: waiting requests, messages, tools that had started. Agents come after."""
        recorder, chosen = self._recorder, list(requests)
        self._settle(chosen, started=False)
        for event in close_messages(self._machine, recorder.log.events, messages, interrupted=interrupted):
            recorder.record(event)
        self._settle([item for item in chosen if item.id in self._machine.requests])

    def _settle(self, requests: Iterable[RequestState], *, started: bool = True) -> None:
        """Settle those of ``requests`` that wait; with ``started`` also those that do not."""

        def has_begun(request: RequestState) -> bool:
            return self._executor.has_begun(self._session, request)

        for event in settle_requests(list(requests), started=started, has_begun=has_begun):
            self._recorder.record(event)

    def close_thread(
        self, thread_id: str | None, agent_id: str, reason: str, data: Mapping[str, Any] | None = None
    ) -> None:
        """The innermost agent of a thread is done."""
        self._close_all((), self._messages_on({thread_id}), interrupted=reason not in ("completed", "handoff"))
        stack = self._machine.agents.get(thread_id)
        if stack and stack[-1] == agent_id:
            told: dict[str, Any] = {"data": dict(data)} if data else {}
            self._recorder.record(AgentEnd(agent_id=agent_id, thread_id=thread_id, reason=reason, **told))

    def break_thread(self, thread_id: str | None, reason: str) -> None:
        """Close all that is open on a thread and below it."""
        machine = self._machine
        below = {thread_id}
        for _ in machine.parents:
            below |= {child for child, parent in machine.parents.items() if parent in below}
        requests = [request for request in machine.requests.values() if request.thread_id in below]
        self._close_all(requests, self._messages_on(below), interrupted=True)
        for event in close_agents(machine, reason, below):
            self._recorder.record(event)

    def _messages_on(self, threads: set[str | None]) -> list[str]:
        return [message_id for message_id, talk in self._machine.open_messages.items() if talk.thread_id in threads]

    def settle_ids(self, ids: Iterable[str]) -> None:
        """Settle these requests: nobody waits for them any more."""
        requests = self._machine.requests
        chosen = set(ids)
        self._settle([requests[request_id] for request_id in requests if request_id in chosen])

    def reopen(self) -> None:
        """Open again the agents that the pause closed. The stream has an event then, in any case."""
        for event in reopen_agents(self._machine.paused):
            self._recorder.record(event)
        if self._recorder.is_opening:  # the executor had closed its agents itself
            self._recorder.record(AgentStart(agent_id=self._session.descriptor.name, resumed=True))

    # -- settling a turn that waits -----------------------------------------------------------------------------------

    def settle_turn(self, reason: str, cause: str) -> str:
        """End a turn that waits, in a stream of its own, whose id is returned. Nothing is executed by it."""
        turns, machine = self._session.turns, self._machine
        last_word = self._session.last_word
        grace = turns.run.grace if turns.run is not None else last_word.of_record(machine.turn_id)
        self.mute(turns.run)
        self._session.answers.secrets.clear()
        options = turns.run.options if turns.run is not None else self._session.options.execution
        stream_id, _ = turns.begin_stream(cast(str, machine.turn_id), options)
        self._settle(machine.requests.values())
        if grace is not None:  # the first cause is why it ends
            self.end(grace.limit, last_word.end_data(grace, failed=True))
        else:
            self.end(reason, {"cause": cause})
        return stream_id

    def settle_volatile(self, cause: str, reason: str, volatile: Iterable[str]) -> None:
        """Settle what does not survive this process; the turn ends with it if nothing else waits."""
        lost = [request_id for request_id in volatile if request_id in self._machine.requests]
        if lost and set(lost) == set(self._machine.requests):
            self.settle_turn(reason, cause)
        else:
            self.settle_ids(lost)

    def mute(self, run: Run | None) -> None:
        """Nothing that ``run`` emits is recorded any more; it is asked to end."""
        if run is None or run.muted:
            return
        run.muted = True
        run.kill_replies()
        run.unpause()
        if not run.is_over:
            run.aborting = run.aborting or "settled"
            self._session.turns.leaving.append(run)
            self._cancel(run)

    def let_go(self) -> None:
        """End the run that is kept for a turn that waits; the turn stays, and is answered as after a restart."""
        turns = self._session.turns
        run = turns.run
        if run is not None:
            turns.left_options = run.options
            self.mute(run)
        turns.run = None

    # -- ending a run before its time ---------------------------------------------------------------------------------

    def interrupt(self, run: Run, reason: str, cause: str) -> None:
        """Settle what waits for the host, so that later answers are stale, and ask the run to end. Once."""
        if run.aborting is not None:
            run.no_grace = run.no_grace or reason in ("aborted", "deadline")
            return
        run.aborting, run.end_reason = cause, reason
        self._session.answers.secrets.clear()
        self._settle(self._machine.requests.values(), started=False)
        run.kill_replies()
        self._cancel(run)

    def _cancel(self, run: Run) -> None:
        wait_s = 0.0
        for handler in run.on_abort:
            try:
                wait_s = max(wait_s, handler() or 0.0)
            except Exception:  # logged; the run is cancelled all the same
                _logger.exception("an on_abort handler failed")
        if wait_s > 0:
            self._executor.task_group.start_soon(self._cancel_later, run, min(wait_s, self._executor.grace_s))
        elif run.scope is not None:
            run.scope.cancel()

    async def _cancel_later(self, run: Run, wait_s: float) -> None:
        with anyio.move_on_after(wait_s):
            await run.exited.wait()
        if run.scope is not None:
            run.scope.cancel()

    async def wait_exited(self, runs: Iterable[Run]) -> None:
        """Wait for runs to exit. Raises :class:`AbortTimeout` after the grace time, and stops the session."""
        waiting = [run for run in runs if not run.is_over]
        with anyio.move_on_after(self._executor.grace_s):
            for run in waiting:
                await run.exited.wait()
        if all(run.is_over for run in waiting):
            return
        error = AbortTimeout(
            f"the executor did not end within {self._executor.grace_s:g} s; the session was closed",
            where=f"session {self._session.session_id}",
            fix="load the session: it closes the cut stream; look for work that ignores cancellation",
        )
        self.stop(error)
        raise error

    def expect_exit(self) -> None:
        """See to it that what was asked to end from inside, by a limit or an error of its own, does.

        Nobody waits for it as an abort does: work that ignores its cancellation closes the session all the same.
        """
        # Those of now: the turn's last word may begin as soon as they have exited.
        runs = self._session.turns.unfinished()
        self._executor.task_group.start_soon(self.wait_or_close, runs, name="agentsession exit")

    async def wait_or_close(self, runs: Iterable[Run]) -> None:
        """Wait for runs to exit; the session is closed where one does not within the grace time."""
        try:
            await self.wait_exited(runs)
        except AbortTimeout:
            await self._session.release()

    def stop(self, failure: AgentSessionError) -> None:
        """Nothing can be recorded any more: the session is closed as it stands, readers raise."""
        if self._machine.state == "closed":
            return
        self._machine.abandon()
        self._session.limits.forget()
        self._recorder.log.close(failure)
        self.mute(self._session.turns.run)

    # -- loading and forking ------------------------------------------------------------------------------------------

    def add_known(self, events: Iterable[Event]) -> None:
        """Record what the agent behind knows of a stream that was cut; the record goes on where it ends."""
        recorder, agents = self._recorder, self._machine.agents
        for event in events:
            try:
                if event.agent_id is not None and event.thread_id is None and not agents.get(None):
                    recorder.record(AgentStart(agent_id=event.agent_id))
                recorder.record(event)
            except ProtocolViolation as error:
                _logger.info("session %s: left out of a cut stream: %s", self._session.session_id, error.headline())

    def repair(self) -> None:
        """Close what a process that was killed left: a cut stream, and requests that lived in its memory. PER-04."""
        machine, recorder = self._machine, self._recorder
        if machine.state == "running":
            self._settle(machine.requests.values())
            for event in close_agents(machine, "failed"):
                recorder.record(event)
            self.end("failed", {"cause": "lost"})
        elif machine.state == "input_required":
            if self._executor.can_resume(self._session):
                self.settle_volatile("lost", "failed", self._last_volatile())
            else:
                self.settle_turn("failed", "lost")

    def _last_volatile(self) -> list[str]:
        for event in reversed(self._recorder.log.events):
            if isinstance(event, StreamEnd):
                listed = (event.data or {}).get("volatile")
                return (
                    [request_id for request_id in listed if isinstance(request_id, str)]
                    if isinstance(listed, list)
                    else []
                )
        return []

    def settle_fork(self) -> None:
        """What was pending where the fork was made is settled in the fork. PER-05."""
        if self._machine.state == "input_required":
            self.settle_turn("aborted", "fork")


def _has_handed_in(run: Run) -> bool:
    """Whether something that a last word has posted was answered with more than a no: its completion tool has run."""
    answers = [run.kept.get(request_id) for request_id in run.posted]
    return any(answer is not None and not isinstance(answer, (ToolDenial, ElicitationAnswer)) for answer in answers)
