"""Whose session, state and files: users and sessions never meet but where ADK says that they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.artifacts.file_artifact_service import FileArtifactService
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.load_memory_tool import load_memory_tool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, texts
from tests.adapters.adk.services import session_service

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, Step, call, calls, say
from agentsession.protocol import (
    REDACTED,
    Custom,
    ExecutionOptions,
    InvalidInput,
    MemoryRecordStore,
    OpenOptions,
    SessionConfig,
    SessionNotFound,
    SessionUpdate,
)

pytestmark = pytest.mark.anyio

UNASKED = ExecutionOptions(host_tool_execution=False)
"""The agent's own tools run without being granted: these tests are not about grants."""


def opened(session_id: str = "s", user_id: str = "local", **execution: Any) -> OpenOptions:
    fields: dict[str, Any] = {"host_tool_execution": False, **execution}
    return OpenOptions(session_id=session_id, user_id=user_id, execution=ExecutionOptions(**fields))


def note(key: str, value: Any, tool_context: ToolContext) -> str:
    tool_context.state[key] = value
    return "noted"


def noting(key: str, value: Any) -> Step:
    return call("note", {"key": key, "value": value})


def peek(key: str, tool_context: ToolContext) -> str:
    return repr(tool_context.state.get(key))


async def save(file: str, text: str, tool_context: ToolContext) -> str:
    return f"v{await tool_context.save_artifact(file, types.Part(text=text))}"


async def read(file: str, tool_context: ToolContext) -> str:
    part = await tool_context.load_artifact(file)
    return (part.text if part is not None else None) or "no such file"


# -- ids --------------------------------------------------------------------------------------------------------------

NASTY = st.sampled_from(
    [
        *("", ".", "..", "...", " ", "a ", " a", "a/b", "a\\b", "../a", "a%2fb", "%2e%2e", "a\x00b", "a\nb", "\u2028"),
        *("\ud800", "a\udfffb", "user", "User", "C:", "c:x", "x:", "ab:c", "a:b", "~", "~root", "-", "--", "*", "a*b?"),
        *("x" * 128, "x" * 129, "é" * 127, "é" * 128, "字" * 85, "字" * 86, "x" * 300, "app:a", "user:a", "temp:a"),
        *("a'b", 'a"b', "a;drop", "a b", "a.b", ".a", "a.", "CON", "nul", "\u202ea", "metadata.json", "versions"),
    ]
)
IDS = NASTY | st.text(max_size=20) | st.text("ab/\\.%:~ \x00é字", min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(session_id=IDS, user_id=IDS)
def test_an_id_is_refused_by_every_call_or_by_none(session_id: str, user_id: str) -> None:
    async def refused_by(executor: AdkExecutor) -> dict[str, bool]:
        named = OpenOptions().model_copy(update={"session_id": session_id, "user_id": user_id})
        found: dict[str, bool] = {}
        tries: dict[str, Callable[[], Awaitable[object]]] = {
            "open": lambda: executor.open(named),
            "load": lambda: executor.load(session_id, named),
            "delete": lambda: executor.delete(session_id, user_id),
            "fork": lambda: executor.fork(session_id, 1, named),
            "rewind": lambda: executor.rewind(session_id, 1, user_id),
            "adopt": lambda: executor.adopt(session_id, named),
        }
        for name, made in tries.items():
            try:
                await made()
            except InvalidInput:
                found[name] = True
            except Exception:  # noqa: BLE001 - what else is wrong with the call is not the question
                found[name] = False
            else:
                found[name] = False
        return found

    async def main() -> None:
        service, store = InMemorySessionService(), MemoryRecordStore()
        async with AdkExecutor(agent(), session_service=service, store=store) as executor:
            found = await refused_by(executor)
            assert len(set(found.values())) == 1, found
            if found["open"]:
                assert service.sessions == {}
                assert store._records == {}

    anyio.run(main)


@settings(max_examples=15, deadline=None)
@given(session_id=IDS, user_id=IDS)
def test_an_id_that_is_taken_works_in_every_service(
    tmp_path_factory: pytest.TempPathFactory, session_id: str, user_id: str
) -> None:
    async def main() -> None:
        folder = tmp_path_factory.mktemp("ids")
        for sessions, files in (
            (InMemorySessionService(), InMemoryArtifactService()),
            (SqliteSessionService(str(folder / "adk.db")), FileArtifactService(folder / "files")),
        ):
            root = agent(call("save", {"file": "a.txt", "text": "kept"}), say("done"), tools=[save])
            executor = AdkExecutor(root, session_service=sessions, artifact_service=files, store=MemoryRecordStore())
            async with executor:
                try:
                    desk = Driven(executor, await executor.open(opened(session_id, user_id)))
                except (InvalidInput, ValidationError):
                    return
                await desk.stream("go")
                assert desk.responses() == {"save": "completed"}
                assert texts(desk.session.record) == ["done"]
                await desk.session.aclose()
                loaded = await executor.load(session_id, opened(session_id, user_id))
                await loaded.aclose()
                scope: dict[str, Any] = {"app_name": "root", "user_id": user_id, "session_id": session_id}
                part = await files.load_artifact(filename="a.txt", **scope)
                assert part is not None
                await executor.delete(session_id, user_id)
                assert await files.load_artifact(filename="a.txt", **scope) is None

    anyio.run(main)


@pytest.mark.parametrize("user_id", ["", "a/b", "..", "\ud800", "a\x00"])
async def test_a_list_for_a_user_that_cannot_be_is_refused(user_id: str) -> None:
    async with AdkExecutor(agent(), store=MemoryRecordStore()) as executor:
        for listing in (executor.list(user_id), executor.adoptable(user_id)):
            with pytest.raises(InvalidInput):
                await listing


# -- users ------------------------------------------------------------------------------------------------------------


async def test_r27_two_users_with_one_session_id_never_meet(service: BaseSessionService) -> None:
    files = InMemoryArtifactService()
    root = agent(
        calls(noting("k", "ada's"), call("save", {"file": "f", "text": "ada's"})),
        say("for ada"),
        calls(call("peek", {"key": "k"}), call("read", {"file": "f"}), call("peek", {"key": "user:u"})),
        say("for bob"),
        tools=[note, peek, save, read],
    )
    store = MemoryRecordStore()
    async with AdkExecutor(root, session_service=service, artifact_service=files, store=store) as executor:
        ada = Driven(executor, await executor.open(opened("s", "ada", state={"user:u": "ada's"})))
        bob = Driven(executor, await executor.open(opened("s", "bob")))
        await ada.stream("I am Ada")
        await bob.stream("I am Bob")
        results = sorted(text for kind, text in history(root.model) if kind.startswith("result"))
        assert results == ['{"result": "None"}', '{"result": "None"}', '{"result": "no such file"}']
        assert not any("Ada" in text for _, text in history(root.model))
        assert texts(ada.session.record) == ["for ada"]
        assert texts(bob.session.record) == ["for bob"]
        assert [info.key.user_id for info in await executor.list("ada")] == ["ada"]
        await bob.session.aclose()
        await executor.rewind("s", 1, "bob")
        await executor.delete("s", "bob")
        assert texts(ada.session.record) == ["for ada"]
        await ada.session.aclose()
        assert texts((await executor.load("s", opened("s", "ada"))).record) == ["for ada"]
        with pytest.raises(SessionNotFound):
            await executor.load("s", opened("s", "bob"))
        with pytest.raises(SessionNotFound):
            await executor.fork("s", 1, OpenOptions(user_id="bob"))


# -- state ------------------------------------------------------------------------------------------------------------


async def test_r125_state_is_shown_with_its_scope_and_shared_by_it(service: BaseSessionService) -> None:
    root = agent(
        calls(noting("temp:t", 1), noting("user:u", 2), noting("app:a", 3), noting("s", 4)),
        calls(call("peek", {"key": "temp:t"}), call("peek", {"key": "user:u"})),
        say("done"),
        tools=[note, peek],
    )
    store = MemoryRecordStore()
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(opened()))
        await desk.stream("go")
        shown: dict[str, Any] = {}
        for event in desk.session.record:
            if isinstance(event, SessionUpdate):
                shown |= event.state_delta or {}
        assert {"user:u": 2, "app:a": 3, "s": 4}.items() <= shown.items()
        seen = [text for kind, text in history(root.model) if kind.startswith("result")][-2:]
        assert seen == ['{"result": "1"}', '{"result": "2"}']
        found = await service.get_session(app_name="root", user_id="local", session_id="s")
        assert found is not None
        assert dict(found.state) == {"user:u": 2, "app:a": 3, "s": 4}
        assert not any(key.startswith("temp:") for event in found.events for key in event.actions.state_delta)
        for session_id, user_id, expected in (
            ("other", "local", {"user:u": 2, "app:a": 3}),
            ("s", "somebody", {"app:a": 3}),
        ):
            await executor.open(opened(session_id, user_id))
            there = await service.get_session(app_name="root", user_id=user_id, session_id=session_id)
            assert there is not None
            assert dict(there.state) == expected


async def test_the_hosts_first_state_and_its_updates_reach_the_agent_in_every_scope(
    service: BaseSessionService,
) -> None:
    keys = ("s", "user:u", "app:a", "temp:t")
    peeks = calls(*(call("peek", {"key": key}) for key in keys))
    root = agent(peeks, say("one"), peeks, say("two"), peeks, say("three"), tools=[peek])
    first = dict.fromkeys(keys, 1)
    async with driven(root, options=opened(state=first), session_service=service) as desk:

        async def seen(message: str) -> list[str]:
            await desk.stream(message)
            results = [text for kind, text in history(root.model) if kind.startswith("result")]
            return [text.split('"')[3] for text in results[-4:]]

        assert await seen("q1") == ["1", "1", "1", "1"]
        assert (await desk.session.update(SessionConfig(state=dict.fromkeys(keys, 2)))).status == "applied"
        assert await seen("q2") == ["2", "2", "2", "2"]
        assert await seen("q3") == ["2", "2", "2", "None"]


async def test_state_that_the_host_sets_is_recorded_as_given_and_told_by_adk_without_what_is_secret_by_name() -> None:
    first, later = {"password": "one", "temp:t": 1}, {"token": "two", "n": 2}
    root = agent(call("peek", {"key": "token"}), say("done"), tools=[peek])
    async with driven(root, options=opened(state=first)) as desk:
        await desk.session.update(SessionConfig(state=later))
        await desk.stream("go")
        updates = [event for event in desk.session.record if isinstance(event, SessionUpdate)]
        assert [event.state_delta for event in updates if event.source == "host"] == [first, later]
        assert [event.state_delta for event in updates if event.source == "agent"] == [{"token": REDACTED, "n": 2}]
        assert desk.session.state_values["token"] == REDACTED
        assert "'two'" in history(root.model)[-1][1]  # the tool had the value


@pytest.mark.rule("PER-02", "CTL-07")
@pytest.mark.parametrize("kind", ["sqlite", "database"])
async def test_state_that_was_set_before_a_restart_reaches_the_agent_after_it_once(kind: str, tmp_path: Path) -> None:
    store = MemoryRecordStore()
    async with session_service(kind, tmp_path) as service:
        async with AdkExecutor(agent(), session_service=service, store=store) as executor:
            session = await executor.open(opened(state={"kept": 0}))
            await session.update(SessionConfig(state={"s": 1, "user:u": 1}))
        root = agent(call("peek", {"key": "s"}), say("one"), tools=[peek])
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            desk = Driven(executor, await executor.load("s", opened()))
            await desk.stream("q1")
            assert ("result", '{"result": "1"}') in [(kind[:6], text) for kind, text in history(root.model)]
            other = Driven(executor, await executor.open(opened("other")))
            await other.session.update(SessionConfig(state={"user:u": 2}))
            assert isinstance(root.model, ScriptedLlm)
            root.model.script.append(say("other"))
            await other.stream("q")
        root = agent(call("peek", {"key": "user:u"}), say("two"), tools=[peek])
        async with AdkExecutor(root, session_service=service, store=store) as executor:
            desk = Driven(executor, await executor.load("s", opened()))
            await desk.stream("q2")
            assert [text for kind, text in history(root.model) if kind.startswith("result")][-1] == '{"result": "2"}'


@pytest.mark.rule("CTL-07")
@pytest.mark.parametrize("key", ["", "user:", "app:", "temp:", "_adk_anything", "_adk"])
async def test_state_that_cannot_be_kept_is_refused_at_the_edge(key: str, service: BaseSessionService) -> None:
    async with AdkExecutor(agent(), session_service=service, store=MemoryRecordStore()) as executor:
        with pytest.raises(InvalidInput):
            await executor.open(opened(state={key: 1}))
        assert await executor.adoptable() == []
        session = await executor.open(opened())
        before = session.last_seq
        assert (await session.update(SessionConfig(state={"fine": 1, key: 1}))).status == "rejected"
        assert session.last_seq == before


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), b"bytes"])
def test_state_that_is_no_json_is_refused_by_the_options(value: Any) -> None:
    for make in (ExecutionOptions, SessionConfig):
        with pytest.raises(ValueError, match="state"):
            make(state={"k": value})


# -- files and memory -------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "file"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> BaseArtifactService:
    return InMemoryArtifactService() if request.param == "memory" else FileArtifactService(tmp_path / "files")


async def test_r89_every_file_of_parallel_calls_is_told_with_its_version(files: BaseArtifactService) -> None:
    def saving(file: str, text: str) -> Step:
        return call("save", {"file": file, "text": text})

    root = agent(
        calls(saving("a.txt", "a0"), saving("b.txt", "b0")),
        calls(saving("a.txt", "a1"), saving("user:c.txt", "c0")),
        say("done"),
        tools=[save],
    )
    async with driven(root, options=opened(), artifact_service=files) as desk:
        await desk.stream("go")
        told = [
            event.data for event in desk.session.record if isinstance(event, Custom) and event.kind == "artifact_delta"
        ]
        assert told == [{"a.txt": 0, "b.txt": 0}, {"a.txt": 1, "user:c.txt": 0}]
        assert_valid_history(root.model)


async def test_a_file_is_there_after_a_restart_and_user_files_in_other_sessions(
    files: BaseArtifactService, tmp_path: Path
) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    root = agent(
        calls(call("save", {"file": "a", "text": "mine"}), call("save", {"file": "user:u", "text": "ours"})),
        say("saved"),
        tools=[save],
    )
    async with AdkExecutor(root, session_service=service, artifact_service=files, store=store) as executor:
        await Driven(executor, await executor.open(opened())).stream("go")
    reads = calls(call("read", {"file": "a"}), call("read", {"file": "user:u"}))
    root = agent(reads, say("read"), reads, say("read"), tools=[read])
    async with AdkExecutor(root, session_service=service, artifact_service=files, store=store) as executor:
        results: list[list[str]] = []
        for session in (await executor.load("s", opened()), await executor.open(opened("other"))):
            await Driven(executor, session).stream("read")
            results.append([text for kind, text in history(root.model) if kind.startswith("result")][-2:])
        assert results[0] == ['{"result": "mine"}', '{"result": "ours"}']
        assert results[1] == ['{"result": "no such file"}', '{"result": "ours"}']


async def test_an_agent_that_remembers_works_under_a_host_and_memory_outlives_the_session() -> None:
    memory = InMemoryMemoryService()

    async def remember(tool_context: ToolContext) -> str:
        await tool_context.add_session_to_memory()
        return "remembered"

    root = agent(
        call("remember"),
        say("kept"),
        call("load_memory", {"query": "Rome"}),
        say("you said Rome"),
        tools=[FunctionTool(remember), load_memory_tool],
    )
    store = MemoryRecordStore()
    async with AdkExecutor(root, memory_service=memory, store=store) as executor:
        first = Driven(executor, await executor.open(opened("first")))
        await first.stream("I live in Rome")
        await first.session.aclose()
        await executor.delete("first")
        second = Driven(executor, await executor.open(opened("second")))
        await second.stream("Where do I live?")
        assert second.responses() == {"load_memory": "completed"}
        (found,) = [text for kind, text in history(root.model) if kind.startswith("result")]
        assert "I live in Rome" in found  # as docs/adk-limits.md says of delete and memory
        somebody = await memory.search_memory(app_name="root", user_id="somebody", query="Rome")
        assert somebody.memories == []
