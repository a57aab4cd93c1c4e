"""Executors that break the rules of HITL, and TOOL-05."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tests.conformance.broken._wrap import Broken, Executor, Session, Stream, StreamInput, answers_in, broken
from tests.conformance.harnesses.scripted import ScriptedHarness

from agentsession.adapters import scripted
from agentsession.adapters.base import RunContext, RunResult, wrong_args
from agentsession.adapters.scripted import Memory
from agentsession.conformance import script
from agentsession.conformance.harness import Play, ToolFailed
from agentsession.protocol import (
    AbortResult,
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    ExecutionOptions,
    HostCapabilities,
    OpenOptions,
    Receipt,
    StreamEnd,
    ToolDecision,
    ToolGrant,
    ToolRequest,
    ToolResponse,
    ToolResult,
    args_digest,
)


class _Eager(ScriptedHarness):
    """The bodies of tools begin before anybody was asked."""

    def __init__(self, *, confirmed: bool) -> None:
        super().__init__()
        self._confirmed = confirmed

    def _is_early(self, call: script.Call) -> bool:
        return call.confirm if self._confirmed else call.needs == "grant" and not call.asks

    def step(self, play: Play, step: script.Step) -> scripted.Step:
        made = super().step(play, step)
        early = [call for call in step.calls if self._is_early(call)] if isinstance(step, script.Calls) else []
        return _Early(play, early, made) if early else made

    async def run(self, play: Play, call: script.Call, args: dict[str, Any]) -> Any:
        if not self._is_early(call):
            return await super().run(play, call, args)
        if call.hold is not None:
            await play.hold(call.hold)
        if call.fails:
            raise ToolFailed
        return {"ran": call.name, "args": args}


class _Early:
    def __init__(self, play: Play, calls: Sequence[script.Call], then: scripted.Step) -> None:
        self._play = play
        self._calls = calls
        self._then = then

    async def play(self, ctx: RunContext, memory: Memory) -> RunResult | None:
        for call in self._calls:
            if wrong_args(ctx.descriptor, call.name, call.args) is None:
                self._play.ran(call.name, call.args)
        return await self._then.play(ctx, memory)


@broken("TOOL-05")
class RunsBeforeItIsGranted(Broken):
    """A tool of the agent's own runs when the model calls it, and the host is asked afterwards."""

    # R110: a call is dispatched that nobody has allowed.
    inner = _Eager(confirmed=False)


@broken("HITL-01")
class RunsBeforeTheQuestion(Broken):
    """A tool that wants a confirmation runs, and the person is asked whether its result may be used."""

    # R06, R19: the pause comes too late.
    inner = _Eager(confirmed=True)


class _Yes(ScriptedHarness):
    """Takes these actions for a yes."""

    def __init__(self, *actions: str) -> None:
        super().__init__()
        self._actions = actions

    def is_yes(self, answer: Answer | None) -> bool:
        return isinstance(answer, ElicitationAnswer) and answer.action in self._actions


@broken("HITL-02")
class TakesSilenceForAYes(Broken):
    """A question that was cancelled counts as not objected to, and the tool runs."""

    # R50: a cancelled permission does not stop what follows.
    inner = _Yes("accept", "cancel")


@broken("HITL-02")
class TakesANoForAYes(Broken):
    """A tool runs when its question is answered, whatever the answer is."""

    # R06: an answer is an answer.
    inner = _Yes("accept", "decline")


@broken("HITL-02")
class TakesAnOptionThatItDoesNotKnow(Broken):
    """An answer with an option that nobody offered is taken for an acceptance."""

    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        return await session.inner.respond(*(_accepted(answer) for answer in answers))


def _accepted(answer: Answer) -> Answer:
    known = ("accept", "decline", "cancel")
    if isinstance(answer, ElicitationAnswer) and answer.action not in known:
        return answer.model_copy(update={"action": "accept"})
    return answer


class _Twice(ScriptedHarness):
    async def run(self, play: Play, call: script.Call, args: dict[str, Any]) -> Any:
        if call.confirm:
            play.ran(call.name, args)
        return await super().run(play, call, args)


@broken("HITL-03")
class RunsTwice(Broken):
    """A tool that was confirmed runs once for the answer and once more as the turn goes on."""

    # R60: the body is entered twice.
    inner = _Twice()


class _Unedited(ScriptedHarness):
    async def run(self, play: Play, call: script.Call, args: dict[str, Any]) -> Any:
        return await super().run(play, call, dict(call.args) if "edit" in call.args else args)


@broken("HITL-03")
class RunsWhatTheModelWrote(Broken):
    """A tool that is granted with edited arguments runs with those of the model."""

    inner = _Unedited()


class _NeverWithout(ScriptedHarness):
    """Own tools that are given no arguments run with those of the model."""

    async def run(self, play: Play, call: script.Call, args: dict[str, Any]) -> Any:
        return await super().run(play, call, args or dict(call.args))


@broken("HITL-03")
class TakesNoArgumentsForNoEdit(Broken):
    """A tool that is granted with no arguments at all runs with those of the model."""

    inner = _NeverWithout()


@broken("HITL-04")
class KeepsTheDigestOfTheFirstArguments(Broken):
    """The digest of a decision with edited arguments is that of the model's arguments."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolRequest):
            session.memory[event.request_id] = event.args or {}
        if isinstance(event, ToolDecision) and event.args is not None:
            event = event.model_copy(update={"args_digest": args_digest(session.memory[event.request_id])})
        yield event


@broken("HITL-04")
class RunsWhatTheEventSaysNow(Broken):
    """What a grant lets run is read from the event that was given out, whoever has changed it since."""

    # R110: what the caller wrote into the history runs.
    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        shown = {request.request_id: request for request in session.inner.record if isinstance(request, ToolRequest)}
        given: list[Answer] = []
        for answer in answers:
            request = shown.get(answer.request_id)
            if isinstance(answer, ToolGrant) and answer.args is None and request is not None:
                answer = answer.model_copy(update={"args": dict(request.args or {})})
            given.append(answer)
        return await session.inner.respond(*given)


@broken("HITL-06")
class FailsWhatAnAbortCutsOff(Broken):
    """Calls that wait when the turn is aborted are answered as if their tools had failed."""

    # R25: the orphaned call is given a made-up result.
    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        session.memory["aborted"] = [request.request_id for request in session.inner.pending]
        return await super().abort(session, reason)

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolResponse) and event.request_id in session.memory.get("aborted", ()):
            event = event.model_copy(update={"status": "failed", "is_error": True})
        yield event


@broken("HITL-06")
class DeclinesWhatAnAbortCutsOff(Broken):
    """A question that waits when the turn is aborted is recorded as declined by the person."""

    # R51: a question that nobody answered does not end as cancelled.
    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        session.memory["aborted"] = [request.request_id for request in session.inner.pending]
        return await super().abort(session, reason)

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ElicitationResponse) and event.request_id in session.memory.get("aborted", ()):
            event = event.model_copy(update={"action": "decline"})
        yield event


@broken("HITL-07")
class AsksWhatTheHostCannotShow(Broken):
    """A question waits although the host said that it cannot show its kind."""

    # R51: the run waits for ever for an answer.
    async def open(self, executor: Executor, options: OpenOptions | None, given: dict[str, Any]) -> Session:
        blind = options.model_copy(update={"host": HostCapabilities()}) if options is not None else None
        return await super().open(executor, blind, given)


@broken("HITL-08")
class DoesNotReadWhatAYesSays(Broken):
    """An acceptance of a confirmation counts whatever its content says, also a no."""

    # R14: the shape of an answer is not looked at.
    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        kinds = {request.request_id: getattr(request, "kind", None) for request in session.inner.pending}
        given: list[Answer] = []
        for answer in answers:
            if isinstance(answer, ElicitationAnswer) and kinds.get(answer.request_id) == "tool_confirmation":
                answer = ElicitationAnswer(request_id=answer.request_id, action=answer.action)
            given.append(answer)
        return await session.inner.respond(*given)


@broken("HITL-08")
class AcknowledgesWhatDoesNotFit(Broken):
    """Content that the question's schema refuses is acknowledged, and dropped."""

    # R14: an answer of the wrong shape is ignored in silence.
    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        got = await session.inner.respond(*answers)
        return [
            receipt.model_copy(update={"status": "applied"})
            if receipt.status == "invalid"
            and isinstance(answer, ElicitationAnswer)
            and answer.action == "accept"
            and isinstance(_asked(session, answer), ElicitationRequest)
            else receipt
            for answer, receipt in zip(answers, got, strict=True)
        ]


def _asked(session: Session, answer: Answer) -> object:
    return next((one for one in session.inner.pending if one.request_id == answer.request_id), None)


@broken("HITL-08")
class KeepsAFormAsText(Broken):
    """What a person filled in is kept as the text that was typed, whatever the schema says."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ElicitationRequest) and event.requested_schema is not None:
            session.memory[event.request_id] = event
        is_form = isinstance(event, ElicitationResponse) and event.request_id in session.memory
        content = getattr(event, "content", None)
        if is_form and isinstance(content, dict):
            event = event.model_copy(update={"content": {name: str(value) for name, value in content.items()}})
        yield event


@broken("HITL-09")
class KeepsWhatComesWithANo(Broken):
    """What a person had filled in before declining is kept with the refusal."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ElicitationResponse) and event.action == "decline":
            event = event.model_copy(update={"content": {"answer": "pink"}})
        yield event


@broken("HITL-10")
class MixesUpItsChildren(Broken):
    """The answers to two sub-agents reach each the other one."""

    # R64: agents with names alike read each other's events.
    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        answers = answers_in(given)
        if answers is not None:
            children = {request.request_id for request in session.inner.pending if request.thread_id is not None}
            ids = [one.request_id for one in answers if one.request_id in children and isinstance(one, ToolResult)]
            swapped = dict(zip(ids, reversed(ids), strict=True))
            given = [
                one.model_copy(update={"request_id": swapped.get(one.request_id, one.request_id)}) for one in answers
            ]
        return super().stream(session, given, options)


@broken("HITL-10")
class AsksForAChildInItsOwnName(Broken):
    """The record shows a sub-agent's call and its response as the parent's."""

    # R19: what a wrapped agent asks loses where it comes from.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, (ToolRequest, ToolResponse)) and event.thread_id is not None:
            event = event.model_copy(update={"thread_id": None})
        yield event


class _Counting(Broken):
    """Compares the limit of time with something else than what a turn has worked."""

    async def open(self, executor: Executor, options: OpenOptions | None, given: dict[str, Any]) -> Session:
        session = await super().open(executor, options, given)
        limits = options.execution.limits if options is not None else None
        session.memory["limit"] = limits.max_time_seconds if limits is not None else None
        return session

    def spent(self, session: Session, event: Event) -> float:
        """The seconds of the turn that are counted."""
        raise NotImplementedError

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        spent, limit = self.spent(session, event), session.memory.get("limit")
        if isinstance(event, StreamEnd) and event.reason == "completed" and limit is not None and spent > limit:
            event = event.model_copy(update={"reason": "max_time"})
        yield event


@broken("HITL-11")
class CountsTheTimeOfThePerson(_Counting):
    """The time that a turn may work goes on while it waits for the host."""

    def spent(self, session: Session, event: Event) -> float:
        began: dict[str | None, datetime] = session.memory.setdefault("began", {})
        now = datetime.fromisoformat(event.timestamp)
        return (now - began.setdefault(event.turn_id, now)).total_seconds()


@broken("HITL-11")
class CountsTheQuestionsOfATool(_Counting):
    """The time that a tool may take goes on while it asks a person."""

    def spent(self, session: Session, event: Event) -> float:
        now, asked = datetime.fromisoformat(event.timestamp), session.memory.get("asked")
        if isinstance(event, ElicitationRequest):
            session.memory["asked"] = now
        if isinstance(event, ElicitationResponse) and asked is not None:
            session.memory["spent"] = (now - asked).total_seconds()
        return float(session.memory.get("spent", 0.0))
