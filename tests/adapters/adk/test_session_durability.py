"""What survives: a killed process, a session that is loaded, deleted, opened twice, or belongs to somebody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, history, host_tool, verify

from agentsession.adapters.adk import AdkExecutor, call, calls, say
from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    ExecutionOptions,
    InvalidInput,
    MemoryRecordStore,
    OpenOptions,
    SessionBusy,
    SessionConfig,
    SessionExists,
    SessionNotFound,
    result,
)

pytestmark = pytest.mark.anyio

REPO = Path(__file__).resolve().parents[3]
TOOLS = ExecutionOptions(tools=[host_tool("look"), host_tool("find")])


def in_process(folder: Path, scenario: str, mode: str, step: str, exits: int = 0) -> str:
    """Run one step of ``killed.py`` in a process of its own; its output."""
    paths = [REPO, *(REPO / name for name in ("protocol", "adapters", "host", "conformance"))]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.adapters.adk.killed", str(folder), scenario, mode, step],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        timeout=150,
        check=False,
        text=True,
    )
    assert done.returncode == exits, done.stderr
    return done.stdout


def killed_then_resumed(folder: Path, scenario: str, mode: str, step: str = "start") -> Any:
    in_process(folder, scenario, mode, step, exits=9)
    return json.loads(in_process(folder, scenario, mode, "resume"))


# -- a killed process -------------------------------------------------------------------------------------------------


@pytest.mark.rule("PER-01", "PER-02")
@pytest.mark.parametrize("mode", ["inline", "parked"])
def test_a_host_call_waits_again_after_a_kill_and_its_answer_completes_the_turn(mode: str, tmp_path: Path) -> None:
    made = killed_then_resumed(tmp_path, "host", mode)
    assert made["pending"] == ["look"]
    assert made["texts"] == ["done"]
    assert ["result c1", '{"result": "look answered"}'] in made["history"]
    assert made["next"] == ["next"]
    assert made["ends"] == [["input_required", None], ["completed", None], ["completed", None]]


@pytest.mark.rule("PER-01", "TOOL-08")
@pytest.mark.parametrize("mode", ["inline", "parked"])
def test_two_host_calls_of_a_killed_process_are_answered_one_after_the_other(mode: str, tmp_path: Path) -> None:
    made = killed_then_resumed(tmp_path, "two", mode)
    assert made["pending"] == ["look", "find"]
    assert made["texts"] == ["done"]
    results = [entry for entry in made["history"] if entry[0].startswith("result")]
    assert sorted(results) == [
        ["result c1", '{"result": "look answered"}'],
        ["result c2", '{"result": "find answered"}'],
    ]


@pytest.mark.rule("PER-01")
@pytest.mark.parametrize("mode", ["inline", "parked"])
def test_a_siblings_result_survives_the_kill_and_its_tool_does_not_run_again(mode: str, tmp_path: Path) -> None:
    made = killed_then_resumed(tmp_path, "mixed", mode)
    assert made["pending"] == ["look"]
    assert made["texts"] == ["done"]
    results = [entry for entry in made["history"] if entry[0].startswith("result")]
    assert sorted(results) == [["result c1", '{"result": "look answered"}'], ["result c2", '{"result": "wrote x"}']]
    assert (tmp_path / "ran.txt").read_text() == "wrote x\n"


@pytest.mark.rule("PER-01", "HITL-03", "HITL-04")
@pytest.mark.parametrize("mode", ["inline", "parked"])
def test_a_call_that_waited_for_a_grant_waits_again_after_a_kill_and_runs_once_as_granted(
    mode: str, tmp_path: Path
) -> None:
    made = killed_then_resumed(tmp_path, "gate", mode)
    assert made["pending"] == ["write"]
    assert made["responses"] == {"write": "completed"}
    assert made["texts"] == ["done"]
    assert made["ends"] == [["input_required", None], ["completed", None], ["completed", None]]
    assert (tmp_path / "ran.txt").read_text() == "wrote edited\n"
    assert [entry for entry in made["later"] if entry[0].startswith(("call", "result"))] == [
        ["call c1", "write"],
        ["result c1", '{"result": "wrote edited"}'],
    ]


@pytest.mark.rule("PER-01", "HITL-01", "HITL-03")
def test_a_confirmation_that_waited_waits_again_after_a_kill_and_its_tool_runs_once(tmp_path: Path) -> None:
    made = killed_then_resumed(tmp_path, "confirm", "inline")
    assert made["pending"] == ["tool_confirmation"]
    assert made["responses"] == {"delete": "completed"}
    assert made["texts"] == ["done"]
    assert (tmp_path / "ran.txt").read_text() == "deleted x\n"


@pytest.mark.rule("PER-04", "TOOL-01", "HITL-03")
def test_a_call_in_which_the_process_died_after_it_was_let_in_again_is_unknown_and_never_run_again(
    tmp_path: Path,
) -> None:
    in_process(tmp_path, "crash", "inline", "start", exits=9)
    in_process(tmp_path, "crash", "inline", "resume", exits=9)
    made = json.loads(in_process(tmp_path, "crash", "inline", "resume"))
    assert made["pending"] == []
    assert made["responses"] == {"crash": "unknown"}
    assert made["next"] == ["done"]
    assert (tmp_path / "ran.txt").read_text() == "began\n"
    results = [text for kind, text in made["later"] if kind == "result c1"]
    assert len(results) == 1
    assert "its effects are not known" in results[0]


@pytest.mark.rule("PER-01")
@pytest.mark.parametrize("mode", ["inline", "parked"])
def test_a_question_of_the_agent_waits_again_after_a_kill(mode: str, tmp_path: Path) -> None:
    made = killed_then_resumed(tmp_path, "input", mode)
    assert made["pending"] == ["clarification"]
    assert made["texts"] == ["done"]
    assert ["result c1", '{"city": "Rome"}'] in made["history"]


@pytest.mark.rule("PER-04")
def test_a_stream_that_was_cut_is_closed_and_the_next_turn_works(tmp_path: Path) -> None:
    made = killed_then_resumed(tmp_path, "host", "inline", "cut")
    assert made["pending"] == []
    assert made["ends"][-2:] == [["failed", "lost"], ["completed", None]]
    assert made["next"] == ["done"]
    calls_made = [kind for kind, _ in made["later"] if kind.startswith(("call", "result"))]
    assert calls_made == ["call c1", "result c1"]


# -- loading ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("PER-01")
async def test_a_turn_that_waits_outlives_its_executor(tmp_path: Path) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    async with AdkExecutor(agent(call("look", id="c1")), session_service=service, store=store) as executor:
        session = await executor.open(OpenOptions(session_id="s1", execution=TOOLS))
        await Driven(executor, session).stream("go")
        (before,) = session.pending
    root = agent(say("done"))
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1", OpenOptions(execution=TOOLS)))
        assert [item.request_id for item in desk.session.pending] == [before.request_id]
        assert (await desk.stream(result(before.request_id, 1))).texts == ["done"]
        verify(desk.session)
        assert_valid_history(root.model)


async def test_an_updated_model_still_holds_after_loading(tmp_path: Path) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    async with AdkExecutor(agent(say("x")), session_service=service, store=store) as executor:
        session = await executor.open(OpenOptions(session_id="s1"))
        await session.update(SessionConfig(model="other"))
    root = agent(say("x"))
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1"))
        await desk.stream("go")
        assert root.model.requests[0].model == "other"  # type: ignore[union-attr]


async def test_ids_of_calls_are_not_used_twice_after_loading(tmp_path: Path) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    async with AdkExecutor(agent(call("look", id="c1"), say("x")), session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(OpenOptions(session_id="s1", execution=TOOLS)))
        await desk.turn("go")
    root = agent(call("look", id="c1"), say("y"))
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1", OpenOptions(execution=TOOLS)))
        turn = await desk.turn("go")
        assert turn.texts == ["y"]
        verify(desk.session)
        assert_valid_history(root.model)


async def test_loading_without_adks_session_says_what_is_missing(tmp_path: Path) -> None:
    store = MemoryRecordStore()
    async with AdkExecutor(agent(say("x")), store=store) as executor:
        await executor.open(OpenOptions(session_id="s1"))
    async with AdkExecutor(agent(say("x")), session_service=InMemorySessionService(), store=store) as executor:
        with pytest.raises(SessionNotFound) as missing:
            await executor.load("s1")
        assert "session service" in missing.value.what
        assert "SqliteSessionService" in str(missing.value)
        assert await executor.list() != []  # the record was not touched


async def test_r77_loading_twice_changes_nothing(tmp_path: Path) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    async with AdkExecutor(agent(say("x")), session_service=service, store=store) as executor:
        session = await executor.open(OpenOptions(session_id="s1"))
        await Driven(executor, session).stream("go")
        seen = [event.to_wire() for event in session.record]
        await session.aclose()
        for _ in range(2):
            session = await executor.load("s1")
            assert [event.to_wire() for event in session.record] == seen
            await session.aclose()


async def test_r23_a_session_that_is_open_elsewhere_is_busy(tmp_path: Path) -> None:
    path = str(tmp_path / "record.db")
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    async with (
        SqliteRecordStore(path) as store,
        SqliteRecordStore(path) as other_store,
        AdkExecutor(agent(say("x")), session_service=service, store=store) as executor,
        AdkExecutor(agent(), session_service=service, store=other_store) as other,
    ):
        await executor.open(OpenOptions(session_id="s1"))
        with pytest.raises(SessionBusy):
            await other.load("s1")


@pytest.mark.parametrize("kept", [True, False])
async def test_r81_of_many_that_open_one_id_at_once_one_succeeds(kept: bool, tmp_path: Path) -> None:
    outcomes: list[str] = []
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    store = MemoryRecordStore() if kept else None
    async with AdkExecutor(agent(), session_service=service, store=store) as executor:

        async def one() -> None:
            try:
                await executor.open(OpenOptions(session_id="same"))
                outcomes.append("opened")
            except SessionExists:
                outcomes.append("exists")

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(one)
    assert sorted(outcomes) == ["exists"] * 19 + ["opened"]


async def test_a_session_that_only_adk_has_is_not_overwritten() -> None:
    service = InMemorySessionService()
    await service.create_session(app_name="root", user_id="local", session_id="s1", state={"mine": 1})
    async with AdkExecutor(agent(say("x")), session_service=service, store=MemoryRecordStore()) as executor:
        with pytest.raises(SessionExists):
            await executor.open(OpenOptions(session_id="s1"))
        found = await service.get_session(app_name="root", user_id="local", session_id="s1")
        assert found is not None
        assert found.state == {"mine": 1}
        assert await executor.list() == []


# -- whose it is ------------------------------------------------------------------------------------------------------


async def test_r27_sessions_of_two_users_with_one_id_are_two(tmp_path: Path) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    root = agent(say("for A"), say("for B"))
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        mine = Driven(executor, await executor.open(OpenOptions(session_id="abc-123", user_id="A")))
        theirs = Driven(executor, await executor.open(OpenOptions(session_id="abc-123", user_id="B")))
        await mine.stream("the secret of A")
        await theirs.stream("hello")
        assert not any("secret" in text for _, text in history(root.model))
        with pytest.raises(SessionNotFound):
            await executor.load("abc-123", OpenOptions(user_id="C"))


@pytest.mark.parametrize("bad", ["../../../../etc", "%2e%2e%2fetc", "/etc/passwd", "C:\\x", "a/b", "", "a\x00b"])
async def test_r34_ids_that_could_be_paths_are_refused_and_not_repeated(bad: str) -> None:
    async with AdkExecutor(agent(), store=MemoryRecordStore()) as executor:
        for use in (
            lambda: executor.open(OpenOptions(session_id=bad)),
            lambda: executor.load(bad),
            lambda: executor.delete(bad),
            lambda: executor.open(OpenOptions(user_id=bad)),
        ):
            with pytest.raises((InvalidInput, SessionNotFound, ValueError)) as refused:
                await use()
            assert str(REPO) not in str(refused.value)


async def test_deleting_a_session_deletes_adks_too(tmp_path: Path) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    async with AdkExecutor(agent(say("x")), session_service=service, store=store) as executor:
        session = await executor.open(OpenOptions(session_id="s1"))
        await Driven(executor, session).stream("go")
        await session.aclose()
        await executor.delete("s1")
        assert await service.get_session(app_name="root", user_id="local", session_id="s1") is None
        with pytest.raises(SessionNotFound):
            await executor.load("s1")


async def test_an_ephemeral_session_leaves_nothing_in_adk() -> None:
    service = InMemorySessionService()
    async with AdkExecutor(agent(say("x")), session_service=service, store=MemoryRecordStore()) as executor:
        session = await executor.open(OpenOptions(session_id="s1", execution=ExecutionOptions(ephemeral=True)))
        await Driven(executor, session).stream("go")
        await session.aclose()
        assert await service.get_session(app_name="root", user_id="local", session_id="s1") is None


async def test_r42_calls_of_two_turns_are_answered_each_in_its_own(tmp_path: Path) -> None:
    root = agent(calls(call("look", id="c1")), say("one"), call("find", id="c2"), say("two"))
    service = SqliteSessionService(str(tmp_path / "adk.db"))
    async with AdkExecutor(root, session_service=service) as executor:
        desk = Driven(executor, await executor.open(OpenOptions(execution=TOOLS)))
        await desk.stream("go")
        first = desk.pending("look")
        await desk.stream("something else")
        (receipt,) = await desk.session.respond(result(first, "late"))
        assert receipt.status == "stale"
        assert_valid_history(root.model)
        verify(desk.session)
