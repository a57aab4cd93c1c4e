"""Executors that break the rules of PER, WIRE and SEC."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any

from tests.conformance.broken._wrap import Broken, Executor, Session, Stream, StreamInput, answers_in, broken
from tests.conformance.harnesses.scripted import ScriptedHarness, reentered

from agentsession.adapters import scripted
from agentsession.conformance import script
from agentsession.conformance.harness import Play
from agentsession.protocol import (
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    ExecutionOptions,
    MessageInput,
    OpenOptions,
    PendingRequest,
    Receipt,
    RecordInfo,
    RecordKey,
    RecordStore,
    SessionConfig,
    SessionState,
    StreamEnd,
    Text,
    ToolResponse,
)


@broken("PER-01")
class ForgetsWhatWaited(Broken):
    """A session that is loaded while calls wait has them cancelled, and its turn is over."""

    # R54, R83: the open requests do not survive a reload.
    inner = reentered

    async def load(
        self, executor: Executor, session_id: str, options: OpenOptions | None, given: dict[str, Any]
    ) -> Session:
        session = await super().load(executor, session_id, options, given)
        if session.inner.state == "input_required":
            await session.inner.abort("a new process")
        return session


@broken("PER-01")
class RenamesWhatWaits(Broken):
    """After a restart the requests that wait have other ids."""

    # R54, R01: who answers by the id that it knows is not understood.
    inner = reentered

    async def load(
        self, executor: Executor, session_id: str, options: OpenOptions | None, given: dict[str, Any]
    ) -> Session:
        session = await super().load(executor, session_id, options, given)
        session.memory["loaded"] = True
        return session

    def pending(self, session: Session) -> Sequence[PendingRequest]:
        waiting = super().pending(session)
        if "loaded" not in session.memory:
            return waiting
        return [request.model_copy(update={"request_id": f"{request.request_id}-2"}) for request in waiting]


class _Lossy:
    """A store that keeps no event of some types."""

    def __init__(self, inner: RecordStore, *lost: str) -> None:
        self._inner = inner
        self._lost = lost

    async def create(self, key: RecordKey) -> None:
        await self._inner.create(key)

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        kept = [event for event in events if event.type not in self._lost]
        await self._inner.append(key, kept, reserved_seq=reserved_seq)

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> builtins.list[Event]:
        return await self._inner.read(key, after=after, limit=limit)

    async def info(self, key: RecordKey) -> RecordInfo:
        return await self._inner.info(key)

    async def list(self, agent: str, user_id: str) -> builtins.list[RecordInfo]:
        return await self._inner.list(agent, user_id)

    async def delete(self, key: RecordKey) -> None:
        await self._inner.delete(key)

    async def lock(self, key: RecordKey, owner: str) -> None:
        await self._inner.lock(key, owner)

    async def unlock(self, key: RecordKey, owner: str) -> None:
        await self._inner.unlock(key, owner)


@broken("PER-02")
class KeepsUpdatesInMemory(Broken):
    """An update is acknowledged and in force, but not stored."""

    # R79, R81: what was set is not there when the session is read again.
    def kept(self, store: RecordStore) -> RecordStore:
        return _Lossy(store, "session_update")


@broken("PER-02")
class KeepsAnswersInMemory(Broken):
    """An answer is acknowledged before it is stored, and is lost with the process."""

    # R54, R79: the host's result is not there after a restart.
    def kept(self, store: RecordStore) -> RecordStore:
        return _Lossy(store, "tool_response")


@broken("PER-03")
class IsIdleBeforeItBegan(Broken):
    """A new session says that it is idle, as if it had had a turn."""

    def state(self, session: Session) -> SessionState:
        state = super().state(session)
        return "idle" if state == "new" else state


@broken("PER-03")
class ListsWhatWasAnsweredLast(Broken):
    """What waits is listed with a call whose answer is in the record, until the turn goes on."""

    # R62: the list does not follow the record.
    def pending(self, session: Session) -> Sequence[PendingRequest]:
        waiting = super().pending(session)
        known: builtins.list[PendingRequest] = session.memory.setdefault("known", [])
        known += [request for request in waiting if request not in known]
        return known if session.inner.state == "input_required" and not waiting else waiting


@broken("PER-04")
class CallsACutTurnComplete(Broken):
    """A turn that was cut by the death of the process is closed as completed when it is loaded."""

    # R23, R102: a turn that was cut looks like one that ended.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, StreamEnd) and (event.data or {}).get("cause") == "lost":
            event = event.model_copy(update={"reason": "completed"})
        yield event


@broken("PER-04")
class WritesAtEveryLoad(Broken):
    """Each load leaves an event of its own in the record."""

    # R77: loading is not read-only.
    async def load(
        self, executor: Executor, session_id: str, options: OpenOptions | None, given: dict[str, Any]
    ) -> Session:
        session = await super().load(executor, session_id, options, given)
        await session.inner.update(SessionConfig(state={"loaded": True}))
        return session


@broken("PER-04")
class CallsACutToolCancelled(Broken):
    """A tool that ran when the process died is answered as if it had never begun."""

    # R25: nobody is told that the tool may have done its work.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolResponse) and event.status == "unknown" and session.memory.get("loaded"):
            event = event.model_copy(update={"status": "cancelled"})
        yield event

    async def load(
        self, executor: Executor, session_id: str, options: OpenOptions | None, given: dict[str, Any]
    ) -> Session:
        session = await super().load(executor, session_id, options, given)
        session.memory["loaded"] = True
        return session


@broken("PER-05")
class ForksAtTheEnd(Broken):
    """A fork has the whole record, wherever it was asked for."""

    # R85: what came after the point is still there.
    async def fork(
        self, executor: Executor, session_id: str, at: int, options: OpenOptions | None, given: dict[str, Any]
    ) -> Session:
        last = executor.opened[session_id].last_seq
        made = await super().fork(executor, session_id, at, options, given)
        if at == last:
            return made
        await made.inner.aclose()
        return await super().fork(executor, session_id, last, options, given)


@broken("PER-05")
class FailsWhatAForkSettles(Broken):
    """Calls that waited at the point of a fork are answered in the fork as if their tools had failed."""

    # R42, R62: what waits is carried over half.
    async def fork(
        self, executor: Executor, session_id: str, at: int, options: OpenOptions | None, given: dict[str, Any]
    ) -> Session:
        session = await super().fork(executor, session_id, at, options, given)
        session.memory["fork"] = True
        return session

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolResponse) and event.status == "cancelled" and session.memory.get("fork"):
            event = event.model_copy(update={"status": "failed", "is_error": True})
        yield event


@broken("PER-06")
class RewindsNothing(Broken):
    """A rewind returns and leaves everything as it was."""

    # R85: the rewind does not take effect.
    async def rewind(self, executor: Executor, session_id: str, to: int, user_id: str, given: dict[str, Any]) -> None:
        session = executor.opened[session_id]
        if session.inner.state != "idle" or to > session.last_seq:
            await super().rewind(executor, session_id, to, user_id, given)


@broken("PER-06")
class FailsWhatARewindSettles(Broken):
    """Calls that wait when their turn is rewound are answered as if their tools had failed."""

    async def rewind(self, executor: Executor, session_id: str, to: int, user_id: str, given: dict[str, Any]) -> None:
        session = executor.opened[session_id]
        session.memory["rewound"] = [request.request_id for request in session.inner.pending]
        await super().rewind(executor, session_id, to, user_id, given)

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolResponse) and event.request_id in session.memory.get("rewound", ()):
            event = event.model_copy(update={"status": "failed", "is_error": True})
        yield event


@broken("WIRE-01")
class KeepsTextAlone(Broken):
    """Of the user's message the text is kept, and what else a part says is dropped."""

    # R15, R48: fields that one side does not know are lost on the way.
    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        if isinstance(given, MessageInput):
            plain = [Text(text=part.text) for part in given.content if isinstance(part, Text)]
            given = given.model_copy(update={"content": plain})
        return super().stream(session, given, options)


@broken("WIRE-01")
class TakesNullForAbsent(Broken):
    """What is null in a tool's result is left out of the record."""

    # R31: values are changed on the way to the store.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolResponse):
            event = event.model_copy(update={"data": _without_null(event.data)})
        yield event


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_null(item) for name, item in value.items() if item is not None}
    return value


@broken("WIRE-02")
class WritesTheTimeInItsOwnWay(Broken):
    """The time of an event is written as seconds."""

    # R79, R97: events without a proper time.
    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        yield event.model_copy(update={"timestamp": "1781000000.123"})


@broken("WIRE-02")
class HasContentThatIsNoList(Broken):
    """The content of a tool's response is a text, not a list of parts."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolResponse):
            event = event.model_copy(update={"content": "done"})
        yield event


class _Telling(ScriptedHarness):
    def step(self, play: Play, step: script.Step) -> scripted.Step:
        if isinstance(step, script.Raise):
            return scripted.Fail(step.message, fatal=True)
        return super().step(play, step)


@broken("SEC-01")
class TellsWhatAnExceptionSays(Broken):
    """The text of an exception is the message of its error event."""

    # R34, R112: an error repeats what it was told.
    inner = _Telling()


@broken("SEC-01")
class ShowsATraceback(Broken):
    """The model is told of a tool that failed with the whole traceback."""

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ToolResponse) and event.status == "failed" and event.name == "crash":
            told = 'Traceback (most recent call last):\n  File "tool.py", line 1, in crash'
            event = event.model_copy(update={"data": {"error": told}})
        yield event


@broken("SEC-01")
class RecordsACredential(Broken):
    """The credential that a person gives is in the record as it was given."""

    # R112: keys and tokens are shown to the client.
    async def respond(self, session: Session, answers: Sequence[Answer]) -> Sequence[Receipt]:
        self._remember(session, answers)
        return await super().respond(session, answers)

    def stream(self, session: Session, given: StreamInput, options: ExecutionOptions | None) -> Stream:
        self._remember(session, answers_in(given) or ())
        return super().stream(session, given, options)

    def _remember(self, session: Session, answers: Sequence[Answer]) -> None:
        session.memory |= {one.request_id: one.content for one in answers if isinstance(one, ElicitationAnswer)}

    def edit(self, session: Session, event: Event) -> Iterable[Event]:
        if isinstance(event, ElicitationRequest) and event.kind == "auth_required":
            session.memory["auth"] = event.request_id
        if isinstance(event, ElicitationResponse) and session.memory.get("auth") == event.request_id:
            event = event.model_copy(update={"content": session.memory.get(event.request_id)})
        yield event
