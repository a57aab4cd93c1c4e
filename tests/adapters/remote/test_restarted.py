"""A server that is killed in the middle of a stream and started again on its record: a client goes on by itself."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.served import listen

from agentsession.adapters.remote import Backoff, RemoteExecutor, RemoteSession
from agentsession.protocol import Event, Message, MessageInput, StreamEnd, accept, as_content, is_ephemeral, plain_text

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

AGENT = """
from agentsession.adapters.scripted import Ask, Deltas, Delay, Say, ScriptedExecutor

script = [[Deltas(["a "] * 50), Delay(600)], [Deltas(["b "] * 50), Ask("Which?"), Say("That one.")]]
agent = ScriptedExecutor(script, reenter=True)
"""


class Server:
    """The command ``serve``, at one port however often it is started."""

    def __init__(self, folder: Path) -> None:
        (folder / "clerk.py").write_text(AGENT, encoding="utf-8")
        self._folder = folder
        with listen() as found:
            self._port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/api"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = (sys.executable, "-m", "agentsession.host.cli", "serve", "clerk:agent", "--store", "s.db")
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port)], cwd=self._folder, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        assert "serving scripted at" in self._process.stderr.readline()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=30)
        self._process = None

    async def started_again(self, *, in_order: bool = False) -> None:
        await anyio.to_thread.run_sync(self.stop if in_order else self.kill)
        await anyio.to_thread.run_sync(self.start)


@contextlib.contextmanager
def serving(folder: Path) -> Generator[Server]:
    server = Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


async def recorded(url: str, session_id: str) -> list[Event]:
    """What the server has of a session, as another client gets it."""
    async with RemoteExecutor(url) as executor:
        session = await executor.load(session_id)
        found = [event async for event in session.events()]
        session.detach()
        return found


def durable(events: list[Event]) -> list[Event]:
    return [event for event in events if not is_ephemeral(event)]


async def all_of(session: RemoteSession) -> list[Event]:
    return [event async for event in session.events()]


@pytest.mark.rule("ORD-05", "PER-02")
async def test_a_stream_of_a_server_that_died_ends_and_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    with serving(tmp_path) as server, anyio.fail_after(60):
        async with RemoteExecutor(server.url, backoff=Backoff(0.05, 0.2)) as executor:
            session = await executor.open()
            async with await session.begin("go") as stream:
                pieces = 0
                while pieces < 50:
                    event = await anext(stream)
                    pieces += isinstance(event, Message) and event.partial
                await server.started_again()
                rest = [event async for event in stream]
            end = rest[-1]
            assert isinstance(end, StreamEnd)
            assert (end.reason, session.state) == ("failed", "idle")
            mine = await all_of(session)
            assert [event.seq for event in mine] == sorted({event.seq for event in mine})
            assert durable(mine) == durable(await recorded(server.url, session.session_id))


@pytest.mark.rule("HITL-02", "TURN-01")
@pytest.mark.parametrize("in_order", [False, True])
async def test_what_waits_over_a_restart_is_answered_by_the_client_of_before(tmp_path: Path, in_order: bool) -> None:
    message = MessageInput(content=as_content("go"), idempotency_key="k-1")
    with serving(tmp_path) as server, anyio.fail_after(60):
        async with RemoteExecutor(server.url, backoff=Backoff(0.05, 0.2)) as executor:
            session = await executor.open()
            async with await session.begin("go") as stream:
                await anext(stream)
                await session.abort()
            async with await session.begin(message) as stream:
                seen = [event async for event in stream]
            assert session.state == "input_required"
            await server.started_again(in_order=in_order)
            async with await session.begin(message) as again:  # it runs once, whichever process is asked
                assert again.stream_id == stream.stream_id
                assert durable([event async for event in again]) == durable(seen)
            (asked,) = session.pending
            async with await session.begin(accept(asked.request_id, {})) as stream:
                said = [event async for event in stream if isinstance(event, Message)]
            assert [plain_text(event.content) for event in said if not event.partial] == ["That one."]
            mine = await all_of(session)
            assert [event.seq for event in mine] == sorted({event.seq for event in mine})
            assert durable(mine) == durable(await recorded(server.url, session.session_id))
