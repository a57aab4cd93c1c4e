"""Questions of ADK's own: input that an agent asks for, credentials that a tool needs. No secret stays anywhere."""

from __future__ import annotations

import json
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi.openapi.models import APIKey, OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import (
    Driven,
    agent,
    assert_valid_history,
    driven,
    history,
    host_tool,
    model_calls,
    verify,
)

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.protocol import (
    Answer,
    ElicitationRequest,
    HostCapabilities,
    MemoryRecordStore,
    OpenOptions,
    accept,
    decline,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

SECRET = "s3cret-key"
CONFIG = AuthConfig(
    auth_scheme=APIKey.model_validate({"in": "header", "name": "X-Key"}),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="the agent's own"),
    credential_key="weather",
)


def weather_tool(seen: list[str | None]) -> Any:
    def weather(city: str, tool_context: ToolContext) -> Any:
        """Tell the weather."""
        credential = tool_context.get_auth_response(CONFIG)
        seen.append(credential.api_key if credential is not None else None)
        if credential is None:
            tool_context.request_credential(CONFIG)
            return None
        return {"sky": "blue"}

    return weather


# -- input ------------------------------------------------------------------------------------------------------------


async def test_an_agent_asks_for_input_and_goes_on_with_it() -> None:
    root = agent(
        call("adk_request_input", {"message": "Which city?"}, id="c1"), say("Rome it is"), tools=[request_input]
    )
    async with driven(root) as desk:
        first = await desk.stream("go")
        (question,) = desk.session.pending
        assert isinstance(question, ElicitationRequest)
        assert (question.kind, question.message, first.reason) == ("clarification", "Which city?", "input_required")
        assert first.of("tool_request") == []
        second = await desk.stream(accept(question.request_id, {"city": "Rome"}))
        assert (second.reason, second.texts) == ("completed", ["Rome it is"])
        assert ("result c1", '{"city": "Rome"}') in history(root.model)
        assert_valid_history(root.model)


async def test_an_early_answer_to_a_question_for_input_goes_on_in_the_same_stream() -> None:
    root = agent(call("adk_request_input", {"message": "Which?"}, id="c1"), say("done"), tools=[request_input])
    async with driven(root) as desk:
        with anyio.fail_after(10):
            async with desk.session.stream("go") as turn:
                async for event in turn:
                    if isinstance(event, ElicitationRequest):
                        await desk.session.respond(accept(event.request_id, {"city": "Rome"}))
        assert turn.end is not None
        assert turn.end.reason == "completed"
        assert model_calls(root) == 2
        assert desk.types("stream_end") == ["stream_end"]


async def test_a_declined_question_for_input_tells_the_model_so() -> None:
    root = agent(call("adk_request_input", {"message": "Which?"}, id="c1"), say("fine"), tools=[request_input])
    async with driven(root) as desk:
        await desk.stream("go")
        assert (await desk.stream(decline(desk.pending("clarification")))).texts == ["fine"]
        assert ("result c1", '{"error": "decline"}') in history(root.model)


@pytest.mark.rule("TOOL-07", "TOOL-08")
@pytest.mark.parametrize("first", ["look", "clarification"])
async def test_input_and_a_host_tool_in_one_step_are_answered_in_any_order(first: str) -> None:
    root = agent(
        calls(call("adk_request_input", {"message": "Which?"}, id="c1"), call("look", id="c2")),
        say("done"),
        tools=[request_input],
    )
    async with driven(root, tools=[host_tool("look")]) as desk:
        await desk.stream("go")

        def make(name: str) -> Answer:
            asked = desk.pending(name)
            return result(asked, 1) if name == "look" else accept(asked, {"city": "Rome"})

        second = "clarification" if first == "look" else "look"
        assert (await desk.stream(make(first))).reason == "input_required"
        assert (await desk.stream(make(second))).texts == ["done"]
        assert_valid_history(root.model)


@pytest.mark.rule("HITL-07")
async def test_a_question_that_the_host_cannot_show_is_cancelled_and_the_turn_goes_on() -> None:
    root = agent(call("adk_request_input", {"message": "Which?"}, id="c1"), say("fine"), tools=[request_input])
    async with driven(root, options=OpenOptions(host=HostCapabilities(elicitation_kinds=[]))) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ["fine"])
        assert ("result c1", '{"error": "cancel"}') in history(root.model)


@pytest.mark.rule("HITL-07", "HITL-02")
async def test_a_confirmation_that_the_host_cannot_show_runs_nothing() -> None:
    ran: list[int] = []

    def write() -> str:
        ran.append(1)
        return "written"

    root = agent(call("write", id="c1"), say("fine"), tools=[FunctionTool(write, require_confirmation=True)])
    async with driven(root, options=OpenOptions(host=HostCapabilities(elicitation_kinds=[]))) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, ran, desk.responses()) == ("completed", [], {"write": "denied"})


@pytest.mark.rule("HITL-01", "SEC-01")
@pytest.mark.parametrize(
    ("name", "args"),
    [
        (
            "adk_request_confirmation",
            {
                "originalFunctionCall": {"id": "c9", "name": "write", "args": {}},
                "toolConfirmation": {"hint": "Say yes."},
            },
        ),
        ("adk_request_credential", {"functionCallId": "c9", "authConfig": CONFIG.model_dump(mode="json")}),
        ("adk_request_input", {"message": "Your password?"}),
    ],
)
async def test_a_question_that_the_model_forges_is_put_to_nobody(name: str, args: dict[str, Any]) -> None:
    def write() -> str:
        raise AssertionError("nobody allowed this")

    root = agent(call(name, args, id="f1"), say("ok"), tools=[write])
    async with driven(root) as desk:
        done = await desk.stream("go")
        assert (done.texts, done.of("elicitation_request")) == (["ok"], [])
        assert desk.responses() == {name: "failed"}
        assert_valid_history(root.model)


# -- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-01")
async def test_r14_a_tool_gets_the_credential_that_a_person_gave_and_nothing_else_does(tmp_path: Path) -> None:
    seen: list[str | None] = []
    root = agent(call("weather", {"city": "Rome"}, id="c1"), say("blue"), say("again"), tools=[weather_tool(seen)])
    path = tmp_path / "adk.db"
    async with driven(root, session_service=SqliteSessionService(str(path))) as desk:
        await desk.stream("go")
        paused = await desk.stream(grant(desk.pending("weather")))
        (question,) = desk.session.pending
        assert isinstance(question, ElicitationRequest)
        assert (question.kind, paused.reason) == ("auth_required", "input_required")
        assert seen == [None]
        credential = {"credential": {"type": "api_key", "api_key": SECRET}}
        done = await desk.stream(accept(question.request_id, credential))
        assert (done.reason, done.texts, seen) == ("completed", ["blue"], [None, SECRET])
        assert desk.responses() == {"weather": "completed"}
        assert (await desk.stream("next")).texts == ["again"]
        assert_valid_history(root.model)
        record = json.dumps([event.to_wire() for event in desk.session.record])
        assert SECRET not in record
        assert "the agent's own" not in record
        assert not any(SECRET in text for _, text in history(root.model))
    with sqlite3.connect(path) as database:
        stored = "".join(str(row) for row in database.execute("select event_data from events"))
        stored += "".join(str(row) for row in database.execute("select state from sessions"))
    database.close()
    assert SECRET not in stored


async def test_a_refused_credential_is_an_error_and_is_not_asked_for_again() -> None:
    seen: list[str | None] = []
    root = agent(call("weather", {"city": "Rome"}, id="c1"), say("sorry"), tools=[weather_tool(seen)])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("weather")))
        done = await desk.stream(decline(desk.pending("auth_required")))
        assert (done.reason, done.texts, seen) == ("completed", ["sorry"], [None])
        assert ("result c1", '{"error": "the user gave no credential for this call"}') in history(root.model)
        assert_valid_history(root.model)


async def test_a_tool_that_finds_its_credential_of_no_use_asks_again() -> None:
    seen: list[str | None] = []

    def weather(tool_context: ToolContext) -> Any:
        credential = tool_context.get_auth_response(CONFIG)
        seen.append(credential.api_key if credential is not None else None)
        if seen[-1] != SECRET:
            tool_context.request_credential(CONFIG)
            return None
        return {"sky": "blue"}

    root = agent(call("weather", id="c1"), say("blue"), tools=[weather])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("weather")))
        for given in ("expired", "expired too"):
            answer = accept(desk.pending("auth_required"), {"credential": {"type": "api_key", "value": given}})
            assert (await desk.stream(answer)).reason == "input_required"
        last = accept(desk.pending("auth_required"), {"credential": {"type": "api_key", "value": SECRET}})
        assert (await desk.stream(last)).texts == ["blue"]
        assert seen == [None, "expired", "expired too", SECRET]
        assert desk.responses() == {"weather": "completed"}
        assert_valid_history(root.model)


@pytest.mark.parametrize("parked", [False, True])
async def test_r79_r100_what_the_adapter_stores_in_adk_has_its_invocation_and_each_answer_is_there_once(
    parked: bool,
) -> None:
    """A result and a credential in one step are two messages to ADK; then an abort, whose calls the next turn seals."""
    step = calls(call("weather", {"city": "Rome"}, id="c1"), call("look", id="c2"))
    root = agent(step, call("look", id="c3"), say("next"), tools=[weather_tool([])])
    async with driven(root, tools=[host_tool("look")], parked=parked) as desk:
        await desk.stream("go")
        await desk.stream([grant(desk.pending("weather")), result(desk.pending("look"), "seen")])
        await desk.stream(accept(desk.pending("auth_required"), {"credential": {"type": "api_key", "value": SECRET}}))
        await desk.session.abort()
        assert (await desk.stream("next")).texts == ["next"]
        stored = await desk.executor.session_service.get_session(
            app_name="root", user_id=desk.session.user_id, session_id=desk.session.session_id
        )
        assert stored is not None
        assert all(event.invocation_id and event.id and event.timestamp for event in stored.events)
        assert len({event.id for event in stored.events}) == len(stored.events)
        answers = [response.id for event in stored.events for response in event.get_function_responses()]
        assert (answers.count("c2"), answers.count("c3")) == (1, 1)


@pytest.mark.rule("HITL-02", "HITL-03")
@pytest.mark.parametrize("loads", [0, 2])
@pytest.mark.parametrize("yes", [True, False])
async def test_a_credential_that_two_calls_wait_for_is_asked_for_once_and_is_for_both(
    yes: bool, loads: int, tmp_path: Path
) -> None:
    seen: list[str | None] = []
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    both = calls(call("weather", {"city": "Rome"}, id="c1"), call("weather", {"city": "Oslo"}, id="c2"))
    root = agent(both, say("ok"), tools=[weather_tool(seen)])

    def made() -> AdkExecutor:
        return AdkExecutor(root, session_service=service, store=store)

    def answer(desk: Driven) -> Answer:
        question = desk.pending("auth_required")
        return accept(question, {"credential": {"type": "api_key", "value": SECRET}}) if yes else decline(question)

    async with made() as executor:
        desk = Driven(executor, await executor.open(OpenOptions(session_id="s1")))
        await desk.stream("go")
        paused = await desk.stream([grant(item.request_id) for item in desk.session.pending])
        assert (paused.reason, paused.end.data) == ("input_required", None)
        if not loads:
            await desk.stream(answer(desk))
    for number in range(loads):
        async with made() as executor:
            desk = Driven(executor, await executor.load("s1"))
            if number == loads - 1:
                await desk.stream(answer(desk))
    assert desk.responses() == {"weather": "completed completed" if yes else "failed failed"}
    assert seen == [None, None, *([SECRET, SECRET] if yes else [])]
    told = '{"sky": "blue"}' if yes else '{"error": "the user gave no credential for this call"}'
    assert history(root.model)[-2:] == [("result c1", told), ("result c2", told)]
    verify(desk.session)


async def test_a_refused_credential_of_a_toolset_ends_the_turn_and_is_not_asked_for_for_ever() -> None:
    flow = OAuthFlowAuthorizationCode(authorizationUrl="https://a/auth", tokenUrl="https://a/token", scopes={})
    config = AuthConfig(
        auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=flow)),
        raw_auth_credential=AuthCredential(
            auth_type=AuthCredentialTypes.OAUTH2,
            oauth2=OAuth2Auth(client_id="me", client_secret=SECRET, redirect_uri="https://host/back"),
        ),
        credential_key="set",
    )

    class Guarded(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            return []

        def get_auth_config(self) -> AuthConfig:
            return config

    root = agent(say("never"), tools=[Guarded()])
    async with driven(root) as desk:
        for _ in range(2):
            assert (await desk.stream("go")).reason == "input_required"
            done = await desk.stream(decline(desk.pending("auth_required")))
            (told,) = done.of("error")
            assert (done.reason, told.status) == ("failed", "UNAUTHENTICATED")
        assert model_calls(root) == 0
        assert SECRET not in "".join(event.to_wire_json() for event in desk.session.record)


async def test_edited_arguments_are_kept_when_the_tool_runs_again_with_its_credential() -> None:
    cities: list[str] = []

    def weather(city: str, tool_context: ToolContext) -> Any:
        cities.append(city)
        if tool_context.get_auth_response(CONFIG) is None:
            tool_context.request_credential(CONFIG)
            return None
        return {"sky": "blue"}

    root = agent(call("weather", {"city": "Rome"}, id="c1"), say("blue"), tools=[weather])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("weather"), {"city": "Oslo"}))
        await desk.stream(accept(desk.pending("auth_required"), {"credential": {"type": "api_key", "value": SECRET}}))
        assert cities == ["Oslo", "Oslo"]


@pytest.mark.parametrize("where", ["child", "pipeline"])
@pytest.mark.parametrize("yes", [True, False])
async def test_a_credential_where_adk_would_lose_its_way_is_asked_inline(where: str, yes: bool) -> None:
    seen: list[str | None] = []
    inner = agent(
        call("weather", {"city": "Rome"}, id="k1"), say("inner done"), name="inner", tools=[weather_tool(seen)]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from google.adk.agents import SequentialAgent

        last = agent(say("last done"), name="last")
        pipeline: Any = SequentialAgent(name="pipe", sub_agents=[inner, last]) if where == "pipeline" else None
    root = pipeline or agent(call("inner", {"request": "x"}, id="c1"), say("last done"), tools=[AgentTool(inner)])
    async with driven(root) as desk:
        await desk.stream("go")
        await desk.stream(grant(desk.pending("weather")))
        (question,) = desk.session.pending
        content = {"credential": {"type": "api_key", "api_key": SECRET}}
        done = await desk.stream(accept(question.request_id, content) if yes else decline(question.request_id))
        assert done.texts == ["inner done", "last done"]
        assert seen == ([None, SECRET] if yes else [None])
        assert SECRET not in json.dumps([event.to_wire() for event in desk.session.record])


async def test_r44_a_credential_that_was_given_is_not_asked_for_by_later_talk() -> None:
    seen: list[str | None] = []
    root = agent(
        say("hello"), call("weather", {"city": "Rome"}, id="c1"), say("blue"), say("bye"), tools=[weather_tool(seen)]
    )
    async with driven(root) as desk:
        assert (await desk.stream("hey")).texts == ["hello"]
        await desk.stream("weather?")
        await desk.stream(grant(desk.pending("weather")))
        await desk.stream(accept(desk.pending("auth_required"), {"credential": {"type": "api_key", "value": SECRET}}))
        last = await desk.stream("thanks")
        assert (last.texts, desk.types("elicitation_request")) == (["bye"], ["elicitation_request"])


async def test_r46_a_credential_request_outlives_the_process_and_the_tool_gets_the_answer(tmp_path: Path) -> None:
    seen: list[str | None] = []
    store, path = MemoryRecordStore(), str(tmp_path / "adk.db")
    first = agent(call("weather", {"city": "Rome"}, id="c1"), tools=[weather_tool(seen)])
    async with AdkExecutor(first, session_service=SqliteSessionService(path), store=store) as executor:
        desk = Driven(executor, await executor.open(OpenOptions(session_id="s1")))
        await desk.stream("go")
        await desk.stream(grant(desk.pending("weather"), {"city": "Oslo"}))
        question = desk.pending("auth_required")
    second = agent(say("blue"), tools=[weather_tool(seen)])
    async with AdkExecutor(second, session_service=SqliteSessionService(path), store=store) as executor:
        desk = Driven(executor, await executor.load("s1"))
        assert desk.pending("auth_required") == question
        done = await desk.stream(accept(question, {"credential": {"type": "api_key", "value": SECRET}}))
        assert (done.reason, done.texts, seen) == ("completed", ["blue"], [None, SECRET])
        assert desk.responses() == {"weather": "completed"}
        assert_valid_history(second.model)
        verify(desk.session)
