"""Executors that break the rules of CTL."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
from tests.conformance.broken._wrap import Broken, Session, beside, broken
from tests.conformance.harnesses.scripted import ScriptedHarness

from agentsession.adapters import scripted
from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import ScriptedExecutor
from agentsession.conformance.harness import Play
from agentsession.conformance.script import Calls, Hold
from agentsession.protocol import (
    AbortResult,
    AbortTimeout,
    AgentEnd,
    AgentExecutor,
    Content,
    Error,
    Event,
    Message,
    NothingToContinue,
    Receipt,
    SessionConfig,
    SessionState,
    SteerData,
    StreamEnd,
)


@broken("CTL-01")
class ReturnsFromAbortBeforeTheToolHasStopped(Broken):
    """Abort of a turn in which a tool runs returns at once, and the turn ends some time later."""

    # R25: what abort does depends on what runs.
    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        machine = session.inner.machine
        stream_id = machine.stream_id
        if session.inner.state != "running" or not machine.requests:
            return await super().abort(session, reason)
        session.executor.later(lambda: session.inner.abort(reason))
        return AbortResult(status="aborted", stream_id=stream_id)


@broken("CTL-01")
class StaysBusyAfterAnAbort(Broken):
    """A session whose turn was aborted goes on saying that it runs."""

    # R62: what is listed does not follow what happened.
    def state(self, session: Session) -> SessionState:
        ends = [event for event in session.inner.record if isinstance(event, StreamEnd)]
        aborted = session.memory.get("aborted")
        return "running" if aborted is not None and ends[-1].stream_id == aborted else super().state(session)

    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        running = session.inner.state == "running"
        result = await super().abort(session, reason)
        if running and result.status == "aborted":
            session.memory["aborted"] = result.stream_id
        return result


@broken("CTL-01")
class GivesUpInSilence(Broken):
    """Abort of work that does not end says that it is ended."""

    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        stream_id = session.inner.machine.stream_id
        try:
            return await super().abort(session, reason)
        except AbortTimeout:
            return AbortResult(status="aborted", stream_id=stream_id)


@broken("CTL-01")
class StaysOpenWhenItGaveUp(Broken):
    """A session whose abort has timed out goes on saying that it runs."""

    def state(self, session: Session) -> SessionState:
        return "running" if "timed out" in session.memory else super().state(session)

    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        try:
            return await super().abort(session, reason)
        except AbortTimeout:
            session.memory["timed out"] = True
            raise


@broken("CTL-02")
class RefusesAnAbortOfNothing(Broken):
    """Abort raises where nothing runs."""

    # R74: abort raises to the host.
    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        if session.inner.state == "new":
            raise NothingToContinue("nothing runs")
        return await super().abort(session, reason)


@broken("CTL-03")
class CallsAnAbortAnError(Broken):
    """A turn that is aborted shows an error before it ends."""

    # R25, R10: cancelling is reported as a failure.
    stride = 2

    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        session.memory["aborting"] = True
        return await super().abort(session, reason)

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, AgentEnd) and event.thread_id is None and session.memory.pop("aborting", False):
            yield beside(event, Error, "error", status="CANCELLED", message="aborted", agent_id=event.agent_id)
        yield event


@broken("CTL-04")
class SaysAbortedOfATurnThatCompleted(Broken):
    """An abort that comes as the turn completes says that it ended the turn."""

    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        result = await super().abort(session, reason)
        ends = [event for event in session.inner.record if isinstance(event, StreamEnd)]
        if ends and ends[-1].reason == "completed":
            return AbortResult(status="aborted", stream_id=ends[-1].stream_id)
        return result


@broken("CTL-04")
class LetsAStubbornModelFinish(Broken):
    """An abort of work that does not heed it waits a while for the turn to end by itself, and always says aborted."""

    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        stream_id = session.inner.machine.stream_id
        steps = session.executor.play.script.steps()
        if stream_id is not None and any(isinstance(step, Hold) and step.stubborn for step in steps):
            with anyio.move_on_after(1):
                [event async for event in session.inner.events(follow=True, stream_id=stream_id)]
        result = await super().abort(session, reason)
        return AbortResult(status="aborted", stream_id=stream_id) if stream_id is not None else result


@broken("CTL-05")
class FailsTheTurnAfterAnAbort(Broken):
    """What an aborted turn left behind makes the next one fail."""

    # R11, R25: an unanswered call stays in the history.
    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        result = await super().abort(session, reason)
        session.memory["aborted"] = result.status == "aborted"
        return result

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, StreamEnd) and event.reason == "completed" and session.memory.pop("aborted", False):
            event = event.model_copy(update={"reason": "failed"})
        yield event


@broken("CTL-06")
class KeepsOneSteerAlone(Broken):
    """A steer that comes while another one waits is acknowledged and dropped."""

    async def steer(self, session: Session, data: Content | SteerData) -> Receipt:
        if session.inner.machine.steers:
            return Receipt(status="queued", request_id="m-dropped")
        return await super().steer(session, data)


@broken("CTL-06")
class TakesASteerOfNothing(Broken):
    """A steer of an idle session is acknowledged, and nobody ever reads it."""

    async def steer(self, session: Session, data: Content | SteerData) -> Receipt:
        receipt = await super().steer(session, data)
        return receipt if receipt.ok else Receipt(status="queued", request_id="m-dropped")


@broken("CTL-06")
class InjectsASteerTwice(Broken):
    """A steer is shown when it is queued and again when the model reads it."""

    # R100: what the user said is appended twice.
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, Message) and event.source == "user" and session.memory.get("turn") == event.turn_id:
            yield event.model_copy(update={"id": f"{event.id}-again", "message_id": f"{event.message_id}-again"})
        session.memory["turn"] = event.turn_id


@broken("CTL-07")
class AppliesHalfAnUpdate(Broken):
    """Of an update with something that it cannot do the rest is applied, and the whole is rejected."""

    # R88: one of two changes is lost.
    async def update(self, session: Session, config: SessionConfig) -> Receipt:
        if config.title is None or config.config is None:
            return await super().update(session, config)
        await session.inner.update(SessionConfig(title=config.title))
        return Receipt(status="rejected", reason="no such setting")


@broken("CTL-07")
class ForgetsPartOfAnUpdate(Broken):
    """An update of title and state is applied, and the record has the title alone."""

    # R88
    async def update(self, session: Session, config: SessionConfig) -> Receipt:
        if config.title is not None and config.state is not None and config.title == "Both":
            return await session.inner.update(SessionConfig(title=config.title))
        return await super().update(session, config)


@broken("CTL-08")
class HasOneReasonForAllLimits(Broken):
    """A turn that has made its last step ends as if it had made its last model call."""

    # R69; and one reason stood for the cost and for the steps.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, StreamEnd) and event.reason == "max_turns":
            event = event.model_copy(update={"reason": "max_llm_calls"})
        yield event


@broken("CTL-08")
class JustStopsAtALimit(Broken):
    """A turn that may make no more model calls ends completed."""

    # R69, R38: the stream just stops.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, StreamEnd) and event.reason in ("max_llm_calls", "max_tokens"):
            event = event.model_copy(update={"reason": "completed"})
        yield event


@broken("CTL-08")
class TakesALastWordForAGoodEnd(Broken):
    """A turn that has said at its limit where it got to ends completed."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, StreamEnd) and (event.data or {}).get("grace") == "completed":
            event = event.model_copy(update={"reason": "completed"})
        yield event


@broken("CTL-08")
class PraisesALastWordThatNobodyHeard(Broken):
    """A turn at its limit tells of a last word that was given, and nothing is said in it."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, Message) and event.source == "host" and "grace" in (event.meta or {}):
            session.memory["silent"] = event.turn_id
        is_silent = session.memory.get("silent") == event.turn_id
        if not (is_silent and isinstance(event, Message) and event.role == "agent"):
            yield event


@broken("CTL-08")
class WorksOnInItsLastWord(Broken):
    """In the last word of a turn a tool runs that nobody was asked about."""

    class Inner(ScriptedHarness):
        def executor(self, play: Play) -> AgentExecutor:
            made = super().executor(play)
            assert isinstance(made, ScriptedExecutor)
            last: list[scripted.Step] = [WorksOn(play), scripted.Say("Done, too.")]
            made.grace = last
            return made

    inner = Inner()


class WorksOn:
    """A step that runs a tool of the agent's, whatever its session says."""

    def __init__(self, play: Play) -> None:
        self._calls = [call for step in play.script.steps() if isinstance(step, Calls) for call in step.calls]
        self._play = play

    async def play(self, ctx: RunContext, memory: scripted.Memory) -> None:
        for call in self._calls:
            if call.needs == "grant":
                await self._play.run_tool(call, call.args)
