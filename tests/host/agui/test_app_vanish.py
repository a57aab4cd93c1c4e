"""Clients that connect, read a little and vanish leave nothing behind: no task, no run, no place in a queue."""

from __future__ import annotations

import asyncio
import gc

import anyio
import pytest
from starlette.types import Message
from tests.host.agui.inputs import body, user
from tests.host.agui.serving import Poster, Watched, outcome, serving
from tests.host.agui.test_app_clients import Gate

from agentsession.adapters.scripted import Deltas, Say, ScriptedExecutor, Step
from agentsession.host.agui import agui_app
from agentsession.host.agui._app_run import Run
from agentsession.host.live import LiveSessions, ServedAgent

pytestmark = pytest.mark.anyio

_CLIENTS = 100


async def vanish(url: str, sent: bytes, bytes_read: int) -> None:
    """Post on a connection of one's own, read a little, and cut it without a word."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = (
        f"POST / HTTP/1.1\r\nhost: {host}:{port}",
        "content-type: application/json",
        f"content-length: {len(sent)}",
    )
    head = "\r\n".join(lines) + "\r\n\r\n"
    writer.write(head.encode() + sent)
    await writer.drain()
    if bytes_read:
        await reader.read(bytes_read)
    writer.transport.abort()


@pytest.mark.parametrize("policy", ["cancel", "carry_on"])
async def test_nothing_is_left_of_clients_that_vanish(policy: str) -> None:
    script: list[list[Step]] = [[Deltas(["ab "] * 300), Say("end")]]
    with anyio.fail_after(50):
        async with LiveSessions([ServedAgent("scripted", ScriptedExecutor(script))]) as sessions:
            app = agui_app(sessions, on_disconnect=policy, grace_s=0.01, cap_s=5)  # type: ignore[arg-type]
            async with serving(app) as url, Poster(url, "well") as poster:
                await poster.say("u1")
                before = asyncio.all_tasks()
                async with asyncio.TaskGroup() as group:
                    for number in range(_CLIENTS):
                        # Every other one shares a thread with another: those wait in a queue, and leave it.
                        sent = body(user(f"u{number}"), threadId=f"t{number // 2}", runId=f"r{number}")
                        group.create_task(vanish(url, sent, (number % 3) * 400))
                while left := asyncio.all_tasks() - before:
                    await asyncio.wait(left)
                assert app.clients == 0
                assert not app.is_busy
                gc.collect()
                assert not [item for item in gc.get_objects() if isinstance(item, Run)]
                events = await poster.say("u2")
                assert outcome(events) == {"type": "success"}


async def test_nothing_is_left_of_a_second_reader_that_vanishes_while_the_run_goes_on() -> None:
    gate = Gate()
    script: list[list[Step]] = [[Deltas(["one"]), gate, Say("two")]]
    with anyio.fail_after(20):
        async with LiveSessions([ServedAgent("scripted", ScriptedExecutor(script))]) as sessions:
            watched = Watched(agui_app(sessions))
            async with serving(watched) as url, Poster(url) as poster, Poster(url) as other:
                sent = poster.sent(user("u1"))
                async with poster.stream(sent) as events:
                    await gate.reached.wait()
                    before = asyncio.all_tasks()
                    async with other.stream(sent) as seen:
                        assert (await anext(seen))["type"] == "RUN_STARTED"
                    await watched.until(lambda app: app.clients == 1)
                    while left := asyncio.all_tasks() - before:
                        await asyncio.wait(left)
                    gate.opened.set()
                    assert outcome([event async for event in events]) == {"type": "success"}


async def test_a_run_whose_request_is_cancelled_by_its_server_is_left_too() -> None:
    gate = Gate()
    script: list[list[Step]] = [[gate, Say("never")]]
    with anyio.fail_after(20):
        async with LiveSessions([ServedAgent("scripted", ScriptedExecutor(script))]) as sessions:
            app = agui_app(sessions, grace_s=0.01)
            given = [{"type": "http.request", "body": body(user("u1")), "more_body": False}]

            async def receive() -> Message:
                if not given:
                    await asyncio.Event().wait()
                return given.pop()

            async def send(message: Message) -> None:
                pass

            headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "client": ("127.0.0.1", 1)}
            request = asyncio.create_task(app({**scope, "query_string": b"", "scheme": "http"}, receive, send))
            await gate.reached.wait()
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            await gate.stopped.wait()
