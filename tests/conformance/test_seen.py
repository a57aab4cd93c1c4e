"""What readers were given is held against what others are given and what the record says."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession.conformance.engine import Break
from agentsession.conformance.seen import Seen
from agentsession.protocol import ContentPart, Event, Message, Text, parse_event

FIELDS: dict[str, Any] = {"id": "e1", "seq": 1, "timestamp": "2026-01-31T12:00:00.000Z", "session_id": "s-1"}


def message(text: str = "hello", *, partial: bool = False, **more: Any) -> Event:
    content: list[ContentPart] = [Text(text=text)]
    return Message(message_id="m1", content=content, partial=partial, source="user", **{**FIELDS, **more})


@pytest.mark.parametrize("partial", [False, True])
def test_two_readers_are_given_the_same(partial: bool) -> None:
    seen = Seen()
    given = message(partial=partial)
    seen.add(given)
    seen.add(parse_event(given.to_wire_json()))
    with pytest.raises(Break) as broken:
        seen.add(message("hullo", partial=partial))
    assert broken.value.message == "#1 says something else to another reader: content"
    assert broken.value.rule == "ORD-06"


def test_a_seq_is_given_once() -> None:
    seen = Seen()
    seen.add(message())
    with pytest.raises(Break) as broken:
        seen.add(message(id="e2"))
    assert broken.value.rule == "ORD-01"


def test_an_event_that_was_changed_after_it_was_given_is_found() -> None:
    seen = Seen()
    given = message(meta={"a": 1})
    seen.add(given)
    assert seen.with_record("s-1", [given]) == [given]
    assert given.meta is not None
    given.meta["a"] = 2
    with pytest.raises(Break) as broken:
        seen.with_record("s-1", [given])
    assert broken.value.rule == "ORD-06"


def test_the_order_of_an_events_fields_says_nothing() -> None:
    seen = Seen()
    given = message(meta={"a": 1, "b": 2})
    seen.add(given)
    again = message(meta={"b": 2, "a": 1})
    seen.add(again)
    assert seen.with_record("s-1", [again]) == [again]
