"""What users of other agent hosts reported about stored sessions, tried with ours."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
import sqlalchemy.event

from agentsession.adapters.scripted import Call, Say, ScriptedExecutor
from agentsession.host import SqliteRecordStore
from agentsession.protocol import Event, OpenOptions, RecordKey, SessionConfig, SessionNotFound

pytestmark = pytest.mark.anyio

KEY = RecordKey("scripted", "local", "s")


class Counted(SqliteRecordStore):
    """Counts the events that are read, and those that are appended."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.parsed = 0
        self.appends = 0

    def _parse(self, text: str, seq: int, key: RecordKey) -> Event:
        self.parsed += 1
        return super()._parse(text, seq, key)

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        self.appends += 1
        await super().append(key, events, reserved_seq=reserved_seq)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Counted]:
    async with Counted(tmp_path / "r.db") as made:
        yield made


async def talk(store: SqliteRecordStore, turns: int, text: str = "done", **base: Any) -> None:
    script = [[Say(text)]] * turns
    with anyio.fail_after(60):
        async with ScriptedExecutor(script, store=store, **base) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            await session.update(SessionConfig(state={"token": text}))
            for _ in range(turns):
                async with session.stream("go") as stream:
                    async for _ in stream:
                        pass


async def test_loading_a_session_twice_in_a_row_changes_nothing_of_its_record(store: Counted) -> None:
    """R77: loading a session in the minute in which it was made erased it."""
    await talk(store, 3)
    before, info = await store.read(KEY), await store.info(KEY)
    store.appends = 0
    for _ in range(2):
        async with ScriptedExecutor([[Say("x")]], store=store) as executor:
            await executor.load("s")
    assert store.appends == 0
    assert await store.read(KEY) == before
    assert await store.info(KEY) == info


async def test_a_load_that_is_refused_changes_nothing(store: Counted) -> None:
    """R77, where the session cannot be loaded."""
    await talk(store, 1)
    before = await store.read(KEY)

    class Refuses(ScriptedExecutor):
        async def on_load(self, session: object) -> None:
            raise RuntimeError("not today")

    async with Refuses([[Say("x")]], store=store) as refusing:
        with pytest.raises(RuntimeError):
            await refusing.load("s")
    assert await store.read(KEY) == before
    async with ScriptedExecutor([[Say("x")]], store=store) as executor:
        await executor.load("s")


async def test_twenty_sessions_opened_at_once_in_an_empty_file_are_all_there(store: Counted) -> None:
    """R81: the first concurrent use raised an error of the database."""
    async with ScriptedExecutor([[Say("x")]], store=store) as executor:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(executor.open, OpenOptions(session_id=f"s-{number}"))
    assert len(await store.list("scripted", "local")) == 20


async def test_nothing_of_a_deleted_session_is_left_in_the_files(store: Counted, tmp_path: Path) -> None:
    """R114: what was copied beside a session stayed when it was deleted. Snapshots are such copies."""
    await talk(store, 30, "hunter2-very-secret", snapshot_every=5)
    assert any("hunter2" in snapshot.text for snapshot in await store.snapshots(KEY))
    async with ScriptedExecutor([], store=store) as executor:
        await executor.delete("s")
        with pytest.raises(SessionNotFound):
            await executor.load("s")
    for file in tmp_path.glob("r.db*"):
        assert b"hunter2" not in file.read_bytes()


async def test_the_last_fifty_of_three_thousand_events_are_read_alone(store: Counted) -> None:
    """R116: a session of 3,000 events took eight seconds to open."""
    await talk(store, 600, "x" * 2000)
    assert ((await store.info(KEY)).events or 0) >= 3000
    store.parsed = 0
    assert len(await store.select(KEY, newest=True, limit=50)) == 50
    assert store.parsed == 50
    async with ScriptedExecutor([], store=store) as executor:
        store.parsed = 0
        session = await executor.load("s")
        assert store.parsed < 1100  # what came after the last snapshot, and a page at most
        store.parsed = 0
        found = [event async for event in session.events(session.last_seq - 60)]
        assert len(found) >= 50
        assert store.parsed <= len(found)


async def test_a_new_session_of_a_user_with_many_is_opened_without_looking_at_them(store: Counted) -> None:
    """R118: with 2,000 sessions each new one took half a second."""
    await store.create(KEY)
    await store.aclose()
    with sqlite3.connect(store.path) as connection:
        rows = [("scripted", "local", f"old-{number}", 0, "2026") for number in range(2000)]
        into = "agentsession_records (agent, user_id, session_id, reserved_seq, created_at)"
        connection.executemany(f"INSERT INTO {into} VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()
    statements: list[str] = []
    sqlalchemy.event.listen(store._engine, "connect", lambda opened, _: opened.set_trace_callback(statements.append))
    await talk_in_new_session(store)
    found = [text for text in statements if text.startswith("SELECT") and "agentsession_records" in text]
    assert found
    with sqlite3.connect(store.path) as connection:
        for text in found:
            plan = " ".join(str(row) for row in connection.execute(f"EXPLAIN QUERY PLAN {text}"))
            assert "SCAN agentsession" not in plan, text
    connection.close()


async def talk_in_new_session(store: SqliteRecordStore) -> None:
    async with ScriptedExecutor([[Call("look", {}, needs="result")]], store=store) as executor:
        session = await executor.open(OpenOptions(session_id="new"))
        async with session.stream("go") as stream:
            async for _ in stream:
                pass
