"""Who may call, from where, how much: what stands before every route."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2
import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from tests.host.http.serving import TOKENS, client_of, serving

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, say
from agentsession.adapters.scripted import Say, ScriptedExecutor
from agentsession.host import Host
from agentsession.host.http import BearerTokens, Limits, Principal, Tickets, check_exposure, contract_app, serve_app
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import ConfigurationError

pytestmark = pytest.mark.anyio

S = "/agents/scripted/sessions"
VERIFY = BearerTokens(
    {
        TOKENS["ann"]: Principal("ann"),
        TOKENS["bob"]: Principal("bob"),
        TOKENS["eve"]: Principal("eve", scopes=frozenset({"read"})),
    }
)


@pytest.fixture
async def sessions() -> AsyncGenerator[LiveSessions]:
    async with LiveSessions([ServedAgent("scripted", ScriptedExecutor([[Say("Hi.")]], reenter=True))]) as found:
        yield found


def on_wire(app: Any, client: str = "127.0.0.1", **headers: str) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, client=(client, 1))
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


async def test_without_a_verifier_this_machine_is_the_local_user_and_no_other_is_anybody(
    sessions: LiveSessions,
) -> None:
    app = contract_app(sessions)
    async with on_wire(app) as here, on_wire(app, "10.0.0.7") as elsewhere:
        assert (await here.get("/agents")).status_code == 200
        answer = await elsewhere.get("/agents")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_a_caller_is_known_before_a_byte_of_the_body_is_read(sessions: LiveSessions) -> None:
    read: list[int] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(1)
        yield b"{}"

    async with on_wire(contract_app(sessions, verify=VERIFY)) as http:
        assert (await http.post(S, content=body())).status_code == 401
    assert not read


async def test_sessions_are_their_users_and_a_scope_is_kept(sessions: LiveSessions) -> None:
    app = contract_app(sessions, verify=VERIFY)
    async with serving(app) as url, client_of(url, "ann") as ann, client_of(url, "bob") as bob:
        session = (await ann.post(S, json={"sessionId": "s-1"})).headers["location"]
        for method in ("GET", "PATCH", "DELETE"):
            answer = await bob.request(method, session, json=None if method == "GET" else {})
            assert (answer.status_code, answer.json()["code"]) == (404, "session-not-found")
        assert (await bob.get(S)).json() == {"sessions": []}
        assert (await bob.post(S, json={"sessionId": "s-1"})).status_code == 201  # one of the same name is his own
        stolen = await bob.post(S, json={"userId": "ann"})
        assert (stolen.status_code, stolen.json()["code"]) == (403, "user")
        async with client_of(url, "eve") as eve:
            assert (await eve.get(S)).status_code == 200
            refused = await eve.post(S, json={})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope")


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD", "PUT"])
async def test_a_rebound_name_and_a_foreign_page_are_refused_whatever_the_method(
    sessions: LiveSessions, method: str
) -> None:
    async with on_wire(contract_app(sessions)) as http:
        rebound = await http.request(method, "/agents", headers={"host": "evil.example:8000"})
        page = await http.request(method, "/agents", headers={"origin": "http://evil.example"})
        null = await http.request(method, "/agents", headers={"origin": "null"})
        image = await http.request(method, "/agents", headers={"sec-fetch-site": "cross-site"})
    assert [rebound.status_code, page.status_code, null.status_code, image.status_code] == [421, 403, 403, 403]


async def test_cors_opens_to_the_pages_that_are_named_and_no_others(sessions: LiveSessions) -> None:
    app = contract_app(sessions, verify=VERIFY, allowed_origins=["https://app.example"])
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    async with on_wire(app) as http:
        asked = await http.options(S, headers={"origin": "https://app.example", **ask})
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, "https://app.example")
        assert "access-control-allow-credentials" not in asked.headers
        foreign = await http.options(S, headers={"origin": "https://evil.example", **ask})
        assert (foreign.status_code, "access-control-allow-origin" in foreign.headers) == (403, False)


@pytest.mark.parametrize(
    "wrong", [["*"], "https://a.example,https://b.example", ["https://a.example,https://b.example"], ["a.example"]]
)
async def test_origins_that_cannot_be_meant_start_nothing(sessions: LiveSessions, wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        contract_app(sessions, allowed_origins=wrong)


def test_an_address_that_others_reach_needs_a_verifier() -> None:
    for address in ("127.0.0.1", "::1", "localhost"):
        check_exposure(address, None)
    for address in ("0.0.0.0", "::", "10.0.0.2", "", "example.com"):
        with pytest.raises(ConfigurationError):
            check_exposure(address, None)
        check_exposure(address, VERIFY)


async def test_a_body_is_counted_while_it_comes(sessions: LiveSessions) -> None:
    limits = Limits(body_bytes=1000)
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 500
            yield b" " * 500

    async with on_wire(contract_app(sessions, limits=limits)) as http:
        streamed = await http.post(S, content=body(), headers={"content-type": "application/json"})
        told = await http.post(S, content=b" " * 1001, headers={"content-type": "application/json"})
    for answer in (streamed, told):
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


async def test_too_many_requests_are_told_when_to_come_back(sessions: LiveSessions) -> None:
    limits = Limits(requests_per_s=0.001, burst=3)
    async with on_wire(contract_app(sessions, limits=limits)) as http:
        answers = [await http.get("/agents") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 1


async def test_every_answer_has_the_headers_that_keep_browsers_out(sessions: LiveSessions) -> None:
    async with on_wire(contract_app(sessions)) as http:
        for path in ("/agents", "/nothing", S + "/none"):
            headers = (await http.get(path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", "no-store")


async def test_a_defect_tells_an_id_and_nothing_else(
    sessions: LiveSessions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(sessions, "list", broken)
    async with on_wire(contract_app(sessions)) as http:
        answer = await http.get(S)
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.json()["incident"] in caplog.text


def test_a_ticket_is_for_one_path_one_time_and_a_short_while() -> None:
    now = 0.0
    tickets = Tickets(lifetime_s=30, clock=lambda: now)
    ann = Principal("ann")
    used, moved, late = (tickets.issue(ann, "/a") for _ in range(3))
    assert (tickets.take(used, "/a"), tickets.take(used, "/a")) == (ann, None)
    assert (tickets.take(moved, "/b"), tickets.take(moved, "/a")) == (None, None)
    now = 31.0
    assert tickets.take(late, "/a") is None


async def test_the_served_app_has_the_contract_below_api_under_the_names_of_its_address(sessions: LiveSessions) -> None:
    app = serve_app(sessions, verify=VERIFY, bound_to="10.0.0.2", agui=True)
    async with on_wire(app, authorization=f"Bearer {TOKENS['ann']}") as http:
        assert (await http.get("/api/agents", headers={"host": "10.0.0.2:8000"})).status_code == 200
        made = await http.post("/api" + S, json={"sessionId": "s-1"})
        assert made.headers["location"] == f"/api{S}/s-1"
        assert (await http.get("/api/agents", headers={"host": "evil.example"})).status_code == 421
        assert (await http.get("/")).json()["code"] == "not-found"
        assert (await http.post("/agui/scripted", json={})).status_code != 404
    with pytest.raises(ConfigurationError):
        serve_app(sessions, bound_to="10.0.0.2")


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("permissionMode", "autonomous"),
        ("hostToolExecution", False),
        ("prices", {"*": {"input": 0, "output": 0}}),
        ("grace", {}),
        ("loopDetection", False),
    ],
)
async def test_no_client_loosens_what_a_host_on_the_server_decides_by(where: str, value: Any) -> None:
    agent = ServedAgent("scripted", ScriptedExecutor([[Say("Hi.")]]), Host())
    loose = {where: value}
    async with LiveSessions([agent]) as sessions, on_wire(contract_app(sessions)) as http:
        session = (await http.post(S, json={"sessionId": "s"})).headers["location"]
        for path, body in (
            (S, {"sessionId": "t", "execution": loose}),
            (session + "/stream", {"input": "hi", "options": loose}),
            (session + "/load", {"execution": loose}),
            (session + "/fork", {"at": 1, "options": {"execution": loose}}),
        ):
            answer = await http.post(path, json=body)
            assert (answer.status_code, answer.json()["code"], answer.json()["where"]) == (403, "hosted", where), path
        assert len((await http.get(S)).json()["sessions"]) == 1
        assert (await http.get(session)).json()["state"] == "new"


async def test_no_client_sets_state_that_the_sessions_of_others_see() -> None:
    shown: list[Any] = []

    def look(context: ReadonlyContext) -> str:
        shown.append(context.state.get("app:motto"))
        return "Say hello."

    agent = LlmAgent(name="clerk", model=ScriptedLlm(forever=lambda request: say("Hello.")), instruction=look)
    async with LiveSessions([ServedAgent("clerk", AdkExecutor(agent))]) as sessions:
        app = contract_app(sessions, verify=VERIFY)
        async with (
            on_wire(app, authorization=f"Bearer {TOKENS['ann']}") as ann,
            on_wire(app, authorization=f"Bearer {TOKENS['bob']}") as bob,
        ):
            there = "/agents/clerk/sessions"
            session = (await bob.post(there, json={"sessionId": "s"})).headers["location"]
            evil = {"state": {"mine": 1, "app:motto": "evil"}}
            for method, path, body in (
                ("PATCH", session, evil),
                ("POST", there, {"execution": evil}),
                ("POST", session + "/load", {"execution": evil}),
                ("POST", session + "/fork", {"at": 1, "options": {"execution": evil}}),
                ("POST", session + "/stream", {"input": "hi", "options": evil}),
            ):
                answer = await bob.request(method, path, json=body)
                assert (answer.status_code, answer.json()["code"]) == (403, "shared-state"), path
            assert (await bob.patch(session, json={"state": {"mine": 1, "user:mine": 2}})).status_code == 200
            session = (await ann.post(there, json={})).headers["location"]
            await ann.post(session + "/stream", json={"input": "hi"})
            live = await sessions.get("clerk", "ann", session.rsplit("/", 1)[1])
            await live.at_rest()
    assert shown == [None]


async def test_no_client_says_where_a_host_on_the_server_works() -> None:
    agent = ServedAgent("scripted", ScriptedExecutor([[Say("Hi.")]]), Host())
    async with LiveSessions([agent]) as sessions, on_wire(contract_app(sessions)) as http:
        answer = await http.post(S, json={"workspace": "/"})
        assert (answer.status_code, answer.json()["code"], answer.json()["where"]) == (403, "hosted", "workspace")
        assert (await http.get(S)).json() == {"sessions": []}
