"""A correct executor with one fault: what the suite sees of it goes through wrappers that a fault may bend.

For: the modules beside it, which hold the faults. Not for: judging them (``test_matrix.py``).

A fault is a subclass of :class:`Broken` that overrides one thing: what becomes of an event (:meth:`Broken.edit`, the
same for every reader and the record), what a reader does (:meth:`Broken.give`), what a call of the host does, or what
the agent does (:meth:`Broken.script`). All else is the scripted executor's.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from tests.conformance.broken._parts import Executor, Reader, Session, Stream, StreamInput
from tests.conformance.harnesses.scripted import harness as scripted

from agentsession.conformance.harness import Harness, Play
from agentsession.conformance.script import Script
from agentsession.protocol import (
    AbortResult,
    AgentDescriptor,
    AgentExecutor,
    Answer,
    Content,
    Event,
    ExecutionOptions,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    RecordStore,
    SessionConfig,
    SessionState,
    SteerData,
    as_answers,
)

__all__ = [
    "BROKEN",
    "Broken",
    "Executor",
    "Reader",
    "Session",
    "Stream",
    "StreamInput",
    "answers_in",
    "beside",
    "broken",
]

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


def answers_in(given: StreamInput) -> list[Answer] | None:
    """The answers that a stream is given; ``None`` for a message or nothing."""
    return None if given is None or isinstance(given, (str, MessageInput)) else list(as_answers(given))


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


def broken(rule: str) -> Any:
    """Register a class as an executor that breaks this rule."""

    def register(cls: type[Broken]) -> type[Broken]:
        cls.rule = rule
        BROKEN.setdefault(rule, []).append(cls)
        return cls

    return register
