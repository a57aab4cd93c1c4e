"""What a scenario works with: executors that play scripts, the sessions that it opened, and a look at their records.

Not for: rules (``scenarios`` holds them) or verdicts (``runner.py``). Rules carried: none.
May import: ``agentsession.protocol``, anyio, ``engine``, ``harness``, ``script``.

Nothing here sleeps: every wait is for an event of the executor's, and the runner bounds them all.
"""

from __future__ import annotations

import dataclasses
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from agentsession.conformance.engine import Break, check, evidence_of
from agentsession.conformance.harness import CannotPlay, Harness, MortalStore, Play
from agentsession.conformance.hosting import standard_answer
from agentsession.conformance.logged import Logged
from agentsession.conformance.looking import ran_early, requests
from agentsession.conformance.results import Evidence, Result, Status
from agentsession.conformance.script import Script, Step
from agentsession.conformance.seen import Seen
from agentsession.conformance.stage import HarnessBroke, Stage
from agentsession.protocol import (
    AgentSession,
    AgentSessionError,
    Event,
    EventReader,
    EventStream,
    MemoryRecordStore,
    PendingRequest,
    ProtocolViolation,
    Receipt,
    StreamEnd,
)

__all__ = [
    "LEAVE_S",
    "SCENARIOS",
    "HarnessBroke",
    "NotApplicable",
    "Scenario",
    "Scene",
    "Stage",
    "scenario",
    "scene_of",
]

E = TypeVar("E", bound=Event)

_WRITES_TAKE: Final = 50
"""For how many turns of the loop something may be on its way to the record."""
_QUIET_ROUNDS: Final = 20
"""A producer that comes no further while its executor answers so many calls is taken for one that is held. Each answer
shows that the executor had its turn, here or in another process, however slow the machine is."""


class NotApplicable(Exception):
    """The executor refused, as the contract lets it, what the scenario is about: there is nothing to show."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """One course of events that shows whether rules hold."""

    name: str
    rules: tuple[str, ...]
    """The rules that hold if it runs to its end; what it fails to do counts against the first."""
    needs: frozenset[str]
    """The capabilities that it takes; without one of them it does not apply."""
    play: Callable[[Scene], Awaitable[None]]


SCENARIOS: dict[str, Scenario] = {}
"""All scenarios by name, in the order in which their modules define them; ``scenarios`` fills it."""


def scenario(*rules: str, needs: Collection[str] = ()) -> Callable[[Callable[[Scene], Awaitable[None]]], Scenario]:
    """Register a coroutine function over a :class:`Scene` as the scenario of these rules."""

    def register(play: Callable[[Scene], Awaitable[None]]) -> Scenario:
        name = play.__name__
        if name in SCENARIOS:
            raise ValueError(f"two scenarios are called {name}")
        made = SCENARIOS[name] = Scenario(name, rules, frozenset(needs), play)
        return made

    return register


class Scene:
    """One scenario while it runs."""

    def __init__(
        self, harness: Harness, files: ExitStack, group: TaskGroup, chance: random.Random, leave_s: float
    ) -> None:
        """``files``: removes what is made; ``group``: where the executors are held open."""
        self.harness = harness
        self._group = group
        self.leave_s = leave_s
        """How long leaving an executor may take."""
        self.random = chance
        """What a scenario leaves to chance; the run's seed repeats it."""
        self.secrets: list[str] = []
        """Texts that must appear in no event of this scenario."""
        self._files = files
        self._folder: Path | None = None
        self._stages: list[Stage] = []
        self._folders = 0
        self.seen = Seen()
        """What readers were given."""
        self.logged = Logged()
        """What executors in other processes wrote to their logs."""
        self._given_up: set[str] = set()

    # -- executors and sessions ---------------------------------------------------------------------------------------

    async def stage(self, *turns: Sequence[Step]) -> Stage:
        """Enter an executor that plays these turns.

        Raises:
            CannotPlay: the harness cannot play one of the steps.
            HarnessBroke: it could not make the executor.
        """
        script = Script.of(*turns)
        missing = script.needed - set(self.harness.plays)
        if missing:
            raise CannotPlay(f"the harness does not play: {', '.join(sorted(missing))}")
        folder = self._new_folder()
        is_in_memory = type(self.harness).store is Harness.store
        store = MemoryRecordStore() if is_in_memory else self.harness.store(folder())
        return await self.enter(Play(script, folder, MortalStore(store)))

    def _new_folder(self) -> Callable[[], Path]:
        """A folder that is made when it is asked for: some file systems take longer over it than a scenario does."""
        self._folders += 1
        name = f"stage{self._folders}"

        def make() -> Path:
            if self._folder is None:
                self._folder = Path(self._files.enter_context(tempfile.TemporaryDirectory()))
            (self._folder / name).mkdir(exist_ok=True)
            return self._folder / name

        return make

    async def enter(self, play: Play) -> Stage:
        """Enter an executor for a play."""
        try:
            executor = self.harness.executor(play)
        except CannotPlay:
            raise
        except Exception as error:
            raise HarnessBroke(f"{type(error).__name__}: {error}") from error
        stage = Stage(self, executor, play)
        await self._group.start(stage.hold)
        self._stages.append(stage)
        return stage

    def drop(self, stage: Stage) -> None:
        """Check no record of this stage, and do not leave it again: it was killed."""
        self._stages.remove(stage)
        for session in stage.sessions:
            self.seen.killed(session.session_id)

    async def opened(self, *turns: Sequence[Step], **options: Any) -> tuple[Stage, AgentSession]:
        """A stage and one session on it."""
        stage = await self.stage(*turns)
        return stage, await stage.open(stage.options(**options))

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, stream: EventStream) -> list[Event]:
        """All events of a stream; the last is its end."""
        events: list[Event] = []
        async with stream:
            async for event in stream:
                events.append(self.saw(event))
        ended = bool(events) and isinstance(events[-1], StreamEnd)
        self.expect(ended, "LIFE-08", "an iterator ended before stream_end", events)
        return events

    @asynccontextmanager
    async def reading(self, stream: EventStream) -> AsyncIterator[list[Event]]:
        """Read a stream to its end beside what the scenario does; when left, all its events are there."""
        events: list[Event] = []

        async def read() -> None:
            events.extend(await self.read(stream))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            yield events

    async def asked(
        self, session: AgentSession, count: int, rule: str = "LIFE-17", message: str = "go"
    ) -> list[PendingRequest]:
        """Start a turn and read it to where it waits for the host; what waits, which must be so many requests.

        What waits for an allow must not have run.
        """
        events = await self.read(session.stream(message))
        self.end(events, "input_required", rule)
        waiting = self.pending(session, count, "TOOL-06" if count > 1 else rule)
        await self._has_not_run(session, waiting)
        return waiting

    async def _has_not_run(self, session: AgentSession, waiting: Sequence[PendingRequest]) -> None:
        """No tool has run whose call waits for a grant or a yes."""
        stage = next(stage for stage in self._stages if session in stage.sessions)
        asked = [event for one in stage.sessions for event in requests(await self.record(one))]
        early = ran_early(waiting, asked, [run.name for run in stage.play.runs])
        if early is not None:
            raise Break(*early, evidence_of(waiting))

    async def turn(self, session: AgentSession, message: str = "go") -> list[Event]:
        """A whole turn, in which the suite's host answers all that it is asked; all its events."""
        events = await self.read(session.stream(message))
        while session.state == "input_required":
            events += await self.read(session.stream([standard_answer(request) for request in session.pending]))
        return events

    def saw(self, event: E) -> E:
        """Keep an event that a reader gave, for the check of the record."""
        self.seen.add(event)
        return event

    async def record(self, session: AgentSession) -> list[Event]:
        """The record of a session so far, which has its beginning in any case."""
        async with session.events() as reader:
            record = [event async for event in reader]
        self.expect(bool(record), "LIFE-02", "the record of an open session is empty")
        return record

    async def next(self, reader: EventReader) -> Event:
        """What a reader gives next."""
        try:
            return self.saw(await anext(reader))
        except StopAsyncIteration:
            raise Break("LIFE-08", "a reader ended where more had to come") from None

    async def settled(self, session: AgentSession) -> int:
        """The last seq, when what was on its way to the record has come there."""
        quiet = 0
        while quiet < _WRITES_TAKE:  # a store may write in a thread, for as long as it likes
            await checkpoint()
            quiet = 0 if any(stage.play.is_storing for stage in self._stages) else quiet + 1
        return session.last_seq

    async def unchanged(self, session: AgentSession, before: int, rule: str, what: str) -> None:
        """Nothing came into the record after the seq ``before``, nor is on its way there."""
        after = await self.settled(session)
        events = [event for event in await self.record(session) if event.seq > before]
        self.expect(not events and after == before, rule, f"{what} left events in the record", events)

    async def until(self, reader: EventReader, kind: type[E]) -> E:
        """Read up to the first event of a kind."""
        async for event in reader:
            self.saw(event)
            if isinstance(event, kind):
                return event
        raise Break("LIFE-08", f"the reader ended without a {kind.__name__}")

    async def holds_back(self, stage: Stage, session: AgentSession, mark: str) -> bool:
        """Whether the agent comes no further before it has come to ``mark``."""
        quiet = 0
        while not stage.play.has_reached(mark):
            if quiet == _QUIET_ROUNDS:
                return True
            before = session.last_seq
            async with session.events(before) as reader:
                moved = [event async for event in reader]
            after = await self.settled(session)
            quiet = 0 if moved or after > before else quiet + 1
        return False

    def end(self, events: Sequence[Event], reason: str, rule: str) -> StreamEnd:
        """The stream's end, which must have this reason."""
        end = events[-1] if events else None
        if not isinstance(end, StreamEnd):
            raise Break("LIFE-08", "an iterator ended before stream_end", evidence_of(events, remark="<- here"))
        self.expect(end.reason == reason, rule, f"the stream ended {end.reason}, not {reason}", events)
        return end

    def pending(self, session: AgentSession, count: int, rule: str) -> list[PendingRequest]:
        """What waits, which must be so many."""
        waiting = list(session.pending)
        self.expect(len(waiting) == count, rule, f"{len(waiting)} requests wait, not {count}", waiting)
        return waiting

    def receipts(self, got: Sequence[Receipt], *statuses: str, rule: str, what: str) -> None:
        """What became of answers, which must be this: a receipt for each, in their order."""
        found = [receipt.status for receipt in got]
        self.expect(found == list(statuses), rule, f"{what} was {', '.join(found)}, not {', '.join(statuses)}")

    def gave_up(self, session: AgentSession) -> None:
        """The session was closed as it stood, as the contract lets it: its record may end inside a stream."""
        self._given_up.add(session.session_id)

    # -- judging ------------------------------------------------------------------------------------------------------

    def expect(self, holds: bool, rule: str, message: str, events: Sequence[Event] = (), remark: str = "") -> None:
        """Raises :class:`Break` of ``rule`` unless it holds; ``events`` are what came before, for the report; left out
        they are what was seen last."""
        if not holds:
            raise Break(rule, message, evidence_of(events or self.seen.latest, remark=remark or "<- here"))

    async def refused(
        self, call: Callable[[], Awaitable[object]], error: type[AgentSessionError], rule: str, what: str
    ) -> AgentSessionError:
        """The error that a call must raise."""
        try:
            await call()
        except error as raised:
            return raised
        except AgentSessionError as raised:
            raise Break(
                rule, f"{what} raised {type(raised).__name__}, not {error.__name__}", [Evidence(str(raised))]
            ) from raised
        raise Break(rule, f"{what} raised nothing", [Evidence(f"host -> {what}", is_break=True)])

    def ran(self, stage: Stage, *wanted: tuple[str, dict[str, Any]], rule: str, twice: str = "HITL-03") -> None:
        """The bodies of own tools that have begun, which must be these in any order.

        ``twice``: the rule that is broken where these have run, but one of them more often.
        """
        got = sorted(((run.name, dict(run.args)) for run in stage.play.runs), key=repr)
        expected = sorted(wanted, key=repr)
        more = [run for run in wanted if got.count(run) > expected.count(run)]
        self.expect(not more, twice, f"{more[:1]} ran {got.count(more[0]) if more else 0} times", remark="")
        self.expect(got == expected, rule, f"the tools that ran are {got}, not {expected}")

    # -- the end ------------------------------------------------------------------------------------------------------

    async def finish(self, *, complete: bool = True) -> list[Result]:
        """What the records of all sessions show; they may end anywhere unless the scenario ran to its end."""
        found: list[Result] = []
        for stage in self._stages:
            # Of a session that was closed and loaded the last one counts.
            for session in {session.session_id: session for session in stage.sessions}.values():
                found += await self._checked(stage, session, complete)
        return found

    async def _checked(self, stage: Stage, session: AgentSession, complete: bool) -> list[Result]:
        try:
            stored = await self.record(session)
        except ProtocolViolation:  # what a remote executor's events have broken closed the session
            raise
        except AgentSessionError:
            if session.state != "closed":
                raise
            stored = None  # a closed session need not say more than it did
        try:
            if stored is None:
                record, complete = self.seen.merged(session.session_id, []), False
            else:
                record = self.seen.with_record(session.session_id, stored)
                complete = complete and session.state != "running" and session.session_id not in self._given_up
        except Break as broken:
            return [Result(broken.rule, Status.FAIL, broken.message, broken.evidence)]
        if not record or record[0].seq != 1:
            return []
        kinds = stage.kinds(session)
        return check(record, session.descriptor, secrets=self.secrets, host_kinds=kinds, complete=complete)

    async def aclose(self) -> None:
        """Leave every executor. Raises :class:`Break` of LIFE-13 where one could not be left, or went on."""
        broken: Break | None = None
        with anyio.CancelScope(shield=True):
            while self._stages:
                try:
                    await self._stages.pop().leave()
                except Break as error:
                    broken = broken or error
        if broken is not None:
            raise broken


LEAVE_S: Final = 10.0
"""An abort that times out has taken five seconds of it."""


@asynccontextmanager
async def scene_of(
    harness: Harness, chance: random.Random | None = None, *, leave_s: float = LEAVE_S
) -> AsyncIterator[Scene]:
    """A scene with files of its own; everything is left and removed at the end, each executor within ``leave_s``."""
    with ExitStack() as files:
        async with anyio.create_task_group() as group:
            scene = Scene(harness, files, group, chance or random.Random(0), leave_s)
            try:
                yield scene
            finally:
                await scene.aclose()
