"""One session that is driven step by step: what a host does with it, and what each of these must do.

Not for: choosing the steps (``machine.py``), or what must hold after each (``checks.py``). Rules carried: LIFE-06,
LIFE-07, LIFE-13, ORD-04, ORD-07, TOOL-07 to TOOL-10, TOOL-14, HITL-06, CTL-01 to CTL-04, CTL-06, CTL-07.
May import: ``agentsession.protocol``, anyio, the modules of the suite.

A step is over when the agent can come no further without its host: its stream has ended, or it is at a mark of the
script that was not released. So what follows from a step is known when the next one is chosen, and a seed gives the
same run again.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, TypeVar

import anyio
from anyio.abc import TaskGroup

from agentsession.conformance.driven.checks import (
    Numbers,
    names_of,
    record_holds,
    stands_where_it_must,
    told,
    tools_ran_as_allowed,
)
from agentsession.conformance.driven.course import Course
from agentsession.conformance.driven.plans import SECRET, Plan
from agentsession.conformance.driven.readings import Reading
from agentsession.conformance.engine import Break, evidence_of
from agentsession.conformance.harness import ToolRun
from agentsession.conformance.looking import of
from agentsession.conformance.scene import Scene, Stage
from agentsession.conformance.script import Call
from agentsession.protocol import (
    AgentSession,
    AgentSessionError,
    Answer,
    ElicitationResponse,
    Event,
    EventStream,
    NothingToContinue,
    OpenOptions,
    PendingRequest,
    ProtocolViolation,
    StreamActive,
    ToolRequest,
    ToolResponse,
    Unimplemented,
)

__all__ = ["Driven", "Reads", "Way"]

T = TypeVar("T")

Reads = Literal["to its end", "later", "not at all"]
"""How a stream is read: beside all else, bit by bit, or left at once."""

Way = Literal["respond", "one by one", "stream"]
"""How answers are given: in one call, in a call for each, or with the stream that goes on."""

_NEWS_S: Final = 0.05
"""How long news of the agent are waited for at a time: a reader that is wrong may give none."""


class Driven:
    """A session over all its lives. Each public coroutine is a step of its host, and raises ``Break``."""

    stage: Stage
    session: AgentSession

    def __init__(self, scene: Scene, group: TaskGroup, plan: Plan) -> None:
        self.scene = scene
        self.plan = plan
        self.course = Course(plan)
        self.lines: list[str] = []
        """What was done so far, in words."""
        self.applied: list[Answer] = []
        """The answers that were taken."""
        self.steers: dict[str, str] = {}
        """The steers that were queued, each with its turn."""
        self.said = 0
        """How many messages started a turn."""
        self.turn_id = ""
        self.before: str | None = None
        """How the turn before the last one ended."""
        self.in_this_turn: set[str] = set()
        """The requests that have waited in the turn."""
        self.was_killed = False
        self.was_loaded = False
        self.readings: list[Reading] = []
        self.numbers = Numbers()
        self._group = group
        self._earlier: list[ToolRun] = []
        self._streams: set[str] = set()
        self._reached: set[str] = set()
        self._news = anyio.Event()
        self._suspect: str | None = None
        self._checked: tuple[int, str] = (0, "")
        scene.secrets.append(SECRET)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def can(self) -> frozenset[str]:
        """The capabilities that the executor declares."""
        return frozenset(self.stage.executor.descriptor.capabilities)

    @property
    def runs(self) -> list[ToolRun]:
        """The bodies of own tools that have begun, in all lives."""
        return [*self._earlier, *self.stage.play.runs]

    @property
    def held(self) -> set[str]:
        """The marks at which the agent waits now."""
        return self._reached & set(self.plan.marks(self.course.turn)) - self.course.released

    @property
    def is_natural(self) -> bool:
        """Whether the last turn ended by itself, as its script has it."""
        return self.course.reason in ("completed", "refusal", "max_tokens")

    def has_passed(self, call: Call) -> bool:
        """Whether the agent has passed a call of this turn."""
        return (self.course.is_open or self.is_natural) and call in self.course.passed()

    def blame(self, rule: str) -> str:
        """The rule that is broken where something changed that this step had to leave alone, or had to bring about."""
        return self._suspect or rule

    def options(self) -> OpenOptions:
        """How the session is opened, and loaded."""
        kinds = None if self.plan.kinds is None else list(self.plan.kinds)
        return self.stage.options(kinds=kinds, host_tool_execution=self.plan.is_gated)

    async def record(self) -> list[Event]:
        return await self.scene.record(self.session)

    # -- one step -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the session."""
        self.lines.append("open()")
        self.stage = await self.scene.stage(*self.plan.script.turns)
        self.session = await self.stage.open(self.options())
        self.watch()
        await self._after()
        self.lines.clear()  # that it was opened goes without saying

    def watch(self) -> None:
        """Follow the session from its beginning, without holding it, and hear of the marks that its agent comes to."""
        self.follow(0, "who follows from the start", enter=False)
        for mark in {mark for turn in range(1, len(self.plan.turns) + 1) for mark in self.plan.marks(turn)}:
            self._group.start_soon(self._mark, self.stage, mark)

    def follow(self, after: int, name: str, *, enter: bool) -> Reading:
        """Another reader from a cursor on."""
        reading = Reading(self.session.events(after, follow=True), name, after=after)
        self.start(reading, enter=enter)
        self.readings.append(reading)
        return reading

    def start(self, reading: Reading, *, enter: bool) -> None:
        """Let a reader read on by itself."""
        reading.start(self._group, self.tell, enter=enter)

    async def _mark(self, stage: Stage, mark: str) -> None:
        if mark in self.course.released:
            stage.release(mark)
        await stage.play.reached(mark)
        if stage is self.stage:
            self._reached.add(mark)
            self.tell()

    def tell(self) -> None:
        """Something is new."""
        self._news.set()
        self._news = anyio.Event()

    async def step(self, what: str, work: Awaitable[str], *, suspect: str | None = None) -> None:
        """Do one thing, wait until all that follows has happened, and judge."""
        self.lines.append(what)
        self._suspect = suspect
        got = await work
        await self._after()
        self.lines[-1] = f"{what}: {got or self.where()}"

    async def _after(self) -> None:
        await self._rest()
        await self._judge()
        self._suspect = None

    def where(self) -> str:
        """Where the session stands, in words."""
        state = self.session.state
        if state == "running":
            return f"running, held at {', '.join(sorted(self.held)) or 'nothing'}"
        if state == "idle" and self.course.turn:
            return f"idle, the turn ended {self.course.reason}"
        waits = sorted(self.course.rest().waits)
        return f"{state}, {' and '.join(waits) or 'nothing'} wait{'s' if len(waits) < 2 else ''}" if waits else state

    async def _rest(self) -> None:
        """Wait until the agent can come no further."""
        while True:
            news = self._news
            await self.scene.settled(self.session)
            if self.session.state != "running" or self.held:
                return
            with anyio.move_on_after(_NEWS_S):
                await news.wait()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds."""
        while not holds():
            news = self._news
            with anyio.move_on_after(_NEWS_S):
                await news.wait()

    def new_life(self, stage: Stage) -> None:
        """The session goes on in another executor, or in the same one after it was closed there."""
        if stage is not self.stage:
            self._earlier += self.stage.play.runs
        self.stage = stage
        self.was_loaded = True
        self.readings.clear()
        self._reached.clear()
        self._checked = (0, "")

    async def _judge(self) -> None:
        state = self.session.state
        record = await self.record()
        for reading in self.readings:
            await self.until(functools.partial(_has_all, reading, record))
        for reading in self.readings:
            for event in reading.unheard():
                self.numbers.add(event)
                self.scene.saw(event)
        rest = self.course.settle()
        if self._checked != (record[-1].seq, state):
            for event in record:
                self.numbers.add(event)
            record_holds(self, record, state)
            self._checked = (record[-1].seq, state)
        for reading in self.readings:
            reading.judge(record)
        stands_where_it_must(self, record, state, rest)
        self.in_this_turn |= set(names_of(self.session.pending, record))
        tools_ran_as_allowed(self, record)
        told(self, record)

    def stuck(self) -> Break:
        """What is wrong where nothing more happens."""
        latest = self.scene.seen.latest
        late = next((each for each in self.readings if each.reads_on and not each.is_done), None)
        if late is not None and self.session.state != "running":
            said = f"nothing more happened, and {late.name} was not given all that is in the record"
            return Break("ORD-05", said, evidence_of(late.given[-5:]))
        return Break(self.blame("LIFE-05"), "nothing more happened, and the stream has no end", evidence_of(latest))

    # -- turns --------------------------------------------------------------------------------------------------------

    async def say(self, reads: Reads) -> None:
        """Start a turn with a message, wherever the session is."""
        await self.step(f'stream("message {self.said + 1}"), read {reads}', self.begin(reads))

    async def begin(self, reads: Reads) -> str:
        """What :meth:`say` does before the agent has come as far as it can."""
        if self.session.state == "running":
            await self._refused_stream(f"message {self.said + 1}", StreamActive, "LIFE-07")
            return "StreamActive, and nothing changes"
        waiting, before = list(self.session.pending), self.session.last_seq
        waits = self.session.state == "input_required"
        self.before = "aborted" if waits else self.course.reason
        stream = self.stream(f"message {self.said + 1}")
        self.said += 1
        self.turn_id = stream.turn_id
        self.in_this_turn = set()
        self.course.begin()
        await self.read(stream, reads)
        if waiting:
            await self._rest()
            record = [event for event in await self.record() if event.seq > before]
            self.cancelled(waiting, record, "TOOL-01", "a message that comes over it")
        return ""

    async def go_on(self, reads: Reads) -> None:
        """Continue the waiting turn without an answer."""
        await self.step(f"stream(), read {reads}", self._go_on(reads))

    async def _go_on(self, reads: Reads) -> str:
        if self.session.state == "running":
            await self._refused_stream(None, StreamActive, "LIFE-07")
            return "StreamActive, and nothing changes"
        if self.session.state != "input_required":
            await self._refused_stream(None, NothingToContinue, "LIFE-12")
            return "NothingToContinue, and nothing changes"
        before = await self.scene.settled(self.session)
        try:
            stream = self.stream(None)
        except NothingToContinue:
            if not self.session.pending:
                raise
            await self.scene.unchanged(self.session, before, "LIFE-12", "stream() of what waits")
            return "NothingToContinue, and nothing changes"
        self.course.go_on()
        await self.read(stream, reads)
        return ""

    def stream(self, given: str | Sequence[Answer] | None) -> EventStream:
        """Open a stream, whose id must be known and new."""
        try:
            stream = self.session.stream(given)
        except (NothingToContinue, ProtocolViolation):
            raise
        except AgentSessionError as error:
            said = f"a session that should take a stream raised {type(error).__name__}: {error.what}"
            raise Break(self.blame("LIFE-12"), said, evidence_of(self.scene.seen.latest)) from error
        if not stream.stream_id or stream.stream_id in self._streams:
            raise Break("LIFE-06", f"a new stream has the id {stream.stream_id!r}", evidence_of(self.scene.seen.latest))
        self._streams.add(stream.stream_id)
        return stream

    async def _refused_stream(self, given: str | None, error: type[AgentSessionError], rule: str) -> None:
        before = await self.scene.settled(self.session)

        async def call() -> None:
            self.session.stream(given)

        await self.scene.refused(call, error, rule, f"stream({given!r})")
        await self.scene.unchanged(self.session, before, rule, f"stream({given!r}) that was refused")

    async def read(self, stream: EventStream, reads: Reads) -> None:
        reading = Reading(stream, f"the reader of {stream.stream_id}", stream_id=stream.stream_id)
        if reads == "not at all":
            self._suspect = self._suspect or "ORD-04"
            async with stream:
                pass
        elif reads == "later":
            self.readings.append(reading)
        else:
            self.start(reading, enter=True)
            self.readings.append(reading)

    async def release(self) -> None:
        """Let the agent go on from the mark at which it is held."""
        marks = sorted(self.held)
        await self.step(f"the agent is let go on from {', '.join(marks)}", self._release(marks))

    async def _release(self, marks: Sequence[str]) -> str:
        for mark in marks:
            self.course.released.add(mark)
            self.stage.release(mark)
        return ""

    # -- what waits, works and reads ----------------------------------------------------------------------------------

    def busy(self, record: Sequence[Event]) -> set[str]:
        """The calls whose tools have begun, and are held there."""
        answered = {event.request_id for event in of(record, ToolResponse)}
        began = {int(run.args.get("n", 0)) for run in self.runs}
        return {
            event.request_id
            for event in of(record, ToolRequest)
            if event.request_id not in answered and int((event.args or {}).get("n", 0)) in began
        }

    def cancelled(self, waiting: Sequence[PendingRequest], record: Sequence[Event], rule: str, what: str) -> None:
        """What waited is answered cancelled."""
        calls = {event.request_id: event.status for event in of(record, ToolResponse)}
        questions = {event.request_id: event.action for event in of(record, ElicitationResponse)}
        for request in waiting:
            is_call = isinstance(request, ToolRequest)
            got = (calls if is_call else questions).get(request.request_id)
            wanted = "cancelled" if is_call else "cancel"
            said = f"what waits is answered {got} by {what}, not {wanted}"
            self.scene.expect(got == wanted, rule, said, record)

    @property
    def slow(self) -> list[Reading]:
        """The readers that read bit by bit."""
        return [reading for reading in self.readings if not reading.reads_on and not reading.is_done]

    @property
    def leaving(self) -> list[Reading]:
        """The readers that may leave: all but the one that follows from the start."""
        return self.readings[1:]

    # -- calls --------------------------------------------------------------------------------------------------------

    async def called(self, call: Awaitable[T], rule: str, what: str) -> T:
        """What a call gives that must not raise."""
        try:
            return await call
        except ProtocolViolation:
            raise
        except AgentSessionError as error:
            said = f"{what} raised {type(error).__name__}: {error.what}"
            raise Break(rule, said, evidence_of(self.scene.seen.latest)) from error

    async def unimplemented(self, call: Awaitable[Any], rule: str, what: str) -> str:
        """What is not declared is refused, and changes nothing."""
        before = await self.scene.settled(self.session)

        async def made() -> object:
            return await call

        await self.scene.refused(made, Unimplemented, rule, f"{what}, which is not declared,")
        await self.scene.unchanged(self.session, before, rule, f"{what}, which is not declared,")
        return "Unimplemented, and nothing changes"


def _has_all(reading: Reading, record: Sequence[Event]) -> bool:
    return not reading.reads_on or reading.has_all(record)
