"""Abort, steer, update, closing: what a host does to a turn while it runs or waits; limits: ``test_limits.py``."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import anyio
import pytest
from tests.adapters.sessions import (
    Puppet,
    asking,
    check,
    end_of,
    kinds,
    only,
    read,
    say,
    session_of,
    texts,
    tool,
    until,
)

from agentsession.adapters.base import BaseExecutor, BaseSession, RunContext
from agentsession.adapters.base._run import Run
from agentsession.adapters.scripted import Call, Deltas, Parallel, Say, ScriptedExecutor, Step
from agentsession.protocol import (
    AbortTimeout,
    AgentDescriptor,
    AgentSessionError,
    ConnectionLost,
    Error,
    MemoryRecordStore,
    Message,
    RequestState,
    RunEnded,
    SessionClosed,
    SessionConfig,
    SessionUpdate,
    SteerData,
    StreamEnd,
    ToolResponse,
    Unimplemented,
    grant,
    result,
)

pytestmark = pytest.mark.anyio


async def forever(ctx: RunContext) -> None:
    await anyio.sleep_forever()


# -- abort ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-01")
@pytest.mark.rule("CTL-03")
@pytest.mark.rule("CTL-05")
async def test_abort_of_a_running_turn_returns_after_its_end_which_is_no_error() -> None:
    async def work(ctx: RunContext) -> None:
        if ctx.turn_number == 2:
            await ctx.say("next")
            return
        async with ctx.message() as message:
            await message.text("half")
            await ctx.emit(tool("flight", needs="none"))
            await anyio.sleep_forever()

    async with session_of(work) as session:
        stream = session.stream("go")
        seen = [await anext(stream) for _ in range(4)]  # up to the tool request
        outcome = await session.abort("enough")
        assert (outcome.status, outcome.stream_id) == ("aborted", stream.stream_id)
        assert session.state == "idle"
        events = [*seen, *[event async for event in stream]]
        assert only(events, Error) == []
        assert (end_of(events).reason, end_of(events).data) == ("aborted", {"cause": "enough"})
        assert [event.status for event in only(events, ToolResponse)] == ["unknown"]
        closing = only(events, Message)[-1]
        assert (closing.partial, closing.interrupted) == (False, True)
        assert texts(await say(session)) == ["go", "next"]


class Tells(Puppet):
    """An executor that knows which tools it let in."""

    let_in: tuple[str, ...] = ()

    def has_begun(self, session: BaseSession, request: RequestState) -> bool:
        return request.id in self.let_in


@pytest.mark.rule("CTL-05")
@pytest.mark.parametrize("waits", [False, True])
async def test_of_what_was_granted_only_what_the_executor_let_in_is_unknown_after_an_abort(waits: bool) -> None:
    async def work(ctx: RunContext) -> None:
        asked = [tool("begins", needs="grant"), tool("never", needs="grant"), tool("asks", needs="result")]
        executor.let_in = (asked[0].request_id,)
        await ctx.requests(*asked[: 3 if waits else 2])
        await anyio.sleep_forever()

    executor = Tells(work)
    async with executor, await executor.open() as session:
        await say(session)
        grants = [grant(item.request_id) for item in session.pending[:2]]
        if waits:
            await session.respond(*grants)
        else:
            session.stream(grants)
        await session.abort()
        statuses = {event.name: event.status for event in only(session.record, ToolResponse)}
        assert statuses == {"begins": "unknown", "never": "cancelled", **({"asks": "cancelled"} if waits else {})}
        check(session)


@pytest.mark.rule("CTL-02")
async def test_abort_is_idempotent_in_every_state() -> None:
    async with session_of(forever) as session:
        assert (await session.abort()).status == "idle"
        session.stream("go")
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(session.abort)
        assert (await session.abort()).status == "idle"
        assert len(only(session.record, StreamEnd)) == 1


@pytest.mark.rule("CTL-04")
@pytest.mark.rule("HITL-06")
async def test_abort_settles_what_waits_at_once_so_that_answers_are_stale() -> None:
    closing = anyio.Event()
    done = anyio.Event()

    async def work(ctx: RunContext) -> None:
        ctx.on_abort(lambda: 4.0)
        await ctx.emit(tool("asked"))
        reply = ctx.expect("asked")
        with pytest.raises(RunEnded):
            await reply.wait()
        closing.set()
        await done.wait()

    async with session_of(work) as session:
        stream = session.stream("go")
        await until(stream, type(tool()))
        async with anyio.create_task_group() as group:
            group.start_soon(session.abort)
            await closing.wait()
            (late,) = await session.respond(result("asked", 1))
            assert late.status == "stale"
            assert session.pending == []
            assert session.state == "running"
            done.set()
        assert session.record[-1].reason == "aborted"


@pytest.mark.rule("CTL-04")
async def test_a_run_that_ends_by_itself_during_an_abort_ends_aborted() -> None:
    async def work(ctx: RunContext) -> None:
        leave = anyio.Event()

        def on_abort() -> float:
            leave.set()
            return 4.0

        ctx.on_abort(on_abort)
        await leave.wait()
        assert ctx.aborting

    async with session_of(work) as session:
        events = session.stream("go")
        await until(events, Message)
        await anyio.lowlevel.checkpoint()
        assert (await session.abort()).status == "aborted"


@pytest.mark.rule("CTL-04")
async def test_a_fatal_error_before_the_abort_stays_a_failure() -> None:
    failed = anyio.Event()

    async def work(ctx: RunContext) -> None:
        with anyio.CancelScope(shield=True):
            await ctx.emit(Error(status="INTERNAL", message="gone", fatal=True))
            await failed.wait()

    async with session_of(work) as session:
        stream = session.stream("go")
        await until(stream, Error)
        async with anyio.create_task_group() as group:

            async def abort() -> None:
                assert (await session.abort()).status == "too_late"

            group.start_soon(abort)
            await anyio.lowlevel.checkpoint()
            failed.set()
        assert session.record[-1].reason == "failed"


@pytest.mark.rule("HITL-06")
async def test_abort_of_a_waiting_turn_is_a_settlement_stream(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(asking(), reenter=reenter)) as session:
        first = await say(session)
        outcome = await session.abort()
        assert outcome.status == "aborted"
        settled = [event for event in session.record if event.stream_id == outcome.stream_id]
        assert kinds(settled) == ["tool_response", "tool_response", "stream_end"]
        assert {event.status for event in only(settled, ToolResponse)} == {"cancelled"}
        assert (end_of(settled).reason, end_of(settled).data) == ("aborted", {"cause": "abort"})
        assert end_of(settled).turn_id == end_of(first).turn_id
        (late,) = await session.respond(result("a", 1))
        assert late.status == "stale"
        assert texts(await say(session)) == ["go", "next"]


async def test_a_message_over_pending_requests_settles_them_and_runs_nothing(reenter: bool) -> None:
    runs: list[Any] = []
    script: list[list[Step]] = [[Call("rm", needs="grant", run=runs.append)], [Say("next")]]
    async with session_of(ScriptedExecutor(script, reenter=reenter)) as session:
        await say(session)
        stream = session.stream("something else")
        events = await read(stream)
        ends = only(session.record, StreamEnd)
        assert [end.reason for end in ends] == ["input_required", "aborted", "completed"]
        assert ends[1].data == {"cause": "superseded"}
        assert {event.stream_id for event in events} == {stream.stream_id}
        assert texts(events) == ["something else", "next"]
        assert runs == []


async def test_the_next_turn_starts_only_after_every_run_before_it_has_exited() -> None:
    order: list[str] = []
    leave = anyio.Event()

    async def work(ctx: RunContext) -> None:
        number = ctx.turn_number
        order.append(f"start {number}")
        if number == 1:
            try:
                await ctx.request(tool())
            finally:
                with anyio.CancelScope(shield=True):
                    await leave.wait()
                order.append("exit 1")

    async with session_of(work) as session:
        await say(session)
        second = session.stream("two")
        await anyio.lowlevel.checkpoint()
        assert (await session.abort()).status == "aborted"  # the second turn, which has not started
        third = session.stream("three")
        await anyio.lowlevel.checkpoint()
        leave.set()
        assert end_of(await read(second)).reason == "aborted"
        assert end_of(await read(third)).reason == "completed"
        assert order == ["start 1", "exit 1", "start 3"]


class Stubborn(Puppet):
    """Ignores its cancellation until it is released."""

    def __init__(self, **base: Any) -> None:
        super().__init__(self.hold, grace_s=0.05, **base)
        self.released = anyio.Event()
        self.seen: list[str] = []

    async def hold(self, ctx: RunContext) -> None:
        with anyio.CancelScope(shield=True):
            await ctx.say("working")
            await self.released.wait()
            try:
                await ctx.say("too late")
            except AgentSessionError as error:
                self.seen.append(error.id)


@pytest.mark.rule("CTL-01")
@pytest.mark.rule("LIFE-13")
async def test_an_executor_that_ignores_its_cancellation_closes_the_session() -> None:
    with anyio.fail_after(5):
        async with Stubborn() as executor:
            session = await executor.open()
            stream = session.stream("go")
            await until(stream, Message)
            with pytest.raises(AbortTimeout):
                await session.abort()
            assert session.state == "closed"
            with pytest.raises(ConnectionLost) as lost:
                [event async for event in stream]
            assert isinstance(lost.value.__cause__, AbortTimeout)
            assert (await session.abort()).status == "idle"
            assert executor.closed == [session.session_id]
            record = list(session.record)
            executor.released.set()
        assert executor.seen == ["run-ended"]
        assert session.record == record


@pytest.mark.rule("LIFE-13")
async def test_closing_a_session_whose_executor_does_not_end_still_closes_it() -> None:
    with anyio.fail_after(5):
        async with Stubborn() as executor:
            session = await executor.open()
            stream = session.stream("go")
            await until(stream, Message)
            await session.aclose()
            assert session.state == "closed"
            executor.released.set()


class Lingering(Puppet):
    """Its run asks, and takes until ``leave`` is set to exit once it was told to."""

    def __init__(self, **base: Any) -> None:
        super().__init__(self.linger, resume=True, **base)
        self.told, self.leave = anyio.Event(), anyio.Event()

    async def linger(self, ctx: RunContext) -> None:
        try:
            await ctx.request(tool())
        finally:
            self.told.set()
            with anyio.CancelScope(shield=True):
                await self.leave.wait()


@pytest.mark.rule("LIFE-13")
async def test_nothing_begins_while_the_session_is_being_closed() -> None:
    store = MemoryRecordStore()
    with anyio.fail_after(5):
        async with Lingering(store=store) as executor:
            session = await executor.open()
            await say(session)
            async with anyio.create_task_group() as group:
                group.start_soon(session.aclose)
                await executor.told.wait()
                with pytest.raises(SessionClosed, match="being closed"):
                    session.stream(result("look", 1))
                with pytest.raises(SessionClosed):
                    await session.steer("wait")
                executor.leave.set()
            loaded = await executor.load(session.session_id)
            assert [request.request_id for request in loaded.pending] == ["look"]


@pytest.mark.rule("CTL-05")
async def test_an_on_abort_handler_that_raises_does_not_keep_the_run_alive() -> None:
    async def work(ctx: RunContext) -> None:
        def broken() -> float:
            raise ValueError

        ctx.on_abort(broken)
        await anyio.sleep_forever()

    async with session_of(work) as session:
        session.stream("go")
        await anyio.lowlevel.checkpoint()
        assert (await session.abort()).status == "aborted"


@pytest.mark.rule("CTL-01")
async def test_abort_needs_its_capability_and_closing_does_not() -> None:
    async with session_of(forever, without=["abort"]) as session:
        session.stream("go")
        with pytest.raises(Unimplemented):
            await session.abort()


# -- closing ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LIFE-13")
async def test_closing_from_another_task_ends_the_running_stream() -> None:
    async with session_of(forever) as session:
        stream = session.stream("go")
        events: list[Any] = []

        async def reading() -> None:
            events.extend(await read(stream))

        async with anyio.create_task_group() as group:
            group.start_soon(reading)
            await anyio.lowlevel.checkpoint()
            group.start_soon(session.aclose)
            group.start_soon(session.aclose)
        assert (end_of(events).reason, end_of(events).data) == ("aborted", {"cause": "closed"})
        assert session.state == "closed"


@pytest.mark.rule("LIFE-13")
async def test_closing_settles_a_waiting_turn_that_would_not_survive(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(asking(), reenter=reenter)) as session:
        await say(session)
        await session.aclose()
        last = session.record[-1]
        assert last.reason == ("input_required" if reenter else "aborted")


async def test_a_session_is_closed_in_another_task_than_it_was_opened_in() -> None:
    sessions: list[BaseSession] = []
    with anyio.fail_after(5):
        async with Puppet(forever) as executor, anyio.create_task_group() as group:

            async def opens() -> None:
                sessions.append(await executor.open())
                sessions[0].stream("go")

            async def closes() -> None:
                while not sessions:
                    await anyio.lowlevel.checkpoint()
                await sessions[0].aclose()

            group.start_soon(opens)
            group.start_soon(closes)
    check(sessions[0])
    assert sessions[0].state == "closed"


@pytest.mark.rule("ORD-04")
async def test_nothing_is_left_behind_after_many_turns(anyio_backend: str) -> None:
    def tasks() -> int:
        if anyio_backend == "trio":
            import trio

            return trio.lowlevel.current_statistics().tasks_living
        import asyncio

        return len(asyncio.all_tasks())

    script: list[list[Step]] = [[Deltas(["a", "b"]), Parallel(x=[Call("t")], y=[Say("y")])]]
    with anyio.fail_after(10):
        async with ScriptedExecutor(script) as executor:
            before = tasks()
            for number in range(20):
                session = await executor.open()
                await say(session)
                if number % 2:
                    await read(session.stream(result(session.pending[0].request_id, 1)))
                async with session.events(follow=True) as reader:
                    await anext(reader)
                assert session.readers == 0
                await session.aclose()
                check(session)
            await anyio.lowlevel.checkpoint()
            assert tasks() == before
            assert executor.open_sessions == {}


# -- steer ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-06")
async def test_a_steer_appears_once_when_it_is_injected() -> None:
    go = anyio.Event()

    async def work(ctx: RunContext) -> None:
        await go.wait()
        heard = await ctx.steers()
        assert not ctx.has_steers
        await ctx.say(" ".join(part.text for steer in heard for part in steer.content))  # type: ignore[union-attr]  # text

    async with session_of(work) as session:
        stream = session.stream("go")
        receipts = [await session.steer("mind"), await session.steer(SteerData(message="the gap"))]  # type: ignore[arg-type]  # text
        assert {receipt.status for receipt in receipts} == {"queued"}
        before = len(session.record)
        assert texts(session.record) == ["go"]
        go.set()
        events = await read(stream)
        assert texts(events) == ["go", "mind", "the gap", "mind the gap"]
        ids = [event.message_id for event in only(session.record[before:], Message) if event.source == "user"]
        assert ids == [receipt.request_id for receipt in receipts]


@pytest.mark.rule("CTL-06")
async def test_a_steer_that_comes_while_the_last_step_runs_is_still_taken() -> None:
    go = anyio.Event()

    async def work(ctx: RunContext) -> None:
        while True:
            await ctx.say("step")
            await go.wait()
            if not await ctx.steers():
                return

    async with session_of(work) as session:
        stream = session.stream("go")
        await until(stream, Message)
        await session.steer("one more")
        go.set()
        events = [event async for event in stream]
        assert texts(events) == ["step", "one more", "step"]
        assert end_of(events).reason == "completed"


@pytest.mark.rule("CTL-06")
async def test_an_end_with_a_steer_in_the_queue_is_never_completed() -> None:
    go = anyio.Event()

    async def work(ctx: RunContext) -> None:
        await go.wait()

    async with session_of(work) as session:
        stream = session.stream("go")
        receipt = await session.steer("heard?")
        go.set()
        events = await read(stream)
        assert only(events, Error)[0].code == "CTL-06"
        assert end_of(events).data == {"undelivered": [receipt.request_id]}


@pytest.mark.rule("CTL-06")
async def test_steers_that_an_abort_finds_are_listed_as_undelivered(reenter: bool) -> None:
    async with session_of(ScriptedExecutor(asking(), reenter=reenter)) as session:
        await say(session)
        receipt = await session.steer("too late")
        assert receipt.status == "queued"
        await session.abort()
        assert session.record[-1].data == {"cause": "abort", "undelivered": [receipt.request_id]}


@pytest.mark.rule("CTL-06")
async def test_a_steer_between_streams_is_injected_when_the_turn_goes_on(reenter: bool) -> None:
    script: list[list[Step]] = [[Call("a", id="a"), Say("on")]]
    async with session_of(ScriptedExecutor(script, reenter=reenter)) as session:
        await say(session)
        await session.steer("mind")
        assert texts(await read(session.stream(result("a", 1)))) == ["mind", "on"]


@pytest.mark.rule("CTL-06")
async def test_a_steer_is_rejected_when_nothing_can_take_it() -> None:
    closing = anyio.Event()
    done = anyio.Event()

    async def work(ctx: RunContext) -> None:
        ctx.on_abort(lambda: closing.set() or 4.0)  # type: ignore[func-returns-value]  # None on purpose
        await done.wait()

    async with session_of(work) as session:
        assert (await session.steer("idle")).status == "rejected"
        stream = session.stream("go")
        await until(stream, Message)
        await anyio.lowlevel.checkpoint()
        assert (await session.steer("")).status == "rejected"
        assert (await session.steer(SteerData(action="background"))).status == "rejected"
        async with anyio.create_task_group() as group:
            group.start_soon(session.abort)
            await closing.wait()
            assert (await session.steer("ending")).status == "rejected"
            done.set()
        assert texts(session.record) == ["go"]


@pytest.mark.rule("CTL-06")
async def test_steering_needs_its_capability() -> None:
    async with session_of(forever, without=["steering"]) as session:
        with pytest.raises(Unimplemented):
            await session.steer("x")


# -- update -----------------------------------------------------------------------------------------------------------


class Updatable(Puppet):
    applied: list[SessionConfig]

    def apply_update(self, session: BaseSession, config: SessionConfig) -> None:
        self.applied = [*getattr(self, "applied", []), config]


@pytest.mark.rule("CTL-07")
async def test_an_update_is_recorded_if_and_only_if_it_is_wholly_applied() -> None:
    executor = Updatable(forever)
    async with session_of(executor) as session:
        before = len(session.record)
        assert (await session.update(SessionConfig(title="T", model="other"))).status == "rejected"
        assert (await session.update(SessionConfig())).status == "rejected"
        assert len(session.record) == before
        assert not hasattr(executor, "applied")
        config = SessionConfig(title="T", state={"a": 1})
        assert (await session.update(config)).status == "applied"
        (update,) = only(session.record, SessionUpdate)
        assert (update.title, update.state_delta, update.stream_id) == ("T", {"a": 1}, None)
        assert executor.applied == [config]
        assert session.state_values == {"a": 1}


@pytest.mark.rule("CTL-07")
async def test_an_update_while_the_stream_runs_belongs_to_it() -> None:
    async with session_of(forever) as session:
        stream = session.stream("go")
        await session.update(SessionConfig(state={"a": 1}))
        (update,) = only(session.record, SessionUpdate)
        assert update.stream_id == stream.stream_id


@pytest.mark.rule("CTL-07")
async def test_an_update_while_the_stream_runs_needs_its_capability() -> None:
    async with session_of(forever, without=["mid_turn_update"]) as session:
        session.stream("go")
        assert (await session.update(SessionConfig(title="T"))).status == "rejected"
        await session.abort()
        assert (await session.update(SessionConfig(title="T"))).status == "applied"


# -- runs that are kept open ------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-11")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # once is enough: it takes seconds
async def test_r120_a_thousand_turns_that_are_never_answered_are_bounded_and_freed(anyio_backend: str) -> None:
    """R120: prompts that nobody answers are capped while they wait, and leave nothing when their sessions close."""

    async def work(ctx: RunContext) -> None:
        await ctx.request(tool("look"))

    executor = Puppet(work, resume=True, max_kept_runs=20)
    gc.collect()
    others = weakref.WeakSet(item for item in gc.get_objects() if isinstance(item, Run))

    def runs() -> int:
        gc.collect()
        return sum(isinstance(item, Run) and item not in others for item in gc.get_objects())

    async with executor:
        sessions = [await executor.open() for _ in range(1000)]
        assert {end_of(await say(each)).reason for each in sessions} == {"input_required"}
        assert len(executor.kept) == 20
        await anyio.wait_all_tasks_blocked()
        assert runs() <= 22  # those that are kept, and what a frame of the loop still holds
        assert {each.state for each in sessions} == {"input_required"}
        while sessions:
            await sessions.pop().aclose()
        await anyio.wait_all_tasks_blocked()
        assert runs() == 0


async def test_a_class_of_an_authors_may_have_any_private_name() -> None:
    class Mine(BaseExecutor):
        descriptor = AgentDescriptor(name="mine", executor="mine", capabilities=["abort"])

        def __init__(self) -> None:
            super().__init__()
            self._group, self._sessions, self._opener, self._store = "mine", ["mine"], 1, 2

        async def run(self, ctx: RunContext) -> None:
            await ctx.say(self._call("mine"))

        def _call(self, text: str) -> str:
            return self._after(text)

        def _after(self, text: str) -> str:
            return text

        def _require(self, text: str) -> str:
            raise AssertionError(text)

    async with Mine() as executor:
        session = await executor.open()
        assert texts(await read(session.stream("go"))) == ["go", "mine"]
        await session.aclose()
