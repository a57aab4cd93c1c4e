"""The wrappers around a correct executor, its sessions, readers and streams, which ask a fault what to do.

Not for: the faults. See ``_wrap.py``. The signatures are those of the protocol, spelled out and not ``**given``: so the
type checkers hold a wrapper to all that a host may call.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio.abc import TaskGroup

from agentsession.adapters.base import BaseSession
from agentsession.conformance.harness import Play
from agentsession.protocol import (
    AbortResult,
    AgentDescriptor,
    AgentExecutor,
    AgentSession,
    Answer,
    Content,
    Custom,
    Event,
    EventReader,
    EventStream,
    ExecutionOptions,
    LifecycleInterceptor,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    RecordInfo,
    RecordStore,
    SessionConfig,
    SessionState,
    SteerData,
    StreamEnd,
    rewind_point,
)

if TYPE_CHECKING:
    from tests.conformance.broken._wrap import Broken

__all__ = ["Executor", "Reader", "Session", "Stream", "StreamInput"]

StreamInput = str | MessageInput | Answer | Sequence[Answer] | None


class Executor:
    """The executor with the fault."""

    def __init__(self, fault: Broken, inner: AgentExecutor, play: Play) -> None:
        self.fault = fault
        self.inner = inner
        self.play = play
        self.opened: dict[str, Session] = {}
        """The sessions by their ids."""
        self._group: TaskGroup

    @property
    def descriptor(self) -> AgentDescriptor:
        return self.fault.describe(self.inner.descriptor)

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        self._group = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self._group.__aexit__(None, None, None)
        return await self.inner.__aexit__(kind, error, trace)

    def later(self, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Make a call beside what goes on."""
        self._group.start_soon(call)

    def place(self, seq: int) -> int:
        """The seq of the correct executor that stands behind one of the faulty one's."""
        return -(-seq // self.fault.stride)

    def _given(self, store: RecordStore | None, **more: Any) -> dict[str, Any]:
        return {"store": None if store is None else self.fault.kept(store), **more}

    async def open(
        self,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> AgentSession:
        return await self.fault.open(self, options, self._given(store, hooks=hooks))

    async def load(
        self,
        session_id: str,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> AgentSession:
        return await self.fault.load(self, session_id, options, self._given(store, hooks=hooks))

    async def list(self, user_id: str = "local", *, store: RecordStore | None = None) -> Sequence[RecordInfo]:
        return await self.inner.list(user_id, **self._given(store))

    async def delete(self, session_id: str, user_id: str = "local", *, store: RecordStore | None = None) -> None:
        await self.inner.delete(session_id, user_id, **self._given(store))

    async def fork(
        self,
        session_id: str,
        at: int,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> AgentSession:
        return await self.fault.fork(self, session_id, at, options, self._given(store, hooks=hooks))

    async def rewind(
        self, session_id: str, to: int, user_id: str = "local", *, store: RecordStore | None = None
    ) -> None:
        await self.fault.rewind(self, session_id, to, user_id, self._given(store))


class Session:
    """A session of it. ``memory`` is the fault's own."""

    def __init__(self, executor: Executor, inner: AgentSession) -> None:
        assert isinstance(inner, BaseSession)
        self.executor = executor
        self.fault = executor.fault
        self.inner: BaseSession = inner
        executor.opened[inner.session_id] = self
        self.memory: dict[str, Any] = {}
        self._edited: dict[int, list[Event]] = {}
        self._known = 0

    @property
    def session_id(self) -> str:
        return self.inner.session_id

    @property
    def descriptor(self) -> AgentDescriptor:
        return self.executor.descriptor

    @property
    def state(self) -> SessionState:
        return self.fault.state(self)

    @property
    def pending(self) -> Sequence[PendingRequest]:
        return self.fault.pending(self)

    @property
    def last_seq(self) -> int:
        last = self.inner.last_seq
        edited = self.edited(last)
        return edited[-1].seq if self.fault.stride > 1 and edited else last

    def edited(self, seq: int) -> list[Event]:
        """What the record has for the correct executor's event of this seq."""
        for event in self._new(seq):
            made = list(self.fault.edit(self, event))
            if self.fault.stride > 1:
                first = self._first(event.seq)
                made = [_moved(one, first + number, self._first) for number, one in enumerate(made)]
            self._edited[event.seq] = made
        return self._edited.get(seq, [])

    def _first(self, seq: int) -> int:
        """Where the place of the correct executor's event begins."""
        return (seq - 1) * self.fault.stride + 1

    def _new(self, seq: int) -> builtins.list[Event]:
        if seq <= self._known:
            return []
        new: list[Event] = []
        for event in reversed(self.inner.record):
            if event.seq <= self._known:
                break
            if event.seq <= seq:
                new.append(event)
        self._known = seq
        return new[::-1]

    def reader(self, after: int | None, follow: bool, filters: dict[str, Any]) -> Reader:
        """A reader as it should be."""
        return Reader(
            self,
            self.inner.events(self._place(after), follow, **filters),
            after or 0,
            follow=follow,
            filtered=bool(filters),
        )

    def _place(self, after: int | None) -> int | None:
        if after is None or self.fault.stride == 1:
            return after
        if after > self.last_seq:
            return after
        place = self.executor.place(after)
        edited = self.edited(place)
        return place - 1 if edited and after < edited[-1].seq else place

    def stream(self, input: StreamInput = None, options: ExecutionOptions | None = None) -> EventStream:
        return self.fault.stream(self, input, options)

    async def respond(self, *answers: Answer) -> Sequence[Receipt]:
        return await self.fault.respond(self, answers)

    async def steer(self, data: Content | SteerData) -> Receipt:
        return await self.fault.steer(self, data)

    async def update(self, config: SessionConfig) -> Receipt:
        return await self.fault.update(self, config)

    async def abort(self, reason: str | None = None) -> AbortResult:
        return await self.fault.abort(self, reason)

    def events(
        self,
        after: int | None = None,
        follow: bool = False,
        *,
        types: Collection[str] | None = None,
        stream_id: str | None = None,
        thread_id: str | None = None,
    ) -> EventReader:
        filters = {"types": types, "stream_id": stream_id, "thread_id": thread_id}
        wanted = {name: value for name, value in filters.items() if value is not None}
        return self.fault.events(self, after, follow, wanted)

    async def aclose(self) -> None:
        await self.fault.aclose(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Reader:
    """A reader of it."""

    def __init__(
        self, session: Session, inner: EventReader, after: int, *, follow: bool = True, filtered: bool = False
    ) -> None:
        self.session = session
        self.fault = session.fault
        self.inner = inner
        self.after = after
        self.follow = follow
        self.filtered = filtered
        self.entered = False
        self.memory: dict[str, Any] = {}
        self.given = False
        """Whether it has given anything."""
        self.last = after
        """The seq of the event that it gave last."""
        self._ready: builtins.list[Event] = []

    @property
    def cursor(self) -> int:
        return self.fault.cursor(self)

    @property
    def passed(self) -> int:
        """The seq up to which the record was passed."""
        if self.fault.stride == 1 or self._ready:
            return self.inner.cursor if self.fault.stride == 1 else self.last
        edited = self.session.edited(self.inner.cursor)
        return max(self.last, edited[-1].seq) if edited else self.last

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            event = await anext(self.inner)
            edited = self.session.edited(event.seq)
            if self.fault.stride > 1:
                edited = [one for one in edited if one.seq > self.after]
            self._ready = [given for one in edited for given in self.fault.give(self, one)]
        event = self._ready.pop(0)
        self.last = event.seq
        return event

    async def __aenter__(self) -> Self:
        self.entered = True
        await self.fault.enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        await self.inner.aclose()


class Stream(Reader):
    """A stream of it."""

    def __init__(self, session: Session, inner: EventStream) -> None:
        super().__init__(session, inner, 0)
        self.of: EventStream = inner
        self.end: StreamEnd | None = None
        self.receipts: Sequence[Receipt] = inner.receipts

    @property
    def stream_id(self) -> str:
        return self.of.stream_id

    @property
    def turn_id(self) -> str:
        return self.of.turn_id

    async def __anext__(self) -> Event:
        event = await super().__anext__()
        if isinstance(event, StreamEnd):
            self.end = event
        return event

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.fault.leave(self)
        await super().__aexit__(kind, error, trace)


def _moved(event: Event, seq: int, place: Callable[[int], int]) -> Event:
    """``event`` at another seq; a rewind then names the end of another place too."""
    fields: dict[str, Any] = {"seq": seq}
    to = rewind_point(event)
    if to is not None and isinstance(event, Custom):
        fields["data"] = {**event.data, "to_seq": place(to + 1) - 1}
    return event.model_copy(update=fields)
