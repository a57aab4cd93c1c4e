"""Forks and rewinds of ADK sessions: what the model reads, what the state is, what becomes of files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from google.adk.apps.app import App
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.artifacts.file_artifact_service import FileArtifactService
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from tests.adapters.adk.driving import (
    Driven,
    agent,
    assert_valid_history,
    driven,
    history,
    host_tool,
    texts,
    verify,
)
from tests.adapters.adk.services import session_service

from agentsession.adapters.adk import AdkExecutor, Step, call, calls, say
from agentsession.adapters.base import BaseSession
from agentsession.adapters.replay import ReplayExecutor
from agentsession.protocol import (
    CursorGone,
    Custom,
    ExecutionOptions,
    InvalidInput,
    MemoryRecordStore,
    OpenOptions,
    SessionConfig,
    SessionExists,
    SessionNotFound,
    StreamEnd,
    grant,
    is_ephemeral,
    result,
    without_rewound,
)

pytestmark = pytest.mark.anyio

TOOLS = ExecutionOptions(tools=[host_tool("look"), host_tool("find")])
OPENED = OpenOptions(session_id="s", execution=TOOLS)


def ends(session: BaseSession) -> list[int]:
    """The seqs of the streams' ends, in order."""
    return [event.seq for event in session.record if isinstance(event, StreamEnd)]


def said(model: Any, call: int = -1) -> list[str]:
    """The texts that a model call was shown."""
    return [text for kind, text in history(model, call) if kind in ("user", "model")]


def model_of(model: Any) -> str:
    """The model that the last call asked for."""
    return str(model.requests[-1].model)


async def fork(desk: Driven, at: int, name: str, **fields: Any) -> Driven:
    options = OpenOptions(session_id=name, execution=fields.pop("execution", TOOLS), **fields)
    return Driven(desk.executor, await desk.executor.fork(desk.session.session_id, at, options))


async def adk_session(desk: Driven, name: str | None = None) -> Any:
    executor = desk.executor
    found = await executor.session_service.get_session(
        app_name=executor.descriptor.name, user_id="local", session_id=name or desk.session.session_id
    )
    assert found is not None
    return found


def note(key: str, value: str, tool_context: ToolContext) -> str:
    tool_context.state[key] = value
    return "noted"


def noting(key: str, value: str) -> Step:
    """A call of ``note``."""
    return call("note", {"key": key, "value": value})


# -- forks ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PER-05")
async def test_the_model_in_a_fork_reads_exactly_the_prefix_and_both_go_their_own_way(
    service: BaseSessionService,
) -> None:
    root = agent(say("a1"), say("a2"), say("f2"), say("a3"), say("f3"))
    async with driven(root, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        await desk.turn("q2")
        copy = await fork(desk, ends(desk.session)[0], "f")
        await copy.turn("g2")
        assert said(root.model) == ["q1", "a1", "g2"]
        await desk.turn("q3")
        assert said(root.model) == ["q1", "a1", "q2", "a2", "q3"]
        await copy.turn("g3")
        assert said(root.model) == ["q1", "a1", "g2", "f2", "g3"]
        verify(copy.session)


@pytest.mark.rule("PER-05")
async def test_a_fork_of_a_fork_and_of_a_loaded_session_read_their_prefixes(service: BaseSessionService) -> None:
    store = MemoryRecordStore()
    root = agent(say("a1"), say("a2"), say("f2"), say("g2"), say("h2"))
    async with driven(root, options=OPENED, session_service=service, store=store) as desk:
        await desk.turn("q1")
        await desk.turn("q2")
        first = await fork(desk, ends(desk.session)[0], "f")
        await first.turn("r2")
        second = await fork(first, ends(first.session)[0], "g")
        await second.turn("t2")
        assert said(root.model) == ["q1", "a1", "t2"]
        await first.session.aclose()
        third = await fork(first, ends(first.session)[1], "h")
        await third.turn("u3")
        assert said(root.model) == ["q1", "a1", "r2", "f2", "u3"]


@pytest.mark.rule("PER-05")
async def test_a_fork_survives_its_executor(tmp_path: Path) -> None:
    store = MemoryRecordStore()
    for kind in ("sqlite", "database"):
        async with session_service(kind, tmp_path) as service:
            async with driven(
                agent(say("a1")), options=OpenOptions(session_id=f"s-{kind}"), session_service=service, store=store
            ) as desk:
                await desk.turn("q1")
                await fork(desk, ends(desk.session)[0], f"f-{kind}")
            root = agent(say("f2"))
            async with AdkExecutor(root, session_service=service, store=store) as executor:
                copy = Driven(executor, await executor.load(f"f-{kind}"))
                await copy.turn("g2")
                assert said(root.model) == ["q1", "a1", "g2"]


@pytest.mark.rule("PER-05", "TOOL-01")
@pytest.mark.parametrize("parked", [False, True])
async def test_what_waits_is_sealed_in_the_fork_and_answered_in_the_original(
    parked: bool, service: BaseSessionService
) -> None:
    root = agent(calls(call("look", id="c1"), call("find", id="c2")), say("f2"), say("a1"))
    store = MemoryRecordStore()
    async with driven(root, options=OPENED, session_service=service, store=store, parked=parked) as desk:
        await desk.stream("q1")
        waiting = list(desk.session.pending)
        copy = await fork(desk, ends(desk.session)[0], "f")
        assert (copy.session.state, copy.session.pending) == ("idle", [])
        await copy.turn("g2")
        assert [kind for kind, _ in history(root.model)] == [
            *("user", "call c1", "call c2", "result c1", "result c2", "user")
        ]
        assert all('"cancelled"' in text for kind, text in history(root.model) if kind.startswith("result"))
        await desk.stream([result(item.request_id, "seen") for item in waiting])
        assert ["result c1", '{"result": "seen"}'] in [list(entry) for entry in history(root.model)]
        assert_valid_history(root.model)
        verify(copy.session)


@pytest.mark.rule("PER-05")
async def test_a_result_that_came_before_the_fork_is_told_to_its_model(service: BaseSessionService) -> None:
    root = agent(calls(call("look", id="c1"), call("find", id="c2")), say("f2"))
    async with driven(root, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.stream("q1")
        await desk.session.respond(result(desk.pending("look"), "seen"))
        copy = await fork(desk, desk.session.last_seq, "f")
        await copy.turn("g2")
        results = [text for kind, text in history(root.model) if kind.startswith("result")]
        assert results[0] == '{"result": "seen"}'
        assert '"cancelled"' in results[1]
        await desk.session.abort()


@pytest.mark.rule("PER-05")
async def test_a_granted_tool_of_the_original_does_not_run_for_the_fork(service: BaseSessionService) -> None:
    ran: list[str] = []

    def write(path: str) -> str:
        ran.append(path)
        return "written"

    root = agent(call("write", {"path": "x"}, id="c1"), say("f2"), say("a1"), tools=[write])
    async with driven(root, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.stream("q1")
        copy = await fork(desk, ends(desk.session)[0], "f")
        await copy.turn("g2")
        assert ran == []
        await desk.stream([grant(desk.pending("write"))])
        assert ran == ["x"]


@pytest.mark.rule("PER-05")
async def test_a_fork_has_the_sessions_state_of_then_and_shares_that_of_the_user(service: BaseSessionService) -> None:
    root = agent(
        calls(noting("s", "1"), noting("user:u", "1")),
        say("a1"),
        calls(noting("s", "2"), noting("user:u", "2")),
        say("a2"),
        tools=[note],
    )
    opened = OpenOptions(session_id="s", execution=ExecutionOptions(state={"first": 0, "temp:t": 1}))
    async with driven(root, options=opened, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        await desk.turn("q2")
        await fork(desk, ends(desk.session)[-1], "now")
        point = next(event.seq for event in desk.session.record if isinstance(event, StreamEnd) and not event.pending)
        copy = await fork(desk, point, "then")
        assert dict((await adk_session(copy)).state) == {"first": 0, "s": "1", "user:u": "2"}
        assert copy.session.state_values["s"] == "1"
        assert dict((await adk_session(desk, "now")).state) == {"first": 0, "s": "2", "user:u": "2"}
        assert dict((await adk_session(desk)).state) == {"first": 0, "s": "2", "user:u": "2"}


@pytest.mark.rule("PER-05")
async def test_state_that_a_session_was_made_with_elsewhere_is_copied_too(service: BaseSessionService) -> None:
    await service.create_session(app_name="root", user_id="local", session_id="s", state={"first": 0, "user:u": 1})
    store = MemoryRecordStore()
    async with driven(agent(say("a")), options=OpenOptions(session_id="x"), session_service=service, store=store) as it:
        await it.executor._history.fork(("local", "s"), ("local", "f"), [], 0)
        assert dict((await adk_session(it, "f")).state) == {"first": 0, "user:u": 1}


@pytest.mark.rule("PER-05")
async def test_a_fork_inside_a_stream_of_an_unknown_seq_or_session_leaves_nothing(service: BaseSessionService) -> None:
    async with driven(agent(say("a1")), options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        for at in (2, desk.session.last_seq - 1, 0):
            with pytest.raises(InvalidInput):
                await fork(desk, at, "f")
        with pytest.raises(CursorGone):
            await fork(desk, 10**6, "f")
        with pytest.raises(SessionNotFound):
            await desk.executor.fork("other", 1, OpenOptions(session_id="f"))
        with pytest.raises(SessionExists):
            await fork(desk, 1, "s")
        listed = await service.list_sessions(app_name="root", user_id="local")
        assert [item.id for item in listed.sessions] == ["s"]


@pytest.mark.rule("PER-05")
async def test_a_fork_whose_adk_session_is_gone_or_whose_name_is_taken_there_is_refused(
    service: BaseSessionService,
) -> None:
    async with driven(agent(say("a1")), options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await service.create_session(app_name="root", user_id="local", session_id="f", state={"mine": 1})
        with pytest.raises(SessionExists):
            await fork(desk, 1, "f")
        assert dict((await adk_session(desk, "f")).state) == {"mine": 1}
        await service.delete_session(app_name="root", user_id="local", session_id="s")
        with pytest.raises(SessionNotFound):
            await fork(desk, 1, "g")
        assert [info.key.session_id for info in await desk.executor.list()] == ["s"]


async def test_an_adk_session_that_cannot_be_filled_is_removed_again() -> None:
    class Failing(InMemorySessionService):
        full = False

        async def append_event(self, session: Any, event: Any) -> Any:
            if self.full:
                raise OSError("disk full")
            return await super().append_event(session, event)

    service = Failing()
    async with driven(agent(say("a1")), options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        service.full = True
        with pytest.raises(OSError, match="disk full"):
            await fork(desk, ends(desk.session)[0], "f")
        with pytest.raises(OSError, match="disk full"):
            await desk.executor.open(OpenOptions(session_id="g", execution=ExecutionOptions(state={"a": 1})))
        assert list(service.sessions["root"]["local"]) == ["s"]
        assert [info.key.session_id for info in await desk.executor.list()] == ["s"]


# -- rewinds ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PER-06")
async def test_the_model_does_not_see_what_was_rewound(service: BaseSessionService) -> None:
    root = agent(say("a1"), say("a2"), say("a3"), say("b2"), say("b3"))
    async with driven(root, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        for question in ("q1", "q2", "q3"):
            await desk.turn(question)
        await desk.executor.rewind("s", ends(desk.session)[0])
        await desk.turn("r2")
        assert said(root.model) == ["q1", "a1", "r2"]
        await desk.turn("r3")
        assert said(root.model) == ["q1", "a1", "r2", "b2", "r3"]
        assert texts(without_rewound(desk.session.record)) == ["a1", "b2", "b3"]
        assert texts(desk.session.record) == ["a1", "a2", "a3", "b2", "b3"]


@pytest.mark.rule("PER-06")
async def test_rewinds_over_rewinds_and_to_the_beginning(service: BaseSessionService) -> None:
    root = agent(*(say(f"a{number}") for number in range(1, 8)))
    async with driven(root, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        first = ends(desk.session)[0]
        await desk.turn("q2")
        await desk.executor.rewind("s", first)
        await desk.turn("q3")
        third = ends(desk.session)[2]
        await desk.turn("q4")
        await desk.executor.rewind("s", third)
        await desk.turn("q5")
        assert said(root.model) == ["q1", "a1", "q3", "a3", "q5"]
        await desk.executor.rewind("s", first)
        await desk.turn("q6")
        assert said(root.model) == ["q1", "a1", "q6"]
        await desk.executor.rewind("s", 1)
        await desk.turn("q7")
        assert said(root.model) == ["q7"]


@pytest.mark.rule("PER-05", "PER-06")
async def test_a_fork_from_before_a_rewind_reads_what_was_rewound_and_one_from_after_it_does_not(
    service: BaseSessionService,
) -> None:
    root = agent(say("a1"), say("a2"), say("then"), say("now"), say("b2"))
    async with driven(root, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        await desk.turn("q2")
        await desk.executor.rewind("s", ends(desk.session)[0])
        marker = desk.session.record[-1].seq
        then, now = await fork(desk, ends(desk.session)[1], "then"), await fork(desk, marker, "now")
        await then.turn("r")
        assert said(root.model) == ["q1", "a1", "q2", "a2", "r"]
        await now.turn("r")
        assert said(root.model) == ["q1", "a1", "r"]
        await now.executor.rewind("now", ends(now.session)[0])
        await now.turn("again")
        assert said(root.model) == ["q1", "a1", "again"]


@pytest.mark.rule("PER-06", "TOOL-09")
@pytest.mark.parametrize("parked", [False, True])
async def test_a_rewind_settles_what_waits_and_late_answers_reach_nobody(
    parked: bool, service: BaseSessionService
) -> None:
    root = agent(say("a1"), call("look", id="c1"), say("b2"), call("look", id="c1"), say("b3"))
    store = MemoryRecordStore()
    async with driven(root, options=OPENED, session_service=service, store=store, parked=parked) as desk:
        await desk.turn("q1")
        await desk.stream("q2")
        old = desk.pending("look")
        await desk.executor.rewind("s", ends(desk.session)[0])
        assert (desk.session.state, desk.session.pending) == ("idle", [])
        (receipt,) = await desk.session.respond(result(old, "late"))
        assert receipt.status == "stale"
        await desk.turn("r2")
        assert history(root.model) == [("user", "q1"), ("model", "a1"), ("user", "r2")]
        await desk.stream("r3")
        new = desk.pending("look")
        assert new != old
        (receipt,) = await desk.session.respond(result(old, "late"))
        assert receipt.status == "stale"
        await desk.stream([result(new, "fresh")])
        assert_valid_history(root.model)
        assert history(root.model)[-1][1] == '{"result": "fresh"}'


@pytest.mark.rule("PER-06")
async def test_calls_that_a_killed_run_left_open_are_rewound_and_never_sealed(tmp_path: Path) -> None:
    store = MemoryRecordStore()
    async with session_service("sqlite", tmp_path) as service:
        async with driven(
            agent(say("a1"), call("look", id="c1")), options=OPENED, session_service=service, store=store
        ) as desk:
            await desk.turn("q1")
            first = ends(desk.session)[0]
            await desk.stream("q2")
        root = agent(say("b2"))
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            await executor.rewind("s", first)
            again = Driven(executor, await executor.load("s", OpenOptions(execution=TOOLS)))
            await again.turn("r2")
            assert history(root.model) == [("user", "q1"), ("model", "a1"), ("user", "r2")]
            verify(again.session)


@pytest.mark.rule("PER-06", "PER-03")
async def test_the_sessions_state_goes_back_and_that_of_the_user_stays(service: BaseSessionService) -> None:
    root = agent(
        noting("s", "1"),
        say("a1"),
        calls(*(noting(key, "2") for key in ("s", "new", "first", "user:u", "app:a"))),
        say("a2"),
        say("a3"),
        tools=[note],
    )
    opened = OpenOptions(session_id="s", execution=ExecutionOptions(state={"first": 0, "kept": "k"}))
    async with driven(root, options=opened, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        point = desk.session.last_seq
        await desk.turn("q2")
        await desk.session.update(SessionConfig(state={"waits": 1}))
        await desk.executor.rewind("s", point)
        state = {key: value for key, value in (await adk_session(desk)).state.items() if value is not None}
        assert state == {"first": 0, "kept": "k", "s": "1", "user:u": "2", "app:a": "2"}
        assert desk.session.state_values == state
        await desk.turn("q3")
        assert (await adk_session(desk)).state.get("waits") is None
        await desk.session.aclose()
        assert (await desk.executor.load("s")).state_values == state


@pytest.mark.rule("PER-06", "PER-04")
async def test_a_rewind_that_was_cut_off_is_finished_by_the_next_load(tmp_path: Path) -> None:
    class Cut(AdkExecutor):
        async def on_rewind(self, session: BaseSession, to: int) -> None:
            raise OSError("the machine went away")

    store = MemoryRecordStore()
    async with session_service("sqlite", tmp_path) as service:
        async with Cut(agent(say("a1"), say("a2")), session_service=service, store=store) as dying:
            desk = Driven(dying, await dying.open(OPENED))
            await desk.turn("q1")
            await desk.turn("q2")
            with pytest.raises(OSError, match="went away"):
                await dying.rewind("s", ends(desk.session)[0])
            assert desk.session.state == "closed"
        root = agent(say("b2"), say("b3"))
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            again = Driven(executor, await executor.load("s"))
            await again.turn("r2")
            assert said(root.model) == ["q1", "a1", "r2"]
            await again.session.aclose()
            again = Driven(executor, await executor.load("s"))
            await again.turn("r3")
            assert said(root.model) == ["q1", "a1", "r2", "b2", "r3"]


@pytest.mark.rule("PER-06")
async def test_a_turn_that_never_came_to_adk_is_rewound_too(service: BaseSessionService) -> None:
    root = agent(say("a1"), say("b2"))
    bad = ExecutionOptions(tools=[host_tool("look"), host_tool("look")])
    async with driven(root, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        assert (await desk.stream("q2", bad)).reason == "failed"
        await desk.executor.rewind("s", ends(desk.session)[0])
        await desk.turn("r2")
        assert said(root.model) == ["q1", "a1", "r2"]


@pytest.mark.rule("PER-06")
async def test_steers_updates_and_idle_moments_are_places_to_go_back_to(service: BaseSessionService) -> None:
    root = agent(call("look", id="c1"), say("a1"), say("a2"), say("b2"))
    async with driven(root, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.stream("q1")
        await desk.session.steer("hurry")
        await desk.stream([result(desk.pending("look"), "seen")])
        await desk.session.update(SessionConfig(title="named", model="other"))
        point = desk.session.last_seq
        await desk.session.update(SessionConfig(model="third"))
        await desk.turn("q2")
        assert model_of(root.model) == "third"
        await desk.executor.rewind("s", point)
        await desk.turn("r2")
        assert model_of(root.model) == "other"
        assert [text for text in said(root.model) if text != "seen"] == ["q1", "hurry", "a1", "r2"]
        assert_valid_history(root.model)


@pytest.mark.rule("PER-06")
async def test_after_a_rewind_the_agent_that_was_handed_over_to_is_not_at_work_any_more() -> None:
    child = agent(say("from the child"), name="child")
    root = agent(say("a1"), call("transfer_to_agent", {"agent_name": "child"}, id="t1"), say("b2"), sub_agents=[child])
    async with driven(root, options=OPENED, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        await desk.turn("q2")
        assert texts(desk.session.record) == ["a1", "from the child"]
        await desk.executor.rewind("s", ends(desk.session)[0])
        done = await desk.turn("r2")
        assert done.texts == ["b2"]
        assert said(root.model) == ["q1", "a1", "r2"]


@pytest.mark.rule("PER-05", "PER-06")
async def test_a_pipeline_with_branches_is_forked_and_rewound_turn_by_turn(service: BaseSessionService) -> None:
    left = agent(say("l1"), say("l2"), say("l3"), say("l4"), name="left")
    right = agent(say("r1"), say("r2"), say("r3"), say("r4"), name="right")
    last = agent(say("e1"), say("e2"), say("e3"), say("e4"), name="last")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # ADK's, of its pipelines
        from google.adk.agents import ParallelAgent, SequentialAgent

        both = ParallelAgent(name="both", sub_agents=[left, right])
        root = SequentialAgent(name="root", sub_agents=[both, last])
    async with driven(root, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        await desk.turn("q2")
        copy = await fork(desk, ends(desk.session)[0], "f")
        await copy.turn("g2")
        seen = " ".join(text for _, text in history(last.model))
        assert "l3" in seen
        assert "r3" in seen
        assert "e1" in seen
        assert not {"q2", "l2", "r2", "e2"} & set(seen.replace(":", " ").split())
        await desk.executor.rewind("s", ends(desk.session)[0])
        await desk.turn("h2")
        seen = " ".join(text for _, text in history(last.model))
        assert "e1" in seen
        assert not {"q2", "l2", "r2", "e2", "g2", "l3", "e3"} & set(seen.replace(":", " ").split())


@pytest.mark.rule("PER-06")
async def test_a_record_with_a_rewind_is_replayed() -> None:
    root = agent(say("a1"), say("a2"), say("b2"))
    async with driven(root, options=OPENED, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        await desk.turn("q2")
        await desk.executor.rewind("s", ends(desk.session)[0])
        await desk.turn("r2")
        record = [event for event in desk.session.record if not is_ephemeral(event)]
    async with ReplayExecutor(record) as replay:
        again = await replay.open()
        for question in ("q1", "q2", "r2"):
            async with again.stream(question) as stream:
                async for _ in stream:
                    pass
        assert texts(again.record) == ["a1", "a2", "b2"]


# -- files ------------------------------------------------------------------------------------------------------------


async def save(file: str, text: str, tool_context: ToolContext) -> str:
    version = await tool_context.save_artifact(file, types.Part(text=text))
    return f"{file} v{version}"


def saving(file: str, text: str) -> Step:
    """A call of ``save``."""
    return call("save", {"file": file, "text": text})


@pytest.fixture(params=["memory", "file"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> BaseArtifactService:
    return InMemoryArtifactService() if request.param == "memory" else FileArtifactService(tmp_path / "files")


async def text_of(files: BaseArtifactService, name: str, session: str = "s", version: int | None = None) -> str | None:
    part = await files.load_artifact(
        app_name="root", user_id="local", session_id=session, filename=name, version=version
    )
    return part.text if part is not None else None


def keeper() -> Any:
    return agent(
        calls(
            saving("a.txt", "a0"),
            saving("user:u.txt", "u0"),
        ),
        say("a1"),
        calls(
            saving("a.txt", "a1"),
            saving("b.txt", "b0"),
        ),
        say("a2"),
        saving("a.txt", "later"),
        say("a3"),
        tools=[FunctionTool(save)],
    )


@pytest.mark.rule("PER-06")
async def test_r85_a_rewind_puts_a_files_content_back_as_a_new_version(
    files: BaseArtifactService, service: BaseSessionService
) -> None:
    async with driven(
        keeper(), options=OPENED, session_service=service, artifact_service=files, store=MemoryRecordStore()
    ) as desk:
        await desk.turn("q1")
        point = desk.session.last_seq
        await desk.turn("q2")
        await desk.executor.rewind("s", point)
        assert [await text_of(files, "a.txt", version=version) for version in (0, 1, 2)] == ["a0", "a1", "a0"]
        assert await text_of(files, "a.txt") == "a0"
        assert await text_of(files, "b.txt") is None
        assert await text_of(files, "user:u.txt") == "u0"
        last = desk.session.record[-1]
        assert isinstance(last, Custom)
        assert (last.kind, last.data) == ("artifact_delta", {"a.txt": 2, "b.txt": 1})
        await desk.turn("q3")
        assert await text_of(files, "a.txt", version=3) == "later"
        await desk.executor.rewind("s", desk.session.record[-1].seq)


@pytest.mark.rule("PER-05")
async def test_a_fork_has_the_files_of_its_point_under_the_same_versions(
    files: BaseArtifactService, service: BaseSessionService
) -> None:
    async with driven(
        keeper(), options=OPENED, session_service=service, artifact_service=files, store=MemoryRecordStore()
    ) as desk:
        await desk.turn("q1")
        point = desk.session.last_seq
        await desk.turn("q2")
        copy = await fork(desk, point, "f")
        assert [await text_of(files, "a.txt", "f", version) for version in (0, 1)] == ["a0", None]
        assert await text_of(files, "b.txt", "f") is None
        assert await text_of(files, "user:u.txt", "f") == "u0"
        await copy.turn("g2")
        assert await text_of(files, "a.txt", "f") == "later"
        assert await text_of(files, "a.txt", "s") == "a1"


@pytest.mark.rule("PER-05", "PER-06")
async def test_a_fork_after_a_rewind_keeps_a_file_absent_that_was_not_there(
    files: BaseArtifactService, service: BaseSessionService
) -> None:
    async with driven(
        keeper(), options=OPENED, session_service=service, artifact_service=files, store=MemoryRecordStore()
    ) as desk:
        await desk.turn("q1")
        point = desk.session.last_seq
        await desk.turn("q2")
        await desk.executor.rewind("s", point)
        await fork(desk, desk.session.last_seq, "f")
        assert await text_of(files, "a.txt", "f") == "a0"
        assert await text_of(files, "b.txt", "f") is None
        keys = await files.list_versions(app_name="root", user_id="local", session_id="f", filename="a.txt")
        assert keys == [0, 1, 2]


async def test_r114_a_deleted_session_leaves_no_file_of_its_own(
    files: BaseArtifactService, service: BaseSessionService
) -> None:
    async with driven(
        keeper(), options=OPENED, session_service=service, artifact_service=files, store=MemoryRecordStore()
    ) as desk:
        await desk.turn("q1")
        copy = await fork(desk, desk.session.last_seq, "f")
        await copy.session.aclose()
        await desk.executor.delete("f")
        assert await text_of(files, "a.txt", "f") is None
        assert await text_of(files, "a.txt", "s") == "a0"
        assert await text_of(files, "user:u.txt", "f") == "u0"
        listed = await service.list_sessions(app_name="root", user_id="local")
        assert [item.id for item in listed.sessions] == ["s"]


async def test_an_app_with_its_own_name_is_forked_and_rewound_under_that_name(service: BaseSessionService) -> None:
    root = agent(say("a1"), say("a2"), say("f2"), say("b2"))
    app = App(name="shop", root_agent=root)
    async with driven(app, options=OPENED, session_service=service, store=MemoryRecordStore()) as desk:
        await desk.turn("q1")
        await desk.turn("q2")
        copy = await fork(desk, ends(desk.session)[0], "f")
        await copy.turn("g2")
        assert said(root.model) == ["q1", "a1", "g2"]
        await desk.executor.rewind("s", ends(desk.session)[0])
        await desk.turn("r2")
        assert said(root.model) == ["q1", "a1", "r2"]
