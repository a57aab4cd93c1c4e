"""500 clients that connect, read a little and vanish, at one real server: nothing of them is left, and it answers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.host.http.serving import client_of, serving

from agentsession.adapters.scripted import Deltas, Say, ScriptedExecutor, Step
from agentsession.host import Host, SqliteRecordStore, deny_all
from agentsession.host.http import Limits, serve_app
from agentsession.host.live import LiveSessions, ServedAgent

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc"),
]

_CLIENTS = 500
_SESSIONS = 50
_SCRIPT: list[list[Step]] = [[Deltas(["ab "] * 200), Say("end")]]
S = "/api/agents/scripted/sessions"


async def vanish(url: str, head: str, body: Any, bytes_read: int) -> None:
    """Send a request on a connection of one's own, read a little, and cut it without a word."""
    host, port = url.removeprefix("http://").split(":")
    sent = b"" if body is None else json.dumps(body).encode()
    lines = (head, f"host: {host}:{port}", "content-type: application/json", f"content-length: {len(sent)}")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + sent[: None if bytes_read else len(sent) // 2])
    await writer.drain()
    if bytes_read:
        assert b" 200 " in await reader.read(bytes_read)
    writer.transport.abort()


def of_events(number: int) -> tuple[str, Any]:
    """Every tenth drives a turn of a session of its own; the others follow these sessions."""
    session = f"{S}/s{number // 10}"
    if number % 10 == 0:
        return f"POST {session}/stream HTTP/1.1\r\naccept: text/event-stream", {"input": "go"}
    return f"GET {session}/events HTTP/1.1\r\naccept: text/event-stream", None


def of_runs(number: int) -> tuple[str, Any]:
    """Two share a thread: one of them waits in a queue, and leaves it."""
    said = [{"id": f"u{number}", "role": "user", "content": "go"}]
    run = {"threadId": f"t{number // 2}", "runId": f"r{number}", "messages": said, "state": {}, "tools": []}
    return "POST /agui/scripted HTTP/1.1", {**run, "context": [], "forwardedProps": {}}


def open_files(record: Path) -> tuple[int, int]:
    """How many there are beside those of the record, and those: its connections are kept for the next call."""
    names: list[str] = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    of_record = sum(name.startswith(str(record)) for name in names)
    return len(names) - of_record, of_record


def locks(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM agentsession_locks").fetchone()
    connection.close()
    return int(count)


def objects() -> Counter[str]:
    """How many there are of each class of this project, of tasks, and of what holds connections."""
    gc.collect()
    found: Counter[str] = Counter()
    for one in gc.get_objects():
        kind = type(one)
        if str(kind.__module__).startswith(("agentsession.", "anyio", "uvicorn", "starlette", "_asyncio", "asyncio")):
            found[f"{kind.__module__}.{kind.__qualname__}"] += 1
    return found


async def until_nothing_is_left(path: Path, sessions: LiveSessions, tasks: int, files: int) -> None:
    """Nobody tells when a socket is closed or a lock is given back: they are looked for."""
    left: tuple[int, ...] = ()
    try:
        with anyio.fail_after(40):
            while True:
                left = (
                    len(asyncio.all_tasks()) - tasks,
                    open_files(path)[0] - files,
                    locks(path),
                    len(sessions.open_sessions),
                )
                if max(left) <= 0:
                    return
                await anyio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"left are (tasks, files, locks, sessions): {left}")


@pytest.mark.parametrize("request_of", [of_events, of_runs])
async def test_nothing_is_left_of_500_clients_that_vanish(
    tmp_path: Path, request_of: Callable[[int], tuple[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    async with SqliteRecordStore(path) as store:
        agent = ServedAgent("scripted", ScriptedExecutor(_SCRIPT, reenter=True), Host(policy=deny_all), store)
        async with LiveSessions([agent], idle_s=0.5) as sessions:
            app = serve_app(sessions, agui=True, limits=Limits(burst=10_000))
            async with serving(app) as url, client_of(url) as http:
                for number in range(_SESSIONS):
                    assert (await http.post(S, json={"sessionId": f"s{number}"})).status_code == 201
                warm = [vanish(url, *request_of(number), 300) for number in range(0, 40, 10)]
                await asyncio.gather(*warm)
                await until_nothing_is_left(path, sessions, 10_000, 10_000)
                tasks, files = len(asyncio.all_tasks()), open_files(path)[0]
                left: list[Counter[str]] = []
                for _ in range(2):
                    async with asyncio.TaskGroup() as group:
                        for number in range(_CLIENTS):
                            group.create_task(vanish(url, *request_of(number), (number % 4) * 400))
                    assert len(asyncio.all_tasks()) > tasks or open_files(path)[0] > files
                    await until_nothing_is_left(path, sessions, tasks, files)
                    left.append(objects())
                # Of a round something may be on its way out; what a client left would be there for many of the 500.
                grown = {name: (left[0][name], count) for name, count in left[1].items() if count > left[0][name] + 10}
                assert not grown
                assert "incident" not in caplog.text
                answer = await http.post(
                    f"{S}/s1/stream", json={"input": "go"}, headers={"accept": "text/event-stream"}
                )
                assert answer.status_code == 200
                assert '"reason":"completed"' in answer.text
    assert open_files(path)[1] == 0
