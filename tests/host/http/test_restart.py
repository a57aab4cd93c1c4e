"""A server that is started again on the SQLite record of the one before: what clients find, and have to do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from tests.host.http.serving import SSE, client_of, frames, serving

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say
from agentsession.adapters.scripted import Ask, Call, Calls, Deltas, Say, ScriptedExecutor, Step
from agentsession.host import Host, SqliteRecordStore, allow_all
from agentsession.host.http import contract_app
from agentsession.host.live import LiveSessions, ServedAgent
from agentsession.protocol import AgentExecutor

pytestmark = pytest.mark.anyio

S = "/agents/scripted/sessions"
PICK = {"name": "pick", "description": "Let the user pick.", "parametersSchema": {"type": "object"}}
Script = Sequence[Sequence[Step]]


def pick(request: Any) -> Any:
    """In the place of a model: it has the user pick, and thanks them."""
    last = request.contents[-1].parts[-1]
    return say("Thanks.") if last.function_response else call("pick", {})


@contextlib.asynccontextmanager
async def server(path: Path, executor: AgentExecutor, host: Host | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
    """A server with nothing in memory of the one before."""
    async with SqliteRecordStore(path) as store:
        agent = ServedAgent("scripted", executor, host, store)
        async with (
            LiveSessions([agent]) as sessions,
            serving(contract_app(sessions)) as url,
            client_of(url) as http,
        ):
            yield http


async def read(http: httpx2.AsyncClient, session: str, **query: Any) -> list[Any]:
    """The events of a stream, to its end."""
    last = query.pop("last", None)
    headers = SSE if last is None else {**SSE, "last-event-id": str(last)}
    async with http.stream("GET", session + "/events", params=query, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        return [frame async for frame in frames(response)]


async def the_response(http: httpx2.AsyncClient, session: str) -> tuple[str, Any]:
    async with http.stream("GET", session + "/events", headers=SSE) as response:
        async for frame in frames(response):
            if frame.data["type"] == "tool_response":
                return frame.data["status"], frame.data["data"]
    raise AssertionError("no tool_response")


@pytest.mark.parametrize("how", ["patch", "load", "stream"])
async def test_a_client_declares_its_tools_again_before_it_answers_a_call_of_the_server_before(
    tmp_path: Path, how: str
) -> None:
    def executor() -> AgentExecutor:
        if how == "stream":
            return ScriptedExecutor([[Calls(Call("pick", {})), Say("Picked.")]], reenter=True)
        agent = LlmAgent(name="clerk", model=ScriptedLlm(forever=pick))
        return AdkExecutor(agent, session_service=SqliteSessionService(str(tmp_path / "adk.db")))

    path, host = tmp_path / "s.db", Host(policy=allow_all)
    async with server(path, executor(), host) as http:
        session = (await http.post(S, json={})).headers["location"]
        begun = (await http.post(session + "/stream", json={"input": "go", "options": {"tools": [PICK]}})).json()
        await read(http, session, streamId=begun["streamId"])
    async with server(path, executor(), host) as http:
        (asked,) = (await http.get(session)).json()["pending"]
        body: dict[str, Any] = {"answers": [{"kind": "tool_result", "requestId": asked["requestId"], "data": "red"}]}
        (early,) = (await http.post(session + "/respond", json=body)).json()["receipts"]
        assert early["status"] == "invalid"
        assert "PATCH" in early["reason"]
        if how != "stream":
            if how == "patch":
                assert (await http.patch(session, json={"tools": [PICK]})).json()["status"] == "applied"
            else:
                assert (await http.post(session + "/load", json={"execution": {"tools": [PICK]}})).status_code == 200
            (receipt,) = (await http.post(session + "/respond", json=body)).json()["receipts"]
        else:
            assert (await http.patch(session, json={"tools": [PICK]})).json()["status"] == "rejected"
            (early,) = (await http.post(session + "/respond", json=body)).json()["receipts"]
            assert early["status"] == "invalid"
            again = {"input": body["answers"], "options": {"tools": [PICK]}}
            (receipt,) = (await http.post(session + "/stream", json=again)).json()["receipts"]
        assert receipt["status"] == "applied"
        assert await the_response(http, session) == ("completed", "red")


@pytest.mark.parametrize("hosted", [False, True])
async def test_a_reader_goes_on_at_its_last_event_of_the_server_before(tmp_path: Path, hosted: bool) -> None:
    script: Script = [[Deltas(["one ", "two "]), Ask("Which?"), Say("That one.")], [Say("More.")]]
    host = Host() if hosted else None
    async with server(tmp_path / "s.db", ScriptedExecutor(script, reenter=True), host) as http:
        session = (await http.post(S, json={})).headers["location"]
        begun = (await http.post(session + "/stream", json={"input": "go"})).json()
        seen = await read(http, session, after=0, streamId=begun["streamId"])
        assert seen[-1].data["reason"] == "input_required"
        durable = [frame.data for frame in seen if not frame.data.get("partial")]
    async with server(tmp_path / "s.db", ScriptedExecutor(script, reenter=True), host) as http:
        # Where it stopped in the middle of the stream of before, and at its end.
        for last in (seen[2].id, seen[-1].id):
            page = (await http.get(session + "/events", params={"after": last})).json()["events"]
            assert page == [event for event in durable if event["seq"] > last]
        answer = {"kind": "elicitation_response", "requestId": durable[-1]["pending"][0], "action": "accept"}
        body = {"input": [{**answer, "content": {}}]}
        again = (await http.post(session + "/stream", json=body)).json()
        assert [receipt["status"] for receipt in again["receipts"]] == ["applied"]
        rest: list[Any] = []
        headers = {**SSE, "last-event-id": str(seen[-1].id)}
        async with http.stream("GET", session + "/events", headers=headers) as response:
            async for frame in frames(response):
                rest.append(frame)
                if frame.data["type"] == "stream_end":
                    break
        assert rest[0].id > seen[-1].id
        assert [frame.id for frame in rest] == sorted({frame.id for frame in rest})
        assert rest[-1].data["reason"] == "completed"
        now = (await http.get(session + "/events")).json()["events"]
        assert [frame.data for frame in rest if not frame.data.get("partial")] == [
            event for event in now if event["seq"] > seen[-1].id and not event.get("partial")
        ]
