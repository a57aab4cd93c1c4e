"""Limits of a turn in every shape of tree: each has its own reason and one error, and the session goes on after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, host_tool, verify
from tests.adapters.adk.shapes import SHAPES, Clock, at_baseline, pipeline, plant

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, hold, say
from agentsession.protocol import (
    ConfigurationError,
    Constraints,
    Error,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    StreamEnd,
    ToolRequest,
    grant,
    result,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rule("CTL-08")]

UNGATED = {"host_tool_execution": False}


def check_limit(desk: Driven, reason: str) -> None:
    """The last turn ended once, for this reason, with one error that names it, and left nothing open."""
    turn_id = next(event.turn_id for event in reversed(desk.session.record) if event.turn_id is not None)
    turn = [event for event in desk.session.record if event.turn_id == turn_id]
    finals = [event.reason for event in turn if isinstance(event, StreamEnd) and event.reason != "input_required"]
    assert finals == [reason]
    assert [(told.code, told.fatal) for told in turn if isinstance(told, Error)] == [(reason, False)]
    assert (desk.session.state, list(desk.session.pending)) == ("idle", [])
    verify(desk.session)


# -- active seconds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("where", ["model", "tool"])
async def test_max_time_ends_a_turn_wherever_it_is(where: str, shape: str) -> None:
    clock, forever = Clock(), anyio.Event()

    async def works() -> None:
        clock.ms += 60_000
        await forever.wait()

    async def slow() -> str:
        """Work."""
        await works()
        return "never"

    step = hold(works) + say("never") if where == "model" else calls(call("slow", id="c1"), call("look", id="c2"))
    planted = plant(shape, step, tools=[slow])
    limits = Constraints(max_time_seconds=0.05)
    async with driven(
        planted.root, tools=[host_tool("look")], execution={**UNGATED, "limits": limits}, now=clock
    ) as desk:
        before = asyncio.all_tasks()
        await desk.stream("go")
        check_limit(desk, "max_time")
        if where == "tool":
            assert {name: desk.responses()[name] for name in ("slow", "look")} == {
                "slow": "unknown",
                "look": "cancelled",
            }
        assert await at_baseline(before) == set()
        assert "fresh" in (await desk.turn("again")).texts
        planted.check_histories()


@pytest.mark.rule("HITL-11")
@pytest.mark.parametrize("parked", [False, True])
async def test_the_time_in_which_a_turn_waits_is_not_counted_also_of_a_run_that_is_kept(parked: bool) -> None:
    clock = Clock()
    root = agent(call("look", id="c1"), call("look", id="c2"), say("done"))
    limits = Constraints(max_time_seconds=60)
    async with driven(root, tools=[host_tool("look")], execution={"limits": limits}, parked=parked, now=clock) as desk:
        turn = await desk.stream("go")
        for _ in range(2):
            clock.ms += 3_600_000
            turn = await desk.stream(result(desk.pending("look"), 1))
        assert turn.reason == "completed"


@pytest.mark.parametrize("shape", ["plain", "parallel", "child"])
async def test_active_seconds_add_up_over_the_streams_of_a_kept_run(shape: str) -> None:
    clock = Clock()

    async def passes() -> None:
        clock.ms += 60

    step = hold(passes) + call("look")
    planted = plant(shape, step, step, step)
    limits = Constraints(max_time_seconds=0.15)
    async with driven(planted.root, tools=[host_tool("look")], execution={"limits": limits}, now=clock) as desk:
        await desk.stream("go")
        await desk.stream(result(desk.pending("look"), 1))
        stuck = anyio.Event()
        planted.models[0].script[2] = hold(passes) + hold(stuck.wait) + say("never")
        await desk.stream(result(desk.pending("look"), 1))
        check_limit(desk, "max_time")
        assert desk.session.limits.active_s == pytest.approx(0.18)


# -- model calls and steps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limit", ["max_llm_calls", "max_turns"])
async def test_r69_a_model_that_calls_a_tool_for_ever_ends_at_the_limit_and_says_so(limit: str, shape: str) -> None:
    """R69: a run that reaches its limit of model calls ends with that reason and one error; no call is left open."""
    if limit == "max_turns" and shape in ("child", "grandchild"):
        pytest.skip("the steps of a tool's agent are not the turn's")
    planted = plant(shape, *[call("look") for _ in range(9)])
    async with driven(planted.root, tools=[host_tool("look")], execution={"limits": Constraints(**{limit: 6})}) as desk:
        turn = await desk.turn("go")
        assert turn.reason == limit
        check_limit(desk, limit)
        assert sum(len(model.requests) for model in planted.models) == 6
        statuses = desk.responses()
        assert set(statuses["look"].split()) == {"completed"}
        for model in planted.models:
            model.script.clear()
            assert_valid_history(model)
        assert "fresh" in (await desk.turn("again")).texts  # the next turn counts anew
        planted.check_histories()


async def test_a_limit_that_a_child_reaches_settles_its_siblings_that_wait_in_the_same_step() -> None:
    child = LlmAgent(name="child", model=ScriptedLlm(forever=call("tick")), tools=[tick])
    root = agent(
        calls(call("look", id="c1"), call("child", {"request": "x"}, id="c2")), say("fresh"), tools=[AgentTool(child)]
    )
    limits = Constraints(max_llm_calls=4)
    async with driven(root, tools=[host_tool("look")], execution={**UNGATED, "limits": limits}) as desk:
        await desk.stream("go")
        check_limit(desk, "max_llm_calls")
        assert desk.responses()["look"] == "cancelled"
        assert desk.responses()["child"] == "unknown"
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)


def tick() -> str:
    """Tick."""
    return "tock"


async def test_a_limit_in_one_branch_settles_what_the_other_waits_for() -> None:
    left = LlmAgent(name="left", model=ScriptedLlm(script=[call("look", id="c1")], forever=say("fresh")))
    right = LlmAgent(name="right", model=ScriptedLlm(forever=call("tick")), tools=[tick])
    async with driven(
        pipeline(ParallelAgent, left, right),
        tools=[host_tool("look")],
        execution={"limits": Constraints(max_llm_calls=6)},
    ) as desk:
        with anyio.fail_after(20):
            async with desk.session.stream("go") as turn:
                async for event in turn:
                    if isinstance(event, ToolRequest) and event.name == "tick":
                        await desk.session.respond(grant(event.request_id))
        check_limit(desk, "max_llm_calls")
        assert desk.responses()["look"] == "cancelled"


@pytest.mark.rule("CTL-04")
@pytest.mark.parametrize("shape", ["plain", "sequential", "parallel"])
async def test_two_limits_that_are_reached_by_one_model_call_give_one_reason(shape: str) -> None:
    planted = plant(shape, *[call("look") for _ in range(9)])
    limits = Constraints(max_llm_calls=4, max_turns=4)
    async with driven(planted.root, tools=[host_tool("look")], execution={"limits": limits}) as desk:
        assert (await desk.turn("go")).reason == "max_llm_calls"
        check_limit(desk, "max_llm_calls")


@pytest.mark.rule("PER-01")
async def test_model_calls_go_on_counting_after_a_restart(tmp_path: Path) -> None:
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    limits = Constraints(max_llm_calls=3)
    options = OpenOptions(session_id="s1", execution=ExecutionOptions(tools=[host_tool("look")], limits=limits))
    async with AdkExecutor(agent(call("look"), call("look")), session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.open(options))
        await desk.stream("go")
        await desk.stream(result(desk.pending("look"), 1))
    root = LlmAgent(name="root", model=ScriptedLlm(forever=call("look")))
    async with AdkExecutor(root, session_service=service, store=store) as executor:
        desk = Driven(executor, await executor.load("s1", options))
        assert (await desk.stream(result(desk.pending("look"), 1))).reason == "input_required"
        assert (await desk.stream(result(desk.pending("look"), 1))).reason == "max_llm_calls"
        check_limit(desk, "max_llm_calls")


# -- the deadline, the budget, the agent's own limits -----------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_deadline_ends_a_turn_that_works(shape: str) -> None:
    forever = anyio.Event()
    planted = plant(shape, hold(forever.wait) + say("never"))
    async with driven(planted.root) as desk:
        before = asyncio.all_tasks()
        await desk.stream("go", ExecutionOptions(deadline="2001-01-01T00:00:00Z"))
        check_limit(desk, "deadline")
        assert await at_baseline(before) == set()
        planted.models[0].script.clear()  # in some shapes the deadline comes before its first step
        assert "fresh" in (await desk.turn("again")).texts
        planted.check_histories()


@pytest.mark.parametrize("own", [True, False])
async def test_a_budget_is_refused_because_adk_tells_no_costs(own: bool) -> None:
    budget = Constraints(max_budget_usd=1)
    with pytest.raises(ConfigurationError) as refused:
        async with AdkExecutor(agent(say("x")), constraints=budget if own else None) as executor:
            await executor.open(OpenOptions(execution=ExecutionOptions(limits=budget)))
    assert refused.value.id == "limit-unsupported"


async def test_the_agents_own_limit_holds_where_the_hosts_is_wider() -> None:
    root = LlmAgent(name="root", model=ScriptedLlm(forever=call("look")))
    async with driven(
        root,
        tools=[host_tool("look")],
        execution={"limits": Constraints(max_llm_calls=9)},
        constraints=Constraints(max_llm_calls=2),
    ) as desk:
        assert desk.session.descriptor.constraints == Constraints(max_llm_calls=2)
        assert (await desk.turn("go")).reason == "max_llm_calls"
        assert len(root.model.requests) == 2  # type: ignore[union-attr]
