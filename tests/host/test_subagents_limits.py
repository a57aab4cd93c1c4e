"""Sub-agents and limits: what is left as they begin, what they share as they go, what is known after a pause."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import anyio
import pytest
from tests.host.subagents import calls, limited, read_file, responses, run, seen_of_children

from agentsession.adapters.scripted import Call, Calls, Count, Delay, Parallel, Say, Step
from agentsession.host import (
    Approval,
    CallbackChannel,
    Host,
    PolicyRequest,
    Rule,
    RulePolicy,
    ScriptedChannel,
    SubagentTool,
    TailCall,
    ToolOutcome,
    allow_all,
    tool,
)
from agentsession.host._attached import Attached
from agentsession.host._rest import Used
from agentsession.host._turn_limits import TurnLimits
from agentsession.protocol import (
    AgentSession,
    Constraints,
    Event,
    ExecutionOptions,
    Grace,
    MemoryRecordStore,
    OpenOptions,
    Spent,
    StreamEnd,
    ToolResponse,
    ToolResult,
    Usage,
)

pytestmark = pytest.mark.anyio


# --- as they begin --------------------------------------------------------------------------------------------------


async def test_it_gets_no_more_than_is_left_to_the_turns_above_it() -> None:
    helper, of_helper = limited("helper", Count(cost=0.5), Say("ok"))
    fixer, of_fixer = limited("fixer", Count(cost=2.0), calls("helper"), Count(cost=0.25), Say("ok"))
    coder, _ = limited("coder", Count(cost=1.0), calls("fixer", "r1"), calls("helper", "r2"), Say("ok"))
    async with helper, fixer, coder:
        tools = [SubagentTool(fixer, tools=["helper"]), SubagentTool(helper)]
        host = Host(tools=tools, policy=allow_all, limits=Constraints(max_budget_usd=10, max_llm_calls=20))
        result = await run(host, coder)
    assert result.completed
    left = [options.execution.limits for options in (*of_fixer, *of_helper)]
    assert [limits and limits.max_budget_usd for limits in left] == [9.0, 7.0, 6.25]
    assert [limits and limits.max_llm_calls for limits in left] == [19, 18, 16]


async def test_where_nothing_is_left_it_is_not_begun() -> None:
    seen: list[Event] = []
    spent = anyio.Event()

    def note(event: Event) -> None:
        seen.append(event)
        if isinstance(event, ToolResponse) and event.request_id == "r1":
            spent.set()

    async def policy(request: PolicyRequest) -> Any:
        if request.tool == "helper":
            await spent.wait()
        return allow_all(request)

    helper, opened = limited("helper", Say("ok"))
    spender, _ = limited("spender", Count(cost=5.0), Say("ok"))
    coder, _ = limited("coder", Calls(calls("spender", "r1"), calls("helper", "r2")), Say("ok"))
    async with helper, spender, coder:
        tools = [SubagentTool(helper), SubagentTool(spender)]
        host = Host(tools=tools, policy=policy, observer=note, limits=Constraints(max_budget_usd=5))
        await run(host, coder)
    error = responses(seen)["r2"].data["error"]
    assert (error["code"], error["reason"]) == ("subagent_limit", "max_budget_usd")
    assert opened == []


async def test_what_sub_agents_spent_comes_off_the_budget_of_their_caller() -> None:
    fixer, _ = limited("fixer", Count(cost=5.0), Say("ok"))
    coder, _ = limited("coder", Count(cost=1.0), calls("fixer"), Count(cost=0.5), Say("still"), Count(cost=1.0))
    async with fixer, coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, limits=Constraints(max_budget_usd=7))
        result = await run(host, coder)
    assert (result.end.reason, result.text) == ("max_budget", "still")


async def test_model_calls_of_sub_agents_count_for_their_caller() -> None:
    fixer, _ = limited("fixer", Count(cost=0.0), Count(cost=0.0), Say("ok"))
    coder, _ = limited("coder", calls("fixer"), Call("read_file", {"path": "a"}), Say("one too many"))
    async with fixer, coder:
        tools = [read_file, SubagentTool(fixer)]
        result = await run(Host(tools=tools, policy=allow_all, limits=Constraints(max_llm_calls=3)), coder)
    assert result.end.reason == "max_llm_calls"


async def test_the_deadline_and_the_time_of_the_turn_above_bound_a_sub_agent() -> None:
    helper, of_helper = limited("helper", Say("ok"))
    fixer, of_fixer = limited("fixer", calls("helper"), Say("ok"))
    coder, _ = limited("coder", calls("fixer"), Say("ok"))
    deadline = "2099-01-31T12:00:00.000Z"
    async with helper, fixer, coder:
        tools = [SubagentTool(fixer, tools=["helper"]), SubagentTool(helper)]
        host = Host(tools=tools, policy=allow_all)
        async with host.session(coder) as session:
            limits = Constraints(max_time_seconds=100)
            await host.run_turn(session, "go", ExecutionOptions(deadline=deadline, limits=limits))
    for options in (*of_fixer, *of_helper):
        assert options.execution.deadline == deadline
        assert options.execution.limits is not None
        assert options.execution.limits.max_time_seconds is not None
        assert 90 < options.execution.limits.max_time_seconds < 100


async def test_usage_of_an_earlier_turn_takes_nothing_from_what_is_left() -> None:
    fixer, opened = limited("fixer", Say("ok"))
    coder, _ = limited("coder", Count(cost=3.0), Say("ok"))
    coder.script.append([Count(cost=1.0), calls("fixer"), Say("ok")])
    async with fixer, coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, limits=Constraints(max_budget_usd=10))
        async with host.session(coder) as session:
            await host.run_turn(session, "one")
            await host.run_turn(session, "two")
    (options,) = opened
    assert options.execution.limits is not None
    assert options.execution.limits.max_budget_usd == 9.0


async def test_what_it_and_its_own_sub_agents_have_cost_ends_the_turn_of_its_caller() -> None:
    seen: list[Event] = []
    helper, _ = limited("helper", Count(cost=2.0), Say("ok"))
    fixer, _ = limited("fixer", Count(cost=1.0), calls("helper"), Count(cost=0.5), Say("ok"))
    coder, _ = limited("coder", Count(cost=1.0), calls("fixer", "r1"), Say("never"), calls("fixer", "r2"), Say("never"))
    async with helper, fixer, coder:
        tools = [SubagentTool(fixer, tools=["helper"]), SubagentTool(helper)]
        host = Host(tools=tools, policy=allow_all, observer=seen.append, limits=Constraints(max_budget_usd=4.5))
        result = await run(host, coder)
    assert result.end.reason == "max_budget"
    assert responses(seen)["r1"].spent == Spent(model_calls=3, cost=3.5)
    assert "r2" not in responses(seen)


async def test_its_model_calls_count_as_its_callers() -> None:
    fixer, _ = limited("fixer", Count(), calls("nobody", "x1"), Count(), calls("nobody", "x2"), Count(), Say("ok"))
    coder, _ = limited("coder", calls("fixer", "r1"), Say("one more"), calls("fixer", "r2"), Say("never"))
    async with fixer, coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, limits=Constraints(max_llm_calls=4))
        result = await run(host, coder)
    assert (result.end.reason, result.messages) == ("max_llm_calls", ())


# --- side by side ---------------------------------------------------------------------------------------------------


def _work(calls: int, cost: float = 1.0) -> list[Step]:
    """So many model calls, each with a call of a tool."""
    return [step for n in range(calls) for step in (Count(cost=cost), Call("read_file", {"path": str(n)}))]


def _all(names: str) -> Calls:
    return Calls(*(calls(name, name) for name in names))


def _ends(events: Sequence[Event]) -> list[str | None]:
    answers = [answer for name, answer in responses(events).items() if len(name) == 1]
    return [answer.data["error"]["reason"] if answer.is_error else None for answer in answers]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Constraints(max_budget_usd=6), "max_budget"), (Constraints(max_llm_calls=6), "max_llm_calls")],
)
async def test_sub_agents_side_by_side_share_what_is_left_but_for_the_calls_in_flight(
    limits: Constraints, reason: str
) -> None:
    seen: list[Event] = []
    root, _ = limited("root", _all("abc"), Say("never"))
    (a, _), (b, _), (c, _) = (limited(name, *_work(20)) for name in "abc")
    async with root, a, b, c:
        tools = [read_file, *(SubagentTool(each, tools=["read_file"]) for each in (a, b, c))]
        result = await run(Host(tools=tools, policy=allow_all, limits=limits, observer=seen.append), root)
    assert 6 <= result.usage.calls <= 6 + 2
    assert result.end.reason == reason
    assert _ends(seen) == [reason] * 3


async def test_sub_agents_at_any_depth_share_what_is_left_to_the_root() -> None:
    seen: list[Event] = []
    root, _ = limited("root", _all("ab"), Say("never"))
    a, _ = limited("a", _all("cd"), *_work(20))
    b, _ = limited("b", *_work(20))
    (c, _), (d, _) = (limited(name, *_work(20)) for name in "cd")
    async with root, a, b, c, d:
        tools = [read_file, *(SubagentTool(each, tools=["read_file", "c", "d"]) for each in (a, b, c, d))]
        host = Host(tools=tools, policy=allow_all, limits=Constraints(max_budget_usd=6), observer=seen.append)
        result = await run(host, root)
    assert result.usage.cost is not None
    assert 6 <= result.usage.cost <= 6 + 3
    assert result.end.reason == "max_budget"
    spent = [answer.spent for name, answer in responses(seen).items() if name in ("a", "b")]
    assert sum((item.cost or 0) if item else 0 for item in spent) == result.usage.cost


async def test_what_its_caller_uses_meanwhile_is_no_more_left_to_a_sub_agent_and_the_reverse() -> None:
    a, _ = limited("a", *_work(20))
    root, _ = limited("root", Parallel(one=[calls("a", "a")], two=_work(20)))
    async with root, a:
        tools = [read_file, SubagentTool(a, tools=["read_file"])]
        result = await run(Host(tools=tools, policy=allow_all, limits=Constraints(max_budget_usd=6)), root)
    assert result.usage.cost is not None
    assert 6 <= result.usage.cost <= 6 + 1
    assert result.end.reason == "max_budget"


async def test_what_others_use_takes_nothing_from_a_limit_that_is_a_sub_agents_own() -> None:
    seen: list[Event] = []
    root, _ = limited("root", _all("ab"), Say("Done."))
    a, _ = limited("a", *_work(4), Say("a"))
    b, _ = limited("b", *_work(8), Say("b"))
    own = ExecutionOptions(limits=Constraints(max_llm_calls=6))
    async with root, a, b:
        tools = [read_file, SubagentTool(a, tools=["read_file"], options=own), SubagentTool(b, tools=["read_file"])]
        host = Host(tools=tools, policy=allow_all, limits=Constraints(max_llm_calls=100), observer=seen.append)
        result = await run(host, root)
    assert result.completed
    assert _ends(seen) == [None, None]


@pytest.mark.parametrize("payer", ["a", "c"])
async def test_what_a_tool_of_one_sub_agent_has_spent_is_no_more_left_to_another(payer: str) -> None:
    seen: list[Event] = []
    paid = anyio.Event()

    @tool
    async def pay() -> ToolOutcome:
        return ToolOutcome(data="paid", spent=Spent(cost=6))

    def note(event: Event) -> None:
        seen.append(event)
        if any(isinstance(one, ToolResponse) and one.name == "pay" for one in seen_of_children([event])):
            paid.set()

    async def policy(request: PolicyRequest) -> Any:
        if request.tool == "read_file":
            await paid.wait()
        return allow_all(request)

    root, _ = limited("root", _all("ab"), Say("never"))
    a, _ = limited("a", Call("pay", {}) if payer == "a" else calls("c"), Say("a"))
    b, _ = limited("b", *_work(3), Say("b"))
    c, _ = limited("c", Call("pay", {}), Say("c"))
    async with root, a, b, c:
        tools = [read_file, pay, SubagentTool(a, tools=["pay", "c"]), SubagentTool(b, tools=["read_file"])]
        tools.append(SubagentTool(c, tools=["pay"]))
        host = Host(tools=tools, policy=policy, limits=Constraints(max_budget_usd=6), observer=note)
        await run(host, root)
    assert responses(seen)["b"].data["error"]["reason"] == "max_budget"
    used = [one for one in seen_of_children(seen) if isinstance(one, Usage) and one.agent_id == "b"]
    assert len(used) == 1


async def test_one_whose_limit_others_have_used_up_has_a_last_word_of_its_own() -> None:
    seen: list[Event] = []
    root, _ = limited("root", _all("ab"), Say("never"))
    a, _ = limited("a", *_work(20), grace=[Say("Half is done.")])
    b, _ = limited("b", *_work(20), grace=[Say("Half is done.")])
    async with root, a, b:
        tools = [read_file, *(SubagentTool(each, tools=["read_file"]) for each in (a, b))]
        host = Host(
            tools=tools, policy=allow_all, limits=Constraints(max_llm_calls=4), grace=Grace(), observer=seen.append
        )
        await run(host, root)
    for name in "ab":
        assert responses(seen)[name].data["error"]["partialText"] == "Half is done."


async def test_sub_agents_of_one_that_has_a_limit_of_its_own_share_that() -> None:
    root, _ = limited("root", calls("a", "a"), Say("Done."))
    a, _ = limited("a", _all("bc"), Say("never"))
    (b, _), (c, _) = (limited(name, *_work(20)) for name in "bc")
    own = ExecutionOptions(limits=Constraints(max_budget_usd=4))
    async with root, a, b, c:
        tools = [read_file, SubagentTool(a, tools=["b", "c", "read_file"], options=own)]
        tools += [SubagentTool(each, tools=["read_file"]) for each in (b, c)]
        result = await run(Host(tools=tools, policy=allow_all), root)
    assert result.completed
    assert result.usage.cost is not None
    assert 4 <= result.usage.cost <= 4 + 1


# --- what is known --------------------------------------------------------------------------------------------------


async def test_a_sub_agent_that_begins_after_a_pause_has_what_was_left_before_it() -> None:
    """Its call waited for a person, and the turn that goes on knows what was used."""
    channel = ScriptedChannel([Approval.pause(), True])
    fixer, opened = limited("fixer", Say("ok"))
    coder, _ = limited("coder", Count(cost=3.0), calls("fixer"), Say("Done."))
    policy = RulePolicy([Rule("ask_user", "fixer")])
    async with fixer, coder:
        limits = Constraints(max_budget_usd=10, max_llm_calls=5)
        host = Host(tools=[SubagentTool(fixer)], policy=policy, channel=channel, limits=limits)
        async with host.session(coder) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                assert opened == []
                await host.run_turn(session)
    (options,) = opened
    assert options.execution.limits is not None
    assert (options.execution.limits.max_budget_usd, options.execution.limits.max_llm_calls) == (7.0, 4)


@pytest.mark.parametrize("others", [{}, {"max_llm_calls": 20}])
async def test_of_the_time_of_a_turn_that_goes_on_what_it_was_at_work_before_is_not_left(others: Any) -> None:
    channel = ScriptedChannel([Approval.pause(), True])
    fixer, opened = limited("fixer", Say("ok"))
    seconds = itertools.count()
    coder, _ = limited("coder", calls("fixer"), Say("Done."), now=lambda: next(seconds) * 1000, reenter=True)
    policy = RulePolicy([Rule("ask_user", "fixer")])
    async with fixer, coder:
        limits = Constraints(max_time_seconds=600, **others)
        host = Host(tools=[SubagentTool(fixer)], policy=policy, channel=channel, limits=limits)
        async with host.session(coder) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                events = [event async for event in session.events() if event.turn_id is not None]
                at = [datetime.fromisoformat(event.timestamp) for event in events]
                for _ in range(3600):  # nobody came
                    next(seconds)
                assert (await host.run_turn(session)).completed
    before_s = (at[-1] - at[0]).total_seconds()
    (options,) = opened
    assert options.execution.limits is not None
    assert options.execution.limits.max_time_seconds is not None
    assert before_s > 4
    assert 595 - before_s < options.execution.limits.max_time_seconds <= 600 - before_s


async def test_a_host_that_loads_a_session_knows_what_its_sub_agents_have_used() -> None:
    """One had finished, one waits with some used: what is left to the next is less by both."""
    store = MemoryRecordStore()
    ask = RulePolicy([Rule("ask_user", "read_file"), Rule("allow", "*")])
    opened: list[OpenOptions] = []
    for number, word in enumerate([Approval.pause(), Approval.yes()]):
        done, _ = limited("done", Count(cost=1.0), Say("ok"), reenter=True)
        waits, _ = limited("waits", Count(cost=2.0), Call("read_file", {"path": "a"}), Say("ok"), reenter=True)
        later, opened = limited("later", Say("ok"), reenter=True)
        coder, _ = limited(
            "coder", Count(cost=0.5), calls("done", "a"), calls("waits", "b"), calls("later", "c"), reenter=True
        )
        async with done, waits, later, coder:
            tools = [read_file, SubagentTool(done), SubagentTool(waits, tools=["read_file"]), SubagentTool(later)]
            limits = Constraints(max_budget_usd=10, max_llm_calls=20)
            host = Host(tools=tools, policy=ask, channel=ScriptedChannel([word]), limits=limits)
            load = "s" if number else None
            options = None if load else OpenOptions(session_id="s")
            with anyio.fail_after(5):
                async with host.session(coder, options, load=load, store=store) as session:
                    result = await host.run_turn(session, None if load else "go")
            assert result.completed == bool(number)
    (options,) = opened
    assert options.execution.limits is not None
    assert (options.execution.limits.max_budget_usd, options.execution.limits.max_llm_calls) == (6.5, 17)


async def test_one_that_goes_on_after_a_pause_may_use_what_was_left_and_no_less() -> None:
    """What it has used itself counts once: in its session, or in what is left."""
    channel = ScriptedChannel([Approval.pause(), True])
    seen: list[Event] = []
    work = [Count(cost=2.0), Call("read_file", {"path": "a"}), Count(cost=2.0), Say("Mended.")]
    coder, _ = limited("coder", calls("fixer"), Say("Done."))

    def fixer() -> Any:
        return limited("fixer", *work, reenter=True)[0]

    async with coder:
        policy = RulePolicy([Rule("ask_user", "read_file"), Rule("allow", "*")])
        tools = [read_file, SubagentTool(fixer, tools=["read_file"])]
        limits = Constraints(max_budget_usd=5)
        host = Host(tools=tools, policy=policy, channel=channel, limits=limits, observer=seen.append)
        async with host.session(coder, store=MemoryRecordStore()) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                last = await host.run_turn(session)
    assert (last.end.reason, last.text) == ("completed", "Done.")
    assert responses(seen)["r1"].spent == Spent(model_calls=2, cost=4.0)


async def test_the_turn_in_which_a_sub_agent_is_reminded_has_what_the_first_has_left() -> None:
    seen: list[Event] = []
    done = Call("complete_task", {"result": "fine"})
    fixer, _ = limited("fixer", Count(cost=3.0), Say("All is well."))
    fixer.script.append([Count(cost=2.0), done, Say("never")])
    coder, _ = limited("coder", calls("fixer"), Say("never"))
    async with fixer, coder:
        child = SubagentTool(fixer, complete_task=True)
        host = Host(tools=[child], policy=allow_all, limits=Constraints(max_budget_usd=4), observer=seen.append)
        await run(host, coder)
    assert responses(seen)["r1"].data["error"]["reason"] == "max_budget"


async def test_one_that_nothing_is_left_to_is_not_reminded() -> None:
    seen: list[Event] = []
    fixer, _ = limited("fixer", Count(), Count(), Say("All is well."))
    fixer.script.append([Call("complete_task", {"result": "late"}), Say("Bye.")])
    coder, _ = limited("coder", calls("fixer"), Say("never"))
    async with fixer, coder:
        child = SubagentTool(fixer, complete_task=True)
        host = Host(tools=[child], policy=allow_all, limits=Constraints(max_llm_calls=2), observer=seen.append)
        await run(host, coder)
    error = responses(seen)["r1"].data["error"]
    assert (error["code"], error["reason"]) == ("subagent_limit", "max_llm_calls")
    assert responses(seen)["r1"].spent == Spent(model_calls=2)


class _Plain:
    """A session of an executor that does not know of shared limits."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        if name == "limit_own":
            raise AttributeError(name)
        return getattr(self._session, name)


async def test_sessions_that_cannot_be_told_what_others_use_keep_what_was_left_as_each_turn_began() -> None:
    seen: list[Event] = []
    fixer, _ = limited("fixer", Count(cost=3.0), Say("All is well."))
    fixer.script.append([Count(cost=2.0), Call("complete_task", {"result": "late"}), Say("never")])
    original = fixer.open

    async def open_(*args: Any, **given: Any) -> Any:
        return _Plain(await original(*args, **given))

    fixer.open = open_  # type: ignore[method-assign]  # a session of others
    coder, _ = limited("coder", calls("fixer"), Say("never"))
    async with fixer, coder:
        child = SubagentTool(fixer, complete_task=True)
        host = Host(tools=[child], policy=allow_all, limits=Constraints(max_budget_usd=4), observer=seen.append)
        await run(host, coder)
    assert responses(seen)["r1"].data["error"]["reason"] == "max_budget"


async def test_what_one_has_used_that_still_waits_after_a_restart_is_not_left_to_another() -> None:
    store = MemoryRecordStore()
    opened: list[OpenOptions] = []
    loaded = anyio.Event()
    policy = RulePolicy([Rule("ask_user", ["read_file", "b"]), Rule("allow", "*")])

    async def approve(request: Any, decision: Any, position: Any) -> Approval:
        if request.name == "read_file":
            loaded.set()
        elif is_second:
            await loaded.wait()
            return Approval.yes()
        return Approval.pause()

    for is_second in (False, True):
        a, _ = limited("a", Count(cost=2.0), Call("read_file", {"path": "a"}), Say("ok"), reenter=True)
        b, opened = limited("b", Say("ok"), reenter=True)
        root, _ = limited("root", _all("ab"), Say("Done."), reenter=True)
        async with a, b, root:
            tools = [read_file, SubagentTool(a, tools=["read_file"]), SubagentTool(b)]
            channel = CallbackChannel(approve, concurrent=True)
            host = Host(tools=tools, policy=policy, channel=channel, limits=Constraints(max_budget_usd=10))
            options = None if is_second else OpenOptions(session_id="s")
            with anyio.fail_after(5):
                async with host.session(root, options, load="s" if is_second else None, store=store) as session:
                    await host.run_turn(session, None if is_second else "go")
        loaded = anyio.Event()
    (given,) = opened
    assert given.execution.limits is not None
    assert given.execution.limits.max_budget_usd == 8.0


async def test_a_turn_whose_calls_were_all_answered_before_this_host_came_knows_what_it_had_used() -> None:
    """As after a kill between the last answer and the turn's next stream: nothing waits, and the turn goes on."""
    fixer, opened = limited("fixer", Say("ok"))
    coder, _ = limited(
        "coder", Count(cost=3.0), Call("read_file", {"path": "a"}, id="r0"), calls("fixer"), Say("Done.")
    )
    policy = RulePolicy([Rule("ask_user", "read_file"), Rule("allow", "*")])
    async with fixer, coder:
        limits = Constraints(max_budget_usd=10, max_llm_calls=5)
        channel = ScriptedChannel([Approval.pause()])
        host = Host(tools=[read_file, SubagentTool(fixer)], policy=policy, channel=channel, limits=limits)
        async with host.session(coder) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                await session.respond(ToolResult(request_id="r0", data="text"))
                assert not session.pending
                assert (await host.run_turn(session)).completed
    (options,) = opened
    assert options.execution.limits is not None
    assert (options.execution.limits.max_budget_usd, options.execution.limits.max_llm_calls) == (7.0, 4)


async def test_one_that_goes_on_is_not_ended_for_what_others_use_while_its_own_is_looked_up() -> None:
    """What it may still use would count as all that it may use, and be less than it has."""
    seen: list[Event] = []
    used, goes_on = anyio.Event(), False
    channel = ScriptedChannel([Approval.pause(), Approval.pause(), True, True])
    a, _ = limited("a", Call("read_file", {"path": "a"}), Count(cost=1.0), Say("a"))
    b, _ = limited("b", Count(cost=3.0), Call("read_file", {"path": "b"}), Count(cost=1.0), Say("b"))
    original = b.open

    async def open_(*args: Any, **given: Any) -> Any:
        session: Any = await original(*args, **given)
        events = session.events

        async def late(found: Any) -> Any:
            await used.wait()
            async for event in found:
                yield event

        def slow(*args: Any, **given: Any) -> Any:
            is_use = "types" in given and (given["types"] is None or "usage" in given["types"])
            is_looked_up = goes_on and is_use and session.state == "input_required"
            return late(events(*args, **given)) if is_looked_up else events(*args, **given)

        session.events = slow
        return session

    def note(event: Event) -> None:
        seen.append(event)
        if goes_on and any(isinstance(item, StreamEnd) for item in seen_of_children([event])):
            used.set()

    b.open = open_  # type: ignore[method-assign]  # a record that is slow to read
    root, _ = limited("root", _all("ab"), Say("Done."))
    policy = RulePolicy([Rule("ask_user", "read_file"), Rule("allow", "*")])
    async with a, b, root:
        tools = [read_file, *(SubagentTool(item, tools=["read_file"]) for item in (a, b))]
        limits = Constraints(max_budget_usd=6)
        host = Host(tools=tools, policy=policy, channel=channel, limits=limits, observer=note)
        async with host.session(root) as session:
            with anyio.fail_after(5):
                await host.run_turn(session, "go")
                goes_on = True
                await host.run_turn(session)
    assert [response.data for response in responses(seen).values()] == ["a", "b"]


async def test_what_was_used_by_one_that_was_handed_a_call_counts_once_beside_what_handed_it_over() -> None:
    @tool
    async def delegate() -> ToolOutcome:
        return ToolOutcome(tail=TailCall("a", {"task": "do it"}), spent=Spent(cost=2.0))

    a, _ = limited("a", Count(cost=1.0), Say("a"))
    b, opened = limited("b", Say("b"))
    root, _ = limited("root", Call("delegate", {}, id="r1"), calls("b", "r2"), Say("Done."))
    async with a, b, root:
        tools = [delegate, SubagentTool(a), SubagentTool(b)]
        await run(Host(tools=tools, policy=allow_all, limits=Constraints(max_budget_usd=10)), root)
    (options,) = opened
    assert options.execution.limits is not None
    assert options.execution.limits.max_budget_usd == 7.0


async def test_a_model_call_that_is_seen_twice_counts_once() -> None:
    limits = TurnLimits(Attached(session=cast("AgentSession", None), cursor=0), lambda: 0.0)
    event = Usage(cost=1.0, seq=5, id="e5", session_id="s", timestamp="2026-01-31T12:00:00.000Z")
    limits._limits = Constraints(max_budget_usd=10)
    for _ in range(2):
        limits.count(event)
    assert limits.rest().limits.max_budget_usd == 9.0


async def test_a_call_that_was_aborted_says_what_its_sub_agent_has_used() -> None:
    seen: list[Event] = []
    counted = anyio.Event()

    def note(event: Event) -> None:
        seen.append(event)
        if any(isinstance(one, Usage) for one in seen_of_children([event])):
            counted.set()

    fixer, _ = limited("fixer", Count(cost=2.0), Delay(until=anyio.sleep_forever))
    coder, _ = limited("coder", calls("fixer"))
    async with fixer, coder:
        host = Host(tools=[SubagentTool(fixer)], policy=allow_all, observer=note)
        async with host.session(coder) as session, anyio.create_task_group() as tasks:
            with anyio.fail_after(5):
                tasks.start_soon(host.run_turn, session, "go")
                await counted.wait()
                await host.abort(session=session)
    assert [event.reason for event in seen if isinstance(event, StreamEnd)][-1] == "aborted"
    assert responses(seen)["r1"].spent == Spent(model_calls=1, cost=2.0)


def test_a_cost_that_nobody_knows_stays_unknown() -> None:
    used = Used.of(Spent(model_calls=1))
    used.call(1.0)
    assert used.spent == Spent(model_calls=2)
    assert used.missing(Used.of(Spent(model_calls=2, cost=9.0))) is None
    missing = Used.of(Spent(model_calls=1, cost=1.0)).missing(used)
    assert missing is not None
    assert missing.spent == Spent(model_calls=1)
