"""Requests that say two things at once, lie about their size, or come byte by byte: refused, never guessed at."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
import trio
import trio.testing
from tests.host.http.asgi import Client

from agentsession.adapters.scripted import Say, ScriptedExecutor
from agentsession.host.http import BearerTokens, Limits, Principal, contract_app
from agentsession.host.live import LiveSessions, ServedAgent

pytestmark = pytest.mark.anyio

S = "/agents/scripted/sessions"


@pytest.fixture
async def sessions() -> AsyncGenerator[LiveSessions]:
    async with LiveSessions([ServedAgent("scripted", ScriptedExecutor([[Say("Hi.")]], reenter=True))]) as found:
        yield found


async def asked(app: Any, method: str, path: str, *headers: tuple[str, str], **given: Any) -> tuple[int, str]:
    """Status and code of the answer."""
    client = Client(app, method, path, headers=headers, **given)
    await client.run()
    return client.status, json.loads(client.data).get("code", "") if client.data.startswith(b"{") else ""


@pytest.mark.parametrize(
    "host",
    [
        *("", "localhost.", "user@localhost", "user:pw@localhost", "localhost:80:80", "localhost:", "localhost:8x"),
        *("[::1", "::1", "[::ffff:127.0.0.1]", "127.1", "2130706433", "localhost/evil", "localhost%00", "localhost#e"),
        *(
            "evil.example, localhost",
            "localhost, evil.example",
            "localhost evil.example",
            "lоcalhost".encode().decode("latin-1"),
        ),
    ],
)
async def test_a_host_that_is_not_exactly_one_of_the_servers_is_refused(sessions: LiveSessions, host: str) -> None:
    assert await asked(contract_app(sessions), "GET", "/agents", ("host", host)) == (421, "host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]"])
async def test_a_name_of_the_server_is_taken_with_any_port(sessions: LiveSessions, host: str) -> None:
    assert (await asked(contract_app(sessions), "GET", "/agents", ("host", host)))[0] == 200


async def test_two_hosts_and_a_second_origin_are_refused(sessions: LiveSessions) -> None:
    app = contract_app(sessions)
    twice = ("host", "localhost"), ("host", "localhost")
    assert await asked(app, "GET", "/agents", *twice) == (421, "host")
    origins = ("origin", "http://localhost"), ("origin", "http://evil.example")
    assert await asked(app, "GET", "/agents", *origins) == (403, "origin")


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://localhost.evil.example",
        "https://localhost",
        "http://localhost:1",
        "http://localhost/",
        "file://",
    ],
)
async def test_an_origin_that_is_not_exactly_the_servers_is_refused(sessions: LiveSessions, origin: str) -> None:
    assert await asked(contract_app(sessions), "POST", S, ("origin", origin)) == (403, "origin")


@pytest.mark.parametrize(
    "raw", [b"/agents%2fscripted/sessions", b"/agents/scripted%5csessions", b"/agents/%FF", b"/agents%00"]
)
async def test_an_escaped_separator_zero_or_byte_that_is_no_text_reaches_no_route(
    sessions: LiveSessions, raw: bytes
) -> None:
    # As a server passes it on: decoded, and as it came.
    assert await asked(contract_app(sessions), "GET", S, raw_path=raw) == (400, "bad-request")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "CONNECT", "PUT", "get", "DELETE "])
async def test_a_method_that_a_path_does_not_take_is_told_those_that_it_takes(
    sessions: LiveSessions, method: str
) -> None:
    client = Client(contract_app(sessions), method, S)
    await client.run()
    assert (client.status, set(client.answered["allow"].split(", "))) == (405, {"GET", "POST"})


async def test_no_header_and_no_query_stands_for_another_method(sessions: LiveSessions) -> None:
    app = contract_app(sessions)
    await sessions.open("scripted", "local")
    (info,) = await sessions.list("scripted", "local")
    path = f"{S}/{info.key.session_id}"
    headers = [(name, "DELETE") for name in ("x-http-method-override", "x-http-method", "x-method-override")]
    assert (await asked(app, "PATCH", path, *headers, body=[b'{"title":"t"}'], query=b"_method=DELETE"))[0] == 200
    assert await sessions.list("scripted", "local")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("content-type", "application/json"), ("content-type", "text/plain")], (415, "media-type")),
        ([("content-encoding", "identity"), ("content-encoding", "gzip")], (415, "media-type")),
        ([("idempotency-key", "a"), ("idempotency-key", "b")], (400, "bad-request")),
        ([("content-length", "2"), ("transfer-encoding", "chunked")], (400, "bad-request")),
    ],
)
async def test_a_request_that_says_two_things_is_refused(
    sessions: LiveSessions, headers: list[tuple[str, str]], expected: tuple[int, str]
) -> None:
    assert await asked(contract_app(sessions), "POST", S, *headers, body=[b"{}"]) == expected
    assert not await sessions.list("scripted", "local")


async def test_two_cursors_are_refused_and_two_accept_headers_are_one_list(sessions: LiveSessions) -> None:
    app = contract_app(sessions)
    live = await sessions.open("scripted", "local")
    path = f"{S}/{live.session_id}/events"
    twice = ("last-event-id", "0"), ("last-event-id", "1")
    assert await asked(app, "GET", path, *twice, query=b"follow=false") == (400, "bad-request")
    client = Client(
        app, "GET", path, headers=[("accept", "text/html"), ("accept", "text/event-stream")], query=b"follow=false"
    )
    await client.run()
    assert client.answered["content-type"].startswith("text/event-stream")


async def test_two_tokens_are_none(sessions: LiveSessions) -> None:
    token = "a-token-of-ann-0123456789"
    app = contract_app(sessions, verify=BearerTokens({token: Principal("ann")}))
    good = ("authorization", f"Bearer {token}")
    assert (await asked(app, "GET", "/agents", good))[0] == 200
    for headers in ([good, good], [good, ("authorization", "Basic eDp5")], [("authorization", f"Bearer {token} x")]):
        assert await asked(app, "GET", "/agents", *headers) == (401, "unauthenticated")


@pytest.mark.parametrize("announced", ["", "2"])
async def test_a_body_that_is_larger_than_it_said_is_not_read_to_its_end(
    sessions: LiveSessions, announced: str
) -> None:
    read: list[int] = []

    def parts() -> Any:
        for _ in range(100):
            read.append(500)
            yield b" " * 500

    client = Client(
        contract_app(sessions, limits=Limits(body_bytes=1000)),
        "POST",
        S,
        (),
        [("content-length", announced)] if announced else [("transfer-encoding", "chunked")],
    )
    client.parts = parts()
    await client.run()
    assert (client.status, sum(read)) == (413, 1500)


def test_a_body_that_comes_byte_by_byte_has_its_time_and_no_more() -> None:
    async def main() -> None:
        async with LiveSessions([ServedAgent("scripted", ScriptedExecutor([[Say("Hi.")]]))]) as sessions:
            app = contract_app(sessions)
            begun = trio.current_time()
            client = Client(app, "POST", S, [b"{", *[b" "] * 1000, b"}"], every_s=1.0)
            await client.run()
            assert (client.status, json.loads(client.data)["code"]) == (408, "too-slow")
            assert trio.current_time() - begun == 30
            in_time = Client(app, "POST", S, [b"{", *[b" "] * 20, b"}"], every_s=1.0)
            await in_time.run()
            assert in_time.status == 201

    async def bounded() -> None:
        with anyio.fail_after(5000):
            await main()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_ticket_cannot_be_shown_twice_at_once_or_by_another_path_or_method(sessions: LiveSessions) -> None:
    token = "a-token-of-ann-0123456789"
    app = contract_app(sessions, verify=BearerTokens({token: Principal("ann")}))
    live = await sessions.open("scripted", "ann")
    session = f"{S}/{live.session_id}"

    async def ticket() -> str:
        client = Client(app, "POST", session + "/tickets", headers=[("authorization", f"Bearer {token}")])
        await client.run()
        return str(json.loads(client.data)["ticket"])

    async def shown(query: str, method: str = "GET", path: str = session + "/events") -> int:
        return (await asked(app, method, path, query=query.encode()))[0]

    one = await ticket()
    statuses: list[int] = []

    async def race() -> None:
        statuses.append(await shown(f"follow=false&ticket={one}"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(race)
    assert sorted(statuses) == [200, 401, 401, 401, 401]
    two = await ticket()
    assert await shown(f"follow=false&ticket={two}&ticket={two}") == 401
    assert await shown(f"ticket={two}", "POST", session + "/stream") == 401
    assert await shown(f"ticket={two}", "GET", session) == 401
    assert await shown(f"ticket={two}") == 401  # used up by the wrong path
