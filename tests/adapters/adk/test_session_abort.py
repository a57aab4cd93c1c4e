"""Aborts: in every place of every shape of tree, in races, twice, and against what hangs.

After each: one end with one reason, every request answered once and with the status that is true, answers that come
late are stale, no task is left, and the next turn works on a history that a model takes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.apps.app import App
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import Driven, agent, assert_valid_history, driven, host_tool, verify
from tests.adapters.adk.hooking import Desk
from tests.adapters.adk.shapes import SHAPES, Gate, Planted, at_baseline, pipeline, plant, read_while
from tests.adapters.adk.test_session_questions import CONFIG
from tests.adapters.sessions import MortalStore

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, hold, say, stream
from agentsession.adapters.base import BaseSession
from agentsession.protocol import (
    AbortTimeout,
    AgentEnd,
    AgentStart,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    ExecutionOptions,
    MemoryRecordStore,
    OpenOptions,
    RecordKey,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    cancel,
    result,
)

pytestmark = [pytest.mark.anyio, pytest.mark.rule("CTL-01", "CTL-03", "CTL-05")]

UNGATED = {"host_tool_execution": False}


@dataclasses.dataclass
class Place:
    """Where the inner agent of a tree is when the abort comes."""

    steps: list[Any]
    tools: list[Any] = dataclasses.field(default_factory=list[Any])
    execution: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    reached: anyio.Event | None = None
    """``None``: the turn waits for the host."""
    statuses: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Of the inner agent's calls, after the abort."""
    executor: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    leaves: Any = None
    """Lets go of what no abort can end."""


def in_the_model() -> Place:
    gate = Gate()
    return Place([hold(gate) + say("never")], reached=gate.entered)


def in_the_middle_of_an_answer() -> Place:
    gate = Gate()
    return Place([stream("Hello ", "wor") + hold(gate) + say("ld")], reached=gate.entered)


def in_an_async_tool() -> Place:
    gate = Gate()

    async def slow() -> str:
        """Work."""
        return await gate()

    return Place([call("slow", id="c1")], [slow], dict(UNGATED), gate.entered, {"slow": "unknown"})


def in_a_granted_tool_beside_a_wait() -> Place:
    gate = Gate()

    async def slow() -> str:
        """Work."""
        return await gate()

    steps = [calls(call("slow", id="c1"), call("look", id="c2"))]
    return Place(steps, [slow], dict(UNGATED), gate.entered, {"slow": "unknown", "look": "cancelled"})


def in_a_tool_in_a_thread() -> Place:
    entered, release = anyio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow() -> str:
        """Block a thread."""
        loop.call_soon_threadsafe(entered.set)
        release.wait(20)
        return "late"

    place = Place([call("slow", id="c1")], [slow], dict(UNGATED), entered, {"slow": "unknown"})
    place.executor, place.leaves = {"tool_threads": 2}, release.set
    return place


def waiting_for_a_result() -> Place:
    return Place([call("look", id="c1")], statuses={"look": "cancelled"})


def waiting_for_a_grant() -> Place:
    return Place([call("never_ran", id="c1")], [never_ran], statuses={"never_ran": "cancelled"})


def waiting_for_a_confirmation() -> Place:
    tool = FunctionTool(never_ran, require_confirmation=True)
    return Place([call("never_ran", id="c1")], [tool], statuses={"never_ran": "cancelled"})


def waiting_for_a_credential() -> Place:
    def ask(tool_context: ToolContext) -> str:
        """Ask for a credential."""
        tool_context.request_credential(CONFIG)
        return "asked"

    return Place([call("ask", id="c1")], [ask], dict(UNGATED), statuses={"ask": "unknown"})


def never_ran() -> str:
    """Must not run."""
    raise AssertionError("nobody granted this")


PLACES = [
    in_the_model,
    in_the_middle_of_an_answer,
    in_an_async_tool,
    in_a_granted_tool_beside_a_wait,
    in_a_tool_in_a_thread,
    waiting_for_a_result,
    waiting_for_a_grant,
    waiting_for_a_confirmation,
    waiting_for_a_credential,
]


def check_turn(session: BaseSession, reason: str = "aborted") -> None:
    """The last turn has ended once, for this reason, without an error, and left nothing open."""
    turn_id = next(event.turn_id for event in reversed(session.record) if event.turn_id is not None)
    turn = [event for event in session.record if event.turn_id == turn_id]
    finals = [event for event in turn if isinstance(event, StreamEnd) and event.reason != "input_required"]
    assert [end.reason for end in finals] == [reason]
    assert not [event for event in turn if isinstance(event, Error)]
    assert session.state == "idle"
    assert list(session.pending) == []
    asked = [
        event.request_id for event in turn if isinstance(event, (ToolRequest, ElicitationRequest)) and whole(event)
    ]
    told = [event.request_id for event in turn if isinstance(event, (ToolResponse, ElicitationResponse))]
    assert Counter(asked) == Counter(told)
    assert max(Counter(asked).values(), default=1) == 1
    verify(session)


def whole(event: ToolRequest | ElicitationRequest) -> bool:
    return not (isinstance(event, ToolRequest) and event.partial)


async def check_next_turn(desk: Driven, planted: Planted) -> None:
    """The next turn is answered, and every model call so far was valid."""
    turn = await desk.turn("again")
    assert turn.reason == "completed"
    assert "fresh" in turn.texts
    planted.check_histories()


async def abort(desk: Driven) -> None:
    with anyio.fail_after(20):
        outcome = await desk.session.abort()
    assert outcome.status == "aborted"


# -- everywhere -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-06", "TOOL-01", "TOOL-09")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("where", PLACES, ids=lambda where: where.__name__)
async def test_an_abort_anywhere(where: Any, shape: str) -> None:
    """R25, R51, R62: whatever a turn does or waits for, an abort ends it within its bound and leaves nothing behind."""
    place: Place = where()
    planted = plant(shape, *place.steps, tools=place.tools)
    async with driven(planted.root, tools=[host_tool("look")], execution=place.execution, **place.executor) as desk:
        before = asyncio.all_tasks()
        if place.reached is None:
            assert (await desk.stream("go")).reason == "input_required"
            late = [
                cancel(item.request_id) if isinstance(item, ElicitationRequest) else result(item.request_id, "late")
                for item in desk.session.pending
            ]
            await abort(desk)
        else:
            reached, late = place.reached, []

            async def does() -> None:
                await reached.wait()
                while place.statuses.get("look") and not desk.session.pending:
                    await anyio.lowlevel.checkpoint()
                late.extend(result(item.request_id, "late") for item in desk.session.pending)
                await abort(desk)

            await read_while(desk, "go", does)
        check_turn(desk.session)
        around = {"inner": "unknown", "middle": "unknown", "transfer_to_agent": "completed"}
        assert {name: status for name, status in desk.responses().items() if name not in around} == place.statuses
        assert all(around[name] == status for name, status in desk.responses().items() if name in around)
        assert {receipt.status for receipt in await desk.session.respond(*late)} <= {"stale"}
        assert (await desk.session.abort()).status == "idle"
        if place.leaves is not None:
            place.leaves()
        assert await at_baseline(before) == set()
        await check_next_turn(desk, planted)


@pytest.mark.rule("HITL-06")
@pytest.mark.parametrize("shape", ["plain", "handoff"])
async def test_an_abort_of_a_parked_call(shape: str) -> None:
    planted = plant(shape, call("look", id="c1"))
    async with driven(planted.root, tools=[host_tool("look")], parked=True) as desk:
        before = asyncio.all_tasks()
        await desk.stream("go")
        late = result(desk.pending("look"), 1)
        await abort(desk)
        check_turn(desk.session)
        assert desk.responses()["look"] == "cancelled"
        assert [receipt.status for receipt in await desk.session.respond(late)] == ["stale"]
        assert await at_baseline(before) == set()
        await check_next_turn(desk, planted)


@pytest.mark.rule("HITL-06")
async def test_an_abort_while_one_branch_waits_and_another_is_in_its_model_call() -> None:
    gate = Gate()
    left = LlmAgent(name="left", model=ScriptedLlm(script=[call("look", id="c1")], forever=say("fresh")))
    right = LlmAgent(name="right", model=ScriptedLlm(script=[hold(gate) + say("never")], forever=say("fresh")))
    async with driven(pipeline(ParallelAgent, left, right), tools=[host_tool("look")]) as desk:
        before = asyncio.all_tasks()

        async def does() -> None:
            await gate.entered.wait()
            while not desk.session.pending:
                await anyio.lowlevel.checkpoint()
            await abort(desk)

        await read_while(desk, "go", does)
        check_turn(desk.session)
        assert desk.responses() == {"look": "cancelled"}
        assert await at_baseline(before) == set()
        await check_next_turn(desk, Planted(None, left, right))


@pytest.mark.rule("LIFE-16")
async def test_agents_that_an_abort_cuts_off_have_not_completed_and_no_other_begins() -> None:
    """ADK's pipelines enter the agents that are left also after an abort; none of them does anything."""
    first, last = agent(say("done"), name="first"), agent(say("never"), name="last")
    branches = [agent(call("look", id=name), name=name) for name in ("left", "right")]
    loop = pipeline(LoopAgent, agent(say("never"), name="again"), name="loop", max_iterations=2)
    root = pipeline(SequentialAgent, first, pipeline(ParallelAgent, *branches, name="both"), loop, last, name="root")
    events: list[Event] = []
    async with driven(root, tools=[host_tool("look")]) as desk:
        async with desk.session.stream("go") as stream:
            async for event in stream:
                events.append(event)
                if len(desk.session.pending) == 2 and desk.session.state == "running":
                    await abort(desk)
        check_turn(desk.session)
        ends = {event.agent_id: event.reason for event in events if isinstance(event, AgentEnd)}
        assert ends.pop("first") == "completed"
        assert ends == dict.fromkeys(["left", "right", "both", "root"], "aborted")
        assert [event.agent_id for event in events if isinstance(event, AgentStart)][2:] == ["both", "left", "right"]


async def test_an_abort_that_a_synchronous_tool_lets_in_when_it_returns() -> None:
    """R25: a plain function on the loop is not interrupted; what it did is told as done, and the turn ends aborted."""
    asked: list[asyncio.Task[Any]] = []

    def slow() -> str:
        """Block the loop; meanwhile somebody asks for the end of the turn."""
        asked.append(asyncio.get_running_loop().create_task(desk.session.abort()))
        return "done"

    planted = plant("plain", call("slow", id="c1"), tools=[slow])
    async with driven(planted.root, execution=UNGATED) as desk:
        await desk.stream("go")
        assert (await asked[0]).status == "aborted"
        check_turn(desk.session)
        assert desk.responses() == {"slow": "completed"}
        await check_next_turn(desk, planted)


# -- races ------------------------------------------------------------------------------------------------------------


async def test_an_abort_before_the_first_event_is_read() -> None:
    planted = plant("plain", say("never"))
    async with driven(planted.root) as desk:
        turn = desk.session.stream("go")
        await abort(desk)
        async with turn:
            events = [event async for event in turn]
        assert (events[-1].type, turn.end and turn.end.reason) == ("stream_end", "aborted")
        check_turn(desk.session)
        await check_next_turn(desk, planted)


async def test_an_abort_right_after_the_last_event_ends_nothing() -> None:
    planted = plant("plain", say("done"))
    async with driven(planted.root) as desk:
        await desk.stream("go")
        length = len(desk.session.record)
        assert (await desk.session.abort()).status == "idle"
        assert len(desk.session.record) == length
        await check_next_turn(desk, planted)


@pytest.mark.rule("CTL-04")
@pytest.mark.parametrize("turns", range(0, 30, 5))
async def test_an_abort_that_races_with_the_final_answer_gives_one_reason(turns: int) -> None:
    gate = Gate()
    planted = plant("plain", hold(gate) + say("done"))
    async with driven(planted.root) as desk:
        before = asyncio.all_tasks()
        outcomes: list[str] = []

        async def does() -> None:
            await gate.entered.wait()
            gate.release.set()
            for _ in range(turns):  # the race: how far the turn has come when the abort does
                await anyio.lowlevel.checkpoint()
            outcomes.append((await desk.session.abort()).status)

        await read_while(desk, "go", does)
        ended = next(event.reason for event in desk.session.record if isinstance(event, StreamEnd))
        assert (ended, outcomes[0]) in {("aborted", "aborted"), ("completed", "too_late"), ("completed", "idle")}
        check_turn(desk.session, ended)
        assert await at_baseline(before) == set()
        await check_next_turn(desk, planted)


@pytest.mark.rule("CTL-04", "TOOL-09")
@pytest.mark.parametrize("turns", range(0, 30, 5))
@pytest.mark.parametrize("shape", ["plain", "child", "parallel"])
async def test_an_abort_that_races_with_an_answer_gives_one_reason(shape: str, turns: int) -> None:
    planted = plant(shape, call("look", id="c1"))
    async with driven(planted.root, tools=[host_tool("look")]) as desk:
        before = asyncio.all_tasks()
        await desk.stream("go")
        turn = desk.session.stream(result(desk.pending("look"), 1))
        for _ in range(turns):  # the race: how far the answer has come when the abort does
            await anyio.lowlevel.checkpoint()
        with anyio.fail_after(20):
            await desk.session.abort()
            async with turn:
                async for _ in turn:
                    pass
        assert turn.end is not None
        check_turn(desk.session, turn.end.reason)
        assert desk.responses()["look"] == "completed"  # the answer was taken before the abort
        assert await at_baseline(before) == set()
        await check_next_turn(desk, planted)


@pytest.mark.rule("CTL-02")
@pytest.mark.parametrize("waits", [True, False])
async def test_two_aborts_from_two_tasks_end_one_turn_once(waits: bool) -> None:
    gate = Gate()
    planted = plant("plain", call("look", id="c1") if waits else hold(gate) + say("never"))
    async with driven(planted.root, tools=[host_tool("look")]) as desk:
        outcomes: list[str] = []

        async def one() -> None:
            outcomes.append((await desk.session.abort()).status)

        async def both() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(one)
                group.start_soon(one)

        if waits:
            await desk.stream("go")
            await both()
        else:

            async def does() -> None:
                await gate.entered.wait()
                await both()

            await read_while(desk, "go", does)
        assert "aborted" in outcomes
        assert set(outcomes) <= {"aborted", "idle"}
        check_turn(desk.session)
        await check_next_turn(desk, planted)


@pytest.mark.rule("CTL-06")
async def test_an_abort_with_a_steer_in_the_queue_lists_it_and_the_next_turn_does_not_hear_it() -> None:
    gate = Gate()
    planted = plant("plain", hold(gate) + say("never"))
    async with driven(planted.root) as desk:
        queued: list[str | None] = []

        async def does() -> None:
            await gate.entered.wait()
            queued.append((await desk.session.steer("be brief")).request_id)
            await abort(desk)

        events = await read_while(desk, "go", does)
        assert isinstance(events[-1], StreamEnd)
        assert (events[-1].data or {})["undelivered"] == queued
        check_turn(desk.session)
        await check_next_turn(desk, planted)
        assert "be brief" not in str(planted.models[0].requests[-1].contents)


# -- what is slow, and what hangs -------------------------------------------------------------------------------------


class SlowStore(MortalStore):
    """A store that takes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__(MemoryRecordStore())
        self.gate = anyio.Event()
        self.gate.set()

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        await self.gate.wait()
        await super().append(key, events, reserved_seq=reserved_seq)


@pytest.mark.rule("PER-02")
async def test_an_abort_waits_for_a_slow_store_and_tells_only_what_it_has() -> None:
    gate, store = Gate(), SlowStore()
    planted = plant("plain", hold(gate) + say("never"))
    async with driven(planted.root, store=store) as desk:
        turn = desk.session.stream("go")
        await gate.entered.wait()
        store.gate = anyio.Event()
        aborting = asyncio.ensure_future(desk.session.abort())
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert (desk.session.state, aborting.done()) == ("idle", False)
        store.gate.set()
        with anyio.fail_after(20):
            assert (await aborting).status == "aborted"
            async with turn:
                assert [event.type async for event in turn][-1] == "stream_end"
        assert (await store.read(desk.session.recorder.key))[-1].type == "stream_end"
        check_turn(desk.session)
        await check_next_turn(desk, planted)


@pytest.mark.parametrize(
    "point",
    [
        "before_run",
        "before_agent",
        "before_model",
        "after_model",
        "before_tool",
        "after_tool",
        "after_agent",
        "on_event",
    ],
)
async def test_an_abort_while_a_plugin_of_the_users_hangs(point: str) -> None:
    gate = Gate()
    hung: list[int] = []

    class Hangs(BasePlugin):
        pass

    async def hang(self: Any, **_: Any) -> None:
        if not hung:
            hung.append(1)
            await gate()

    setattr(Hangs, f"{point}_callback", hang)
    planted = plant("plain", call("quick", id="c1"), tools=[quick])
    app = App(name="app", root_agent=planted.root, plugins=[Hangs(name="hangs")])
    async with driven(app, execution=UNGATED) as desk:
        before = asyncio.all_tasks()

        async def does() -> None:
            await gate.entered.wait()
            await abort(desk)

        await read_while(desk, "go", does)
        check_turn(desk.session)
        assert await at_baseline(before) == set()
        await check_next_turn(desk, planted)


@pytest.mark.parametrize(
    "point", ["on_user_message", "before_run", "before_agent", "before_model", "before_tool", "after_tool", "on_event"]
)
async def test_an_abort_while_a_hook_of_the_hosts_hangs(point: str) -> None:
    gate = Gate()
    hung: list[int] = []

    async def hang(payload: Any) -> None:
        if not hung:
            hung.append(1)
            await gate()

    planted = plant("plain", call("quick", id="c1"), tools=[quick])
    async with driven(planted.root, execution=UNGATED, hooks=Desk(**{point: hang})) as desk:
        before = asyncio.all_tasks()

        async def does() -> None:
            await gate.entered.wait()
            await abort(desk)

        await read_while(desk, "go", does)
        check_turn(desk.session)
        assert await at_baseline(before) == set()
        await check_next_turn(desk, planted)


def quick() -> str:
    """Work."""
    return "quick"


@pytest.mark.rule("LIFE-13", "PER-04")
async def test_a_tool_that_swallows_cancellation_closes_the_session_which_can_be_loaded(tmp_path: Path) -> None:
    """R25: whoever aborts is told within the grace time that work goes on; a load settles what it left."""
    gate = Gate()
    store, service = MemoryRecordStore(), SqliteSessionService(str(tmp_path / "adk.db"))
    root = agent(calls(call("stubborn", id="c1"), call("look", id="c2")), say("fresh"), tools=[gate.stubborn])
    execution = ExecutionOptions(host_tool_execution=False, tools=[host_tool("look")])
    async with AdkExecutor(root, session_service=service, store=store, grace_s=0.3) as executor:
        session = await executor.open(OpenOptions(session_id="s1", execution=execution))
        with anyio.fail_after(20):
            turn = session.stream("go")
            await gate.entered.wait()
            with pytest.raises(AbortTimeout):
                await session.abort()
            assert session.state == "closed"
            gate.release.set()
            await turn.aclose()
            desk = Driven(executor, await executor.load("s1", OpenOptions(execution=execution)))
        assert desk.responses() == {"stubborn": "unknown", "look": "cancelled"}
        ends = [
            (event.reason, (event.data or {}).get("cause"))
            for event in desk.session.record
            if isinstance(event, StreamEnd)
        ]
        assert ends == [("failed", "lost")]
        assert (await desk.stream("again")).texts == ["fresh"]
        assert_valid_history(root.model)
        verify(desk.session)
