"""A session as its events have it: what came, checked and folded, and what that says of its state.

Not for: bringing the events (``_follower.py``), calls (``_session.py``). Rules carried: WIRE-02 of what comes in, and
all rules of the record by the state machine, which blames the peer. May import: ``agentsession.protocol``, anyio, the
modules beside it.

What a call has done is known from its answer before the events show it: which stream runs, what was answered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import anyio

from agentsession.adapters.remote._mask import Mask
from agentsession.adapters.remote._readers import Log
from agentsession.protocol import (
    Answer,
    ConnectionLost,
    ElicitationRequest,
    Event,
    PendingRequest,
    ProtocolViolation,
    Receipt,
    SchemaError,
    SessionMachine,
    SessionState,
    ToolProgress,
    ToolRequest,
    parse_event,
    parse_json,
)

__all__ = ["Folded"]


class Folded:
    """What is known of one session. What breaks a rule of the contract closes it, with the violation."""

    def __init__(
        self, session_id: str, mask: Mask, *, begins_at: int, kinds: Collection[str] | None, is_new: bool
    ) -> None:
        """
        Args:
            session_id: The session whose events come.
            mask: For what a violation shows of them.
            begins_at: The last seq that was there when it was opened here.
            kinds: The kinds of elicitation that the host can show; ``None``: all.
            is_new: It was opened now, with this host's kinds.
        """
        self.log = Log()
        self.is_beginning = False
        """A stream is being begun: the server was asked, and has not answered."""
        self._session_id = session_id
        self._mask = mask
        self._begins_at = begins_at
        self._machine = SessionMachine(blame="peer")
        self._requests: dict[str, PendingRequest] = {}
        self._answered: set[str] = set()
        """What was answered and has no response yet: a secret answer is recorded when the executor takes it."""
        self._opening: str | None = None
        """The stream that was opened last, while none of its events has come."""
        self._is_new_turn = False
        """Whether that stream begins a turn."""
        self._kinds = None if kinds is None else frozenset(kinds)
        # What an earlier host could show decided what was cancelled then; this host's kinds count from now on.
        self._machine.host_kinds = self._kinds if is_new else None

    # -- what comes in ------------------------------------------------------------------------------------------------

    def take(self, id: str, data: str) -> None:
        """An event came: its id on the wire, and its JSON. After the end it is ignored."""
        if self.log.is_closed:
            return
        try:
            event = self._parsed(id, data)
            self._machine.feed(event)
        except ProtocolViolation as error:
            self.close(self._mask.error(error))
            return
        if isinstance(event, ElicitationRequest) or (isinstance(event, ToolRequest) and not event.partial):
            self._requests[event.request_id] = event
        if event.stream_id is not None and event.stream_id == self._opening:
            self._opening = None
        self.log.append(event)
        if event.seq >= self._begins_at:
            self._machine.host_kinds = self._kinds

    def _parsed(self, id: str, data: str) -> Event:
        try:
            event = parse_event(parse_json(data))
        except SchemaError as error:
            said = "; ".join([error.what, *(f"{name}: {text}" for name, text in error.parts().items())])
            raise ProtocolViolation("WIRE-02", said, blame="peer", where=f"session {self._session_id}") from error
        if event.session_id != self._session_id or str(event.seq) != id:
            raise ProtocolViolation(
                "WIRE-02",
                "an event has another place than the one that it came under",
                blame="peer",
                where=f"session {self._session_id}, id {id[:40]}",
                got=f"session {event.session_id}, seq {event.seq}",
            )
        return event

    async def come(self, seq: int, *, within_s: float) -> None:
        """Wait until the events up to a seq are here, or it is closed.

        Raises :class:`ConnectionLost` where none of them comes for ``within_s``: the server has said that it has them.
        """
        log = self.log
        with log.hurry():
            while (had := log.last_seq) < seq and not log.is_closed:
                with anyio.move_on_after(within_s) as patience:
                    while log.last_seq == had and not log.is_closed:
                        await log.changed()
                if patience.cancelled_caught:
                    raise ConnectionLost(
                        "the server does not send the events that it says it has",
                        where=f"session {self._session_id}",
                        expected=f"seq {seq}",
                        got=f"seq {had}",
                    )

    def close(self, failure: Exception | None = None) -> None:
        """Nothing more comes."""
        self._opening = None
        self._machine.abandon()
        self.log.close(failure)

    # -- what calls have done -----------------------------------------------------------------------------------------

    def started(self, stream_id: str, *, is_new_turn: bool) -> None:
        """The server has begun a stream, whose events may have come already."""
        self._is_new_turn = is_new_turn
        if not self._machine.is_ended(stream_id) and stream_id != self._machine.stream_id:
            self._opening = stream_id

    def answered(self, answers: Sequence[Answer], receipts: Sequence[Receipt]) -> None:
        """The server has taken answers: of each, whether it holds."""
        for answer, receipt in zip(answers, receipts, strict=True):
            if receipt.ok and not isinstance(answer, ToolProgress):
                self._answered.add(answer.request_id)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._machine.state == "closed"

    @property
    def stream_id(self) -> str | None:
        """The stream that runs."""
        return self._opening or self._machine.stream_id

    @property
    def state(self) -> SessionState:
        if not self.is_closed and (self._opening is not None or self.is_beginning):
            return "running"
        return self._machine.state

    @property
    def pending(self) -> Sequence[PendingRequest]:
        if self._opening is not None and self._is_new_turn:
            return []
        waiting = (name for name in self._machine.pending if name not in self._answered)
        # Copies: who changes the arguments of what waits must change nothing that was read.
        return [self._requests[name].model_copy(deep=True) for name in waiting]
