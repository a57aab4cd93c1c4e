"""What the AG-UI endpoint answers to requests that are no runs: a 4xx that says why, and nothing has changed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import httpx2
import pytest
from tests.host.agui.inputs import body, user
from tests.host.agui.serving import HEADERS

from agentsession.adapters.scripted import Say, ScriptedExecutor
from agentsession.host.agui import agui_app
from agentsession.host.http import BearerTokens, Limits, Principal
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import ConfigurationError

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def asking(**options: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    with anyio.fail_after(20):
        async with LiveSessions([ServedAgent("scripted", ScriptedExecutor([[Say("one")]]))]) as sessions:
            transport = httpx2.ASGITransport(app=agui_app(sessions, **options))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                yield client


@pytest.mark.parametrize(
    ("sent", "headers", "status", "code"),
    [
        (b"{", HEADERS, 400, "malformed"),
        (b"\xff", HEADERS, 400, "malformed"),
        (body(user("u1"), threadId="a/../b"), HEADERS, 400, "malformed"),
        (body(user("u1"), threadId="a%2Fb"), HEADERS, 400, "malformed"),
        (body(user("u1"), runId=""), HEADERS, 400, "malformed"),
        (body(user("u1")), {"content-type": "text/plain"}, 415, "unsupported-media-type"),
        (body(user("u1")), {}, 415, "unsupported-media-type"),
        (body(user("u1", "x" * 5000)), HEADERS, 413, "too-large"),
    ],
)
async def test_a_body_that_is_no_input(sent: bytes, headers: dict[str, str], status: int, code: str) -> None:
    async with asking(limits=Limits(body_bytes=4000)) as client:
        response = await client.post("/", content=sent, headers=headers)
        assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
        told = response.json()
        assert (told["status"], told["code"]) == (status, code)
        assert told["detail"]
        assert (await client.post("/", content=body(user("u1")), headers=HEADERS)).text.count("TEXT_MESSAGE_START") == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 405), ("PUT", "/", 405), ("DELETE", "/", 405), ("POST", "/capabilities", 405), ("GET", "/x", 404)],
)
async def test_what_is_not_there(method: str, path: str, status: int) -> None:
    async with asking() as client:
        response = await client.request(method, path)
        assert response.status_code == status
        assert response.json()["detail"]


async def test_the_capabilities_are_told() -> None:
    async with asking() as client:
        told = (await client.get("/capabilities")).json()
        assert told["identity"]["name"] == "scripted"
        assert told["humanInTheLoop"]["interrupts"] is True


async def test_frames_end_in_lf_and_bear_the_seq_of_what_they_tell() -> None:
    async with asking() as client:
        response = await client.post("/", content=body(user("u1")), headers=HEADERS)
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        assert b"\r" not in response.content
        numbers = [int(line[4:]) for line in response.text.split("\n") if line.startswith("id: ")]
        assert numbers == sorted(numbers)
        assert numbers[0] > 0


@pytest.mark.parametrize("name", ["other", None])
async def test_an_agent_that_is_not_served_is_an_error_at_once(name: str | None) -> None:
    agents = [ServedAgent(each, ScriptedExecutor([])) for each in ("one", "two")]
    async with LiveSessions(agents) as sessions:
        with pytest.raises(ConfigurationError):
            agui_app(sessions, name)


ANN, BOB = "ann-has-a-long-token", "bob-has-a-long-token"


def by(token: str) -> dict[str, str]:
    return {**HEADERS, "authorization": f"Bearer {token}"}


async def test_a_thread_is_its_users() -> None:
    tokens = BearerTokens({ANN: Principal("ann"), BOB: Principal("bob")})
    async with asking(verify=tokens) as client:
        anns = await client.post("/", content=body(user("u1", "secret of ann")), headers=by(ANN))
        assert "RUN_FINISHED" in anns.text
        bobs = await client.post("/", content=body(user("u2")), headers=by(BOB))
        assert "RUN_FINISHED" in bobs.text
        assert "secret" not in bobs.text
        again = await client.post("/", content=body(), headers=by(BOB))
        assert "secret" not in again.text
        assert "secret of ann" in (await client.post("/", content=body(), headers=by(ANN))).text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (HEADERS, 401),
        (by("not-a-token-of-anybody"), 401),
        ({**by(ANN), "host": "evil.example"}, 421),
        ({**by(ANN), "origin": "https://evil.example"}, 403),
        (by(BOB), 403),
    ],
)
async def test_who_may_not_call(headers: dict[str, str], status: int) -> None:
    readers = Principal("bob", frozenset({"read"}))
    async with asking(verify=BearerTokens({ANN: Principal("ann"), BOB: readers})) as client:
        response = await client.post("/", content=body(user("u1")), headers=headers)
        assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
        assert "u1" not in (await client.post("/", content=body(), headers=by(ANN))).text
