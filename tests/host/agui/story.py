"""A record told event by event, stamped as a session stamps it and checked by the state machine: only legal ones are.

::

    told = Story()
    told.turn("hi")
    told.say("m-1", "Hel", "lo")
    told.end()
    out = told.run()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tests.host.agui.streams import check

from agentsession.host.agui import Known, RunMapper
from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    AgentStart,
    ContentPart,
    Event,
    Initialize,
    Message,
    SessionMachine,
    StreamEnd,
    Text,
    ToolRequest,
    ToolResponse,
    merge_parts,
)

__all__ = ["Story"]

E = TypeVar("E", bound=Event)


class Story:
    """See the module. ``events`` is the record; ``now``: the clock, in milliseconds."""

    def __init__(self, descriptor: AgentDescriptor | None = None) -> None:
        self.events: list[Event] = []
        self.now = 0
        self._machine = SessionMachine()
        self._stream: str | None = None
        self._turn: str | None = None
        self._begun = 0
        """Events that earlier runs covered."""
        self.add(
            Initialize, protocol_version="1.0", descriptor=descriptor or AgentDescriptor(name="root", executor="x")
        )

    # -- telling -----------------------------------------------------------------------------------------------------

    def add(self, cls: type[E], **fields: Any) -> E:
        """The next event."""
        seq = len(self.events) + 1
        minutes, ms = divmod(self.now, 60_000)
        place = {"stream_id": self._stream, "turn_id": self._turn}
        stamps: dict[str, Any] = {
            "id": f"e-{seq}",
            "seq": seq,
            "timestamp": f"2026-01-31T12:{minutes:02}:{ms // 1000:02}.{ms % 1000:03}Z",
            "session_id": "s-1",
            **{name: item for name, item in place.items() if item is not None},
        }
        event = cls(**{**stamps, **fields})
        self._machine.feed(event)
        self.events.append(event)
        return event

    def turn(self, text: str = "hi", message_id: str | None = None, agent: str | None = "root") -> None:
        """A turn begins: its stream, the user's message, the root agent."""
        self._turn = f"turn-{len(self.events)}"
        self.resume(None)
        message_id = message_id or f"u-{len(self.events)}"
        self.add(Message, message_id=message_id, role="user", content=[Text(text=text)], source="user")
        if agent is not None:
            self.add(AgentStart, agent_id=agent)

    def resume(self, agent: str | None = "root") -> None:
        """The turn goes on in its next stream."""
        self._stream = f"stream-{len(self.events)}"
        if agent is not None:
            self.add(AgentStart, agent_id=agent, resumed=True)

    def delta(self, message_id: str, part: ContentPart, index: int, **fields: Any) -> None:
        """One delta."""
        self.add(Message, message_id=message_id, content=[part], partial=True, index=index, **fields)

    def say(self, message_id: str, *pieces: str | ContentPart, **closing: Any) -> None:
        """A message in deltas, and its closing event."""
        parts = [Text(text=piece) if isinstance(piece, str) else piece for piece in pieces]
        place = {name: closing[name] for name in ("thread_id", "role", "source") if name in closing}
        for index, part in enumerate(parts):
            self.delta(message_id, part, index, **place)
        self.add(Message, **{"message_id": message_id, "content": merge_parts(parts), **closing})

    def call(self, request_id: str, name: str = "run", needs: str = "result", **fields: Any) -> None:
        """A whole request."""
        self.add(ToolRequest, request_id=request_id, name=name, needs=needs, **fields)

    def answer(self, request_id: str, name: str = "run", **fields: Any) -> None:
        """A response."""
        self.add(ToolResponse, **{"request_id": request_id, "name": name, "source": "host", **fields})

    def end(self, reason: str = "completed", agents: Sequence[str] = ("root",), **fields: Any) -> None:
        """The stream's end, with that of its agents on the main thread."""
        closing = reason if reason in ("input_required", "failed", "aborted") else "completed"
        for agent in agents:
            self.add(AgentEnd, agent_id=agent, reason=closing)
        pending = list(self._machine.pending) if reason == "input_required" else []
        self.add(StreamEnd, reason=reason, pending=pending, source="host", **fields)
        self._stream = None
        if reason != "input_required":
            self._turn = None

    def unseen(self) -> None:
        """What was told since the last run belongs to none."""
        self._begun = len(self.events)

    # -- reading -----------------------------------------------------------------------------------------------------

    def run(self, *, is_resumed: bool = False, begin: dict[str, Any] | None = None, **fields: Any) -> list[Wire]:
        """The run of what was told since the last one; all three opinions agree to it."""
        mapper, out = self.open(begin=begin, **fields)
        out += mapper.finish(history=self.events)
        check(out, is_resumed=is_resumed)
        return out

    def open(self, *, begin: dict[str, Any] | None = None, **fields: Any) -> tuple[RunMapper, list[Wire]]:
        """The same, without its end."""
        mine = [event.message_id for event in self.events[self._begun :] if isinstance(event, Message)]
        first = [item for item in mine if item.startswith("u-")][:1]
        given: dict[str, Any] = {"known": Known.of(self.events[: self._begun]), "input_message_ids": first, **fields}
        mapper = RunMapper(thread_id="t", run_id="r", **given)
        out = mapper.start(**(begin or {}))
        for event in self.events[self._begun :]:
            out += mapper.feed(event)
        self._begun = len(self.events)
        return mapper, out
