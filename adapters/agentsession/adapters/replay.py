"""A replay executor: an agent that says and asks again what a recorded session said and asked.

For: looking at a session without its agent, hosts' tests against real records, defect reports that can be run.
Not for: reading a record (``agentsession.protocol.read_ndjson``) or checking one (``SessionMachine``).
May import: ``agentsession.protocol``, ``agentsession.adapters.base``.

::

    async with ReplayExecutor("record.ndjson") as executor:
        session = await executor.open()
        stream = session.stream("whatever the host says now")     # plays the first recorded turn

Turn by turn, the agent's events are emitted again, in order, with the same content, threads and agents, and with ids
and seqs of their own. Where the record got an answer the replay waits for the host's; an answer that differs from the
recorded one is noted (a ``custom`` event of kind ``replay_mismatch``, and :attr:`ReplayExecutor.mismatches`) and the
record goes on as it was. With ``auto=True`` the recorded answers are emitted too and nothing waits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from agentsession.adapters.base import BaseExecutor, RunContext, RunResult, recorded_answer, restamp
from agentsession.protocol import (
    REDACTED,
    AgentEnd,
    AgentStart,
    Answer,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Initialize,
    InvalidInput,
    Message,
    PendingRequest,
    ProtocolViolation,
    RecordStore,
    SessionMachine,
    StreamEnd,
    ToolDecision,
    ToolGrant,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    parse_event,
)

__all__ = ["ReplayExecutor", "entry_point", "read_record"]

RecordSource = str | Path | Iterable[Event]
"""A path, the NDJSON text itself (it begins with ``{``), or events."""

_CAPABILITIES: Final = (
    "streaming",
    "host_tool_execution",
    "elicitation",
    "abort",
    "load",
    "list",
    "delete",
    "fork",
    "sub_agents",
    "usage",
    "cost",
    "reasoning",
)
"""What a replay can do, where the recorded agent could; ending a turn, keeping and forking it always can."""

_ALWAYS: Final = frozenset({"abort", "load", "list", "delete", "fork"})

_FROM_THE_SESSION: Final = frozenset({"empty", "undelivered", "volatile", "answered"})
"""What the session itself puts into the data of a stream_end."""


def read_record(source: RecordSource) -> list[Event]:
    """The events of a record, checked against the rules.

    Raises:
        SchemaError: a line is no event; it has ``line``.
        ProtocolViolation: an event breaks a rule; ``rule`` names it, ``where`` begins with its line.
        InvalidInput: there is no such file, no event in it, or something that is no event.
    """
    machine = SessionMachine(blame="peer")
    events: list[Event] = []
    for line, event in _numbered(source):
        try:
            machine.feed(event)
        except ProtocolViolation as error:
            raise ProtocolViolation(
                error.rule,
                error.what,
                blame=error.blame,
                where=f"line {line}" + (f", {error.where}" if error.where else ""),
                expected=error.expected,
                got=error.got,
                fix=error.fix,
            ) from error
        events.append(event)
    if not events:
        raise InvalidInput("the record is empty", expected="NDJSON that begins with an initialize event")
    return events


def _numbered(source: RecordSource) -> Iterator[tuple[int, Event]]:
    if isinstance(source, (str, Path)):
        # Not splitlines(): JSON text may hold the other characters that it takes for the end of a line, such as U+2028.
        for line, text in enumerate(_text_of(source).split("\n"), start=1):
            if text.strip():
                yield line, parse_event(text.strip(), line=line)
    else:
        for number, event in enumerate(source, start=1):
            if not isinstance(event, Event):
                raise InvalidInput(
                    f"item {number} of the record is no event",
                    got=type(event).__name__,
                    expected="Event objects, NDJSON text or a path",
                    fix="read JSON objects with parse_event()",
                )
            yield number, event


def _text_of(source: str | Path) -> str:
    if isinstance(source, str) and (source.lstrip().startswith("{") or not source.strip()):
        return source
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # a ValueError: not UTF-8, or a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise InvalidInput(
            "the record cannot be read", where=str(source), got=reason, fix="name another file"
        ) from error


@dataclasses.dataclass(frozen=True, slots=True)
class _Await:
    """The record got these answers here, by recorded request id."""

    answers: Mapping[str, Answer | None]


@dataclasses.dataclass(slots=True)
class _Turn:
    """What a recorded turn does, in order, and how it ended."""

    steps: list[Event | _Await]
    end: StreamEnd | None = None


class ReplayExecutor(BaseExecutor):
    """Plays a record; see the module's docstring. Raises what :func:`read_record` raises."""

    brackets_itself: ClassVar[bool] = True
    fires_hooks: ClassVar[bool] = True
    """That is, nobody does: what is replayed has happened."""

    def __init__(
        self, source: RecordSource, *, auto: bool = False, store: RecordStore | None = None, **base: Any
    ) -> None:
        super().__init__(store=store, **base)
        events = read_record(source)
        first = events[0]
        assert isinstance(first, Initialize)  # the machine has checked it
        recorded = first.descriptor
        self.auto = auto
        self.mismatches: list[dict[str, Any]] = []
        """Answers of the host that differ from the recorded ones: request_id, recorded, given."""
        self.descriptor = recorded.model_copy(
            update={
                "executor": "replay",
                "capabilities": [name for name in _CAPABILITIES if name in _ALWAYS or recorded.supports(name)],
                "required_tools": [],
            }
        )
        self._turns = _turns_of(events, auto)
        self._answers: dict[str, Answer] = {}

    @property
    def turns(self) -> int:
        """How many turns the record has."""
        return len(self._turns)

    def recorded_answer(self, request: PendingRequest) -> Answer | None:
        """The answer that ``request`` got in the record, addressed to ``request``; ``None`` for none."""
        return self._answers.get(request.request_id)

    async def run(self, ctx: RunContext) -> RunResult | None:
        """Play the recorded turn that has the number of this one."""
        if ctx.turn_number > len(self._turns):
            await ctx.emit(AgentStart(agent_id=self.descriptor.name))
            await ctx.say(f"(the record has {len(self._turns)} turns, this is turn {ctx.turn_number})")
            await ctx.end_agent(self.descriptor.name)
            return None
        turn = self._turns[ctx.turn_number - 1]
        return await _Playing(self, ctx, turn).play()


class _Playing:
    """One turn being played."""

    def __init__(self, executor: ReplayExecutor, ctx: RunContext, turn: _Turn) -> None:
        self._executor = executor
        self._ctx = ctx
        self._turn = turn
        self._messages: dict[str, str] = {}
        self._requests: dict[str, str] = {}

    async def play(self) -> RunResult | None:
        for place, step in enumerate(self._turn.steps):
            if isinstance(step, _Await):
                await self._wait(step, self._turn.steps[place + 1 :])
            else:
                await self._emit(step)
        end = self._turn.end
        if end is None:
            return RunResult("failed", {"cause": "lost"})
        if end.reason == "input_required":  # the record ends while it waited, and now it has its answers
            return None
        data = {key: value for key, value in (end.data or {}).items() if key not in _FROM_THE_SESSION}
        return RunResult(end.reason, data or None)

    async def _emit(self, event: Event) -> None:
        ctx, changes = self._ctx, self._new_ids(event)
        if isinstance(event, (ToolDecision, ToolUpdate, ToolResponse, ElicitationResponse)):
            request = ctx.open_request(changes["request_id"])
            if request is None:
                return  # the host has answered otherwise than in the record
            if isinstance(event, ToolResponse) and request.confirmation not in (None, "accept"):
                event = _not_confirmed(event)
        elif isinstance(event, AgentEnd) and event.agent_id not in ctx.open_agents.get(event.thread_id, ()):
            return
        await ctx.emit(restamp(event, **changes))

    def _new_ids(self, event: Event) -> dict[str, Any]:
        """The ids of this session for those of the record."""
        changes: dict[str, Any] = {}
        if isinstance(event, (ToolRequest, ElicitationRequest)):
            changes["meta"] = {**(event.meta or {}), "recordedRequestId": event.request_id}
            recorded = self._answer_in_record(event.request_id)
            new = changes["request_id"] = self._request_id(event.request_id)
            if recorded is not None:
                self._executor._answers[new] = recorded.model_copy(update={"request_id": new})
        elif isinstance(event, (ToolDecision, ToolUpdate, ToolResponse, ElicitationResponse)):
            changes["request_id"] = self._request_id(event.request_id)
        if isinstance(event, (Message, ToolRequest)) and event.message_id is not None:
            changes["message_id"] = self._message_id(event.message_id)
        if isinstance(event, ElicitationRequest) and event.tool_request_id is not None:
            changes["tool_request_id"] = self._request_id(event.tool_request_id)
        return changes

    def _request_id(self, recorded: str) -> str:
        if recorded not in self._requests:
            self._requests[recorded] = self._ctx.new_id("r")
        return self._requests[recorded]

    def _message_id(self, recorded: str) -> str:
        if recorded not in self._messages:
            self._messages[recorded] = self._ctx.new_id("m")
        return self._messages[recorded]

    def _answer_in_record(self, request_id: str) -> Answer | None:
        for step in self._turn.steps:
            if isinstance(step, _Await) and step.answers.get(request_id) is not None:
                return step.answers[request_id]
        return None

    async def _wait(self, step: _Await, rest: Sequence[Event | _Await]) -> None:
        """Wait for the host's answers to what the record was answered here; note where they differ."""
        ctx = self._ctx
        ids = {recorded: self._request_id(recorded) for recorded in step.answers}
        reply = ctx.expect(*ids.values())
        if not reply.complete:
            ctx.pause()
        given = await reply.wait()
        await ctx.attached()
        for recorded, new in ids.items():
            was, now = step.answers[recorded], given[new]
            if was is not None and not _agree(was, now):
                note = {"request_id": new, "recorded": _shown(was), "given": _shown(now)}
                self._executor.mismatches.append(note)
                await ctx.emit(Custom(kind="replay_mismatch", data=note))
            request = ctx.open_request(new)
            if isinstance(now, ToolGrant) and request is not None and not _is_answered_in(rest, recorded):
                await ctx.emit(
                    ToolResponse(
                        request_id=new,
                        name=request.name,
                        thread_id=request.thread_id,
                        agent_id=request.agent_id,
                        data={"error": "the record has no result of this call"},
                        is_error=True,
                        status="failed",
                    )
                )


def _not_confirmed(event: ToolResponse) -> ToolResponse:
    """The recorded response to a call that its person has now said no to: no result of it may be shown."""
    if event.status in ("denied", "cancelled", "unknown"):
        return event
    return restamp(event, status="denied", is_error=True, content=[], data={"error": "the call was not confirmed"})


def _is_answered_in(steps: Sequence[Event | _Await], request_id: str) -> bool:
    return any(isinstance(step, ToolResponse) and step.request_id == request_id for step in steps)


def _agree(recorded: Answer, given: Answer) -> bool:
    was, now = _shown(recorded), _shown(given)
    if REDACTED in str(was.get("content")):  # what it was is not known
        return was["kind"] == now["kind"] and was.get("action") == now.get("action")
    return was == now


def _shown(answer: Answer) -> dict[str, Any]:
    """What of an answer is comparable, and may be shown."""
    wire = answer.to_wire()
    kept = ("kind", "action", "content", "data", "isError", "args")
    return {key: wire[key] for key in kept if wire.get(key) not in (None, [], False)}


# -- from a record to turns -------------------------------------------------------------------------------------------


def _turns_of(events: Sequence[Event], auto: bool) -> list[_Turn]:
    in_turns = [event for event in events if event.turn_id is not None]
    order = dict.fromkeys(event.turn_id for event in in_turns)
    return [_turn_of([event for event in in_turns if event.turn_id == turn_id], auto) for turn_id in order]


def _turn_of(events: Sequence[Event], auto: bool) -> _Turn:
    turn = _Turn(steps=[])
    closings = _closings_of(events)
    unanswered: dict[str, None] = {}
    for place, event in enumerate(events):
        if place == 0 and isinstance(event, Message) and event.source == "user":
            continue  # the host says its own
        if isinstance(event, StreamEnd):
            turn.end = event
            unanswered = dict.fromkeys(event.pending)
        elif _is_of_a_pause(event):
            continue
        elif auto:
            turn.steps.append(event)
        elif place >= closings:
            if unanswered:  # the record's host never answered these; this one may, or end the turn as that one did
                _await(turn, dict.fromkeys(unanswered))
                unanswered = {}
            turn.steps.append(event)
        elif (answered := _answer_of_host(event)) is not None:
            unanswered.pop(answered.request_id, None)
            _await(turn, {answered.request_id: answered})
        elif event.source != "host" or isinstance(event, ToolResponse):
            turn.steps.append(event)
    if turn.end is not None and turn.end.reason == "input_required":
        _await(turn, dict.fromkeys(turn.end.pending))
    return turn


def _closings_of(events: Sequence[Event]) -> int:
    """The place from which on the turn was only closed: by an abort, a failure, a settlement, or a repair."""
    place = len(events)
    if isinstance(events[-1], StreamEnd) and events[-1].reason in ("completed", "input_required"):
        return place
    while place > 0 and _may_close(events[place - 1]):
        place -= 1
    return place


def _may_close(event: Event) -> bool:
    match event:
        case StreamEnd():
            return event.reason != "input_required"
        case AgentEnd():
            return event.reason != "input_required"
        case ToolResponse():
            return event.source == "host" and event.status in ("cancelled", "unknown")
        case ElicitationResponse():
            return event.source == "host" and event.action == "cancel"
        case Message():
            return event.interrupted
        case _:
            return False


def _await(turn: _Turn, answers: Mapping[str, Answer | None]) -> None:
    """Answers that came with nothing of the agent in between are waited for together."""
    if turn.steps and isinstance(turn.steps[-1], _Await):
        answers = {**turn.steps.pop().answers, **answers}  # type: ignore[union-attr]  # just checked
    turn.steps.append(_Await(answers))


def _is_of_a_pause(event: Event) -> bool:
    return (isinstance(event, AgentEnd) and event.reason == "input_required") or (
        isinstance(event, AgentStart) and event.resumed
    )


def _answer_of_host(event: Event) -> Answer | None:
    """The answer that the record's host gave with this event; what it settled is none."""
    if event.source != "host":
        return None
    if isinstance(event, ToolResponse) and event.status not in ("completed", "failed", "denied"):
        return None
    return recorded_answer(event)


def entry_point() -> type[ReplayExecutor]:
    """What the entry point ``agentsession.executors: replay`` gives: the class."""
    return ReplayExecutor
