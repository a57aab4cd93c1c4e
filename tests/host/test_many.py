"""Whole turns in sessions of their own: one by Host.run, many side by side, none lost, none stopped by another."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

from agentsession.adapters.scripted import Call, Calls, Count, Delay, Deltas, Say, ScriptedExecutor, Step
from agentsession.host import Host, Job, JobResult, SessionFactory, allow_all, tool
from agentsession.protocol import (
    AgentDescriptor,
    AgentSession,
    ConfigurationError,
    Event,
    MemoryRecordStore,
    MessageInput,
    OpenOptions,
    SessionNotFound,
    StreamEnd,
    is_ephemeral,
)

pytestmark = pytest.mark.anyio


@tool
async def echo(text: str) -> str:
    """Say it again."""
    await anyio.lowlevel.checkpoint()
    return text


def busy_turn() -> list[Step]:
    return [
        Deltas(["a ", "b ", "c ", "d"]),
        Calls(Call("echo", {"text": "1"}), Call("echo", {"text": "2"})),
        Count(input_tokens=3, output_tokens=4),
        Call("echo", {"text": "3"}),
        Deltas(["x", "y", "z"]),
    ]


def both(run: Any) -> list[JobResult]:
    return sorted(run, key=lambda done: done.index)


# -- one session ------------------------------------------------------------------------------------------------------


async def test_run_opens_a_session_runs_a_turn_and_closes_it() -> None:
    async with ScriptedExecutor([[Call("echo", {"text": "hi"}), Say("done")]]) as executor:
        result = await Host(tools=[echo], policy=allow_all).run(executor, "go", OpenOptions(session_id="s"))
        assert (result.completed, result.text, result.session_id) == (True, "done", "s")
        assert not executor.open_sessions


async def test_run_goes_on_with_a_stored_session() -> None:
    store = MemoryRecordStore()
    async with ScriptedExecutor([[Say("one")], [Say("two")]]) as executor:
        host = Host()
        await host.run(executor, "go", OpenOptions(session_id="s"), store=store)
        again = await host.run(executor, "on", OpenOptions(session_id="s"), load="s", store=store)
    assert again.text == "two"


@pytest.mark.parametrize("by", ["key", "descriptor"])
async def test_run_makes_the_executor_of_a_key_or_a_descriptor_and_ends_it(by: str) -> None:
    made: list[ScriptedExecutor] = []

    def creator() -> ScriptedExecutor:
        made.append(ScriptedExecutor([[Say("hello")]]))
        return made[-1]

    factory = SessionFactory()
    factory.register("mine", creator)
    named = "mine" if by == "key" else AgentDescriptor(name="agent", executor="mine")
    result = await Host().run(named, "go", factory=factory)
    assert result.text == "hello"
    with pytest.raises(ConfigurationError):
        _ = made[0].task_group  # it was left


async def test_run_of_a_key_that_nothing_is_registered_for_says_so() -> None:
    with pytest.raises(ConfigurationError, match="no executor is called"):
        await Host().run("nobody", "go")


# -- many -------------------------------------------------------------------------------------------------------------


async def test_every_job_has_its_result_with_the_id_of_its_session() -> None:
    async with ScriptedExecutor([[Say("done")]]) as executor:
        jobs: list[str | MessageInput | Job] = [
            "a",
            MessageInput.model_validate({"content": [{"type": "text", "text": "b"}]}),
            Job("c"),
        ]
        async with Host().run_many(executor, jobs, max_parallel=2) as results:
            done = both([result async for result in results])
    assert [one.index for one in done] == [0, 1, 2]
    assert all(one.completed for one in done)
    assert len({one.session_id for one in done}) == 3


async def test_a_job_that_fails_stops_no_other() -> None:
    async with ScriptedExecutor([[Say("done")]]) as executor:
        jobs = [Job("a"), Job("b", load="nobody"), Job("c", OpenOptions(session_id="c"))]
        async with Host().run_many(executor, jobs, store=MemoryRecordStore()) as results:
            done = both([result async for result in results])
    assert [one.completed for one in done] == [True, False, True]
    assert isinstance(done[1].error, SessionNotFound)
    assert (done[1].session_id, done[1].result, done[2].session_id) == ("nobody", None, "c")


async def test_no_more_run_at_once_than_may() -> None:
    at_once, most = 0, 0

    async def counted() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        at_once -= 1

    async with ScriptedExecutor([[Delay(until=counted), Say("done")]]) as executor:
        async with Host().run_many(executor, (str(number) for number in range(12)), max_parallel=3) as results:
            assert len([result async for result in results]) == 12
    assert most == 3


async def test_jobs_are_taken_from_a_generator_only_when_there_is_room() -> None:
    taken: list[int] = []

    async def jobs() -> AsyncIterator[str]:
        for number in range(1_000):
            taken.append(number)
            yield str(number)

    async with ScriptedExecutor([[Say("done")]]) as executor:
        async with Host().run_many(executor, jobs(), max_parallel=2) as results:
            async for done in results:
                if done.index >= 5:
                    break
    assert len(taken) < 12


async def test_what_the_jobs_raise_is_raised_after_the_results_of_those_before() -> None:
    def jobs() -> Iterator[str]:
        yield "a"
        yield "b"
        raise KeyError("c")

    seen: list[bool] = []
    async with ScriptedExecutor([[Say("done")]]) as executor:

        async def read_all() -> None:
            async with Host().run_many(executor, jobs()) as results:
                async for done in results:
                    seen.append(done.completed)

        with pytest.raises(KeyError):
            await read_all()
    assert seen == [True, True]


@pytest.mark.parametrize("how", ["leaves", "raises", "is_cancelled"])
async def test_whoever_leaves_aborts_what_runs(how: str) -> None:
    store, begun = MemoryRecordStore(), anyio.Event()
    started: list[None] = []

    async def hangs() -> None:
        started.append(None)
        if len(started) == 3:
            begun.set()
        await anyio.sleep_forever()

    async with ScriptedExecutor([[Say("working"), Delay(until=hangs)]]) as executor:
        jobs = [Job(name, OpenOptions(session_id=name)) for name in "abc"]
        raised = pytest.raises(KeyError) if how == "raises" else contextlib.nullcontext()
        with anyio.fail_after(20), anyio.CancelScope() as scope, raised:
            async with Host().run_many(executor, jobs, store=store) as results:
                await begun.wait()
                if how == "raises":
                    raise KeyError(how)
                if how == "is_cancelled":
                    scope.cancel()
                    await anext(results)
        assert not executor.open_sessions
        for name in "abc":
            record = await store.read(executor.record_key(name, "local"))
            assert [event.reason for event in record if isinstance(event, StreamEnd)] == ["aborted"]
    gc.collect()


@pytest.mark.parametrize(("jobs", "parallel"), [("one job", 8), (["a"], 0)])
async def test_one_text_is_no_list_of_jobs_and_somebody_must_work(jobs: Any, parallel: int) -> None:
    async with ScriptedExecutor([[Say("done")]]) as executor:
        with pytest.raises(ConfigurationError):
            async with Host().run_many(executor, jobs, max_parallel=parallel):
                pytest.fail("it began")


async def test_200_turns_at_once_lose_and_reorder_no_event() -> None:
    running, all_run = 0, anyio.Event()

    async def meet() -> None:
        """All 200 are in the middle of their turn before the first goes on."""
        nonlocal running
        running += 1
        if running == 200:
            all_run.set()
        await all_run.wait()

    seen: dict[str, list[Event]] = {}

    def observe(event: Event) -> None:
        seen.setdefault(event.session_id or "", []).append(event)

    store = MemoryRecordStore()
    host = Host(tools=[echo], policy=allow_all, observer=observe)
    async with ScriptedExecutor([[*busy_turn()[:2], Delay(until=meet), *busy_turn()[2:]]]) as executor:
        jobs = [Job("go", OpenOptions(session_id=f"s{number}")) for number in range(200)]
        with anyio.fail_after(60):
            async with host.run_many(executor, jobs, max_parallel=200, store=store) as results:
                done = [result async for result in results]
        assert len(done) == 200
        assert all(one.completed for one in done)
        for job in done:
            session_id = job.session_id or ""
            events = seen[session_id]
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            kept = await store.read(executor.record_key(session_id, "local"))
            assert [event for event in events if not is_ephemeral(event)] == kept
            assert len(events) == len(seen["s0"])


async def test_sessions_that_are_closed_by_hand_are_let_go_of() -> None:
    host = Host()
    left: weakref.WeakSet[AgentSession] = weakref.WeakSet()
    async with ScriptedExecutor([]) as executor:

        async def open_and_close() -> None:
            session = await host.open(executor)
            left.add(session)
            await session.aclose()

        for _ in range(400):
            await open_and_close()
        gc.collect()
        assert len(left) < 100


async def test_an_open_session_that_is_idle_has_no_task() -> None:
    async with ScriptedExecutor([[Say("hello")]]) as executor:
        host = Host()
        before = tasks_here()
        sessions = [await host.open(executor) for _ in range(50)]
        for session in sessions:
            await host.run_turn(session, "go")
        assert tasks_here() == before


def tasks_here() -> int:
    """How many tasks the loop has."""
    return len(anyio.get_running_tasks())
