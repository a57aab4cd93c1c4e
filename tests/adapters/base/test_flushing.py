"""What is stored together: a transaction costs more than all else that a request takes."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.lowlevel
import pytest
from tests.adapters.sessions import Puppet, read, tool

from agentsession.adapters.base import RunContext
from agentsession.protocol import Event, MemoryRecordStore, RecordKey, grant

pytestmark = pytest.mark.anyio


class CountedStore(MemoryRecordStore):
    """``written`` tells the types of the events of each transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[list[str]] = []

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        self.written.append([event.type for event in events])
        await super().append(key, events, reserved_seq=reserved_seq)


async def test_a_request_and_the_end_that_it_brings_on_are_one_transaction() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.post(tool("write", "grant"))
        for _ in range(8):
            await anyio.lowlevel.checkpoint()
        reply = ctx.expect("write")
        ctx.pause()
        await reply.wait()

    store = CountedStore()
    async with Puppet(work, store=store) as executor:
        session = await executor.open()
        await read(session.stream("go"))
        asked = [types for types in store.written if "tool_request" in types]
        await read(session.stream([grant("write")]))
    assert [types[-1] for types in asked] == ["stream_end"]
