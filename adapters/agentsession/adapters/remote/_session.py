"""A session behind the server: the host's calls go out, the record's events come in and are folded.

Not for: connections (``_wire.py``, ``_follower.py``). Rules carried: LIFE-06, LIFE-07, LIFE-13 and
WIRE-02 of what comes in. May import: ``agentsession.protocol``, anyio, the modules beside it.

``stream()`` is no coroutine in the contract: it knows the stream's id, or raises, when it returns. So it waits for the
server without giving way to a task. :meth:`RemoteSession.begin` is the same for who can await.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import anyio
from pydantic import ValidationError

from agentsession.adapters.remote._follower import Follower
from agentsession.adapters.remote._readers import Log, Reader, Stream
from agentsession.adapters.remote._wire import Json, Sent, Wire, path_of
from agentsession.protocol import (
    AbortResult,
    AbortTimeout,
    AgentDescriptor,
    AgentSessionError,
    Answer,
    ConnectionLost,
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
    SessionClosed,
    SessionConfig,
    SessionMachine,
    SessionState,
    SteerData,
    StreamActive,
    ToolProgress,
    ToolRequest,
    Unimplemented,
    as_answers,
    as_content,
    dumps,
    parse_event,
    parse_json,
)

__all__ = ["RemoteSession"]

M = TypeVar("M", Receipt, AbortResult)

_LONG_S: Final = 60.0
"""How long an abort or close may take: the agent has a grace time, which the server knows."""

_LOADED: Final = ("tools", "host_tool_execution", "permission_mode", "model", "limits")
"""The options of ``load`` that a turn can have."""


class Owner(Protocol):
    """What a session needs of its executor."""

    @property
    def wire(self) -> Wire: ...

    @property
    def descriptor(self) -> AgentDescriptor: ...

    def forget(self, session: RemoteSession) -> None: ...


class RemoteSession:
    """One session of a :class:`RemoteExecutor`; satisfies ``agentsession.protocol.AgentSession``.

    What breaks a rule of the contract is the server's: it is raised where the session is read, and closes it.
    """

    def __init__(self, owner: Owner, agent: str, answer: Json, options: OpenOptions, *, is_new: bool) -> None:
        """``answer``: the session as the server shows it. Raises :class:`ConnectionLost` if that is none."""
        session_id, last_seq = answer.get("sessionId"), answer.get("lastSeq")
        if not isinstance(session_id, str) or not isinstance(last_seq, int):
            raise _malformed("a session")
        self.session_id = session_id
        self._owner = owner
        self._wire = owner.wire
        self._path = path_of("agents", agent, "sessions", session_id)
        self._options = options
        self._is_new = is_new
        self._begins_at = last_seq
        self._machine = SessionMachine(blame="peer")
        self._log = Log()
        self._follower = Follower(self._wire, f"{self._path}/events?follow=true", self._log, self._take)
        self._requests: dict[str, PendingRequest] = {}
        self._answered: set[str] = set()
        """What was answered and has no response yet: a secret answer is recorded when the executor takes it."""
        self._opening: str | None = None
        """The stream that was opened last, while none of its events has come."""
        self._is_new_turn = False
        """Whether that stream begins a turn."""
        self._is_beginning = False
        kinds = options.host.elicitation_kinds
        self._kinds = None if kinds is None else frozenset(kinds)
        # What an earlier host could show decided what was cancelled then; this host's kinds count from now on.
        self._machine.host_kinds = self._kinds if is_new else None

    def __repr__(self) -> str:
        return f"RemoteSession({self.session_id!r}, {self.state})"

    # -- what comes in ------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Bring its events, until it is closed. Run by the executor."""
        await self._follower.run()
        if self._log.is_closed:
            self._machine.abandon()
            self._owner.forget(self)

    async def begun(self) -> None:
        """Wait until the record is here that was there when it was opened. Raises what breaks it."""
        await self._come(self._begins_at)
        if self._log.failure is not None:
            raise self._log.failure

    async def _come(self, seq: int) -> None:
        with self._log.hurry():
            while self._log.last_seq < seq and not self._log.is_closed:
                await self._log.changed()

    def _take(self, id: str, data: str) -> None:
        if self._log.is_closed:
            return
        try:
            event = self._parsed(id, data)
            self._machine.feed(event)
        except ProtocolViolation as error:
            self._log.close(error)
            self._machine.abandon()
            return
        if isinstance(event, ElicitationRequest) or (isinstance(event, ToolRequest) and not event.partial):
            self._requests[event.request_id] = event
        if event.stream_id is not None and event.stream_id == self._opening:
            self._opening = None
        self._log.append(event)
        if event.seq >= self._begins_at:
            self._machine.host_kinds = self._kinds

    def _parsed(self, id: str, data: str) -> Event:
        try:
            event = parse_event(parse_json(data))
        except SchemaError as error:
            said = "; ".join([error.what, *(f"{name}: {text}" for name, text in error.parts().items())])
            raise ProtocolViolation("WIRE-02", said, blame="peer", where=f"session {self.session_id}") from error
        if event.session_id != self.session_id or str(event.seq) != id:
            raise ProtocolViolation(
                "WIRE-02",
                "an event has another place than the one that it came under",
                blame="peer",
                where=f"session {self.session_id}, id {id[:40]}",
                got=f"session {event.session_id}, seq {event.seq}",
            )
        return event

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def descriptor(self) -> AgentDescriptor:
        first = self._log.events[0] if self._log.events else None
        return first.descriptor if isinstance(first, Initialize) else self._owner.descriptor

    @property
    def state(self) -> SessionState:
        if self._machine.state != "closed" and (self._opening is not None or self._is_beginning):
            return "running"
        return self._machine.state

    @property
    def pending(self) -> Sequence[PendingRequest]:
        if self._opening is not None and self._is_new_turn:
            return []
        waiting = (name for name in self._machine.pending if name not in self._answered)
        # Copies: who changes the arguments of what waits must change nothing that was read.
        return [self._requests[name].model_copy(deep=True) for name in waiting]

    @property
    def last_seq(self) -> int:
        """The last seq that has come here."""
        return self._log.last_seq

    # -- streams ------------------------------------------------------------------------------------------------------

    def stream(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> Stream:
        """Start a turn with a message, or continue the waiting one (see ``AgentSession.stream``).

        It waits for the server's answer, and no task of the loop goes on meanwhile. Where that is too long, or the
        server runs in the same loop, use :meth:`begin`. Raises :class:`ConnectionLost` when the server does not answer.
        """
        given, sent = self._start(input, options)
        return self._started(given, self._wire.call_now(sent))

    async def begin(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None = None,
        options: ExecutionOptions | None = None,
    ) -> Stream:
        """What :meth:`stream` does, as a coroutine: other tasks go on while the server answers.

        Of two at once the second raises :class:`StreamActive`, as it does with :meth:`stream`.
        """
        given, sent = self._start(input, options)
        self._is_beginning = True
        try:
            answer = await self._wire.call(sent)
        finally:
            self._is_beginning = False
        return self._started(given, answer)

    def _start(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None,
        options: ExecutionOptions | None,
    ) -> tuple[MessageInput | Sequence[Answer] | None, Sent]:
        self._check_open()
        key = input.idempotency_key if isinstance(input, MessageInput) else None
        if self.state == "running" and (key is None or self._is_beginning):
            # The events that came say so; where they lag behind, the server does. A message that may have been sent
            # before is its to tell.
            raise StreamActive(
                "a stream runs already",
                where=f"session {self.session_id}, stream {self._opening or self._machine.stream_id}",
                expected="one stream at a time (LIFE-07)",
                fix="read it to its end, or abort() it; answer with respond(), intervene with steer()",
            )
        body: dict[str, Any] = {}
        given: MessageInput | Sequence[Answer] | None
        if isinstance(input, (str, MessageInput)):
            given = MessageInput(content=as_content(input)) if isinstance(input, str) else input
            body["input"] = given.to_wire()
        else:
            given = None if input is None else as_answers(input)
            if given is not None:
                body["input"] = [answer.to_wire() for answer in given]
        options = self._of_turn(options)
        if options is not None:
            body["options"] = options.to_wire()
        sent = Sent("POST", f"{self._path}/stream", body)
        if key is not None and 0 < len(key) <= 256 and key.isascii() and key.isprintable():
            sent = Sent("POST", f"{self._path}/stream", body, key)
        return given, sent

    def _of_turn(self, options: ExecutionOptions | None) -> ExecutionOptions | None:
        """The options of a turn: the server loads a session without any, so those of ``load`` go with each turn."""
        loaded = None if self._is_new else self._options.execution
        kept = {
            name: getattr(loaded, name) for name in _LOADED if loaded is not None and name in loaded.model_fields_set
        }
        if not kept:
            return options
        given = {} if options is None else {name: getattr(options, name) for name in options.model_fields_set}
        return ExecutionOptions(**(kept | given))

    def _started(self, given: MessageInput | Sequence[Answer] | None, answer: Json) -> Stream:
        stream_id, turn_id, receipts = answer.get("streamId"), answer.get("turnId"), answer.get("receipts", [])
        if not isinstance(stream_id, str) or not isinstance(turn_id, str) or not isinstance(receipts, list):
            raise _malformed("a stream")
        taken = [_model(Receipt, receipt) for receipt in receipts]
        self._is_new_turn = isinstance(given, MessageInput)
        if given is not None and not isinstance(given, MessageInput):
            self._note(given, taken)
        if not self._machine.is_ended(stream_id) and stream_id != self._machine.stream_id:
            self._opening = stream_id
        return Stream(self._log, stream_id=stream_id, turn_id=turn_id, receipts=taken)

    # -- the other calls ----------------------------------------------------------------------------------------------

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        """Answer pending requests (see ``AgentSession.respond``)."""
        self._check_open()
        given = as_answers(answers)
        answer = await self._call("respond", {"answers": [each.to_wire() for each in given]})
        receipts = answer.get("receipts")
        if not isinstance(receipts, list) or len(receipts) != len(given):
            raise _malformed("a receipt for each answer")
        taken = [_model(Receipt, receipt) for receipt in receipts]
        self._note(given, taken)
        await self._caught_up()
        return taken

    def _note(self, answers: Sequence[Answer], receipts: Sequence[Receipt]) -> None:
        for answer, receipt in zip(answers, receipts, strict=False):
            if receipt.ok and not isinstance(answer, ToolProgress):
                self._answered.add(answer.request_id)

    async def steer(self, data: Content | SteerData) -> Receipt:
        """Give the working agent something to read (see ``AgentSession.steer``)."""
        self._require("steering")
        self._check_open()
        steer = data if isinstance(data, SteerData) else SteerData(message=as_content(data))
        receipt = _model(Receipt, await self._call("steer", steer.to_wire()))
        await self._caught_up()
        return receipt

    async def update(self, config: SessionConfig) -> Receipt:
        """Change model, mode, tools, title, state or config (see ``AgentSession.update``)."""
        self._check_open()
        receipt = _model(Receipt, await self._wire.call(Sent("PATCH", self._path, config.to_wire())))
        await self._caught_up()
        return receipt

    async def abort(self, reason: str | None = None) -> AbortResult:
        """End the turn (see ``AgentSession.abort``)."""
        self._require("abort")
        if self._machine.state == "closed":
            return AbortResult(status="idle")
        stream_id = self._opening or self._machine.stream_id
        try:
            answer = await self._call("abort", {} if reason is None else {"reason": reason}, timeout_s=_LONG_S)
        except AbortTimeout as error:
            self._end(error)
            raise
        result = _model(AbortResult, answer)
        await self._caught_up()
        end = self._log.end_of(stream_id) if result.status == "idle" else None
        if end is not None:  # it ran when it was called: an answer that a cut has delayed must not hide that
            return AbortResult(status="aborted" if end.reason == "aborted" else "too_late", stream_id=stream_id)
        return result

    async def _call(self, name: str, body: Json, *, timeout_s: float | None = None) -> Json:
        return await self._wire.call(Sent("POST", f"{self._path}/{name}", body, timeout_s=timeout_s))

    async def _caught_up(self) -> None:
        """Wait until the events are here that the server had when it answered, so that they show what it did."""
        if self._log.is_closed:
            return
        with self._log.hurry():
            last = (await self._wire.call(Sent("GET", self._path))).get("lastSeq")
            if not isinstance(last, int):
                raise _malformed("a session")
            await self._come(last)

    async def refresh(self) -> None:
        """Wait until all events are here that the server has by now."""
        self._check_open()
        await self._caught_up()

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> Reader:
        """Read the record after a cursor (see ``AgentSession.events``), as far as it has come here."""
        cursor = 0 if after is None else after
        if not isinstance(cursor, int) or isinstance(cursor, bool) or isinstance(types, str):
            raise InvalidInput("a cursor is the seq of an event, and types is a collection of names")
        if isinstance(self._log.failure, ProtocolViolation):
            raise self._log.failure
        if not 0 <= cursor <= self.last_seq:
            raise CursorGone(
                f"cursor {cursor} is beyond the record",
                where=f"session {self.session_id}",
                expected=f"0 to {self.last_seq}",
            )
        return Reader(self._log, after=cursor, follow=follow, types=types, stream_id=stream_id, thread_id=thread_id)

    def _check_open(self) -> None:
        if self._log.failure is not None:
            raise self._log.failure
        if self._machine.state == "closed" or self._follower.is_closing:
            raise SessionClosed(
                "the session is closed", where=f"session {self.session_id}", fix="load it, or open another one"
            )

    def _require(self, capability: str) -> None:
        if not self.descriptor.supports(capability):
            raise Unimplemented(
                f"agent {self.descriptor.name} does not offer {capability}",
                expected=f"the capability {capability} in its descriptor",
            )

    # -- closing ------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close it, here and on the server (see ``AgentSession.aclose``)."""
        if self._machine.state == "closed" or self._follower.is_closing:
            return
        self._follower.is_closing = True
        failure: AgentSessionError | None = None
        with anyio.CancelScope(shield=True):
            try:
                with self._log.hurry():
                    await self._call("close", {}, timeout_s=_LONG_S)
                    await self._last_events()
            except AgentSessionError as error:
                failure = error
            finally:
                self._end(failure)
        if failure is not None and not isinstance(failure, (ConnectionLost, SessionClosed)):
            raise failure

    async def _last_events(self) -> None:
        """Take what came as it was closed. Where the connection was cut just then it is read, and closed, once more."""
        with anyio.move_on_after(self._wire.give_up_s):
            while not self._log.is_closed and not self._follower.is_cut:
                await self._log.changed()
        if not self._follower.is_cut or not self.descriptor.supports("load"):
            return
        more: object = True
        while more is True:
            page = await self._wire.call(Sent("GET", f"{self._path}/events?after={self.last_seq}&limit=1000"))
            events, more = page.get("events"), page.get("more")
            if not isinstance(events, list):
                raise _malformed("a page of events")
            for event in events:
                self._take(str(mapping(event).get("seq")), dumps(event))
        await self._call("close", {}, timeout_s=_LONG_S)

    def _end(self, failure: Exception | None) -> None:
        self._opening = None
        self._machine.abandon()
        self._log.close(failure)
        self._follower.stop()
        self._owner.forget(self)

    def detach(self) -> None:
        """Leave it as it is on the server, and follow it no further: it can be loaded again."""
        self._follower.is_closing = True
        self._end(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _model(cls: type[M], value: Any) -> M:
    try:
        return cls.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _malformed(f"no {cls.__name__}") from error


def _malformed(what: str) -> ConnectionLost:
    return ConnectionLost(
        "the server's answer is not what was asked for", expected=what, fix="look whether both speak the same version"
    )


def mapping(value: object) -> dict[str, Any]:
    """A JSON object of an answer. Raises :class:`ConnectionLost`."""
    if not isinstance(value, dict):
        raise _malformed("an object")
    return value
