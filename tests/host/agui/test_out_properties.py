"""Every record that the contract allows is a stream that AG-UI allows."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from tests.host.agui.streams import Client, check, check_models

from agentsession.conformance.strategies import events, records
from agentsession.host.agui import Known, RunMapper, messages_snapshot
from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import Event, StreamEnd

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def runs_of(record: list[Event]) -> list[list[Wire]]:
    """A run for each turn of the record, whatever its streams; the last one as if the process had died in it."""
    known = Known()
    found: list[list[Wire]] = []
    seen: list[Event] = []
    mapper: RunMapper | None = None
    for event in record:
        seen.append(event)
        if event.stream_id is None:
            known.note(event)
            continue
        if mapper is None:
            mapper = RunMapper(thread_id="t", run_id=f"r{len(found)}", known=known)
            found.append(mapper.start(client_state=known.seen_state))
        found[-1] += mapper.feed(event)
        if isinstance(event, StreamEnd):
            found[-1] += mapper.finish(history=seen)
            mapper = None
    if mapper is not None:
        found[-1] += mapper.fail("lost", "the process died")
    return found


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(records(max_steps=60))
def test_each_stream_of_a_legal_record_is_a_run_that_clients_accept(record: list[Event]) -> None:
    client = Client()
    for number, run in enumerate(runs_of(record)):
        check(run, is_resumed=number > 0, client=client)


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(records(max_steps=60))
def test_a_client_that_followed_has_what_a_snapshot_tells(record: list[Event]) -> None:
    client = Client()
    for run in runs_of(record):
        client.receive(run)
    if not record or record[-1].stream_id is None or not isinstance(record[-1], StreamEnd):
        return  # what came between runs is for the next one to say
    told = messages_snapshot(record)
    had = {item["id"]: item for item in client.messages}
    calls = dict(call for message in client.messages for call in _arguments(message))
    for message in told:
        assert all(calls[request_id] == args for request_id, args in _arguments(message))
        if message["id"] not in had:  # its first call followed one that was never whole, which only the stream has
            assert message["role"] == "assistant"
            assert "content" not in message
            continue
        assert (had[message["id"]].get("content") or "") == (message.get("content") or "")
        assert had[message["id"]].get("encryptedValue") == message.get("encryptedValue")


def _arguments(message: Wire) -> list[Any]:
    return [(call["id"], json.loads(call["function"]["arguments"])) for call in message.get("toolCalls", ())]


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(records(max_steps=60))
def test_a_restart_between_runs_changes_nothing_in_the_next(record: list[Event]) -> None:
    """A run with what the record tells, and the same with what was known all along."""
    at = max((index for index, event in enumerate(record) if isinstance(event, StreamEnd)), default=-1) + 1
    while at < len(record) and record[at].stream_id is None:
        at += 1
    live = Known()
    for event in record[:at]:
        if event.stream_id is None:
            live.fold(event)
        else:
            RunMapper(thread_id="t", run_id="r", known=live).feed(event)
    found: list[list[Wire]] = []
    for known in (live, Known.of(record[:at])):
        mapper = RunMapper(thread_id="t", run_id="r", known=known)
        out = mapper.start(client_state={})
        for event in record[at:]:
            out += mapper.feed(event)
        found.append(out + mapper.finish(history=record))
    assert found[0] == found[1]


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(records(max_steps=60))
def test_all_streams_of_a_legal_record_are_one_run_that_clients_accept(record: list[Event]) -> None:
    mapper = RunMapper(thread_id="t", run_id="r", known=Known())
    out = mapper.start()
    for event in record:
        out += mapper.feed(event)
    check(out + mapper.finish(history=record))


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(events())
def test_any_event_alone_becomes_events_that_the_models_accept(event: Event) -> None:
    mapper = RunMapper(thread_id="t", run_id="r", known=Known())
    check_models([*mapper.start(), *mapper.feed(event), *mapper.finish(history=[event])])
