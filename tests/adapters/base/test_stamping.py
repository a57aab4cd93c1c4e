"""Events that are made without validating them are those that validating makes."""

from __future__ import annotations

from hypothesis import given

from agentsession.adapters.base import unvalidated
from agentsession.conformance.strategies import events
from agentsession.protocol import Event, ToolResponse


@given(events())
def test_an_event_made_without_validation_is_the_one_that_validation_makes(event: Event) -> None:
    kind = type(event)
    fields = {name: getattr(event, name) for name in event.model_fields_set if name in kind.model_fields}
    made, wanted = unvalidated(kind, fields), kind(**fields)
    assert made == wanted
    assert made.model_fields_set == wanted.model_fields_set
    assert made.to_wire_json() == wanted.to_wire_json()


def test_a_default_list_belongs_to_one_event_alone() -> None:
    first, second = (unvalidated(ToolResponse, {"request_id": name, "name": "look"}) for name in "ab")
    assert first.content == []
    assert first.content is not second.content
