"""Any record goes out and comes in again, and any event can be redacted."""

from __future__ import annotations

import json
from typing import Any

import anyio
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from agentsession.conformance.strategies import events, records
from agentsession.host.records import Redactor, export_record, import_record
from agentsession.protocol import (
    AgentSessionError,
    Event,
    InvalidInput,
    MemoryRecordStore,
    SessionMachine,
    dump_event,
    is_ephemeral,
    parse_event,
)

SECRET = "hunter2-very-secret"


def with_secrets(value: Any) -> Any:
    """``value`` with a secret behind every text that stands where people, models and tools speak."""
    if isinstance(value, str):
        return f"{value} {SECRET}"
    if isinstance(value, list):
        return [with_secrets(item) for item in value]
    if isinstance(value, dict):
        return {with_secrets(key): with_secrets(item) for key, item in value.items()}
    return value


@given(records())
@settings(max_examples=40)
def test_any_record_is_imported_as_it_was_but_for_what_waited(record: list[Event]) -> None:
    durable = [event for event in record if not is_ephemeral(event)]

    async def there_and_back() -> None:
        store = MemoryRecordStore()
        try:
            made = await import_record(store, [dump_event(event) for event in record], agent="a", session_id="copy")
        except InvalidInput as error:
            assert not durable, error  # noqa: PT017 - the strategy draws what the contract allows: nothing else is refused
            return
        copied = await store.read(made.key)
        ours = [event.model_copy(update={"session_id": "copy"}) for event in durable]
        assert copied[: len(ours)] == ours
        assert len(copied) == len(ours) + (len(made.settled) + 1 if made.settled else 0)
        machine = SessionMachine.fold(copied)
        assert machine.state != "input_required"
        lines = [line async for line in export_record(store, made.key)]
        assert lines == [dump_event(event) for event in copied]
        again = await import_record(store, lines, agent="a", session_id="again")
        assert again.settled == ()

    anyio.run(there_and_back)


@given(records())
@settings(max_examples=40)
def test_a_redacted_record_folds_as_the_whole_one(record: list[Event]) -> None:
    redactor = Redactor(environ={}, names=["a", "x", "text"])
    redacted = [redactor(event) for event in record]
    whole, told = (SessionMachine.fold(items).snapshot() for items in (record, redacted))
    assert (told.state, told.seq, told.resolved, told.ended_turns) == (
        whole.state,
        whole.seq,
        whole.resolved,
        whole.ended_turns,
    )


@given(events(), st.sampled_from(["args", "data", "content", "message", "title", "stateDelta", "config", "context"]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
def test_no_known_secret_is_left_in_what_is_said(event: Event, field: str) -> None:
    wire = json.loads(dump_event(event))
    assume(isinstance(wire.get(field), (str, dict)))
    try:
        planted = parse_event({**wire, field: with_secrets(wire[field])})
    except AgentSessionError:
        reject()
    assert SECRET not in dump_event(Redactor(environ={}, values=[SECRET])(planted))
