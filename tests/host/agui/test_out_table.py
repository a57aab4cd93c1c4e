"""The table of the mapping says what the mapping does."""

from __future__ import annotations

from ag_ui.core import EventType

from agentsession.host.agui._out_table import MAPPING, UNUSED, interrupts, outcomes
from agentsession.protocol import EVENT_TYPES


def test_the_table_has_each_of_our_events() -> None:
    assert {row.event for row in MAPPING if row.event[0] != "("} == EVENT_TYPES


def test_each_event_of_ag_ui_is_in_the_table_or_said_to_be_unused() -> None:
    sent = {name for row in MAPPING for name in row.becomes}
    assert sent.isdisjoint(UNUSED)
    assert sent | set(UNUSED) == set(EventType.__members__)


def test_each_end_and_each_question_is_told() -> None:
    assert dict(outcomes())["aborted"] == "`cancelled`"
    assert dict(outcomes())["max_turns"] == "`RUN_ERROR`, code `max_turns`"
    assert [row[0] for row in interrupts()][:2] == ["a call that needs a grant", "`tool_confirmation`"]
