"""Ten thousand ADK Events as no ADK would write them: each becomes events that the schema and the machine accept.

The seed is fixed; ``AGENTSESSION_SEED=2`` tries others. Hypothesis also draws values of the modules that are loaded, so
that a seed is not quite the same among other tests.
"""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from typing import Any

from google.adk.events.event import Event as AdkEvent
from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.adapters.adk.make import schema_validator
from tests.adapters.adk.strategies import histories

from agentsession.adapters.adk import Translator, map_events
from agentsession.protocol import (
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Message,
    SessionMachine,
    ToolRequest,
    ToolResponse,
    event_schema,
    parse_event,
)

EVENTS = 10_000
SEED = int(os.environ.get("AGENTSESSION_SEED", "20131"))
_HISTORIES = 290
_PIECES = 20


@functools.cache
def validator(kind: type[Event]) -> Any:
    """The published schema's branch of one event type: what fits it fits the whole, and is validated much sooner."""
    schema = event_schema()
    branch = f"#/$defs/{kind.__name__}"
    assert {"$ref": branch} in schema["$defs"]["AgentEvent"]["anyOf"]
    return schema_validator({"$schema": schema["$schema"], "$ref": branch, "$defs": schema["$defs"]})


STAMPS = {"id": "e", "seq": 1, "sessionId": "s", "timestamp": "2026-01-31T12:00:00.000Z"}


@functools.lru_cache(maxsize=500)
def assert_fits(kind: type[Event], payload: str) -> None:
    """What an event says fits the published schema. Remembered, for record and translation mostly say the same."""
    validator(kind).validate(STAMPS | json.loads(payload))


def check(event: Event) -> None:
    """The event is JSON, comes back as it was, and fits the published schema."""
    text = event.to_wire_json()
    assert parse_event(text.encode("utf-8")).to_wire_json() == text
    said = {key: value for key, value in event.to_wire().items() if key not in (*STAMPS, "streamId", "turnId")}
    assert_fits(type(event), json.dumps(said))


def stamped(event: Event, number: int) -> Event:
    stamp = {"id": f"e{number}", "seq": number, "session_id": "s", "timestamp": STAMPS["timestamp"]}
    return event.model_copy(update=stamp)


def assert_nothing_twice(events: list[Event]) -> None:
    """No id of a request or message is given twice, nothing is answered twice, and only what was asked is answered."""
    whole = [event for event in events if not getattr(event, "partial", False)]
    asked = [event.request_id for event in whole if isinstance(event, (ToolRequest, ElicitationRequest))]
    answered = [event.request_id for event in whole if isinstance(event, (ToolResponse, ElicitationResponse))]
    messages = [event.message_id for event in whole if isinstance(event, Message)]
    for ids in (asked, answered, messages):
        assert [key for key, count in Counter(ids).items() if count > 1] == []
    assert set(answered) <= set(asked)


def assert_record(history: list[AdkEvent]) -> None:
    """The whole record of the history passes the machine, which folds to its end, and each event fits the schema."""
    machine = SessionMachine()
    made = list(map_events(history, session_id="s-1"))
    for event in made:
        machine.feed(event)
        check(event)
        if isinstance(event, Custom) and event.kind == "adk:unplaced":
            # A history may say that a call was made before it was confirmed, and then nothing can be done about it.
            assert isinstance(event.data, dict)
            assert event.data["rule"] == "HITL-01", event
    assert machine.stream_id is None
    assert_nothing_twice(made)


def assert_translation(history: list[AdkEvent]) -> None:
    """The translator alone, as a live session drives it: whatever comes, every payload is valid."""
    translator = Translator()
    made = [event for adk in history for event in translator.feed(adk)] + translator.close_messages()
    for number, event in enumerate(made, start=1):
        check(stamped(event, number))
    assert_nothing_twice(made)


def test_ten_thousand_events_of_any_kind_are_valid_both_ways() -> None:
    fed = 0

    @seed(SEED)
    @settings(
        max_examples=_HISTORIES,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(histories(_PIECES, _PIECES))
    def walk(history: list[AdkEvent]) -> None:
        nonlocal fed
        fed += len(history)
        assert_record(history)
        assert_translation(history)

    walk()
    assert fed >= EVENTS, f"only {fed} events were tried"
