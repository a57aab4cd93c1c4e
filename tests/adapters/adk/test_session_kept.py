"""Runs that are kept open while their turn waits: how many, which are let go, and that nothing is lost by it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, history, host_tool, verify
from tests.adapters.adk.shapes import Clock, at_baseline, plant

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, say
from agentsession.adapters.adk._live import LiveRun
from agentsession.protocol import (
    AgentSessionError,
    ExecutionOptions,
    InvalidInput,
    OpenOptions,
    StreamEnd,
    accept,
    decline,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

TOOLS = OpenOptions(execution=ExecutionOptions(tools=[host_tool("look"), host_tool("find")]))


async def waiting(executor: AdkExecutor, options: OpenOptions = TOOLS) -> Driven:
    """A session whose turn waits."""
    desk = Driven(executor, await executor.open(options))
    with anyio.fail_after(20):
        assert (await desk.stream("go")).reason == "input_required"
    return desk


async def left(desk: Driven) -> None:
    """Until the run that was let go has ended."""
    with anyio.fail_after(20):
        await desk.session.ending.wait_exited(desk.session.turns.unfinished())


@pytest.mark.rule("TOOL-11")
@pytest.mark.parametrize("lasting", [False, True])
async def test_beyond_the_cap_the_run_that_waited_longest_is_let_go_and_its_turn_is_answered_all_the_same(
    lasting: bool, tmp_path: Path
) -> None:
    root = LlmAgent(
        name="root", model=ScriptedLlm(script=[call("look", id=f"c{n}") for n in range(3)], forever=say("done"))
    )
    service = SqliteSessionService(str(tmp_path / "adk.db")) if lasting else None
    async with AdkExecutor(root, session_service=service, max_kept_runs=2) as executor:
        desks = [await waiting(executor) for _ in range(3)]
        assert [desk.session.turns.is_kept for desk in desks] == [False, True, True]
        await left(desks[0])
        for desk in desks:
            assert desk.session.state == "input_required"
            done = await desk.stream(result(desk.pending("look"), "seen"))
            assert (done.reason, done.texts) == ("completed", ["done"])
            assert history(root.model)[-1][1] == '{"result": "seen"}'
            verify(desk.session)
        assert_valid_history(root.model)
        assert len(executor.kept) == 0


@pytest.mark.rule("HITL-01", "HITL-03", "TOOL-05")
@pytest.mark.parametrize("when", ["at once", "when the run has ended", "by respond"])
async def test_a_grant_after_its_run_was_let_go_runs_the_tool_once_with_the_edited_arguments(when: str) -> None:
    ran: list[str] = []

    def write(text: str) -> str:
        """Write."""
        ran.append(text)
        return f"wrote {text}"

    root = agent(call("write", {"text": "a"}, id="c1"), call("look", id="c2"), say("done"), tools=[write])
    async with AdkExecutor(root, max_kept_runs=1) as executor:
        desk = await waiting(executor)
        other = await waiting(executor)
        assert not desk.session.turns.is_kept
        if when == "when the run has ended":
            await left(desk)
        answer = grant(desk.pending("write"), args={"text": "b"})
        if when == "by respond":
            (receipt,) = await desk.session.respond(answer)
            assert receipt.ok
            done = await desk.stream()
        else:
            done = await desk.stream(answer)
        assert (done.reason, done.texts, ran) == ("completed", ["done"], ["b"])
        assert_valid_history(root.model)
        await other.session.abort()
        verify(desk.session)


@pytest.mark.rule("HITL-01", "HITL-02")
@pytest.mark.parametrize("yes", [True, False])
async def test_a_confirmation_after_its_run_was_let_go(yes: bool) -> None:
    ran: list[int] = []

    def delete() -> str:
        """Delete."""
        ran.append(1)
        return "deleted"

    root = agent(
        call("delete", id="c1"),
        call("look", id="c2"),
        say("done"),
        tools=[FunctionTool(delete, require_confirmation=True)],
    )
    async with AdkExecutor(root, max_kept_runs=1) as executor:
        desk, _ = await waiting(executor), await waiting(executor)
        assert not desk.session.turns.is_kept
        question = desk.pending("tool_confirmation")
        answer = accept(question, {"confirmed": True}) if yes else decline(question)
        done = await desk.stream(answer)
        assert (done.reason, len(ran)) == ("completed", int(yes))
        assert desk.responses() == {"delete": "completed" if yes else "denied"}
        assert_valid_history(root.model)
        verify(desk.session)


@pytest.mark.rule("TOOL-08")
async def test_a_partial_answer_before_and_one_after_the_run_was_let_go_complete_the_step() -> None:
    root = agent(calls(call("look", id="c1"), call("find", id="c2")), call("look", id="c3"), say("done"))
    async with AdkExecutor(root, max_kept_runs=1) as executor:
        desk = await waiting(executor)
        assert (await desk.stream(result(desk.pending("look"), "early"))).reason == "input_required"
        await waiting(executor)
        assert not desk.session.turns.is_kept
        done = await desk.stream(result(desk.pending("find"), "late"))
        assert (done.reason, done.texts) == ("completed", ["done"])
        shown = [entry for entry in history(root.model) if entry[0].startswith("result")]
        assert sorted(shown) == [("result c1", '{"result": "early"}'), ("result c2", '{"result": "late"}')]
        verify(desk.session)


@pytest.mark.rule("HITL-06", "CTL-05")
@pytest.mark.parametrize("how", ["abort", "message", "close"])
async def test_a_turn_whose_run_was_let_go_can_be_left(how: str) -> None:
    root = agent(call("look", id="c1"), call("look", id="c2"), say("fresh"))
    before = asyncio.all_tasks()
    async with AdkExecutor(root, max_kept_runs=1) as executor:
        desk = await waiting(executor)
        await waiting(executor)
        late = result(desk.pending("look"), 1)
        if how == "abort":
            assert (await desk.session.abort()).status == "aborted"
            assert [receipt.status for receipt in await desk.session.respond(late)] == ["stale"]
        if how == "close":
            await desk.session.aclose()
        else:
            assert (await desk.stream("again")).texts == ["fresh"]
            assert desk.responses() == {"look": "cancelled"}
            assert_valid_history(root.model)
        verify(desk.session)
    assert await at_baseline(before) == set()


async def test_options_steers_and_state_of_a_turn_outlive_the_run_that_was_let_go() -> None:
    root = agent(call("look", id="c1"), call("look", id="c2"), say("done"))
    async with AdkExecutor(root, max_kept_runs=1) as executor:
        desk = Driven(executor, await executor.open())
        await desk.stream("go", ExecutionOptions(model="other", tools=[host_tool("look")]))
        await desk.session.steer("be brief")
        await waiting(executor)
        assert not desk.session.turns.is_kept
        await desk.stream(result(desk.pending("look"), 1))
        assert root.model.requests[-1].model == "other"  # type: ignore[union-attr]
        assert history(root.model)[-1] == ("user", "be brief")


@pytest.mark.parametrize("shape", ["sequential", "parallel", "child"])
async def test_where_only_the_run_knows_the_way_back_a_new_turn_is_refused_and_nothing_is_lost(shape: str) -> None:
    planted = plant(shape, call("look", id="c1"))
    async with AdkExecutor(planted.root, max_kept_runs=1) as executor:
        desk = await waiting(executor)
        other = Driven(executor, await executor.open(TOOLS))
        with pytest.raises(AgentSessionError) as refused:
            other.session.stream("go")
        assert refused.value.id == "too-many-waiting"
        assert other.session.state == "new"
        assert desk.session.turns.is_kept
        assert (await desk.stream(result(desk.pending("look"), 1))).reason == "completed"
        assert (await other.stream("go")).reason == "completed"  # there is room again


async def test_a_message_over_the_only_turn_that_waits_has_room() -> None:
    planted = plant("sequential", call("look", id="c1"))
    async with AdkExecutor(planted.root, max_kept_runs=1) as executor:
        desk = await waiting(executor)
        assert "fresh" in (await desk.stream("again")).texts


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_there_is_room_again_when_a_turn_that_waits_is_left(how: str) -> None:
    planted = plant("sequential", call("look", id="c1"))
    async with AdkExecutor(planted.root, max_kept_runs=1) as executor:
        desk = await waiting(executor)
        await (desk.session.abort() if how == "abort" else desk.session.aclose())
        other = Driven(executor, await executor.open(TOOLS))
        assert "fresh" in (await other.stream("go")).texts


async def test_r120_turns_that_are_never_answered_are_bounded_while_they_wait_and_freed_when_they_are_closed() -> None:
    """R120: abandoned prompts do not pile up. A thousand are in the base class's test; ADK's runs are slower."""
    root = LlmAgent(name="root", model=ScriptedLlm(forever=call("look")))
    before = asyncio.all_tasks()
    async with AdkExecutor(root, max_kept_runs=5) as executor:
        desks = [await waiting(executor) for _ in range(100)]
        assert len(executor.kept) == 5
        await asyncio.gather(*map(left, desks[:-5]))
        assert runs_in_memory() == 5
        sessions = [weakref.ref(desk.session) for desk in desks]
        while desks:
            await desks.pop().session.aclose()
        assert await at_baseline(before) <= asyncio.all_tasks()
        assert runs_in_memory() == 0
        assert [session for session in sessions if session() is not None] == []
        assert executor._states == {}
    assert await at_baseline(before) == set()


@pytest.fixture(autouse=True)
def _note_earlier_runs() -> None:
    """Other tests' runs do not count: a thread of ADK's for synchronous tools holds the last call that it ran."""
    gc.collect()
    _EARLIER[:] = [weakref.ref(item) for item in gc.get_objects() if isinstance(item, LiveRun)]


_EARLIER: list[weakref.ref[LiveRun]] = []


def runs_in_memory() -> int:
    """How many runs of ADK that this test began are held by something."""
    gc.collect()
    earlier = [run() for run in _EARLIER]
    return sum(isinstance(item, LiveRun) and item not in earlier for item in gc.get_objects())


async def test_a_run_in_which_a_tool_failed_is_freed_when_it_is_over() -> None:
    def write() -> str:
        """Write."""
        raise OSError("disk full")

    before = asyncio.all_tasks()
    async with driven(agent(call("write", id="c1"), say("done"), tools=[write])) as desk:
        assert (await desk.turn("go")).texts == ["done"]
        assert await at_baseline(before) == set()
        assert runs_in_memory() == 0


@pytest.mark.rule("HITL-11", "CTL-08")
async def test_r120_a_deadline_frees_a_turn_that_nobody_answers() -> None:
    clock = Clock()
    deadline = datetime.fromtimestamp((clock.ms + 60) / 1000, UTC).isoformat()
    planted = plant("sequential", call("look", id="c1"))
    before = asyncio.all_tasks()
    async with AdkExecutor(planted.root, max_kept_runs=1, now=clock) as executor:
        desk = Driven(executor, await executor.open(TOOLS))
        await desk.stream("go", ExecutionOptions(deadline=deadline))
        with anyio.fail_after(20):
            async with desk.session.events(desk.session.last_seq, follow=True) as reader:
                ended = await anext(event async for event in reader if isinstance(event, StreamEnd))
        assert (ended.reason, ended.data) == ("aborted", {"cause": "deadline"})
        assert len(executor.kept) == 0
        await left(desk)
        assert runs_in_memory() == 0
        assert "fresh" in (await desk.stream("again")).texts
        await desk.session.aclose()
    assert await at_baseline(before) == set()


async def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(InvalidInput):
        AdkExecutor(agent(), max_kept_runs=0)
