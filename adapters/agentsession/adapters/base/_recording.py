"""The record of one session in this process: stamp, check, append, in one synchronous step.

Not for: when to record what (``_turns.py``, ``_ending.py``) or the host's calls (``_session.py``). Rules carried:
LIFE-06, ORD-01, ORD-02, PER-02, PER-03. May import: ``agentsession.protocol``, the modules beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anyio.abc import TaskGroup

from agentsession.adapters.base._arguments import need
from agentsession.adapters.base._clock import EventClock, Milliseconds
from agentsession.adapters.base._flushing import Flusher
from agentsession.adapters.base._log import EventLog, Pager
from agentsession.adapters.base._readers import LogReader, LogStream
from agentsession.adapters.base._snapshots import Known, Link, Marks, known_of, link_at
from agentsession.adapters.base._stamping import delta, delta_template, stamp
from agentsession.adapters.base._telemetry import StreamSpans
from agentsession.protocol import (
    AgentSessionError,
    CursorGone,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    HostCapabilities,
    InvalidInput,
    Message,
    PendingRequest,
    Receipt,
    RecordKey,
    RecordSnapshots,
    RecordStore,
    SessionClosed,
    SessionMachine,
    SessionUpdate,
    Spent,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    is_ephemeral,
    rewind_point,
    without_rewound,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._loopwatch import LoopWatch

__all__ = ["Recorder"]

E = TypeVar("E", bound=Event)


class Recorder:
    """Everything that enters a session's record goes through here; what the record tells is kept here."""

    def __init__(
        self,
        key: RecordKey,
        host: HostCapabilities,
        *,
        window: int,
        now: Milliseconds | None,
        group: TaskGroup,
        store: RecordStore | None,
        on_failure: Callable[[AgentSessionError], None],
        kept_events: int | None = None,
        snapshot_every: int | None = None,
    ) -> None:
        self.key = key
        self.machine = SessionMachine(host_kinds=host.elicitation_kinds)
        self.log = EventLog(window, _pager(store, key) if store is not None else None)
        self.kept_events = kept_events
        """How many events stay in memory at least; ``None`` for all."""
        self._snapshot_every = snapshot_every if store is not None and isinstance(store, RecordSnapshots) else None
        self._marks = Marks()
        self.known = Known()
        self.flusher = Flusher(self.log, group, store, key, on_failure)
        self.flusher.on_snapshot_lost = self._forget_snapshots
        self.seq = 0
        """The last seq that was taken."""
        self.requests: dict[str, PendingRequest] = {}
        """The request events that have no response yet."""
        self.is_state_stale = False
        """A rewind took back changes of the state that are no longer in memory: :meth:`refold_state` is due."""
        self.on_response: Callable[[ToolResponse | ElicitationResponse], None] | None = None
        """Told of every response, in the step that records it."""
        self.on_spent: Callable[[ToolResponse, Spent], None] | None = None
        """Told of every response that counts against the limits of its turn."""
        self.spans: StreamSpans | None = None
        """Told of what is recorded, if somebody may trace it."""
        self.loops: LoopWatch | None = None
        """Told of what is recorded, where the host wants to know of an agent that goes in circles."""
        self._clock = EventClock(now)
        self._opening: tuple[str, str] | None = None
        self._turn_start = 0
        """The seq of the first event of the last turn."""
        self._id_prefix = ""
        self._id_count = 0

    @property
    def turns(self) -> int:
        """How many turns the record has, the present one included."""
        return self.known.turns

    @property
    def state_values(self) -> dict[str, Any]:
        """The session's state, as far as updates and state deltas tell."""
        return self.known.state_values

    @property
    def idempotency(self) -> dict[str, tuple[str, int]]:
        """Idempotency key → turn id, and the seq before its first event."""
        return self.known.idempotency

    # -- ids ----------------------------------------------------------------------------------------------------------

    def new_id(self, prefix: str) -> str:
        """An id that this session never used: a count, with its life's own prefix once it was loaded.

        Hosts and executors may choose ids too, so what the record knows already is passed over.
        """
        machine = self.machine
        while True:
            self._id_count += 1
            made = f"{prefix}{self._id_prefix}{self._id_count}"
            if not (
                machine.is_closed_message(made)
                or made in machine.requests
                or machine.is_resolved(made)
                or made in machine.open_messages
            ):
                return made

    def begin_stream(self, turn_id: str | None = None) -> tuple[str, str]:
        """The stream and turn id that the next event opens; a new turn unless ``turn_id`` names the waiting one.

        The deltas of streams before it go where nobody needs them, so that there is never more than one stream of them.
        """
        self.log.forget_ephemerals(self.machine.ended_streams)
        self.trim()
        turn_id = turn_id or self.new_id("t")
        self._opening = (self.new_id("s"), turn_id)
        return self._opening

    @property
    def is_opening(self) -> bool:
        """Whether a stream was begun and has no event yet."""
        return self._opening is not None

    # -- recording ----------------------------------------------------------------------------------------------------

    def record(self, event: E, agent_id: str | None = None, thread_id: str | None = None) -> E:
        """Add ``event`` to the record; the stamped event. Raises :class:`ProtocolViolation` and adds nothing."""
        machine = self.machine
        if machine.state == "closed":
            raise SessionClosed("the session is closed", where=f"session {self.key.session_id}")
        stream_id, turn_id = machine.stream_id, machine.turn_id
        opening = self._opening
        if opening is not None and stream_id is None:
            stream_id, turn_id = opening
        seq = self.seq + 1
        made = stamp(
            event,
            f"e{seq}",
            seq,
            self._clock.stamp(),
            self.key.session_id,
            stream_id,
            turn_id,
            event.agent_id or agent_id,
            event.thread_id or thread_id,
            event.source,
        )
        machine.feed(made)
        self.seq = seq
        if opening is not None:
            self._opening = None
            self._count_turn(turn_id, seq)
        if not is_ephemeral(made):
            self.known.events += 1
        note = _NOTES.get(made.type)
        if note is not None:
            note(self, made)
        if self.spans is not None and made.type in self.spans.events:
            self.spans.note(made)
        self.flusher.append(made)
        if self._snapshot_every is not None and made.type == "stream_end":
            self._take_snapshot(made)
        return made

    def _take_snapshot(self, end: Event) -> None:
        """Between two turns, when many events have come since the last one: it is stored after them."""
        every, known, machine = self._snapshot_every, self.known, self.machine
        if every is None or machine.state != "idle" or known.events - self._marks.events < every:
            return
        self.flusher.add_snapshot(link_at(end, machine, known, self._marks))
        self._marks = Marks.of(end.seq, machine, known)

    def _forget_snapshots(self) -> None:
        """The next snapshot holds everything, and those before it go."""
        self._marks = Marks()

    def trim(self) -> None:
        """Drop events of ended turns from memory, where a store has them."""
        if self.kept_events is not None:
            is_open = self.machine.turn_id is not None
            self.log.drop(self.kept_events, self._turn_start if is_open else None)

    def delta_template(self, message_id: str, role: str, agent_id: str, thread_id: str | None) -> dict[str, Any]:
        """For :meth:`record_delta`; good for one message as long as the stream and the agent stay the same."""
        machine = self.machine
        return delta_template(
            message_id, role, self.key.session_id, machine.stream_id, machine.turn_id, agent_id, thread_id
        )

    def record_delta(self, template: dict[str, Any], kind: str, text: str, index: int) -> None:
        """What :meth:`record` does, for a partial message of one part: the same steps with nothing made twice."""
        seq = self.seq + 1
        made = delta(template, kind, text, index, seq, self._clock.stamp())
        self.machine.feed(made)
        self.seq = seq
        if self.loops is not None:
            self.loops.said(made)
        self.flusher.append(made)

    def _count_turn(self, turn_id: str | None, seq: int) -> None:
        if turn_id is not None and turn_id != self.known.last_turn:
            self.known.last_turn = turn_id
            self.known.turns += 1
            self._turn_start = seq

    # What must be kept of an event that was accepted, by its type.

    def _note_tool_request(self, event: ToolRequest) -> None:
        if not event.partial:
            self.requests[event.request_id] = event
            if self.loops is not None:
                self.loops.asked(event)

    def _note_message(self, event: Message) -> None:
        if event.partial and self.loops is not None:
            self.loops.said(event)

    def _note_question(self, event: ElicitationRequest) -> None:
        self.requests[event.request_id] = event

    def _note_response(self, event: ToolResponse | ElicitationResponse) -> None:
        self.requests.pop(event.request_id, None)
        if self.on_response is not None:
            self.on_response(event)
        if isinstance(event, ToolResponse) and event.spent is not None and self.on_spent is not None:
            self.on_spent(event, event.spent)
        if self.loops is not None and isinstance(event, ToolResponse):
            self.loops.answered(event)

    def _note_end(self, event: StreamEnd) -> None:
        if event.stream_id is not None:
            self.known.note_end(event.stream_id, event.turn_id, event.seq)

    def _note_update(self, event: SessionUpdate) -> None:
        self.known.permission_mode = event.permission_mode or self.known.permission_mode
        self._fold_state(event)

    def _fold_state(self, event: SessionUpdate) -> None:
        if event.state_delta is not None:
            self.known.state_values.update(event.state_delta)
            self._marks.is_state_new = True
        if isinstance(event.state_snapshot, dict):
            self.known.state_values = dict(event.state_snapshot)
            self._marks.is_state_new = True

    def _note_custom(self, event: Custom) -> None:
        """After a rewind the state is what the events that still count tell."""
        if rewind_point(event) is None:
            return
        if self.log.dropped_seq:
            self.is_state_stale = True
        else:
            self.fold_states([*self.log.events, event])

    def fold_states(self, record: Iterable[Event]) -> None:
        """The state that a whole record tells."""
        self.is_state_stale = False
        self.known.state_values = {}
        self._marks.is_state_new = True
        for kept in without_rewound(record):
            if isinstance(kept, SessionUpdate):
                self._fold_state(kept)

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def shown_seq(self) -> int:
        """The last seq that readers may see."""
        return self.log.shown_seq

    def has_shown_end(self, stream_id: str) -> bool:
        """Whether readers may see that stream's end: its stream_end is stored."""
        end = self.known.ends.get(stream_id)
        return end is not None and end[1] <= self.log.shown_seq

    def stream_reader(self, stream_id: str, turn_id: str, after: int, receipts: Sequence[Receipt] = ()) -> LogStream:
        """A reader of one stream."""
        return LogStream(
            self.log,
            stream_id=stream_id,
            turn_id=turn_id,
            after=after,
            receipts=receipts,
            answered=self.seq if receipts else 0,
            stream_ended=self.has_shown_end,
        )

    def reader(
        self,
        after: int | None,
        follow: bool,
        types: Collection[str] | None,
        stream_id: str | None,
        thread_id: str | None,
    ) -> LogReader:
        """A reader from a cursor. Raises :class:`CursorGone` beyond the last seq (ORD-07), :class:`InvalidInput`."""
        cursor = need(0 if after is None else after, int, "cursor", "pass the seq of an event, or nothing")
        if isinstance(types, str):
            raise InvalidInput("types is one text", got=ascii(types[:40]), fix=f"pass a collection: [{types[:40]!r}]")
        if not 0 <= cursor <= self.seq:
            raise CursorGone(
                f"cursor {cursor} is beyond the record",
                where=f"session {self.key.session_id}",
                expected=f"0 to {self.seq}",
                fix=f"read from {self.seq}, or from the start",
            )
        return LogReader(
            self.log,
            after=cursor,
            follow=follow,
            types=types,
            stream_id=stream_id,
            thread_id=thread_id,
            stream_ended=self.has_shown_end,
        )

    # -- loading ------------------------------------------------------------------------------------------------------

    def load(self, events: Sequence[Event], reserved_seq: int, token: str) -> None:
        """Fill an unused recorder from a whole record, without writing anything (see :meth:`loaded`)."""
        self.take(events)
        self.loaded(reserved_seq, token)

    def begin_from(self, links: Sequence[Link]) -> None:
        """Begin with what ``links`` of snapshots tell, or with nothing; what was taken before is forgotten."""
        fresh = SessionMachine(host_kinds=self.machine.host_kinds)
        self.known, self._marks, self.requests = Known(), Marks(), {}
        self.is_state_stale = False
        self.log.events.clear()
        self.log.visible = 0
        self.log.begin_at(links[-1].seq if links else 0)
        if links:
            kinds = self.machine.host_kinds
            earlier = [link.machine for link in links[:-1]]
            fresh = SessionMachine.restore(links[-1].machine, blame="executor", host_kinds=kinds, earlier=earlier)
            self.known = known_of(links)
            self._marks = Marks.of(links[-1].seq, fresh, self.known)
        # Others hold this machine already.
        self.machine.__dict__.update(fresh.__dict__)

    def take(self, events: Sequence[Event]) -> None:
        """The next stored events. Raises :class:`ProtocolViolation` for what cannot follow."""
        machine = self.machine
        # What an earlier host could show decided what was cancelled then; this host's kinds count from now on.
        kinds, machine.host_kinds = machine.host_kinds, None
        try:
            for event in events:
                machine.feed(event)
                note = _NOTES.get(event.type)
                if note is not None:
                    note(self, event)
                self.log.append(event, visible=True)
                self.known.events += 1
                self._count_turn(event.turn_id, event.seq)
                key = (event.meta or {}).get("idempotencyKey") if isinstance(event, Message) else None
                if isinstance(key, str) and event.turn_id is not None:
                    self.idempotency.setdefault(key, (event.turn_id, event.seq - 1))
        finally:
            machine.host_kinds = kinds
        if events:
            self._clock.start_after(events[-1].timestamp)
        self.trim()

    def loaded(self, reserved_seq: int, token: str) -> None:
        """Everything was taken.

        ``token`` sets the ids of this life apart from those of another that began at the same seq: an id that was
        handed out, such as that of a steer, need not be in the record.
        """
        self.seq = max(reserved_seq, self.machine.seq)
        self._id_prefix = f"{self.seq}-{token}."
        self.flusher.loaded(self.seq)


def _pager(store: RecordStore, key: RecordKey) -> Pager:
    async def page(after: int, limit: int) -> list[Event]:
        return await store.read(key, after=after, limit=limit)

    return page


_NOTES: Final[Mapping[str, Callable[[Recorder, Any], None]]] = {
    "message": Recorder._note_message,
    "tool_request": Recorder._note_tool_request,
    "elicitation_request": Recorder._note_question,
    "tool_response": Recorder._note_response,
    "elicitation_response": Recorder._note_response,
    "stream_end": Recorder._note_end,
    "session_update": Recorder._note_update,
    "custom": Recorder._note_custom,
}
