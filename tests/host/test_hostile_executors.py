"""Turns whose executor vanishes, hangs or gives what is no event: they end, with an error, and their tools stop."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest
from tests.host.fake_session import FakeExecutor, FakeReader, FakeSession, FakeStream, Until, call, is_start

from agentsession.adapters.scripted import Call, ScriptedExecutor
from agentsession.host import CallbackChannel, Host, PolicyRequest, allow_all, ask_all, tool
from agentsession.protocol import (
    AbortResult,
    AbortTimeout,
    AgentExecutor,
    Answer,
    ConnectionLost,
    Event,
    ProtocolViolation,
    Receipt,
    SessionClosed,
    StreamEnd,
    ToolRequest,
)

pytestmark = pytest.mark.anyio


class Lost(FakeSession):
    """Its answers raise, when a tool has started; nothing else of it ever happens again."""

    error: Exception = ConnectionLost("the executor is gone")

    async def respond(self, *answers: Answer) -> list[Receipt]:
        if all(map(is_start, answers)):
            return await super().respond(*answers)
        raise self.error


class Deaf(FakeSession):
    """Its abort never returns."""

    async def abort(self, reason: str | None = None) -> AbortResult:
        await anyio.sleep_forever()
        raise AssertionError("this is never reached")


class Hasty(FakeSession):
    """It takes an answer before it awaits anything, as sessions may."""

    async def respond(self, *answers: Answer) -> list[Receipt]:
        return [self._respond(answer) for answer in answers]


@tool
def look() -> str:
    return "seen"


def slow(name: str = "slow") -> tuple[Any, anyio.Event, list[str]]:
    """A tool that never ends, what it sets when it begins, and whether it was stopped."""
    begun, stopped = anyio.Event(), list[str]()

    @tool(name=name)
    async def body() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(name)

    return body, begun, stopped


@pytest.mark.parametrize(
    ("error", "raised"), [(ConnectionLost("gone"), ConnectionLost), (SessionClosed("closed"), SessionClosed)]
)
async def test_an_answer_that_cannot_be_given_ends_a_turn_whose_stream_says_nothing_more(
    error: Exception, raised: type[Exception]
) -> None:
    body, _, stopped = slow()
    session = Lost([call("r1", "slow"), call("r2", "look"), Until(("r1", "r2"))])
    session.error = error
    with anyio.fail_after(5), pytest.raises(raised):
        await Host(tools=[body, look], policy=allow_all, abort_grace_s=0.01).run_turn(session, "go")
    assert stopped == ["slow"]


async def test_an_abort_that_never_returns_is_given_up_and_ends_the_turn() -> None:
    body, begun, stopped = slow()
    # The second request is never served: the stream waits for it when the abort is given up.
    session = Deaf([call("r1", "slow"), Until(("r1",)), call("r2", "none", "x"), Until(("r2",))])
    host = Host(tools=[body], policy=allow_all, abort_grace_s=0.01)
    raised: list[Exception] = []

    async def turn() -> None:
        try:
            await host.run_turn(session, "go")
        except AbortTimeout as error:
            raised.append(error)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn)
            await begun.wait()
            with pytest.raises(AbortTimeout):
                await host.abort()
    assert stopped == ["slow"]
    assert len(raised) == 1


async def test_an_abort_that_one_session_does_not_take_ends_the_turns_of_the_others() -> None:
    bodies, begun, stopped = [], [], []
    for name in ("first", "second"):
        body, event, list_ = slow(name)
        bodies.append(body)
        begun.append(event)
        stopped.append(list_)
    deaf = Deaf([call("r1", "first"), Until(("r1",))])
    other = FakeSession([call("r1", "second"), Until(("r1",))])
    host = Host(tools=bodies, policy=allow_all, abort_grace_s=0.01)

    async def turn(session: FakeSession) -> None:
        with contextlib.suppress(AbortTimeout):
            await host.run_turn(session, "go")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for session, event in zip((deaf, other), begun, strict=True):
                tasks.start_soon(turn, session)
                await event.wait()
            with pytest.raises(AbortTimeout):
                await host.abort("enough")
            assert stopped == [["first"], ["second"]]
    assert other.aborts == ["enough"]


async def test_a_tool_that_is_about_to_begin_when_the_turn_is_aborted_does_not(anyio_backend_name: str) -> None:
    if anyio_backend_name == "trio":
        pytest.skip("trio runs what is ready in any order")
    begun: list[str] = []

    @tool
    async def act() -> None:
        begun.append("act")
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:

        def policy(request: PolicyRequest) -> str:
            tasks.start_soon(host.abort)  # runs as soon as anything is awaited
            return "allow"

        host = Host(tools=[act], policy=policy)
        session = FakeSession([call("r1", "act"), Until(("r1",))])
        with anyio.fail_after(5):
            assert (await host.run_turn(session, "go")).end.reason == "aborted"
    assert begun == []


async def hangs() -> None:
    await anyio.sleep_forever()


async def fails() -> None:
    raise RuntimeError("a defect of the executor")


@pytest.mark.parametrize(("aclose", "raised"), [(hangs, AbortTimeout), (fails, RuntimeError)])
async def test_a_session_that_does_not_close_ends_the_turn_that_runs(
    monkeypatch: pytest.MonkeyPatch, aclose: Callable[[], Awaitable[None]], raised: type[Exception]
) -> None:
    body, begun, stopped = slow()
    session = FakeSession([call("r1", "slow"), Until(("r1",))])
    monkeypatch.setattr(session, "aclose", aclose)
    host = Host(tools=[body], policy=allow_all, abort_grace_s=0.01)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def close() -> None:
                await begun.wait()
                with contextlib.suppress(RuntimeError):
                    await host.close(session)

            tasks.start_soon(close)
            with pytest.raises(raised):
                await host.run_turn(session, "go")
    assert stopped == ["slow"]


async def test_what_waits_in_a_session_that_is_closed_is_not_asked_any_more() -> None:
    """An executor that can resume closes a paused turn as it stands: its requests wait for who loads it."""
    asked, paused = anyio.Event(), anyio.Event()
    left: list[str] = []

    def see(event: Event) -> None:
        if isinstance(event, StreamEnd):
            paused.set()

    async def approve(*_: Any) -> bool:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            left.append("person")
        return True

    executor = ScriptedExecutor([[Call("look", needs="grant", id="c1")]], reenter=True)
    host = Host(policy=ask_all, channel=CallbackChannel(approve), observer=see)
    with anyio.fail_after(5):
        async with executor:
            session = await host.open(executor)
            async with anyio.create_task_group() as tasks:

                async def close() -> None:
                    await asked.wait()
                    await paused.wait()
                    await host.close(session)

                tasks.start_soon(close)
                result = await host.run_turn(session, "go")
                assert (result.end.reason, result.unanswered) == ("input_required", ("c1",))
    assert left == ["person"]


async def test_an_executor_that_fails_in_all_it_does_is_told_to_abort_and_raises_what_came_first() -> None:
    class Broken(FakeSession):
        async def abort(self, reason: str | None = None) -> AbortResult:
            self.aborts.append(reason)
            raise RuntimeError("the abort fails too")

    def broken() -> None:
        raise ValueError("the stream fails")

    session = Broken([broken])
    with anyio.fail_after(5), pytest.raises(ValueError, match="the stream fails"):
        await Host().run_turn(session, "go")
    assert session.aborts == ["the host failed"]


async def test_a_session_that_takes_no_answer_is_aborted_all_the_same() -> None:
    body, begun, _ = slow()
    session = Lost([call("r1", "slow"), Until(("r1",))])
    session.error = RuntimeError("a defect of the executor")
    host = Host(tools=[body], policy=allow_all, abort_grace_s=0.01)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            await begun.wait()
            await host.abort("enough")
    assert session.aborts == ["enough"]


@pytest.mark.parametrize("is_paused", [False, True])
async def test_what_is_no_event_in_a_record_is_a_violation_of_the_contract(
    monkeypatch: pytest.MonkeyPatch, is_paused: bool
) -> None:
    """The record is read where the stream skips a seq, and while it is paused."""
    next_in_stream, next_in_record = FakeStream.__anext__, FakeReader.__anext__

    async def skip(stream: FakeStream) -> Event:
        event = await next_in_stream(stream)
        return event if is_paused else event.model_copy(update={"seq": event.seq + 7})

    body, begun, stopped = slow()

    async def give(reader: FakeReader) -> Any:
        if reader.types is not None:
            return await next_in_record(reader)
        if is_paused:
            await begun.wait()
        return "text"

    monkeypatch.setattr(FakeStream, "__anext__", skip)
    monkeypatch.setattr(FakeReader, "__anext__", give)
    session = FakeSession([call("r1", "slow")])
    with anyio.fail_after(5), pytest.raises(ProtocolViolation):
        await Host(tools=[body], policy=allow_all).run_turn(session, "go")
    assert stopped == (["slow"] if is_paused else [])


async def test_a_session_that_does_not_close_is_left(caplog: pytest.LogCaptureFixture) -> None:
    class Open(FakeSession):
        async def aclose(self) -> None:
            await anyio.sleep_forever()

    host = Host(abort_grace_s=0.01)
    with anyio.fail_after(5):
        await host.close(await host.open(cast(AgentExecutor, FakeExecutor(Open([])))))
    assert "did not close in time" in caplog.text


@pytest.mark.parametrize("thing", [None, "text", {"type": "tool_request"}])
async def test_what_is_no_event_is_a_violation_of_the_contract(monkeypatch: pytest.MonkeyPatch, thing: object) -> None:
    async def give(stream: FakeStream) -> Any:
        return thing

    monkeypatch.setattr(FakeStream, "__anext__", give)
    session = FakeSession([])
    with anyio.fail_after(5), pytest.raises(ProtocolViolation) as caught:
        await Host().run_turn(session, "go")
    assert caught.value.rule == "WIRE-02"
    assert session.aborts == ["the host failed"]


@pytest.mark.parametrize("args", [["a"], "a", {"a": float("nan")}, {"a": {1: 2}}])
@pytest.mark.parametrize("needs", ["result", "grant"])
async def test_arguments_that_are_no_json_run_nothing(args: object, needs: str) -> None:
    ran: list[str] = []

    @tool
    def write(a: Any = None) -> None:
        ran.append("write")

    request: Event = ToolRequest.model_construct(
        type="tool_request", request_id="r1", name="write", args=args, needs=needs, owner="host"
    )
    session = FakeSession([request], [])
    with anyio.fail_after(5):
        result = await Host(tools=[write], policy=allow_all).run_turn(session, "go")
    assert result.completed
    assert ran == []
    (answer,) = session.answers
    assert "invalid_arguments" in answer.to_wire_json()


async def test_a_yes_that_is_given_over_its_cancellation_is_not_sent_after_an_abort() -> None:
    asked = anyio.Event()

    async def approve(*_: Any) -> bool:
        asked.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return True
        raise AssertionError("this is never reached")

    session = Hasty([call("g1", "rm", "grant"), call("c1", "look"), Until(("g1", "c1"))])
    host = Host(tools=[look], policy=ask_all, channel=CallbackChannel(approve, concurrent=True))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.run_turn, session, "go")
            await asked.wait()
            await host.abort()
    assert session.answers == []
