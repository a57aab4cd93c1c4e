"""A turn that goes in circles is told so and then stopped; one that works through a pile is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.adapters.sessions import Puppet, end_of, kinds, only, read, say, session_of, texts

from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Call, Calls, Deltas, Parallel, Say, ScriptedExecutor, Step
from agentsession.protocol import (
    AgentDescriptor,
    Constraints,
    Error,
    Event,
    ExecutionOptions,
    Grace,
    Message,
    OpenOptions,
    SessionConfig,
    StreamEnd,
    Text,
    ToolAnnotations,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    plain_text,
    result,
)

pytestmark = pytest.mark.anyio

SENTENCE = "I will now look at the file and see what is wrong with it. "


def watched(**more: Any) -> OpenOptions:
    return OpenOptions(execution=ExecutionOptions(loop_detection=True, **more))


def own(name: str = "look", run: Any = None, **args: Any) -> Call:
    return Call(name, args, needs="none", run=run)


def notes(events: Sequence[Event]) -> list[Message]:
    return [event for event in only(events, Message) if event.source == "host"]


def runs(events: Sequence[Event]) -> int:
    return sum(event.status == "completed" for event in only(events, ToolResponse))


def stopped(events: Sequence[Event]) -> bool:
    """Whether the turn was stopped; then also that it was told once, and why."""
    end, told = end_of(events), [event for event in only(events, Error) if event.code == "LOOP_DETECTED"]
    if not told:
        assert end.reason == "completed"
        return False
    assert (end.reason, end.data) == ("failed", {"cause": "LOOP_DETECTED"})
    assert [(event.fatal, event.source) for event in told] == [(False, "host")]
    assert kinds(events).count("stream_end") == 1
    return True


class Updatable(Puppet):
    """Takes every update."""

    def check_update(self, session: Any, config: SessionConfig) -> str | None:
        return None


async def equal_calls(ctx: RunContext) -> None:
    for _ in range(30):
        await ctx.steers()
        request = await ctx.emit(ToolRequest(request_id=ctx.new_id("r"), name="look", needs="none", args={}))
        await ctx.respond(request, "same")


async def test_five_equal_calls_are_told_and_five_more_stop_the_turn() -> None:
    async with session_of(ScriptedExecutor([[own()] * 30, [Say("next")]]), watched()) as session:
        events = await say(session)
        assert stopped(events)
        assert runs(events) == 10
        (note,) = notes(events)
        assert note.role == "user"
        assert "same call of look" in texts([note])[0]
        assert [event.type for event in events if event.seq < note.seq].count("tool_response") == 5
        assert texts(await say(session)) == ["go", "next"]


async def test_an_agent_that_changes_its_ways_after_it_was_told_goes_on() -> None:
    script: list[Step] = [*[own()] * 5, *[own(part=number) for number in range(20)], *[own()] * 4, Say("done")]
    async with session_of(ScriptedExecutor([script]), watched()) as session:
        events = await say(session)
        assert not stopped(events)
        assert len(notes(events)) == 1


async def test_five_polls_whose_answers_change_are_no_loop() -> None:
    answers = iter(range(100))
    async with session_of(ScriptedExecutor([[own(run=lambda _: next(answers))] * 40]), watched()) as session:
        events = await say(session)
        assert (stopped(events), notes(events), runs(events)) == (False, [], 40)


async def test_answers_that_differ_in_their_parts_alone_are_no_loop() -> None:
    async def work(ctx: RunContext) -> None:
        for number in range(30):
            request = await ctx.emit(ToolRequest(request_id=ctx.new_id("r"), name="look", needs="none", args={}))
            await ctx.respond(request, content=[Text(text=f"picture {number}")])

    async with session_of(work, watched()) as session:
        assert not stopped(await say(session))


async def test_each_thread_is_told_what_is_its_own() -> None:
    async def work(ctx: RunContext) -> None:
        for thread in ("one", "two"):
            session.steers.note(thread, f"to {thread}", {})
        heard = [await ctx.notes(thread) for thread in ("two", "none", "one", "one")]
        assert [[plain_text(note.content) for note in notes] for notes in heard] == [["to two"], [], ["to one"], []]

    async with session_of(work, watched()) as session:
        events = await say(session)
        assert (end_of(events).reason, only(events, Error)) == ("completed", [])


async def test_batch_work_is_no_loop() -> None:
    """The same tool for each of many things, and many equal calls made at once: neither goes in circles."""
    at_once = Calls(*[own("roll") for _ in range(50)])
    script: list[Step] = [*[own("file", path=f"{number}.txt") for number in range(200)], at_once]
    async with session_of(ScriptedExecutor([script]), watched()) as session:
        events = await say(session)
        assert (stopped(events), notes(events)) == (False, [])


async def test_a_cycle_of_several_steps_is_found_whatever_the_order_of_keys() -> None:
    one, two = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    script = [step for pair in range(20) for step in (own("look", **(one if pair % 2 else two)), own("dig"))]
    async with session_of(ScriptedExecutor([script]), watched()) as session:
        events = await say(session)
        assert stopped(events)
        assert runs(events) == 20
        assert "same 2 steps" in texts([notes(events)[0]])[0]


@pytest.mark.parametrize("where", ["own", "host"])
async def test_a_tool_that_may_repeat_is_not_looked_at(where: str) -> None:
    tool = ToolDescriptor(
        name="look",
        owner="agent" if where == "own" else "host",
        annotations=ToolAnnotations(may_repeat=True),
    )
    executor = ScriptedExecutor([[own()] * 30], own_tools=[tool] if where == "own" else [])
    async with session_of(executor, watched(tools=[tool] if where == "host" else None)) as session:
        events = await say(session)
        assert (stopped(events), notes(events), runs(events)) == (False, [], 30)


@pytest.mark.parametrize("updated", [False, True])
async def test_a_tool_of_an_agent_far_below_may_repeat_too(updated: bool) -> None:
    tool = ToolDescriptor(name="look", owner="agent", annotations=ToolAnnotations(may_repeat=True))
    below = AgentDescriptor(name="far_below", executor="puppet", own_tools=[tool])
    middle = AgentDescriptor(name="middle", executor="puppet", sub_agents=[below])
    executor = Updatable(equal_calls)
    executor.descriptor = executor.descriptor.model_copy(update={"sub_agents": [middle]})
    async with session_of(executor, watched()) as session, session.stream("go") as stream:
        if updated:
            await session.update(SessionConfig(tools=[ToolDescriptor(name="other")]))
        assert not stopped([event async for event in stream])


async def test_nobody_is_watched_who_did_not_ask_for_it() -> None:
    async with session_of(ScriptedExecutor([[own()] * 30])) as session:
        events = await say(session)
        assert (stopped(events), notes(events), runs(events)) == (False, [], 30)


async def test_an_executor_without_steers_is_stopped_at_the_first_loop() -> None:
    capabilities = ["abort", "streaming"]
    async with session_of(ScriptedExecutor([[own()] * 30], capabilities=capabilities), watched()) as session:
        events = await say(session)
        assert stopped(events)
        assert (runs(events), notes(events)) == (5, [])


async def test_the_host_runs_calls_in_circles_too_over_pauses(reenter: bool) -> None:
    async with session_of(ScriptedExecutor([[Call("look")] * 30], reenter=reenter), watched()) as session:
        events, asked = await say(session), 0
        while end_of(events).reason == "input_required":
            asked += 1
            events = await read(session.stream(result(session.pending[0].request_id, "no")))
        assert stopped(events)
        assert asked == 10
        assert len(notes(session.record)) == 1


async def test_each_thread_is_looked_at_by_itself() -> None:
    four: list[Step] = [own()] * 4
    async with session_of(ScriptedExecutor([[Parallel(a=four, b=four, c=four)]]), watched()) as session:
        events = await say(session)
        assert (stopped(events), notes(events)) == (False, [])


async def test_a_branch_is_told_on_its_own_thread() -> None:
    script: list[Step] = [Parallel(a=[own()] * 5, b=[own("dig", part=number) for number in range(9)]), Say("done")]
    executor = ScriptedExecutor([script])
    async with session_of(executor, watched()) as session:
        assert not stopped(await say(session))
        # A branch of a script takes no steers: what it was to be told is not said to anybody else.
        assert notes(session.record) == []


async def test_every_turn_is_looked_at_from_its_begin() -> None:
    async with session_of(ScriptedExecutor([[own()] * 4] * 4), watched()) as session:
        for _ in range(4):
            events = await say(session)
            assert (stopped(events), notes(events)) == (False, [])


# -- text -------------------------------------------------------------------------------------------------------------


async def test_text_that_repeats_itself_stops_the_turn_in_the_middle_of_the_answer() -> None:
    async with session_of(ScriptedExecutor([[Deltas([SENTENCE] * 500)], [Say("next")]]), watched()) as session:
        events = await say(session)
        assert stopped(events)
        (closing,) = [event for event in only(events, Message) if event.role == "agent" and not event.partial]
        assert closing.interrupted
        assert texts([closing])[0].count("I will") < 60
        assert texts(await say(session)) == ["go", "next"]


async def test_what_is_said_twice_in_whole_messages_is_no_loop_and_closings_are_not_read() -> None:
    script: list[Step] = [Say(SENTENCE * 40), Deltas([SENTENCE] * 9), Deltas([SENTENCE] * 9)]
    async with session_of(ScriptedExecutor([script]), watched()) as session:
        events = await say(session)
        assert (stopped(events), notes(events)) == (False, [])


async def test_an_answer_that_ends_after_its_first_loop_ends_the_turn_as_it_would_have() -> None:
    """What the agent was to be told keeps no turn from ending: nobody was promised that it arrives."""

    async def work(ctx: RunContext) -> None:
        async with ctx.message() as message:
            for _ in range(15):
                await message.text(SENTENCE)
        assert not ctx.has_steers

    async with session_of(work, watched()) as session:
        events = await say(session)
        assert (stopped(events), notes(events), end_of(events).data) == (False, [], None)


async def test_what_is_thought_and_what_is_said_are_looked_at_each_by_itself() -> None:
    async def work(ctx: RunContext) -> None:
        async with ctx.message() as message:
            for _ in range(8):
                await message.thought(SENTENCE)
            for _ in range(8):
                await message.text(SENTENCE)

    async with session_of(work, watched()) as session:
        assert not stopped(await say(session))
        assert session.loops._threads[None].found == 0


@pytest.mark.parametrize("tool_between", [False, True])
async def test_a_call_between_begins_the_text_anew(tool_between: bool) -> None:
    async def work(ctx: RunContext) -> None:
        async with ctx.message() as message:
            for number in range(30):
                await message.text(SENTENCE)
                if tool_between and number % 6 == 5:
                    request = await ctx.emit(ToolRequest(request_id=ctx.new_id("r"), name="t", needs="none", args={}))
                    await ctx.respond(request, number)

    async with session_of(work, watched()) as session:
        assert stopped(await say(session)) is not tool_between


async def test_deltas_that_an_executor_emits_as_events_count_too() -> None:
    async def work(ctx: RunContext) -> None:
        for number in range(60):
            part = {"type": "text", "text": SENTENCE}
            await ctx.emit(
                Message.model_validate({"messageId": "m", "partial": True, "index": number, "content": [part]})
            )

    async with session_of(work, watched()) as session:
        assert stopped(await say(session))


# -- beside other ends ------------------------------------------------------------------------------------------------


@pytest.mark.rule("CTL-04")
async def test_a_limit_that_comes_first_is_the_reason() -> None:
    options = watched(limits=Constraints(max_llm_calls=9))
    async with session_of(ScriptedExecutor([[own()] * 30]), options) as session:
        end = end_of(await say(session))
        assert (end.reason, end.data) == ("max_llm_calls", None)


async def test_a_turn_that_goes_in_circles_has_no_last_word() -> None:
    async with session_of(ScriptedExecutor([[own()] * 30]), watched(grace=Grace())) as session:
        assert stopped(await say(session))


async def test_a_last_word_may_repeat_itself() -> None:
    options = watched(grace=Grace(), limits=Constraints(max_llm_calls=1))
    executor = ScriptedExecutor([[own(), own()]], grace=[Deltas([SENTENCE] * 60)])
    async with session_of(executor, options) as session:
        end = end_of(await say(session))
        assert (end.reason, end.data) == ("max_llm_calls", {"grace": "completed"})


async def test_an_update_of_the_tools_says_anew_which_may_repeat() -> None:
    tool = ToolDescriptor(name="look", annotations=ToolAnnotations(may_repeat=True))
    async with session_of(Updatable(equal_calls), watched()) as session:
        async with session.stream("go") as stream:
            await session.update(SessionConfig(tools=[tool]))
            events = [event async for event in stream]
        assert [event.reason for event in only(events, StreamEnd)] == ["completed"]
