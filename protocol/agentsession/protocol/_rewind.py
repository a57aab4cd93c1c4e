"""Rewinds: which events of a record still count.

Not for: rewinding a session (``AgentExecutor.rewind``), or the state machine: what was rewound keeps its ids and seqs.
Rules carried: PER-03, PER-06. May import: ``_events``.

A record is append-only. A rewind is one durable event in it, ``custom`` of the kind ``rewind`` whose data names the seq
``to_seq``: what has a later seq and stands before it counts no more, also other rewinds. Whoever folds a record to
show a conversation, to sum its usage or to find its state reads :func:`without_rewound` of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentsession.protocol._events import Custom, Event

__all__ = ["REWIND", "rewind_point", "without_rewound"]

REWIND = "rewind"
"""The kind of the ``custom`` event that rewinds a record."""


def rewind_point(event: Event) -> int | None:
    """The seq that ``event`` rewinds its record to; ``None`` for an event that is no rewind.

    An agent cannot rewind: what it says under this kind is only shown. Nor can an event inside a stream, or one whose
    ``to_seq`` is no seq before it.
    """
    if not isinstance(event, Custom) or event.kind != REWIND or event.source == "agent" or event.stream_id is not None:
        return None
    to = event.data.get("to_seq") if isinstance(event.data, dict) else None
    if not isinstance(to, int) or isinstance(to, bool) or not 0 < to < event.seq:
        return None
    return to


def without_rewound(record: Iterable[Event]) -> list[Event]:
    """The events of ``record`` that count, in their order: without those that were rewound, and without the rewinds.

    ``record`` is a whole record, or the beginning of one: a rewind that is not in it has not happened.
    """
    kept: list[Event] = []
    for event in record:
        to = rewind_point(event)
        if to is None:
            kept.append(event)
            continue
        while kept and kept[-1].seq > to:
            kept.pop()
    return kept
