"""One real ADK session driven at random: messages, answers in any order, steers, updates, aborts, readers, restarts.

After every step the record is checked against the rules and the schema, no tool has run without a grant or twice, and
no steer was lost or heard twice. At the end of each example no task is left.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from google.adk.agents import LlmAgent
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.adapters.adk.driving import assert_valid_history, host_tool, verify
from tests.adapters.adk.shapes import at_baseline

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, calls, say, stream
from agentsession.adapters.base import BaseSession
from agentsession.protocol import (
    Answer,
    ExecutionOptions,
    MemoryRecordStore,
    Message,
    NothingToContinue,
    OpenOptions,
    PendingRequest,
    SessionConfig,
    StreamActive,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    accept,
    decline,
    deny,
    grant,
    is_ephemeral,
    result,
)

STEPS = {
    "say": say("done"),
    "stream": stream("a ", "b"),
    "host": call("look", {"n": 1}),
    "own": call("write", {"text": "x"}),
    "both": calls(call("look"), call("write", {"text": "y"})),
    "two": calls(call("look"), call("look")),
    "ask": call("ask"),
}
OPTIONS = OpenOptions(session_id="s", execution=ExecutionOptions(tools=[host_tool("look")]))
TURNS = 50
"""How many turns of the loop a reader that has all is still listened to: what it is given too much comes at once."""


class Drive(RuleBasedStateMachine):
    """One session over several lives of its executor."""

    parked = False
    folder: Path
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Drive.made += 1
        self.loop = asyncio.new_event_loop()
        self.store = MemoryRecordStore()
        self.service = SqliteSessionService(str(self.folder / f"{Drive.made}.db"))
        self.ran: list[str] = []
        self.steers: set[str] = set()
        self.plan: list[Any] = []
        self.models: list[ScriptedLlm] = []

    # -- running in the loop ------------------------------------------------------------------------------------------

    def run(self, work: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(asyncio.ensure_future(work), 20)

        return self.loop.run_until_complete(bounded())

    def call(self, work: Callable[..., Any], *args: Any) -> Any:
        async def made() -> Any:
            return work(*args)

        return self.run(made())

    def settle(self) -> None:
        """Let everything happen that can: the stream ends, and what it recorded is stored."""

        async def settled() -> None:
            if self.session.state == "running":
                await self.stream_end()
            await self.session.stored()

        self.run(settled())

    async def stream_end(self) -> None:
        """Wait until the open stream has ended."""
        async with self.session.events(self.session.last_seq, follow=True) as reader:
            async for _ in reader:
                if self.session.state != "running":
                    return

    def root(self) -> LlmAgent:
        def write(text: str) -> str:
            """Write."""
            self.ran.append(text)
            return "written"

        def ask(tool_context: Any) -> Any:
            """Ask from inside."""
            if tool_context.tool_confirmation is None:
                tool_context.request_confirmation(hint="sure?")
                return {"asked": True}
            self.ran.append("asked")
            return "sure"

        def next_step(request: Any) -> Any:
            return self.plan.pop(0) if self.plan else say("done")

        model = ScriptedLlm(forever=next_step)
        self.models.append(model)
        return LlmAgent(name="root", model=model, tools=[write, ask])

    def start_life(self, begin: Callable[[AdkExecutor], Awaitable[BaseSession]]) -> None:
        self.leave = asyncio.Event()
        ready: asyncio.Future[BaseSession] = self.loop.create_future()

        async def life() -> None:
            executor = AdkExecutor(self.root(), session_service=self.service, store=self.store, parked=self.parked)
            async with executor:
                try:
                    session = await begin(executor)
                except BaseException as error:
                    ready.set_exception(error)
                    raise
                ready.set_result(session)
                await self.leave.wait()

        self.life = self.loop.create_task(life())

        async def opened() -> BaseSession:
            return await ready

        self.session = self.run(opened())

    def end_life(self) -> None:
        self.leave.set()
        self.run(self.life)

    @initialize()
    def open(self) -> None:
        self.start_life(lambda executor: executor.open(OPTIONS))

    def teardown(self) -> None:
        try:
            if hasattr(self, "life"):
                self.end_life()
                assert self.session.readers == 0

                async def left() -> set[asyncio.Task[Any]]:
                    me = asyncio.current_task()
                    assert me is not None
                    return await at_baseline({me})

                assert self.loop.run_until_complete(left()) == set()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    # -- what a host does ---------------------------------------------------------------------------------------------

    @rule(names=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3), reads=st.booleans())
    def say(self, names: list[str], reads: bool) -> None:
        if self.session.state == "running":
            return
        self.plan[:] = [STEPS[name] for name in names]
        turn = self.call(self.session.stream, "go")
        if reads:
            self.run(self.read(turn))
        else:
            self.run(turn.aclose())
        self.settle()

    async def read(self, turn: Any) -> None:
        async with turn:
            assert [event async for event in turn][-1].type == "stream_end"

    def answer_to(self, request: PendingRequest, choice: int) -> Answer:
        if not isinstance(request, ToolRequest):
            return accept(request.request_id, {"confirmed": True}) if choice else decline(request.request_id)
        if choice == 0:
            return deny(request.request_id)
        return (
            grant(request.request_id) if request.needs == "grant" and choice == 1 else result(request.request_id, "r")
        )

    @precondition(lambda self: hasattr(self, "session") and self.session.pending)
    @rule(data=st.data(), through_stream=st.booleans())
    def answer(self, data: st.DataObject, through_stream: bool) -> None:
        waiting = data.draw(st.permutations(self.session.pending))
        chosen = waiting[: data.draw(st.integers(1, len(waiting)))]
        answers = [self.answer_to(request, data.draw(st.integers(0, 2))) for request in chosen]
        if through_stream:
            turn = self.call(self.session.stream, answers)
            assert all(receipt.ok for receipt in turn.receipts)
            self.run(turn.aclose())
        else:
            assert all(receipt.ok for receipt in self.run(self.session.respond(*answers)))
        assert {receipt.status for receipt in self.run(self.session.respond(*answers))} == {"stale"}
        self.settle()

    @rule()
    def go_on(self) -> None:
        before = len(self.session.record)
        try:
            turn = self.call(self.session.stream)
        except (StreamActive, NothingToContinue):
            assert len(self.session.record) == before
        else:
            self.run(turn.aclose())
        self.settle()

    @rule()
    def steer(self) -> None:
        receipt = self.run(self.session.steer("mind"))
        assert receipt.ok == (self.session.state == "input_required")
        if receipt.ok:
            self.steers.add(receipt.request_id)

    @rule(good=st.booleans())
    def update(self, good: bool) -> None:
        before = len(self.session.record)
        more: dict[str, Any] = {} if good else {"config": {"x": 1}}
        receipt = self.run(self.session.update(SessionConfig(title="T", state={"k": before}, **more)))
        assert (receipt.ok, len(self.session.record)) == (good, before + good)

    @rule(begun=st.booleans())
    def abort(self, begun: bool) -> None:
        if begun and self.session.state in ("new", "idle"):
            self.plan[:] = [STEPS["both"]]
            self.run(self.call(self.session.stream, "go").aclose())
        waited = self.session.state in ("running", "input_required")
        outcome = self.run(self.session.abort())
        assert (outcome.status in ("aborted", "too_late")) == waited
        assert self.session.state in ("new", "idle")
        self.settle()

    @rule(data=st.data(), cancelled=st.booleans())
    def second_reader(self, data: st.DataObject, cancelled: bool) -> None:
        after = data.draw(st.integers(0, self.session.last_seq))
        expected = [event.seq for event in self.session.record if event.seq > after and not is_ephemeral(event)]

        async def reads() -> list[int]:
            reader = self.session.events(after, follow=cancelled)
            seen: list[int] = []
            has_all = anyio.Event()

            async def some() -> None:
                async with reader:
                    async for event in reader:
                        if not is_ephemeral(event):
                            seen.append(event.seq)
                        if len(seen) == len(expected):
                            has_all.set()

            task = asyncio.ensure_future(some())
            if cancelled:
                if expected:
                    await has_all.wait()
                for _ in range(TURNS):
                    await anyio.lowlevel.checkpoint()
                task.cancel()
            await asyncio.wait([task])
            return seen

        assert self.run(reads()) == expected

    @rule()
    def restart(self) -> None:
        waited = {item.request_id for item in self.session.pending} if self.session.state == "input_required" else set()
        volatile = set(self.session.executor.volatile(self.session)) if waited else set()
        self.end_life()
        self.start_life(lambda executor: executor.load("s", OPTIONS))
        assert {item.request_id for item in self.session.pending} == waited - volatile

    # -- what holds after every step ----------------------------------------------------------------------------------

    @invariant()
    def the_record_is_right(self) -> None:
        if not hasattr(self, "session"):
            return
        session, record = self.session, self.session.record
        verify(session)
        if session.state == "input_required":
            assert session.pending or session.turns.run is None or session.answers
        granted = sum(isinstance(event, ToolDecision) and event.decision == "granted" for event in record)
        assert len(self.ran) <= granted
        finals = Counter(
            event.turn_id for event in record if isinstance(event, StreamEnd) and event.reason != "input_required"
        )
        assert max(finals.values(), default=0) <= 1
        heard = Counter(event.message_id for event in record if isinstance(event, Message) and not event.partial)
        told = [one for end in record if isinstance(end, StreamEnd) for one in (end.data or {}).get("undelivered", ())]
        queued = set(session.machine.steers)
        assert all(heard[one] + told.count(one) + (one in queued) == 1 for one in self.steers)
        for model in self.models:
            assert_valid_history(model)


class DriveParked(Drive):
    parked = True


def test_an_adk_session_driven_at_random() -> None:
    drive(Drive)


def test_an_adk_session_with_parked_calls_driven_at_random() -> None:
    drive(DriveParked)


def drive(machine: type[Drive]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Drive.folder = Path(folder)
        run_state_machine_as_test(machine, settings=settings(max_examples=8, stateful_step_count=12))
