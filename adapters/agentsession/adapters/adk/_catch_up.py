"""What one of the two halves of a session knows and the other does not, because a process died between two writes.

Not for: calls that are open in ADK's session (``_sealing.py``), or places (``_history.py``).
Rules carried: PER-01, PER-02, PER-04. May import: ``_history``, the pure modules beside it, protocol, google.adk.

The record is written first of what a host decides, ADK's session of what its agents do. So a killed process may leave a
message of the person's in the record alone, and a result or an answer of the agent's in ADK's session alone. A load
gives the record what it lacks (:func:`untold`), and ADK is told the message before its next run (:class:`Heard`). The
same holds for a message whose turn ended before ADK had it, without anybody dying.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from google.adk.events.event import Event as AdkEvent

from agentsession.adapters.adk._history import places
from agentsession.adapters.adk._translate import Translator
from agentsession.protocol import (
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Message,
    SessionMachine,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    without_rewound,
)

__all__ = ["MESSAGE", "Heard", "untold"]

MESSAGE: Final = "agentsession_message"
"""The key in an ADK event's ``custom_metadata`` under which the id of the message stands that it tells, where that is
not the message that its run began with: a steer, or what ADK had not heard of an earlier turn."""


class Heard:
    """What of a person's messages is in ADK's session."""

    def __init__(self) -> None:
        self._up_to = 0
        """The seq up to which everything was heard that could be: a run began with a later message."""
        self._ids: set[str] = set()
        self._given_up: set[str] = set()
        """Turns in which a hook of the host's kept what was said from the agent, or was cancelled."""

    def note(self, event: AdkEvent, place: int) -> None:
        """This event is in ADK's session, at that place of the record."""
        parts = event.content.parts if event.author == "user" and event.content is not None else None
        if not parts or all(part.function_response is not None for part in parts):
            return
        message_id = (event.custom_metadata or {}).get(MESSAGE)
        if isinstance(message_id, str):
            self._ids.add(message_id)
        else:
            self._up_to = max(self._up_to, place)

    def give_up(self, turn_id: str | None) -> None:
        """ADK shall not hear what was said in this turn and it has not heard."""
        if turn_id is not None:
            self._given_up.add(turn_id)

    def missed(self, record: Sequence[Event], turn_id: str) -> list[Message]:
        """The messages before this turn that ADK should have heard, oldest first; none that a hook kept from it."""
        recent = [event for event in _since(record, self._up_to) if event.turn_id != turn_id]
        if not any(map(self._is_missed, recent)):
            return []
        kept = {event.turn_id: event.seq for event in recent if _keeps_message(event)}
        counting = {event.seq for event in without_rewound(record)}
        return [
            event
            for event in recent
            if isinstance(event, Message)
            and self._is_missed(event)
            and event.seq in counting
            and event.seq > kept.get(event.turn_id, 0)
            and event.turn_id not in self._given_up
        ]

    def _is_missed(self, event: Event) -> bool:
        return (
            isinstance(event, Message)
            and event.source == "user"
            and not event.partial
            and event.message_id not in self._ids
        )


def _since(record: Sequence[Event], seq: int) -> list[Event]:
    first = len(record)
    while first and record[first - 1].seq > seq:
        first -= 1
    return list(record[first:])


def _keeps_message(event: Event) -> bool:
    """Whether a hook of the host's kept something that the person said from the agent."""
    if not isinstance(event, Custom) or event.kind != "hook" or not isinstance(event.data, dict):
        return False
    return event.data.get("point") == "on_user_message" and event.data.get("action") == "block"


def untold(
    events: Sequence[AdkEvent], record: Sequence[Event], machine: SessionMachine, translator: Translator
) -> list[Event]:
    """What ADK's session tells of the stream that the record is cut off in, and the record does not.

    Results of calls that had begun, and what agents said, with what belongs to it. No request: one that the record does
    not have was shown to nobody, so nothing of it ran. ``translator`` knows the calls of the record.
    """
    first = next((event.seq for event in record if event.stream_id == machine.stream_id), None)
    if first is None:
        return []
    told = {_key(event) for event in record}
    made: list[Event] = []
    for event, place in zip(events, places(events, record), strict=True):
        if place < first or event.author == "user":
            continue
        for item in translator.feed(event):
            if isinstance(item, ToolResponse):
                made += _result(item, machine)
            elif not isinstance(item, _OF_A_HOST) and _key(item) not in told:
                made.append(item)
    return made


_OF_A_HOST: Final = (ToolRequest, ToolUpdate, ElicitationRequest, ElicitationResponse)


def _result(event: ToolResponse, machine: SessionMachine) -> Iterable[ToolResponse]:
    request = machine.requests.get(event.request_id)
    if request is None or request.status == "waiting":
        return
    declined = request.confirmation not in (None, "accept")
    yield event.model_copy(update={"status": "denied"}) if declined and event.is_error else event


def _key(event: Event) -> tuple[object, ...]:
    """What tells whether two events say the same of one event of ADK's."""
    marks = (event.meta or {}).get("adk")
    event_id = marks.get("eventId") if isinstance(marks, dict) else None
    return (event_id, event.type, event.kind if isinstance(event, Custom) else None)
