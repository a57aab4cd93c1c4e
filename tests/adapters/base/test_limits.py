"""Limits that the session keeps for every executor: active seconds, deadline, budget; each with its own reason."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from tests.adapters.sessions import Puppet, asking, end_of, kinds, only, read, say, session_of, texts, until

from agentsession.adapters.base import RunContext, RunResult
from agentsession.adapters.scripted import Ask, Call, Count, Delay, Say, ScriptedExecutor, Step
from agentsession.protocol import (
    AgentDescriptor,
    ConfigurationError,
    Constraints,
    ElicitationRequest,
    Error,
    Event,
    ExecutionOptions,
    Grace,
    InvalidInput,
    MemoryRecordStore,
    OpenOptions,
    Price,
    Spent,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    ToolResult,
    Usage,
    accept,
    result,
)

pytestmark = pytest.mark.anyio


class Clock:
    """The executor's time, which goes on only when it is told to."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def at_most(seconds: float, **more: Any) -> ExecutionOptions:
    return ExecutionOptions(limits=Constraints(max_time_seconds=seconds, **more))


async def forever(ctx: RunContext) -> None:
    await anyio.sleep_forever()


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize("reason", ["max_turns", "max_llm_calls", "max_budget", "max_time", "refusal", "max_tokens"])
async def test_each_limit_has_its_own_reason(reason: str) -> None:
    async def work(ctx: RunContext) -> RunResult:
        return RunResult(reason)

    async with session_of(work) as session:
        assert end_of(await say(session)).reason == reason


# -- active seconds ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-08")
async def test_a_turn_that_works_too_long_ends_max_time_and_the_session_goes_on() -> None:
    async def work(ctx: RunContext) -> None:
        if ctx.turn_number > 1:
            await ctx.say("next")
            return
        await ctx.emit(ToolRequest(request_id="started", name="dig", needs="none"))

        async def asks(child: RunContext) -> None:
            await child.request(ToolRequest(request_id="waiting", name="look", needs="result"))

        async def digs(child: RunContext) -> None:
            await anyio.sleep_forever()

        await ctx.parallel(("one", asks), ("two", digs))

    async with session_of(work) as session:
        events = await read(session.stream("go", at_most(0.02)))
        (told,) = only(events, Error)
        assert (end_of(events).reason, told.code, told.fatal) == ("max_time", "max_time", False)
        assert {item.name: item.status for item in only(events, ToolResponse)} == {
            "look": "cancelled",
            "dig": "unknown",
        }
        assert kinds(session.record).count("stream_end") == 1
        assert texts(await say(session)) == ["go", "next"]


@pytest.mark.rule("HITL-11", "CTL-08")
async def test_the_time_that_a_turn_waits_for_a_person_is_not_counted(reenter: bool) -> None:
    clock = Clock()
    script: list[list[Step]] = [[Ask("Who?"), Ask("Sure?")]]
    async with session_of(ScriptedExecutor(script, reenter=reenter, now=clock)) as session:
        events = await read(session.stream("go", at_most(60)))
        for _ in range(2):
            clock.ms += 3_600_000
            events = await read(session.stream(accept(session.pending[0].request_id, "me")))
        assert end_of(events).reason == "completed"


@pytest.mark.rule("CTL-08")
async def test_active_seconds_are_counted_over_all_streams_of_a_turn(reenter: bool) -> None:
    clock = Clock()

    async def passes() -> None:
        clock.ms += 60

    script: list[list[Step]] = [
        [Delay(until=passes), Ask("Who?"), Delay(until=passes), Delay(until=anyio.sleep_forever)]
    ]
    async with session_of(ScriptedExecutor(script, reenter=reenter, now=clock)) as session:
        await read(session.stream("go", at_most(0.1)))
        assert session.limits.active_s == pytest.approx(0.06)
        events = await read(session.stream(accept(session.pending[0].request_id, "me")))
        assert end_of(events).reason == "max_time"


@pytest.mark.rule("CTL-08", "PER-01")
async def test_active_seconds_go_on_counting_in_another_process() -> None:
    clock, store = Clock(), MemoryRecordStore()

    async def work(ctx: RunContext) -> None:
        clock.ms += 60
        if ctx.input is not None:
            await ctx.post(ToolRequest(request_id="r", name="look", needs="result"))
        else:
            await anyio.sleep_forever()

    options = OpenOptions(session_id="s", execution=at_most(0.1))
    async with Puppet(work, resume=True, store=store, now=clock) as executor:
        await say(await executor.open(options))
    clock.ms += 3_600_000
    async with Puppet(work, resume=True, store=store, now=clock) as executor:
        session = await executor.load("s", OpenOptions(execution=at_most(0.1)))
        with anyio.fail_after(5):
            events = await read(session.stream(result("r", 1)))
        assert end_of(events).reason == "max_time"


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize(("worked_s", "reason"), [(30, "completed"), (61, "max_time")])
async def test_what_the_hosts_tools_worked_between_the_streams_counts(
    worked_s: float, reason: str, reenter: bool
) -> None:
    clock = Clock()
    script: list[list[Step]] = [[Call("look", {}), Call("look", {}), Say("done")]]
    async with session_of(ScriptedExecutor(script, reenter=reenter, now=clock)) as session:
        events = await read(session.stream("go", at_most(60)))
        for seconds in (0.0, worked_s):
            (waiting,) = session.pending
            clock.ms += 3_600_000  # what people took beside it
            answer = ToolResult(request_id=waiting.request_id, data=1, spent=Spent(seconds=seconds))
            events = await read(session.stream(answer))
        assert end_of(events).reason == reason


@pytest.mark.rule("CTL-08", "PER-01")
@pytest.mark.parametrize("answered", ["before", "after"])
async def test_what_the_hosts_tools_worked_counts_in_another_process(answered: str) -> None:
    clock, store = Clock(), MemoryRecordStore()
    script: list[list[Step]] = [[Call("look", {}), Call("dig", {}), Say("done")]]
    spent = Spent(seconds=31)
    async with ScriptedExecutor(script, reenter=True, store=store, now=clock) as executor:
        session = await executor.open(OpenOptions(session_id="s", execution=at_most(60)))
        await say(session)
        if answered == "before":
            first = ToolResult(request_id=session.pending[0].request_id, data=1, spent=spent)
            await read(session.stream(first))
    async with ScriptedExecutor(script, reenter=True, store=store, now=clock) as executor:
        session = await executor.load("s", OpenOptions(execution=at_most(60)))
        events: list[Event] = []
        while session.state == "input_required":
            answer = ToolResult(request_id=session.pending[0].request_id, data=1, spent=spent)
            with anyio.fail_after(5):
                events = await read(session.stream(answer))
        assert end_of(events).reason == "max_time"


@pytest.mark.rule("CTL-08")
async def test_a_new_turn_has_all_of_its_time_again() -> None:
    clock = Clock()

    async def work(ctx: RunContext) -> None:
        clock.ms += 60

    async with session_of(work, OpenOptions(execution=at_most(0.1)), now=clock) as session:
        for _ in range(3):
            assert end_of(await say(session)).reason == "completed"


@pytest.mark.rule("CTL-08")
async def test_the_tighter_of_the_agents_and_the_hosts_limit_holds() -> None:
    for own, hosts in ((0.02, 9999), (9999, 0.02)):
        executor = Puppet(forever)
        executor.descriptor = executor.descriptor.model_copy(
            update={"constraints": Constraints(max_time_seconds=own, max_turns=3)}
        )
        async with session_of(executor) as session:
            assert end_of(await read(session.stream("go", at_most(hosts)))).reason == "max_time"


@pytest.mark.rule("CTL-08")
async def test_a_later_streams_limit_holds_for_the_rest_of_the_turn(reenter: bool) -> None:
    script: list[list[Step]] = [[Ask("Who?"), Delay(until=anyio.sleep_forever)]]
    async with session_of(ScriptedExecutor(script, reenter=reenter)) as session:
        await say(session)
        events = await read(session.stream(accept(session.pending[0].request_id, "me"), at_most(0.02)))
        assert end_of(events).reason == "max_time"


@pytest.mark.rule("CTL-04", "CTL-08")
async def test_two_limits_that_come_at_once_give_one_reason_and_one_error() -> None:
    async with session_of(forever) as session:
        past = datetime(2001, 1, 1, tzinfo=UTC).isoformat()
        options = ExecutionOptions(deadline=past, limits=Constraints(max_time_seconds=1e-9))
        events = await read(session.stream("go", options))
        end = end_of(events)
        assert end.reason in ("deadline", "max_time")
        assert end.data == {"cause": end.reason}
        assert [told.code for told in only(events, Error)] == [end.reason]
        assert len(only(events, StreamEnd)) == 1


@pytest.mark.rule("CTL-04", "CTL-08")
async def test_an_abort_that_comes_before_the_limit_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, entered, came = Clock(), anyio.Event(), anyio.Event()

    def time_passes() -> float:
        clock.ms += 60
        return 4.0

    async def leaves_when_the_limit_has_come(ctx: RunContext) -> None:
        ctx.on_abort(time_passes)
        entered.set()
        await came.wait()
        assert ctx.aborting

    async with session_of(leaves_when_the_limit_has_come, now=clock) as session:
        end = session.limits._end

        async def noted(*args: Any) -> None:
            came.set()
            await end(*args)

        monkeypatch.setattr(session.limits, "_end", noted)
        async with session.stream("go", at_most(0.02)) as stream:
            await entered.wait()
            await session.abort()
            async for _ in stream:
                pass
        assert (came.is_set(), stream.end.reason, only(session.record, Error)) == (True, "aborted", [])


@pytest.mark.rule("CTL-08", "LIFE-13", "LIFE-18")
@pytest.mark.parametrize("reached", ["time", "money", "circles", "fatal"])
async def test_work_that_does_not_end_when_it_is_told_to_closes_the_session(reached: str) -> None:
    release = anyio.Event()

    async def stubborn(ctx: RunContext) -> None:
        with anyio.CancelScope(shield=True):
            if reached == "money":
                await ctx.usage(cost=9)
            elif reached == "fatal":
                await ctx.emit(Error(status="INTERNAL", message="broken", fatal=True))
            for number in range(5 if reached == "circles" else 0):
                request = await ctx.emit(ToolRequest(request_id=f"r{number}", name="look", needs="none"))
                await ctx.respond(request, "same")
            await release.wait()

    executor = thrifty(stubborn, "cost", grace_s=0.02)
    limits = Constraints(max_budget_usd=1, max_time_seconds=0.02 if reached == "time" else 60)
    async with executor:
        session = await executor.open()
        session.stream("go", ExecutionOptions(limits=limits, loop_detection=True))
        try:
            with anyio.fail_after(5):
                while session.state != "closed":
                    await anyio.lowlevel.checkpoint()
        finally:
            release.set()


async def test_a_turn_that_ends_in_time_leaves_no_watcher() -> None:
    async with session_of(ScriptedExecutor([[Ask("Who?")]])) as session:
        await read(session.stream("go", at_most(9999)))
        assert session.limits._timer is None
        await read(session.stream(accept(session.pending[0].request_id, "me")))
        assert session.limits._timer is None
        assert session.limits._since is None


@pytest.mark.rule("HITL-11")
async def test_a_turn_may_wait_for_a_person_as_long_as_it_takes(reenter: bool) -> None:
    script: list[list[Step]] = [[Ask("Who?"), Say("hello")]]
    clock = itertools.count(1_000_000, step=3_600_000)  # an hour passes whenever somebody looks
    async with session_of(ScriptedExecutor(script, reenter=reenter, now=lambda: next(clock))) as session:
        await say(session)
        events = await read(session.stream(accept(session.pending[0].request_id, "me")))
        assert texts(events) == ["hello"]


# -- deadlines --------------------------------------------------------------------------------------------------------


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.rule("CTL-08")
async def test_a_running_turn_ends_at_its_deadline() -> None:
    async with session_of(forever, now=lambda: 1_000_000) as session:
        events = await read(session.stream("go", ExecutionOptions(deadline=iso(999_000))))
        assert (end_of(events).reason, end_of(events).data) == ("deadline", {"cause": "deadline"})


@pytest.mark.rule("CTL-08")
async def test_a_waiting_turn_is_settled_at_its_deadline(reenter: bool) -> None:
    clock = itertools.count(1_000_000)
    executor = ScriptedExecutor(asking(), reenter=reenter, now=lambda: next(clock))
    async with session_of(executor) as session:
        first = await read(session.stream("go", ExecutionOptions(deadline=iso(1_000_060))))
        assert end_of(first).reason == "input_required"
        async with session.events(first[-1].seq, follow=True) as reader:
            settled = await until(reader, StreamEnd)
        assert (settled.reason, settled.data) == ("aborted", {"cause": "deadline"})
        assert texts(await say(session)) == ["go", "next"]


async def test_a_turn_that_ends_before_its_deadline_leaves_no_watcher(anyio_backend: str) -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.say("done")

    async with session_of(work) as session:
        far = ExecutionOptions(deadline="2999-01-01T00:00:00Z")
        for _ in range(3):
            await read(session.stream("go", far))
        assert session.limits._deadline is None


@pytest.mark.parametrize("deadline", ["soon", "2026-01-31T12:00:00"])
async def test_a_deadline_that_is_no_moment_is_refused_and_nothing_starts(deadline: str) -> None:
    async with session_of(forever) as session:
        with pytest.raises(InvalidInput):
            session.stream("go", ExecutionOptions(deadline=deadline))
        assert session.state == "new"


@pytest.mark.rule("CTL-08")
async def test_a_turn_that_is_continued_may_be_given_a_deadline(reenter: bool) -> None:
    script: list[list[Step]] = [[Call("a", id="a"), Delay(until=anyio.sleep_forever)]]
    async with session_of(ScriptedExecutor(script, reenter=reenter, now=lambda: 1_000_000)) as session:
        await say(session)
        events = await read(session.stream(result("a", 1), ExecutionOptions(deadline=iso(999_000))))
        assert end_of(events).reason == "deadline"


async def test_a_continuation_with_a_deadline_that_is_no_moment_opens_nothing() -> None:
    async with session_of(ScriptedExecutor(asking())) as session:
        await say(session)
        with pytest.raises(InvalidInput):
            session.stream(result("a", 1), ExecutionOptions(deadline="soon"))
        assert [request.request_id for request in session.pending] == ["a", "b"]


async def test_a_later_deadline_replaces_the_one_before(reenter: bool) -> None:
    script: list[list[Step]] = [[Call("a", id="a"), Call("b", id="b")]]
    clock = itertools.count(1_000_000)
    async with session_of(ScriptedExecutor(script, reenter=reenter, now=lambda: next(clock))) as session:
        await read(session.stream("go", ExecutionOptions(deadline="2999-01-01T00:00:00Z")))
        first = await read(session.stream(result("a", 1), ExecutionOptions(deadline=iso(1_000_060))))
        async with session.events(first[-1].seq, follow=True) as reader:
            assert (await until(reader, StreamEnd)).data == {"cause": "deadline"}


async def test_a_session_that_is_closed_while_it_waits_leaves_no_watcher() -> None:
    async with session_of(ScriptedExecutor(asking(), reenter=True)) as session:
        await read(session.stream("go", ExecutionOptions(deadline="2999-01-01T00:00:00Z")))
        await session.aclose()
        assert session.limits._deadline is None


# -- the budget -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize("name", ["max_llm_calls", "max_turns", "max_budget_usd"])
async def test_a_limit_is_refused_where_nobody_counts_what_it_limits(name: str) -> None:
    limited = ExecutionOptions(limits=Constraints(**{name: 3}))
    async with Puppet(forever) as executor:
        with pytest.raises(ConfigurationError) as refused:
            await executor.open(OpenOptions(execution=limited))
        assert refused.value.id == "limit-unsupported"
        session = await executor.open()
        with pytest.raises(ConfigurationError):
            session.stream("go", limited)
        assert session.state == "new"


@pytest.mark.rule("CTL-08")
async def test_a_turn_ends_when_its_model_calls_have_cost_its_budget() -> None:
    counted: list[int] = []

    async def work(ctx: RunContext) -> None:
        for number in range(10):
            counted.append(number)
            await ctx.usage(cost=0.4)
            await anyio.lowlevel.checkpoint()

    executor = Puppet(work)
    executor.descriptor = AgentDescriptor(name="puppet", executor="puppet", capabilities=["abort", "cost"])
    budget = ExecutionOptions(limits=Constraints(max_budget_usd=1))
    async with session_of(executor, OpenOptions(execution=budget)) as session:
        for _ in range(2):  # each turn has all of it
            counted.clear()
            events = await say(session)
            assert (end_of(events).reason, counted) == ("max_budget", [0, 1, 2])
            assert [told.code for told in only(events, Error)] == ["max_budget"]


def thrifty(work: Any, *more: str, **base: Any) -> Puppet:
    executor = Puppet(work, **base)
    capabilities = ["abort", "streaming", *more]
    executor.descriptor = AgentDescriptor(name="puppet", executor="puppet", capabilities=capabilities)
    return executor


def budget_of(usd: float, **more: Any) -> ExecutionOptions:
    return ExecutionOptions(limits=Constraints(max_budget_usd=usd), **more)


PRICES = {"big": Price(input=1, output=10)}


@pytest.mark.rule("CTL-08")
async def test_prices_of_the_host_keep_the_budget_of_an_executor_that_only_counts_tokens() -> None:
    async def work(ctx: RunContext) -> None:
        for _ in range(10):
            await ctx.usage(model="big", input_tokens=100_000, output_tokens=30_000)
            await anyio.lowlevel.checkpoint()

    async with session_of(thrifty(work, "usage"), OpenOptions(execution=budget_of(1, prices=PRICES))) as session:
        events = await say(session)
        assert end_of(events).reason == "max_budget"
        assert [counted.cost for counted in only(events, Usage)] == [pytest.approx(0.4)] * 3


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize("counts", [{"model": "other", "input_tokens": 1, "output_tokens": 1}, {"model": "big"}])
async def test_a_call_whose_cost_nobody_knows_ends_a_turn_that_has_a_budget(counts: dict[str, Any]) -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.usage(model="big", input_tokens=1, output_tokens=1)
        await ctx.usage(**counts)
        await anyio.sleep_forever()

    async with session_of(thrifty(work, "usage"), OpenOptions(execution=budget_of(1, prices=PRICES))) as session:
        events = await say(session)
        assert end_of(events).reason == "max_budget"
        (told,) = only(events, Error)
        assert told.code == "max_budget"
        assert f"a call of {counts['model']} did not tell its cost" in told.message


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize(("model", "why"), [("big", "has cost 1.2 USD, and may cost 1"), ("other", "nobody knows")])
async def test_what_a_turn_has_cost_before_it_was_given_a_budget_counts(model: str, why: str) -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.usage(model=model, input_tokens=600_000, output_tokens=0)
        await ctx.request(ToolRequest(request_id="r", name="look", needs="result"))
        await ctx.usage(model="big", input_tokens=600_000, output_tokens=0)
        await anyio.sleep_forever()

    async with session_of(thrifty(work, "usage", "host_tool_execution")) as session:
        await say(session)
        with anyio.fail_after(5):
            events = await read(session.stream(result("r", 1), budget_of(1, prices=PRICES)))
    assert end_of(events).reason == "max_budget"
    assert why in only(events, Error)[0].message


async def test_an_unknown_cost_ends_nothing_where_there_is_no_budget() -> None:
    async def work(ctx: RunContext) -> None:
        await ctx.usage(model="other")

    async with session_of(thrifty(work, "usage"), OpenOptions(execution=ExecutionOptions(prices=PRICES))) as session:
        assert end_of(await say(session)).reason == "completed"


@pytest.mark.parametrize(("capability", "fix"), [("usage", "prices="), ("abort", "leave max_budget_usd out")])
async def test_a_budget_is_refused_without_costs_and_prices_and_the_fix_says_what_is_missing(
    capability: str, fix: str
) -> None:
    prices = None if capability == "usage" else PRICES
    async with thrifty(forever, capability) as executor:
        with pytest.raises(ConfigurationError) as refused:
            await executor.open(OpenOptions(execution=budget_of(1, prices=prices)))
    assert refused.value.id == "limit-unsupported"
    assert fix in (refused.value.fix or "")


@pytest.mark.rule("CTL-08", "PER-01")
async def test_what_a_turn_has_cost_in_another_process_counts() -> None:
    store = MemoryRecordStore()

    async def work(ctx: RunContext) -> None:
        await ctx.usage(model="big", input_tokens=600_000, output_tokens=0)
        if ctx.input is not None:
            await ctx.post(ToolRequest(request_id="r", name="look", needs="result"))
        else:
            await anyio.sleep_forever()

    options = OpenOptions(session_id="s", execution=budget_of(1, prices=PRICES))
    for number in range(2):
        executor = Puppet(work, resume=True, store=store)
        executor.descriptor = executor.descriptor.model_copy(
            update={"capabilities": [*executor.descriptor.capabilities, "usage"]}
        )
        async with executor:
            if number == 0:
                await say(await executor.open(options))
                continue
            session = await executor.load("s", options)
            with anyio.fail_after(5):
                events = await read(session.stream(result("r", 1)))
            assert end_of(events).reason == "max_budget"


# -- what tools use ---------------------------------------------------------------------------------------------------


def using(request_id: str, calls: int, cost: float | None) -> ToolResult:
    spent = Spent(model_calls=calls, cost=cost)
    return ToolResult(request_id=request_id, data="done", spent=spent)


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize(
    ("calls", "cost", "reason"),
    [
        (3, 0.4, "completed"),
        (3, 0.6, "max_budget"),
        (0, 0.6, "max_budget"),
        (3, None, "max_budget"),
        (0, None, "completed"),
    ],
)
async def test_what_a_tool_has_used_counts_against_the_budget(
    calls: int, cost: float | None, reason: str, reenter: bool
) -> None:
    script: list[list[Step]] = [[Count(cost=0.5), Call("helper", id="r"), Say("more"), Say("and more")]]
    executor = ScriptedExecutor(script, reenter=reenter)
    executor.descriptor = executor.descriptor.model_copy(
        update={"capabilities": [*executor.descriptor.capabilities, "cost"]}
    )
    async with session_of(executor, OpenOptions(execution=budget_of(1))) as session:
        await say(session)
        events = await read(session.stream(using("r", calls, cost)))
        assert end_of(events).reason == reason
        assert [told.code for told in only(events, Error)] == ([] if reason == "completed" else [reason])
        unknown = [told for told in only(events, Error) if "nobody knows the cost" in told.message]
        assert len(unknown) == (calls > 0 and cost is None)


@pytest.mark.rule("CTL-08")
async def test_what_tools_have_used_counts_in_their_own_turn_alone() -> None:
    script: list[list[Step]] = [[Count(cost=0.1), Call("helper", id="r"), Say("one")], [Count(cost=0.2), Say("two")]]
    executor = ScriptedExecutor(script)
    executor.descriptor = executor.descriptor.model_copy(
        update={"capabilities": [*executor.descriptor.capabilities, "cost"]}
    )
    async with session_of(executor, OpenOptions(execution=budget_of(1))) as session:
        await say(session)
        for events in (await read(session.stream(using("r", 1, 0.85))), await say(session)):
            assert end_of(events).reason == "completed"


@pytest.mark.rule("CTL-08")
async def test_a_stream_without_a_budget_counts_for_the_next_that_has_one() -> None:
    script: list[list[Step]] = [
        [Count(cost=0.4), Call("a", id="a"), Count(cost=0.4), Call("b", id="b"), Count(cost=0.4)]
    ]
    executor = ScriptedExecutor(script)
    executor.descriptor = executor.descriptor.model_copy(
        update={"capabilities": [*executor.descriptor.capabilities, "cost"]}
    )
    async with session_of(executor, OpenOptions(execution=budget_of(1))) as session:
        await say(session)
        await read(session.stream(result("a", 1), ExecutionOptions(limits=Constraints(max_time_seconds=60))))
        assert end_of(await read(session.stream(result("b", 1), budget_of(1)))).reason == "max_budget"


@pytest.mark.rule("CTL-08", "PER-01")
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize(("calls", "reason"), [(1, "completed"), (2, "max_llm_calls"), (9, "max_llm_calls")])
async def test_model_calls_that_a_tool_has_made_are_calls_of_the_turn(calls: int, reason: str, loaded: bool) -> None:
    script: list[list[Step]] = [[Call("helper", id="r"), Call("look", id="l"), Say("done")]]
    limits = ExecutionOptions(limits=Constraints(max_llm_calls=4))
    options, store = OpenOptions(session_id="s", execution=limits), MemoryRecordStore()
    async with ScriptedExecutor(script, reenter=True, store=store) as executor:
        session = await executor.open(options)
        await say(session)
        await read(session.stream(using("r", calls, None)))
        if session.state == "input_required":
            if loaded:
                await session.aclose()
                session = await executor.load("s", options)
            await read(session.stream(result("l", 1)))
        assert end_of(session.record).reason == reason


# -- what others use -------------------------------------------------------------------------------------------------


def spender(*, limits: Constraints | None, tells: Sequence[dict[str, Any]], calls: int = 10, cost: float = 1.0) -> Any:
    """An executor whose turn makes model calls, and is told something before each of the first."""
    made: list[int] = []

    async def work(ctx: RunContext) -> RunResult | None:
        if ctx.grace is not None:
            await ctx.say("That is all.")
            return None
        for number in range(calls):
            if number < len(tells):
                opened[0].limit_own(**tells[number])
            await ctx.steers()
            allowed = ctx.limits.max_llm_calls
            if allowed is not None and number >= allowed:
                return RunResult("max_llm_calls")
            made.append(number)
            await ctx.usage(cost=cost)
            await anyio.lowlevel.checkpoint()
        return None

    opened: list[Any] = []
    executor = thrifty(work, "cost")
    return executor, OpenOptions(execution=ExecutionOptions(limits=limits)), opened, made


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize(
    ("tells", "reason", "calls"),
    [
        ([{"model_calls": 3}], "max_llm_calls", 3),
        ([{"cost": 3.0}], "max_budget", 3),
        ([{"cost": 0.0}], "max_budget", 0),
        ([{"model_calls": 0}], "max_llm_calls", 0),
        ([{"cost": 3.0}, {"cost": 8.0}], "max_budget", 3),
        ([{"model_calls": 3}, {"model_calls": 8}], "max_llm_calls", 3),
        ([{"model_calls": 3}, {}], "max_llm_calls", 3),
        ([{"cost": 99.0, "model_calls": 99}], "completed", 10),
    ],
)
@pytest.mark.parametrize("limits", [None, Constraints(max_budget_usd=50, max_llm_calls=50)])
async def test_a_turn_ends_when_its_own_calls_come_to_what_others_leave_it(
    limits: Constraints | None, tells: Any, reason: str, calls: int
) -> None:
    executor, options, opened, made = spender(limits=limits, tells=tells)
    executor.counts_model_calls = True
    async with session_of(executor, options) as session:
        opened.append(session)
        events = await say(session)
    assert (end_of(events).reason, len(made)) == (reason, calls)


@pytest.mark.rule("CTL-08")
async def test_what_others_leave_to_a_turn_never_widens_a_limit_of_its_own() -> None:
    executor, options, opened, made = spender(limits=Constraints(max_budget_usd=2), tells=[{"cost": 9.0}])
    async with session_of(executor, options) as session:
        opened.append(session)
        events = await say(session)
    assert (end_of(events).reason, len(made)) == ("max_budget", 2)


@pytest.mark.rule("CTL-08")
async def test_what_others_leave_to_a_turn_is_for_that_turn() -> None:
    tells: list[dict[str, Any]] = [{"cost": 2.0, "model_calls": 2}]
    executor, options, opened, made = spender(limits=Constraints(max_budget_usd=5, max_llm_calls=5), tells=tells)
    executor.counts_model_calls = True
    async with session_of(executor, options) as session:
        opened.append(session)
        await say(session)
        assert len(made) == 2
        tells.clear()
        made.clear()
        session.limit_own(cost=0.0, model_calls=0)  # outside of a turn
        await say(session)
        assert len(made) == 5


@pytest.mark.rule("CTL-08")
@pytest.mark.parametrize(("cost", "calls", "grace"), [(1.0, 3, "completed"), (5.0, 1, "skipped")])
async def test_a_reserve_for_the_last_word_is_kept_of_what_others_leave(cost: float, calls: int, grace: str) -> None:
    executor, options, opened, made = spender(limits=Constraints(max_budget_usd=9), tells=[{"cost": 5.0}], cost=cost)
    executor.gives_grace = True
    execution = options.execution.model_copy(update={"grace": Grace(reserve_usd=2)})
    options = OpenOptions(execution=execution)
    async with session_of(executor, options) as session:
        opened.append(session)
        await say(session)
    assert (len(made), (end_of(session.record).data or {})["grace"]) == (calls, grace)


# -- until when something may be answered -----------------------------------------------------------------------------


@pytest.mark.rule("HITL-11")
async def test_a_question_says_until_when_it_may_be_answered_if_the_turn_has_a_deadline() -> None:
    script: list[list[Step]] = [[Ask("Who?")], [Ask("Who?")]]
    async with session_of(ScriptedExecutor(script)) as session:
        deadline = "2999-01-01T00:00:00Z"
        for given in (deadline, None):
            events = await read(session.stream("go", ExecutionOptions(deadline=given) if given else None))
            assert [asked.expires_at for asked in only(events, ElicitationRequest)] == [given]
