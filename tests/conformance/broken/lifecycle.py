"""Executors that break the rules of LIFE and TURN."""

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.broken._script import replaced
from tests.conformance.broken._wrap import Broken, Reader, Session, Stream, StreamInput, beside, broken

from agentsession.conformance.script import Fail, Raise, Script, Stop
from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    AgentStart,
    ConnectionLost,
    Custom,
    Error,
    Event,
    ExecutionOptions,
    Initialize,
    Message,
    MessageInput,
    SessionClosed,
    SessionState,
    StreamActive,
    StreamEnd,
    Text,
    ToolResponse,
)


@broken("LIFE-01")
class NameIsNoIdentifier(Broken):
    """The agent's name has a space in it, which the schema of descriptors refuses."""

    def describe(self, descriptor: AgentDescriptor) -> AgentDescriptor:
        return descriptor.model_copy(update={"name": "my agent"})


@broken("LIFE-02")
class SpeaksBeforeItIntroducesItself(Broken):
    """A notice about the start-up comes before initialize."""

    # R76: what goes wrong at the start is said before there is a session.
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, Initialize):
            yield beside(event, Custom, "notice", kind="notice", data="starting")
        yield event


@broken("LIFE-03")
class IntroducesItselfInEveryTurn(Broken):
    """Each turn begins with another initialize."""

    # R77: a session that is resumed is set up as if it were new.
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, Initialize):
            session.memory["first"] = event
        if isinstance(event, Message) and event.source == "user":
            first: Initialize = session.memory["first"]
            yield first.model_copy(update={"id": f"{event.id}-again", "stream_id": event.stream_id})


@broken("LIFE-04")
class AnswersBeforeItsAgentStarts(Broken):
    """A guard's early words come before the agent that says them has started."""

    # R71: what ends a run early goes past what the other events go through.
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, AgentStart):
            text = [Text(text="checking")]
            yield beside(event, Message, "early", message_id=f"m-{event.id}", content=text, agent_id=event.agent_id)
        yield event


@broken("LIFE-05")
class EndsAFailedStreamTwice(Broken):
    """A stream that failed reports an end for the error and another one for the run."""

    # R10
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, StreamEnd) and event.reason == "failed":
            yield event.model_copy(update={"id": f"{event.id}-again"})


@broken("LIFE-06")
class TellsTheStreamIdLate(Broken):
    """A stream has no id until its events are read."""

    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        return _LateId(session, session.inner.stream(given, options))


class _LateId(Stream):
    @property
    def stream_id(self) -> str:
        return super().stream_id if self.entered else ""


@broken("LIFE-07")
class TakesASecondMessageForTheRunningTurn(Broken):
    """A message that comes while a stream runs attaches to that stream instead of being refused."""

    # R23: two runs at once on one session.
    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        running: Stream | None = session.memory.get("running")
        if isinstance(given, str) and running is not None and session.inner.state == "running":
            return running
        session.memory["running"] = made = super().stream(session, given, options)
        return made


@broken("LIFE-08")
class StopsWithoutAnEnd(Broken):
    """The iterator of a stream is over before its stream_end, as if nothing were missing."""

    # R38, R104: the stream just ends.
    def give(self, reader: Reader, event: Event) -> Iterable[Event]:
        if not (isinstance(reader, Stream) and isinstance(event, StreamEnd)):
            yield event


@broken("LIFE-08")
class VanishesInSilence(Broken):
    """When the executor's process dies its streams end as if all had been said."""

    # R104: a clean end of file on a failure.
    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        return _Silent(session, session.inner.stream(given, options))


class _Silent(Stream):
    async def __anext__(self) -> Event:
        try:
            return await super().__anext__()
        except ConnectionLost:
            raise StopAsyncIteration from None


@broken("LIFE-09")
class CallsAnExceptionTheEnd(Broken):
    """An exception in the agent's code is swallowed, and the turn ends completed."""

    # R104
    def script(self, script: Script) -> Script:
        return replaced(script, lambda step: [Stop(reason="completed")] if isinstance(step, Raise) else [step])


@broken("LIFE-09")
class FailsWithoutAnError(Broken):
    """An exception in the agent's code ends the turn failed, but no error says so."""

    # R76: stopped without a structured result.
    def script(self, script: Script) -> Script:
        return replaced(script, lambda step: [Stop(reason="failed")] if isinstance(step, Raise) else [step])


@broken("LIFE-10")
class GoesOnAfterAFatalError(Broken):
    """After a fatal error the agent says one thing more."""

    # R10
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, Error) and event.fatal:
            text = [Text(text="sorry")]
            yield beside(event, Message, "more", message_id=f"m-{event.id}", content=text, agent_id=event.agent_id)


@broken("LIFE-11")
class EndsAtAHiccup(Broken):
    """An error that is not fatal ends the turn failed."""

    def script(self, script: Script) -> Script:
        return replaced(script, lambda step: [step, Stop(reason="failed")] if isinstance(step, Fail) else [step])


@broken("LIFE-12")
class IsUnusableAfterAFailedTurn(Broken):
    """After a turn has failed the session refuses every other one."""

    # R11
    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        ends = [event for event in session.inner.record if isinstance(event, StreamEnd)]
        if ends and ends[-1].reason == "failed" and (ends[-1].data or {}).get("cause") != "lost":
            raise SessionClosed("the session has failed")
        return super().stream(session, given, options)


@broken("LIFE-12")
class FailsTheTurnAfterAFailedOne(Broken):
    """What a failed turn left behind makes the next one fail too."""

    # R11
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, StreamEnd):
            spoiled = session.memory.get("failed") and event.reason == "completed"
            session.memory["failed"] = event.reason == "failed" and (event.data or {}).get("cause") != "lost"
            if spoiled:
                event = event.model_copy(update={"reason": "failed"})
        yield event


@broken("LIFE-13")
class TakesCallsAfterClosing(Broken):
    """A session that is closed still takes a message."""

    # R74: closing from another task leaves the session behind.
    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        last: Stream | None = session.memory.get("last")
        if last is not None and session.inner.state == "closed":
            return last
        session.memory["last"] = made = super().stream(session, given, options)
        return made


@broken("LIFE-13")
class IsIdleAfterClosing(Broken):
    """A session that is closed says that it is idle."""

    def state(self, session: Session) -> SessionState:
        state = super().state(session)
        return "idle" if state == "closed" else state


@broken("LIFE-14")
class LosesTheLastPiece(Broken):
    """The whole message lacks the last character of its deltas."""

    # R96: pieces are joined wrongly.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, Message) and event.partial:
            session.memory[event.message_id] = True
        elif isinstance(event, Message) and event.message_id in session.memory:
            parts = [part for part in event.content if isinstance(part, Text) and part.text]
            if parts:
                cut = [part.model_copy(update={"text": part.text[:-1]}) for part in parts]
                event = event.model_copy(update={"content": cut})
        yield event


@broken("LIFE-14")
class SaysAStreamedMessageTwice(Broken):
    """The whole of a streamed message comes as one more delta, and then as the message."""

    # R08: the aggregate is marked partial too.
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, Message) and event.partial:
            session.memory[event.message_id] = (event.index or 0) + 1
        elif isinstance(event, Message) and event.message_id in session.memory:
            index = session.memory.pop(event.message_id)
            again = {"partial": True, "index": index, "id": f"{event.id}-again"}
            yield event.model_copy(update=again)
        yield event


@broken("LIFE-15")
class LosesTheStreamOfAMessage(Broken):
    """The agent's messages do not say which stream they belong to."""

    # R92: what belongs to one run cannot be grouped.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, Message) and event.role != "user":
            event = event.model_copy(update={"stream_id": None})
        yield event


@broken("LIFE-16")
class LeavesItsAgentOpen(Broken):
    """At a pause the agent that waits is not ended."""

    # R56: what waits inside is forgotten by what is around it.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if not (isinstance(event, AgentEnd) and event.reason == "input_required"):
            yield event


@broken("LIFE-16")
class EndsTheParentFirst(Broken):
    """An agent ends while the sub-agents that it started are still at work."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, AgentEnd) and event.thread_id is not None and event.reason == "completed":
            return
        yield event


@broken("LIFE-17")
class DoesNotSayWhatWaits(Broken):
    """A stream ends input_required and lists no request."""

    # R54: the open requests are not listed.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, StreamEnd) and event.pending:
            event = event.model_copy(update={"pending": []})
        yield event


@broken("LIFE-17")
class ListsWhatWasAnswered(Broken):
    """The end of a stream lists requests that have been answered."""

    # R62: an id stays in the list for ever.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        answered: list[str] = session.memory.setdefault("answered", [])
        if isinstance(event, ToolResponse):
            answered.append(event.request_id)
        if isinstance(event, StreamEnd) and event.pending and answered:
            event = event.model_copy(update={"pending": [*event.pending, answered[0]]})
        yield event


@broken("LIFE-17")
class CallsAWaitTheEnd(Broken):
    """A turn that waits for the host ends completed."""

    # R05, R19: the pause is lost.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, StreamEnd) and event.reason == "input_required":
            event = event.model_copy(update={"reason": "completed"})
        yield event


@broken("LIFE-18")
class CompletesAfterAFatalError(Broken):
    """A stream with a fatal error ends completed."""

    # R10
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, Error) and event.fatal:
            session.memory["fatal"] = event.stream_id
        if isinstance(event, StreamEnd) and session.memory.get("fatal") == event.stream_id:
            event = event.model_copy(update={"reason": "completed"})
        yield event


@broken("TURN-01")
class MakesATurnOfEachStream(Broken):
    """The stream that continues a turn has a turn id of its own."""

    # R92: a new invocation id for what belongs to the same.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if event.stream_id is not None:
            event = event.model_copy(update={"turn_id": f"turn-of-{event.stream_id}"})
        elif event.turn_id is not None:
            event = event.model_copy(update={"turn_id": None})
        yield event


@broken("TURN-01")
class ForgetsTheKeyOfAMessage(Broken):
    """A message that a client sends again because it heard nothing begins a second turn, once the first has ended."""

    # R100: what was sent twice is done twice.
    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        if isinstance(given, MessageInput) and session.inner.state == "idle":
            given = given.model_copy(update={"idempotency_key": None})
        return super().stream(session, given, options)


@broken("TURN-01")
class RefusesAMessageThatIsAtWork(Broken):
    """A message that is sent again while its turn runs is refused."""

    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        if isinstance(given, MessageInput) and session.inner.state == "running":
            raise StreamActive("a stream runs already")
        return super().stream(session, given, options)
