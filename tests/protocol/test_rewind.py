"""What of a record still counts after rewinds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession.protocol import Custom, Event, SessionUpdate, rewind_point, without_rewound

BASE: dict[str, Any] = {"timestamp": "2026-01-01T00:00:00.000Z", "session_id": "s"}


def update(seq: int) -> Event:
    return SessionUpdate(id=f"e{seq}", seq=seq, title=str(seq), source="host", **BASE)


def rewind(seq: int, to: Any, **fields: Any) -> Custom:
    made = Custom(id=f"e{seq}", seq=seq, kind="rewind", data={"to_seq": to}, source="host", **BASE)
    return made.model_copy(update=fields)


def seqs(events: list[Event]) -> list[int]:
    return [event.seq for event in events]


@pytest.mark.rule("PER-06")
def test_what_stands_between_a_point_and_its_rewind_does_not_count() -> None:
    record = [update(1), update(2), update(4), rewind(5, 2), update(6)]
    assert seqs(without_rewound(record)) == [1, 2, 6]


@pytest.mark.rule("PER-06")
def test_a_rewind_over_a_rewind_takes_back_more() -> None:
    record = [update(1), update(2), update(3), rewind(4, 2), update(5), rewind(6, 1), update(7)]
    assert seqs(without_rewound(record)) == [1, 7]
    assert seqs(without_rewound(record[:5])) == [1, 2, 5]
    assert seqs(without_rewound(record[:3])) == [1, 2, 3]


@pytest.mark.parametrize("to", [0, -1, 5, 6, None, "2", True, 2.0, [2]])
def test_what_names_no_earlier_seq_rewinds_nothing(to: Any) -> None:
    assert rewind_point(rewind(5, to)) is None
    assert seqs(without_rewound([update(1), rewind(5, to)])) == [1, 5]


@pytest.mark.parametrize("fields", [{"source": "agent"}, {"stream_id": "s1"}, {"data": None}, {"kind": "plan"}])
def test_an_agent_cannot_rewind_nor_can_an_event_of_a_stream(fields: dict[str, Any]) -> None:
    assert rewind_point(rewind(5, 2, **fields)) is None


@given(st.lists(st.one_of(st.none(), st.integers(1, 30)), max_size=30))
def test_what_counts_is_what_no_later_rewind_that_counts_reaches(steps: list[int | None]) -> None:
    record = [update(seq) if to is None else rewind(seq, to) for seq, to in enumerate(steps, start=1)]
    marks = [(event.seq, point) for event in record if (point := rewind_point(event)) is not None]
    gone = {event.seq for event in record for at, to in marks if to < event.seq < at}
    assert seqs(without_rewound(record)) == [
        event.seq for event in record if event.seq not in gone and rewind_point(event) is None
    ]
