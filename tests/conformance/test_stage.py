"""Stages: waiting for a mark ends when nothing can bring the agent there any more, and folders are made when needed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType

import anyio
import anyio.abc
import pytest
from tests.conformance.broken._script import replaced
from tests.conformance.broken._wrap import Broken
from tests.conformance.harnesses.scripted import ScriptedHarness, harness

from agentsession.adapters.scripted import ScriptedExecutor
from agentsession.conformance.harness import Play
from agentsession.conformance.results import Result, Status
from agentsession.conformance.runner import all_scenarios, run_scenario
from agentsession.conformance.scene import scene_of
from agentsession.conformance.script import Hold, Raise, Say, Script
from agentsession.conformance.stage import NotReached
from agentsession.protocol import AgentExecutor, ConnectionLost, MemoryRecordStore, RecordStore

pytestmark = pytest.mark.anyio

HOUR_S = 3600.0


class DoesNotStop(Broken):
    """It does not wait where the script says so."""

    def script(self, script: Script) -> Script:
        return replaced(script, lambda step: [] if isinstance(step, Hold) else [step])


class FailsWhereItShouldWait(Broken):
    """It raises an exception where the script says that it waits."""

    def script(self, script: Script) -> Script:
        return replaced(script, lambda step: [Raise(message="no")] if isinstance(step, Hold) else [step])


@pytest.mark.parametrize(("fault", "reason"), [(DoesNotStop, "completed"), (FailsWhereItShouldWait, "failed")])
async def test_a_stream_that_ends_before_its_mark_is_a_failure_at_once(fault: type[Broken], reason: str) -> None:
    chosen = all_scenarios()["a_replay_says_what_was_said"]
    with anyio.fail_after(10):
        results = await run_scenario(chosen, fault(), limit_s=HOUR_S)
    (failed,) = [result for result in results if result.status is Status.FAIL]
    assert failed.rule == "ORD-06"
    assert failed.message == f"the stream ended {reason}, and the agent has not come to the mark 'half'"
    assert any(item.text.endswith(f"stream_end {reason}") for item in failed.evidence)


async def test_a_mark_that_nothing_can_reach_is_not_waited_for() -> None:
    async with scene_of(harness) as scene:
        stage, _ = await scene.opened([Say(text="hello")])
        with anyio.fail_after(10), pytest.raises(NotReached, match="no stream runs"):
            await stage.reached("never")


async def test_who_waits_for_a_mark_hears_that_the_executor_is_gone() -> None:
    async with scene_of(harness) as scene:
        stage, session = await scene.opened([Hold(mark="here"), Say(text="hello")])
        async with session.stream("go"), anyio.create_task_group() as group:
            await stage.reached("here")
            group.start_soon(stage.kill)
            with anyio.fail_after(10), pytest.raises(ConnectionLost):
                await stage.reached("never")


async def test_an_executor_whose_agent_is_stubborn_can_be_left() -> None:
    with anyio.fail_after(10):
        async with scene_of(harness) as scene:
            stage, session = await scene.opened([Hold(mark="here", stubborn=True), Say(text="hello")])
            async with session.stream("go"):
                await stage.reached("here")


class LeavesWorkBehind(ScriptedHarness):
    """Beside the executor there is work at a mark that only the suite ends, as a thread may be."""

    waits = False
    """Whether the executor can be left only when that has ended."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        super().__init__()
        self._group = group

    def executor(self, play: Play) -> AgentExecutor:
        executor, ended, waits = super().executor(play), anyio.Event(), self.waits

        async def work() -> None:
            await play.hold("beside")
            ended.set()

        class Waits(ScriptedExecutor):
            async def __aexit__(
                self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
            ) -> bool | None:
                left = await super().__aexit__(kind, error, trace)
                if waits:
                    with anyio.CancelScope(shield=True):
                        await ended.wait()
                return left

        self._group.start_soon(work)
        assert isinstance(executor, ScriptedExecutor)
        executor.__class__ = Waits
        return executor


class WaitsForItsWork(LeavesWorkBehind):
    waits = True


@pytest.mark.parametrize(
    ("fault", "said"),
    [(LeavesWorkBehind, "something of it goes on"), (WaitsForItsWork, "could not be left within 0.2 s")],
)
async def test_what_an_executor_leaves_behind_is_named_and_let_go(fault: type[LeavesWorkBehind], said: str) -> None:
    chosen = all_scenarios()["a_second_abort_changes_nothing"]
    results: list[Result] = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            results += await run_scenario(chosen, fault(group), limit_s=HOUR_S, leave_s=0.2)
    failed = next(result for result in results if result.status is Status.FAIL)
    assert failed.rule == "LIFE-13"
    assert said in failed.message
    assert "the mark 'beside'" in failed.message


async def test_a_mark_that_was_reached_stays_reached() -> None:
    async with scene_of(harness) as scene:
        stage, session = await scene.opened([Hold(mark="here"), Say(text="hello")])
        async with scene.reading(session.stream("go")):
            await stage.reached("here")
            stage.release("here")
        with anyio.fail_after(10):
            await stage.reached("here")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_where_nothing_is_kept_no_folder_is_made(files: Path) -> None:
    async with scene_of(harness) as scene:
        _, session = await scene.opened([Say(text="hello")])
        await scene.turn(session)
        assert list(files.iterdir()) == []


async def test_the_folder_of_a_stage_is_there_outlives_a_restart_and_goes_with_the_scene(files: Path) -> None:
    class Keeps(ScriptedHarness):
        def store(self, folder: Path) -> RecordStore:
            (folder / "record").write_text("kept")
            return MemoryRecordStore()

    async with scene_of(Keeps()) as scene:
        stage, _ = await scene.opened([Say(text="hello")])
        other = await scene.stage([Say(text="hello")])
        await stage.kill()
        again = await stage.again()
        assert (again.play.folder / "record").read_text() == "kept"
        assert again.play.folder == stage.play.folder != other.play.folder
    assert list(files.iterdir()) == []
