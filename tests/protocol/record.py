"""Hand-written records for tests of the state machine: each event is stamped as the next, fed, and accepted or not."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    AgentStart,
    ElicitationRequest,
    Event,
    Initialize,
    Message,
    ProtocolViolation,
    SessionMachine,
    StreamEnd,
    Text,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    args_digest,
)

__all__ = [
    "DESCRIPTOR",
    "GRANTED",
    "Record",
    "confirmation",
    "delta",
    "question",
    "request",
    "response",
    "running",
    "said",
    "waiting",
    "whole",
]

DESCRIPTOR = AgentDescriptor(name="coder", executor="test")
GRANTED = ToolDecision(
    request_id="r-1", decision="granted", args_digest=args_digest({"path": "a.py"}), source="host", by="user"
)


class Record:
    """A machine and the events that it accepted; ``stream`` and ``turn`` are put on the next event."""

    def __init__(self, machine: SessionMachine | None = None) -> None:
        self.machine = machine or SessionMachine()
        self.events: list[Event] = []
        self.stream: str | None = None
        self.turn: str | None = None

    def stamp(self, event: Event, **stamps: Any) -> Event:
        """``event`` as the next of the record, some of its stamps perhaps wrong on purpose."""
        seq = self.machine.seq + 1
        given = {
            "id": f"e{seq}",
            "seq": seq,
            "timestamp": "2026-01-31T12:00:00.000Z",
            "session_id": "s-1",
            "stream_id": self.stream,
            "turn_id": self.turn,
        }
        return event.model_copy(update={**given, **stamps})

    def add(self, *events: Event, **stamps: Any) -> Record:
        """Feed events that must be accepted."""
        for event in events:
            made = self.stamp(event, **stamps)
            self.machine.feed(made)
            self.events.append(made)
        return self

    def refuse(self, rule: str, event: Event, **stamps: Any) -> ProtocolViolation:
        """Feed an event that must be refused with exactly this rule and change nothing."""
        before, ids = self.machine.snapshot(), copy.deepcopy(self.machine._ids)
        with pytest.raises(ProtocolViolation) as caught:
            self.machine.feed(self.stamp(event, **stamps))
        assert caught.value.rule == rule
        assert self.machine.snapshot() == before
        assert self.machine._ids == ids
        assert caught.value.expected
        return caught.value

    # the usual openings

    def begin(self) -> Record:
        """The first event of a session."""
        return self.add(Initialize(protocol_version="1.0", descriptor=DESCRIPTOR))

    def run(self, number: int = 1) -> Record:
        """A new turn with its first stream, the user's message recorded and the agent at work."""
        self.stream, self.turn = f"t-{number}", f"u-{number}"
        return self.add(said("user", f"m-user-{number}")).add(AgentStart(agent_id="coder"))

    def stop(self) -> Record:
        """The agent is done, and nothing else is."""
        return self.add(AgentEnd(agent_id="coder"))

    def end(self, reason: str = "completed", *, data: Mapping[str, Any] | None = None) -> Record:
        """The stream ends for good."""
        self.add(StreamEnd(reason=reason, data=dict(data) if data else None))
        self.stream = self.turn = None
        return self

    def pause(self) -> Record:
        """The agent stops and the stream ends with what is pending."""
        self.add(AgentEnd(agent_id="coder", reason="input_required"))
        self.add(StreamEnd(reason="input_required", pending=self.machine.pending))
        self.stream = None
        return self

    def go_on(self, number: int) -> Record:
        """The next stream of the waiting turn."""
        self.stream = f"t-{number}"
        return self.add(AgentStart(agent_id="coder", resumed=True))


def running() -> Record:
    """A session in its first turn, the agent at work."""
    return Record().begin().run()


def waiting(*requests: Event) -> Record:
    """A turn that waits for the host after its first stream."""
    return running().add(*(requests or (request(),))).pause()


def said(role: str, message_id: str, text: str = "hello") -> Message:
    """A whole message."""
    return Message(
        message_id=message_id, role=role, content=[Text(text=text)], source="user" if role == "user" else "agent"
    )


def delta(message_id: str, text: str, **fields: Any) -> Message:
    """One delta of a message."""
    return Message(message_id=message_id, content=[Text(text=text)], partial=True, **fields)


def whole(message_id: str, text: str, **fields: Any) -> Message:
    """The closing event of a message."""
    return Message(message_id=message_id, content=[Text(text=text)], **fields)


def request(request_id: str = "r-1", needs: str = "result", **fields: Any) -> ToolRequest:
    """A whole tool request."""
    given: dict[str, Any] = {"name": "read", "args": {"path": "a.py"}, **fields}
    return ToolRequest(request_id=request_id, needs=needs, **given)


def response(request_id: str = "r-1", status: str = "completed", source: str = "host", **fields: Any) -> ToolResponse:
    """The response to a tool request."""
    return ToolResponse(request_id=request_id, name="read", status=status, source=source, **fields)


def question(request_id: str = "q-1", kind: str = "clarification", **fields: Any) -> ElicitationRequest:
    """A question to the person."""
    return ElicitationRequest(request_id=request_id, kind=kind, message="Well?", **fields)


def confirmation(request_id: str = "q-1", tool: str = "r-1", **fields: Any) -> ElicitationRequest:
    """A question whether a tool may run."""
    return question(request_id, "tool_confirmation", tool_request_id=tool, **fields)
