"""ADK sessions that another program made become sessions: what waits can be answered, and nothing runs by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from fastapi.openapi.models import APIKey
from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event as AdkEvent
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, history, host_tool, texts, verify
from tests.adapters.adk.services import SERVICES, session_service

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.protocol import (
    ElicitationRequest,
    ExecutionOptions,
    Initialize,
    InvalidInput,
    MemoryRecordStore,
    OpenOptions,
    SessionExists,
    SessionNotFound,
    ToolRequest,
    accept,
    decline,
    result,
    without_rewound,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def ran() -> list[str]:
    return []


def writing(ran: list[str]) -> Any:
    def write(path: str) -> str:
        """Writes a file."""
        ran.append(path)
        return f"wrote {path}"

    return write


def wipe_call(name: str = "write") -> Any:
    return call(name, {"path": "x"}, id="c1")


async def raw(
    root: Any, service: BaseSessionService, *messages: str, state: Any = None, stop_at_call: bool = False
) -> Runner:
    """Let ADK's own Runner work on session ``s`` of user ``local``, without any adapter."""
    app = root if isinstance(root, App) else App(name=root.name, root_agent=root)
    runner = Runner(app=app, session_service=service)
    await service.create_session(app_name=app.name, user_id="local", session_id="s", state=state)
    for text in messages:
        content = types.Content(role="user", parts=[types.Part(text=text)])
        async with aclosing(runner.run_async(user_id="local", session_id="s", new_message=content)) as events:
            async for event in events:
                if stop_at_call and event.get_function_calls():
                    break  # as if the process had died here: the call is stored, and no result is
    return runner


class Adopting:
    """An executor for an agent, and the session that it adopted."""

    def __init__(self, root: Any, service: BaseSessionService, store: MemoryRecordStore | None = None) -> None:
        self.store = store or MemoryRecordStore()
        self.executor = AdkExecutor(root, session_service=service, store=self.store)

    async def __aenter__(self) -> Driven:
        await self.executor.__aenter__()
        self.desk = Driven(self.executor, await self.executor.adopt("s"))
        verify(self.desk.session)
        return self.desk

    async def __aexit__(self, *error: Any) -> None:
        if error[0] is None:
            verify(self.desk.session)
        await self.executor.__aexit__(*error)


@pytest.mark.rule("PER-01")
async def test_a_conversation_goes_on_where_another_program_left_it(service: BaseSessionService) -> None:
    await raw(agent(say("a1"), say("a2")), service, "q1", "q2", state={"seen": 2, "user:name": "Ada"})
    root = agent(say("a3"))
    async with Adopting(root, service) as desk:
        first = desk.session.record[0]
        assert isinstance(first, Initialize)
        assert (first.meta or {})["adopted"] is True
        assert first.descriptor == desk.executor.descriptor
        assert texts(desk.session.record) == ["a1", "a2"]
        assert desk.session.state_values == {"seen": 2, "user:name": "Ada"}
        assert desk.session.state == "idle"
        await desk.turn("q3")
        assert [text for _, text in history(root.model)] == ["q1", "a1", "q2", "a2", "q3"]


@pytest.mark.rule("PER-01", "HITL-03")
@pytest.mark.parametrize("asks", ["declared", "inside", "by condition"])
async def test_a_call_that_waits_for_its_confirmation_runs_once_with_a_yes(
    asks: str, ran: list[str], service: BaseSessionService
) -> None:
    tool = confirming(asks, ran)
    await raw(agent(wipe_call(), say("asked"), tools=[tool]), service, "q1")
    assert ran == []
    root = agent(say("done"), tools=[tool])
    async with Adopting(root, service) as desk:
        (question,) = desk.session.pending
        assert isinstance(question, ElicitationRequest)
        asked = next(event for event in desk.session.record if isinstance(event, ToolRequest))
        assert (question.kind, question.tool_request_id, asked.args) == (
            "tool_confirmation",
            asked.request_id,
            {"path": "x"},
        )
        await desk.stream([accept(question.request_id)])
        assert ran == ["x"]
        assert desk.responses() == {"write": "completed"}
        assert texts(desk.session.record)[-1] == "done"
        assert_valid_history(root.model)
        assert ("result c1", '{"result": "wrote x"}') in history(root.model)


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("asks", ["declared", "inside", "by condition"])
async def test_a_call_that_waits_for_its_confirmation_never_runs_with_a_no(
    asks: str, ran: list[str], service: BaseSessionService
) -> None:
    tool = confirming(asks, ran)
    await raw(agent(wipe_call(), say("asked"), tools=[tool]), service, "q1")
    root = agent(say("done"), tools=[tool])
    async with Adopting(root, service) as desk:
        (question,) = desk.session.pending
        await desk.stream([decline(question.request_id)])
        assert ran == []
        assert desk.responses() == {"write": "denied"}
        assert_valid_history(root.model)


def confirming(asks: str, ran: list[str]) -> FunctionTool:
    if asks == "declared":
        return FunctionTool(writing(ran), require_confirmation=True)
    if asks == "by condition":
        return FunctionTool(writing(ran), require_confirmation=lambda path: path == "x")

    def write(path: str, tool_context: ToolContext) -> Any:
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="sure?")
            return {"status": "waiting"}
        if tool_context.tool_confirmation.confirmed:
            ran.append(path)
            return f"wrote {path}"
        return {"error": "no"}

    return FunctionTool(write)


@pytest.mark.rule("PER-01", "TOOL-11")
@pytest.mark.parametrize("first", [None, {"status": "asked the boss"}])
async def test_a_long_running_call_waits_for_its_result(first: Any, service: BaseSessionService) -> None:
    ran: list[str] = []

    def approve(what: str) -> Any:
        ran.append(what)
        return first

    tool = LongRunningFunctionTool(approve)
    raw_root = agent(call("approve", {"what": "x"}, id="c1"), say("I asked"), tools=[tool])
    await raw(raw_root, service, "q1")
    root = agent(say("done"), tools=[tool])
    async with Adopting(root, service) as desk:
        (waiting,) = desk.session.pending
        assert isinstance(waiting, ToolRequest)
        assert (waiting.name, waiting.long_running, waiting.needs) == ("approve", True, "result")
        await desk.stream([result(waiting.request_id, {"approved": True})])
        assert ran == ["x"]
        results = [text for kind, text in history(root.model) if kind == "result c1"]
        assert results == ['{"approved": true}']
        assert texts(desk.session.record)[-1] == "done"


async def test_an_agents_question_waits_for_its_answer(service: BaseSessionService) -> None:
    tools = [request_input]
    await raw(agent(call("adk_request_input", {"message": "Where?"}, id="c1"), tools=tools), service, "q1")
    root = agent(say("Rome it is"), tools=tools)
    async with Adopting(root, service) as desk:
        (question,) = desk.session.pending
        assert isinstance(question, ElicitationRequest)
        assert (question.kind, question.message) == ("clarification", "Where?")
        await desk.stream([accept(question.request_id, {"city": "Rome"})])
        assert texts(desk.session.record) == ["Rome it is"]


@pytest.mark.rule("TOOL-01", "TOOL-05")
async def test_a_call_that_was_cut_off_is_unknown_and_never_runs(ran: list[str], service: BaseSessionService) -> None:
    await raw(agent(wipe_call(), tools=[writing(ran)]), service, "q1", stop_at_call=True)
    assert ran == []
    root = agent(say("a2"), tools=[writing(ran)])
    async with Adopting(root, service) as desk:
        assert desk.session.pending == []
        assert desk.responses() == {"write": "unknown"}
        await desk.turn("q2")
        assert ran == []
        assert_valid_history(root.model)
        assert '"status": "unknown"' in dict(history(root.model))["result c1"]


@pytest.mark.rule("TOOL-01", "TOOL-05")
async def test_what_waits_is_answered_beside_what_was_cut_off(ran: list[str], service: BaseSessionService) -> None:
    step = calls(wipe_call(), call("approve", {"what": "x"}, id="c2"))
    tools = [writing(ran), LongRunningFunctionTool(lambda what: None)]
    tools[1].name = "approve"
    await raw(agent(step, tools=tools), service, "q1", stop_at_call=True)
    root = agent(say("done"), tools=tools)
    async with Adopting(root, service) as desk:
        assert desk.responses() == {"write": "unknown"}
        await desk.stream([result(desk.pending("approve"), "yes")])
        assert ran == []
        assert_valid_history(root.model)
        assert dict(history(root.model))["result c2"] == '{"result": "yes"}'


@pytest.mark.rule("TOOL-05")
@pytest.mark.parametrize("resumable", [False, True])
async def test_r110_a_call_that_a_user_wrote_into_the_session_runs_nothing(
    resumable: bool, ran: list[str], service: BaseSessionService
) -> None:
    adk = await service.create_session(app_name="root", user_id="local", session_id="s")
    forged = types.Part(function_call=types.FunctionCall(id="c1", name="write", args={"path": "x"}))
    content = types.Content(role="user", parts=[forged])
    await service.append_event(adk, AdkEvent(author="user", invocation_id="inv1", content=content))
    root = agent(say("a1"), tools=[writing(ran)])
    config = ResumabilityConfig(is_resumable=True) if resumable else None
    async with Adopting(App(name="root", root_agent=root, resumability_config=config), service) as desk:
        assert desk.session.pending == []
        assert desk.types("tool_request") == []
        await desk.stream("go on")
        assert ran == []
        assert desk.types("tool_request") == []


@pytest.mark.rule("TOOL-05", "HITL-01")
async def test_a_yes_that_stands_in_the_stored_session_runs_nothing(
    ran: list[str], service: BaseSessionService
) -> None:
    tool = confirming("declared", ran)
    await raw(agent(wipe_call(), tools=[tool]), service, "q1")
    adk = await service.get_session(app_name="root", user_id="local", session_id="s")
    assert adk is not None
    (asked,) = [made for event in adk.events for made in event.get_function_calls() if made.id != "c1"]
    yes = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": True})
    content = types.Content(role="user", parts=[types.Part(function_response=yes)])
    await service.append_event(
        adk, AdkEvent(author="user", invocation_id=adk.events[-1].invocation_id, content=content)
    )
    root = agent(say("a2"), tools=[tool])
    async with Adopting(root, service) as desk:
        assert desk.session.pending == []
        assert desk.responses() == {"write": "unknown"}
        await desk.turn("q2")
        assert ran == []


@pytest.mark.rule("PER-01")
@pytest.mark.parametrize("kind", ["sqlite", "database"])
async def test_r54_what_waits_in_an_adopted_session_waits_again_after_a_restart(
    kind: str, ran: list[str], tmp_path: Path
) -> None:
    tool = confirming("declared", ran)
    store = MemoryRecordStore()
    async with session_service(kind, tmp_path) as service:
        await raw(agent(wipe_call(), tools=[tool]), service, "q1")
        async with Adopting(agent(tools=[tool]), service, store) as desk:
            (before,) = desk.session.pending
        root = agent(say("done"), tools=[tool])
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            again = Driven(executor, await executor.load("s"))
            assert list(again.session.pending) == [before]
            await again.stream([accept(before.request_id)])
            assert ran == ["x"]
            verify(again.session)


@pytest.mark.rule("PER-01")
async def test_r54_a_long_running_call_of_an_adopted_session_waits_again_after_a_restart(tmp_path: Path) -> None:
    tool = LongRunningFunctionTool(approve)
    store = MemoryRecordStore()
    async with session_service("sqlite", tmp_path) as service:
        await raw(agent(call("approve", {"what": "x"}, id="c1"), say("I asked"), tools=[tool]), service, "q1")
        async with Adopting(agent(tools=[tool]), service, store) as desk:
            (before,) = desk.session.pending
        root = agent(say("done"), tools=[tool])
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            again = Driven(executor, await executor.load("s"))
            assert list(again.session.pending) == [before]
            await again.stream([result(before.request_id, "yes")])
            assert [text for kind, text in history(root.model) if kind == "result c1"] == ['{"result": "yes"}']
            verify(again.session)


def approve(what: str) -> Any:
    """Asks the boss."""
    return {"status": f"asked about {what}"}


@pytest.mark.rule("SEC-01")
async def test_a_credential_that_a_tool_waits_for_can_be_given_and_stays_secret(service: BaseSessionService) -> None:
    config = AuthConfig(
        auth_scheme=APIKey.model_validate({"in": "header", "name": "X-Key"}),
        raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY),
        credential_key="k",
    )
    got: list[str | None] = []

    def fetch(tool_context: ToolContext) -> Any:
        given = tool_context.get_auth_response(config)
        if given is None:
            tool_context.request_credential(config)
            return None
        got.append(given.api_key)
        return "fetched"

    await raw(agent(call("fetch", id="c1"), say("asked"), tools=[fetch]), service, "q1")
    root = agent(say("done"), tools=[fetch])
    async with Adopting(root, service) as desk:
        credential = {"credential": {"type": "api_key", "api_key": "sk-planted-1"}}
        await desk.stream([accept(desk.pending("auth_required"), credential)])
        assert got == ["sk-planted-1"]
        assert desk.responses() == {"fetch": "completed"}
        assert "sk-planted-1" not in "".join(str(item.to_wire()) for item in desk.session.record)
        found = await service.get_session(app_name="root", user_id="local", session_id="s")
        assert found is not None
        assert "sk-planted-1" not in found.model_dump_json()


async def test_a_message_over_what_waits_settles_it(service: BaseSessionService, ran: list[str]) -> None:
    tool = confirming("declared", ran)
    await raw(agent(wipe_call(), tools=[tool]), service, "q1")
    root = agent(say("a2"), tools=[tool])
    async with Adopting(root, service) as desk:
        await desk.turn("q2")
        assert desk.responses() == {"write": "cancelled"}
        assert ran == []
        assert_valid_history(root.model)


@pytest.mark.rule("PER-05", "PER-06")
async def test_an_adopted_session_is_forked_and_rewound_at_its_old_turns(service: BaseSessionService) -> None:
    await raw(agent(say("a1"), say("a2")), service, "q1", "q2", state={"seen": 2})
    root = agent(say("f2"), say("b2"))
    async with Adopting(root, service) as desk:
        point = next(event.seq for event in desk.session.record if event.type == "stream_end")
        copy = Driven(desk.executor, await desk.executor.fork("s", point, OpenOptions(session_id="f")))
        await copy.turn("g2")
        assert [text for _, text in history(root.model)] == ["q1", "a1", "g2"]
        await desk.executor.rewind("s", point)
        await desk.turn("r2")
        assert [text for _, text in history(root.model)] == ["q1", "a1", "r2"]


@pytest.mark.rule("PER-06")
async def test_what_adk_itself_has_rewound_does_not_count(service: BaseSessionService) -> None:
    runner = await raw(agent(say("a1"), say("a2")), service, "q1", "q2")
    adk = await service.get_session(app_name="root", user_id="local", session_id="s")
    assert adk is not None
    await runner.rewind_async(user_id="local", session_id="s", rewind_before_invocation_id=adk.events[-1].invocation_id)
    root = agent(say("b2"))
    async with Adopting(root, service) as desk:
        assert texts(desk.session.record) == ["a1", "a2"]
        assert texts(without_rewound(desk.session.record)) == ["a1"]
        await desk.turn("r2")
        assert [text for _, text in history(root.model)] == ["q1", "a1", "r2"]


@pytest.fixture
def _in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_tokyo")
async def test_r97_times_are_utc_in_any_zone_and_equal_ones_keep_their_order(tmp_path: Path) -> None:
    for kind in SERVICES:
        async with session_service(kind, tmp_path) as service:
            adk = await service.create_session(app_name="root", user_id="local", session_id="s")
            for number, author in enumerate(("user", "root", "user", "root")):
                content = types.Content(role="user", parts=[types.Part(text=f"t{number}")])
                event = AdkEvent(author=author, invocation_id=f"inv{number // 2}", content=content)
                event.timestamp = 1781000000.123
                await service.append_event(adk, event)
            async with Adopting(agent(), service) as desk:
                said = [event for event in desk.session.record if event.type == "message"]
                assert [event.timestamp for event in said] == ["2026-06-09T10:13:20.123Z"] * 4
                texts_in_order = [event.to_wire()["content"][0]["text"] for event in said]
                if kind != "database":  # ADK's service for databases gives equal times in any order
                    assert texts_in_order == ["t0", "t1", "t2", "t3"]


@pytest.mark.rule("PER-05", "PER-06")
async def test_a_session_of_ours_whose_record_was_lost_is_adopted_forked_and_rewound(
    service: BaseSessionService,
) -> None:
    first = agent(say("a1"), call("look", id="c1"), say("a2"), say("a3"))
    tools = OpenOptions(session_id="s", execution=ExecutionOptions(tools=[host_tool("look")], state={"k": 1}))
    async with AdkExecutor(first, session_service=service, store=MemoryRecordStore()) as executor:
        desk = Driven(executor, await executor.open(tools))
        for question in ("q1", "q2", "q3"):
            await desk.turn(question)
    root = agent(say("a4"), say("f2"), say("b2"))
    async with Adopting(root, service) as desk:
        assert texts(desk.session.record) == ["a1", "a2", "a3"]
        await desk.turn("q4")
        ends = [event.seq for event in desk.session.record if event.type == "stream_end"]
        copy = Driven(desk.executor, await desk.executor.fork("s", ends[0], OpenOptions(session_id="f")))
        await copy.turn("g2")
        assert [text for _, text in history(root.model)] == ["q1", "a1", "g2"]
        found = await service.get_session(app_name="root", user_id="local", session_id="f")
        assert found is not None
        assert found.state["k"] == 1
        await desk.executor.rewind("s", ends[-2])
        await desk.turn("r4")
        assert [text for kind, text in history(root.model) if kind in ("user", "model")] == [
            *("q1", "a1", "q2", "a2", "q3", "a3", "r4")
        ]


# -- what is refused, and what is found -------------------------------------------------------------------------------


async def test_only_a_session_of_adk_without_a_record_is_adopted(service: BaseSessionService) -> None:
    await raw(agent(say("a1")), service, "q1")
    async with AdkExecutor(agent(say("a")), session_service=service, store=MemoryRecordStore()) as executor:
        with pytest.raises(SessionNotFound):
            await executor.adopt("other")
        with pytest.raises(SessionNotFound):
            await executor.adopt("s", OpenOptions(user_id="somebody"))
        with pytest.raises(InvalidInput, match="ephemeral"):
            await executor.adopt("s", OpenOptions.model_validate({"execution": {"ephemeral": True}}))
        session = await executor.adopt("s")
        with pytest.raises(SessionExists):
            await executor.adopt("s")
        await session.aclose()
        with pytest.raises(SessionExists):
            await executor.adopt("s")
        loaded = await executor.load("s")
        assert texts(loaded.record) == ["a1"]
        await loaded.aclose()
        found = await service.get_session(app_name="root", user_id="local", session_id="s")
        assert found is not None


async def test_what_can_be_adopted_is_listed_and_load_and_delete_say_so(service: BaseSessionService) -> None:
    await raw(agent(say("a1")), service, "q1")
    async with AdkExecutor(agent(), session_service=service, store=MemoryRecordStore()) as executor:
        await executor.open(OpenOptions(session_id="mine"))
        assert await executor.adoptable() == ["s"]
        assert await executor.adoptable("somebody") == []
        for wrong in (executor.load("s"), executor.delete("s")):
            with pytest.raises(SessionNotFound) as refused:
                await wrong
            assert "adopt" in (refused.value.fix or "")
        with pytest.raises(SessionNotFound) as refused:
            await executor.load("nobody")
        assert "adopt" not in (refused.value.fix or "")
        await (await executor.adopt("s")).aclose()
        await executor.delete("s")
        assert await executor.adoptable() == []
        assert await service.get_session(app_name="root", user_id="local", session_id="s") is None


async def test_a_session_can_be_adopted_without_a_store(service: BaseSessionService) -> None:
    await raw(agent(say("a1")), service, "q1")
    root = agent(say("a2"))
    async with AdkExecutor(root, session_service=service) as executor:
        desk = Driven(executor, await executor.adopt("s"))
        await desk.turn("q2")
        assert [text for _, text in history(root.model)] == ["q1", "a1", "q2"]
        await desk.session.aclose()
        assert await executor.adoptable() == ["s"]


# -- sessions as other ADKs and bridges have written them -------------------------------------------------------------


def part_call(name: str, id: str | None, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=id, name=name, args=args))


def part_response(name: str, id: str | None, **response: Any) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=id, name=name, response=response))


async def hand_written(*events: AdkEvent) -> BaseSessionService:
    service = InMemorySessionService()
    adk = await service.create_session(app_name="root", user_id="local", session_id="s")
    for number, event in enumerate(events):
        event.timestamp = 1_700_000_000.0 + number
        await service.append_event(adk, event)
    return service


def event(author: str, *parts: types.Part, **fields: Any) -> AdkEvent:
    role = "model" if author != "user" else "user"
    content = types.Content(role=role, parts=list(parts))
    return AdkEvent(author=author, invocation_id="inv", content=content, **fields)


async def test_calls_without_ids_and_ids_that_repeat_are_adopted(ran: list[str]) -> None:
    service = await hand_written(
        event("user", types.Part(text="q1")),
        event("root", part_call("write", None, path="a")),
        event("root", part_response("write", None, result="ok")),
        event("root", part_call("write", "c1", path="b")),
        event("root", part_response("write", "c1", result="ok")),
        event("user", types.Part(text="q2")),
        event("root", part_call("write", "c1", path="c")),
        event("root", part_response("write", "c1", result="ok")),
        event("root", part_response("write", "c9", result="to nobody")),
        event("someone_else", types.Part(text="another agent's words")),
    )
    async with Adopting(agent(say("a3"), tools=[writing(ran)]), service) as desk:
        assert desk.responses() == {"write": "completed completed completed"}
        ids = [item.request_id for item in desk.session.record if isinstance(item, ToolRequest)]
        assert len(set(ids)) == 3
        await desk.turn("q3")
        assert ran == []


async def test_a_session_whose_agent_has_other_tools_now_is_adopted() -> None:
    service = await hand_written(
        event("user", types.Part(text="q1")),
        event("root", part_call("gone", "c1"), long_running_tool_ids={"c1"}),
    )
    root = agent(say("done"))
    async with Adopting(root, service) as desk:
        await desk.stream([result(desk.pending("gone"), "there")])
        assert dict(history(root.model))["result c1"] == '{"result": "there"}'


async def test_a_session_with_a_secret_in_its_state_is_adopted_without_showing_it() -> None:
    service = InMemorySessionService()
    state = {"api_key": "sk-planted-123", "plain": 1}
    await service.create_session(app_name="root", user_id="local", session_id="s", state=state)
    async with Adopting(agent(), service) as desk:
        assert "sk-planted-123" not in "".join(str(item.to_wire()) for item in desk.session.record)
        found = await service.get_session(app_name="root", user_id="local", session_id="s")
        assert found is not None
        assert found.state["api_key"] == "sk-planted-123"


async def test_an_empty_session_is_adopted() -> None:
    service = await hand_written()
    root = agent(say("a1"))
    async with Adopting(root, service) as desk:
        assert [item.type for item in desk.session.record] == ["initialize"]
        await desk.turn("q1")
        assert texts(desk.session.record) == ["a1"]


async def test_adopting_reads_and_changes_nothing_in_adk(service: BaseSessionService) -> None:
    root: LlmAgent = agent(say("a1"))
    await raw(root, service, "q1")
    before = await service.get_session(app_name="root", user_id="local", session_id="s")
    async with Adopting(agent(), service):
        after = await service.get_session(app_name="root", user_id="local", session_id="s")
    assert before is not None
    assert after is not None
    assert [item.model_dump() for item in after.events] == [item.model_dump() for item in before.events]
    assert after.state == before.state
