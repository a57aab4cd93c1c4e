"""The runs of one session: starting and continuing turns, and the answers that a run is given.

Not for: what a run does while it works (``_work.py``), how a run or a turn ends (``_ending.py``), steers
(``_steering.py``), recording (``_recording.py``). Rules carried: LIFE-07, TOOL-07 to TOOL-11, HITL-10, ORD-09.
May import: ``agentsession.protocol``, the modules beside it.

Every method is one synchronous step. A turn is worked on by one run that stays open over its pauses, or by one run
after the other, each called with the answers to what the one before has asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from agentsession.adapters.base._answering import recorded_answer
from agentsession.adapters.base._grace import GraceCall
from agentsession.adapters.base._limits import check_limits, deadline_ms
from agentsession.adapters.base._readers import LogStream
from agentsession.adapters.base._run import Run
from agentsession.protocol import (
    AgentStart,
    Answer,
    ExecutionOptions,
    InvalidInput,
    Message,
    MessageInput,
    NothingToContinue,
    Receipt,
    StreamActive,
    StreamEnd,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["Turns"]


class Turns:
    """What runs, what ran, and what waits, of one session."""

    def __init__(self, session: BaseSession) -> None:
        self._session = session
        self._executor = session.executor
        self._recorder = session.recorder
        self._machine = session.recorder.machine
        self._answers = session.answers
        self.run: Run | None = None
        """The run of the present turn, or the last one."""
        self.leaving: list[Run] = []
        """Runs that were left before they had exited: their turn was settled, or they were let go."""
        self.left_options: ExecutionOptions | None = None
        """Those of a run that was let go, for the run that goes on with its turn."""

    # -- starting and continuing --------------------------------------------------------------------------------------

    def start(self, message: MessageInput, options: ExecutionOptions | None) -> LogStream:
        """Start a turn; settle the one that waits first."""
        recorder, machine = self._recorder, self._machine
        key = message.idempotency_key
        if key is not None and key in recorder.idempotency and machine.state != "closed":
            return self._reattach(key)
        machine.check_call("message")
        self._check_none_opening()
        self._executor.check_message(message)
        if message.message_id is not None and machine.is_closed_message(message.message_id):
            raise InvalidInput(
                f"message {message.message_id} is in the record already",
                where=f"session {self._session.session_id}",
                fix="use a new message_id, or an idempotency_key to attach to its turn again",
            )
        merged = self.merged(options, self._session.options.execution)
        self._check_limits(merged)
        deadline_ms(merged)  # raises for what is no moment in time, before anything has happened
        self._executor.task_group  # noqa: B018  # raises when the executor is not entered
        self._executor.kept.check_room(self._session)
        self._executor.kept.discard(self._session)
        if machine.state == "input_required":
            self._session.ending.settle_turn("aborted", "superseded")
        after = recorder.seq
        stream_id, turn_id = self.begin_stream(None, merged)
        run = Run(turn_id=turn_id, message=message, answers={}, options=merged, previous=self.unfinished())
        self.run, self.left_options = run, None
        if key is not None:
            recorder.idempotency[key] = (turn_id, after)
        recorder.record(
            Message(
                message_id=message.message_id or recorder.new_id("m"),
                role=message.role,
                content=message.content,
                source="user",
                meta=_meta_of(message),
            )
        )
        self._executor.start_run(self._session, run)
        self._session.limits.watch_deadline(turn_id, merged)
        self._session.limits.stream_opened()
        return recorder.stream_reader(stream_id, turn_id, after)

    def begin_stream(self, turn_id: str | None, options: ExecutionOptions) -> tuple[str, str]:
        """The ids of a stream that begins (see ``Recorder.begin_stream``); its span begins with it."""
        stream_id, turn_id = self._recorder.begin_stream(turn_id)
        self._session.loops.stream_begins(turn_id, options)
        if self._session.spans is not None:
            self._session.spans.begin(stream_id, turn_id, options.trace_context)
        return stream_id, turn_id

    def _reattach(self, key: str) -> LogStream:
        """The turn that this message started before: its running stream, or the last one it had."""
        turn_id, after = self._recorder.idempotency[key]
        stream_id = self._machine.stream_id if self._machine.turn_id == turn_id else None
        if stream_id is None:
            stream_id = self._recorder.known.streams[turn_id]
        return self._recorder.stream_reader(stream_id, turn_id, after)

    def go_on(self, answers: Sequence[Answer], options: ExecutionOptions | None) -> LogStream:
        """Continue the turn that waits, with ``answers`` or with what came since it paused."""
        recorder, machine = self._recorder, self._machine
        machine.check_call("continue")
        self._check_none_opening()
        self._executor.task_group  # noqa: B018  # raises when the executor is not entered
        receipts = self._answers.check(answers)
        if answers and not any(receipt.ok for receipt in receipts):
            raise NothingToContinue(
                "no answer applied: " + "; ".join(map(_shown, receipts)),
                where=f"session {self._session.session_id}",
                expected=f"answers to {', '.join(self._answers.pending_ids()) or 'nothing'}",
                fix="answer what session.pending lists",
            )
        if not answers and not self._can_go_on():
            raise NothingToContinue(
                "nothing was answered since the stream paused",
                where=f"session {self._session.session_id}",
                expected=f"answers to {', '.join(self._answers.pending_ids())}",
                fix="answer with respond() or stream(answers), or abort()",
            )
        base = self.run.options if self.run is not None else self.left_options or self._session.options.execution
        if options is not None:
            self._check_limits(self.merged(options, base))
            deadline_ms(options)
        self._executor.kept.discard(self._session)
        after = recorder.seq
        stream_id, turn_id = self.begin_stream(cast(str, machine.turn_id), self.merged(options, base))
        for answer, receipt in zip(answers, receipts, strict=True):
            if receipt.ok:
                self._answers.keep(answer)
        run = self.run
        if run is None or run.is_over:
            self._enter_again(run, turn_id, options)
        else:
            self._wake(run, options)
        self._session.limits.watch_deadline(turn_id, options)
        self._session.limits.stream_opened()
        return recorder.stream_reader(stream_id, turn_id, after, receipts)

    def _check_limits(self, options: ExecutionOptions) -> None:
        executor = self._executor
        counts = executor.counts_model_calls
        check_limits(executor.descriptor, options.limits, counts_calls=counts, prices=options.prices)

    def _check_none_opening(self) -> None:
        if self._recorder.is_opening:
            raise StreamActive("a stream is opening", where=f"session {self._session.session_id}", fix="read it first")

    def _can_go_on(self) -> bool:
        run = self.run
        if not self._answers.pending_ids():
            return True
        if run is None or run.is_over:
            return False
        return run.holding > 0 or run.woken or any(reply.complete_with(self._answers.secrets) for reply in run.replies)

    def _wake(self, run: Run, options: ExecutionOptions | None) -> None:
        """Let a run that stayed open go on, or pause again when nothing in it can."""
        ending = self._session.ending
        if options is not None:
            run.options = self.merged(options, run.options)
        ending.settle_ids(run.dead)
        run.dead.clear()
        all_answered = not self._answers.pending_ids()
        for reply in list(run.replies):
            if reply.complete_with(self._answers.secrets):
                self._answers.take_secrets(reply.ids)
        if all_answered:
            self._answers.take_secrets(list(self._answers.secrets))
        if all_answered or run.holding or run.woken or any(reply.complete for reply in run.replies):
            ending.reopen()
            for thread_id, reason in run.broken:
                ending.break_thread(thread_id, reason)
            run.broken.clear()
            run.unpause()
            run.release_complete()
        else:
            ending.end("input_required")

    def _enter_again(self, last: Run | None, turn_id: str, options: ExecutionOptions | None) -> None:
        """Call the executor again with the answers, once every request of its step has one."""
        ending = self._session.ending
        if (
            last is not None
            and last.outcome is not None
            and (last.dead or last.outcome.error or last.outcome.cancelled)
        ):
            # It died while it waited: this stream tells how.
            ending.settle_ids(last.dead)
            ending.reopen()
            ending.finish(last)
            return
        if self._answers.pending_ids():
            ending.end("input_required")
            return
        secrets = self._answers.take_secrets(list(self._answers.secrets))
        answers = self.answers_for(last) if last is not None else {**self._answers_of_step(turn_id), **secrets}
        base = last.options if last is not None else self.left_options or self._session.options.execution
        ending.reopen()
        grace = last.grace if last is not None else self._session.last_word.of_record(turn_id)
        self._start_again(turn_id, answers, self.merged(options, base), grace)

    def enter_on(self, last: Run) -> bool:
        """The run has returned and all that it has posted is answered already: call it again, in the same stream."""
        if not any(request_id in last.kept or request_id in self._answers.secrets for request_id in last.posted):
            return False
        self._answers.take_secrets(list(self._answers.secrets))
        last.asked = dict(last.posted)
        self._start_again(last.turn_id, self.answers_for(last), last.options, last.grace)
        return True

    def start_last_word(self, last: Run, reason: str, data: Mapping[str, Any] | None) -> None:
        """The run has ended at a limit: call the executor once more, in the same stream, so that it can say so."""
        grace = self._session.last_word.begin(last, reason, data)
        self._session.limits.last_word_begins(last)
        self._start_again(last.turn_id, {}, last.options, grace)

    def _start_again(
        self, turn_id: str, answers: Mapping[str, Answer], options: ExecutionOptions, grace: GraceCall | None
    ) -> None:
        previous = self.unfinished()
        self.run = Run(turn_id=turn_id, message=None, answers=answers, options=options, previous=previous, grace=grace)
        self._executor.start_run(self._session, self.run)

    @staticmethod
    def answers_for(last: Run) -> dict[str, Answer]:
        """The answers to what ``last`` has asked."""
        return {request_id: last.kept[request_id] for request_id in last.asked if request_id in last.kept}

    def _answers_of_step(self, turn_id: str) -> dict[str, Answer]:
        """The answers of a loaded turn to what its last step asked.

        A stream in which the executor worked brackets its agents; what the last such stream asked is in its end. The
        answers came in that stream, in later ones, or between streams; the last event of each counts.
        """
        asked: set[str] = set()
        worked: set[str | None] = set()
        answers: dict[str, Answer] = {}
        for event in self._recorder.log.events:
            if event.turn_id != turn_id:
                continue
            if isinstance(event, AgentStart):
                worked.add(event.stream_id)
            elif isinstance(event, StreamEnd) and event.stream_id in worked:
                early = (event.data or {}).get("answered")
                asked = {*event.pending, *(early if isinstance(early, list) else ())}
            answer = recorded_answer(event)
            if answer is not None:
                answers[answer.request_id] = answer
        return {request_id: answer for request_id, answer in answers.items() if request_id in asked}

    @property
    def is_kept(self) -> bool:
        """Whether the turn waits and its run is kept open."""
        run = self.run
        return self._machine.state == "input_required" and run is not None and not (run.is_over or run.muted)

    def can_let_go(self) -> bool:
        """Whether the turn that waits can go on without the run that is kept, which holds nothing to be told."""
        run = self.run
        if run is None or run.holding or run.woken or run.dead or run.broken:
            return False
        return self._executor.can_let_go(self._session)

    def unfinished(self) -> list[Run]:
        """Every run that has not exited."""
        self.leaving = [run for run in self.leaving if not run.is_over]
        run = self.run
        return [*self.leaving, run] if run is not None and not run.is_over else list(self.leaving)

    @staticmethod
    def merged(options: ExecutionOptions | None, base: ExecutionOptions) -> ExecutionOptions:
        """``base`` with what is given in ``options`` over it."""
        if options is None:
            return base
        given = {name: getattr(options, name) for name in options.model_fields_set}
        return base.model_copy(update={name: value for name, value in given.items() if value is not None})


def _meta_of(message: MessageInput) -> dict[str, Any] | None:
    given = (message.model_extra or {}).get("_meta")
    meta = dict(given) if isinstance(given, dict) else {}
    if message.idempotency_key is not None:
        meta["idempotencyKey"] = message.idempotency_key
    return meta or None


def _shown(receipt: Receipt) -> str:
    return f"{receipt.request_id} {receipt.status}" + (f" ({receipt.reason})" if receipt.reason else "")
