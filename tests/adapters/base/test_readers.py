"""Readers: order, cursors, filters, the bounded window, and leaving."""

from __future__ import annotations

import gc
from typing import Any

import anyio
import pytest
from tests.adapters.sessions import end_of, only, read, say, session_of, texts, tool

from agentsession.adapters.base import RunContext
from agentsession.adapters.base._log import EventLog
from agentsession.adapters.base._readers import LogReader
from agentsession.protocol import (
    ConnectionLost,
    CursorGone,
    Event,
    Message,
    SessionMachine,
    StreamEnd,
    Text,
    is_ephemeral,
    result,
)

pytestmark = pytest.mark.anyio


async def chatter(ctx: RunContext) -> None:
    async with ctx.message() as message:
        for number in range(6):
            await message.text(f"{number} ")
    await ctx.request(tool(f"look{ctx.turn_number}"))
    await ctx.say("done")


async def two_turns(session: Any) -> None:
    for _ in range(2):
        await say(session)
        await read(session.stream(result(session.pending[0].request_id, 1)))


@pytest.mark.rule("ORD-03")
async def test_all_readers_see_one_order() -> None:
    async with session_of(chatter) as session:
        seen: list[list[Event]] = [[] for _ in range(5)]

        async def follow(into: list[Event]) -> None:
            async for event in session.events(follow=True):
                into.append(event)

        async with anyio.create_task_group() as group:
            for into in seen:
                group.start_soon(follow, into)
            await two_turns(session)
            await session.aclose()  # ends the followers
        assert all([event.seq for event in into] == sorted({event.seq for event in into}) for into in seen)
        durable = [[event for event in into if not is_ephemeral(event)] for into in seen]
        assert all(into == durable[0] for into in durable)


@pytest.mark.rule("ORD-05")
@pytest.mark.rule("ORD-06")
async def test_replay_from_any_cursor_equals_the_suffix() -> None:
    async with session_of(chatter) as session:
        original: list[Event] = []

        async def follow() -> None:
            async with session.events(follow=True) as reader:
                async for event in reader:
                    original.append(event)

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await two_turns(session)
            await session.aclose()
        durable = [event for event in original if not is_ephemeral(event)]
        for cursor in range(original[-1].seq + 1):
            replayed = [event async for event in session.events(after=cursor)]
            assert replayed == [event for event in original if event.seq > cursor and event in replayed]
            assert [event for event in replayed if not is_ephemeral(event)] == [
                event for event in durable if event.seq > cursor
            ]


@pytest.mark.rule("ORD-05")
async def test_replay_and_live_together_miss_nothing_while_a_stream_runs() -> None:
    go = anyio.Event()

    async def work(ctx: RunContext) -> None:
        async with ctx.message() as message:
            await message.text("one ")
            await go.wait()
            await message.text("two")

    async with session_of(work) as session:
        first: list[Event] = []
        stream = session.stream("go")
        async for event in stream:
            first.append(event)
            if isinstance(event, Message) and event.index == 0:
                break
        late = session.events(after=first[1].seq, follow=True, stream_id=stream.stream_id)
        go.set()
        async for event in stream:
            first.append(event)
        assert await read(late) == first[2:]


@pytest.mark.rule("ORD-05")
async def test_the_deltas_of_an_ended_stream_go_all_at_once_so_that_what_is_left_can_be_folded() -> None:
    async with session_of(chatter) as session:
        await two_turns(session)
        await two_turns(session)
        left = [event async for event in session.events()]
        SessionMachine.fold(left)
        ended = {event.stream_id for event in only(left, StreamEnd)[:-1]}
        assert not [event for event in left if is_ephemeral(event) and event.stream_id in ended]


@pytest.mark.rule("ORD-07")
async def test_a_cursor_beyond_the_last_raises() -> None:
    async with session_of(chatter) as session:
        await say(session)
        for cursor in (session.last_seq + 1, -1):
            with pytest.raises(CursorGone):
                session.events(after=cursor)
        assert [event async for event in session.events(after=session.last_seq)] == []


@pytest.mark.rule("ORD-10")
async def test_a_filtered_readers_cursor_moves_over_what_it_skips() -> None:
    async with session_of(chatter) as session:
        await say(session)
        reader = session.events(types={"tool_request"})
        (event,) = [event async for event in reader]
        assert event.request_id == "look1"
        assert reader.cursor == session.last_seq


async def test_a_reader_of_one_thread_sees_that_thread_alone() -> None:
    async def work(ctx: RunContext) -> None:
        async def child(inner: RunContext) -> None:
            await inner.say(f"from {inner.thread_id}")

        await ctx.parallel(("a", child), ("b", child))

    async with session_of(work) as session:
        await say(session)
        seen = [event async for event in session.events(thread_id="b")]
        assert texts(seen) == ["from b"]
        assert {event.thread_id for event in seen} == {"b"}


@pytest.mark.rule("ORD-04")
async def test_leaving_affects_nobody_and_a_reader_can_come_back_with_its_cursor() -> None:
    async with session_of(chatter) as session:
        stream = session.stream("go")
        async with stream:
            first = await anext(stream)
        rest = [event async for event in session.events(stream.cursor, follow=True, stream_id=stream.stream_id)]
        assert rest[0].seq == first.seq + 1
        assert end_of(rest).reason == "input_required"
        assert session.readers == 0
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def flood(ctx: RunContext) -> None:
    for number in range(100):
        await ctx.say(str(number))


@pytest.mark.rule("ORD-11")
async def test_an_entered_and_stalled_reader_bounds_the_producer_and_reading_lets_it_go_on() -> None:
    async with session_of(flood, window=8) as session:
        stream = session.stream("go")
        async with stream:
            await anext(stream)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            assert len(session.record) <= 1 + 8 + 1
            rest = [event async for event in stream]
        assert len(rest) == 103


@pytest.mark.rule("ORD-11")
async def test_a_reader_that_was_not_entered_bounds_nobody() -> None:
    async with session_of(flood, window=8) as session:
        stream = session.stream("go")
        await anext(stream)
        while session.state == "running":
            await anyio.lowlevel.checkpoint()
        assert len([event async for event in stream]) == 103


@pytest.mark.rule("ORD-11")
async def test_a_reader_far_behind_bounds_nobody_until_it_has_caught_up() -> None:
    async with session_of(flood, window=8) as session:
        await say(session)
        async with session.events(follow=True):
            await say(session)
        assert session.state == "idle"


@pytest.mark.rule("ORD-11")
async def test_abort_works_with_a_stalled_reader() -> None:
    async with session_of(flood, window=8) as session:
        async with session.stream("go") as stream:
            await anext(stream)
            assert (await session.abort()).status == "aborted"
            assert end_of([event async for event in stream]).reason == "aborted"


@pytest.mark.rule("ORD-04")
async def test_a_reader_that_was_dropped_without_being_closed_holds_nobody() -> None:
    async with session_of(flood, window=8) as session:
        stream = session.stream("go")
        await stream.__aenter__()
        await anext(stream)
        del stream
        gc.collect()
        assert session.readers == 0
        while session.state == "running":
            await anyio.lowlevel.checkpoint()


async def test_a_reader_far_behind_gives_the_loop_its_turns() -> None:
    async with session_of(flood, window=4096) as session:
        for _ in range(8):
            await say(session)
        ticks = 0
        read_all = False

        async def tick() -> None:
            nonlocal ticks
            while not read_all:
                ticks += 1
                await anyio.lowlevel.checkpoint()

        before = 0
        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            await anyio.lowlevel.checkpoint()
            before = ticks
            async for _ in session.events():
                pass
            read_all = True
        assert ticks - before >= 2


@pytest.mark.rule("LIFE-08")
async def test_a_stream_that_can_never_end_raises_connection_lost() -> None:
    log = EventLog(8)
    reader = LogReader(log, after=0, follow=True, stream_id="s1", stream_ended=lambda _: False)
    log.append(Message(seq=1, stream_id="s1", message_id="m", content=[Text(text="x")]), visible=True)
    log.close()
    await anext(reader)
    with pytest.raises(ConnectionLost):
        await anext(reader)
    assert log.readers == 0


async def test_a_lagging_reader_keeps_the_deltas_of_its_own_stream_only() -> None:
    async with session_of(chatter, window=2) as session:
        stream = session.stream("go")
        await anext(stream)
        await read(session.events(follow=True, stream_id=stream.stream_id))
        own = len([event for event in session.record if is_ephemeral(event)])
        for number in range(1, 40):
            if number > 1:
                await say(session)
            await read(session.stream(result(f"look{number}", number)))
        kept = [event for event in session.record if is_ephemeral(event)]
        assert len(kept) <= 2 * own
        assert texts([event async for event in stream]) == ["0 1 2 3 4 5 "]
