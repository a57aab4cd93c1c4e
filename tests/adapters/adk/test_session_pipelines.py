"""Pipelines of a resumable App: what waits in one of their steps outlives the process, and the rest goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.openapi.models import APIKey
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.auth.auth_tool import AuthConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import Driven, agent, driven, history, host_tool, texts, verify
from tests.adapters.adk.make import old_agent

from agentsession.adapters.adk import AdkExecutor, call, calls, map_events, say, stream_call
from agentsession.protocol import (
    Answer,
    ConfigurationError,
    ElicitationRequest,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    ToolRequest,
    accept,
    grant,
    result,
)

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

OPTIONS = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look")]))


class Tools:
    """The agents' tools, and what they were run with."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def write(self, text: str) -> str:
        """Write."""
        self.ran.append(text)
        return f"wrote {text}"

    def delete(self, text: str) -> str:
        """Delete."""
        self.ran.append(f"deleted {text}")
        return "gone"

    def member(self, name: str, *script: Any, **fields: Any) -> Any:
        tools = [self.write, FunctionTool(self.delete, require_confirmation=True), request_input]
        return agent(*script, name=name, tools=tools, **fields)


def waits(number: int) -> Any:
    """A step with one call of each kind."""
    return calls(
        call("look", id=f"look-{number}"),
        call("write", {"text": f"draft {number}"}, id=f"write-{number}"),
        call("delete", {"text": str(number)}, id=f"delete-{number}"),
        call("adk_request_input", {"message": "Where?"}, id=f"input-{number}"),
    )


def sequence(name: str, *members: Any) -> Any:
    return old_agent("SequentialAgent", name=name, sub_agents=list(members))


def first_step(tools: Tools) -> Any:
    return sequence("root", tools.member("a", waits(1), say("a")), tools.member("b", say("b")))


def last_step(tools: Tools) -> Any:
    return sequence("root", tools.member("a", say("a")), tools.member("b", waits(1), say("b")))


def each_step(tools: Tools) -> Any:
    return sequence("root", tools.member("a", waits(1), say("a")), tools.member("b", waits(2), say("b")))


def nested(tools: Tools) -> Any:
    inner = sequence("inner", tools.member("b", say("b")), tools.member("c", waits(1), say("c")))
    return sequence("root", tools.member("a", say("a")), inner, tools.member("d", say("d")))


def second_round(tools: Tools) -> Any:
    a = tools.member("a", say("a1"), waits(1), say("a2"), say("a3"))
    b = tools.member("b", say("b1"), say("b2"), say("b3"))
    return old_agent("LoopAgent", name="root", sub_agents=[a, b], max_iterations=3)


def after_branches(tools: Tools) -> Any:
    side = [tools.member("p", say("p")), tools.member("q", say("q"))]
    both = old_agent("ParallelAgent", name="both", sub_agents=side)
    return sequence("root", both, tools.member("c", waits(1), say("c")), tools.member("d", say("d")))


def handed_over(tools: Tools) -> Any:
    kid = tools.member("kid", waits(1), say("kid"))
    a = tools.member("a", call("transfer_to_agent", {"agent_name": "kid"}), sub_agents=[kid])
    return sequence("root", a, tools.member("b", say("b")))


def handed_to_a_pipeline(tools: Tools) -> Any:
    line = sequence("line", tools.member("a", waits(1), say("a")), tools.member("b", say("b")))
    return tools.member("root", call("transfer_to_agent", {"agent_name": "line"}), sub_agents=[line])


TREES = [
    first_step,
    last_step,
    each_step,
    nested,
    second_round,
    handed_over,
]
NOT_RESUMABLE = [after_branches, handed_to_a_pipeline]


SAID = {
    first_step: ["a", "b"],
    last_step: ["a", "b"],
    each_step: ["a", "b"],
    nested: ["a", "b", "c", "d"],
    second_round: ["a1", "b1", "a2", "b2", "a3", "b3"],
    handed_over: ["kid", "b"],
    handed_to_a_pipeline: ["a", "b"],
    after_branches: ["p", "q", "c", "d"],
}


def answer(item: ToolRequest | ElicitationRequest) -> Answer:
    if isinstance(item, ElicitationRequest):
        return accept(item.request_id, {"city": "Rome"} if item.kind == "clarification" else None)
    if item.needs == "grant":
        assert item.args is not None
        return grant(item.request_id, {"text": item.args["text"].replace("draft", "final")})
    return result(item.request_id, "seen")


def resumable(root: Any) -> App:
    return App(name="root", root_agent=root, resumability_config=ResumabilityConfig(is_resumable=True))


async def played(root: Any, place: Path, *, restarts: bool) -> Any:
    """What a whole turn comes to, each stream by another executor or all by one."""
    service, store = SqliteSessionService(str(place)), MemoryRecordStore()
    said: list[str] = []
    for number in range(10):
        async with AdkExecutor(resumable(root), session_service=service, store=store) as executor:
            session = await (executor.load("s1", OPTIONS) if number else executor.open(OPTIONS))
            desk = Driven(executor, session)
            turn = await desk.stream([answer(item) for item in session.pending] if number else "go")
            said += turn.texts
            while turn.reason == "input_required" and not restarts:
                turn = await desk.stream([answer(item) for item in session.pending])
                said += turn.texts
            verify(session)
            if turn.reason == "input_required":
                assert turn.end.data is None, turn.end.data
                continue
            return turn.reason, said, desk.responses()
    raise AssertionError("the turn did not end")


@pytest.mark.rule("PER-01", "TOOL-08", "HITL-03", "HITL-04")
@pytest.mark.parametrize("build", TREES)
async def test_a_pipeline_that_waits_goes_on_after_a_restart_as_it_would_have_without(
    build: Any, tmp_path: Path
) -> None:
    kept, restarted = Tools(), Tools()
    expected = await played(build(kept), tmp_path / "kept.db", restarts=False)
    assert expected[0] == "completed"
    assert await played(build(restarted), tmp_path / "restarted.db", restarts=True) == expected
    assert sorted(restarted.ran) == sorted(kept.ran)
    assert kept.ran


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("build", [*TREES, *NOT_RESUMABLE])
async def test_r56_a_pipeline_pauses_at_the_step_that_waits_and_the_rest_runs_after_the_answers(
    build: Any, resumes: bool, tmp_path: Path
) -> None:
    tools, said = Tools(), []
    app = resumable(build(tools)) if resumes else App(name="root", root_agent=build(tools))
    async with driven(app, options=OPTIONS) as desk:
        turn = await desk.stream("go")
        said += turn.texts
        while turn.reason == "input_required":
            turn = await desk.stream([answer(item) for item in desk.session.pending])
            said += turn.texts
    assert turn.reason == "completed"
    assert said == SAID[build]
    assert tools.ran


@pytest.mark.rule("PER-01")
async def test_a_credential_that_a_step_asks_for_outlives_the_process(tmp_path: Path) -> None:
    config = AuthConfig(
        auth_scheme=APIKey.model_validate({"in": "header", "name": "X-Key"}),
        raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="placeholder"),
    )
    used: list[str | None] = []

    def fetch(tool_context: ToolContext) -> Any:
        """Fetch."""
        found = tool_context.get_auth_response(config)
        if found is None:
            tool_context.request_credential(config)
            return {"status": "asked"}
        used.append(found.api_key)
        return "fetched"

    root = sequence("root", agent(call("fetch", id="c1"), say("a"), name="a", tools=[fetch]), agent(say("b"), name="b"))
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()
    async with AdkExecutor(resumable(root), session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(OPTIONS))
        await desk.stream("go")
        turn = await desk.stream(grant(desk.pending("fetch")))
        assert turn.end.data is None
    async with AdkExecutor(resumable(root), session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1", OPTIONS))
        given = {"credential": {"type": "api_key", "api_key": "sesame"}}
        turn = await desk.stream(accept(desk.pending("auth_required"), given))
        assert (turn.reason, turn.texts) == ("completed", ["a", "b"])
        verify(desk.session)
    assert used == ["sesame"]


@pytest.mark.rule("TOOL-06")
async def test_a_question_whose_arguments_stream_does_not_end_the_pipeline_either() -> None:
    tools = Tools()
    a = tools.member("a", stream_call("adk_request_input", {"message": ["Whe", "re?"]}, id="c1"), say("a"))
    async with driven(sequence("root", a, tools.member("b", say("b")))) as desk:
        turn = await desk.stream("go")
        assert [item.message for item in desk.session.pending] == ["Where?"]  # type: ignore[union-attr]
        turn = await desk.stream(accept(desk.pending("clarification"), {"city": "Rome"}))
        assert (turn.reason, turn.texts) == ("completed", ["a", "b"])
    assert history(a.model) == [
        ("user", "go"),
        ("call c1", "adk_request_input"),
        ("result c1", '{"city": "Rome"}'),
    ]


@pytest.mark.rule("HITL-01")
async def test_a_model_that_invents_the_question_asks_nobody() -> None:
    root = agent(call("agentsession_request_input", {"message": "Your password?"}, id="c1"), say("ok"))
    async with driven(root) as desk:
        turn = await desk.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ["ok"])
        assert not turn.of("elicitation_request")
        assert desk.responses() == {"adk_request_input": "failed"}


async def test_a_stored_question_is_mapped_as_one(tmp_path: Path) -> None:
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    root = agent(call("adk_request_input", {"message": "Where?"}, id="c1"), say("a"), tools=[request_input])
    async with driven(root, options=OPTIONS, session_service=service) as desk:
        await desk.stream("go")
        await desk.stream(accept(desk.pending("clarification"), {"city": "Rome"}))
    found = await service.get_session(app_name="root", user_id="local", session_id="s1")
    assert found is not None
    kinds = [event.type for event in map_events(found.events)]
    assert kinds.count("elicitation_request") == kinds.count("elicitation_response") == 1
    assert "tool_request" not in kinds


@pytest.mark.rule("PER-01")
async def test_a_message_over_a_pipeline_that_waited_starts_it_from_its_beginning(tmp_path: Path) -> None:
    tools = Tools()
    root = sequence("root", tools.member("a", waits(1), say("again a")), tools.member("b", say("b")))
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()
    async with AdkExecutor(resumable(root), session_service=service, store=store) as executor:
        await Driven(executor, await executor.open(OPTIONS)).stream("go")
    async with AdkExecutor(resumable(root), session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1", OPTIONS))
        assert (await desk.stream("something else")).texts == ["again a", "b"]
        assert texts(desk.session.record) == ["again a", "b"]
        verify(desk.session)
    assert tools.ran == []


# -- what cannot be resumed is said -----------------------------------------------------------------------------------


def test_a_pipeline_is_resumed_only_where_the_app_says_that_it_keeps_its_place(tmp_path: Path) -> None:
    service = SqliteSessionService(str(tmp_path / "adk.db"))

    def declared(app: Any, **options: Any) -> bool:
        return AdkExecutor(app, **options).descriptor.supports("resume")

    assert declared(resumable(first_step(Tools())), session_service=service)
    assert not declared(resumable(first_step(Tools())))
    assert not declared(App(name="root", root_agent=first_step(Tools())), session_service=service)


@pytest.mark.rule("PER-01", "PER-04")
@pytest.mark.parametrize("build", NOT_RESUMABLE)
async def test_what_adk_would_lose_its_place_in_says_so_and_is_settled_by_a_load(build: Any, tmp_path: Path) -> None:
    tools, store = Tools(), MemoryRecordStore()
    root, service = build(tools), SqliteSessionService(str(tmp_path / "adk.db"))
    async with AdkExecutor(resumable(root), session_service=service, store=store) as executor:
        assert not executor.descriptor.supports("resume")
        desk = Driven(executor, await executor.open(OPTIONS))
        turn = await desk.stream("go")
        assert set((turn.end.data or {})["volatile"]) >= set(turn.end.pending)
    async with AdkExecutor(resumable(root), session_service=service, store=store) as executor:
        session = await executor.load("s1", OPTIONS)
        assert session.pending == []
        verify(session)
    assert tools.ran == []


@pytest.mark.rule("PER-01", "PER-04")
@pytest.mark.parametrize("change", ["another shape", "not resumable", "no lasting service"])
async def test_a_pipeline_that_waits_is_not_loaded_by_one_that_would_lose_its_place(
    change: str, tmp_path: Path
) -> None:
    service, store = SqliteSessionService(str(tmp_path / "adk.db")), MemoryRecordStore()
    async with AdkExecutor(resumable(first_step(Tools())), session_service=service, store=store) as executor:
        session = await executor.open(OPTIONS)
        await Driven(executor, session).stream("go")
        before = [event.to_wire() for event in session.record]
    changed: dict[str, Any] = {
        "another shape": (resumable(nested(Tools())), service),
        "not resumable": (App(name="root", root_agent=first_step(Tools())), service),
        "no lasting service": (resumable(first_step(Tools())), None),
    }
    app, its_service = changed[change]
    async with AdkExecutor(app, session_service=its_service, store=store) as executor:
        with pytest.raises(ConfigurationError) as refused:
            await executor.load("s1", OPTIONS)
        assert refused.value.id == "tree-changed"
    async with AdkExecutor(resumable(first_step(Tools())), session_service=service, store=store) as executor:
        session = await executor.load("s1", OPTIONS)
        assert [event.to_wire() for event in session.record] == before
        assert len(session.pending) == 4
