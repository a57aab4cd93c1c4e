"""Every record that the contract allows is a stream that AG-UI allows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.host.agui.streams import Client, check, check_models

from agentsession.conformance.strategies import events, records
from agentsession.host._child_events import placed, thread_of
from agentsession.host.agui import Known, RunMapper, messages_snapshot
from agentsession.host.agui._out_below import told_below
from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import Event, Initialize, Message, StreamEnd, ToolRequest, ToolResponse, ToolUpdate

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@st.composite
def worked_for(draw: st.DrawFn) -> list[Event]:
    """A legal record, and what a sub-agent that works for one of its calls does meanwhile, in a legal record too.

    Or what somebody who tells the progress of the call says that it did: events as if they were the session's own.
    """
    record = draw(records(max_steps=40))
    calls = [event for event in record if isinstance(event, ToolRequest) and not event.partial and event.stream_id]
    if not calls:
        return record
    request = draw(st.sampled_from(calls))
    began = record.index(request) + 1
    ends = (
        index
        for index, event in enumerate(record[began:], began)
        if isinstance(event, StreamEnd) or (isinstance(event, ToolResponse) and event.request_id == request.request_id)
    )
    end = next(ends, len(record))
    thread, is_forged = thread_of(request, "worker"), draw(st.booleans())
    updates = [
        ToolUpdate(
            seq=request.seq,
            timestamp=event.timestamp,
            stream_id=request.stream_id,
            turn_id=request.turn_id,
            thread_id=request.thread_id,
            source="host",
            request_id=request.request_id,
            data={
                "childEvents": [
                    (event if is_forged else placed(event, thread, "worker", request.thread_id)).to_wire(),
                ]
            },
        )
        for event in map(_told, draw(records(max_steps=30)))
        if event is not None
    ]
    places = sorted(draw(st.lists(st.integers(began, end), min_size=len(updates), max_size=len(updates))))
    found = list(record)
    for place, update in reversed(list(zip(places, updates, strict=True))):
        found.insert(place, update)
    return found


def _told(event: Event) -> Event | None:
    """As a caller is told of it."""
    if isinstance(event, Initialize) or (isinstance(event, ToolRequest) and event.partial):
        return None
    return event.model_copy(update={"index": None}) if isinstance(event, Message) and event.partial else event


RECORDS = records(max_steps=60) | worked_for()


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
@given(RECORDS)
def test_each_stream_of_a_legal_record_is_a_run_that_clients_accept(record: list[Event]) -> None:
    client = Client()
    for number, run in enumerate(runs_of(record)):
        check(run, is_resumed=number > 0, client=client)


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(RECORDS)
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
    assert _whole(record, had) <= {item["id"] for item in told}
    assert _whole(record, calls) <= {request_id for message in told for request_id, _ in _arguments(message)}


def _whole(record: list[Event], names: Iterable[str]) -> set[str]:
    """Those of the names that messages and requests have that were whole, in the record and below it."""
    every = [item for event in record for item in (event, *told_below(event))]
    whole = {event.message_id for event in every if isinstance(event, Message) and not event.partial}
    whole |= {event.request_id for event in every if isinstance(event, ToolRequest) and not event.partial}
    whole |= {
        f"{event.request_id}.r" for event in every if isinstance(event, ToolResponse) and event.request_id in whole
    }
    return whole & set(names)


def _arguments(message: Wire) -> list[Any]:
    return [(call["id"], json.loads(call["function"]["arguments"])) for call in message.get("toolCalls", ())]


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(RECORDS)
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
@given(RECORDS)
def test_all_streams_of_a_legal_record_are_one_run_that_clients_accept(record: list[Event]) -> None:
    mapper = RunMapper(thread_id="t", run_id="r", known=Known())
    out = mapper.start()
    for event in record:
        out += mapper.feed(event)
    check(out + mapper.finish(history=record))


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(RECORDS, st.data())
def test_a_client_that_comes_back_anywhere_in_a_run_has_what_one_has_that_stayed(
    record: list[Event], data: st.DataObject
) -> None:
    began = max((index for index, event in enumerate(record) if isinstance(event, StreamEnd)), default=-1) + 1
    before, run = record[:began], record[began:]
    stayed, back = Client(), Client()
    for earlier in runs_of(before):
        stayed.receive(earlier)
        back.receive(earlier)
    told = [message for message in back.messages if message["role"] == "user"]  # as its own, which it keeps

    def mapped(**start: Any) -> list[Wire]:
        mapper = RunMapper(thread_id="t", run_id="r", known=Known.of(before))
        out = mapper.start(client_state={}, **start)
        for event in run:
            out += mapper.feed(event)
        return out + mapper.finish(history=record)

    whole = mapped(history=before, client_messages=told)
    stayed.receive(whole)
    seen = data.draw(st.integers(0, len(whole) - 1))
    back.receive(whole[:seen])
    back.state_of_run = "over"  # its connection was cut
    shown = {message["id"] for message in messages_snapshot(before)}
    blank = [item["id"] for item in back.messages if item["role"] == "reasoning" and item["id"] not in shown]
    check(mapped(history=before, client_messages=told, blank_reasoning=blank), client=back)
    cut = {item["id"] for item in back.messages if item["role"] == "reasoning" and not item["content"]}
    cut -= {event["messageId"] for event in whole if event["type"] == "REASONING_MESSAGE_START"}
    assert _said(back, cut) == _said(stayed, cut)


def _said(client: Client, cut: set[str]) -> dict[str, Any]:
    """What a person sees of a conversation, by message, but for thoughts that were cut off in an earlier run."""
    return {
        item["id"]: (item["role"], item.get("content") or "", [*item.get("toolCalls", ())])
        for item in client.messages
        if item["role"] != "activity" and item["id"] not in cut
    }


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(events())
def test_any_event_alone_becomes_events_that_the_models_accept(event: Event) -> None:
    mapper = RunMapper(thread_id="t", run_id="r", known=Known())
    check_models([*mapper.start(), *mapper.feed(event), *mapper.finish(history=[event])])
