"""Hosts that are wrong in ends, and in what comes in. Rules broken: HOST-22 to HOST-33."""

from __future__ import annotations

import contextlib

import anyio
from anyio.lowlevel import checkpoint
from tests.conformance.broken_hosts._broken import BrokenHost, broken_host

from agentsession.conformance.hosts.harness import Situation
from agentsession.protocol import (
    AgentSession,
    Answer,
    ConnectionLost,
    Event,
    EventStream,
    PendingRequest,
    StreamEnd,
    ToolRequest,
    ToolResult,
    UnknownEvent,
)


@broken_host("HOST-22")
class DoesNotTellTheExecutor(BrokenHost):
    """An abort stops what the host does, and the agent works on."""

    async def abort(self) -> None:
        self.is_aborted = True
        self.stop()
        self.end = StreamEnd(reason="aborted")
        self.driving.cancel()
        self.changed.set()


class _Lingers(BrokenHost):
    """What two have in common: a turn that is over waits for its tools and people as if they were not."""

    lingers = False

    async def drive(self, message: str) -> None:
        await super().drive(message)
        while self.lingers and self.serving:
            await self.changed.wait()
            self.changed = anyio.Event()

    def settled(self, request_id: str) -> None:
        if not self.lingers:
            super().settled(request_id)

    def stop(self) -> None:
        if not self.lingers:
            super().stop()


@broken_host("HOST-22")
class WaitsForWhatItServesAtAnAbort(_Lingers):
    """An abort ends the turn at the executor, and waits for the tools and people of the host."""

    is_closing = False

    async def abort(self) -> None:
        self.lingers = not self.is_closing
        await super().abort()

    async def close(self) -> None:
        self.is_closing = True
        await super().close()


@broken_host("HOST-23")
class SendsWhatComesTooLate(BrokenHost):
    """What a tool or a person gives after an abort is sent, and what had not begun begins."""

    def is_void(self) -> bool:
        return False

    async def tell_start(self, request_id: str) -> bool:
        is_mine = False
        with anyio.CancelScope(shield=True):
            is_mine = await super().tell_start(request_id)
        return is_mine or self.is_aborted


@broken_host("HOST-24")
class IsSpentByAnAbort(BrokenHost):
    """After an abort the session takes no other turn."""

    async def turn(self, message: str) -> str:
        if getattr(self, "is_aborted", False):
            raise RuntimeError("the session was aborted")
        return await super().turn(message)


@broken_host("HOST-24")
class StaysAborted(BrokenHost):
    """The next turn is taken for one that was aborted, too."""

    was_aborted = False

    async def abort(self) -> None:
        self.was_aborted = True
        await super().abort()

    def is_void(self) -> bool:
        return self.was_aborted or super().is_void()


@broken_host("HOST-25")
class WaitsForALostReader(BrokenHost):
    """An answer that cannot be given is logged, and the stream is waited for."""

    def lost(self, error: Exception) -> None: ...


@broken_host("HOST-25")
class TakesAnyExceptionForAnEnd(BrokenHost):
    """What is raised while a stream is read, and is none of the contract's errors, ends the turn in peace."""

    async def follow(self, stream: EventStream) -> None:
        try:
            await super().follow(stream)
        except RuntimeError:
            self.end = StreamEnd(reason="completed")

    def cut_off(self) -> None:
        if self.end is None or self.end.reason != "completed":
            super().cut_off()


@broken_host("HOST-25")
class WaitsForALostStream(BrokenHost):
    """A stream whose executor is lost is waited for, as if it came back."""

    async def follow(self, stream: EventStream) -> None:
        try:
            await super().follow(stream)
        except ConnectionLost:
            await anyio.sleep_forever()


@broken_host("HOST-25")
class TakesALostRecordForAnEnd(BrokenHost):
    """An executor that is lost while the turn is paused has completed it."""

    async def watch(self) -> None:
        try:
            async for event in self.session.events(after=self.cursor, follow=True):
                await self.see(event)
        except ConnectionLost:
            self.end = StreamEnd(reason="completed")
            self.stop()


@broken_host("HOST-26")
class TakesAStopForAnEnd(BrokenHost):
    """When the iteration is over the turn is completed."""

    def cut_off(self) -> None:
        self.end = StreamEnd(reason="completed")


@broken_host("HOST-27")
class WaitsForEverAtAnAbort(BrokenHost):
    """How long an abort takes is left to the executor."""

    async def abort_session(self) -> None:
        await self.session.abort()


@broken_host("HOST-27")
class LeavesTheTurnWhenItsAbortFails(BrokenHost):
    """An abort that fails is raised, and the turn waits on."""

    async def abort(self) -> None:
        self.is_aborted = True
        self.stop()
        await self.abort_session()
        self.end = StreamEnd(reason="aborted")
        self.changed.set()


@broken_host("HOST-27")
class WaitsForEverAsItCloses(BrokenHost):
    """How long closing takes is left to the executor."""

    async def close_session(self) -> None:
        await self.session.aclose()


@broken_host("HOST-27")
class LeavesItsTurnAsItCloses(BrokenHost):
    """That a turn ends is left to the session that is closed."""

    async def close(self) -> None:
        await self.close_session()


@broken_host("HOST-28")
class OnlyAbortsAsItCloses(BrokenHost):
    """Closing aborts the turn, and leaves the session open."""

    async def close(self) -> None:
        if hasattr(self, "over") and not self.over.is_set():
            await self.abort()
            await self.over.wait()


@broken_host("HOST-28")
class ClosesUnderWhatItServes(_Lingers):
    """The session is closed, and its turn waits for the tools and people of the host."""

    async def close(self) -> None:
        if hasattr(self, "over") and not self.over.is_set():
            self.lingers = True
            with contextlib.suppress(Exception):
                await self.abort()
        await self.close_session()


@broken_host("HOST-29")
class StopsAtAPause(BrokenHost):
    """The first stream_end is the end of the turn."""

    async def drive(self, message: str) -> None:
        await self.read(self.session.stream(message))


@broken_host("HOST-29")
class ContinuesWithAMessage(BrokenHost):
    """After a pause the agent is told to go on, which begins another turn."""

    async def drive(self, message: str) -> None:
        await self.read(self.session.stream(message))
        while self.end is not None and self.end.reason == "input_required" and not self.is_aborted:
            await self.all_served()
            self.raise_failure()
            if not self.is_aborted:
                await self.read(self.session.stream("Go on."))


@broken_host("HOST-29")
class ContinuesTooEarly(BrokenHost):
    """A paused turn is continued at once, answered or not."""

    async def all_served(self) -> None:
        await checkpoint()  # nothing is waited for; the agent has its turn, as in any continuing


@broken_host("HOST-30")
class FallsOverWhatItDoesNotKnow(BrokenHost):
    """An event of a later version ends the turn."""

    def check(self, event: object) -> None:
        super().check(event)
        if isinstance(event, UnknownEvent):
            raise NotImplementedError(event.type)


@broken_host("HOST-30")
class TellsAnEndThatItDoesNotKnowAsAFailure(BrokenHost):
    """An end of a later version is handed back as an error."""

    def reason(self) -> str:
        reason = super().reason()
        return "failed" if reason.startswith("x-") else reason


@broken_host("HOST-30")
class RunsWhateverIsNeeded(BrokenHost):
    """Each request that is no grant is run, whatever it needs."""

    async def make(self, request: PendingRequest) -> Answer | None:
        if isinstance(request, ToolRequest) and request.needs != "grant":
            request = request.model_copy(update={"needs": "result"})
        return await super().make(request)


@broken_host("HOST-30")
class AnswersWhateverIsNeeded(BrokenHost):
    """A request whose need it does not know is answered with an empty result."""

    def unknown_need(self, request: ToolRequest) -> Answer:
        return ToolResult(request_id=request.request_id)


@broken_host("HOST-31")
class FallsOverWhatIsNoEvent(BrokenHost):
    """What the stream gives is taken for an event unseen."""

    def check(self, event: object) -> None: ...


@broken_host("HOST-31")
class FallsOverWhatIsOfAnotherSession(BrokenHost):
    """That an event is of this session is asserted."""

    def check(self, event: object) -> None:
        super().check(event)
        assert isinstance(event, Event)
        assert event.session_id == self.session.session_id


@broken_host("HOST-31")
class FallsOverWhatFollowsAnEnd(BrokenHost):
    """That nothing follows the end of a turn is asserted."""

    async def see(self, event: Event) -> None:
        assert self.end is None or self.end.reason != "completed"
        await super().see(event)


@broken_host("HOST-31")
class FallsOverAnAnswerOfNobody(BrokenHost):
    """A response is looked up among the requests that were seen, and not finding one is a defect."""

    def settled(self, request_id: str) -> None:
        if request_id not in self.taken | self.calls.keys():
            raise KeyError(request_id)
        super().settled(request_id)


@broken_host("HOST-31")
class WaitsForAGhost(BrokenHost):
    """After a pause it waits until all that the stream_end lists was asked for."""

    async def all_served(self) -> None:
        assert self.end is not None
        while any(name not in self.taken for name in self.end.pending):
            self.changed = anyio.Event()
            await self.changed.wait()
        await super().all_served()


@broken_host("HOST-32")
class ShowsLater(BrokenHost):
    """What is to be shown goes into a queue, and the stream is read on."""

    async def turn(self, message: str) -> str:
        self.sender, self.receiver = anyio.create_memory_object_stream[Event](10**6)
        reason, failure = "", None
        async with self.sender, self.receiver, anyio.create_task_group() as tasks:
            tasks.start_soon(self._showing)
            try:
                reason = await super().turn(message)
            except Exception as error:  # noqa: BLE001  # raised below, outside of the group
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return reason

    async def _showing(self) -> None:
        async for event in self.receiver:
            await super().show(event)

    async def show(self, event: Event) -> None:
        self.sender.send_nowait(event)


@broken_host("HOST-32")
class KeepsEveryDelta(BrokenHost):
    """Every event is kept for the page to be drawn again."""

    def __init__(self, session: AgentSession, situation: Situation) -> None:
        super().__init__(session, situation)
        self.kept: list[Event] = []

    async def see(self, event: Event) -> None:
        self.kept.append(event)
        await super().see(event)


@broken_host("HOST-33")
class PrintsWhatTheAgentWrote(BrokenHost):
    """What the agent wrote goes to the terminal as it is."""

    def escaped(self, text: str) -> str:
        return text
