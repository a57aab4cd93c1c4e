"""Executors that break the rules of ORD."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from tests.conformance.broken._wrap import (
    Broken,
    Executor,
    Reader,
    Session,
    Stream,
    beside,
    broken,
)

from agentsession.protocol import (
    AgentExecutor,
    AgentSession,
    AgentStart,
    CursorGone,
    Event,
    Message,
    OpenOptions,
    StreamEnd,
    Usage,
)


@broken("ORD-01")
class NumbersWithoutAStep(Broken):
    """An agent's start has the seq of the event before it."""

    # R100: two events under one key.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, AgentStart) and not event.resumed:
            event = event.model_copy(update={"seq": event.seq - 1})
        yield event


@broken("ORD-01")
class CountsAgainAfterARestart(Broken):
    """A session that is loaded counts on from its last stored event, over the seqs of deltas that were read."""

    # R77, R100: what comes after a load takes the place of what was there.
    async def load(
        self, executor: Executor, session_id: str, options: OpenOptions | None, given: dict[str, Any]
    ) -> Session:
        session = await super().load(executor, session_id, options, given)
        session.memory["loaded"] = True
        return session

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if "loaded" in session.memory:
            # A load leaves out a block of seqs, which nobody can have been given.
            gap = event.seq - session.memory.get("last", event.seq) - 1
            session.memory["last"] = event.seq
            session.memory["less"] = session.memory.get("less", 0) + (gap if gap > _BLOCK else 0)
            event = event.model_copy(update={"seq": event.seq - session.memory["less"]})
        yield event


_BLOCK = 20


@broken("ORD-02")
class NamesEventsAfterTheirMessage(Broken):
    """All events of one message have the message's id as their own."""

    # R01, R08: one thing under several ids, and several under one.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, Message) and event.role != "user":
            event = event.model_copy(update={"id": event.message_id})
        yield event


@broken("ORD-03")
class ShowsWatchersAnotherOrder(Broken):
    """A reader that only watches is given events in pairs, the later one first."""

    # R23: events of two writers interleave.
    def give(self, reader: Reader, event: Event) -> Iterable[Event]:
        if isinstance(reader, Stream) or reader.entered or reader.after or not reader.follow:
            yield event
            return
        kept: Event | None = reader.memory.pop("kept", None)
        if kept is None and not isinstance(event, StreamEnd):
            reader.memory["kept"] = event
        elif kept is None:
            yield event
        else:
            yield from (kept, event) if isinstance(event, StreamEnd) else (event, kept)


@broken("ORD-04")
class StopsWhenItsReaderLeaves(Broken):
    """Leaving a stream before its end aborts the turn."""

    # R106: a client that disconnects.
    async def leave(self, stream: Stream) -> None:
        session = stream.session
        if stream.end is None and session.inner.state == "running" and not session.executor.play.is_dead:
            await session.inner.abort("the reader left")


@broken("ORD-05")
class MissesTheEventAfterTheCursor(Broken):
    """A reader that attaches again begins one event too late."""

    # R106: what a client missed is not found again.
    def give(self, reader: Reader, event: Event) -> Iterable[Event]:
        if not reader.after or reader.memory.setdefault("first", event.seq) != event.seq:
            yield event


@broken("ORD-05")
class ForgetsTheTurnsBefore(Broken):
    """A reader from the start that follows is given the running turn alone."""

    # R116: the tail is all that is read.
    def give(self, reader: Reader, event: Event) -> Iterable[Event]:
        session = reader.session.inner
        anew = reader.follow and reader.after == 0 and not isinstance(reader, Stream) and session.state == "running"
        if not (anew and event.turn_id not in (None, session.machine.turn_id)):
            yield event


@broken("ORD-06")
class ShiftsTheTimeOfWhatIsReadAgain(Broken):
    """What is read again has its time in the zone of the reader, written as UTC."""

    # R97
    def give(self, reader: Reader, event: Event) -> Iterable[Event]:
        if not reader.follow:
            moved = datetime.fromisoformat(event.timestamp) + timedelta(hours=9)
            event = event.model_copy(
                update={"timestamp": moved.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
            )
        yield event


@broken("ORD-06")
class TellsTheSecondReaderSomethingElse(Broken):
    """Of two who follow a turn the later one is given messages with a note that the record has not."""

    # R97: each reader has a copy of its own, made its own way.
    def give(self, reader: Reader, event: Event) -> Iterable[Event]:
        if reader.entered and reader.follow and isinstance(event, Message) and not event.partial:
            given: set[int] = reader.session.memory.setdefault("given", set())
            if event.seq in given:
                event = event.model_copy(update={"meta": {"second": True}})
            given.add(event.seq)
        yield event


@broken("ORD-06")
class ChangesWhatItHasGiven(Broken):
    """The end of a turn is written over, where it stands, when the next turn begins."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        ended: StreamEnd | None = session.memory.get("ended")
        if isinstance(event, Message) and event.source == "user" and ended is not None:
            vars(ended)["data"] = {"next": event.turn_id}
            ended.__pydantic_fields_set__.add("data")
        if isinstance(event, StreamEnd):
            event = session.memory["ended"] = event.model_copy()
        yield event


@broken("ORD-07")
class BeginsAnewForACursorFromElsewhere(Broken):
    """A cursor that the record has not reached gives the whole record."""

    # R27: what is asked for belongs to another session.
    def events(self, session: Session, after: int | None, follow: bool, filters: dict[str, Any]) -> Reader:
        try:
            return super().events(session, after, follow, filters)
        except CursorGone:
            return super().events(session, None, follow, filters)


class Compacting(Broken):
    """It can drop the first turn of a record; with no fault in it, if it is no subclass."""

    async def compact(self, executor: AgentExecutor, session: AgentSession) -> int | None:
        assert isinstance(session, Session)
        gone = next(event.seq for event in session.inner.record if isinstance(event, StreamEnd))
        session.memory["gone"] = gone
        return gone

    def events(self, session: Session, after: int | None, follow: bool, filters: dict[str, Any]) -> Reader:
        gone: int = session.memory.get("gone", 0)
        if after is None or after >= gone:
            return super().events(session, max(after or 0, gone), follow, filters)
        return self.of_what_is_gone(session, follow, filters)

    def of_what_is_gone(self, session: Session, follow: bool, filters: dict[str, Any]) -> Reader:
        """A reader from a cursor that was compacted away."""
        raise CursorGone("this cursor was compacted away")


@broken("ORD-07")
class GivesWhatIsLeft(Compacting):
    """A cursor that was compacted away gives what is left of the record, as if nothing had been before."""

    # R116: who reads on from where it was does not hear that something is missing.
    def of_what_is_gone(self, session: Session, follow: bool, filters: dict[str, Any]) -> Reader:
        return super().events(session, None, follow, filters)


@broken("ORD-09")
class ReportsAfterTheEnd(Broken):
    """What an aborted turn used is reported when the next stream has begun, under the old one's id."""

    # R25: something of a cancelled run comes later.
    stride = 2

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event
        if isinstance(event, StreamEnd):
            session.memory["ended"] = event
        ended: StreamEnd | None = session.memory.get("ended")
        if isinstance(event, Message) and event.source == "user" and ended is not None and ended.reason == "aborted":
            late = {"stream_id": ended.stream_id, "turn_id": ended.turn_id}
            yield beside(event, Usage, "late", input_tokens=9, output_tokens=1, **late)


@broken("ORD-10")
class ForgetsWhatAFilterSkipped(Broken):
    """The cursor of a filtered reader stays at the last event that it gave."""

    def cursor(self, reader: Reader) -> int:
        return reader.last if reader.filtered else super().cursor(reader)


@broken("ORD-11")
class NeverWaitsForAReader(Broken):
    """The producer goes on however far an entered reader falls behind."""

    # R122: a reader that is slow fills the memory.
    async def enter(self, reader: Reader) -> None:
        if isinstance(reader, Stream) and reader.receipts:  # what they are for is waited for there
            await super().enter(reader)


@broken("ORD-11")
class DropsWhatASlowReaderHasNotRead(Broken):
    """A reader that was far behind once is given no whole message any more."""

    # R122: a subscriber that cannot keep up is cut off.
    def give(self, reader: Reader, event: Event) -> Iterable[Event]:
        if isinstance(reader, Stream):
            behind = reader.session.inner.last_seq - event.seq
            reader.memory["stalled"] = behind > _FAR or reader.memory.get("stalled", False)
            if reader.memory["stalled"] and isinstance(event, Message) and not event.partial:
                return
        yield event


_FAR = 100
