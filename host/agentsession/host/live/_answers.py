"""What a client answers in a hosted session: the person's word to the host, and the receipt of what became of it.

Not for: going on with the turn (``_turns.py``). Rules carried: HITL-01, HITL-08, TOOL-09, TOOL-10, TOOL-14 of receipts.
May import: anyio, ``_desk``, ``_turns``, ``agentsession.host``, ``protocol``.

No answer of a client goes to the session unjudged: only a result of the client's own tool, whose call was allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import anyio

from agentsession.host._child_events import child_events, tells_of_children
from agentsession.host._elicitation import Approval
from agentsession.host._jobs import is_a_job
from agentsession.host.live._desk import Said, Word
from agentsession.host.live._turns import Turns
from agentsession.protocol import (
    Answer,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    PendingRequest,
    Receipt,
    ToolDecision,
    ToolDenial,
    ToolGrant,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolResult,
    ToolUpdate,
    as_answers,
)

__all__ = ["Answers"]

_SHOWS: Final = frozenset({"tool_decision", "tool_update", "tool_response", "elicitation_response"})


class Answers:
    """Takes what one user answers to the requests of one session."""

    def __init__(self, turns: Turns, user_id: str) -> None:
        self._turns = turns
        self._by = f"user:{user_id}"

    async def respond(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Take what a client says to requests; the turn goes on by itself."""
        given = as_answers(answers)
        taken: list[Receipt | Said] = []
        began = {request.request_id: request.seq - 1 for request in self._turns.session.pending}
        try:
            unasked: dict[int, str] = {}
            for place, answer in enumerate(given):
                found = await self._take(answer)
                if found is None:
                    unasked[place] = answer.request_id
                taken.append(found or _not_found(answer.request_id))
            for place in await self._settled(unasked):
                taken[place] = _stale(unasked[place])
            if not self._turns.is_driving and self._turns.session.state == "input_required" and self._can_go_on(taken):
                for item in taken:
                    if isinstance(item, Said):
                        item.was_tried = True
                self._turns.drive(None, None)
            receipts: list[Receipt] = []
            for item in taken:
                receipts.append(item if isinstance(item, Receipt) else await self._became(item, began))
            return receipts
        finally:
            for item in taken:
                if isinstance(item, Said):
                    self._turns.desk.leave(item)

    def _can_go_on(self, taken: Sequence[Receipt | Said]) -> bool:
        if any(isinstance(item, Said) for item in taken):
            return True
        applied = any(isinstance(item, Receipt) and item.status == "applied" for item in taken)
        return applied and not self._turns.session.pending

    async def _take(self, answer: Answer) -> Receipt | Said | None:
        """A receipt, or the answer as it was put before the host as the person's word; ``None``: nothing waits."""
        request_id = answer.request_id
        request = next((item for item in self._turns.session.pending if item.request_id == request_id), None)
        if request is None and not await self._is_below(answer):
            return None
        if isinstance(request, ToolRequest) and self._turns.is_left(request):
            if not isinstance(answer, (ToolGrant, ElicitationAnswer)):
                return await self._of_the_clients(answer, request)
            if not self._turns.has(request.name):
                return _undeclared(answer, request)
        if request is not None and is_a_job(request):
            return _invalid(answer, "the outcome of the agent's own job is told by the program that serves it")
        word = self._word(answer, request)
        if isinstance(word, Receipt):
            return word
        return self._turns.desk.say(request_id, word) or _stale(request_id)

    async def _of_the_clients(self, answer: Answer, request: ToolRequest) -> Receipt:
        """What the client says of a call that is left to it; of the answer only what is its own to say is recorded."""
        turns = self._turns
        if isinstance(answer, ToolDenial):
            return await self._record(answer, Decision(by=self._by, reason=answer.reason))
        if not turns.has(request.name):
            return _undeclared(answer, request)
        if isinstance(answer, ToolResult) and answer.args is not None and answer.args != request.args:
            return _invalid(answer, "these are not the arguments that were allowed: leave args out")
        if isinstance(answer, ToolProgress) and tells_of_children(answer.data):
            return _invalid(answer, "what sub-agents do is told by the host")
        if not await turns.judged(request):
            if not turns.waits(request.request_id):
                return _stale(request.request_id)
            return _invalid(answer, "the turn could not go on to have the call allowed; say it again")
        # It allowed nothing itself: who did is not the client's to say.
        return await self._record(answer, Decision(by=self._by, reason=_reason(answer)) if answer.decision else None)

    async def _record(self, answer: Answer, decision: Decision | None) -> Receipt:
        cleared = {"spent": None} if isinstance(answer, ToolResult) else {}  # it is the host that counts
        (receipt,) = await self._turns.session.respond(answer.model_copy(update={"decision": decision, **cleared}))
        return receipt

    async def _is_below(self, answer: Answer) -> bool:
        """Whether a sub-agent asks under this id. After a restart that shows when the turn is run once more."""
        known = self._turns.desk
        if answer.request_id in known.asked or answer.request_id in known.left:
            return True
        if (
            self._turns.is_driving
            or self._turns.session.state != "input_required"
            or isinstance(answer, (ToolResult, ToolProgress))
        ):
            return False
        if known.left or not self._turns.begins_work():
            return False
        self._turns.drive(None, None)
        await self._turns.at_rest()
        return answer.request_id in known.left

    async def _settled(self, unasked: Mapping[int, str]) -> list[int]:
        """Those of these answers whose requests there were. Read from the record, once for all of them: no answer of a
        client goes to the session unjudged."""
        if not unasked:
            return []
        ids, types = set(unasked.values()), {"tool_request", "elicitation_request", "tool_update"}
        asked: set[str] = set()
        async for event in self._turns.session.events(types=types):
            asked.update(ids.intersection(getattr(item, "request_id", "") for item in (event, *child_events(event))))
        return [place for place, request_id in unasked.items() if request_id in asked]

    def _word(self, answer: Answer, request: PendingRequest | None) -> Word | Receipt:
        """The answer as a person's word on a request; of ``None``, a sub-agent's, the host knows what it is."""
        if answer.name is not None and isinstance(request, ToolRequest) and answer.name != request.name:
            return _invalid(answer, f"the request is for {request.name}, not for {answer.name}")
        is_question = isinstance(request, ElicitationRequest)
        match answer:
            case ToolGrant() if not is_question:
                return Approval.yes(args=answer.args, by=self._by, reason=_reason(answer))
            case ToolDenial() if not is_question:
                return Approval.no(answer.reason, by=self._by)
            case ElicitationAnswer() if request is None or is_question:
                decision = Decision(by=self._by, reason=_reason(answer))
                return answer.model_copy(update={"decision": decision})
            case ToolResult() | ToolProgress():
                return _invalid(answer, "this tool is not the client's to run")
            case _:
                return _invalid(answer, "the answer does not fit the request")

    async def _became(self, said: Said, began: Mapping[str, int]) -> Receipt:
        """What became of a word that was said: the record shows it, or the host asks again, or it was not needed."""
        request_id = said.request_id
        outcome: list[Receipt] = []
        applied = Receipt(status="applied", request_id=request_id)

        async def is_asked_again(scope: anyio.CancelScope) -> None:
            await said.refused.wait()
            outcome.append(Receipt(status="invalid", request_id=request_id, rule="HITL-08", reason=said.problem))
            scope.cancel()

        async def is_recorded(scope: anyio.CancelScope) -> None:
            # From the request on: what the host began without the word was recorded before it.
            after = began.get(request_id, max(0, min(began.values(), default=self._turns.session.last_seq)))
            async for event in self._turns.session.events(after=after, follow=True, types=_SHOWS):
                shown = (event, *child_events(event))
                if any(getattr(item, "request_id", None) == request_id and _is_sign(item) for item in shown):
                    outcome.append(applied if said.is_taken else _stale(request_id))
                    scope.cancel()
                    return

        async def is_over(scope: anyio.CancelScope) -> None:
            while (driven := self._turns.driving) is not None:
                while not driven.is_over:
                    await self._turns.change()
            waits = self._turns.waits(request_id)
            failed = self._turns.last is not None and self._turns.last.failure is not None
            if waits and (failed or not said.is_taken):
                why = "the turn could not go on; say it again"
                self._turns.desk.forget(said)
                outcome.append(Receipt(status="invalid", request_id=request_id, reason=why))
            else:
                outcome.append(applied if said.is_taken else _stale(request_id))
            scope.cancel()

        async with anyio.create_task_group() as waiting:
            for look in (is_asked_again, is_recorded, is_over):
                waiting.start_soon(look, waiting.cancel_scope)
        self._turns.desk.forget(said)
        return outcome[0]


def _is_sign(event: Event) -> bool:
    """Whether an event shows that the host has decided on its request; progress of a tool does not."""
    if isinstance(event, ToolUpdate):
        return bool(event.started)
    return isinstance(event, (ToolDecision, ToolResponse, ElicitationResponse))


def _invalid(answer: Answer, why: str) -> Receipt:
    return Receipt(status="invalid", request_id=answer.request_id, rule="TOOL-14", reason=why)


def _undeclared(answer: Answer, request: ToolRequest) -> Receipt:
    why = f"since the server loaded this session nobody has declared the tool {request.name[:64]}"
    return _invalid(
        answer,
        f"{why}: declare it, by PATCH with tools or in the options of load or stream, and answer again, or deny it",
    )


def _not_found(request_id: str) -> Receipt:
    return Receipt(status="not_found", request_id=request_id, rule="TOOL-10", reason="there is no such request")


def _stale(request_id: str) -> Receipt:
    return Receipt(status="stale", request_id=request_id, rule="TOOL-09", reason="it was answered or settled before")


def _reason(answer: Answer) -> str | None:
    return answer.decision.reason if answer.decision is not None else None
