"""The last word of a turn that reached a limit: one more call, in which nothing runs, and the reason stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
import trio.testing
from tests.adapters.sessions import Puppet, end_of, kinds, only, read, say, session_of, texts, until

from agentsession.adapters.base import BaseSession, RunContext, RunResult
from agentsession.adapters.scripted import Ask, Call, Delay, Fail, Raise, Say, ScriptedExecutor, Step
from agentsession.protocol import (
    AgentStart,
    Constraints,
    ElicitationResponse,
    Error,
    Event,
    ExecutionOptions,
    Grace,
    HookOutcome,
    HookPayload,
    MemoryRecordStore,
    Message,
    OpenOptions,
    SessionMachine,
    StreamEnd,
    Thought,
    ToolCallHook,
    ToolRequest,
    ToolResponse,
    block,
    plain_text,
    result,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rule("CTL-08")]


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


class Gracious(Puppet):
    """Runs ``work``, and ``last`` for a last word."""

    gives_grace = True
    counts_model_calls = True

    def __init__(self, work: Any, last: Any, **more: Any) -> None:
        super().__init__(work, **more)
        self.last = last
        capabilities = [*self.descriptor.capabilities, "cost", "usage"]
        self.descriptor = self.descriptor.model_copy(update={"capabilities": capabilities})

    async def run(self, ctx: RunContext) -> RunResult | None:
        return await (self.work if ctx.grace is None else self.last)(ctx)


def with_grace(grace: Any = None, **limits: Any) -> OpenOptions:
    return OpenOptions(execution=ExecutionOptions(limits=Constraints(**limits), grace=grace or Grace()))


def calling(times: int = 9) -> list[list[Step]]:
    return [[Call("look", id=f"c{number}", needs="none") for number in range(times)], [Say("next")]]


def end_data(events: Sequence[Event]) -> tuple[str, Any]:
    end = end_of(events)
    return end.reason, end.data


def note_of(events: Sequence[Event]) -> str:
    (note,) = [event for event in only(events, Message) if event.source == "host"]
    assert note.role == "user"
    return plain_text(note.content)


@pytest.mark.parametrize("limit", ["max_turns", "max_llm_calls"])
async def test_an_agent_that_made_its_calls_may_say_where_it_got_to(limit: str) -> None:
    async with session_of(ScriptedExecutor(calling()), with_grace(**{limit: 3})) as session:
        events = await say(session)
        assert end_data(events) == (limit, {"grace": "completed"})
        assert texts(events)[-1] == f"I have to stop here: {limit}."
        assert [told.code for told in only(events, Error)] == [limit]
        assert kinds(events).count("stream_end") == 1
        assert len(only(events, ToolResponse)) == 3
        assert texts(await say(session)) == ["go", "next"]


async def test_the_note_names_the_limit_and_the_last_step_and_asks_for_a_report() -> None:
    async with session_of(ScriptedExecutor(calling()), with_grace(max_llm_calls=2)) as session:
        note = note_of(await say(session))
    for part in ("max_llm_calls", "look (completed)", "no tool will run", "done", "open", "not certain"):
        assert part in note


async def test_nobody_is_given_a_last_word_who_did_not_ask_for_one() -> None:
    limited = OpenOptions(execution=ExecutionOptions(limits=Constraints(max_llm_calls=3)))
    async with session_of(ScriptedExecutor(calling()), limited) as session:
        assert end_data(await say(session)) == ("max_llm_calls", None)


async def test_an_executor_that_gives_none_says_that_it_was_skipped() -> None:
    async def work(ctx: RunContext) -> None:
        await anyio.sleep_forever()

    async with session_of(Puppet(work), with_grace(max_time_seconds=0.02)) as session:
        assert end_data(await say(session)) == ("max_time", {"cause": "max_time", "grace": "skipped"})


async def test_a_turn_that_comes_to_its_own_end_has_no_last_word() -> None:
    async with session_of(ScriptedExecutor([[Say("done")]]), with_grace(max_llm_calls=3)) as session:
        assert end_data(await say(session)) == ("completed", None)


# -- time -------------------------------------------------------------------------------------------------------------


async def test_what_ran_too_long_is_cut_and_its_agent_has_its_say() -> None:
    async def digs(ctx: RunContext) -> None:
        await ctx.emit(ToolRequest(request_id="dig", name="dig", needs="none"))
        async with ctx.message() as message:
            await message.text("half a sen")
            await anyio.sleep_forever()

    async def reports(ctx: RunContext) -> None:
        assert ctx.grace is not None
        assert (ctx.grace.limit, ctx.input, dict(ctx.answers), ctx.aborting) == ("max_time", None, {}, False)
        await ctx.say("dug half")

    async with session_of(Gracious(digs, reports), with_grace(max_time_seconds=0.02)) as session:
        events = await say(session)
        assert end_data(events) == ("max_time", {"cause": "max_time", "grace": "completed"})
        assert [(item.name, item.status) for item in only(events, ToolResponse)] == [("dig", "unknown")]
        assert [
            event.interrupted for event in only(events, Message) if event.role == "agent" and not event.partial
        ] == [
            True,
            False,
        ]
        assert len(only(events, AgentStart)) == 2


async def test_a_last_word_has_a_time_of_its_own_and_no_more() -> None:
    async def hangs(ctx: RunContext) -> None:
        await anyio.sleep_forever()

    options = with_grace(Grace(seconds=0.02), max_time_seconds=0.02)
    async with session_of(Gracious(hangs, hangs), options) as session:
        events = await say(session)
        assert end_data(events) == ("max_time", {"cause": "max_time", "grace": "failed"})
        assert [told.code for told in only(events, Error)] == ["max_time"]


async def test_the_turns_own_time_does_not_cut_a_last_word_off() -> None:
    clock = Clock()

    async def works(ctx: RunContext) -> RunResult:
        return RunResult("max_llm_calls")

    async def reports(ctx: RunContext) -> None:
        clock.ms += 50_000
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await ctx.say("done")

    options = with_grace(max_time_seconds=10)
    async with session_of(Gracious(works, reports, now=clock), options) as session:
        assert end_data(await say(session)) == ("max_llm_calls", {"grace": "completed"})


# -- money ------------------------------------------------------------------------------------------------------------


def spends(*costs: float | None) -> Callable[[RunContext], Any]:
    async def work(ctx: RunContext) -> None:
        for cost in costs:
            await ctx.usage(**({} if cost is None else {"cost": cost}))
            await anyio.lowlevel.checkpoint()

    return work


async def reports(ctx: RunContext) -> None:
    await ctx.usage(cost=0.5)
    await ctx.say("spent it")


@pytest.mark.parametrize(
    ("costs", "reserve", "came"),
    [
        ((0.4, 0.4, 0.4), 0.2, "completed"),
        ((0.4, 0.4, 0.4), None, "skipped"),
        ((0.4, 0.9), 0.2, "skipped"),
        ((0.1, None), 0.2, "skipped"),
    ],
    ids=["reserved", "not_reserved", "reserve_is_spent_too", "cost_is_not_known"],
)
async def test_a_spent_budget_has_a_last_word_only_out_of_its_reserve(
    costs: tuple[float | None, ...], reserve: float | None, came: str
) -> None:
    options = with_grace(Grace(reserve_usd=reserve), max_budget_usd=1)
    async with session_of(Gracious(spends(*costs), reports), options) as session:
        assert end_data(await say(session)) == ("max_budget", {"cause": "max_budget", "grace": came})


# -- nothing runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needs", ["none", "grant", "result"])
async def test_a_call_of_a_last_word_is_denied_and_runs_nothing(needs: str, reenter: bool) -> None:
    ran: list[dict[str, Any]] = []
    last: list[Step] = [Say("just this"), Call("dig", needs=needs, run=ran.append), Say("never")]
    executor = ScriptedExecutor(calling(), grace=last, reenter=reenter)
    async with session_of(executor, with_grace(max_llm_calls=1)) as session:
        events = await say(session)
        assert end_data(events) == ("max_llm_calls", {"grace": "completed"})
        assert ran == []
        assert (only(events, ToolResponse)[-1].name, only(events, ToolResponse)[-1].status) == ("dig", "denied")
        assert texts(events)[-1] == "just this"


class Seen:
    """A hook that blocks every call, and notes which it was asked about."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | None:
        if not isinstance(payload, ToolCallHook):
            return None
        self.names.append(payload.name)
        return block("no")


@pytest.mark.parametrize("needs", ["none", "grant", "result"])
async def test_no_hook_is_asked_about_a_call_that_is_denied_anyway(needs: str) -> None:
    seen = Seen()
    script: list[list[Step]] = [[Call("look", needs="result"), Say("never")]]
    last: list[Step] = [Say("just this"), Call("dig", needs=needs)]
    async with ScriptedExecutor(script, grace=last) as executor:
        session = await executor.open(with_grace(max_llm_calls=1), hooks=seen)
        assert end_data(await say(session)) == ("max_llm_calls", {"grace": "completed"})
    assert seen.names == ["look"]


async def test_a_last_word_of_nothing_but_a_call_has_failed() -> None:
    executor = ScriptedExecutor(calling(), grace=[Call("dig")])
    async with session_of(executor, with_grace(max_llm_calls=1)) as session:
        assert end_data(await say(session)) == ("max_llm_calls", {"grace": "failed"})


async def test_thinking_is_not_saying() -> None:
    async def works(ctx: RunContext) -> RunResult:
        return RunResult("max_turns")

    async def thinks(ctx: RunContext) -> None:
        await ctx.say(Thought(text="hm"))

    async with session_of(Gracious(works, thinks), with_grace(max_time_seconds=99)) as session:
        assert end_data(await say(session)) == ("max_turns", {"grace": "failed"})


async def test_a_question_of_a_last_word_is_cancelled(reenter: bool) -> None:
    executor = ScriptedExecutor(calling(), grace=[Say("one thing:"), Ask("Go on?")], reenter=reenter)
    async with session_of(executor, with_grace(max_llm_calls=1)) as session:
        events = await say(session)
        assert end_data(events) == ("max_llm_calls", {"grace": "completed"})
        assert [answer.action for answer in only(events, ElicitationResponse)] == ["cancel"]


async def test_a_steer_is_not_taken_into_a_last_word_and_told_undelivered() -> None:
    held, go = anyio.Event(), anyio.Event()

    async def waits() -> None:
        held.set()
        await go.wait()

    executor = ScriptedExecutor(calling(), grace=[Delay(until=waits), Say("done")])
    async with session_of(executor, with_grace(max_llm_calls=1)) as session, session.stream("go") as stream:
        await held.wait()
        receipt = await session.steer("and do this too")
        go.set()
        assert [event async for event in stream]
        assert stream.end.data == {"grace": "completed", "undelivered": [receipt.request_id]}


# -- the tool that hands in what there is -----------------------------------------------------------------------------


async def test_the_completion_tool_runs_and_nothing_beside_it(reenter: bool) -> None:
    last: list[Step] = [Call("hand_in", id="h")]
    executor = ScriptedExecutor(calling(), grace=last, reenter=reenter)
    options = with_grace(Grace(completion_tool="hand_in"), max_llm_calls=1)
    async with session_of(executor, options) as session:
        first = await say(session)
        assert "hand_in" in note_of(first)
        assert (end_of(first).reason, end_of(first).pending) == ("input_required", ["h"])
        events = await read(session.stream(result("h", "taken")))
        assert end_data(events) == ("max_llm_calls", {"grace": "completed"})


async def test_a_completion_tool_that_fails_has_handed_in_nothing(reenter: bool) -> None:
    executor = ScriptedExecutor(calling(), grace=[Call("hand_in", id="h")], reenter=reenter)
    async with session_of(executor, with_grace(Grace(completion_tool="hand_in"), max_llm_calls=1)) as session:
        await say(session)
        events = await read(session.stream(result("h", "no", is_error=True)))
        assert end_data(events) == ("max_llm_calls", {"grace": "failed"})


@pytest.mark.rule("PER-01")
async def test_a_last_word_that_waits_is_one_in_another_process_too() -> None:
    store = MemoryRecordStore()
    last: list[Step] = [Call("hand_in", id="h"), Say("never")]
    options = with_grace(Grace(completion_tool="hand_in"), max_llm_calls=1).model_copy(update={"session_id": "s"})
    async with ScriptedExecutor(calling(), grace=last, reenter=True, store=store) as executor:
        assert end_of(await say(await executor.open(options))).reason == "input_required"
    async with ScriptedExecutor(calling(), grace=last, reenter=True, store=store) as executor:
        session = await executor.load("s", options)
        events = await read(session.stream(result("h", "taken")))
        assert end_data(events) == ("max_llm_calls", {"grace": "completed"})
        assert "never" not in texts(session.record)


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.rule("CTL-04")
async def test_a_last_word_that_waits_and_is_left_ends_for_the_limit(loaded: bool) -> None:
    store = MemoryRecordStore()
    options = with_grace(Grace(completion_tool="hand_in"), max_llm_calls=1).model_copy(update={"session_id": "s"})

    def made() -> ScriptedExecutor:
        return ScriptedExecutor(calling(), grace=[Call("hand_in", id="h")], reenter=True, store=store)

    async with made() as executor:
        session = await executor.open(options)
        await say(session)
        if loaded:
            await session.aclose()
            session = await executor.load("s", options)
        assert (await session.abort()).status == "too_late"
        assert end_data(session.record) == ("max_llm_calls", {"grace": "failed"})


# -- what ends before it, or in it ------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-04")
@pytest.mark.parametrize("how", ["abort", "close"])
async def test_after_an_abort_that_comes_while_a_limit_ends_the_run_there_is_no_last_word(how: str) -> None:
    leaving, leave = anyio.Event(), anyio.Event()

    def slowly() -> float:
        leaving.set()
        return 4.0

    async def works(ctx: RunContext) -> None:
        ctx.on_abort(slowly)
        await leave.wait()

    async def never(ctx: RunContext) -> None:
        await ctx.say("never")

    async with Gracious(works, never) as executor:
        session = await executor.open(with_grace(max_time_seconds=0.02))
        session.stream("go")
        with anyio.fail_after(5):
            await leaving.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.abort if how == "abort" else session.aclose)
                await anyio.wait_all_tasks_blocked()
                leave.set()
        assert end_data(session.record) == ("max_time", {"cause": "max_time", "grace": "skipped"})
        assert "never" not in texts(session.record)


@pytest.mark.rule("CTL-01", "CTL-04")
@pytest.mark.parametrize("by", ["abort", "close", "deadline"])
async def test_who_ends_a_last_word_does_not_change_why_the_turn_ended(by: str) -> None:
    begun = anyio.Event()

    async def waits() -> None:
        begun.set()
        await anyio.sleep_forever()

    executor = ScriptedExecutor(calling(), grace=[Delay(until=waits)])
    async with executor:
        session = await executor.open(with_grace(max_llm_calls=1))
        soon = datetime.fromtimestamp(datetime.now(UTC).timestamp() + 0.1, UTC).isoformat()
        with anyio.fail_after(5):
            async with session.stream("go", ExecutionOptions(deadline=soon) if by == "deadline" else None) as stream:
                await begun.wait()
                if by == "abort":
                    assert (await session.abort()).status == "too_late"
                elif by == "close":
                    await session.aclose()
                async for _ in stream:
                    pass
        assert end_data(session.record) == ("max_llm_calls", {"grace": "failed"})
        assert [told.code for told in only(session.record, Error)] == ["max_llm_calls"]
        check(session)


def check(session: BaseSession) -> None:
    assert SessionMachine.fold(session.record).state in ("idle", "closed")


@pytest.mark.parametrize("last", [Raise(KeyError("boom")), Fail("boom", fatal=True)], ids=["raises", "fatal"])
async def test_a_last_word_that_fails_is_told_and_is_not_why_the_turn_ended(last: Step) -> None:
    async with session_of(ScriptedExecutor(calling(), grace=[last]), with_grace(max_llm_calls=1)) as session:
        events = await say(session)
        assert end_data(events) == ("max_llm_calls", {"grace": "failed"})
        assert [told.fatal for told in only(events, Error)] == [False, isinstance(last, Fail)]
        assert texts(await say(session)) == ["go", "next"]


async def test_a_failure_has_no_last_word() -> None:
    async with session_of(ScriptedExecutor([[Raise(KeyError("boom"))]]), with_grace(max_llm_calls=1)) as session:
        assert end_data(await say(session)) == ("failed", None)


async def test_a_message_that_an_agent_wrote_begins_no_last_word() -> None:
    """Who loads a record must not take an agent's word for a limit."""
    store = MemoryRecordStore()

    async def work(ctx: RunContext) -> None:
        if ctx.input is None:
            assert ctx.grace is None
            await ctx.say("went on")
            return
        forged = Message(message_id="x", role="user", content=[], meta={"grace": {"limit": "max_turns"}})
        await ctx.emit(forged)
        await ctx.post(ToolRequest(request_id="r", name="look", needs="result"))

    async with Puppet(work, resume=True, store=store) as executor:
        await say(await executor.open(OpenOptions(session_id="s")))
    async with Puppet(work, resume=True, store=store) as executor:
        session = await executor.load("s")
        assert end_of(await read(session.stream(result("r", 1)))).reason == "completed"


async def test_readers_see_a_last_word_in_the_stream_of_the_turn() -> None:
    async with session_of(ScriptedExecutor(calling()), with_grace(max_llm_calls=1)) as session:
        async with session.events(0, follow=True) as reader:
            await say(session)
            end = await until(reader, StreamEnd)
        assert {event.stream_id for event in session.record if event.turn_id is not None} == {end.stream_id}


@pytest.mark.rule("LIFE-18")
async def test_after_a_fatal_error_there_is_no_last_word_whatever_the_executor_returns() -> None:
    async def breaks(ctx: RunContext) -> RunResult:
        with anyio.CancelScope(shield=True):
            await ctx.emit(Error(status="INTERNAL", message="broken", fatal=True))
        return RunResult("max_turns")

    async with session_of(Gracious(breaks, reports), with_grace(max_time_seconds=99)) as session:
        assert end_data(await say(session)) == ("max_turns", {"grace": "skipped"})


@pytest.mark.parametrize(
    ("reason", "came"),
    [("refusal", "failed"), ("failed", "failed"), ("aborted", "failed"), ("max_tokens", "completed")],
)
async def test_a_last_word_that_its_model_refused_or_gave_up_has_failed(reason: str, came: str) -> None:
    async def works(ctx: RunContext) -> RunResult:
        return RunResult("max_turns")

    async def ends(ctx: RunContext) -> RunResult:
        await ctx.say("as far as I can")
        return RunResult(reason)

    async with session_of(Gracious(works, ends), with_grace(max_time_seconds=99)) as session:
        assert end_data(await say(session)) == ("max_turns", {"grace": came})


@pytest.mark.rule("PER-01")
async def test_the_last_word_of_an_earlier_turn_is_none_of_a_loaded_one() -> None:
    script: list[list[Step]] = [[Call("a"), Say("never")], [Call("b"), Say("done")]]
    store = MemoryRecordStore()
    options = with_grace(max_llm_calls=1).model_copy(update={"session_id": "s"})
    wide = ExecutionOptions(limits=Constraints(max_llm_calls=9))
    async with ScriptedExecutor(script, reenter=True, store=store) as executor:
        session = await executor.open(options)
        await say(session)
        await read(session.stream(result(session.pending[0].request_id, 1)))
        await read(session.stream("on", wide))
    async with ScriptedExecutor(script, reenter=True, store=store) as executor:
        session = await executor.load("s", options)
        events = await read(session.stream(result(session.pending[0].request_id, 1), wide))
        assert (end_data(events), texts(events)) == (("completed", None), ["done"])


@pytest.mark.rule("PER-01")
async def test_what_the_end_would_have_told_is_told_after_a_restart_too() -> None:
    store, forever = MemoryRecordStore(), anyio.Event()
    options = with_grace(Grace(completion_tool="hand_in"), max_time_seconds=0.02).model_copy(update={"session_id": "s"})
    script: list[list[Step]] = [[Delay(until=forever.wait)]]
    last: list[Step] = [Call("hand_in", id="h")]
    async with ScriptedExecutor(script, grace=last, reenter=True, store=store) as executor:
        await say(await executor.open(options))
    async with ScriptedExecutor(script, grace=last, reenter=True, store=store) as executor:
        session = await executor.load("s", options)
        events = await read(session.stream(result("h", "taken")))
        assert end_data(events) == ("max_time", {"cause": "max_time", "grace": "completed"})


async def test_a_last_word_that_waited_goes_on_in_its_own_time() -> None:
    clock = Clock()

    async def works(ctx: RunContext) -> RunResult:
        clock.ms += 9_000
        return RunResult("max_llm_calls")

    async def hands_in(ctx: RunContext) -> None:
        await ctx.request(ToolRequest(request_id="h", name="hand_in", needs="result"))
        clock.ms += 50_000
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await ctx.say("done")

    options = with_grace(Grace(completion_tool="hand_in"), max_time_seconds=10)
    async with session_of(Gracious(works, hands_in, now=clock), options) as session:
        await say(session)
        events = await read(session.stream(result("h", "taken")))
        assert (end_data(events), texts(events)) == (("max_llm_calls", {"grace": "completed"}), ["done"])


def test_a_last_word_may_take_longer_than_an_executor_has_to_end() -> None:
    async def reports_slowly(ctx: RunContext) -> None:
        await anyio.sleep(2)
        await ctx.say("spent it")

    async def go() -> None:
        options = with_grace(Grace(reserve_usd=0.2), max_budget_usd=1)
        async with session_of(Gracious(spends(0.9), reports_slowly, grace_s=1), options) as session:
            assert end_data(await say(session)) == ("max_budget", {"cause": "max_budget", "grace": "completed"})

    anyio.run(go, backend="trio", backend_options={"clock": trio.testing.MockClock(autojump_threshold=0)})


async def test_nothing_is_kept_back_for_a_last_word_that_the_executor_does_not_give() -> None:
    executor = Gracious(spends(0.6, 0.3), reports)
    executor.gives_grace = False  # type: ignore[misc]  # another class would say the same
    async with session_of(executor, with_grace(Grace(reserve_usd=0.5), max_budget_usd=1)) as session:
        assert end_data(await say(session)) == ("completed", {"empty": True})
