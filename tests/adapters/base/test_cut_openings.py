"""Openings and loads that are cancelled half way leave no lock and no record that nobody began."""

from __future__ import annotations

import anyio
import pytest

from agentsession.adapters.scripted import Say, ScriptedExecutor
from agentsession.protocol import MemoryRecordStore, OpenOptions, RecordKey

pytestmark = pytest.mark.anyio


class Slow(MemoryRecordStore):
    """Has done what it was asked, and takes its time to say so."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self.slow = slow
        self.reached = anyio.Event()
        self.goes_on = anyio.Event()

    async def _wait(self, name: str) -> None:
        if name == self.slow:
            self.reached.set()
            await self.goes_on.wait()

    async def create(self, key: RecordKey) -> None:
        await super().create(key)
        await self._wait("create")

    async def lock(self, key: RecordKey, owner: str) -> None:
        await super().lock(key, owner)
        await self._wait("lock")


async def test_a_load_that_is_cancelled_while_it_takes_the_lock_gives_it_back() -> None:
    store = Slow("none")
    async with ScriptedExecutor([[Say("Hi.")]]) as executor:
        await (await executor.open(OpenOptions(session_id="s"), store=store)).aclose()
        store.slow = "lock"
        async with anyio.create_task_group() as tasks:

            async def load() -> None:
                await executor.load("s", store=store)

            tasks.start_soon(load)
            await store.reached.wait()
            tasks.cancel_scope.cancel()
        store.slow = "none"
        session = await executor.load("s", store=store)
        assert session.last_seq == 1


async def test_an_opening_that_is_cancelled_while_its_record_is_made_leaves_none() -> None:
    store = Slow("create")
    async with ScriptedExecutor([[Say("Hi.")]]) as executor:
        async with anyio.create_task_group() as tasks:

            async def open_one() -> None:
                await executor.open(OpenOptions(session_id="s"), store=store)

            tasks.start_soon(open_one)
            await store.reached.wait()
            tasks.cancel_scope.cancel()
            store.goes_on.set()
        store.slow = "none"
        session = await executor.open(OpenOptions(session_id="s"), store=store)
        assert session.last_seq == 1
