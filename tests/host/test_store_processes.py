"""Several processes at one file, for real: one writer a session, locks of the dead, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from agentsession.adapters.scripted import Say, ScriptedExecutor
from agentsession.host import SqliteRecordStore
from agentsession.protocol import OpenOptions, RecordKey, SessionBusy, SessionMachine

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX")]

KEY = RecordKey("scripted", "local", "s")


@pytest.fixture
def anyio_backend() -> str:
    """The other process is the point, and each takes a second to start."""
    return "asyncio"


_SESSION = """
import sys, anyio
from agentsession.adapters.scripted import Say, ScriptedExecutor
from agentsession.host import SqliteRecordStore
from agentsession.protocol import OpenOptions

async def main():
    script = [[Say(str(number))] for number in range(100000)]
    async with SqliteRecordStore(sys.argv[1]) as store:
        async with ScriptedExecutor(script, store=store, kept_events=16, window=4, snapshot_every=5) as executor:
            session = await executor.open(OpenOptions(session_id="s"))
            print("open", flush=True)
            while True:
                async with session.stream("go") as stream:
                    async for event in stream:
                        pass
                print(event.seq, flush=True)

anyio.run(main)
"""


@contextmanager
def other(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the session open, and runs turn after turn."""
    with subprocess.Popen([sys.executable, "-c", _SESSION, str(path)], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


async def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return (await anyio.to_thread.run_sync(process.stdout.readline)).decode().strip()


@pytest.mark.rule("PER-01")
async def test_a_second_process_hears_who_has_the_session_and_since_when(tmp_path: Path) -> None:
    with anyio.fail_after(60), other(tmp_path / "r.db") as process:
        assert await line(process) == "open"
        async with (
            SqliteRecordStore(tmp_path / "r.db") as store,
            ScriptedExecutor([[Say("x")]], store=store) as executor,
        ):
            with pytest.raises(SessionBusy) as caught:
                await executor.load("s")
            assert (caught.value.where or "").startswith(f"pid {process.pid}, since 20")
            with pytest.raises(SessionBusy):
                await executor.delete("s")
            assert (await store.list("scripted", "local"))[0].key == KEY
            other_session = await executor.open(OpenOptions(session_id="t"))  # other sessions are free
            await other_session.aclose()


@pytest.mark.rule("PER-02")
@pytest.mark.parametrize("turns", [1, 7, 30])
async def test_after_a_kill_the_lock_is_taken_over_and_nothing_acknowledged_is_lost(turns: int, tmp_path: Path) -> None:
    with anyio.fail_after(60), other(tmp_path / "r.db") as process:
        await line(process)
        seqs = [int(await line(process)) for _ in range(turns)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        seqs += [int(text) for text in process.stdout.read().split()]  # what it still could say
        async with SqliteRecordStore(tmp_path / "r.db") as store:
            events = await store.read(KEY)
            assert set(seqs) <= {event.seq for event in events if event.type == "stream_end"}
            before = [snapshot.seq for snapshot in await store.snapshots(KEY)]
            async with ScriptedExecutor([[Say("x")]] * 2, store=store, kept_events=16, snapshot_every=5) as executor:
                session = await executor.load("s")
                assert session.state == "idle"
                record = await store.read(KEY)
                assert record[: len(events)] == events
                folded = SessionMachine.fold(record)
                assert session.machine.snapshot(ephemeral=False) == folded.snapshot(ephemeral=False)
                assert session.turn_number == len({event.turn_id for event in record if event.turn_id})
            assert turns < 7 or before


async def test_of_two_processes_that_load_at_once_one_gets_the_session(tmp_path: Path) -> None:
    async with SqliteRecordStore(tmp_path / "r.db") as store, ScriptedExecutor([[Say("x")]], store=store) as executor:
        await (await executor.open(OpenOptions(session_id="s"))).aclose()
    script = """
import sys, anyio
from agentsession.adapters.scripted import ScriptedExecutor
from agentsession.host import SqliteRecordStore
from agentsession.protocol import SessionBusy

async def main():
    async with SqliteRecordStore(sys.argv[1]) as store, ScriptedExecutor([], store=store) as executor:
        sys.stdin.readline()
        try:
            await executor.load("s")
            print("loaded", flush=True)
        except SessionBusy:
            print("busy", flush=True)
        sys.stdin.readline()

anyio.run(main)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "r.db")]
    found = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    try:
        with anyio.fail_after(60):
            for process in found:
                assert process.stdin is not None
                process.stdin.write(b"\n")
                process.stdin.flush()
            assert sorted([await line(process) for process in found]) == ["busy", "busy", "loaded"]
    finally:
        for process in found:
            process.kill()
            process.communicate()
