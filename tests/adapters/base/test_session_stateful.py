"""A whole session driven at random: turns, answers in every order, steers, aborts, readers, kills, loads, forks.

After every step the fold of the record is the live state, what is shown is stored, and nothing was lost, asked, run or
numbered twice. Every call runs inside one loop, the executor is held open by one task, readers are closed explicitly.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
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
from tests.adapters.sessions import MortalStore

from agentsession.adapters.base import BaseSession
from agentsession.adapters.base._readers import LogReader
from agentsession.adapters.base._snapshots import known_of, place_of, read_chain
from agentsession.adapters.scripted import (
    Ask,
    Call,
    Calls,
    Count,
    Delay,
    Deltas,
    End,
    Fail,
    Parallel,
    Raise,
    Refuse,
    Say,
    ScriptedExecutor,
    Step,
    Think,
)
from agentsession.protocol import (
    Answer,
    Event,
    HostCapabilities,
    MemoryRecordStore,
    NothingToContinue,
    OpenOptions,
    PendingRequest,
    RecordKey,
    RecordStore,
    SessionConfig,
    SessionMachine,
    SessionUpdate,
    StoredSnapshot,
    StreamActive,
    StreamEnd,
    ToolDecision,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    accept,
    cancel,
    decline,
    deny,
    grant,
    is_ephemeral,
    result,
    without_rewound,
)

pytestmark = [pytest.mark.rule("PER-03"), pytest.mark.rule("PER-02")]

T = TypeVar("T")

_SESSION = "s"
LIMIT_S = 60
"""Bounds a hang; SQLite on a busy disk may take seconds."""
_TURNS = 60
"""How many turns of the loop are enough for everything that can happen without the store to happen."""


def _say_all(memory: Any) -> str:
    return " ".join(answer.kind for answer in memory.answers.values()) or "nothing"


class World:
    """What the steps of a script touch: tools that were run, and a gate that a step may wait at."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()
        self.calls = 0
        self.gate = asyncio.Event()

    def run(self, args: dict[str, Any]) -> dict[str, Any]:
        self.runs[args["n"]] += 1
        if args["fails"]:
            raise ValueError("a secret")
        return {"n": args["n"]}

    def call(self, needs: str, fails: bool) -> Call:
        self.calls += 1
        return Call("tool", {"n": self.calls, "fails": fails}, needs=needs, run=self.run)

    async def pass_gate(self) -> None:
        await self.gate.wait()


Plan = Callable[[World], Step]
"""A step that is made when its world is known."""


def _calls(kinds: Sequence[tuple[str, bool]]) -> Plan:
    return lambda world: Calls(*(world.call(needs, fails) for needs, fails in kinds))


_needs = st.tuples(st.sampled_from(["result", "grant", "none"]), st.booleans())
_schema: dict[str, Any] = {"type": "object", "properties": {"pin": {"writeOnly": True}}}
_asks: list[Plan] = [
    lambda world: Ask("Who?"),
    lambda world: Ask("Pin?", schema=_schema),
    lambda world: Ask("Log in", kind="auth_required"),
    lambda world: Ask("Hologram?", kind="hologram"),
]
_quiet: list[Plan] = [
    lambda world: Say(_say_all),
    lambda world: Deltas(["one ", "", "two"]),
    lambda world: Think("hm"),
    lambda world: Count(input_tokens=1),
    lambda world: Fail("slow"),
]
_ends: list[Plan] = [
    lambda world: Fail("gone", fatal=True),
    lambda world: Raise(ValueError("a secret")),
    lambda world: Refuse(),
    lambda world: End("max_tokens"),
]
_waits: list[Plan] = [lambda world: Delay(until=world.pass_gate)]

flat = st.one_of(
    st.sampled_from(_quiet), st.lists(_needs, min_size=1, max_size=3).map(_calls), st.sampled_from(_asks + _waits)
)


def _parallel(children: list[list[Plan]]) -> Plan:
    def made(world: World) -> Step:
        return Parallel(**{f"kid{index}": [plan(world) for plan in plans] for index, plans in enumerate(children)})

    return made


step = st.one_of(
    flat,
    flat,
    st.lists(st.lists(st.one_of(flat, st.sampled_from(_ends[:2])), max_size=3), min_size=1, max_size=3).map(_parallel),
    st.sampled_from(_ends),
)
turn = st.lists(step, max_size=5)


class Reading:
    """A reader and what it has seen."""

    def __init__(self, reader: LogReader, after: int) -> None:
        self.reader = reader
        self.after = after
        self.seen: list[Event] = []


class Drive(RuleBasedStateMachine):
    """One session over several lives of its process."""

    reenter = False
    mortal: type[MortalStore] = MortalStore

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World()
        self.script: list[list[Step]] = []
        self.inner: RecordStore = self.make_store()
        self.readings: list[Reading] = []
        self.acknowledged: dict[int, Event] = {}
        """Every durable event that any reader of any life has seen, by seq."""
        self.used: dict[int, str] = {}
        """The event id of every seq that was ever seen, ephemeral ones too."""
        self.steers: set[str] = set()
        self.forks = 0

    def make_store(self) -> RecordStore:
        return MemoryRecordStore()

    # -- running in the loop ------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, LIMIT_S))

    def call(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        async def made() -> T:
            return work(*args, **kwargs)

        return self.run(made())

    def settle(self) -> None:
        """Let everything happen that can: until what was recorded is stored, and nothing is recorded any more.

        A store on disk answers from a thread, so turns of the loop are not enough. Nothing here waits for a clock.
        """

        async def until_it_stands_still() -> None:
            last = -1
            while last != self.session.recorder.seq:
                last = self.session.recorder.seq
                await turns()
                if self.session.state != "closed":
                    await self.session.stored()
                    await turns()

        async def turns() -> None:
            for _ in range(_TURNS):
                await anyio.lowlevel.checkpoint()

        self.run(until_it_stands_still())

    def start_life(self, begin: Callable[[ScriptedExecutor], Awaitable[BaseSession]]) -> None:
        self.store = self.mortal(self.inner)
        self.leave = asyncio.Event()
        ready: asyncio.Future[BaseSession] = self.loop.create_future()
        executor = ScriptedExecutor(
            self.script, reenter=self.reenter, store=self.store, window=8, grace_s=5, kept_events=None, snapshot_every=1
        )

        async def life() -> None:
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
        self.executor = executor

    def end_life(self) -> None:
        self.close_readers()
        self.world.gate.set()
        self.leave.set()
        self.run(asyncio.wait_for(self.life, LIMIT_S))
        self.world.gate = asyncio.Event()

    def close_readers(self) -> None:
        for reading in self.readings:
            self.run(reading.reader.aclose())
        self.readings = []

    @property
    def options(self) -> OpenOptions:
        kinds = ["clarification", "auth_required"]
        return OpenOptions(session_id=_SESSION, host=HostCapabilities(elicitation_kinds=kinds))

    @initialize()
    def open(self) -> None:
        self.start_life(lambda executor: executor.open(self.options))

    def teardown(self) -> None:
        try:
            if hasattr(self, "life"):
                self.end_life()
                assert self.session.state == "closed"
                assert self.session.readers == 0
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    # -- turns --------------------------------------------------------------------------------------------------------

    def follow(self, reader: LogReader, after: int) -> None:
        self.readings.append(Reading(reader, after))

    @rule(plans=turn, read=st.booleans())
    def say(self, plans: list[Plan], read: bool) -> None:
        session, before = self.session, list(self.session.record)
        if session.state == "running":
            with pytest.raises(StreamActive):
                self.call(session.stream, "again")
            assert list(session.record) == before
            return
        self.script[session.turn_number :] = [[plan(self.world) for plan in plans]]
        self.executor.script = self.script
        self.world.gate.clear()
        waited = session.state == "input_required"
        after = session.recorder.seq
        stream = self.call(session.stream, "go")
        assert stream.stream_id not in {event.stream_id for event in before}
        if waited:
            settled = [event for event in session.record if event.seq > after and event.stream_id != stream.stream_id]
            assert isinstance(settled[-1], StreamEnd)
            assert settled[-1].reason == "aborted"
        if read:
            self.follow(stream, stream.cursor)
        else:
            self.run(stream.aclose())
        self.settle()

    @rule()
    def go_on(self) -> None:
        session, before = self.session, list(self.session.record)
        try:
            stream = self.call(session.stream)
        except (StreamActive, NothingToContinue):
            assert list(session.record) == before
            assert session.state != "input_required" or session.pending
        else:
            self.run(stream.aclose())
        self.settle()

    @rule()
    def open_the_gate(self) -> None:
        self.world.gate.set()
        self.settle()

    # -- answers ------------------------------------------------------------------------------------------------------

    def answer_to(self, request: PendingRequest, choice: int) -> Answer:
        if isinstance(request, ToolRequest):
            if request.needs == "grant" and choice % 4 < 2:
                return grant(request.request_id)
            if choice % 4 == 2:
                return deny(request.request_id)
            return result(request.request_id, choice, is_error=choice % 2 == 1)
        if choice % 4 == 2:
            return decline(request.request_id)
        if choice % 4 == 3:
            return cancel(request.request_id)
        return accept(request.request_id, {"pin": "0000"})

    @precondition(lambda self: self.session.pending)
    @rule(data=st.data(), through_stream=st.booleans())
    def answer_all(self, data: st.DataObject, through_stream: bool) -> None:
        session = self.session
        requests = data.draw(st.permutations(session.pending))
        choices = data.draw(st.lists(st.integers(0, 3), min_size=len(requests), max_size=len(requests)))
        answers = [self.answer_to(request, choice) for request, choice in zip(requests, choices, strict=True)]
        if through_stream and session.state == "input_required":
            stream = self.call(session.stream, answers)
            assert all(receipt.ok for receipt in stream.receipts)
            self.run(stream.aclose())
        else:
            receipts = self.run(session.respond(*answers))
            assert all(receipt.ok for receipt in receipts)
            asked = {answer.request_id for answer in answers}
            assert not asked & {request.request_id for request in session.pending}
        again = self.run(session.respond(*answers))
        assert {receipt.status for receipt in again} == {"stale"}
        self.settle()

    @precondition(lambda self: self.session.pending)
    @rule(data=st.data(), choice=st.integers(0, 3), through_stream=st.booleans())
    def answer_one(self, data: st.DataObject, choice: int, through_stream: bool) -> None:
        session = self.session
        request = data.draw(st.sampled_from(session.pending))
        answer = self.answer_to(request, choice)
        others = {item.request_id for item in session.pending} - {request.request_id}
        if through_stream and session.state == "input_required":
            stream = self.call(session.stream, answer)
            self.run(stream.aclose())
        else:
            waits = session.state == "input_required"
            (receipt,) = self.run(session.respond(answer))
            assert receipt.ok
            if waits:
                assert session.state == "input_required"
                assert {item.request_id for item in session.pending} == others
        (again,) = self.run(session.respond(answer))
        assert again.status == "stale"
        self.settle()

    @rule(data=st.data())
    def answer_wrongly(self, data: st.DataObject) -> None:
        session = self.session
        before, pending = len(session.record), list(session.pending)
        request_id = data.draw(st.sampled_from([*(item.request_id for item in pending), "nothing"]))
        request = next((item for item in pending if item.request_id == request_id), None)
        wrong: Answer = accept(request_id) if isinstance(request, ToolRequest) else grant(request_id)
        (receipt,) = self.run(session.respond(wrong))
        assert receipt.status == ("not_found" if request is None else "invalid")
        assert len(session.record) == before
        assert session.pending == pending

    @precondition(lambda self: any(isinstance(item, ToolRequest) for item in self.session.pending))
    @rule()
    def progress(self) -> None:
        for item in self.session.pending:
            if isinstance(item, ToolRequest):
                (receipt,) = self.run(self.session.respond(ToolProgress(request_id=item.request_id, progress=0.5)))
                assert receipt.ok == (item.needs == "result")

    # -- control ------------------------------------------------------------------------------------------------------

    @rule()
    def steer(self) -> None:
        state = self.session.state  # before: the receipt waits for the store, and the turn may end meanwhile
        receipt = self.run(self.session.steer("mind"))
        assert receipt.ok == (state in ("running", "input_required"))
        if receipt.request_id is not None:
            assert receipt.request_id not in self.steers
            self.steers.add(receipt.request_id)
        self.settle()

    @rule(good=st.booleans())
    def update(self, good: bool) -> None:
        before = len(self.session.record)
        config = SessionConfig(title="T") if good else SessionConfig(title="T", model="m")
        receipt = self.run(self.session.update(config))
        assert receipt.ok == good
        assert len(self.session.record) == before + good

    @rule(how=st.sampled_from(["once", "twice", "gate", "answer"]))
    def abort(self, how: str) -> None:
        session, state = self.session, self.session.state
        pending = list(session.pending)

        async def aborting() -> list[str]:
            aborts = [asyncio.ensure_future(session.abort()) for _ in range(2 if how == "twice" else 1)]
            if how == "gate":
                self.world.gate.set()
            if how == "answer" and pending:
                await anyio.lowlevel.checkpoint()  # one turn of the loop: the abort has begun
                (receipt,) = await session.respond(self.answer_to(pending[0], 0))
                assert receipt.status == "stale"
            return [(await each).status for each in aborts]

        outcomes = self.run(aborting())
        assert session.state in ("new", "idle")
        if state in ("running", "input_required"):
            assert outcomes[0] == "aborted"
            assert self.last_end().reason == "aborted"
        else:
            assert outcomes[0] == "idle"
        self.settle()

    def last_end(self) -> StreamEnd:
        return next(event for event in reversed(self.session.record) if isinstance(event, StreamEnd))

    # -- reading ------------------------------------------------------------------------------------------------------

    @rule(data=st.data(), entered=st.booleans())
    def attach(self, data: st.DataObject, entered: bool) -> None:
        after = data.draw(st.integers(0, self.session.last_seq))
        reader = self.call(self.session.events, after, True)
        if entered:
            self.run(reader.__aenter__())
        self.follow(reader, after)

    @precondition(lambda self: self.readings)
    @rule(data=st.data(), count=st.integers(1, 30))
    def read(self, data: st.DataObject, count: int) -> None:
        reading = data.draw(st.sampled_from(self.readings))

        async def some() -> None:
            for _ in range(count):
                try:
                    reading.seen.append(await asyncio.wait_for(anext(reading.reader), 0.001))
                except TimeoutError:
                    return
                except StopAsyncIteration:
                    self.readings.remove(reading)
                    return

        self.run(some())
        self.see(reading.seen)
        seen, cursor = reading.seen, reading.reader.cursor
        assert [event.seq for event in seen] == sorted({event.seq for event in seen})
        if type(reading.reader) is LogReader:
            expected = [event for event in self.session.record if reading.after < event.seq <= cursor]
            assert [event for event in seen if not is_ephemeral(event)] == [
                event for event in expected if not is_ephemeral(event)
            ]
        self.settle()

    @precondition(lambda self: self.readings)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        reading = data.draw(st.sampled_from(self.readings))
        self.readings.remove(reading)
        self.run(reading.reader.aclose())
        self.settle()

    def see(self, events: Sequence[Event]) -> None:
        for event in events:
            assert self.used.setdefault(event.seq, event.id) == event.id
            if not is_ephemeral(event):
                self.acknowledged[event.seq] = event

    # -- lives --------------------------------------------------------------------------------------------------------

    @rule(kill=st.booleans(), settled=st.booleans())
    def restart(self, kill: bool, settled: bool) -> None:
        session = self.session
        if settled:
            self.settle()
        self.see([event for event in session.record if event.seq <= session.last_seq])
        state = session.state
        waited = {item.request_id for item in session.pending} | set(session.answers.secrets)
        volatile = set(self.executor.volatile(session)) if state == "input_required" else set()
        highest = session.recorder.seq
        if kill:
            self.run(self.store.kill())
        self.end_life()
        self.start_life(lambda executor: executor.load(_SESSION, self.options))
        session = self.session
        by_seq = {event.seq: event for event in session.record}
        assert all(by_seq[seq] == event for seq, event in self.acknowledged.items())
        assert session.recorder.seq >= (0 if kill else highest)
        assert session.recorder.seq >= max(self.used, default=0)
        if state == "input_required" and waited - volatile:
            assert session.state == "input_required"
            assert {item.request_id for item in session.pending} == waited - volatile
        else:
            assert session.state in ("new", "idle", "input_required")
        self.settle()

    @precondition(lambda self: self.session.state in ("idle", "input_required"))
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        ends = [event.seq for event in self.session.record if isinstance(event, StreamEnd)]
        at = data.draw(st.sampled_from(ends))
        self.forks += 1

        async def forking() -> None:
            fork = await self.executor.fork(_SESSION, at, OpenOptions(session_id=f"fork{self.forks}"))
            assert fork.state == "idle"
            assert fork.pending == []
            SessionMachine.fold(fork.record)
            await fork.aclose()

        self.run(forking())

    @precondition(lambda self: self.session.state in ("idle", "input_required"))
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        record = self.session.record
        machine, points = SessionMachine(), []
        for event in record:
            machine.feed(event)
            if machine.state in ("new", "idle") and not is_ephemeral(event):
                points.append(event.seq)
        counting = {event.seq for event in without_rewound(record)}
        to = data.draw(st.sampled_from([seq for seq in points if seq in counting]))
        before = _durable(record)  # what is settled first ends a stream, and with it the deltas that were kept for one
        self.run(self.executor.rewind(_SESSION, to))
        assert self.session.state in ("new", "idle")
        after = _durable(self.session.record)
        assert after[: len(before)] == before
        assert [event.seq for event in without_rewound(after)] == [
            event.seq for event in without_rewound(before) if event.seq <= to
        ]

    # -- what holds after every step ----------------------------------------------------------------------------------

    @invariant()
    def the_fold_of_the_record_is_the_live_state(self) -> None:
        if not hasattr(self, "session"):
            return
        folded = SessionMachine.fold(self.session.record)
        assert folded.snapshot(ephemeral=False) == self.session.machine.snapshot(ephemeral=False)
        assert folded.state == self.session.state

    @invariant()
    def what_is_shown_is_stored(self) -> None:
        if not hasattr(self, "session"):
            return
        log = self.session.recorder.log
        shown = [event for event in log.events[: log.visible] if not is_ephemeral(event)]
        stored = self.run(self.inner.read(self.session.recorder.key))
        assert stored[: len(shown)] == shown
        assert [event.seq for event in stored] == sorted({event.seq for event in stored})

    @invariant()
    def the_rules_that_no_fold_sees_hold(self) -> None:
        if not hasattr(self, "session"):
            return
        session, record = self.session, self.session.record
        assert max(self.world.runs.values(), default=0) <= 1
        granted = {
            event.request_id for event in record if isinstance(event, ToolDecision) and event.decision == "granted"
        }
        for event in record:
            if isinstance(event, ToolRequest) and event.needs == "grant" and self.world.runs[(event.args or {})["n"]]:
                assert event.request_id in granted
        finals = Counter(
            event.turn_id for event in record if isinstance(event, StreamEnd) and event.reason != "input_required"
        )
        assert max(finals.values(), default=0) <= 1
        told = {
            item for end in record if isinstance(end, StreamEnd) for item in (end.data or {}).get("undelivered", ())
        }
        injected = Counter(event.message_id for event in record if event.type == "message" and not is_ephemeral(event))  # type: ignore[attr-defined]
        assert all(injected[steer] + (steer in told) <= 1 for steer in self.steers)
        for event in record:
            assert "secret" not in event.to_wire_json()
        run = session.turns.run
        if session.state == "running" and run is not None and not run.aborting:
            assert run.busy > 0 or not session.pending, "it should have paused"
        statuses = {event.status for event in record if isinstance(event, ToolResponse)}
        assert statuses <= {"completed", "failed", "denied", "cancelled", "unknown"}


def _durable(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if not is_ephemeral(event)]


class DriveKeptOpen(Drive):
    reenter = False


class DriveReentered(Drive):
    reenter = True


class ProvedSnapshots(MortalStore):
    """Holds every snapshot against the record that it stands for. A load finds none, and reads the record whole."""

    def __init__(self, inner: RecordStore | None = None, **more: Any) -> None:
        super().__init__(inner, **more)
        self.kept: dict[RecordKey, list[StoredSnapshot]] = {}
        self.proved = 0
        self.wrong: AssertionError | None = None

    async def put_snapshot(self, key: RecordKey, snapshot: StoredSnapshot) -> None:
        """What is wrong is kept: a session does without a snapshot that its store did not take."""
        self._alive()
        try:
            await self._prove(key, snapshot)
        except AssertionError as error:
            self.wrong = error
            raise

    async def _prove(self, key: RecordKey, snapshot: StoredSnapshot) -> None:
        kept = [item for item in self.kept.get(key, []) if item.seq <= snapshot.after] + [snapshot]
        self.kept[key] = kept
        links = read_chain(kept, lambda link: True)
        assert [link.seq for link in links] == [item.seq for item in kept]
        record = [event for event in await self.inner.read(key) if event.seq <= snapshot.seq]
        assert links[-1].place == place_of(record[-1])
        assert links[-1].events == len(record)
        restored = SessionMachine.restore(links[-1].machine, earlier=[link.machine for link in links[:-1]])
        assert restored.snapshot(ephemeral=False) == SessionMachine.fold(record).snapshot(ephemeral=False)
        known = known_of(links)
        state: dict[str, Any] = {}
        for event in without_rewound(record):
            if isinstance(event, SessionUpdate):
                state.update(event.state_delta or {})
        assert known.state_values == state
        ends = [event for event in record if isinstance(event, StreamEnd)]
        assert known.ends == {event.stream_id: (event.turn_id, event.seq) for event in ends}
        self.proved += 1

    async def snapshots(self, key: RecordKey) -> list[StoredSnapshot]:
        return []


def _drive(machine: type[Drive], examples: int) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=30))


@pytest.mark.parametrize("machine", [DriveKeptOpen, DriveReentered])
def test_a_session_driven_at_random(machine: type[Drive]) -> None:
    _drive(machine, max(40, settings().max_examples // 2))


@pytest.mark.parametrize("machine", [DriveKeptOpen, DriveReentered])
def test_every_snapshot_of_a_session_driven_at_random_is_what_its_record_tells(machine: type[Drive]) -> None:
    proved = Counter[str]()

    class Proved(machine):  # type: ignore[misc, valid-type]  # a class that is not known before
        mortal = ProvedSnapshots

        @invariant()
        def no_snapshot_was_wrong(self) -> None:
            store = self.store
            assert isinstance(store, ProvedSnapshots)
            proved["snapshots"] += store.proved
            if store.wrong is not None:
                raise store.wrong

    _drive(Proved, 40)
    assert proved["snapshots"] > 100


def test_a_session_driven_at_random_over_sqlite() -> None:
    from agentsession.host import SqliteRecordStore

    with tempfile.TemporaryDirectory() as folder:
        made: list[SqliteRecordStore] = []

        class DriveSqlite(Drive):
            reenter = True

            def make_store(self) -> RecordStore:
                made.append(SqliteRecordStore(Path(folder) / f"{len(made)}.db"))
                return made[-1]

        try:
            _drive(DriveSqlite, 8)
        finally:
            for store in made:
                anyio.run(store.aclose)
