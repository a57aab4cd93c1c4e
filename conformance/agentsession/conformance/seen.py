"""What readers were given, held against what the record says later: nothing is lost, changed, or numbered twice.

Not for: the rules of the record itself (``engine.py``). Rules carried: ORD-01, ORD-05, ORD-06, PER-02.
May import: ``agentsession.protocol``, ``engine``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentsession.conformance.engine import Break, evidence_of
from agentsession.protocol import Event, is_ephemeral

__all__ = ["Seen"]


class Seen:
    """The events that readers were given, by session and seq."""

    def __init__(self) -> None:
        self._events: dict[str, dict[int, Event]] = {}
        self._said: dict[str, dict[int, str]] = {}
        """What the durable ones of them said when they were given: an event in this process can be changed later."""
        self._killed: set[str] = set()
        self.latest: list[Event] = []
        """What was seen last."""

    def add(self, event: Event) -> None:
        """A reader was given this event.

        Raises:
            Break: its seq is another event's (ORD-01), or a reader was given it before and it said something else
                (ORD-06).
        """
        self.latest = [*self.latest[-5:], event]
        events = self._events.setdefault(event.session_id, {})
        before = events.setdefault(event.seq, event)
        if before.id != event.id:
            raise Break("ORD-01", f"seq {event.seq} was given to two events", evidence_of([before], event))
        if is_ephemeral(event):
            same = before is event or before.to_wire() == event.to_wire()
        else:
            said = event.to_wire_json()
            same = _same(self._said.setdefault(event.session_id, {}).setdefault(event.seq, said), said)
        if not same:
            raise Break(
                "ORD-06",
                f"#{event.seq} says something else to another reader{_differing(before, event)}",
                evidence_of([before], event),
            )

    def compacted(self, session_id: str, gone: int) -> None:
        """The record was compacted up to this seq."""
        events = self._events.get(session_id, {})
        self._events[session_id] = {seq: event for seq, event in events.items() if seq > gone}

    def killed(self, session_id: str) -> None:
        """The executor was killed: what is ephemeral is gone with it, and closings of it cannot be asked for."""
        self._killed.add(session_id)
        events = self._events.get(session_id, {})
        self._events[session_id] = {seq: event for seq, event in events.items() if not is_ephemeral(event)}

    def was_killed(self, session_id: str) -> bool:
        """Whether an executor that had this session was killed."""
        return session_id in self._killed

    def with_record(self, session_id: str, record: Sequence[Event]) -> list[Event]:
        """The record and the ephemeral events that were seen, in order.

        Raises:
            Break: an event that a reader was given is missing (PER-02 after a kill, else ORD-05), says something else
                in the record (ORD-06), or has another's seq there (ORD-01).
        """
        stored = {event.seq: event for event in record}
        seen = self._events.get(session_id, {})
        for seq, event in seen.items():
            again = stored.get(seq)
            if again is None:
                if not is_ephemeral(event):
                    rule = "PER-02" if session_id in self._killed else "ORD-05"
                    raise Break(rule, f"#{seq} was given to a reader and is not in the record", evidence_of([], event))
            elif again.id != event.id:
                raise Break("ORD-01", f"seq {seq} was given to two events", evidence_of([event], again))
            elif not self._says_the_same(event, again):
                raise Break(
                    "ORD-06",
                    f"#{seq} says something else in the record{_differing(event, again)}",
                    evidence_of([event], again),
                )
        return self.merged(session_id, record)

    def _says_the_same(self, event: Event, again: Event) -> bool:
        said = self._said.get(event.session_id, {}).get(event.seq)
        if said is not None:
            return _same(said, again.to_wire_json())
        return again is event or again.to_wire() == event.to_wire()

    def merged(self, session_id: str, record: Sequence[Event]) -> list[Event]:
        """The record and what was seen, in order, without comparing them."""
        events = {**self._events.get(session_id, {}), **{event.seq: event for event in record}}
        return [events[seq] for seq in sorted(events)]


def _differing(one: Event, other: Event) -> str:
    """Which fields of two events say different things, where it shows."""
    said, again = one.to_wire(), other.to_wire()
    names = [name for name in {**said, **again} if said.get(name) != again.get(name)]
    return f": {', '.join(names)}" if names else ""


def _same(one: str, other: str) -> bool:
    """Whether two events say the same, as the JSON of each."""
    return one == other or json.loads(one) == json.loads(other)
