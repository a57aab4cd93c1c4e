"""Streams: how they begin, what belongs to them, how they end."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
import pytest
from tests.adapters.sessions import Work, check, end_of, kinds, only, read, say, session_of, texts, tool

from agentsession.adapters.base import BaseExecutor, RunContext, RunResult
from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    AgentSessionError,
    AgentStart,
    ConfigurationError,
    Error,
    Event,
    Initialize,
    InvalidInput,
    Message,
    MessageInput,
    NothingToContinue,
    ProtocolViolation,
    SessionClosed,
    StreamActive,
    StreamEnd,
    Text,
    Thought,
    ToolRequest,
    dump_event,
    parse_event,
    result,
)

pytestmark = pytest.mark.anyio


async def hello(ctx: RunContext) -> None:
    await ctx.say("hello")


@pytest.mark.rule("LIFE-06")
async def test_the_stream_id_is_known_before_any_event() -> None:
    async with session_of(hello) as session:
        stream = session.stream("go")
        assert stream.stream_id
        events = await read(stream)
        assert {event.stream_id for event in events} == {stream.stream_id}
        assert {event.turn_id for event in events} == {stream.turn_id}


@pytest.mark.rule("LIFE-05")
async def test_a_stream_is_bracketed_and_its_end_is_last_and_kept() -> None:
    async with session_of(hello) as session:
        stream = session.stream("go")
        events = await read(stream)
        assert kinds(events) == ["message", "agent_start", "message", "agent_end", "stream_end"]
        assert [event.source for event in events] == ["user", "agent", "agent", "agent", "host"]
        assert stream.end is events[-1]
        assert end_of(events).reason == "completed"


@pytest.mark.rule("LIFE-02")
async def test_the_record_begins_with_initialize_which_has_the_descriptor() -> None:
    async with session_of(hello) as session:
        (first,) = [event async for event in session.events()]
        assert isinstance(first, Initialize)
        assert first.stream_id is None
        assert first.descriptor == session.descriptor


@pytest.mark.rule("LIFE-07")
async def test_a_second_stream_while_one_runs_raises_and_records_nothing() -> None:
    go = anyio.Event()

    async def work(ctx: RunContext) -> None:
        await go.wait()

    async with session_of(work) as session:
        stream = session.stream("go")
        before = list(session.record)
        for second in ("again", None):
            with pytest.raises(StreamActive):
                session.stream(second)
        assert session.record == before
        go.set()
        assert end_of(await read(stream)).reason == "completed"


@pytest.mark.rule("LIFE-08")
async def test_an_iterator_of_a_running_stream_does_not_end_before_stream_end() -> None:
    go = anyio.Event()

    async def work(ctx: RunContext) -> None:
        await ctx.say("one")
        await go.wait()
        await ctx.say("two")

    async with session_of(work) as session:
        seen: list[Event] = []
        async for event in session.stream("go"):
            seen.append(event)
            if texts(seen)[-1:] == ["one"]:
                go.set()
        assert texts(seen) == ["go", "one", "two"]
        assert kinds(seen)[-1] == "stream_end"


@pytest.mark.rule("LIFE-08")
async def test_attaching_to_an_ended_stream_terminates() -> None:
    async with session_of(hello) as session:
        stream = session.stream("go")
        events = await read(stream)
        late = session.events(after=session.last_seq, follow=True, stream_id=stream.stream_id)
        assert [event async for event in late] == []
        again = session.events(after=0, follow=True, stream_id=stream.stream_id)
        assert [event async for event in again] == events


@pytest.mark.rule("LIFE-09")
async def test_an_exception_becomes_a_fatal_error_and_a_failed_end_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(ctx: RunContext) -> None:
        raise ValueError("the key is sk-secret")

    with caplog.at_level(logging.ERROR, "agentsession.adapters"):
        async with session_of(work) as session:
            events = await say(session)
    assert kinds(events) == ["message", "agent_start", "error", "agent_end", "stream_end"]
    (error,) = only(events, Error)
    assert (error.fatal, error.status, error.message) == (True, "INTERNAL", "the executor failed with ValueError")
    assert end_of(events).reason == "failed"
    assert "sk-secret" in caplog.text


@pytest.mark.rule("LIFE-09")
async def test_a_broken_rule_is_named_in_the_error() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.emit(tool("one"))
        await ctx.emit(tool("one"))

    async with session_of(work) as session:
        events = await say(session)
        (error,) = only(events, Error)
        assert error.code == "TOOL-03"
        assert end_of(events).reason == "failed"
        assert session.state == "idle"


@pytest.mark.rule("LIFE-09")
async def test_a_describe_error_that_raises_still_ends_the_stream() -> None:
    class Broken(BaseExecutor):
        descriptor = AgentDescriptor(name="broken", executor="broken")

        async def run(self, ctx: RunContext) -> None:
            raise ValueError

        def describe_error(self, error: BaseException) -> Error:
            raise RuntimeError("twice")

    async with session_of(Broken()) as session:
        events = await say(session)
        assert kinds(events)[-3:] == ["error", "agent_end", "stream_end"]


@pytest.mark.rule("LIFE-09")
async def test_a_cancellation_from_inside_is_no_success(anyio_backend: str) -> None:
    if anyio_backend == "trio":
        pytest.skip("on trio nobody can raise a cancellation by hand")
    import asyncio

    async def work(ctx: RunContext) -> None:
        raise asyncio.CancelledError

    async with session_of(work) as session:
        events = await say(session)
        assert only(events, Error)[0].status == "CANCELLED"
        assert end_of(events).reason == "failed"


@pytest.mark.rule("LIFE-10")
async def test_a_fatal_error_event_ends_the_run_at_once() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.emit(Error(status="UNAVAILABLE", message="the model is gone", fatal=True))
        await anyio.sleep_forever()

    async with session_of(work) as session:
        events = await say(session)
        assert kinds(events)[-3:] == ["error", "agent_end", "stream_end"]
        assert end_of(events).reason == "failed"


@pytest.mark.rule("LIFE-18")
async def test_a_completed_result_after_a_fatal_error_is_a_failure_all_the_same() -> None:
    async def work(ctx: RunContext) -> RunResult:
        await ctx.emit(Error(status="UNAVAILABLE", message="the model is gone", fatal=True))
        return RunResult("completed")

    async with session_of(work) as session:
        assert end_of(await say(session)).reason == "failed"


@pytest.mark.rule("LIFE-11")
async def test_a_non_fatal_error_ends_nothing() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.emit(Error(status="RESOURCE_EXHAUSTED", message="retrying"))
        await ctx.say("done")

    async with session_of(work) as session:
        events = await say(session)
        assert texts(events) == ["go", "done"]
        assert end_of(events).reason == "completed"


@pytest.mark.rule("LIFE-12")
async def test_after_a_stream_of_any_end_the_session_accepts_another() -> None:
    async def work(ctx: RunContext) -> RunResult | None:
        await ctx.say(f"turn {ctx.turn_number}")
        if ctx.turn_number == 1:
            raise ValueError
        return RunResult("max_tokens", {"limit": 7}) if ctx.turn_number == 2 else None

    async with session_of(work) as session:
        ends = [end_of(await say(session)) for _ in range(3)]
        assert [end.reason for end in ends] == ["failed", "max_tokens", "completed"]
        assert ends[1].data == {"limit": 7}


@pytest.mark.rule("LIFE-05")
async def test_an_executor_cannot_emit_the_end_itself() -> None:
    async def work(ctx: RunContext) -> None:
        with pytest.raises(ProtocolViolation) as refused:
            await ctx.emit(StreamEnd(reason="completed"))
        assert refused.value.rule == "LIFE-05"
        await ctx.say("still here")

    async with session_of(work) as session:
        assert texts(await say(session)) == ["go", "still here"]


@pytest.mark.rule("LIFE-17")
async def test_an_input_required_result_with_nothing_pending_is_a_completed_end() -> None:
    async def work(ctx: RunContext) -> RunResult:
        return RunResult("input_required")

    async with session_of(work) as session:
        assert end_of(await say(session)).reason == "completed"


async def test_a_turn_with_nothing_said_is_marked_empty() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.say(Thought(text="hm"))
        if ctx.turn_number == 2:
            await ctx.say("well")

    async with session_of(work) as session:
        assert end_of(await say(session)).data == {"empty": True}
        assert end_of(await say(session)).data is None


def test_a_result_that_is_no_json_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="data"):
        RunResult("completed", {"handle": object()})


@pytest.mark.rule("LIFE-14")
async def test_deltas_have_one_closing_event_with_the_whole_content() -> None:
    async def work(ctx: RunContext) -> None:
        async with ctx.message() as message:
            for piece in ("smile \ud83d", "\ude00", " and"):
                await message.text(piece)
            await message.thought("hm")
            await message.text("bye \ud83d")

    async with session_of(work) as session:
        events = await say(session)
        said = [event for event in only(events, Message) if event.source == "agent"]
        assert [event.index for event in said] == [0, 1, 2, 3, 4, 5, None]
        assert said[-1].content == [Text(text="smile 😀 and"), Thought(text="hm"), Text(text="bye \ufffd")]
        assert len({event.message_id for event in said}) == 1


@pytest.mark.rule("LIFE-14")
async def test_a_message_that_an_exception_leaves_is_closed_interrupted_at_once() -> None:
    async def work(ctx: RunContext) -> None:
        with contextlib.suppress(KeyError):
            async with ctx.message() as message:
                await message.text("half")
                raise KeyError
        await ctx.say("whole")

    async with session_of(work) as session:
        events = await say(session)
        assert [(text, event.interrupted) for text, event in zip(texts(events), whole(events), strict=True)] == [
            ("go", False),
            ("half", True),
            ("whole", False),
        ]


def whole(events: list[Event]) -> list[Message]:
    return [event for event in only(events, Message) if not event.partial]


@pytest.mark.rule("LIFE-14")
async def test_deltas_that_the_executor_numbered_wrongly_are_still_closed_in_agreement() -> None:
    async def work(ctx: RunContext) -> None:
        for piece in ("a", "b", "c"):
            await ctx.emit(Message(message_id="m", content=[Text(text=piece)], partial=True, index=0))

    async with session_of(work) as session:
        assert texts(await say(session)) == ["go", "abc"]


@pytest.mark.rule("LIFE-14")
async def test_a_pause_closes_the_message_and_what_follows_gets_a_new_id(reenter: bool) -> None:
    async def work(ctx: RunContext) -> None:
        async with ctx.message() as message:
            await message.text("before ")
            await ctx.request(tool())
            await message.text("after")

    async with session_of(work) as session:
        first = await say(session)
        second = await read(session.stream(result("look", 1)))
        (cut,) = [event for event in whole(first) if event.source == "agent"]
        (rest,) = whole(second)
        assert (texts(first)[-1], cut.interrupted) == ("before ", True)
        assert (texts(second), rest.interrupted) == (["after"], False)
        assert cut.message_id != rest.message_id


@pytest.mark.rule("LIFE-16")
async def test_at_a_pause_agents_are_closed_and_on_continuing_opened_again() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.request(tool())

    async with session_of(work) as session:
        first = await say(session)
        second = await read(session.stream(result("look", 1)))
        assert [event.reason for event in only(first, AgentEnd)] == ["input_required"]
        assert [event.resumed for event in only(second, AgentStart)] == [True]
        assert end_of(first).pending == ["look"]
        assert end_of(second).reason == "completed"
        assert end_of(first).turn_id == end_of(second).turn_id


@pytest.mark.rule("LIFE-16")
async def test_closing_order_when_an_exception_leaves_everything_open() -> None:
    async def work(ctx: RunContext) -> None:
        async def child(inner: RunContext) -> None:
            await inner.emit(tool("flight", needs="none"))
            await inner.emit(Message(message_id="half", content=[Text(text="ha")], partial=True, index=0))
            await inner.emit(tool("asked"))
            raise ValueError

        await ctx.emit(Message(message_id="mine", content=[Text(text="me")], partial=True, index=0))
        await ctx.emit(tool("running", needs="none"))
        await ctx.parallel(("child", child))

    async with session_of(work) as session:
        events = await say(session)
        closings = events[kinds(events).index("tool_response") :]
        named = [
            getattr(event, "request_id", None) or getattr(event, "message_id", None) or event.thread_id or "root"
            for event in closings
            if not isinstance(event, (Error, StreamEnd))
        ]
        assert named == ["asked", "half", "flight", "child", "mine", "running", "root"]
        statuses = {event.request_id: event.status for event in events if event.type == "tool_response"}  # type: ignore[attr-defined]
        assert statuses == {"asked": "cancelled", "flight": "unknown", "running": "unknown"}
        assert end_of(events).reason == "failed"


@pytest.mark.rule("TOOL-01")
async def test_a_run_that_forgets_a_tool_is_told_so() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.emit(tool("mine", needs="none"))

    async with session_of(work) as session:
        events = await say(session)
        assert only(events, Error)[0].code == "TOOL-01"
        assert end_of(events).reason == "failed"


async def test_an_async_iterator_of_events_is_a_run_too() -> None:
    class Lines(BaseExecutor):
        descriptor = AgentDescriptor(name="lines", executor="lines", capabilities=["abort"])

        async def run(self, ctx: RunContext) -> AsyncIterator[Event]:
            if ctx.input is not None:
                yield Message(message_id=ctx.new_id("m"), content=[Text(text="one")])
                yield ToolRequest(request_id="ask", name="ask")
            else:
                yield Message(message_id=ctx.new_id("m"), content=[Text(text=str(ctx.answers["ask"].data))])  # type: ignore[union-attr]

    async with session_of(Lines()) as session:
        first = await say(session)
        assert end_of(first).pending == ["ask"]
        assert texts(await read(session.stream(result("ask", "two")))) == ["two"]


async def test_a_run_without_open_agents_of_its_own_reopens_something_on_continuing() -> None:
    class Plain(BaseExecutor):
        descriptor = AgentDescriptor(name="plain", executor="plain", capabilities=["abort"])
        brackets_itself = True

        async def run(self, ctx: RunContext) -> None:
            await ctx.emit(AgentStart(agent_id="plain"))
            await ctx.emit(tool())
            reply = ctx.expect("look")
            await ctx.emit(AgentEnd(agent_id="plain"))
            assert ctx.pause()
            await reply.wait()
            await ctx.say("on")

    async with session_of(Plain()) as session:
        await say(session)
        await session.respond(result("look", 1))
        stream = session.stream()
        assert session.state == "running"
        with pytest.raises(StreamActive):
            session.stream()
        assert texts(await read(stream)) == ["on"]


async def test_nothing_to_continue() -> None:
    async with session_of(hello) as session:
        with pytest.raises(NothingToContinue):
            session.stream()
        with pytest.raises(NothingToContinue):
            session.stream(result("nothing", 1))
        assert session.state == "new"
        assert len(session.record) == 1


async def test_input_that_cannot_be_taken_starts_nothing() -> None:
    async with session_of(hello) as session:
        with pytest.raises(InvalidInput):
            session.stream("")
        await read(session.stream(MessageInput(content="one", message_id="mine")))  # type: ignore[arg-type]  # text is taken
        with pytest.raises(InvalidInput):
            session.stream(MessageInput(content="two", message_id="mine"))  # type: ignore[arg-type]  # text is taken
        assert session.state == "idle"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda session: session.stream(5), id="stream"),
        pytest.param(lambda session: session.stream({"kind": "message"}), id="stream_of_json"),
        pytest.param(lambda session: session.stream([MessageInput(content=[])]), id="stream_of_messages"),
        pytest.param(lambda session: session.stream("go", {"model": "x"}), id="options"),
        pytest.param(lambda session: session.respond("yes"), id="respond"),
        pytest.param(lambda session: session.steer(5), id="steer"),
        pytest.param(lambda session: session.update({"title": "x"}), id="update"),
        pytest.param(lambda session: session.abort(ValueError("x")), id="abort"),
        pytest.param(lambda session: session.events(types="message"), id="one_type"),
        pytest.param(lambda session: session.events("3"), id="cursor"),
        pytest.param(lambda session: session.executor.open({"user_id": "x"}), id="open"),
    ],
)
async def test_an_argument_of_the_wrong_type_is_refused_in_words_and_changes_nothing(call: Any) -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.request(tool())

    async with session_of(work) as session:
        await say(session)
        before = list(session.record)

        async def make() -> None:
            made = call(session)
            if inspect.isawaitable(made):
                await made

        with pytest.raises(InvalidInput) as refused:
            await make()
        assert refused.value.got
        assert refused.value.fix or refused.value.expected
        assert session.record == before
        assert session.state == "input_required"


async def returns_text(ctx: RunContext) -> Any:
    return "done"


async def emits_text(ctx: RunContext) -> None:
    await ctx.emit("hello")  # type: ignore[type-var]  # what a caller without types may do


async def says_bytes(ctx: RunContext) -> None:
    async with ctx.message() as message:
        await message.text(b"hello")  # type: ignore[arg-type]  # what a caller without types may do


async def names_a_message_badly(ctx: RunContext) -> None:
    async with ctx.message(message_id="m" * 513) as message:
        await message.text("hello")


async def names_threads_too_long(ctx: RunContext) -> None:
    async def nothing(child: RunContext) -> None: ...

    async def nested(child: RunContext) -> None:
        await child.parallel(("b" * 300, nothing))

    await ctx.parallel(("a" * 300, nested))


async def waits_for_nobody(ctx: RunContext) -> None:
    await ctx.requests(tool(needs="none"))


async def lists_steers(ctx: RunContext) -> RunResult:
    return RunResult("completed", {"undelivered": [ctx.record[1].message_id]})  # type: ignore[attr-defined]  # a message


@pytest.mark.rule("LIFE-09")
@pytest.mark.parametrize(
    "work",
    [
        returns_text,
        emits_text,
        says_bytes,
        names_a_message_badly,
        names_threads_too_long,
        waits_for_nobody,
        lists_steers,
    ],
)
async def test_a_mistake_of_an_author_ends_the_stream_and_leaves_the_session_in_use(work: Work) -> None:
    async with session_of(work) as session:
        events = await say(session)
        assert end_of(events).reason == "failed"
        assert only(events, Error)[0].fatal
        assert [parse_event(dump_event(event)) for event in events] == events
        assert session.state == "idle"


async def test_a_run_that_is_no_coroutine_is_told_so() -> None:
    class Plain(BaseExecutor):
        descriptor = AgentDescriptor(name="plain", executor="plain")

        def run(self, ctx: RunContext) -> Any:
            return None

    async with session_of(Plain()) as session:
        assert only(await say(session), Error)[0].message == "run() gave NoneType"


@pytest.mark.rule("LIFE-09")
@pytest.mark.parametrize("described", [Error(status="UNAVAILABLE", message="later"), "no event"])
async def test_what_describe_error_returns_is_a_fatal_error_event(described: Any) -> None:
    class Mild(BaseExecutor):
        descriptor = AgentDescriptor(name="mild", executor="mild")

        async def run(self, ctx: RunContext) -> None:
            raise ValueError

        def describe_error(self, error: BaseException) -> Error:
            return cast(Error, described)

    async with session_of(Mild()) as session:
        events = await say(session)
        assert kinds(events)[-3:] == ["error", "agent_end", "stream_end"]
        assert only(events, Error)[0].fatal
        assert session.state == "idle"


async def test_an_executor_is_entered_once() -> None:
    class Quiet(BaseExecutor):
        descriptor = AgentDescriptor(name="quiet", executor="quiet")

    async with Quiet() as executor:
        with pytest.raises(ConfigurationError, match="running already"):
            await executor.__aenter__()


async def test_ids_that_the_host_chose_are_passed_over() -> None:
    async with session_of(hello) as session:
        for number in range(1, 9):
            await read(session.stream(MessageInput(content="x", message_id=f"m{number * 3}")))  # type: ignore[arg-type]  # text
        ids = [event.message_id for event in only(session.record, Message)]
        assert len(ids) == len(set(ids))


async def test_a_message_with_a_seen_idempotency_key_attaches_to_its_turn_and_runs_nothing() -> None:
    runs = 0
    go = anyio.Event()

    async def work(ctx: RunContext) -> None:
        nonlocal runs
        runs += 1
        await go.wait()
        await ctx.say("done")

    message = MessageInput(content="once", idempotency_key="k")  # type: ignore[arg-type]  # text is taken
    async with session_of(work) as session:
        first = session.stream(message)
        again = session.stream(message)
        assert again.stream_id == first.stream_id
        go.set()
        events = await read(first)
        assert await read(again) == events
        assert await read(session.stream(message)) == events
        assert runs == 1


async def test_an_executor_that_is_not_entered_says_so() -> None:
    from tests.adapters.sessions import Puppet

    with pytest.raises(ConfigurationError) as refused:
        await Puppet(hello).open()
    assert refused.value.id == "executor-not-entered"


@pytest.mark.rule("LIFE-13")
async def test_on_a_closed_session_every_call_raises_and_reading_still_works() -> None:
    async with session_of(hello) as session:
        events = await say(session)
        await session.aclose()
        await session.aclose()
        with pytest.raises(SessionClosed):
            session.stream("go")
        with pytest.raises(SessionClosed):
            await session.respond(result("x", 1))
        with pytest.raises(SessionClosed):
            await session.steer("x")
        assert (await session.abort()).status == "idle"
        assert [event async for event in session.events(follow=True)][1:] == events


async def test_leaving_the_executor_closes_every_session_and_calls_on_close_once() -> None:
    from tests.adapters.sessions import Puppet

    async def work(ctx: RunContext) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(5):
        async with Puppet(work) as executor:
            sessions = [await executor.open() for _ in range(3)]
            streams = [session.stream("go") for session in sessions]
        assert [session.state for session in sessions] == ["closed"] * 3
        assert sorted(executor.closed) == sorted(session.session_id for session in sessions)
        for session, stream in zip(sessions, streams, strict=True):
            assert end_of(await read(stream)).reason == "aborted"
            check(session)


async def test_an_on_open_that_raises_refuses_the_session_and_frees_its_id() -> None:
    from tests.adapters.sessions import Puppet

    from agentsession.protocol import MemoryRecordStore, OpenOptions

    class Picky(Puppet):
        refuse = True

        async def on_open(self, session: object) -> None:
            if self.refuse:
                raise AgentSessionError("no")

    async with Picky(hello, store=MemoryRecordStore()) as executor:
        with pytest.raises(AgentSessionError, match="no"):
            await executor.open(OpenOptions(session_id="s"))
        executor.refuse = False
        assert (await executor.open(OpenOptions(session_id="s"))).session_id == "s"
        assert (executor.closed, executor.deleted) == ([], [])
