"""The suite's end of the wire: what becomes of calls and readers, also where the process breaks, dies or hangs."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from agentsession.conformance.harness import MortalStore, Play
from agentsession.conformance.results import Status
from agentsession.conformance.runner import all_scenarios, run, run_scenario
from agentsession.conformance.scene import HarnessBroke, scene_of
from agentsession.conformance.script import Say, Script
from agentsession.conformance.stdio.client import StdioExecutor
from agentsession.conformance.stdio.harness import StdioHarness
from agentsession.protocol import (
    AgentExecutor,
    AgentSession,
    ConfigurationError,
    ConnectionLost,
    Event,
    EventReader,
    EventStream,
    InvalidInput,
    ProtocolViolation,
    Unimplemented,
)

pytestmark = pytest.mark.anyio

PEER = Path(__file__).with_name("peer.py")


def peer(way: str, **limits: float) -> StdioHarness:
    return StdioHarness([sys.executable, "-S", "-E", str(PEER), way], **limits)


@asynccontextmanager
async def executor_of(harness: StdioHarness, folder: Path) -> AsyncIterator[StdioExecutor]:
    play = Play(Script.of([Say(text="hello")]), folder, MortalStore())
    with anyio.fail_after(20):
        async with harness.executor(play) as executor:
            yield executor


async def read(stream: EventStream) -> list[Event]:
    return [event async for event in stream]


async def test_what_the_suite_drives_is_an_executor_of_the_contract(tmp_path: Path) -> None:
    async with executor_of(peer("good"), tmp_path) as executor:
        session = await executor.open()
        stream = session.stream("go")
        assert isinstance(executor, AgentExecutor)
        assert isinstance(session, AgentSession)
        assert isinstance(stream, EventStream)
        assert isinstance(session.events, type(session.stream))
        assert isinstance(stream, EventReader)


async def test_a_stream_gives_the_events_that_the_process_sends(tmp_path: Path) -> None:
    async with executor_of(peer("good"), tmp_path) as executor:
        session = await executor.open()
        stream = session.stream("go")
        assert (stream.stream_id, stream.turn_id, session.state) == ("s1", "t1", "running")
        events = await read(stream)
        assert [event.type for event in events] == ["message", "agent_start", "message", "agent_end", "stream_end"]
        assert (stream.end, session.state) == (events[-1], "idle")


@pytest.mark.parametrize("way", ["silent", "chatty"])
async def test_a_process_that_does_not_answer_start_is_an_error_of_the_harness(way: str) -> None:
    report = await run(peer(way, start_s=0.3), rules=["LIFE-02"])
    assert [result.status for result in report.results] == [Status.HARNESS_ERROR]
    assert report.exit_code == 6


async def test_a_command_that_cannot_be_started_is_an_error_of_the_harness() -> None:
    report = await run(StdioHarness(["./no-such-executor"]), rules=["LIFE-02"])
    assert [result.status for result in report.results] == [Status.HARNESS_ERROR]
    assert "./no-such-executor" in report.results[0].message


async def test_a_command_that_is_one_text_is_refused() -> None:
    with pytest.raises(InvalidInput):
        StdioHarness("node mine.mjs")


async def test_a_process_that_cannot_play_the_script_says_so() -> None:
    results = await run_scenario(all_scenarios()["two_turns_follow_each_other"], peer("no-steps"))
    assert {(result.status, result.message) for result in results} == {(Status.NOT_RUN, "no delegate, no ask")}


async def test_a_process_that_dies_is_a_lost_connection_that_says_how(tmp_path: Path) -> None:
    async with executor_of(peer("dies"), tmp_path) as executor:
        session = await executor.open()
        with pytest.raises(ConnectionLost, match=r"exit code 1\nout of memory, as it seems"):
            await read(session.stream("go"))
        with pytest.raises(ConnectionLost):
            session.stream("again")
        with pytest.raises(ConnectionLost):
            await session.respond()
        assert session.state == "closed"


async def test_a_line_that_is_no_message_is_a_lost_connection(tmp_path: Path) -> None:
    async with executor_of(peer("rubbish"), tmp_path) as executor:
        session = await executor.open()
        with pytest.raises(ConnectionLost, match=r"Traceback: \.\.\."):
            await read(session.stream("go"))


async def test_a_call_that_cannot_be_awaited_does_not_hang_on_a_mute_process(tmp_path: Path) -> None:
    async with executor_of(peer("mute", answer_s=0.3), tmp_path) as executor:
        session = await executor.open()
        with pytest.raises(ConnectionLost, match="no answer to stream"):
            session.stream("go")


async def test_a_process_that_dies_fails_the_scenario() -> None:
    results = await run_scenario(all_scenarios()["two_turns_follow_each_other"], peer("dies"))
    assert results[0].status is Status.FAIL
    assert "ConnectionLost" in results[0].message


async def test_an_event_that_breaks_a_rule_is_raised_at_the_reader_and_closes_the_session(tmp_path: Path) -> None:
    async with executor_of(peer("wrong-order"), tmp_path) as executor:
        session = await executor.open()
        with pytest.raises(ProtocolViolation, match=r"LIFE-04.*blame: peer"):
            await read(session.stream("go"))
        assert session.state == "closed"
        with pytest.raises(ProtocolViolation):
            session.events()


async def test_an_event_without_what_it_must_have_breaks_the_rule_for_it(tmp_path: Path) -> None:
    async with executor_of(peer("no-reason"), tmp_path) as executor:
        session = await executor.open()
        with pytest.raises(ProtocolViolation, match=r"WIRE-02[\s\S]*/reason"):
            await read(session.stream("go"))


@pytest.mark.parametrize(("way", "rule"), [("wrong-order", "LIFE-04"), ("no-reason", "WIRE-02"), ("early", "LIFE-06")])
async def test_the_verdict_names_the_rule_that_an_event_breaks(way: str, rule: str) -> None:
    results = await run_scenario(all_scenarios()["two_turns_follow_each_other"], peer(way))
    (failed,) = [result for result in results if result.status is Status.FAIL]
    assert failed.rule == rule
    assert [evidence.is_break for evidence in failed.evidence][-1:] == [True]


async def test_the_verdict_shows_the_event_that_breaks_a_rule_after_what_came_before(tmp_path: Path) -> None:
    (failed, *_) = await run_scenario(all_scenarios()["two_turns_follow_each_other"], peer("wrong-order"))
    assert [evidence.text for evidence in failed.evidence] == [
        "#1 initialize",
        "#2 message message_id=m1 agent_id=peer",
        "#3 message message_id=m2 agent_id=peer",
    ]
    assert failed.evidence[-1].event is not None


async def test_a_method_that_a_process_does_not_have_is_unimplemented(tmp_path: Path) -> None:
    async with executor_of(peer("good"), tmp_path) as executor:
        with pytest.raises(Unimplemented):
            await executor.load("s")
        with pytest.raises(Unimplemented):
            await executor.list()


async def test_a_process_is_ended_with_its_stage(tmp_path: Path) -> None:
    async with executor_of(peer("good"), tmp_path) as executor:
        number = executor.process_id
        os.kill(number, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


async def test_a_process_is_ended_when_the_suite_is_interrupted() -> None:
    started = anyio.Event()
    number = 0

    async def stage() -> None:
        nonlocal number
        async with scene_of(peer("good")) as scene:
            executor = (await scene.stage([Say(text="hello")])).executor
            assert isinstance(executor, StdioExecutor)
            number = executor.process_id
            started.set()
            await anyio.sleep_forever()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(stage)
            await started.wait()
            group.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@pytest.mark.parametrize("way", ["silent", "chatty"])
async def test_a_stage_that_breaks_off_in_its_start_leaves_no_process(way: str, tmp_path: Path) -> None:
    play = Play(Script.of([Say(text="hello")]), tmp_path, MortalStore())
    executor = peer(way, start_s=0.3).executor(play)
    with anyio.fail_after(20), pytest.raises(ConfigurationError):
        await executor.__aenter__()
    with pytest.raises(ProcessLookupError):
        os.kill(executor.process_id, 0)


async def test_a_stage_that_breaks_off_in_its_start_breaks_its_scene() -> None:
    with pytest.raises((HarnessBroke, ExceptionGroup)):
        async with scene_of(peer("chatty")) as scene:
            await scene.stage([Say(text="hello")])
