"""Sessions whose beginning is cut off, by a cancellation or a hook: neither the record nor ADK's session stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import anyio
import pytest
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from tests.adapters.adk.driving import Driven, agent
from tests.adapters.adk.hooking import Desk
from tests.adapters.adk.services import session_ids
from tests.adapters.adk.shapes import Gate

from agentsession.adapters.adk import AdkExecutor, say
from agentsession.protocol import AgentSessionError, ExecutionOptions, MemoryRecordStore, OpenOptions, block

pytestmark = pytest.mark.anyio

STATE = OpenOptions(session_id="s", execution=ExecutionOptions(state={"a": 1}))


class Hanging(InMemorySessionService):
    """Does what it is told, and then does not say so until it is let."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method
        self.gate = Gate()

    async def _did(self, method: str) -> None:
        if method == self.method:
            await self.gate()

    async def create_session(self, **fields: Any) -> Any:
        made = await super().create_session(**fields)
        await self._did("create")
        return made

    async def append_event(self, session: Any, event: Any) -> Any:
        stored = await super().append_event(session, event)
        await self._did("append")
        return stored

    async def get_session(self, **fields: Any) -> Any:
        found = await super().get_session(**fields)
        if fields["session_id"] == "f":
            await self._did("get")
        return found

    async def delete_session(self, **fields: Any) -> None:
        await anyio.lowlevel.checkpoint()  # as a service that stores something
        await super().delete_session(**fields)


async def cancelled_in(gate: Gate, work: Awaitable[Any], how: str) -> None:
    """Cancel ``work`` when it has come to the gate, which opens afterwards."""

    async def opens() -> None:
        await anyio.lowlevel.checkpoint()
        gate.release.set()

    with anyio.fail_after(20):
        if how == "task":
            task = asyncio.ensure_future(work)
            await gate.entered.wait()
            task.cancel()
            await opens()
            with pytest.raises(asyncio.CancelledError):
                await task
            return
        scope = anyio.CancelScope()

        async def cancels() -> None:
            await gate.entered.wait()
            scope.cancel()
            await opens()

        async with anyio.create_task_group() as group:
            group.start_soon(cancels)
            with scope:
                await work
        assert scope.cancelled_caught


@pytest.mark.parametrize("how", ["task", "scope"])
@pytest.mark.parametrize("method", ["create", "append"])
async def test_an_open_that_is_cancelled_while_adks_session_is_made_leaves_none(method: str, how: str) -> None:
    service = Hanging(method)
    async with AdkExecutor(agent(), session_service=service, store=MemoryRecordStore()) as executor:
        await cancelled_in(service.gate, executor.open(STATE), how)
        assert (await session_ids(service), await executor.list()) == ([], [])
        assert (await executor.open(STATE)).state_values == {"a": 1}


@pytest.mark.parametrize("how", ["task", "scope"])
@pytest.mark.parametrize("method", ["create", "append", "get"])
async def test_a_fork_that_is_cancelled_while_adks_session_is_copied_leaves_none(method: str, how: str) -> None:
    service = Hanging("")
    async with AdkExecutor(agent(say("a1")), session_service=service, store=MemoryRecordStore()) as executor:
        desk = Driven(executor, await executor.open(STATE))
        await desk.turn("q1")
        service.method = method
        options = OpenOptions(session_id="f")
        await cancelled_in(service.gate, executor.fork("s", desk.session.last_seq, options), how)
        assert await session_ids(service) == ["s"]
        assert [info.key.session_id for info in await executor.list()] == ["s"]
        assert (await executor.fork("s", desk.session.last_seq, options)).state == "idle"


async def test_a_name_that_is_taken_in_adk_stays_when_the_open_is_cancelled() -> None:
    class Slow(InMemorySessionService):
        gate = Gate()

        async def create_session(self, **fields: Any) -> Any:
            await self.gate()
            return await super().create_session(**fields)

    service = Slow()
    await InMemorySessionService.create_session(service, app_name="root", user_id="local", session_id="s")
    async with AdkExecutor(agent(), session_service=service) as executor:
        await cancelled_in(service.gate, executor.open(STATE), "scope")
        assert await session_ids(service) == ["s"]


@pytest.mark.parametrize("how", ["open", "fork", "adopt"])
async def test_where_a_hook_does_not_allow_a_session_only_what_was_there_before_stays(
    how: str, service: BaseSessionService
) -> None:
    desk = Desk(session_start=block("not today"))
    async with AdkExecutor(agent(say("a1")), session_service=service, store=MemoryRecordStore()) as executor:
        session = await executor.open(STATE)
        await service.create_session(app_name="root", user_id="local", session_id="other")
        new = OpenOptions(session_id="new")
        begins = {
            "open": lambda: executor.open(new, hooks=desk),
            "fork": lambda: executor.fork("s", session.last_seq, new, hooks=desk),
            "adopt": lambda: executor.adopt("other", hooks=desk),
        }
        with pytest.raises(AgentSessionError, match="not today"):
            await begins[how]()
        assert await session_ids(service) == ["other", "s"]
        assert [info.key.session_id for info in await executor.list()] == ["s"]


async def test_an_adk_session_that_cannot_be_removed_again_hides_no_reason() -> None:
    class Broken(InMemorySessionService):
        async def append_event(self, session: Any, event: Any) -> Any:
            raise OSError("disk full")

        async def delete_session(self, **fields: Any) -> None:
            raise OSError("read only")

    async with AdkExecutor(agent(), session_service=Broken()) as executor:
        with pytest.raises(OSError, match="disk full"):
            await executor.open(STATE)


async def test_a_service_that_does_not_answer_holds_a_cancelled_caller_for_some_time_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentsession.adapters.adk._history._CLEAN_UP_S", 0.01)

    class Deaf(InMemorySessionService):
        asked = anyio.Event()
        left = False

        async def create_session(self, **fields: Any) -> Any:
            self.asked.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.left = True

    service = Deaf()
    async with AdkExecutor(agent(), session_service=service) as executor:
        task = asyncio.ensure_future(executor.open(STATE))
        with anyio.fail_after(20):
            await service.asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await anyio.lowlevel.checkpoint()
        assert service.left
