"""One session whose executor is killed again and again: what it plays, how its host drives it, what must be left of it.

Not for: how often, and what that adds up to (``kills.py``). Rules carried: ORD-01, ORD-06, PER-02, PER-04, TOOL-05, as
far as a real kill can break them. May import: ``agentsession.protocol``, anyio, the modules beside it.

All that is left to chance is drawn beforehand from one seed: the script, what the host says yes to, and how it answers.
Each call has a number in its arguments, so that its body, its request and what was decided about it can be told apart
from those of all others, whatever became of the process in between.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio

from agentsession.conformance.engine import Break, check, evidence_of
from agentsession.conformance.harness import MortalStore, Play, ToolRun
from agentsession.conformance.hosting import content_for, result_data
from agentsession.conformance.looking import of, requests
from agentsession.conformance.results import Status
from agentsession.conformance.script import Ask, Call, Calls, Count, Delegate, Hold, Say, Script, Step, Stream, Think
from agentsession.conformance.seen import Seen
from agentsession.conformance.stdio.client import StdioExecutor
from agentsession.conformance.stdio.harness import StdioHarness
from agentsession.protocol import (
    AgentSession,
    Answer,
    ConfigurationError,
    ConnectionLost,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    EventStream,
    ExecutionOptions,
    Message,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    SessionMachine,
    StreamEnd,
    ToolDecision,
    ToolGrant,
    ToolRequest,
    ToolResponse,
    ToolResult,
    accept,
    as_content,
    decline,
    deny,
    grant,
    result,
)

__all__ = ["KilledSession", "Plan", "is_kept"]

_TURNS: Final = 2
_RAN: Final = ("completed", "failed")
"""The statuses of a response that holds a result."""
_LIFE_S: Final = 60.0
"""A life takes a fraction of a second; one that is not over by then waits for something that will not come."""


class Plan:
    """What one session does, and what its host answers."""

    def __init__(self, chance: random.Random, capabilities: Collection[str]) -> None:
        self._chance = chance
        self._can = frozenset(capabilities)
        self._calls = 0
        self._is_gated = chance.random() < 0.7
        self.script = Script.of(*(self._turn(number) for number in range(1, _TURNS + 1)))
        self.refused = frozenset(n for n in range(1, self._calls + 1) if chance.random() < 0.2)
        """The calls that the host, or the person, says no to."""
        self.edited = frozenset(n for n in range(1, self._calls + 1) if chance.random() < 0.3)
        """The calls that are granted with other arguments."""

    def _turn(self, turn: int) -> list[Step]:
        # A process that waits at a mark cannot get any further before it is gone: what it has told last is not stored.
        blocks: list[Step] = [Hold(mark=f"thought {turn}")]
        if "streaming" in self._can:
            blocks.insert(0, Stream(pieces=["word "] * 8, hold=f"words {turn}"))
        if "reasoning" in self._can:
            blocks.append(Think(text="let me see"))
        if "usage" in self._can:
            blocks.append(Count(input_tokens=3, output_tokens=4))
        if "elicitation" in self._can:
            blocks.append(Ask(message="Which colour?"))
        if "host_tool_execution" in self._can:
            blocks += [Calls(calls=self._some_calls(3)), Calls(calls=self._some_calls(2))]
            if "sub_agents" in self._can:
                left: list[Step] = [Calls(calls=self._some_calls(1, simple=True)), Say(text="left is done")]
                blocks.append(Delegate(agents={"left": left, "right": [Calls(calls=self._some_calls(1, simple=True))]}))
        self._chance.shuffle(blocks)
        return [*blocks, Say(text=f"turn {turn} is done")]

    def _some_calls(self, count: int, *, simple: bool = False) -> list[Call]:
        return [self._call(simple) for _ in range(count)]

    def _call(self, simple: bool) -> Call:
        self._calls += 1
        number = self._calls
        hold = f"tool {number}" if self._chance.random() < 0.5 else None
        kinds = ["result", "own"]
        if "elicitation" in self._can and not simple:
            kinds += ["confirm"] + ["asks"] * self._is_gated
        kind = self._chance.choice(kinds)
        args = {"n": number}
        if kind == "result":
            return Call(name="look", args=args)
        if kind == "confirm":
            return Call(name="wipe", args=args, needs="none", confirm=True, hold=hold)
        needs: Any = "grant" if self._is_gated else "none"
        if kind == "asks":
            return Call(name="deploy", args=args, needs=needs, asks=True, hold=hold)
        return Call(name="write", args=args, needs=needs, hold=hold)

    def options(self) -> OpenOptions:
        """How the host opens the session, and loads it."""
        tools = self.script.host_tools()
        given = ExecutionOptions(tools=tools or None, host_tool_execution=self.script.is_gated)
        return OpenOptions(execution=given)

    def marks(self) -> Iterator[str]:
        """Every mark of the script: nothing is to wait there, it is only one more place to be killed at."""
        for step in (*self.script.steps(), *self.script.calls()):
            mark = step.mark if isinstance(step, Hold) else getattr(step, "hold", None)
            if mark is not None:
                yield mark

    def answer(self, request: PendingRequest, record: Sequence[Event]) -> Answer:
        """What the host says, the same whenever it is asked."""
        if isinstance(request, ElicitationRequest):
            about = [call for call in requests(record) if call.request_id == request.tool_request_id]
            if about and _number(about[0]) in self.refused:
                return decline(request.request_id)
            return accept(request.request_id, content_for(request.kind, request.requested_schema))
        number = _number(request)
        if request.needs == "result":
            return result(request.request_id, result_data(request.name, request.args or {}))
        if number in self.refused and request.name != "deploy":
            return deny(request.request_id, "not this one")
        return grant(request.request_id, {"n": number, "edited": True} if number in self.edited else None)


def _number(request: ToolRequest) -> int:
    return int((request.args or {}).get("n", 0))


@dataclasses.dataclass
class _Applied:
    """An answer whose receipt came back: it is not to be lost."""

    answer: Answer
    by_stream: bool


class KilledSession:
    """One session over all its lives, each in a process of its own."""

    def __init__(self, harness: StdioHarness, plan: Plan, folder: Path, chance: random.Random) -> None:
        self._harness = harness
        self._plan = plan
        self._chance = chance
        self._play = Play(plan.script, folder, MortalStore())
        self._session_id: str | None = None
        self._seen = Seen()
        self._told: dict[int, Event] = {}
        self._applied: list[_Applied] = []
        self._steers: list[str] = []
        self._runs: list[ToolRun] = []
        self.lines = 0
        """How many lines the last life has printed."""
        self.events = 0
        """How many events came from executors that were killed then."""
        self.lives = 0

    async def live(self, kill_at: int | None) -> bool:
        """One life: open or load the session, and drive it to its end. ``False``: it was killed before.

        Raises:
            Break: what an earlier life has acknowledged is lost, a tool has run twice, or nothing goes on.
        """
        self.lives += 1
        if self.lives > 1:
            self._play = self._play.again()
        for mark in self._plan.marks():
            self._play.release(mark)
        executor = self._harness.executor(self._play, kill_at=kill_at)
        with anyio.move_on_after(_LIFE_S) as limit:
            try:
                async with executor:
                    return await self._live(executor)
            except (ConnectionLost, ConfigurationError) as error:
                if not executor.was_killed:
                    raise Break("LIFE-08", f"the executor was lost, and nobody killed it: {error.what}") from error
                return False
            finally:
                self.lines = executor.lines
        assert limit.cancelled_caught
        raise Break("PER-04", f"a life came to no end within {_LIFE_S:g} s", evidence_of(self._seen.latest))

    async def _live(self, executor: StdioExecutor) -> bool:
        try:
            session = await self._begin(executor)
            await self._drive(session)
            record = await self._record(session)
        except ConnectionLost:
            await executor.kill()  # which takes what it had printed before it died
            raise
        finally:
            self._runs += self._play.runs
            if self._session_id is not None:
                self._remember(executor.received(self._session_id))
        self._judge(record, session)
        return True

    async def _begin(self, executor: StdioExecutor) -> AgentSession:
        if self._session_id is not None:
            session = await executor.load(self._session_id, self._plan.options())
            self._compare(executor.received(session.session_id))
            return session
        # An id of its own for each try: what an open left that was never answered is of no interest.
        options = self._plan.options().model_copy(update={"session_id": f"killed-{self.lives}"})
        session = await executor.open(options)
        self._session_id = session.session_id
        return session

    async def _record(self, session: AgentSession) -> list[Event]:
        async with session.events() as reader:
            return [event async for event in reader]

    # -- the host -----------------------------------------------------------------------------------------------------

    async def _drive(self, session: AgentSession) -> None:
        """Answer and say, until all was said and nothing waits."""
        while True:
            if session.state == "input_required":
                stream = await self._answer(session)
            else:
                said = sum(event.message_id.startswith("said-") for event in of(await self._record(session), Message))
                if said == _TURNS:
                    return
                stream = session.stream(MessageInput(content=as_content("go on"), message_id=f"said-{said + 1}"))
            await self._read(session, stream)

    async def _answer(self, session: AgentSession) -> EventStream:
        record = await self._record(session)
        answers = [self._plan.answer(request, record) for request in session.pending]
        self._chance.shuffle(answers)
        way = self._chance.choice(["all", "some", "before"])
        if not answers:
            return session.stream()
        if way == "before":
            for answer in answers:
                self._note([answer], await session.respond(answer), by_stream=False)
            return session.stream()
        given = answers if way == "all" else answers[:1]
        stream = session.stream(given)
        self._note(given, stream.receipts, by_stream=True)
        return stream

    def _note(self, answers: Sequence[Answer], receipts: Sequence[Receipt], *, by_stream: bool) -> None:
        for answer, receipt in zip(answers, receipts, strict=True):
            if not receipt.ok:
                said = f"an answer to what waits is {receipt.status}: {receipt.reason}"
                raise Break("TOOL-08", said, evidence_of(self._seen.latest))
            self._applied.append(_Applied(answer, by_stream))

    async def _read(self, session: AgentSession, stream: EventStream) -> None:
        steers_at = self._chance.randint(1, 20) if "steering" in session.descriptor.capabilities else 0
        count = 0
        async with stream:
            async for _ in stream:
                count += 1
                if count == steers_at:
                    receipt = await session.steer("faster")
                    if receipt.ok and receipt.request_id is not None:
                        self._steers.append(receipt.request_id)
        if stream.end is None:
            raise Break("LIFE-08", "a stream ended without its stream_end", evidence_of(self._seen.latest))

    # -- what must be left --------------------------------------------------------------------------------------------

    def _remember(self, events: Sequence[Event]) -> None:
        """What a life has told: no seq and no id of it is another event's, also not of one that nobody stored."""
        for event in events:
            self._seen.add(event)
            before = self._told.setdefault(event.seq, event)
            if before.to_wire() != event.to_wire():  # ids may follow from the seq, so that they are equal, too
                raise Break("ORD-01", f"seq {event.seq} was given to two events", evidence_of([before], event))
        if len({event.id for event in self._told.values()}) != len(self._told):
            raise Break("ORD-02", "an event id was given to two events", evidence_of(self._seen.latest))
        self.events += len(events)
        if self._session_id is not None:
            self._seen.killed(self._session_id)

    def _compare(self, record: Sequence[Event]) -> None:
        """Raises :class:`Break` where the record of a loaded session has lost what was acknowledged."""
        assert self._session_id is not None
        self._seen.with_record(self._session_id, record)
        for applied in self._applied:
            if not is_kept(applied.answer, record):
                how = "stream()" if applied.by_stream else "respond()"
                said = f"a {applied.answer.kind} that {how} had applied is not in the record"
                raise Break("PER-02", said, evidence_of(_about(record, applied.answer.request_id)))

    def _judge(self, record: Sequence[Event], session: AgentSession) -> None:
        """Raises :class:`Break` where the session, all its lives over, is not as it must be."""
        self._compare(record)
        for found in check(record, session.descriptor):
            if found.status is Status.FAIL:
                raise Break(found.rule, found.message, found.evidence)
        state = SessionMachine.fold(record).state
        if state != "idle":
            raise Break("PER-04", f"all was said and answered, and the session is {state}", evidence_of(record[-6:]))
        self._judge_steers(record)
        self._judge_runs(record)

    def _judge_steers(self, record: Sequence[Event]) -> None:
        told = [event.message_id for event in of(record, Message)]
        told += [str(name) for end in of(record, StreamEnd) for name in (end.data or {}).get("undelivered") or ()]
        for steer in self._steers:
            if told.count(steer) != 1:
                said = f"a steer that was queued is told {told.count(steer)} times, not once"
                raise Break("PER-02", said, evidence_of(record[-6:]))

    def _is_refused(self, request: ToolRequest) -> bool:
        """Whether the host or a person has said no to a call; one that needs none and asks nobody is not theirs."""
        is_asked = request.needs == "grant" or request.name in ("wipe", "deploy")
        return is_asked and _number(request) in self._plan.refused

    def _judge_runs(self, record: Sequence[Event]) -> None:
        """Each body has begun once at the most, only where it was let, and where it has a result."""
        responses = {event.request_id: event for event in of(record, ToolResponse)}
        asked = {_number(request): request for request in requests(record)}
        runs: dict[int, int] = {}
        for run in self._runs:
            number = int(run.args.get("n", 0))
            runs[number] = runs.get(number, 0) + 1
            if number not in asked:
                raise Break("TOOL-05", f"{run.name} {dict(run.args)} ran, and no request in the record asks for it")
        for number, request in asked.items():
            response, times = responses[request.request_id], runs.get(number, 0)
            about = evidence_of(_about(record, request.request_id))
            what = f"{request.name} {request.args}"
            if times > 1:
                raise Break("TOOL-05", f"the body of {what} has begun {times} times", about)
            if times == 1 and (request.needs == "result" or self._is_refused(request)):
                raise Break("TOOL-05", f"{what} ran, and the host did not let it", about)
            if times == 1 and response.status not in ("completed", "failed", "unknown"):
                raise Break("PER-04", f"{what} has begun, and is answered {response.status}", about)
            if times == 0 and response.status == "completed" and request.owner == "agent":
                raise Break("HITL-03", f"{what} is answered completed, and its body has not begun", about)


def _about(record: Iterable[Event], request_id: str) -> list[Event]:
    return [event for event in record if getattr(event, "request_id", None) == request_id]


def is_kept(answer: Answer, record: Iterable[Event]) -> bool:
    """Whether the record has what an answer leaves in it."""
    about = _about(record, answer.request_id)
    if isinstance(answer, ToolGrant):
        return any(event.decision == "granted" for event in of(about, ToolDecision))
    if isinstance(answer, ElicitationAnswer):
        return any(event.action == answer.action for event in of(about, ElicitationResponse))
    if isinstance(answer, ToolResult):
        said = (answer.data, answer.is_error)
        return any((event.data, event.is_error) == said and event.status in _RAN for event in of(about, ToolResponse))
    return any(event.status == "denied" for event in of(about, ToolResponse))
