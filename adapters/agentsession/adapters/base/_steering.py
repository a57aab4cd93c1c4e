"""Steers: what the host queues while a turn is at work, until the executor takes it.

Not for: when an executor takes them (``RunContext.steers``). Rules carried: CTL-06, PER-02.
May import: ``agentsession.protocol``, the modules beside it.

A steer is in the record twice: as a ``custom`` event of kind ``steer_queued`` when its receipt says ``queued``, because
what was acknowledged must survive the process, and as the user's message when it is injected, which is the one that
counts. A turn that is loaded has the steers again that were queued in it and not injected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentsession.adapters.base._run import Run
from agentsession.protocol import (
    STEER_QUEUED,
    ContentPart,
    Custom,
    InvalidInput,
    Message,
    MessageInput,
    Receipt,
    Text,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._session import BaseSession

__all__ = ["Steer", "Steers"]


class Steer:
    """A steer that was taken: its content is in the record as a user message from now on."""

    __slots__ = ("content", "message_id", "source")

    def __init__(self, message_id: str, content: list[ContentPart], source: str = "user") -> None:
        self.message_id = message_id
        self.content = content
        self.source = source
        """``user``: a person's, by the host; ``host``: what the session itself has to say."""


class Steers:
    """The queue of one session; the machine keeps its ids, so that none is lost or injected twice."""

    def __init__(self, session: BaseSession) -> None:
        self._session = session
        self._recorder = session.recorder
        self._machine = session.recorder.machine
        self._queue: dict[str, Steer] = {}
        self._notes: list[tuple[str | None, str, dict[str, Any]]] = []
        """What the session itself has to say to an agent: the thread, the text, and what it is about."""

    def queue(self, content: Sequence[ContentPart]) -> Receipt:
        """Queue a steer, if a turn runs or waits and is not ending."""
        run, state = self._session.turns.run, self._machine.state
        ends = run is not None and not run.is_over and (run.aborting is not None or run.muted)
        if state not in ("running", "input_required") or ends or self._machine.fatal:
            return Receipt(status="rejected", rule="CTL-06", reason="no turn is running or waiting")
        steer_id = self._recorder.new_id("m")
        data = {"steerId": steer_id, "content": [part.to_wire() for part in content]}
        note = Custom(kind=STEER_QUEUED, data=data, source="host")
        self._machine.queue_steer(steer_id)
        self._queue[steer_id] = Steer(steer_id, list(content))
        self._recorder.record(note)
        return Receipt(status="queued", request_id=steer_id)

    def note(self, thread_id: str | None, text: str, meta: dict[str, Any]) -> None:
        """Have the agent of a thread told something before its next model call, if there is one.

        No steer: nobody was promised that it arrives, so it keeps no turn from ending.
        """
        self._notes.append((thread_id, text, meta))

    def take_notes(self, run: Run, agent_id: str, thread_id: str | None) -> list[Steer]:
        """Record what the session has to say on a thread as messages of the host's, and hand it to the run."""
        if not self._notes or run.grace is not None:
            return []
        self._session.work.check_open(run)
        mine = [note for note in self._notes if note[0] == thread_id]
        self._notes = [note for note in self._notes if note[0] != thread_id]
        taken = [Steer(self._recorder.new_id("m"), [Text(text=text)], "host") for _, text, _ in mine]
        for steer, (_, _, meta) in zip(taken, mine, strict=True):
            message = Message(message_id=steer.message_id, role="user", content=steer.content, source="host", meta=meta)
            self._recorder.record(message, agent_id, thread_id)
        return taken

    def take(self, run: Run, agent_id: str, thread_id: str | None) -> list[Steer]:
        """Record every queued steer as a user message and hand it to the run."""
        self._session.work.check_open(run)
        if run.grace is not None:
            return []  # it would start something; the end of the turn lists it as undelivered
        taken = [self._queue.pop(request_id) for request_id in list(self._machine.steers)]
        for steer in taken:
            message = Message(message_id=steer.message_id, role="user", content=steer.content, source="user")
            self._recorder.record(message, agent_id, thread_id)
        return taken

    def clear(self) -> None:
        """The turn is over."""
        self._queue.clear()
        self._notes.clear()

    def restore(self) -> None:
        """Queue again what was queued in a loaded turn that is not over, and neither injected nor told undelivered."""
        turn_id = self._machine.turn_id
        for event in self._recorder.log.events if turn_id is not None else ():
            if not isinstance(event, Custom) or event.kind != STEER_QUEUED or event.turn_id != turn_id:
                continue
            steer = _read(event)
            if steer is not None and not self._machine.is_closed_message(steer.message_id):
                self._machine.queue_steer(steer.message_id)
                self._queue[steer.message_id] = steer


def _read(event: Custom) -> Steer | None:
    """The steer that a record tells of; ``None`` for what somebody else has written under this kind."""
    data = event.data if isinstance(event.data, dict) else {}
    steer_id = data.get("steerId")
    if event.source != "host" or not isinstance(steer_id, str):
        return None
    try:
        return Steer(steer_id, MessageInput.model_validate({"content": data.get("content")}).content)
    except (InvalidInput, ValueError):  # pydantic's ValidationError is a ValueError
        return None
