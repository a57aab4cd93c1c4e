"""A session that plays a list of streams: the least that lets the host be tested without an executor's base class.

A stream is a list of acts: an event is emitted; :class:`Until` waits for answers while the stream runs; a function is
called. A stream ends ``input_required`` when something is pending, else with ``completed``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.lowlevel

from agentsession.protocol import (
    AbortResult,
    AgentDescriptor,
    AgentStart,
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Initialize,
    Message,
    MessageInput,
    NothingToContinue,
    Receipt,
    StreamActive,
    StreamEnd,
    ToolDecision,
    ToolDenial,
    ToolGrant,
    ToolProgress,
    ToolRequest,
    ToolResponse,
    ToolResult,
    ToolUpdate,
)


@dataclasses.dataclass(frozen=True)
class Until:
    """Wait, inside the stream, until none of these requests is pending."""

    ids: tuple[str, ...]


Act = Event | Until | Callable[[], Any]


def is_start(answer: Answer) -> bool:
    """Whether the host says that a tool starts."""
    return isinstance(answer, ToolProgress) and answer.started is True


class FakeStream:
    def __init__(self, session: FakeSession, number: int) -> None:
        self.stream_id = f"t-{number}"
        self.turn_id = session.turn_id
        self.receipts: Sequence[Receipt] = ()
        self.end: StreamEnd | None = None
        self.cursor = session.last_seq
        self._events = session.play(self.stream_id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await anext(self._events)
        self.cursor = event.seq
        if isinstance(event, StreamEnd):
            self.end = event
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._events.aclose()  # type: ignore[attr-defined]  # an async generator has it


class FakeReader:
    def __init__(self, session: FakeSession, after: int, follow: bool, types: Collection[str] | None) -> None:
        self._session = session
        self._follow = follow
        self.types = types
        self.cursor = after

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            for event in self._session.record:
                if event.seq > self.cursor:
                    self.cursor = event.seq
                    if self.types is None or event.type in self.types:
                        return event
            if not self._follow:
                raise StopAsyncIteration
            await self._session.changed.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def aclose(self) -> None: ...


class FakeSession:
    """Satisfies AgentSession. ``streams`` holds the acts of each stream; ``answers`` what the host said, in order.

    That a tool started is no answer: ``started`` holds the requests of which the host said so.
    """

    def __init__(self, *streams: list[Act], descriptor: AgentDescriptor | None = None) -> None:
        self.session_id = "s-1"
        self.descriptor = descriptor or AgentDescriptor(name="fake", executor="fake")
        self.turn_id = "u-0"
        self.record: list[Event] = []
        self.answers: list[Answer] = []
        self.started: list[str] = []
        self.aborts: list[str | None] = []
        self.refuse: dict[str, int] = {}
        self.closed = False
        self.changed = anyio.Event()
        self._streams = list(streams)
        self._waiting: dict[str, ToolRequest | ElicitationRequest] = {}
        self._running: str | None = None
        self._aborted = False
        self._is_turn_open = False
        self._count = 0
        self.add(Initialize(protocol_version="1.0", descriptor=self.descriptor))

    @property
    def state(self) -> Any:
        if self.closed:
            return "closed"
        return "running" if self._running else "input_required" if self._waiting else "idle"

    @property
    def pending(self) -> list[ToolRequest | ElicitationRequest]:
        return list(self._waiting.values())

    @property
    def last_seq(self) -> int:
        return len(self.record)

    def add(self, event: Event, stream_id: str | None = None) -> Event:
        seq = len(self.record) + 1
        turn = {} if isinstance(event, Initialize) else {"turn_id": self.turn_id}
        if stream_id:
            turn["stream_id"] = stream_id
        update = {
            "id": f"e-{seq}",
            "seq": seq,
            "timestamp": "2026-01-31T12:00:00.000Z",
            "session_id": self.session_id,
            **turn,
        }
        stamped = event.model_copy(update=update)
        self.record.append(stamped)
        if isinstance(stamped, ToolRequest) and not stamped.partial and stamped.needs != "none":
            self._waiting[stamped.request_id] = stamped
        if isinstance(stamped, ElicitationRequest):
            self._waiting[stamped.request_id] = stamped
        if isinstance(stamped, (ToolResponse, ElicitationResponse)):
            self._waiting.pop(stamped.request_id, None)
        self.changed.set()
        self.changed = anyio.Event()
        return stamped

    def stream(self, input: Any = None, options: Any = None) -> FakeStream:
        if self._running:
            raise StreamActive("a stream runs")
        if isinstance(input, (str, MessageInput)):
            self._settle()
            self._count += 1
            self.turn_id = f"u-{self._count}"
        elif not self._streams:
            raise NothingToContinue("nothing waits")
        self._aborted = False
        self._is_turn_open = True
        number = len([event for event in self.record if isinstance(event, StreamEnd)]) + 1
        self._running = f"t-{number}"
        return FakeStream(self, number)

    async def play(self, stream_id: str) -> AsyncIterator[Event]:
        seen = self.last_seq
        acts = self._streams.pop(0) if self._streams else []
        self.add(AgentStart(agent_id=self.descriptor.name), stream_id)
        for act in acts:
            if isinstance(act, Event):
                self.add(act, stream_id)
            elif isinstance(act, Until):
                while not self._aborted and any(name in self._waiting for name in act.ids):
                    for event in self.record[seen:]:
                        seen = event.seq
                        yield event
                    if not any(name in self._waiting for name in act.ids) or self._aborted:
                        break
                    await self.changed.wait()
            else:
                act()
            for event in self.record[seen:]:
                seen = event.seq
                yield event
            if self._aborted:
                break
        if not self._aborted:
            reason = "input_required" if self._waiting else "completed"
            self._is_turn_open = bool(self._waiting)
            self.add(StreamEnd(reason=reason, pending=list(self._waiting)), stream_id)
        self._running = None
        for event in self.record[seen:]:
            yield event

    async def respond(self, *answers: Answer) -> list[Receipt]:
        await anyio.lowlevel.checkpoint()
        return [self._respond(answer) for answer in answers]

    def _respond(self, answer: Answer) -> Receipt:
        name = answer.request_id
        request = self._waiting.get(name)
        if is_start(answer) and request is not None:
            if name in self.started:
                return Receipt(status="stale", request_id=name, rule="TOOL-16")
            self.started.append(name)
            self.add(ToolUpdate(request_id=name, started=True), self._running)
            return Receipt(status="applied", request_id=name)
        self.answers.append(answer)
        if request is None:
            return Receipt(status="stale", request_id=name, rule="TOOL-09")
        if self.refuse.get(name, 0) > 0:
            self.refuse[name] -= 1
            return Receipt(status="invalid", request_id=name, reason="does not fit")
        tool_name = getattr(request, "name", "")
        match answer:
            case ToolProgress():
                self.add(ToolUpdate(request_id=name, progress=answer.progress), self._running)
            case ToolResult():
                self.add(ToolResponse(request_id=name, name=tool_name, is_error=answer.is_error), self._running)
            case ToolDenial():
                self.add(ToolResponse(request_id=name, name=tool_name, status="denied"), self._running)
            case ToolGrant():
                self.add(ToolDecision(request_id=name, decision="granted", args_digest="0" * 64), self._running)
                self.add(ToolResponse(request_id=name, name=tool_name), self._running)
            case ElicitationAnswer():
                self.add(ElicitationResponse(request_id=name, action=answer.action), self._running)
        return Receipt(status="applied", request_id=name)

    def _settle(self) -> None:
        waiting = list(self._waiting.values())
        for request in waiting:
            if isinstance(request, ToolRequest):
                self.add(ToolResponse(request_id=request.request_id, name=request.name, status="cancelled"), "t-x")
            else:
                self.add(ElicitationResponse(request_id=request.request_id, action="cancel"), "t-x")
        if self._is_turn_open:
            self._is_turn_open = False
            self.add(StreamEnd(reason="aborted"), "t-x")

    async def abort(self, reason: str | None = None) -> AbortResult:
        self.aborts.append(reason)
        if not self._is_turn_open:
            return AbortResult(status="idle")
        running = self._running
        self._aborted = True
        if running:
            for request in list(self._waiting.values()):
                self.add(ToolResponse(request_id=request.request_id, name="", status="cancelled"), running)
            self._is_turn_open = False
            self.add(StreamEnd(reason="aborted"), running)
        else:
            self._settle()
        await anyio.lowlevel.checkpoint()
        return AbortResult(status="aborted")

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> FakeReader:
        return FakeReader(self, after or 0, follow, types)

    async def steer(self, data: Any) -> Receipt:
        return Receipt(status="queued")

    async def update(self, config: Any) -> Receipt:
        return Receipt(status="applied")

    async def aclose(self) -> None:
        self.closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class FakeExecutor:
    """Satisfies the part of AgentExecutor that a host uses."""

    def __init__(self, session: FakeSession) -> None:
        self._session = session
        self.descriptor = session.descriptor
        self.opened: list[Any] = []

    async def open(self, options: Any = None, *, store: Any = None) -> FakeSession:
        self.opened.append(options)
        return self._session

    async def load(self, session_id: str, options: Any = None, *, store: Any = None) -> FakeSession:
        self.opened.append(options)
        return self._session


def call(request_id: str, tool: str, needs: str = "result", /, **args: Any) -> ToolRequest:
    """A whole tool request."""
    return ToolRequest(
        request_id=request_id, name=tool, args=args, needs=needs, owner="agent" if needs == "grant" else "host"
    )


def said(text: str) -> Message:
    """A whole message of the agent."""
    return Message(message_id=f"m-{text}", content=[{"type": "text", "text": text}])  # type: ignore[list-item]
