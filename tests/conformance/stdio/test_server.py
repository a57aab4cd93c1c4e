"""Executors in Python, served over stdio: what the wire carries, and that a kill there is a real one."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.conformance.harnesses.scripted import harness as scripted

from agentsession.conformance.harness import Play
from agentsession.conformance.results import Status
from agentsession.conformance.runner import all_scenarios, run_scenario
from agentsession.conformance.scene import Scene, scene_of
from agentsession.conformance.script import Call, Calls, Hold, Say, Script, Stream
from agentsession.conformance.stdio.client import StdioExecutor
from agentsession.conformance.stdio.harness import StdioHarness
from agentsession.conformance.stdio.server import serve
from agentsession.protocol import (
    AbortTimeout,
    AgentExecutor,
    ConnectionLost,
    CursorGone,
    SessionBusy,
    SessionClosed,
    SessionNotFound,
    grant,
    result,
)

pytestmark = pytest.mark.anyio

SERVED = StdioHarness(
    [sys.executable, "-m", "agentsession.conformance.stdio.server", "tests.conformance.harnesses.scripted:reentered"]
)

SOME = [
    "every_cursor_gives_the_rest",
    "an_approval_is_of_what_was_asked",
    "of_two_gated_tools_each_has_its_own_answer",
    "closing_ends_what_runs",
    "an_abort_cancels_what_waits",
]


@asynccontextmanager
async def bounded_scene() -> AsyncIterator[Scene]:
    with anyio.fail_after(30):
        async with scene_of(SERVED) as scene:
            yield scene


async def answers(lines: list[str | dict[str, Any]], script: Script, folder: Path) -> list[dict[str, Any]]:
    """What a served executor prints for these lines after its start, each given when the one before was answered."""
    start = {"protocolVersion": "1.0", "script": script.model_dump(mode="json"), "folder": str(folder)}
    given = iter([{"id": 1, "method": "start", "params": start}, *lines])
    printed: list[dict[str, Any]] = []
    answered = threading.Semaphore(1)

    def read() -> bytes:
        assert answered.acquire(timeout=20)
        line = next(given, "")
        if isinstance(line, dict) and "id" not in line:
            answered.release()
        return (line if isinstance(line, str) else json.dumps(line)).encode() + b"\n" if line else b""

    def send(line: bytes) -> None:
        printed.append(json.loads(line))
        if "id" in printed[-1]:
            answered.release()

    with anyio.fail_after(20):
        await serve(scripted, read, send)
    return printed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", SOME)
async def test_what_passes_in_one_process_passes_over_the_wire(name: str) -> None:
    results = await run_scenario(all_scenarios()[name], SERVED)
    assert {each.status for each in results} == {Status.PASS}


async def test_a_line_that_is_no_request_is_answered_and_passed_over(tmp_path: Path) -> None:
    lines: list[str | dict[str, Any]] = ["{", '"start"', {"id": 2, "method": "list"}]
    _, cut, text, listed = await answers(lines, Script.of([Say(text="hello")]), tmp_path)
    assert [each["id"] for each in (cut, text)] == [None, None]
    assert (cut["error"]["code"], text["error"]["code"]) == ("SchemaError", "InvalidInput")
    assert listed == {"id": 2, "result": {"sessions": []}}


async def test_a_request_of_the_wrong_shape_is_invalid(tmp_path: Path) -> None:
    lines: list[str | dict[str, Any]] = [
        {"id": 2, "method": "open", "params": {"options": {"sessionId": "s"}}},
        {"id": 3, "method": "respond", "params": {"sessionId": "s"}},
        {"id": 4, "method": "update", "params": {"sessionId": "s", "config": {"title": 5}}},
        {"id": 5, "method": "read", "params": {"sessionId": "s", "after": "x"}},
        {"id": 6, "method": "close", "params": {}},
    ]
    printed = await answers(lines, Script.of([Say(text="hello")]), tmp_path)
    assert [line["error"]["code"] for line in printed if "error" in line] == ["InvalidInput"] * 4


async def test_a_method_that_there_is_not_is_unimplemented(tmp_path: Path) -> None:
    lines: list[str | dict[str, Any]] = [{"id": 2, "method": "teleport", "params": {}}, {"method": "teleport"}]
    *_, answer = await answers(lines, Script.of([Say(text="hello")]), tmp_path)
    assert answer["error"]["code"] == "Unimplemented"


async def test_what_is_only_told_and_goes_wrong_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = {"method": "seen", "params": {"sessionId": "nobody", "seq": 1}}
    asked = {"id": 2, "method": "close", "params": {"sessionId": "nobody"}}
    await answers([told, asked], Script.of([Say(text="hello")]), tmp_path)
    assert [record.getMessage() for record in caplog.records] == ["seen was not done"]


async def test_an_exception_that_is_none_of_the_contract_is_logged_with_where_it_was_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def executor(self: object, play: Play) -> AgentExecutor:
        raise RuntimeError("no model")

    monkeypatch.setattr(type(scripted), "executor", executor)
    (answer,) = await answers([], Script.of([Say(text="hello")]), tmp_path)
    assert answer["error"]["message"] == "RuntimeError: no model"
    assert 'raise RuntimeError("no model")' in caplog.text


async def test_errors_come_back_as_what_they_are() -> None:
    async with bounded_scene() as scene:
        stage, session = await scene.opened([Hold(mark="busy"), Say(text="done")])
        with pytest.raises(CursorGone):
            session.events(after=1000)
        with pytest.raises(SessionBusy):
            await stage.load(session.session_id)
        with pytest.raises(SessionNotFound):
            await stage.load("another")


async def test_an_abort_that_gives_up_closes_its_session_and_no_other() -> None:
    async with bounded_scene() as scene:
        stage, session = await scene.opened([Hold(mark="here", stubborn=True), Say(text="done")])
        other = await stage.open()
        async with session.stream("go"):
            await stage.reached("here")
            with pytest.raises(AbortTimeout):
                await session.abort()
        stage.release("here")
        assert session.state == "closed"
        with pytest.raises(SessionClosed):
            session.stream("more")
        stage.release("here")
        scene.end(await scene.read(other.stream("go")), "completed", "LIFE-12")


async def test_a_kill_is_real_and_what_waited_waits_again() -> None:
    calls = [Call(name="look"), Call(name="write", needs="grant")]
    async with bounded_scene() as scene:
        stage, session = await scene.opened([Calls(calls=calls), Say(text="done")])
        before = await scene.read(session.stream("go"))
        assert isinstance(stage.executor, StdioExecutor)
        number = stage.executor.process_id
        await stage.kill()
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
        with pytest.raises(ConnectionLost):
            session.stream("more")
        second = await stage.again()
        loaded = await second.load(session.session_id)
        look, write = loaded.pending
        after = await scene.read(loaded.stream([result(look.request_id, {"ok": True}), grant(write.request_id)]))
        scene.end(after, "completed", "PER-01")
        record = await scene.record(loaded)
        assert record[1 : len(before) + 1] == before
        assert [run.name for run in second.play.runs] == ["write"]
        assert not [each for each in await scene.finish() if each.status is Status.FAIL]


@pytest.mark.rule("ORD-11")
async def test_a_reader_that_stalls_holds_the_executor_at_the_other_end() -> None:
    pieces = [f"{number} " for number in range(5000)]
    async with bounded_scene() as scene:
        _, session = await scene.opened([Stream(pieces=pieces)])
        async with session.stream("go") as stream:
            first = [await anext(stream) for _ in range(10)]
            for _ in range(300):  # while these are answered an executor that nobody holds would say all that it has
                await session.respond()
            held_at = session.last_seq
            rest = [event async for event in stream]
        assert held_at < 1000
        assert len(first) + len(rest) > len(pieces)
        scene.end(rest, "completed", "ORD-11")
