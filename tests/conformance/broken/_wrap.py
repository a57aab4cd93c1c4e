"""A correct executor with one fault: what the suite sees of it goes through wrappers that a fault may bend.

For: the modules beside it, which hold the faults. Not for: judging them (``test_matrix.py``).

A fault is a subclass of :class:`Broken` that overrides one thing: what becomes of an event (:meth:`Broken.edit`, the
same for every reader and the record), what a reader does (:meth:`Broken.give`), what a call of the host does, or what
the agent does (:meth:`Broken.script`). All else is the scripted executor's.
"""

from __future__ import annotations

import builtins
import copy
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from tests.conformance.harnesses.scripted import harness as scripted

from agentsession.adapters.base import BaseSession
from agentsession.conformance.harness import Harness, Play
from agentsession.conformance.script import Script
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

__all__ = ["BROKEN", "Broken", "Executor", "Reader", "Session", "Stream", "StreamInput", "beside", "broken"]

StreamInput = str | MessageInput | Answer | Sequence[Answer] | None

BROKEN: Final[dict[str, list[type[Broken]]]] = {}
"""Every broken executor, by the rule that it breaks."""


class Broken(Harness):
    """Makes executors that have one fault. The docstring of a subclass is the fault, in one sentence."""

    rule: ClassVar[str] = ""
    """The rule that is broken, and no other."""
    inner: ClassVar[Harness] = scripted
    """Makes the correct executor."""
    stride: ClassVar[int] = 1
    """How many seqs each event of the correct executor has, so that others may be put beside it."""

    @property
    def title(self) -> str:
        """The class's name in words."""
        words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(self).__name__)
        return words.strip()

    def executor(self, play: Play) -> AgentExecutor:
        played = copy.copy(play)  # what it tells the suite it tells through either
        played.script = self.script(play.script)
        played.store = self.kept(play.store)
        return Executor(self, self.inner.executor(played), play)

    def store(self, folder: Path) -> RecordStore:
        return self.inner.store(folder)

    # -- what a fault may bend ----------------------------------------------------------------------------------------

    def script(self, script: Script) -> Script:
        """The script that is played instead."""
        return script

    def kept(self, store: RecordStore) -> RecordStore:
        """The store that is used instead."""
        return store

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        """What the record has instead of ``event``; called once for each event, in their order."""
        return (event,)

    def give(self, reader: Reader, event: Event) -> Iterable[Event]:
        """What one reader gives instead of an event of the record."""
        return (event,)

    def describe(self, descriptor: AgentDescriptor) -> AgentDescriptor:
        """What the executor says of itself."""
        return descriptor

    def state(self, session: Session) -> SessionState:
        return session.inner.state

    def pending(self, session: Session) -> Sequence[PendingRequest]:
        return session.inner.pending

    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        return Stream(session, session.inner.stream(given, options))

    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        return await session.inner.respond(*answers)

    async def steer(self, session: Session, data: Content | SteerData) -> Receipt:
        return await session.inner.steer(data)

    async def update(self, session: Session, config: SessionConfig) -> Receipt:
        return await session.inner.update(config)

    async def abort(self, session: Session, reason: str | None) -> AbortResult:
        return await session.inner.abort(reason)

    async def aclose(self, session: Session) -> None:
        await session.inner.aclose()

    def events(self, session: Session, after: int | None, follow: bool, filters: dict[str, Any]) -> Reader:
        return session.reader(after, follow, filters)

    async def open(self, executor: Executor, options: OpenOptions | None, given: dict[str, Any]) -> Session:
        return Session(executor, await executor.inner.open(options, **given))

    async def load(
        self, executor: Executor, session_id: str, options: OpenOptions | None, given: dict[str, Any]
    ) -> Session:
        return Session(executor, await executor.inner.load(session_id, options, **given))

    async def fork(
        self, executor: Executor, session_id: str, at: int, options: OpenOptions | None, given: dict[str, Any]
    ) -> Session:
        return Session(executor, await executor.inner.fork(session_id, executor.place(at), options, **given))

    async def rewind(self, executor: Executor, session_id: str, to: int, user_id: str, given: dict[str, Any]) -> None:
        await executor.inner.rewind(session_id, executor.place(to), user_id, **given)

    async def leave(self, stream: Stream) -> None:
        """A stream is left, perhaps before its end."""

    async def enter(self, reader: Reader) -> None:
        """A reader is entered."""
        await reader.inner.__aenter__()

    def cursor(self, reader: Reader) -> int:
        return reader.passed


def beside(event: Event, cls: type[Event], name: str, **fields: Any) -> Event:
    """An event of another kind that stands where ``event`` stands."""
    stamps: dict[str, Any] = {
        "id": f"{event.id}-{name}",
        "seq": event.seq,
        "timestamp": event.timestamp,
        "session_id": event.session_id,
        "stream_id": event.stream_id,
        "turn_id": event.turn_id,
        "thread_id": event.thread_id,
    }
    return cls(**{key: value for key, value in {**stamps, **fields}.items() if value is not None})


def _moved(event: Event, seq: int, place: Callable[[int], int]) -> Event:
    """``event`` at another seq; a rewind then names the end of another place too."""
    fields: dict[str, Any] = {"seq": seq}
    to = rewind_point(event)
    if to is not None and isinstance(event, Custom):
        fields["data"] = {**event.data, "to_seq": place(to + 1) - 1}
    return event.model_copy(update=fields)


def broken(rule: str) -> Any:
    """Register a class as an executor that breaks this rule."""

    def register(cls: type[Broken]) -> type[Broken]:
        cls.rule = rule
        BROKEN.setdefault(rule, []).append(cls)
        return cls

    return register


class Executor:
    """The executor with the fault."""

    def __init__(self, fault: Broken, inner: AgentExecutor, play: Play) -> None:
        self.fault = fault
        self.inner = inner
        self.play = play
        self.memory: dict[str, Any] = {}

    @property
    def descriptor(self) -> AgentDescriptor:
        return self.fault.describe(self.inner.descriptor)

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self.inner.__aexit__(kind, error, trace)

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
            return self.inner.last_seq + 1
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
