"""The routes against a real server and a real executor: a whole conversation, and what each call answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
from tests.host.http.serving import SSE, client_of, frames, serving

from agentsession.adapters.scripted import Ask, Deltas, Say, ScriptedExecutor, Step
from agentsession.host.http import Limits, contract_app
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import parse_event

pytestmark = pytest.mark.anyio

FORM = {"type": "object", "properties": {"where": {"enum": ["eu", "us"]}}, "required": ["where"]}
SCRIPT: list[list[Step]] = [
    [Deltas(["Hel", "lo"])],
    [Ask("Where to?", schema=FORM), Say("Going.")],
]
S = "/agents/scripted/sessions"
HELLO = {"input": {"kind": "message", "content": [{"type": "text", "text": "Hi."}]}}


@pytest.fixture
async def sessions() -> AsyncGenerator[LiveSessions]:
    async with LiveSessions([ServedAgent("scripted", ScriptedExecutor(SCRIPT, reenter=True))]) as found:
        yield found


@pytest.fixture
async def http(sessions: LiveSessions) -> AsyncGenerator[httpx2.AsyncClient]:
    async with serving(contract_app(sessions)) as url, client_of(url) as client:
        yield client


async def opened(http: httpx2.AsyncClient, **options: Any) -> str:
    answer = await http.post(S, json=options)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"{S}/{answer.json()['sessionId']}"
    return str(answer.headers["location"])


async def said(http: httpx2.AsyncClient, session: str, body: dict[str, Any] = HELLO) -> list[dict[str, Any]]:
    async with http.stream("POST", session + "/stream", json=body, headers=SSE) as response:
        assert response.status_code == 200, await response.aread()
        found = [frame async for frame in frames(response)]
    assert [found[0].name, found[0].id] == ["started", None]
    assert {frame.name for frame in found[1:]} == {"message"}
    events = [frame.data for frame in found[1:]]
    assert [frame.id for frame in found[1:]] == [event["seq"] for event in events]
    assert events[-1]["type"] == "stream_end"
    for event in events:
        parse_event(event)
    return events


async def test_a_message_streams_its_turn_back_to_who_sent_it(http: httpx2.AsyncClient) -> None:
    events = await said(http, await opened(http))
    assert [event["content"][0]["text"] for event in events if event["type"] == "message" and event["partial"]] == [
        "Hel",
        "lo",
    ]
    assert events[-1]["reason"] == "completed"


@pytest.mark.parametrize("given", ["go", '{"kind": "cancel", "requestId": "r"}'])
async def test_text_as_input_is_what_the_user_says(http: httpx2.AsyncClient, given: str) -> None:
    events = await said(http, await opened(http), {"input": given})
    spoken = [event["content"] for event in events if event["type"] == "message" and event["role"] == "user"]
    assert spoken == [[{"type": "text", "text": given}]]


async def test_without_sse_a_stream_is_begun_and_read_elsewhere(http: httpx2.AsyncClient) -> None:
    session = await opened(http)
    answer = await http.post(session + "/stream", json=HELLO)
    assert answer.status_code == 202
    begun = answer.json()
    query = {"after": begun["cursor"], "streamId": begun["streamId"]}
    async with http.stream("GET", session + "/events", params=query, headers=SSE) as response:
        found = [frame async for frame in frames(response)]
    assert {frame.data["streamId"] for frame in found} == {begun["streamId"]}
    assert found[-1].data["type"] == "stream_end"


async def test_a_question_waits_and_an_answer_goes_on(http: httpx2.AsyncClient) -> None:
    session = await opened(http)
    await said(http, session)
    events = await said(http, session)
    assert events[-1]["reason"] == "input_required"
    stands = (await http.get(session)).json()
    assert (stands["state"], stands["isHosted"]) == ("input_required", False)
    (waiting,) = stands["pending"]
    answer = {"kind": "elicitation_response", "requestId": waiting["requestId"], "action": "accept"}
    wrong = await http.post(session + "/respond", json={"answers": [{**answer, "content": {"where": "mars"}}]})
    assert (wrong.status_code, wrong.json()["receipts"][0]["status"]) == (200, "invalid")
    events = await said(http, session, {"input": [{**answer, "content": {"where": "eu"}}]})
    assert events[-1]["reason"] == "completed"
    again = await http.post(session + "/respond", json={"answers": [{**answer, "content": {"where": "eu"}}]})
    assert again.json()["receipts"][0]["status"] == "stale"


async def test_a_session_is_listed_changed_forked_rewound_closed_and_deleted(http: httpx2.AsyncClient) -> None:
    session = await opened(http, sessionId="s-1")
    await said(http, session)
    changed = await http.patch(session, json={"title": "Trip"})
    assert changed.json()["status"] == "applied"
    last = (await http.get(session)).json()["lastSeq"]
    fork = await http.post(session + "/fork", json={"at": last, "options": {"sessionId": "s-2"}})
    assert (fork.status_code, fork.headers["location"]) == (201, f"{S}/s-2")
    assert (await http.post(session + "/rewind", json={"to": 1})).json() == {"to": 1}
    listed = (await http.get(S)).json()["sessions"]
    assert {item["sessionId"] for item in listed} == {"s-1", "s-2"}
    assert (await http.post(session + "/close")).json() == {"state": "closed"}
    assert (await http.get(session)).json()["state"] == "idle"
    assert (await http.delete(session)).status_code == 204
    assert (await http.get(session)).status_code == 404


async def test_a_session_is_loaded_with_options_that_say_whom_it_can_ask(http: httpx2.AsyncClient) -> None:
    session = await opened(http)
    await said(http, session)
    deaf: dict[str, Any] = {"elicitationKinds": []}
    assert (await http.get(session)).json()["host"].get("elicitationKinds") is None
    loaded = await http.post(session + "/load", json={"host": deaf})
    assert (loaded.status_code, loaded.json()["host"]["elicitationKinds"]) == (200, [])
    events = await said(http, session)
    assert events[-1]["reason"] == "completed"
    assert [event["action"] for event in events if event["type"] == "elicitation_response"] == ["cancel"]
    assert (await http.post(S + "/none/load")).json()["code"] == "session-not-found"
    assert (await http.post(session + "/load", json={"userId": "eve"})).json()["code"] == "user"


async def test_steer_and_abort_answer_as_the_session_does(http: httpx2.AsyncClient) -> None:
    session = await opened(http)
    assert (await http.post(session + "/steer", json={"message": "faster"})).json()["status"] == "rejected"
    assert (await http.post(session + "/abort", json={"reason": "enough"})).json() == {"status": "idle"}


async def test_agents_say_what_they_are(http: httpx2.AsyncClient) -> None:
    (agent,) = (await http.get("/agents")).json()["agents"]
    assert (agent["name"], agent["isHosted"], agent["descriptor"]["executor"]) == ("scripted", False, "scripted")


async def test_a_page_of_the_record_goes_on_at_its_cursor(http: httpx2.AsyncClient) -> None:
    session = await opened(http)
    await said(http, session)
    whole = (await http.get(session + "/events")).json()
    assert (whole["more"], whole["cursor"]) == (False, whole["lastSeq"])
    seen: list[Any] = []
    cursor = 0
    while True:
        page = (await http.get(session + "/events", params={"after": cursor, "limit": 2})).json()
        seen += page["events"]
        cursor = page["cursor"]
        if not page["more"]:
            break
    assert seen == whole["events"]


async def test_every_cursor_resumes_and_a_reader_that_has_had_all_is_told_to_stop(http: httpx2.AsyncClient) -> None:
    session = await opened(http)
    await said(http, session)
    whole = (await http.get(session + "/events")).json()["events"]
    last = whole[-1]["seq"]
    for cursor in range(last):
        headers = {**SSE, "last-event-id": str(cursor)}
        query = {"follow": "false", "after": "999999"}  # Last-Event-ID beats it
        async with http.stream("GET", session + "/events", params=query, headers=headers) as response:
            found = [frame.data async for frame in frames(response)]
        assert [one for one in found if one["seq"] in {event["seq"] for event in whole}] == [
            event for event in whole if event["seq"] > cursor
        ]
    for query in ({"follow": "false"}, {"streamId": whole[-1]["streamId"]}):
        done = await http.get(session + "/events", params=query, headers={**SSE, "last-event-id": str(last)})
        assert (done.status_code, done.content) == (204, b"")
    gone = await http.get(session + "/events", headers={**SSE, "last-event-id": str(last + 1)})
    assert (gone.status_code, gone.json()["code"]) == (410, "cursor-gone")


async def test_a_ticket_reads_the_events_of_one_session_once(http: httpx2.AsyncClient) -> None:
    session = await opened(http)
    answer = await http.post(session + "/tickets")
    assert answer.status_code == 201
    query = {"ticket": answer.json()["ticket"], "follow": "false"}
    async with http.stream("GET", session + "/events", params=query, headers=SSE) as response:
        assert [frame.data["type"] async for frame in frames(response)] == ["initialize"]
    assert (await http.get(session + "/events", params=query, headers=SSE)).status_code == 401
    query["ticket"] = (await http.post(session + "/tickets")).json()["ticket"]
    assert (await http.get(session, params={"ticket": query["ticket"]})).status_code == 401


async def test_a_key_gives_the_first_answer_again_and_refuses_another_body(http: httpx2.AsyncClient) -> None:
    key = {"idempotency-key": "k-1"}
    first = await http.post(S, json={}, headers=key)
    again = await http.post(S, json={}, headers=key)
    assert again.json() == first.json()
    assert (again.headers["idempotent-replayed"], again.headers["location"]) == ("true", first.headers["location"])
    other = await http.post(S, json={"workspace": "x"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")
    session = first.headers["location"]
    begun = await http.post(session + "/stream", json=HELLO, headers=key)
    assert (await http.post(session + "/stream", json=HELLO, headers=key)).json() == begun.json()


@pytest.mark.parametrize("first_is_sse", [True, False])
@pytest.mark.parametrize("second_is_sse", [True, False])
async def test_a_key_of_a_stream_stands_for_one_body_however_it_is_read(
    http: httpx2.AsyncClient, first_is_sse: bool, second_is_sse: bool
) -> None:
    session = await opened(http)
    key = {"idempotency-key": "k-1"}
    first = await http.post(session + "/stream", json=HELLO, headers={**key, **(SSE if first_is_sse else {})})
    assert first.status_code in (200, 202)
    given = {**key, **(SSE if second_is_sse else {})}
    other = await http.post(session + "/stream", json={"input": "Something else."}, headers=given)
    assert (other.status_code, other.json()["code"]) == (422, "key-reused")
    again = await http.post(session + "/stream", json=HELLO, headers=given)
    assert again.headers["idempotent-replayed"] == "true"


async def test_answers_that_are_sent_again_under_their_key_give_the_same_stream(http: httpx2.AsyncClient) -> None:
    session = await opened(http)
    await said(http, session)
    (waiting,) = [one for one in await said(http, session) if one["type"] == "elicitation_request"]
    answer = {"kind": "elicitation_response", "requestId": waiting["requestId"], "action": "accept"}
    body = {"input": [{**answer, "content": {"where": "eu"}}]}
    read: list[list[Any]] = []
    for _ in range(2):
        response = await http.post(session + "/stream", json=body, headers={**SSE, "idempotency-key": "k-1"})
        assert response.status_code == 200, response.text
        read.append([frame.data async for frame in frames(response) if not frame.data.get("partial")])
    assert read[0] == read[1]
    assert read[1][-1]["reason"] == "completed"


async def test_a_change_that_is_sent_again_under_its_key_is_made_once(http: httpx2.AsyncClient) -> None:
    session = await opened(http)
    key = {"idempotency-key": "k-1"}
    first = await http.patch(session, json={"title": "One"}, headers=key)
    assert first.status_code == 200, first.text
    last = (await http.get(session)).json()["lastSeq"]
    again = await http.patch(session, json={"title": "One"}, headers=key)
    assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
    assert (await http.get(session)).json()["lastSeq"] == last


async def test_a_message_with_a_key_runs_once_whatever_server_remembers(sessions: LiveSessions) -> None:
    key = {"idempotency-key": "k-1"}
    begun: list[dict[str, Any]] = []
    session = ""
    for _ in range(2):  # a new app knows no keys
        async with serving(contract_app(sessions)) as url, client_of(url) as http:
            session = session or await opened(http)
            answer = await http.post(session + "/stream", json=HELLO, headers=key)
            assert answer.status_code == 202, answer.text
            begun.append(answer.json())
            query = {"streamId": begun[0]["streamId"]}
            async with http.stream("GET", session + "/events", params=query, headers=SSE) as response:
                messages = [f async for f in frames(response) if f.data.get("role") == "user"]
            assert len(messages) == 1
    assert [item["turnId"] for item in begun] == [begun[0]["turnId"]] * 2


async def test_a_stream_that_is_refused_for_its_readers_has_not_begun(sessions: LiveSessions) -> None:
    async with serving(contract_app(sessions, limits=Limits(readers=0))) as url, client_of(url) as http:
        session = await opened(http)
        answer = await http.post(session + "/stream", json=HELLO, headers=SSE)
        assert (answer.status_code, answer.json()["code"]) == (429, "too-many-readers")
        assert (await http.get(session)).json()["lastSeq"] == 1


@pytest.mark.parametrize(
    ("path", "code", "look"),
    [
        ("/nope", "not-found", "openapi.json"),
        ("/agents/nope/sessions", "agent-not-found", "GET agents"),
        (S + "/nope", "session-not-found", "list the sessions"),
    ],
)
async def test_what_is_not_there_is_answered_with_where_to_look(
    http: httpx2.AsyncClient, path: str, code: str, look: str
) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, code)
    assert look in answer.json()["fix"]
