"""A session behind the server: the calls of its host.

Not for: its events (``_folded.py``), connections (``_wire.py``, ``_follower.py``). Rules carried: LIFE-06, LIFE-07,
LIFE-13. May import: ``agentsession.protocol``, anyio, the modules beside it.

``stream()`` is no coroutine in the contract: it knows the stream's id, or raises, when it returns. So it waits for the
server without giving way to a task. :meth:`RemoteSession.begin` is the same for who can await.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

import anyio

from agentsession.adapters.remote._folded import Folded
from agentsession.adapters.remote._follower import Follower
from agentsession.adapters.remote._readers import Reader, Stream
from agentsession.adapters.remote._shapes import kinds_of, malformed, mapping, model, receipts_of, shown, text
from agentsession.adapters.remote._starting import start_of
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
    ExecutionOptions,
    Initialize,
    InvalidInput,
    MessageInput,
    OpenOptions,
    PendingRequest,
    ProtocolViolation,
    Receipt,
    SessionClosed,
    SessionConfig,
    SessionState,
    SteerData,
    StreamActive,
    Unimplemented,
    as_answers,
    as_content,
    dumps,
)

__all__ = ["RemoteSession"]

_HOSTED: Final = "a host on the server goes on by itself: read events(); a host of yours wants it bare: serve --bare"
_LONG_S: Final = 60.0
"""How long an abort or close may take: the agent has a grace time, which the server knows."""


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
        self.session_id, begins_at = shown(answer)
        self._owner = owner
        self._wire = owner.wire
        self._path = path_of("agents", agent, "sessions", self.session_id)
        self._options = options
        self._is_new = is_new
        self._begins_at = begins_at
        self._is_hosted = answer.get("isHosted") is True
        kinds = kinds_of(answer)
        self._folded = Folded(self.session_id, self._wire.mask, begins_at=begins_at, kinds=kinds, is_new=is_new)
        self._log = self._folded.log
        self._follower = Follower(self._wire, f"{self._path}/events?follow=true", self._log, self._folded.take)

    def __repr__(self) -> str:
        return f"RemoteSession({self.session_id!r}, {self.state})"

    async def follow(self) -> None:
        """Bring its events, until it is closed. Run by the executor."""
        await self._follower.run()
        if self._log.is_closed:
            self._folded.close()
            self._owner.forget(self)

    async def begun(self) -> None:
        """Wait until the record is here that was there when it was opened. Raises what breaks it."""
        await self._come(self._begins_at)
        if self._log.failure is not None:
            raise self._log.failure

    async def _come(self, seq: int) -> None:
        # Longer than the follower takes to find out that the connection is gone, and to give it up.
        await self._folded.come(seq, within_s=self._wire.silent_s + self._wire.give_up_s)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def descriptor(self) -> AgentDescriptor:
        first = self._log.events[0] if self._log.events else None
        return first.descriptor if isinstance(first, Initialize) else self._owner.descriptor

    @property
    def state(self) -> SessionState:
        return self._folded.state

    @property
    def pending(self) -> Sequence[PendingRequest]:
        return self._folded.pending

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
        self._folded.is_beginning = True
        try:
            answer = await self._wire.call(sent)
        finally:
            self._folded.is_beginning = False
        return self._started(given, answer)

    def _start(
        self,
        input: str | MessageInput | Answer | Sequence[Answer] | None,
        options: ExecutionOptions | None,
    ) -> tuple[MessageInput | Sequence[Answer] | None, Sent]:
        self._check_open()
        key = input.idempotency_key if isinstance(input, MessageInput) else None
        if self.state == "running" and (key is None or self._folded.is_beginning):
            # The events that came say so; where they lag behind, the server does. A message that may have been sent
            # before is its to tell.
            raise StreamActive(
                "a stream runs already",
                where=f"session {self.session_id}, stream {self._folded.stream_id}",
                expected="one stream at a time (LIFE-07)",
                fix=_HOSTED
                if self._is_hosted
                else "read it to its end, or abort() it; answer with respond(), intervene with steer()",
            )
        loaded = None if self._is_new else self._options.execution
        return start_of(f"{self._path}/stream", input, options, loaded)

    def _started(self, given: MessageInput | Sequence[Answer] | None, answer: Json) -> Stream:
        stream_id, turn_id = text(answer.get("streamId")), text(answer.get("turnId"))
        taken: list[Receipt] = []
        if given is not None and not isinstance(given, MessageInput):
            taken = receipts_of(answer.get("receipts"), given)
            self._folded.answered(given, taken)
        self._folded.started(stream_id, is_new_turn=isinstance(given, MessageInput))
        return Stream(self._log, stream_id=stream_id, turn_id=turn_id, receipts=taken)

    # -- the other calls ----------------------------------------------------------------------------------------------

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        """Answer pending requests (see ``AgentSession.respond``)."""
        self._check_open()
        given = as_answers(answers)
        answer = await self._call("respond", {"answers": [each.to_wire() for each in given]})
        taken = receipts_of(answer.get("receipts"), given)
        self._folded.answered(given, taken)
        await self._caught_up()
        return taken

    async def steer(self, data: Content | SteerData) -> Receipt:
        """Give the working agent something to read (see ``AgentSession.steer``)."""
        self._require("steering")
        self._check_open()
        steer = data if isinstance(data, SteerData) else SteerData(message=as_content(data))
        receipt = model(Receipt, await self._call("steer", steer.to_wire()))
        await self._caught_up()
        return receipt

    async def update(self, config: SessionConfig) -> Receipt:
        """Change model, mode, tools, title, state or config (see ``AgentSession.update``)."""
        self._check_open()
        receipt = model(Receipt, await self._wire.call(Sent("PATCH", self._path, config.to_wire())))
        await self._caught_up()
        return receipt

    async def abort(self, reason: str | None = None) -> AbortResult:
        """End the turn (see ``AgentSession.abort``)."""
        self._require("abort")
        if self._folded.is_closed:
            return AbortResult(status="idle")
        stream_id = self._folded.stream_id
        try:
            answer = await self._call("abort", {} if reason is None else {"reason": reason}, timeout_s=_LONG_S)
        except AbortTimeout as error:
            self._end(error)
            raise
        result = model(AbortResult, answer)
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
            _, last = shown(await self._wire.call(Sent("GET", self._path)), self.session_id)
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
        if self._folded.is_closed or self._follower.is_closing:
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
        if self._folded.is_closed or self._follower.is_closing:
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
        while more is True and not self._log.is_closed:
            page = await self._wire.call(Sent("GET", f"{self._path}/events?after={self.last_seq}&limit=100"))
            events, more = page.get("events"), page.get("more")
            if not isinstance(events, list) or (more is True and not events):
                raise malformed("a page of events")
            for event in events:
                self._folded.take(str(mapping(event).get("seq")), dumps(event))
        await self._call("close", {}, timeout_s=_LONG_S)

    def _end(self, failure: Exception | None) -> None:
        self._folded.close(failure)
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
