"""What a thread has seen, from its record: the messages of its people, what was asked, and how that was settled.

Not for: what goes out (``_out_known.py``). Rules carried: PER-03. May import: ``_in_parts``,
``_out_below``, ``_out_wire``, ``protocol``.

Folded event by event, so that a run never reads the record again. What was rewound stays known: a client that still
shows it must not run it a second time.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from agentsession.host.agui._in_parts import fingerprint
from agentsession.host.agui._out_below import told_below
from agentsession.host.agui._out_wire import milliseconds
from agentsession.protocol import (
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Message,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    args_digest,
)

__all__ = ["META", "Mark", "Memory", "Settled"]

META: Final = "agui"
"""The key in a message's ``_meta`` under which its AG-UI ids are kept."""


class Settled(NamedTuple):
    """How a request ended: ``word`` is granted, denied, a question's action, or the status of a tool's response."""

    word: str
    digest: str | None = None
    """Of the arguments that a person put in the place of the asked ones."""
    content: Any = None
    """What a question was answered with, secrets taken out."""


class Mark(NamedTuple):
    """A moment: the last event of the record then, and its time, which those of sub-agents' records have too."""

    seq: int
    ms: int


class Memory:
    """What one thread has seen."""

    def __init__(self) -> None:
        self.seq = 0
        """The last event that was folded."""
        self._at = ""
        self.texts: dict[str, int] = {}
        """The fingerprint of each message of a person, by its id at the client."""
        self.asked: dict[str, str] = {}
        """What each request wants, a sub-agent's too: ``grant``, ``result``, or the kind of the question."""
        self.settled: dict[str, Settled] = {}
        self.last_end: StreamEnd | None = None
        """The end of the last stream."""

    def add(self, event: Event) -> None:
        """Fold the next event. One that was folded before changes nothing."""
        self._at = event.timestamp
        if type(event) is ToolUpdate:  # what a sub-agent did has no seq in this record
            for child in told_below(event):
                self._request(child)
        if event.seq <= self.seq:
            return
        self.seq = event.seq
        if type(event) is Message and event.partial:  # by far the most: nothing is remembered of one
            return
        match event:
            case Message(partial=False, role="user" | "developer"):
                self._message(event)
            case StreamEnd():
                self.last_end = event
            case _:
                self._request(event)

    @property
    def mark(self) -> Mark:
        """How far it has come."""
        return Mark(self.seq, milliseconds(self._at) or 0)

    def _request(self, event: Event) -> None:
        match event:
            case ToolRequest(partial=False):
                self.asked[event.request_id] = "grant" if event.needs == "grant" else "result"
            case ElicitationRequest():
                self.asked[event.request_id] = event.kind
            case ToolDecision():
                digest = args_digest(event.args) if event.args is not None else None
                self.settled[event.request_id] = Settled(event.decision, digest)
            case ToolResponse():
                self.settled.setdefault(event.request_id, Settled(event.status))
            case ElicitationResponse():
                self.settled[event.request_id] = Settled(event.action, content=event.content)
            case _:
                pass

    def _message(self, event: Message) -> None:
        given = (event.meta or {}).get(META)
        several = given.get("messages") if isinstance(given, dict) else None
        self.texts[event.message_id] = fingerprint(event.content)
        if isinstance(several, list):
            begin = 0
            for item in several:
                end = begin + item["parts"]
                self.texts[item["id"]] = fingerprint(event.content[begin:end])
                begin = end
