"""A session behind the wire: the host's calls go out, the record's events come in and are folded.

Not for: the process or its answers (``client.py``). Rules carried: LIFE-06, LIFE-13 and WIRE-02 of what comes in.
May import: ``agentsession.protocol``, anyio, ``engine``, the modules beside it.

``stream()`` and ``events()`` ask the executor and wait for its answer at once; what they raise is what it answers. A
session that is closed is not read there any more: what came of it stays readable here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import anyio
from pydantic import ValidationError

from agentsession.conformance.engine import evidence_of
from agentsession.conformance.results import Evidence
from agentsession.conformance.stdio._readers import Log, Reader, Stream
from agentsession.conformance.stdio._wire import Noted
from agentsession.protocol import (
    AbortResult,
    AbortTimeout,
    AgentDescriptor,
    Answer,
    Content,
    CursorGone,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    Initialize,
    InvalidInput,
    MessageInput,
    OpenOptions,
    PendingRequest,
    ProtocolViolation,
    Receipt,
    SchemaError,
    SessionConfig,
    SessionMachine,
    SessionState,
    SteerData,
    ToolProgress,
    ToolRequest,
    as_answers,
    as_content,
    parse_event,
)

if TYPE_CHECKING:
    from agentsession.conformance.stdio.client import StdioExecutor

__all__ = ["StdioSession"]

M = TypeVar("M", Receipt, AbortResult)

_SHOWN: Final = 400
"""How much is shown of an event that cannot be read."""

_CLOSE_S: Final = 10.0
"""How long ``aclose()`` waits for the executor: it is not to be interrupted, and must not hang."""


class BrokenByPeer(ProtocolViolation):
    """A rule that what came has broken, with where in the record it did."""

    def __init__(self, error: ProtocolViolation, evidence: Iterable[Evidence]) -> None:
        parts = {name: getattr(error, name) for name in ("where", "expected", "got", "fix")}
        super().__init__(error.rule, error.what, blame="peer", **parts)
        self.evidence = tuple(evidence)


class StdioSession:
    """One session of a :class:`StdioExecutor`; satisfies ``agentsession.protocol.AgentSession``."""

    def __init__(self, executor: StdioExecutor, session_id: str, options: OpenOptions) -> None:
        self._executor = executor
        self._options = options
        self.session_id = session_id
        self.log = Log(self._seen)
        self._machine = SessionMachine(blame="peer")
        self._requests: dict[str, PendingRequest] = {}
        self._answered: set[str] = set()
        """What was answered and has no response yet: a secret answer is recorded when the executor takes it."""
        self._opening: str | None = None
        """The stream that was opened last, while none of its events has come."""
        self._is_new_turn = False
        """Whether that stream begins a turn."""
        self.failure: Exception | None = None
        """What broke the session."""

    def _seen(self, seq: int) -> None:
        self._executor.tell("seen", {"sessionId": self.session_id, "seq": seq})

    # -- what comes in ------------------------------------------------------------------------------------------------

    def begin(self, record: Sequence[Any], *, is_new: bool) -> None:
        """The record so far, as the executor gave it. Raises :class:`ProtocolViolation`."""
        kinds = self._options.host.elicitation_kinds
        # What an earlier host could show decided what was cancelled then; this host's kinds count from now on.
        self._machine.host_kinds = frozenset(kinds) if is_new and kinds is not None else None
        for value in record:
            self.take(value)
        self._machine.host_kinds = None if kinds is None else frozenset(kinds)
        if self.failure is not None:
            raise self.failure

    def take(self, value: Any) -> None:
        """An event came."""
        if self.failure is not None:
            return
        try:
            event = self._parsed(value)
        except ProtocolViolation as error:
            shown = Evidence(json.dumps(value, ensure_ascii=False)[:_SHOWN], is_break=True)
            self.fail(BrokenByPeer(error, [*evidence_of(self.log.events[-3:]), shown]))
            return
        try:
            self._machine.feed(event)
        except ProtocolViolation as error:
            self.fail(BrokenByPeer(error, evidence_of(self.log.events, event)))
            return
        if isinstance(event, ElicitationRequest) or (isinstance(event, ToolRequest) and not event.partial):
            self._requests[event.request_id] = event
        if self._opening is not None and event.stream_id == self._opening:
            self._opening = None
        self.log.append(event)

    def _parsed(self, value: Any) -> Event:
        try:
            event = parse_event(value)
        except SchemaError as error:
            said = "; ".join([error.what, *(f"{name}: {text}" for name, text in error.parts().items())])
            raise ProtocolViolation("WIRE-02", said, blame="peer", where=f"session {self.session_id}") from error
        if event.session_id != self.session_id:
            raise ProtocolViolation(
                "WIRE-02",
                f"an event of session {event.session_id} in the record of {self.session_id}",
                blame="peer",
            )
        return event

    def fail(self, why: Exception) -> None:
        """The session is closed by what came, or because nothing more comes: its readers raise ``why``."""
        if self.failure is None:
            self.failure = why
            if isinstance(why, ProtocolViolation):
                self._executor.tell("close", {"sessionId": self.session_id})
        self._machine.abandon()
        self.log.close(why)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def descriptor(self) -> AgentDescriptor:
        first = self.log.events[0] if self.log.events else None
        return first.descriptor if isinstance(first, Initialize) else self._executor.descriptor

    @property
    def state(self) -> SessionState:
        if self._machine.state != "closed" and self._opening is not None:
            return "running"
        return self._machine.state

    @property
    def pending(self) -> Sequence[PendingRequest]:
        if self._opening is not None and self._is_new_turn:
            return []
        waiting = (name for name in self._machine.pending if name not in self._answered)
        # Copies: who changes the arguments of what waits must change nothing that was read or will be compared.
        return [self._requests[name].model_copy(deep=True) for name in waiting]

    @property
    def last_seq(self) -> int:
        return self.log.last_seq

    # -- the host's calls ---------------------------------------------------------------------------------------------

    def stream(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> Stream:
        """Start a turn with a message, or continue the waiting one (see ``AgentSession.stream``)."""
        self._check()
        params: dict[str, Any] = {"sessionId": self.session_id}
        given: MessageInput | Sequence[Answer] | None
        if isinstance(input, (str, MessageInput)):
            given = MessageInput(content=as_content(input)) if isinstance(input, str) else input
            params["message"] = given.to_wire()
        else:
            given = None if input is None else as_answers(input)
            if given is not None:
                params["answers"] = [answer.to_wire() for answer in given]
        if options is not None:
            params["options"] = options.to_wire()
        result, before = self._executor.call_now("stream", params)
        stream_id, turn_id, receipts = result.get("streamId"), result.get("turnId"), result.get("receipts", [])
        if not isinstance(stream_id, str) or not isinstance(turn_id, str) or not isinstance(receipts, list):
            self._executor.malformed("the answer to stream has streamId, turnId, and receipts where it had answers")
        for line in before:
            told = isinstance(line, Noted) and line.kind == "event" and line.value.get("sessionId") == self.session_id
            if told and isinstance(line, Noted) and line.value.get("streamId") == stream_id:
                self.fail(ProtocolViolation("LIFE-06", f"an event of {stream_id} came before its id", blame="peer"))
                self._check()
        taken = [self._model(Receipt, receipt, "stream") for receipt in receipts]
        if isinstance(given, MessageInput):
            self._is_new_turn = True
        else:
            self._is_new_turn = False
            self._note(given or (), taken)
        if stream_id != self._machine.stream_id and not self._machine.is_ended(stream_id):
            self._opening = stream_id
        return Stream(self.log, stream_id=stream_id, turn_id=turn_id, receipts=taken)

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        """Answer pending requests (see ``AgentSession.respond``)."""
        self._check()
        given = as_answers(answers)

        def take(result: Mapping[str, Any]) -> Sequence[Receipt]:
            receipts = result.get("receipts")
            if not isinstance(receipts, list) or len(receipts) != len(given):
                self._executor.malformed("the answer to respond has a receipt for each answer")
            taken = [self._model(Receipt, receipt, "respond") for receipt in receipts]
            self._note(given, taken)
            return taken

        return await self._executor.call(
            "respond", {"sessionId": self.session_id, "answers": [answer.to_wire() for answer in given]}, take
        )

    def _note(self, answers: Sequence[Answer], receipts: Sequence[Receipt]) -> None:
        for answer, receipt in zip(answers, receipts, strict=False):
            if receipt.ok and not isinstance(answer, ToolProgress):
                self._answered.add(answer.request_id)

    async def steer(self, data: Content | SteerData) -> Receipt:
        """Give the working agent something to read (see ``AgentSession.steer``)."""
        self._check()
        steer = data if isinstance(data, SteerData) else SteerData(message=as_content(data))
        return await self._executor.call(
            "steer",
            {"sessionId": self.session_id, "data": steer.to_wire()},
            lambda result: self._model(Receipt, result, "steer"),
        )

    async def update(self, config: SessionConfig) -> Receipt:
        """Change model, mode, tools, title, state or config (see ``AgentSession.update``)."""
        self._check()
        return await self._executor.call(
            "update",
            {"sessionId": self.session_id, "config": config.to_wire()},
            lambda result: self._model(Receipt, result, "update"),
        )

    async def abort(self, reason: str | None = None) -> AbortResult:
        """End the turn (see ``AgentSession.abort``)."""
        self._check()
        params = {"sessionId": self.session_id, **({} if reason is None else {"reason": reason})}
        try:
            return await self._executor.call("abort", params, lambda result: self._model(AbortResult, result, "abort"))
        except AbortTimeout as error:
            self._machine.abandon()
            self.log.close(error)
            raise

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> Reader:
        """Read the record after a cursor (see ``AgentSession.events``); what is stored comes from the executor."""
        cursor = 0 if after is None else after
        if not isinstance(cursor, int) or isinstance(types, str):
            raise InvalidInput("a cursor is the seq of an event, and types is a collection of names")
        return Reader(
            self.log,
            after=cursor,
            first=self._stored(cursor),
            follow=follow,
            types=types,
            stream_id=stream_id,
            thread_id=thread_id,
        )

    def _stored(self, cursor: int) -> Sequence[Event]:
        """What the record has behind a cursor. Of a closed session that is what came. Raises :class:`CursorGone`."""
        self._check()
        if self._machine.state == "closed":
            if not 0 <= cursor <= self.last_seq:
                raise CursorGone(f"cursor {cursor} is beyond the record", where=f"session {self.session_id}")
            return self.log.events[self.log.index_after(cursor) :]
        result, _ = self._executor.call_now("read", {"sessionId": self.session_id, "after": cursor})
        record = result.get("record")
        if not isinstance(record, list):
            self._executor.malformed("the answer to read has a record")
        return [self._parsed(value) for value in record]

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _model(self, cls: type[M], value: Any, method: str) -> M:
        try:
            return cls.model_validate(value, by_alias=True, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            self._executor.malformed(f"the answer to {method} is no {cls.__name__}: {first['msg']} at {first['loc']}")

    # -- closing ------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close (see ``AgentSession.aclose``)."""
        if self._machine.state == "closed":
            return
        with anyio.CancelScope(shield=True):
            try:
                with anyio.fail_after(_CLOSE_S):
                    await self._executor.call("close", {"sessionId": self.session_id}, self._closed)
            except TimeoutError:
                self._executor.malformed(f"no answer to close within {_CLOSE_S:g} s")

    def _closed(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        self._machine.abandon()
        self._opening = None
        self.log.close()
        return result

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
