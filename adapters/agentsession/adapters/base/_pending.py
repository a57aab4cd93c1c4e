"""The answers of one session's host: what still waits, what counts, and who in the run gets it.

Not for: what an answer looks like in the record (``_answering.py``), or going on with a turn (``_turns.py``). Rules
carried: TOOL-07 to TOOL-11, TOOL-14, HITL-07, HITL-08, HITL-10, SEC-01. May import: ``agentsession.protocol``, the
modules beside it.

An answer is recorded and delivered in one step. A *secret* one is held back in memory until the executor takes it, and
recorded, redacted, only then: a process that dies before has the request waiting again, not a redacted answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentsession.adapters.base._answering import answer_events, has_secret, recorded_answer
from agentsession.adapters.base._run import Run
from agentsession.protocol import (
    Answer,
    AnswerCheck,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    ProtocolViolation,
    Receipt,
    ToolProgress,
    ToolResponse,
    check_schema,
    find_problem,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["AnswerBook"]


class AnswerBook:
    """Takes the host's answers and delivers them to the present run."""

    def __init__(self, session: BaseSession) -> None:
        self._session = session
        self._recorder = session.recorder
        self._machine = session.recorder.machine
        self._recorder.on_response = self._deliver_response
        self.secrets: dict[str, Answer] = {}
        """Secret answers that the executor has not taken."""

    @property
    def _run(self) -> Run | None:
        return self._session.turns.run

    def pending_ids(self) -> list[str]:
        """What waits for the host, oldest first: not what it has answered in secret, nor what died inside."""
        dead = self._run.dead if self._run is not None else ()
        return [
            request_id
            for request_id in self._machine.pending
            if request_id not in self.secrets and request_id not in dead
        ]

    def respond(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Check and keep answers one after the other; the contexts that have all of theirs go on."""
        receipts = []
        for answer in answers:
            (receipt,) = self.check([answer])
            receipts.append(receipt)
            if receipt.ok:
                self.keep(answer)
        if self._run is not None and self._machine.stream_id is not None:
            self._run.release_complete()
        return receipts

    def check(self, answers: Sequence[Answer]) -> list[Receipt]:
        """The receipts; an answer is checked as if those before it in the same call were recorded."""
        receipts: list[Receipt] = []
        answered: set[str] = set()
        for answer in answers:
            request_id = answer.request_id
            dead = self._run is not None and request_id in self._run.dead
            if request_id in self.secrets or request_id in answered or dead:
                receipts.append(
                    Receipt(
                        status="stale",
                        request_id=request_id,
                        rule="TOOL-09",
                        reason="it was answered or settled before",
                    )
                )
                continue
            receipt = self._machine.check_answer(answer, self._check_of(request_id))
            if receipt.ok:
                receipt = (
                    self._session.executor.check_answer(self._session, self._machine.requests[request_id], answer)
                    or receipt
                )
            if receipt.ok and not isinstance(answer, ToolProgress):
                answered.add(request_id)
            receipts.append(receipt)
        return receipts

    def _check_of(self, request_id: str) -> AnswerCheck:
        request = self._machine.requests.get(request_id)
        return _check_quietly if request is not None and has_secret(request) else check_schema

    def keep(self, answer: Answer) -> None:
        """Record an answer that was found good; hold a secret one back until the executor takes it."""
        run, request_id = self._run, answer.request_id
        if isinstance(answer, ElicitationAnswer) and answer.action == "accept":
            taken_now = self._machine.stream_id is not None and run is not None and run.waits_for(request_id)
            if not taken_now and has_secret(self._machine.requests[request_id]):
                self.secrets[request_id] = answer
                return
        self._record_answer(answer)

    def _record_answer(self, answer: Answer) -> None:
        # Delivered first: what records it would else be taken for the answer, without its secret.
        if self._run is not None and not isinstance(answer, ToolProgress):
            self._run.deliver(answer)
        for event in answer_events(self._machine.requests[answer.request_id], answer):
            self._recorder.record(event)

    def take_secrets(self, ids: Sequence[str]) -> dict[str, Answer]:
        """The executor takes these now: record them."""
        taken = {request_id: self.secrets.pop(request_id) for request_id in ids if request_id in self.secrets}
        for answer in taken.values():
            self._record_answer(answer)
        return taken

    def _deliver_response(self, event: ToolResponse | ElicitationResponse) -> None:
        """A response that no answer of the host made: whoever waits for it must not wait for ever."""
        run = self._run
        if run is None or event.request_id in run.kept or not run.waits_for(event.request_id):
            return
        answer = recorded_answer(event)
        if answer is not None:
            run.deliver(answer)
            if run.attach is None and not run.aborting:
                run.release_complete()

    def cancel_unsupported(self, question: ElicitationRequest) -> None:
        host = self._session.options.host
        kinds, modes = host.elicitation_kinds, host.elicitation_modes
        mode = "url" if question.url is not None else "form"
        if (kinds is None or question.kind in kinds) and (modes is None or mode in modes):
            return
        self._record_answer(ElicitationAnswer(request_id=question.request_id, action="cancel"))

    def find(self, run: Run, request_id: str) -> None:
        """A wait for a request that was settled before it: its response is the answer."""
        for event in reversed(self._recorder.log.events):
            if isinstance(event, (ToolResponse, ElicitationResponse)) and event.request_id == request_id:
                answer = recorded_answer(event)
                if answer is not None:
                    run.kept[request_id] = answer
                return
        raise ProtocolViolation("TOOL-02", f"a wait for {request_id}, which was not requested", fix="emit it first")


def _check_quietly(schema: Mapping[str, Any], value: Any) -> str | None:
    """``check_schema`` without the value in its words: receipts are logged and shown. Rule: SEC-01."""
    problem = find_problem(schema, value)
    return None if problem is None else f"{problem.pointer}: it does not satisfy the question's schema"
