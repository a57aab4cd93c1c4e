"""What goes with a session: the records of the sub-agents that worked for it, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from tests.host.subagents import agent, calls

from agentsession.adapters.scripted import Ask, Say
from agentsession.host import Host, SqliteRecordStore, SubagentTool, allow_all
from agentsession.host._child_ids import caller_mark, mark_of, session_id_of
from agentsession.host.records import delete_record, find_record, prune_records
from agentsession.host.records._find import all_records
from agentsession.protocol import (
    MemoryRecordStore,
    OpenOptions,
    RecordKey,
    RecordStore,
    SessionBusy,
    SessionNotFound,
)

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
LATER = datetime.now(UTC) + 400 * DAY


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteRecordStore]:
    async with SqliteRecordStore(tmp_path / "r.db") as made:
        yield made


async def play(store: RecordStore, session_id: str, user_id: str = "ann", *, asks: bool = False) -> None:
    """A session whose sub-agent has one of its own."""
    last = [Ask("Where?")] if asks else [Say("done")]
    with anyio.fail_after(10):
        async with (
            agent("helper", *last, turns=[last], reenter=True) as helper,
            agent("fixer", calls("helper"), Say("fixed"), reenter=True) as fixer,
            agent("coder", calls("fixer"), Say("ready"), reenter=True) as coder,
        ):
            tools = [SubagentTool(fixer, tools=["helper"]), SubagentTool(helper)]
            host = Host(tools=tools, policy=allow_all, on_ask="pause")
            options = OpenOptions(session_id=session_id, user_id=user_id)
            async with host.session(coder, options, store=store) as session:
                await host.run_turn(session, "go")


async def left(store: SqliteRecordStore) -> dict[str, int]:
    """The records that are there, by agent and user."""
    found: dict[str, int] = {}
    async for info in all_records(store):
        name = f"{info.key.agent} of {info.key.user_id}"
        found[name] = found.get(name, 0) + 1
    return found


async def test_with_a_record_go_those_of_its_sub_agents_and_of_theirs(store: SqliteRecordStore) -> None:
    for session_id, user_id in (("one", "ann"), ("two", "ann"), ("one", "bob")):
        await play(store, session_id, user_id)
    gone = await delete_record(store, RecordKey("coder", "ann", "one"))
    assert [key.agent for key in gone] == ["coder", "fixer", "helper"]
    of_each = {"coder": 2, "fixer": 2, "helper": 2}
    assert await left(store) == {
        f"{name} of {user}": count // 2 for name, count in of_each.items() for user in ("ann", "bob")
    }


async def test_of_a_session_that_is_open_nothing_goes(store: SqliteRecordStore) -> None:
    await play(store, "one")
    key = RecordKey("coder", "ann", "one")
    await store.lock(key, "somebody")
    with pytest.raises(SessionBusy):
        await delete_record(store, key)
    assert len(await left(store)) == 3


async def test_a_sub_agent_that_is_open_stays_and_is_told(
    store: SqliteRecordStore, caplog: pytest.LogCaptureFixture
) -> None:
    await play(store, "one")
    helper = next(info.key for info in await store.browse() if info.key.agent == "helper")
    await store.lock(helper, "somebody")
    assert len(await delete_record(store, RecordKey("coder", "ann", "one"))) == 2
    assert helper.session_id in caplog.text
    assert await left(store) == {"helper of ann": 1}


async def test_what_an_executors_delete_does_not_know_the_store_deletes(store: SqliteRecordStore) -> None:
    await play(store, "one")
    asked: list[str] = []

    async def delete(key: RecordKey) -> None:
        asked.append(key.agent)
        if key.agent != "coder":
            raise SessionNotFound("not mine")
        await store.delete(key)

    await delete_record(store, RecordKey("coder", "ann", "one"), delete=delete)
    assert asked == ["coder", "fixer", "helper"]
    assert await left(store) == {}


async def test_the_record_of_a_sub_agent_is_pruned_with_its_callers_and_not_before(store: SqliteRecordStore) -> None:
    await play(store, "one")
    await play(store, "two")
    pruned = await prune_records(store, older_than=DAY, keep_last=1, now=LATER, dry_run=True)
    assert [info.key.agent for info in pruned] == ["coder", "fixer", "helper"]
    assert await prune_records(store, older_than=DAY, keep_last=1, now=LATER) == pruned
    assert await left(store) == {"coder of ann": 1, "fixer of ann": 1, "helper of ann": 1}
    assert (await find_record(store, "two")).key.agent == "coder"


async def test_of_one_agent_the_sub_agents_of_its_sessions_are_pruned_too(store: SqliteRecordStore) -> None:
    await play(store, "one")
    assert await prune_records(store, older_than=DAY, agent="fixer", now=LATER) == []
    assert len(await prune_records(store, older_than=DAY, agent="coder", now=LATER)) == 3


async def test_a_sub_agent_whose_caller_waits_stays(store: SqliteRecordStore) -> None:
    await play(store, "one", asks=True)
    assert await prune_records(store, older_than=DAY, now=LATER) == []
    assert len(await prune_records(store, older_than=DAY, waiting_older_than=DAY, now=LATER)) == 3


async def test_a_sub_agent_whose_caller_is_gone_goes_by_its_age(store: SqliteRecordStore) -> None:
    await play(store, "one")
    await store.delete(RecordKey("coder", "ann", "one"))
    assert [info.key.agent for info in await prune_records(store, older_than=DAY, now=LATER)] == ["fixer", "helper"]


async def test_a_listing_goes_on_where_the_last_of_a_page_goes_meanwhile() -> None:
    store = MemoryRecordStore()
    for number in range(450):
        await store.create(RecordKey("coder", "ann", f"s{number:03}"))
    seen: list[str] = []
    async for info in all_records(store):
        seen.append(info.key.session_id)
        if len(seen) == 200:
            for number in range(240, 260):
                await store.delete(RecordKey("coder", "ann", f"s{number:03}"))
    assert seen == [f"s{number:03}" for number in range(449, -1, -1) if not 240 <= number < 250]


@pytest.mark.parametrize("session_id", ["s-1", "sub-x", "sub-0123456789abcdef-0123", "a/b"])
def test_the_id_of_a_sub_agents_session_tells_whose_it_is(session_id: str) -> None:
    made = session_id_of(session_id, "r1", "fixer")
    assert caller_mark(made) == mark_of(session_id)
    assert caller_mark(session_id) is None
    assert len({made, session_id_of(session_id, "r2", "fixer"), session_id_of(session_id, "r1", "helper")}) == 3
