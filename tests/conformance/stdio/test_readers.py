"""Readers at the suite's end of the wire: what the executor gave from its record and what it sends later, each once."""

from __future__ import annotations

import pytest

from agentsession.conformance.stdio._readers import Log, Reader, Stream
from agentsession.protocol import ConnectionLost, Custom, Event, StreamEnd

pytestmark = pytest.mark.anyio


def note(seq: int) -> Custom:
    return Custom(id=f"e{seq}", seq=seq, session_id="s", stream_id="s1", kind="note")


def end(seq: int) -> StreamEnd:
    return StreamEnd(id=f"e{seq}", seq=seq, session_id="s", stream_id="s1", reason="completed")


def log_of(*events: Event) -> tuple[Log, list[int]]:
    told: list[int] = []
    log = Log(told.append)
    for event in events:
        log.append(event)
    return log, told


@pytest.mark.rule("ORD-05")
async def test_what_the_record_has_and_the_wire_brings_later_is_given_once() -> None:
    log, _ = log_of(note(1))
    reader = Reader(log, after=0, first=[note(1), note(2), note(3)], follow=True)
    for event in (note(2), note(3), note(4)):
        log.append(event)
    log.close()
    assert [event.seq async for event in reader] == [1, 2, 3, 4]


async def test_a_stream_whose_session_is_closed_before_its_end_is_a_lost_connection() -> None:
    log, _ = log_of(note(1))
    stream = Stream(log, stream_id="s1", turn_id="t1", receipts=())
    log.close()
    assert (await anext(stream)).seq == 1
    with pytest.raises(ConnectionLost):
        await anext(stream)


async def test_a_stream_that_had_ended_is_given_from_its_beginning() -> None:
    log, _ = log_of(note(1), end(2))
    assert [event.seq async for event in Stream(log, stream_id="s1", turn_id="t1", receipts=())] == [1, 2]


@pytest.mark.rule("ORD-11")
async def test_the_executor_is_told_how_far_the_slowest_reader_is_that_has_entered_and_caught_up() -> None:
    log, told = log_of(note(1))
    async with Reader(log, after=0, follow=True) as slow:
        async with Reader(log, after=0, follow=True) as fast:
            for event in (note(2), note(3)):
                log.append(event)
            assert [(await anext(fast)).seq for _ in range(3)] == [1, 2, 3]
            log.tell()
            assert told == []
            await anext(slow)
            log.tell()
            assert told == [1]
    log.tell()
    assert told == [1, 3]


async def test_a_reader_that_was_dropped_or_never_entered_holds_nobody() -> None:
    log, told = log_of(note(1))
    dropped = Reader(log, after=0, follow=True)
    await dropped.__aenter__()
    loose = Reader(log, after=0, follow=True)
    log.append(note(2))
    del dropped
    log.tell()
    assert (told, loose.cursor) == ([2], 0)
