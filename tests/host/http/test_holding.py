"""Readers of events that ask the agent to wait for them, over real sockets whose buffers are small."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.host.http.serving import SSE, TOKENS, client_of
from tests.served import listen, served, url_of

from agentsession.adapters.scripted import Deltas, Say, ScriptedExecutor
from agentsession.host.http import BearerTokens, Limits, Principal, contract_app
from agentsession.host.live import LiveSession, LiveSessions, ServedAgent

pytestmark = pytest.mark.anyio

_PIECES = 3000
_FAR = 2000
"""More than a window and all that the buffers hold."""
_VERIFY = BearerTokens(
    {TOKENS["ann"]: Principal("ann"), TOKENS["eve"]: Principal("ann", scopes=frozenset({"read"}), name="eve")}
)
SESSION = "/agents/scripted/sessions/s"
HOLD = {"prefer": "hold"}


@contextlib.asynccontextmanager
async def flooding(**limits: Any) -> AsyncGenerator[tuple[str, LiveSession]]:
    """A server with small buffers, and a session whose agent says more than they hold."""
    agent = ServedAgent("scripted", ScriptedExecutor([[Deltas(["x"] * _PIECES), Say("end")]]))
    async with LiveSessions([agent]) as sessions:
        with listen() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            app: Any = contract_app(sessions, verify=_VERIFY, limits=Limits(**limits))
            async with served(app, listening, log_level="critical"), client_of(url_of(listening), "ann") as http:
                assert (await http.post("/agents/scripted/sessions", json={"sessionId": "s"})).status_code == 201
                yield url_of(listening), await sessions.get("scripted", "ann", "s")


class Slow:
    """A reader of the session's events that reads when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def until(self, text: bytes) -> bytes:
        """All up to a text."""
        read = b""
        while text not in read:
            more = await self.reader.read(65536)
            assert more, "the server ended the answer"
            read += more
        return read


@contextlib.asynccontextmanager
async def reading(url: str, user: str = "ann", prefer: str = "hold", query: str = "") -> AsyncGenerator[Slow]:
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=connection, limit=4096)
    head = (
        f"GET {SESSION}/events{query} HTTP/1.1",
        f"Host: {host}:{port}",
        f"Authorization: Bearer {TOKENS[user]}",
        "Accept: text/event-stream",
        f"Prefer: {prefer}",
    )
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n")
    try:
        yield Slow(reader, writer)
    finally:
        writer.transport.abort()


async def begun(url: str) -> None:
    async with client_of(url, "ann") as http:
        assert (await http.post(SESSION + "/stream", json={"input": "go"})).status_code == 202


async def held(session: LiveSession) -> bool:
    """Whether the agent comes to wait for a reader before its turn ends."""
    base: Any = session.session
    log = base.recorder.log  # nothing public says that a producer waits
    while session.state == "running" and not log.has_waiters:
        await anyio.lowlevel.checkpoint()
    return session.state == "running"


@pytest.mark.rule("ORD-11")
@pytest.mark.parametrize("prefer", ["hold", "respond-async, HOLD; x=1"])
async def test_an_agent_waits_for_a_reader_that_asks_for_it_and_the_reader_misses_nothing(prefer: str) -> None:
    with anyio.fail_after(60):
        async with flooding() as (url, session), reading(url, prefer=prefer) as slow:
            assert b"\r\npreference-applied: hold\r\n" in await slow.until(b'"initialize"')
            await begun(url)
            assert await held(session)
            assert session.last_seq < _FAR
            read = await slow.until(b'"stream_end"')
            assert read.count(b'"partial":true') >= _PIECES
            seqs = [int(found) for found in re.findall(rb"id: ([0-9]+)\ndata", read)]
            assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


@pytest.mark.rule("ORD-11")
@pytest.mark.parametrize(
    ("user", "prefer", "query"),
    [("ann", "wait=100", ""), ("eve", "hold", ""), ("ann", "hold", "?follow=false")],
    ids=["not asked for", "may only read", "does not follow"],
)
async def test_an_agent_waits_for_no_other_reader(user: str, prefer: str, query: str) -> None:
    with anyio.fail_after(60):
        async with flooding() as (url, session), reading(url, user, prefer, query) as slow:
            assert b"preference-applied" not in await slow.until(b'"initialize"')
            await begun(url)
            assert not await held(session)


@pytest.mark.rule("ORD-11")
async def test_a_reader_that_takes_nothing_is_dropped_and_holds_the_agent_no_longer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "agentsession.host.http")
    with anyio.fail_after(60):
        async with flooding(stall_s=1.0) as (url, session), reading(url) as slow:
            await slow.until(b'"initialize"')
            await begun(url)
            assert await held(session)
            assert "dropped" not in caplog.text
            await session.at_rest()
            assert "dropped" in caplog.text
            assert session.state == "idle"


@pytest.mark.rule("ORD-11")
async def test_an_abort_does_not_wait_for_a_reader_that_holds_the_agent() -> None:
    with anyio.fail_after(20):
        async with flooding(stall_s=600.0) as (url, session), reading(url) as slow, client_of(url, "ann") as http:
            await slow.until(b'"initialize"')
            await begun(url)
            assert await held(session)
            assert (await http.post(SESSION + "/abort")).json()["status"] == "aborted"
            assert session.state == "idle"


@pytest.mark.rule("ORD-11")
async def test_a_reader_that_goes_away_holds_the_agent_no_longer() -> None:
    with anyio.fail_after(20):
        async with flooding(stall_s=600.0) as (url, session):
            async with reading(url) as slow:
                await slow.until(b'"initialize"')
                await begun(url)
                assert await held(session)
            await session.at_rest()
            assert session.state == "idle"


async def test_a_page_of_another_site_that_is_allowed_may_ask_for_it() -> None:
    async with LiveSessions([ServedAgent("scripted", ScriptedExecutor([]))]) as sessions:
        with listen() as listening:
            app: Any = contract_app(sessions, allowed_origins=["https://page.example"])
            async with served(app, listening), client_of(url_of(listening)) as http:
                asked = {
                    **SSE,
                    "origin": "https://page.example",
                    "access-control-request-method": "GET",
                    "access-control-request-headers": "prefer",
                }
                answer = await http.options(SESSION + "/events", headers=asked)
    assert answer.status_code == 200, answer.text
