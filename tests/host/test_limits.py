"""The host's limits are the defaults of its sessions and turns; nobody gets round them by giving wider ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
import trio.testing

from agentsession.adapters.scripted import Ask, Call, Count, Delay, Say, ScriptedExecutor, Step
from agentsession.host import CallbackChannel, Host, ToolContext, allow_all, ask_all, tool
from agentsession.host._limits import HostLimits
from agentsession.host._results import Stopwatch, TimeBetweenStreams
from agentsession.protocol import (
    AgentSession,
    ConfigurationError,
    Constraints,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    Grace,
    OpenOptions,
    Price,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    accept,
)

pytestmark = pytest.mark.anyio


@tool
def look() -> int:
    """Look."""
    return 1


CALLS: list[Step] = [Call("look", {}) for _ in range(8)]


async def end_of(host: Host, script: list[list[Step]], given: Any = None, turn: Any = None) -> tuple[str, Any]:
    with anyio.fail_after(10):
        async with ScriptedExecutor(script) as executor, host.session(executor, given) as session:
            end = (await host.run_turn(session, "go", turn)).end
            return end.reason, end.data


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Constraints(max_llm_calls=3), "max_llm_calls"), (Constraints(max_turns=2), "max_turns")],
)
async def test_a_limit_of_the_host_ends_the_turns_of_its_sessions(limits: Constraints, reason: str) -> None:
    host = Host(tools=[look], policy=allow_all, limits=limits, loop_detection=False)
    assert (await end_of(host, [CALLS]))[0] == reason


async def test_active_time_and_a_deadline_of_the_host_end_a_turn_that_hangs() -> None:
    hangs: list[list[Step]] = [[Delay(until=anyio.sleep_forever)]]
    assert (await end_of(Host(limits=Constraints(max_time_seconds=0.02)), hangs))[0] == "max_time"
    assert (await end_of(Host(deadline_s=0.02), hangs))[0] == "deadline"


@pytest.mark.rule("CTL-08", "HITL-11")
@pytest.mark.parametrize(("works_s", "reason"), [(19, "completed"), (21, "max_time")])
def test_the_time_of_the_hosts_tools_is_the_turns_and_that_of_people_is_not(works_s: float, reason: str) -> None:
    @tool
    async def dig(n: int, context: ToolContext) -> None:
        """Dig."""
        await anyio.sleep(works_s)
        await context.ask("Go on?")

    async def approve(request: ToolRequest, decision: Any, position: Any) -> bool:
        await anyio.sleep(3600)
        return True

    async def ask(request: ElicitationRequest, position: Any) -> ElicitationAnswer:
        await anyio.sleep(3600)
        return accept(request.request_id)

    async def go() -> tuple[str, list[float | None]]:
        clock = int(anyio.current_time() * 1000)
        script: list[list[Step]] = [[*(Call("dig", {"n": n}) for n in range(3)), Say("done")]]
        channel = CallbackChannel(approve, ask)
        host = Host(tools=[dig], policy=ask_all, channel=channel, limits=Constraints(max_time_seconds=60))
        async with ScriptedExecutor(script, now=lambda: int(anyio.current_time() * 1000) - clock) as executor:
            async with host.session(executor) as session:
                end = (await host.run_turn(session, "go")).end
                told = [event async for event in session.events() if isinstance(event, ToolResponse)]
        return end.reason, [each.spent.seconds if each.spent else None for each in told]

    clock = trio.testing.MockClock(autojump_threshold=0)
    ended = anyio.run(go, backend="trio", backend_options={"clock": clock})
    assert ended == (reason, [works_s] * 3)


def test_time_of_tools_while_a_stream_is_open_is_left_out_and_what_was_not_told_is_kept() -> None:
    async def go() -> list[float]:
        watch = Stopwatch()
        between = TimeBetweenStreams(watch)
        with watch.running():
            await anyio.sleep(5)
            with between.stream():
                await anyio.sleep(70)
                found = [between.take()]
            await anyio.sleep(3)
        found += [between.take(), between.take()]
        between.put_back(found[1])
        return [*found, between.take()]

    clock = trio.testing.MockClock(autojump_threshold=0)
    assert anyio.run(go, backend="trio", backend_options={"clock": clock}) == [5, 3, 0, 3]


async def test_a_tool_without_a_limit_of_time_tells_no_seconds() -> None:
    script: list[list[Step]] = [[Call("look", {}), Say("done")]]
    host = Host(tools=[look], policy=allow_all)
    async with ScriptedExecutor(script) as executor, host.session(executor) as session:
        await host.run_turn(session, "go")
        (told,) = [event async for event in session.events() if isinstance(event, ToolResponse)]
    assert told.spent is None


async def test_prices_of_the_host_keep_its_budget() -> None:
    host = Host(limits=Constraints(max_budget_usd=1), prices={"big": Price(input=1, output=10)})
    script: list[list[Step]] = [[Count(model="big", input_tokens=500_000, output_tokens=0)] * 9]
    async with ScriptedExecutor(script) as executor:
        result = await host.run(executor, "go")
    assert result.end.reason == "max_budget"
    assert result.usage.calls == 2
    assert result.usage.cost == pytest.approx(1.0)


@pytest.mark.parametrize("where", ["session", "turn"])
async def test_a_wider_limit_of_a_session_or_turn_does_not_hold(where: str) -> None:
    host = Host(tools=[look], policy=allow_all, limits=Constraints(max_llm_calls=3), loop_detection=False)
    wide = ExecutionOptions(limits=Constraints(max_llm_calls=7, max_time_seconds=99))
    given, turn = (OpenOptions(execution=wide), None) if where == "session" else (None, wide)
    assert (await end_of(host, [CALLS], given, turn))[0] == "max_llm_calls"


async def test_a_turn_that_gives_no_limits_keeps_those_of_its_session() -> None:
    host = Host(tools=[look], policy=allow_all, deadline_s=99, loop_detection=False)
    session = OpenOptions(execution=ExecutionOptions(limits=Constraints(max_turns=2)))
    assert (await end_of(host, [CALLS], session, ExecutionOptions(model="other")))[0] == "max_turns"


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
IN_A_MINUTE = "2026-01-31T12:01:00.000Z"


@pytest.mark.parametrize(
    ("turn", "session", "expected"),
    [
        (None, None, IN_A_MINUTE),
        ("2026-01-31T12:00:30Z", None, "2026-01-31T12:00:30Z"),
        (None, "2026-01-31T13:00:30+01:00", "2026-01-31T13:00:30+01:00"),
        ("2026-01-31T12:02:00Z", None, IN_A_MINUTE),
        ("2026-01-31T12:02:00Z", "2026-01-31T12:00:30Z", IN_A_MINUTE),
        ("soon", None, "soon"),
        ("2026-01-31T12:02:00", None, "2026-01-31T12:02:00"),
    ],
)
def test_of_two_deadlines_the_earlier_one_holds(turn: str | None, session: str | None, expected: str) -> None:
    found = HostLimits(deadline_s=60, now=lambda: NOON).for_turn(
        ExecutionOptions(deadline=turn) if turn else None, ExecutionOptions(deadline=session) if session else None
    )
    assert found is not None
    assert found.deadline == expected


def test_what_a_session_asks_for_itself_goes_before_the_hosts_defaults() -> None:
    host = HostLimits(grace=Grace(), prices={"a": Price(input=1, output=1)}, loop_detection=True)
    own = ExecutionOptions(grace=Grace(seconds=5), prices={"b": Price(input=2, output=2)}, loop_detection=False)
    assert host.for_session(own) == own
    filled = host.for_session(ExecutionOptions(model="m"))
    assert (filled.model, filled.grace, filled.loop_detection) == ("m", Grace(), True)


def test_a_host_without_limits_changes_no_turn() -> None:
    assert HostLimits().for_turn(None, ExecutionOptions(deadline="2026-01-31T12:00:30Z")) is None


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12])
def test_a_deadline_must_be_ahead_and_a_moment_that_there_is(seconds: float) -> None:
    with pytest.raises(ConfigurationError):
        Host(deadline_s=seconds)


async def test_a_turn_that_goes_on_is_no_way_around_a_limit_of_the_host() -> None:
    host = Host(policy=allow_all, limits=Constraints(max_llm_calls=3), on_ask="pause", loop_detection=False)
    script: list[Step] = [Ask("Go on?"), *[Call("look", {}, needs="none") for _ in range(8)]]
    async with ScriptedExecutor([script]) as executor, host.session(executor) as session:
        await host.run_turn(session, "go")
        wide = ExecutionOptions(limits=Constraints(max_llm_calls=99))
        end = (await host.run_turn(session, accept(session.pending[0].request_id, "yes"), wide)).end
    assert end.reason == "max_llm_calls"


async def test_a_limit_that_the_executor_cannot_keep_is_refused_when_a_session_is_opened() -> None:
    async with ScriptedExecutor([[Say("x")]], capabilities=["abort"]) as executor:
        with pytest.raises(ConfigurationError) as refused:
            await Host(limits=Constraints(max_budget_usd=1)).open(executor)
    assert refused.value.id == "limit-unsupported"


async def test_a_turn_that_is_settled_between_its_pause_and_its_continuation_ends_as_it_was_settled() -> None:
    sessions: list[AgentSession] = []

    async def waits_for_the_deadline(event: Event) -> None:
        if isinstance(event, StreamEnd) and event.reason == "input_required":
            async with sessions[0].events(event.seq, follow=True) as reader:
                async for later in reader:
                    if isinstance(later, StreamEnd):
                        return

    host = Host(tools=[look], policy=allow_all, deadline_s=0.05, observer=waits_for_the_deadline)
    with anyio.fail_after(10):
        async with ScriptedExecutor([[Call("look", {}), Say("never")]]) as executor, host.session(executor) as session:
            sessions.append(session)
            end = (await host.run_turn(session, "go")).end
    assert (end.reason, end.data) == ("aborted", {"cause": "deadline"})
