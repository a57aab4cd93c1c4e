"""Record and ADK's session are two: one is missing, both are wanted at once, two processes want the same."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.auth.auth_tool import AuthConfig
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, history, host_tool, texts, verify
from tests.adapters.adk.services import session_ids, session_service

from agentsession.adapters.adk import AdkExecutor, call, say
from agentsession.adapters.base import BaseSession
from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    RecordKey,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StreamActive,
    accept,
    result,
)

pytestmark = pytest.mark.anyio

OPENED = OpenOptions(session_id="s", execution=ExecutionOptions(tools=[host_tool("look")]))


# -- one half is missing ----------------------------------------------------------------------------------------------


async def test_a_record_without_an_adk_session_is_listed_not_loaded_and_can_be_deleted(
    service: BaseSessionService,
) -> None:
    async with AdkExecutor(agent(), session_service=service, store=MemoryRecordStore()) as executor:
        await (await executor.open(OPENED)).aclose()
        await service.delete_session(app_name="root", user_id="local", session_id="s")
        assert [info.key.session_id for info in await executor.list()] == ["s"]
        for wrong in (executor.load("s"), executor.rewind("s", 1), executor.fork("s", 1)):
            with pytest.raises(SessionNotFound) as refused:
                await wrong
            assert "session service" in refused.value.what
        with pytest.raises(SessionExists):
            await executor.open(OPENED)
        await executor.delete("s")
        assert await executor.list() == []
        await (await executor.open(OPENED)).aclose()


async def test_a_record_that_another_process_began_and_never_finished_can_be_deleted(
    service: BaseSessionService,
) -> None:
    store = MemoryRecordStore()
    await store.create(RecordKey("root", "local", "s"))
    await service.create_session(app_name="root", user_id="local", session_id="s")
    async with AdkExecutor(agent(), session_service=service, store=store) as executor:
        with pytest.raises(SessionNotFound) as refused:
            await executor.load("s")
        assert "delete" in (refused.value.fix or "")
        await executor.delete("s")
        assert await session_ids(service) == []
        await executor.open(OPENED)


async def test_a_deletion_that_was_cut_off_between_the_two_is_finished_by_the_next(service: BaseSessionService) -> None:
    class Dying(MemoryRecordStore):
        dies = True

        async def delete(self, key: RecordKey) -> None:
            if self.dies:
                raise OSError("the machine went away")
            await super().delete(key)

    store = Dying()
    async with AdkExecutor(agent(), session_service=service, store=store) as executor:
        await (await executor.open(OPENED)).aclose()
        with pytest.raises(OSError, match="went away"):
            await executor.delete("s")
        assert await session_ids(service) == []
        store.dies = False
        await executor.delete("s")
        assert await executor.list() == []


async def test_a_session_that_is_open_is_not_deleted(service: BaseSessionService) -> None:
    async with AdkExecutor(agent(say("a1")), session_service=service, store=MemoryRecordStore()) as executor:
        desk = Driven(executor, await executor.open(OPENED))
        with pytest.raises(SessionBusy):
            await executor.delete("s")
        await desk.stream("q1")
        assert texts(desk.session.record) == ["a1"]


# -- at once ----------------------------------------------------------------------------------------------------------


async def gathered(count: int, work: Any) -> list[Any]:
    """What ``count`` calls of ``work`` at once gave or raised."""
    out: list[Any] = [None] * count

    async def one(number: int) -> None:
        try:
            out[number] = await work(number)
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            out[number] = error

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(one, number)
    return out


@pytest.mark.parametrize("kept", ["memory", "sqlite"])
async def test_r81_twenty_sessions_are_opened_at_once_and_one_of_twenty_with_the_same_id(
    kept: str, service: BaseSessionService, tmp_path: Path
) -> None:
    store = MemoryRecordStore() if kept == "memory" else SqliteRecordStore(tmp_path / "records.db")
    async with AdkExecutor(agent(), session_service=service, store=store) as executor:
        state = ExecutionOptions(state={"user:u": 1, "app:a": 1, "s": 1})
        made = await gathered(20, lambda n: executor.open(OpenOptions(session_id=f"s{n}", execution=state)))
        assert [item for item in made if not isinstance(item, BaseSession)] == []
        same = await gathered(20, lambda n: executor.open(OpenOptions(session_id="same", execution=state)))
        assert sum(isinstance(item, BaseSession) for item in same) == 1
        assert {type(item) for item in same if not isinstance(item, BaseSession)} == {SessionExists}
        assert len(await session_ids(service)) == 21
    if isinstance(store, SqliteRecordStore):
        await store.aclose()


async def test_r81_twenty_executors_without_a_common_store_open_one_session_of_an_id(
    service: BaseSessionService,
) -> None:
    async with AsyncExitStack() as stack:
        executors = [
            await stack.enter_async_context(AdkExecutor(agent(), session_service=service, store=MemoryRecordStore()))
            for _ in range(20)
        ]
        same = await gathered(20, lambda n: executors[n].open(OPENED))
        assert sum(isinstance(item, BaseSession) for item in same) == 1
        assert {type(item) for item in same if not isinstance(item, BaseSession)} == {SessionExists}


@pytest.mark.rule("LIFE-07")
async def test_r23_a_second_stream_is_refused_and_adk_never_sees_two_turns_mixed(service: BaseSessionService) -> None:
    root = agent(call("look", id="c1"), say("a1"), say("a2"))
    async with AdkExecutor(root, session_service=service, store=MemoryRecordStore()) as executor:
        desk = Driven(executor, await executor.open(OPENED))
        async with desk.session.stream("q1") as stream:
            with pytest.raises(StreamActive):
                desk.session.stream("q2")
            async for _ in stream:
                pass
        await desk.stream([result(desk.pending("look"), "there")])
        await desk.stream("q2")
        found = await service.get_session(app_name="root", user_id="local", session_id="s")
        assert found is not None
        turns = [event.invocation_id for event in found.events]
        assert turns == sorted(turns, key=turns.index)  # each invocation's events stand together
        assert_valid_history(root.model)
        verify(desk.session)


@pytest.mark.rule("PER-01")
async def test_r23_two_executors_on_one_store_have_a_session_one_after_the_other(
    service: BaseSessionService, tmp_path: Path
) -> None:
    first_store, second_store = (SqliteRecordStore(tmp_path / "records.db") for _ in range(2))
    root, other = agent(say("a1")), agent(say("a2"))
    async with (
        AdkExecutor(root, session_service=service, store=first_store) as first,
        AdkExecutor(other, session_service=service, store=second_store) as second,
    ):
        desk = Driven(first, await first.open(OPENED))
        await desk.stream("q1")
        for wrong in (second.load("s"), second.rewind("s", 1), second.delete("s")):
            with pytest.raises(SessionBusy):
                await wrong
        await desk.session.aclose()
        desk = Driven(second, await second.load("s", OPENED))
        await desk.stream("q2")
        assert [text for _, text in history(other.model)] == ["q1", "a1", "q2"]
        with pytest.raises(SessionBusy):
            await first.load("s")
    await first_store.aclose()
    await second_store.aclose()


@pytest.mark.rule("PER-01")
@pytest.mark.parametrize("kind", ["sqlite", "database"])
async def test_r46_a_credential_request_survives_the_restart_in_a_database(kind: str, tmp_path: Path) -> None:
    from fastapi.openapi.models import APIKey

    config = AuthConfig(
        auth_scheme=APIKey.model_validate({"in": "header", "name": "X-Key"}),
        raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY),
        credential_key="k",
    )
    got: list[str | None] = []

    def fetch(tool_context: ToolContext) -> Any:
        given = tool_context.get_auth_response(config)
        if given is None:
            tool_context.request_credential(config)
            return {"status": "waiting"}
        got.append(given.api_key)
        return "fetched"

    store = MemoryRecordStore()
    unasked = OpenOptions(session_id="s", execution=ExecutionOptions(host_tool_execution=False))
    async with session_service(kind, tmp_path) as service:
        root = agent(call("fetch", id="c1"), tools=[fetch])
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            await Driven(executor, await executor.open(unasked)).stream("go")
        root = agent(say("done"), tools=[fetch])
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            desk = Driven(executor, await executor.load("s", unasked))
            credential = {"credential": {"type": "api_key", "api_key": "sk-planted-1"}}
            await desk.stream([accept(desk.pending("auth_required"), credential)])
            assert got == ["sk-planted-1"]
            assert texts(desk.session.record) == ["done"]
            found = await service.get_session(app_name="root", user_id="local", session_id="s")
            assert found is not None
            assert "sk-planted-1" not in found.model_dump_json()


async def test_r79_every_event_of_ours_has_an_id_a_time_and_its_invocation(service: BaseSessionService) -> None:
    root = agent(call("look", id="c1"), say("a1"), call("look", id="c2"), say("a2"))
    async with AdkExecutor(root, session_service=service, store=MemoryRecordStore(), parked=True) as executor:
        desk = Driven(executor, await executor.open(OPENED))
        await desk.stream("q1")
        await desk.stream([result(desk.pending("look"), "there")])
        await desk.stream("q2")
        await desk.stream("q3")  # seals the call
        found = await service.get_session(app_name="root", user_id="local", session_id="s")
        assert found is not None
        assert all(event.id and event.timestamp and event.invocation_id for event in found.events)
        assert len({event.id for event in found.events}) == len(found.events)
        times = [event.timestamp for event in found.events]
        assert times == sorted(times)
