"""Snapshots of a session between two turns, so that a long one loads without reading all of its record.

Not for: the state machine's knowledge alone (``MachineSnapshot``), or when one is made (``_recording.py``).
Rules carried: PER-01, PER-03. May import: ``agentsession.protocol``.

A snapshot tells what a stored record tells up to the end of a turn. The ids that are used up make up most of it, so
each holds only those that came since the one before: making one costs what came since, not what the session has.
It is never trusted over the record. It names the event that it was taken at, and how many events there are up to it;
one that cannot be read or does not fit is left out with all that go on from it, and the record is folded from there.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self

from agentsession.protocol import AgentSessionError, Event, MachineSnapshot, SessionMachine, StoredSnapshot, parse_json

__all__ = ["Known", "Link", "Marks", "known_of", "link_at", "place_of", "read_chain"]

_VERSION: Final = 1


@dataclasses.dataclass(slots=True)
class Known:
    """What a session keeps of its events beside the state machine; what grows without end keeps its order."""

    events: int = 0
    """How many durable events the record has."""
    turns: int = 0
    last_turn: str | None = None
    permission_mode: str | None = None
    """What the last update that changed it gave."""
    state_values: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The session's state, as far as updates and state deltas tell."""
    idempotency: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    """Idempotency key → turn id, and the seq before its first event."""
    ends: dict[str, tuple[str | None, int]] = dataclasses.field(default_factory=dict)
    """Stream id → its turn, and the seq of its end."""
    streams: dict[str, str] = dataclasses.field(default_factory=dict)
    """Turn id → its last stream that has ended."""

    def note_end(self, stream_id: str, turn_id: str | None, seq: int) -> None:
        """A stream has ended."""
        self.ends[stream_id] = (turn_id, seq)
        if turn_id is not None:
            self.streams[turn_id] = stream_id


@dataclasses.dataclass(slots=True)
class Marks:
    """How much of what only grows is in the snapshots so far."""

    seq: int = 0
    """The seq of the last snapshot."""
    events: int = 0
    used_up: tuple[int, int, int, int] = (0, 0, 0, 0)
    keys: int = 0
    ends: int = 0
    is_state_new: bool = True
    """The state has changed since."""

    @classmethod
    def of(cls, seq: int, machine: SessionMachine, known: Known) -> Self:
        """All that is known now is in the snapshot at ``seq``."""
        return cls(seq, known.events, machine.used_up(), len(known.idempotency), len(known.ends), False)


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A snapshot that was read, with the ids since the one before it."""

    seq: int
    events: int
    place: str
    machine: MachineSnapshot
    known: Mapping[str, Any]


def place_of(event: Event) -> str:
    """What tells the event at a snapshot's seq from another one that a record could have there."""
    return f"{event.type} {event.id} {event.stream_id} {event.timestamp}"


def link_at(last: Event, machine: SessionMachine, known: Known, marks: Marks) -> StoredSnapshot:
    """The snapshot to be stored at ``last``, the end of a turn; it goes on from the one that ``marks`` tell of."""
    made = machine.snapshot(ephemeral=False, since=marks.used_up).model_copy(update={"seq": last.seq})
    told: dict[str, Any] = {
        "turns": known.turns,
        "lastTurn": known.last_turn,
        "permissionMode": known.permission_mode,
        "idempotency": _newest(known.idempotency, marks.keys),
        "ends": _newest(known.ends, marks.ends),
    }
    if marks.is_state_new:
        told["state"] = known.state_values
    body = {"version": _VERSION, "place": place_of(last), "events": known.events, "known": told}
    return StoredSnapshot(last.seq, marks.seq, json.dumps(body | {"machine": made.to_wire()}, separators=(",", ":")))


def _newest(values: dict[str, tuple[str, int]] | dict[str, tuple[str | None, int]], past: int) -> list[list[Any]]:
    """What was added behind the first ``past``, in its order; without going over those."""
    names = list(itertools.islice(reversed(values), len(values) - past))
    return [[name, *values[name]] for name in reversed(names)]


def read_chain(stored: Sequence[StoredSnapshot], fits: Callable[[Link], bool]) -> list[Link]:
    """The links that can be used, oldest first: up to the first that cannot be read, or does not go on from the last.

    ``fits`` is asked about the last one, and then about those before it, until one fits the record.
    """
    links: list[Link] = []
    for item in stored:
        link = _read(item) if item.after == (links[-1].seq if links else 0) < item.seq else None
        if link is None or (links and link.events <= links[-1].events):
            break
        links.append(link)
    while links and not fits(links[-1]):
        links.pop()
    return links


def _read(item: StoredSnapshot) -> Link | None:
    try:
        body = parse_json(item.text)
        machine = MachineSnapshot.model_validate(body["machine"])
        if body["version"] != _VERSION or machine.seq != item.seq or machine.state != "idle" or machine.requests:
            return None
        link = Link(item.seq, int(body["events"]), str(body["place"]), machine, dict(body["known"]))
        known_of([link])
    except (AgentSessionError, ValueError, TypeError, KeyError, AttributeError):  # pydantic's error is a ValueError
        return None
    return link


def known_of(links: Iterable[Link]) -> Known:
    """What the links tell beside the state machine."""
    known = Known()
    for link in links:
        told = link.known
        known.events = link.events
        known.turns = int(told["turns"])
        known.last_turn = _text_or_none(told["lastTurn"])
        known.permission_mode = _text_or_none(told["permissionMode"])
        if "state" in told:
            known.state_values = dict(told["state"])
        for key, turn_id, before in told["idempotency"]:
            known.idempotency.setdefault(str(key), (str(turn_id), int(before)))
        for stream_id, turn_id, seq in told["ends"]:
            known.note_end(str(stream_id), _text_or_none(turn_id), int(seq))
    return known


def _text_or_none(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError("neither a text nor null")
    return value
