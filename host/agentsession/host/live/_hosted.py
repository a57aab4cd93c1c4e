"""Turns of one session that the server's host drives, for a client that only asks, answers and looks.

Not for: what the host decides (``agentsession.host``). Rules carried: HITL-01, TOOL-07 to TOOL-10.
May import: anyio, ``_desk``, ``agentsession.host``, ``protocol``.

One task drives one turn, and ends with it or as soon as only people and clients are waited for. What they say then has
the turn run again, and everything is judged anew by the policy of that moment.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import anyio.abc

from agentsession.host._child_events import child_events
from agentsession.host._elicitation import Approval
from agentsession.host._host import Host
from agentsession.host.live._desk import Desk, Said, Word
from agentsession.protocol import (
    AbortResult,
    AgentSession,
    AgentSessionError,
    Answer,
    Decision,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    EventStream,
    ExecutionOptions,
    InvalidInput,
    Message,
    MessageInput,
    NothingToContinue,
    PendingRequest,
    Receipt,
    SessionConfig,
    StreamActive,
    StreamEnd,
    ToolDecision,
    ToolDenial,
    ToolDescriptor,
    ToolGrant,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolResult,
    ToolUpdate,
    as_answers,
    as_content,
)

__all__ = ["Hosted"]

logger = logging.getLogger("agentsession.host.live")

_Begun = tuple[str, str, Sequence[Receipt], int]
_SHOWS: Final = frozenset({"tool_decision", "tool_update", "tool_response", "elicitation_response"})


@dataclasses.dataclass(slots=True, eq=False)
class _Drive:
    """The task that drives a turn."""

    scope: anyio.CancelScope = dataclasses.field(default_factory=anyio.CancelScope)
    begun: _Begun | None = None
    """Its first stream, once it is open."""
    failure: Exception | None = None
    is_over: bool = False


class Hosted:
    """Drives the turns of one session."""

    def __init__(self, host: Host, user_id: str, tasks: anyio.abc.TaskGroup) -> None:
        self._host = host
        self._by = f"user:{user_id}"
        self._tasks = tasks
        self._changed = anyio.Event()
        self.desk = Desk(self._look)
        self.client_tools: set[str] = set()
        """The names of the tools that the client declared."""
        self.session: AgentSession
        self._driving: _Drive | None = None
        self._last: _Drive | None = None
        self._is_closing = False

    def is_clients(self, name: str) -> bool:
        """Whether the client runs the tool of this name."""
        return name in self.client_tools and self._host.tools.get(name) is None

    @property
    def is_driving(self) -> bool:
        """Whether the host is at work in a turn."""
        return self._driving is not None

    def with_tools(self, config: SessionConfig) -> SessionConfig:
        """A change of the tools: those are the client's, and the host's stay."""
        given = self.declare(config.tools or [])
        return config.model_copy(update={"tools": [*given, *self._host.tools.descriptors]})

    def declare(self, tools: Sequence[ToolDescriptor]) -> list[ToolDescriptor]:
        """Note that the client runs these. Raises :class:`InvalidInput` for a name of the host's own."""
        taken = next((tool.name for tool in tools if self._host.tools.get(tool.name) is not None), None)
        if taken is not None:
            raise InvalidInput(f"the server has a tool {taken!r} of its own", fix="give the client's another name")
        self.client_tools.update(tool.name for tool in tools)
        return list(tools)

    # --- turns -----------------------------------------------------------------------------------------------------

    async def stream(
        self, given: str | MessageInput | Answer | Sequence[Answer] | None, options: ExecutionOptions | None
    ) -> _Begun:
        """Begin a turn with a message, or go on with the one that waits; answers are the person's."""
        if isinstance(given, str):
            given = MessageInput(content=as_content(given))
        if options is not None and options.tools is not None:
            clients = self.declare(options.tools)
            options = options.model_copy(update={"tools": [*clients, *self._host.tools.descriptors]})
        if isinstance(given, MessageInput):
            return await self._message(given, options)
        cursor, before = self.session.last_seq, self._last
        if given is not None:
            receipts = await self.respond(as_answers(given))
            if not any(receipt.ok for receipt in receipts):
                raise NothingToContinue(
                    "no answer applied", got=", ".join(receipt.status for receipt in receipts), where=self._where
                )
            driven = self._driving
        else:
            receipts = []
            if self.is_driving or self.session.state == "running":
                raise StreamActive(f"a turn of session {self.session.session_id} runs")
            if self.session.state != "input_required":
                raise NothingToContinue("nothing waits", where=self._where)
            if self.session.pending and not self._begins_work():
                raise NothingToContinue("it waits for answers", where=self._where, fix="answer first: respond")
            driven = self._drive(None, options)
        if driven is None and self._last is not before:
            driven = self._last  # the answers had it run, and it is over already
        begun = await self._begins(driven) if driven is not None else None
        if begun is None:  # it still waits: that is its last stream
            stream_id = next((request.stream_id for request in self.session.pending if request.stream_id), "")
            turn_id = next((request.turn_id for request in self.session.pending if request.turn_id), "")
            return stream_id, turn_id, receipts, cursor
        return begun[0], begun[1], receipts, min(cursor, begun[3])

    def _begins_work(self) -> bool:
        """Whether something that is pending is the host's own to do, such as after a restart."""
        return any(not self._is_left(request) for request in self.session.pending)

    def _is_left(self, request: PendingRequest) -> bool:
        """Whether a request waits for the client alone."""
        if not isinstance(request, ToolRequest) or request.needs != "result" or request.owner == "agent":
            return False
        return self.is_clients(request.name)

    async def _message(self, message: MessageInput, options: ExecutionOptions | None) -> _Begun:
        while self.is_driving and self._is_leaving():
            await self._change()
        if self._is_closing:
            raise StreamActive("the session is being closed", where=self._where)
        if self.is_driving or self.session.state == "running":
            if not await self._was_seen(message):
                raise StreamActive(f"a turn of session {self.session.session_id} runs", where=self._where)
            stream = self.session.stream(message, options)  # attached to the one that it began
            attached: _Begun = (stream.stream_id, stream.turn_id, (), min(self.session.last_seq, stream.cursor))
            await stream.aclose()
            return attached
        driven = self._drive(message, options)
        begun = await self._begins(driven)
        if begun is None:
            raise NothingToContinue("nothing began", where=self._where)
        return begun

    def _is_leaving(self) -> bool:
        """Whether the turn's task has nothing to do but to end: its last event is there before it has left."""
        if self.session.state == "input_required":
            return all(self._is_left(item) or item.request_id in self.desk.left for item in self.session.pending)
        return self.session.state != "running"

    async def _was_seen(self, message: MessageInput) -> bool:
        """Whether the record has the message, by its key: else it would settle the turn that the host drives."""
        key = message.idempotency_key
        if key is None:
            return False
        async for event in self.session.events(types={"message"}):
            if isinstance(event, Message) and (event.meta or {}).get("idempotencyKey") == key:
                return True
        return False

    def _drive(self, message: MessageInput | None, options: ExecutionOptions | None) -> _Drive:
        """Begin the task that drives the turn; its first stream is told to who waits in :meth:`_begins`."""
        driven = self._driving = self._last = _Drive()
        cursor = self.session.last_seq

        def opened(stream: EventStream) -> None:
            if driven.begun is None:
                driven.begun = (stream.stream_id, stream.turn_id, (), min(cursor, stream.cursor))
            self._tell()

        async def drive() -> None:
            try:
                with driven.scope:
                    async with anyio.create_task_group() as watching:
                        watching.start_soon(self._watch)
                        await self._host.run_turn(self.session, message, options, on_stream=opened)
                        watching.cancel_scope.cancel()
            except Exception as error:
                driven.failure = _alone(error)
                if not isinstance(driven.failure, AgentSessionError):
                    logger.exception("the turn of session %s failed", self.session.session_id)
            finally:
                driven.is_over = True
                self._driving = None
                self._go_on_if_answered(driven)
                self._tell()

        self._tasks.start_soon(drive)
        return driven

    def _go_on_if_answered(self, before: _Drive) -> None:
        """What was said while the task was on its way out found nobody who would go on with the turn."""
        if self._is_closing or before.failure is not None or before.scope.cancel_called:
            return
        if self.session.state == "input_required" and (self.desk.untried() or not self.session.pending):
            self._drive(None, None)

    async def _begins(self, driven: _Drive) -> _Begun | None:
        """Wait until the turn that is being driven has opened a stream; ``None`` if it ended without one."""
        while driven.begun is None and not driven.is_over:
            await self._change()
        if driven.begun is None and driven.failure is not None:
            raise driven.failure
        return driven.begun

    async def _watch(self) -> None:
        """See when a stream ends or a request is settled: then it may be that only people are waited for."""
        types = {"stream_end", "tool_response", "elicitation_response", "tool_decision"}
        async for _ in self.session.events(after=self.session.last_seq, follow=True, types=types):
            self._look()
            self._tell()

    def _look(self) -> None:
        """Leave the turn waiting if nobody but people and clients is waited for."""
        if self.session.state != "input_required" or not self.desk.asked:
            return
        asked = len(self.desk.asked)
        if asked >= self._waited_for(self.session):
            self.desk.release()

    def _waited_for(self, session: AgentSession) -> int:
        """How many requests wait for somebody, in a session and its sub-agents'; more than all if one works."""
        children = {child.request_id: child for child in self._host.children(session)}
        count = 0
        for request in session.pending:
            child = children.get(request.request_id)
            if child is None:
                count += 0 if self._is_left(request) or _is_a_job(request) else 1
            elif child.session.state != "input_required":
                return 1_000_000
            else:
                count += self._waited_for(child.session)
        return count

    # --- answers ---------------------------------------------------------------------------------------------------

    async def respond(self, answers: Sequence[Answer]) -> list[Receipt]:
        """Take what a client says to requests; the turn goes on by itself."""
        given = as_answers(answers)
        taken: list[Receipt | Said] = []
        began = {request.request_id: request.seq - 1 for request in self.session.pending}
        for answer in given:
            taken.append(await self._take(answer))
        words = [item for item in taken if isinstance(item, Said)]
        try:
            if not self.is_driving and self.session.state == "input_required" and self._can_go_on(taken):
                for said in words:
                    said.was_tried = True
                self._drive(None, None)
            receipts: list[Receipt] = []
            for item in taken:
                receipts.append(item if isinstance(item, Receipt) else await self._became(item, began))
            return receipts
        finally:
            for said in words:
                self.desk.leave(said)

    def _can_go_on(self, taken: Sequence[Receipt | Said]) -> bool:
        if any(isinstance(item, Said) for item in taken):
            return True
        applied = any(isinstance(item, Receipt) and item.status == "applied" for item in taken)
        return applied and not self.session.pending

    async def _take(self, answer: Answer) -> Receipt | Said:
        """A receipt, or the answer as it was put before the host as the person's word."""
        request_id = answer.request_id
        request = next((item for item in self.session.pending if item.request_id == request_id), None)
        if request is None and not await self._is_below(answer):
            return await self._unasked(request_id)
        if request is not None and self._is_left(request) and not isinstance(answer, (ToolGrant, ElicitationAnswer)):
            decision = answer.decision
            if isinstance(answer, ToolDenial):
                decision = Decision(by=self._by, reason=answer.reason)
            (receipt,) = await self.session.respond(answer.model_copy(update={"decision": decision}))
            return receipt
        word = self._word(answer, request)
        if isinstance(word, Receipt):
            return word
        return self.desk.say(request_id, word) or _stale(request_id)

    async def _is_below(self, answer: Answer) -> bool:
        """Whether a sub-agent asks under this id. After a restart that shows when the turn is run once more."""
        known = self.desk
        if answer.request_id in known.asked or answer.request_id in known.left:
            return True
        if self.is_driving or self.session.state != "input_required" or isinstance(answer, (ToolResult, ToolProgress)):
            return False
        if known.left or not self._begins_work():
            return False
        self._drive(None, None)
        await self.at_rest()
        return answer.request_id in known.left

    async def _unasked(self, request_id: str) -> Receipt:
        """Nothing waits under this id. Read from the record: no answer of a client goes to the session unjudged."""
        async for event in self.session.events(types={"tool_request", "elicitation_request", "tool_update"}):
            if any(getattr(item, "request_id", None) == request_id for item in (event, *child_events(event))):
                return _stale(request_id)
        return Receipt(status="not_found", request_id=request_id, rule="TOOL-10", reason="there is no such request")

    def _word(self, answer: Answer, request: PendingRequest | None) -> Word | Receipt:
        """The answer as a person's word on a request; ``None``: it is a sub-agent's, and the host knows it."""

        def invalid(why: str) -> Receipt:
            return Receipt(status="invalid", request_id=answer.request_id, rule="TOOL-14", reason=why)

        if answer.name is not None and isinstance(request, ToolRequest) and answer.name != request.name:
            return invalid(f"the request is for {request.name}, not for {answer.name}")
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
                return invalid("this tool is not the client's to run")
            case _:
                return invalid("the answer does not fit the request")

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
            after = began.get(request_id, max(0, min(began.values(), default=self.session.last_seq)))
            async for event in self.session.events(after=after, follow=True, types=_SHOWS):
                shown = (event, *child_events(event))
                if any(getattr(item, "request_id", None) == request_id and _is_sign(item) for item in shown):
                    outcome.append(applied if said.is_taken else _stale(request_id))
                    scope.cancel()
                    return

        async def is_over(scope: anyio.CancelScope) -> None:
            while (driven := self._driving) is not None:
                while not driven.is_over:
                    await self._change()
            waits = any(item.request_id == request_id for item in self.session.pending)
            failed = self._last is not None and self._last.failure is not None
            if waits and (failed or not said.is_taken):
                why = "the turn could not go on; say it again"
                self.desk.forget(said)
                outcome.append(Receipt(status="invalid", request_id=request_id, reason=why))
            else:
                outcome.append(applied if said.is_taken else _stale(request_id))
            scope.cancel()

        async with anyio.create_task_group() as waiting:
            for look in (is_asked_again, is_recorded, is_over):
                waiting.start_soon(look, waiting.cancel_scope)
        self.desk.forget(said)
        return outcome[0]

    # --- control ---------------------------------------------------------------------------------------------------

    async def abort(self, reason: str | None) -> AbortResult:
        """End the turn; the host's tools are cancelled first."""
        if not self.is_driving:
            return await self.session.abort(reason)
        before, last = self.session.state, self.session.last_seq
        await self._host.abort(reason, session=self.session)
        await self.at_rest()
        if self.session.state in ("running", "input_required"):  # its task was on its way out, and left it waiting
            return await self.session.abort(reason)
        end: Event | None = None
        async for event in self.session.events(after=last, types={"stream_end"}):
            end = event
        if not isinstance(end, StreamEnd):
            return AbortResult(status="idle" if before == "idle" else "too_late")
        return AbortResult(status="aborted" if end.reason == "aborted" else "too_late", stream_id=end.stream_id)

    async def at_rest(self) -> None:
        """Wait until no turn is being driven."""
        while self.is_driving:
            await self._change()

    async def aclose(self) -> None:
        """Close the session; a running turn of it is aborted."""
        self._is_closing = True
        try:
            self.desk.release()
            await self._host.close(self.session)
            await self.at_rest()
        finally:
            if self._driving is not None:
                self._driving.scope.cancel()

    @property
    def _where(self) -> str:
        return f"session {self.session.session_id}"

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _change(self) -> None:
        await self._changed.wait()


def _is_a_job(request: PendingRequest) -> bool:
    """Whether the outcome of a job of the agent's is waited for, which comes from elsewhere and not from the host."""
    return isinstance(request, ToolRequest) and request.needs == "result" and request.owner == "agent"


def _is_sign(event: Event) -> bool:
    """Whether an event shows that the host has decided on its request; progress of a tool does not."""
    if isinstance(event, ToolUpdate):
        return bool(event.started)
    return isinstance(event, (ToolDecision, ToolResponse, ElicitationResponse))


def _stale(request_id: str) -> Receipt:
    return Receipt(status="stale", request_id=request_id, rule="TOOL-09", reason="it was answered or settled before")


def _reason(answer: Answer) -> str | None:
    return answer.decision.reason if answer.decision is not None else None


def _alone(error: Exception) -> Exception:
    """The error itself, where a task group has wrapped it."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
