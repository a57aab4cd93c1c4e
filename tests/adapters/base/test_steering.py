"""Steers that were acknowledged: they survive the process, a fork tells of them, and each is injected once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.adapters.sessions import MortalStore, Puppet, check, end_of, only, read, texts, tool

from agentsession.adapters.base import RunContext
from agentsession.protocol import (
    STEER_QUEUED,
    Custom,
    Media,
    MemoryRecordStore,
    Message,
    OpenOptions,
    StreamEnd,
    Text,
    result,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rule("CTL-06", "PER-02")]

ID = OpenOptions(session_id="s")


async def work(ctx: RunContext) -> None:
    """Ask once; then say what was steered."""
    if ctx.input is not None:
        await ctx.post(tool("look"))
        return
    for steer in await ctx.steers():
        await ctx.say([Text(text="heard "), *steer.content])


def steered(session: Any) -> list[str]:
    """The ids of the user's messages after the first, in order."""
    return [event.message_id for event in only(session.record, Message) if event.source == "user"][1:]


async def test_steers_of_a_turn_that_waits_survive_a_kill_and_are_injected_once_in_order() -> None:
    store = MortalStore()
    picture = Media(data="iVBORw==", mime_type="image/png")
    async with Puppet(work, resume=True, store=store) as executor:
        session = await executor.open(ID)
        await read(session.stream("go"))
        first = await session.steer("be brief")
        second = await session.steer([Text(text="like this"), picture])
        after = await store.kill()
    async with Puppet(work, resume=True, store=after) as executor:
        session = await executor.load("s")
        third = await session.steer("and kind")
        assert third.request_id not in (first.request_id, second.request_id)
        events = await read(session.stream(result("look", 1)))
        assert end_of(events).reason == "completed"
        assert steered(session) == [first.request_id, second.request_id, third.request_id]
        said = [event.content for event in only(events, Message) if event.source == "agent"]
        assert said == [
            [Text(text="heard be brief")],
            [Text(text="heard like this"), picture],
            [Text(text="heard and kind")],
        ]
        check(session)


async def test_a_steer_that_was_injected_before_the_kill_is_not_queued_again() -> None:
    async def asks_twice(ctx: RunContext) -> None:
        await ctx.steers()
        asked = sum(event.type == "tool_request" for event in ctx.record)
        if asked < 2:
            await ctx.post(tool(f"look{asked}"))

    store = MortalStore()
    async with Puppet(asks_twice, resume=True, store=store) as executor:
        session = await executor.open(ID)
        await read(session.stream("go"))
        await session.steer("once")
        await read(session.stream(result("look0", 1)))
        after = await store.kill()
    async with Puppet(asks_twice, resume=True, store=after) as executor:
        session = await executor.load("s")
        assert not session.machine.steers
        await read(session.stream(result("look1", 1)))
        assert len(steered(session)) == 1
        check(session)


async def test_a_stream_that_was_cut_lists_the_steers_that_nobody_read() -> None:
    async def never(ctx: RunContext) -> None:
        await anyio.sleep_forever()

    store = MortalStore()
    async with Puppet(never, resume=True, store=store) as executor:
        session = await executor.open(ID)
        session.stream("go")
        receipt = await session.steer("be brief")
        after = await store.kill()
    async with Puppet(never, resume=True, store=after) as executor:
        session = await executor.load("s")
        end = session.record[-1]
        assert isinstance(end, StreamEnd)
        assert (end.reason, end.data) == ("failed", {"undelivered": [receipt.request_id], "cause": "lost"})
        check(session)


async def test_a_fork_of_a_turn_that_waits_lists_its_steers_and_the_turn_itself_still_has_them() -> None:
    async with Puppet(work, resume=True, store=MemoryRecordStore()) as executor:
        session = await executor.open(ID)
        await read(session.stream("go"))
        receipt = await session.steer("be brief")
        fork = await executor.fork("s", session.last_seq, OpenOptions(session_id="f"))
        end = fork.record[-1]
        assert isinstance(end, StreamEnd)
        assert (end.data or {})["undelivered"] == [receipt.request_id]
        check(fork)
        assert texts(await read(session.stream(result("look", 1))))[-1] == "heard be brief"


@pytest.mark.parametrize(
    "data", [None, [], {}, {"steerId": 1, "content": []}, {"steerId": "x", "content": [{"type": "text"}]}]
)
async def test_what_somebody_else_wrote_under_the_steers_kind_is_not_taken_for_one(data: Any) -> None:
    async def odd(ctx: RunContext) -> None:
        if ctx.input is not None:
            await ctx.emit(Custom(kind=STEER_QUEUED, data=data, source="host"))
            await ctx.post(tool("look"))

    store = MemoryRecordStore()
    async with Puppet(odd, resume=True, store=store) as executor:
        session = await executor.open(ID)
        await read(session.stream("go"))
        await session.aclose()
        session = await executor.load("s")
        assert not session.machine.steers
        assert end_of(await read(session.stream(result("look", 1)))).reason == "completed"
