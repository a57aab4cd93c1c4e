"""Following a record that somebody else writes: in this process, and in another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agentsession.host import SqliteRecordStore
from agentsession.host.records import follow_record
from agentsession.protocol import Event, MemoryRecordStore, Message, RecordKey, RecordStore, SessionNotFound, Text

pytestmark = pytest.mark.anyio

KEY = RecordKey("coder", "ann", "s-1")


def message(seq: int, timestamp: str = "2026-01-31T12:00:00.000Z") -> Event:
    base: dict[str, Any] = {"timestamp": timestamp, "session_id": "s-1"}
    return Message(id=f"e{seq}", seq=seq, message_id=f"m{seq}", content=[Text(text="hi")], **base)


class Clock:
    """Sleeps that end when a test says so; how long each was asked for."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await anyio.lowlevel.checkpoint()


async def test_stored_and_coming_events_are_given_in_order_until_the_record_is_deleted() -> None:
    store, clock = MemoryRecordStore(), Clock()
    await store.create(KEY)
    await store.append(KEY, [message(seq) for seq in range(1, 601)], reserved_seq=600)
    seen: list[int] = []

    async def write() -> None:
        for seq in range(601, 611):
            while not clock.asked or seen[-1] < seq - 1:
                await anyio.lowlevel.checkpoint()
            await store.append(KEY, [message(seq)], reserved_seq=seq)
        while seen[-1] < 610:
            await anyio.lowlevel.checkpoint()
        await store.delete(KEY)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            async for event in follow_record(store, KEY, after=5, sleep=clock.sleep):
                seen.append(event.seq)
    assert seen == list(range(6, 611))


async def test_the_store_is_asked_less_often_while_nothing_comes_and_at_once_often_again() -> None:
    class Enough(Exception):
        pass

    store, clock = MemoryRecordStore(), Clock()
    await store.create(KEY)

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        if len(clock.asked) == 4:
            await store.append(KEY, [message(1)], reserved_seq=1)
        if len(clock.asked) == 6:
            raise Enough

    with anyio.fail_after(10), pytest.raises(Enough):
        async for _ in follow_record(store, KEY, shortest_s=1, longest_s=5, sleep=sleep):
            pass
    assert clock.asked == [1, 2, 4, 5, 1, 2]


async def test_a_record_that_is_not_there_is_not_found() -> None:
    with pytest.raises(SessionNotFound):
        await anext(follow_record(MemoryRecordStore(), KEY))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RecordStore]:
    if request.param == "memory":
        yield MemoryRecordStore()
    else:
        async with SqliteRecordStore(tmp_path / "records.db") as made:
            yield made


@pytest.mark.parametrize("first", [1, 12], ids=["from one", "from beyond the cursor"])
async def test_it_ends_also_when_another_record_has_the_id_since(store: RecordStore, first: int) -> None:
    await store.create(KEY)
    await store.append(KEY, [message(9)], reserved_seq=4096)
    follower = follow_record(store, KEY, sleep=Clock().sleep)
    assert (await anext(follower)).seq == 9
    await store.delete(KEY)
    await store.create(KEY)
    await store.append(KEY, [message(first), message(13)], reserved_seq=4096)
    with anyio.fail_after(10), pytest.raises(StopAsyncIteration):
        await anext(follower)


async def test_it_ends_also_when_another_record_has_the_id_before_anything_was_given(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(f"2026-01-31T12:00:0{second}.000Z" for second in range(9))
    monkeypatch.setattr("agentsession.host._sql.now_text", lambda: next(moments))
    await store.create(KEY)
    await store.append(KEY, [message(9)], reserved_seq=4096)

    async def replaced(seconds: float) -> None:
        await store.delete(KEY)
        await store.create(KEY)
        await store.append(KEY, [message(12, "2026-01-31T12:00:09.000Z")], reserved_seq=4096)

    with anyio.fail_after(10), pytest.raises(StopAsyncIteration):
        await anext(follow_record(store, KEY, after=9, sleep=replaced))


async def test_more_than_a_page_is_read_of_a_file_that_nobody_writes_to(store: RecordStore) -> None:
    await store.create(KEY)
    await store.append(KEY, [message(seq) for seq in range(1, 601)], reserved_seq=600)
    follower = follow_record(store, KEY, sleep=Clock().sleep)
    with anyio.fail_after(10):
        assert [(await anext(follower)).seq for _ in range(600)] == list(range(1, 601))


class Counting(SqliteRecordStore):
    """How often the record was read, and the file was asked whether it has changed."""

    reads = 0
    marks = 0

    async def read(self, *args: Any, **options: Any) -> list[Event]:
        self.reads += 1
        return await super().read(*args, **options)

    async def change_mark(self) -> object:
        self.marks += 1
        return await super().change_mark()


async def test_a_file_that_nobody_has_written_to_is_not_read_again(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    clock = Clock()
    async with Counting(tmp_path / "r.db") as store, SqliteRecordStore(tmp_path / "r.db") as other:
        await other.create(KEY)
        await other.append(KEY, [message(1)], reserved_seq=4096)
        reads: list[int] = []

        async def sleep(seconds: float) -> None:
            await clock.sleep(seconds)
            reads.append(store.reads)
            if len(reads) == 10:
                await other.append(KEY, [message(2)], reserved_seq=4096)
            if len(reads) == 20:
                raise Enough

        seen: list[int] = []

        async def follow() -> None:
            async for event in follow_record(store, KEY, sleep=sleep):
                seen.append(event.seq)

        with anyio.fail_after(10), pytest.raises(Enough):
            await follow()
    assert seen == [1, 2]
    assert len(set(reads[1:10])) == 1
    assert len(set(reads[11:])) == 1
    assert store.marks > 20


_WRITER = """
import sys, anyio
from agentsession.adapters.scripted import Say, ScriptedExecutor
from agentsession.host import SqliteRecordStore
from agentsession.protocol import OpenOptions

async def main():
    script = [[Say(str(number))] for number in range(30)]
    async with SqliteRecordStore(sys.argv[1]) as store, ScriptedExecutor(script, store=store) as executor:
        session = await executor.open(OpenOptions(session_id="s"))
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(30):
            async with session.stream("go") as stream:
                async for _ in stream:
                    pass
        print("done", flush=True)
        sys.stdin.readline()

anyio.run(main)
"""


async def test_every_event_of_another_process_is_seen_while_it_holds_the_lock(tmp_path: Path) -> None:
    key = RecordKey("scripted", "local", "s")
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path / "r.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        try:
            assert writer.stdin is not None
            assert writer.stdout is not None
            with anyio.fail_after(60):
                assert (await anyio.to_thread.run_sync(writer.stdout.readline)).strip() == b"ready"
                async with SqliteRecordStore(tmp_path / "r.db") as store:
                    writer.stdin.write(b"\n")
                    writer.stdin.flush()
                    seen: list[Event] = []
                    async for event in follow_record(store, key):
                        seen.append(event)
                        if sum(item.type == "stream_end" for item in seen) == 30:
                            break
                    assert (await anyio.to_thread.run_sync(writer.stdout.readline)).strip() == b"done"
                    assert seen == await store.read(key)
                    writer.stdin.write(b"\n")
                    writer.stdin.flush()
        finally:
            writer.kill()
