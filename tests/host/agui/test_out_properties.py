"""Every record that the contract allows is a stream that AG-UI allows."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from tests.host.agui.streams import Client, check, check_models

from agentsession.conformance.strategies import events, records
from agentsession.host.agui import Known, RunMapper
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
