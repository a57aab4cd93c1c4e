"""Requests that are malformed or hostile: each is refused with a reason, and the session of another stays as it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.host.http.serving import SSE, TOKENS, client_of, serving

from agentsession.adapters.scripted import Ask, Say, ScriptedExecutor
from agentsession.host.http import BearerTokens, Limits, Principal, contract_app
from agentsession.host.live import LiveSessions, ServedAgent

pytestmark = pytest.mark.anyio

S = "/agents/scripted/sessions"
VICTIM = S + "/victim"
OWN = S + "/own"
POSTS = ("load", "stream", "respond", "steer", "abort", "close", "rewind", "fork", "tickets")
IDS = (
    *("..%2f..%2fetc", "%2e%2e", "a%5cb", "a%25b", "%00", "a%0ab", "C:%5cx", "%ff%fe", "x" * 300, "%20a", "%7f"),
    *("a%2fb", "..;", "%c0%ae", "a%e2%80%ae", "none", "victim%00", "victim%20", "VICTIM", "victim%2f"),
    *("%252e%252e", "~", "own;victim", "own%3fvictim", "own%23", "%e2%80%8b", "%ed%a0%80", "ann:victim", "null", "0"),
)
BODIES = (
    *(b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b'{"a":NaN}', b'{"a":1e999}', b'{"a":1,"a":2}', b"\x00"),
    b'{"input":' + b"[" * 100_000,
    b'{"at":' + b"9" * 5000 + b"}",
    b'{"input":{"kind":"message","content":[{"type":"text","text":"\\ud800"}],"messageId":"/"}',
)
ANSWER = {"kind": "elicitation_response", "requestId": "x", "action": "accept"}
WRONG: dict[str, tuple[Any, ...]] = {
    "load": ({"userId": "ann"}, {"host": 1}, {"execution": []}, {"userId": "../ann"}),
    "stream": ({"input": 1}, {"input": []}, {"input": {"kind": "nope"}}, {"input": {}}, {"x": 1}, {"options": []}),
    "respond": ({}, {"answers": []}, {"answers": {}}, {"answers": [1]}, {"answers": [{"kind": "message"}]}),
    "steer": ({"message": 1}, {"message": [{"type": 1}]}, {"action": 1}),
    "abort": ({"reason": 1}, {"x": 1}, {"reason": []}),
    "close": ({"x": 1},),
    "rewind": ({}, {"to": -1}, {"to": "1"}, {"to": True}, {"to": 1e30}, {"to": 10**30}),
    "fork": ({}, {"at": -1}, {"at": None}, {"at": 1, "options": {"userId": "ann"}}, {"at": 1, "options": 1}),
    "tickets": ({"x": 1},),
}
Ask_ = tuple[str, str, dict[str, str], bytes | None]
JSON = {"content-type": "application/json"}


def hostile() -> Iterator[Ask_]:
    for name, (method, end) in itertools.product(
        IDS, (("GET", ""), ("GET", "/events"), ("PATCH", ""), ("DELETE", ""), *(("POST", "/" + one) for one in POSTS))
    ):
        yield method, f"{S}/{name}{end}", JSON, None if method in ("GET", "DELETE") else b"{}"
        yield method, f"/agents/{name}/sessions/own{end}", JSON, None if method in ("GET", "DELETE") else b"{}"
    for post, body in itertools.product(POSTS, BODIES):
        yield "POST", f"{OWN}/{post}", JSON, body
    for post, end in itertools.product(("", *POSTS), ("text/plain", "application/x-www-form-urlencoded", "")):
        yield "POST", OWN + "/" + post if post else S, {"content-type": end}, b"{}"
    for post, bodies in WRONG.items():
        for one in bodies:
            yield "POST", f"{OWN}/{post}", JSON, httpx2.Request("POST", "http://x", json=one).content
    answers = httpx2.Request("POST", "http://x", json={"answers": [ANSWER]}).content
    for post in POSTS:  # another's session
        for sent in (b"{}", b'{"to":1}', b'{"at":1}', answers, b'{"input":{"kind":"message","content":"hi"}}'):
            yield "POST", f"{VICTIM}/{post}", JSON, sent
        yield "POST", f"{OWN}/{post}", {**JSON, "host": "evil.example"}, b"{}"
        yield "POST", f"{OWN}/{post}", {**JSON, "origin": "http://evil.example"}, b"{}"
        yield "POST", f"{OWN}/{post}", {**JSON, "content-encoding": "gzip"}, b"{}"
        yield "POST", f"{OWN}/{post}", JSON, b" " * 20_000
        yield "POST", f"{OWN}/{post}", {**JSON, "authorization": "Bearer wrong"}, b"{}"
        for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD", "TRACE"):
            yield method, f"{OWN}/{post}", JSON, None
    for query in ("after=-1", "after=x", "after=1e3", "limit=0", "limit=9999", "follow=yes", "follow=true", "x=1"):
        yield "GET", f"{OWN}/events?{query}", {}, None
    for query in ("after=999999", "streamId=%2f", "after=1&after=2", "types=", "after=%FF", "ticket=x", "limit="):
        yield "GET", f"{OWN}/events?{query}", {}, None
    for last in ("-1", "x", "1.0", "0x1", "99999999999999999999", "999999"):
        yield "GET", f"{OWN}/events", {**SSE, "last-event-id": last}, None
    for method, path in (("GET", VICTIM), ("PATCH", VICTIM), ("DELETE", VICTIM), ("GET", VICTIM + "/events")):
        yield method, path, JSON, None if method != "PATCH" else b'{"title":"mine"}'


async def test_1000_hostile_requests_are_refused_with_a_reason_and_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    verify = BearerTokens({TOKENS["ann"]: Principal("ann"), TOKENS["eve"]: Principal("eve")})
    script = ScriptedExecutor([[Ask("Sure?"), Say("Done.")]], reenter=True)
    async with LiveSessions([ServedAgent("scripted", script)]) as sessions:
        app = contract_app(sessions, verify=verify, limits=Limits(burst=100_000, body_bytes=150_000))
        async with serving(app) as url, client_of(url, "ann") as ann, client_of(url, "eve") as eve:
            await ann.post(S, json={"sessionId": "victim"})
            hello = {"input": {"kind": "message", "content": "Hello."}}
            async with ann.stream("POST", VICTIM + "/stream", json=hello, headers=SSE) as turn:
                await turn.aread()
            await eve.post(S, json={"sessionId": "own"})
            before = [(await ann.get(VICTIM + "/events")).content, (await ann.get(VICTIM)).content]
            said: list[str] = []
            count = 0
            for method, path, headers, body in hostile():
                answer = await eve.request(method, path, headers=headers, content=body)
                told = (method, path, headers, (body or b"")[:60], answer.status_code, answer.text[:300])
                if path.startswith(OWN) and answer.status_code < 400:
                    # Empty bodies of own calls are none of an attack; what matters is that they are not 5xx.
                    assert body in (b"{}", b" " * 20_000, None), told
                    continue
                count += 1
                assert 400 <= answer.status_code < 500, told
                if method != "HEAD":
                    assert answer.headers["content-type"] == "application/problem+json", told
                    assert answer.json()["status"] == answer.status_code, told
                    assert answer.json()["detail"], told
                said.append(answer.text)
            assert [(await ann.get(VICTIM + "/events")).content, (await ann.get(VICTIM)).content] == before
            assert {info.key.session_id for info in await sessions.list("scripted", "ann")} == {"victim"}
    for token in TOKENS.values():
        assert token not in caplog.text
        assert not any(token in text for text in said)
    assert count >= 1000
