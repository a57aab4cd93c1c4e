"""The suite's end of the wire: an executor and its sessions, as the contract has them, behind a process.

Not for: lines (``_process.py``), their shapes (``_wire.py``), reading (``_readers.py``). Rules carried: LIFE-06 and
WIRE-02 of what comes in, and through the state machine every rule that an order of events can break.
May import: ``agentsession.protocol``, anyio, ``harness``, the modules beside it.

A session folds each event that comes with a machine of its own, which blames the peer: its ``state`` and ``pending``
say what the events say. What breaks a rule is raised where the session is read, and closes it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from agentsession.conformance.harness import Play
from agentsession.conformance.stdio._process import Line, LineProcess
from agentsession.conformance.stdio._session import StdioSession
from agentsession.conformance.stdio._wire import Answered, Noted, Request, Rubbish, from_error, request_line
from agentsession.protocol import (
    PROTOCOL_VERSION,
    AgentDescriptor,
    AgentSessionError,
    ConfigurationError,
    ConnectionLost,
    Event,
    LifecycleInterceptor,
    OpenOptions,
    RecordInfo,
    RecordKey,
    RecordStore,
    Unimplemented,
    check_version,
    parse_descriptor,
)

__all__ = ["StdioExecutor"]

_GRACE_S: Final = 5.0
"""How long a process may take to end after its stdin was closed."""


T = TypeVar("T")

Result = Mapping[str, Any]


class _Slot(Generic[T]):
    """A call that waits for its answer, and what is made of that in the moment in which it comes."""

    def __init__(self, take: Callable[[Result], T]) -> None:
        self._take = take
        self.come = anyio.Event()
        self.made: T | None = None
        self.error: Exception | None = None

    def answered(self, answer: Answered) -> None:
        if answer.error is not None:
            self.error = from_error(answer.error)
        elif answer.result is not None:
            try:
                self.made = self._take(answer.result)
            except AgentSessionError as error:
                self.error = error
        self.come.set()


class StdioExecutor:
    """An executor in a process of its own; satisfies ``agentsession.protocol.AgentExecutor``.

    Record stores stay on the other side: what is passed as ``store`` is not used, and hooks are refused.
    """

    def __init__(
        self,
        command: Sequence[str],
        play: Play,
        *,
        start_s: float = 30.0,
        answer_s: float = 10.0,
        kill_at: int | None = None,
    ) -> None:
        """``start_s``: how long the process may take to answer ``start``, and ``answer_s`` to answer a call that
        cannot be awaited. ``kill_at``: kill it as soon as it has printed so many lines."""
        self.command = list(command)
        self._play = play
        self._start_s = start_s
        self._answer_s = answer_s
        self._kill_at = kill_at
        self._process: LineProcess | None = None
        self._group: TaskGroup | None = None
        self._descriptor: AgentDescriptor | None = None
        self._sessions: dict[str, StdioSession] = {}
        self._calls = 0
        self._slots: dict[int, _Slot[Any]] = {}
        self._over = anyio.Event()
        self.lost: ConnectionLost | None = None
        """Why nothing more comes from the process."""

    # -- its life -----------------------------------------------------------------------------------------------------

    @property
    def descriptor(self) -> AgentDescriptor:
        if self._descriptor is None:
            raise ConfigurationError("the executor is not running", fix="enter it: async with executor:")
        return self._descriptor

    @property
    def process_id(self) -> int:
        """The process's number."""
        if self._process is None:
            raise self._gone()
        return self._process.number

    @property
    def lines(self) -> int:
        """How many lines the process has printed."""
        return self._process.lines if self._process is not None else 0

    @property
    def was_killed(self) -> bool:
        """Whether the process has printed the line at which it was to be killed."""
        return self._kill_at is not None and self.lines >= self._kill_at

    def received(self, session_id: str) -> Sequence[Event]:
        """What has come of a session: its record as it was opened or loaded, then its events."""
        session = self._sessions.get(session_id)
        return [] if session is None else session.log.events

    async def __aenter__(self) -> Self:
        """Start the process.

        Raises:
            ConfigurationError: it cannot be started, did not answer ``start`` in time, or answered nonsense.
            CannotPlay: it says that it cannot play a step of the script.
        """
        try:
            self._process = LineProcess(self.command, kill_at=self._kill_at)
        except OSError as error:
            raise ConfigurationError(
                "the executor's command cannot be started", where=" ".join(self.command), got=str(error)
            ) from error
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        try:
            self._group.start_soon(self._pump, self._process)
            self._descriptor = await self._start()
        except BaseException:
            await self._leave(0.0)
            raise
        return self

    async def _start(self) -> AgentDescriptor:
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "script": self._play.script.model_dump(mode="json", exclude_none=True),
            "folder": str(self._play.folder),
        }
        try:
            with anyio.fail_after(self._start_s):
                result = await self.call("start", params, _as_it_is)
        except TimeoutError:
            said = "\n".join([f"the executor did not answer start within {self._start_s:g} s", *self.log()])
            raise ConfigurationError(said, where=" ".join(self.command)) from None
        except ConnectionLost as error:
            raise ConfigurationError(f"the executor did not start: {error.what}") from error
        version, descriptor = result.get("protocolVersion"), result.get("descriptor")
        if not isinstance(version, str) or not isinstance(descriptor, dict):
            raise ConfigurationError(
                "the executor's answer to start is not one", expected="an object with protocolVersion and descriptor"
            )
        check_version(version)
        return parse_descriptor(descriptor)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(_GRACE_S if kind is None and self.lost is None else 0.0)

    async def _leave(self, grace_s: float) -> None:
        """Whatever happens in here, also an interrupt: the process is gone when it is left."""
        process, group = self._process, self._group
        assert process is not None
        assert group is not None
        try:
            with anyio.CancelScope(shield=True):
                if grace_s > 0:
                    await process.leave(grace_s)
        finally:
            process.end()
            self._lose(ConnectionLost("the executor was left"))
            group.cancel_scope.cancel()
            self._group = None
            # The reason of leaving is not handed on: the group has no children that failed, and must not wrap it.
            await group.__aexit__(None, None, None)

    async def kill(self) -> None:
        """End the process by ``kill -9``; then take what it had printed."""
        if self._process is not None:
            self._process.kill()
            with anyio.move_on_after(_GRACE_S):
                await self._over.wait()

    def log(self) -> builtins.list[str]:
        """The last lines that the process has written to stderr."""
        return self._process.log() if self._process is not None else []

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def open(
        self,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> StdioSession:
        """Start a session (see ``AgentExecutor.open``)."""
        return await self._begin("open", options or OpenOptions(), hooks)

    async def load(
        self,
        session_id: str,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> StdioSession:
        """Open a stored session (see ``AgentExecutor.load``)."""
        return await self._begin("load", options or OpenOptions(), hooks, sessionId=session_id)

    async def fork(
        self,
        session_id: str,
        at: int,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> StdioSession:
        """Copy the record up to seq ``at`` to a new session (see ``AgentExecutor.fork``)."""
        return await self._begin("fork", options or OpenOptions(), hooks, sessionId=session_id, at=at)

    async def _begin(
        self, method: str, options: OpenOptions, hooks: LifecycleInterceptor | None, **params: Any
    ) -> StdioSession:
        if hooks is not None:
            raise Unimplemented("hooks do not go over the wire", fix="test them in the executor's own language")

        def take(result: Result) -> StdioSession:
            session_id, record = result.get("sessionId"), result.get("record")
            if not isinstance(session_id, str) or not isinstance(record, builtins.list):
                self.malformed(f"the answer to {method} has a sessionId and a record")
            session = self._sessions[session_id] = StdioSession(self, session_id, options)
            session.begin(record, is_new=method == "open")
            return session

        return await self.call(method, {**params, "options": options.to_wire()}, take)

    async def list(self, user_id: str = "local", *, store: RecordStore | None = None) -> Sequence[RecordInfo]:
        """The user's stored sessions (see ``AgentExecutor.list``)."""

        def take(result: Result) -> Sequence[RecordInfo]:
            found = result.get("sessions")
            if not isinstance(found, builtins.list):
                self.malformed("the answer to list has sessions")
            return [self._info(user_id, item) for item in found]

        return await self.call("list", {"userId": user_id}, take)

    def _info(self, user_id: str, item: Any) -> RecordInfo:
        session_id, last = (item.get("sessionId"), item.get("lastSeq")) if isinstance(item, dict) else (None, None)
        if not isinstance(session_id, str) or not isinstance(last, int):
            self.malformed("each session that list gives has a sessionId and a lastSeq")
        return RecordInfo(RecordKey(self.descriptor.name, user_id, session_id), last, last)

    async def delete(self, session_id: str, user_id: str = "local", *, store: RecordStore | None = None) -> None:
        """Remove a stored session (see ``AgentExecutor.delete``)."""
        await self.call("delete", {"sessionId": session_id, "userId": user_id}, _as_it_is)

    async def rewind(
        self, session_id: str, to: int, user_id: str = "local", *, store: RecordStore | None = None
    ) -> None:
        """Take back what came after seq ``to`` (see ``AgentExecutor.rewind``)."""
        await self.call("rewind", {"sessionId": session_id, "to": to, "userId": user_id}, _as_it_is)

    # -- what comes in ------------------------------------------------------------------------------------------------

    async def _pump(self, process: LineProcess) -> None:
        """Take what the process prints, to its end."""
        while self.lost is None and await process.more():
            for line in process.take():
                self._dispatch(line)
            for session in list(self._sessions.values()):
                session.log.tell()
        if self.lost is None:
            self._lose(ConnectionLost(await process.status(), fix="look at what it wrote to stderr"))
        self._over.set()

    def _dispatch(self, line: Line) -> None:
        if self.lost is not None:
            return
        match line:
            case Answered(id=id):
                slot = self._slots.pop(id, None)
                if slot is not None:
                    slot.answered(line)
                elif id > self._calls or id < 1:
                    self._refuse(f"an answer to the call {id}, which was not made")
            case Noted(kind="event", value=value):
                self._take_event(value)
            case Noted(kind="ran", value=value):
                name, args = value.get("name"), value.get("args", {})
                if isinstance(name, str) and isinstance(args, dict):
                    self._play.ran(name, args)
                else:
                    self._refuse("a tool that ran has a name and args")
            case Noted(value=value):
                mark = value.get("mark")
                if isinstance(mark, str) and self._group is not None:
                    self._group.start_soon(self._hold, mark)
                elif self._group is not None:
                    self._refuse("what was reached is a mark")
            case Rubbish(why=why, line=text):
                self._refuse(why, text)

    def _take_event(self, value: Mapping[str, Any]) -> None:
        session_id = value.get("sessionId")
        session = self._sessions.get(session_id) if isinstance(session_id, str) else None
        if session is None:
            self._refuse("an event of a session that is not open", str(session_id))
        else:
            session.take(value)

    async def _hold(self, mark: str) -> None:
        await self._play.hold(mark)
        self.tell("release", {"mark": mark})

    def _refuse(self, why: str, line: str = "") -> None:
        """The process has printed what nothing can be made of: nothing that follows can be relied on."""
        self._lose(ConnectionLost(f"the executor broke the wire: {why}", got=line or None))
        if self._process is not None:
            self._process.kill()

    def _lose(self, why: ConnectionLost) -> None:
        if self.lost is not None:
            return
        self.lost = why
        for session in self._sessions.values():
            session.fail(why)
        for slot in self._slots.values():
            slot.come.set()

    # -- what goes out ------------------------------------------------------------------------------------------------

    def _send(self, method: str, params: Mapping[str, Any], id: int | None) -> None:
        if self._process is None or self.lost is not None:
            raise self._gone()
        self._process.send(request_line(Request(method, params, id)))

    def _gone(self) -> ConnectionLost:
        return self.lost or ConnectionLost("the executor is not running", fix="enter it: async with executor:")

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell the executor something that it does not answer; nothing happens when it is gone."""
        with suppress(ConnectionLost):
            self._send(method, params, None)

    async def call(self, method: str, params: Mapping[str, Any], take: Callable[[Result], T]) -> T:
        """Ask, and wait for what ``take`` makes of the result, in the moment in which it comes.

        Raises what the executor answers, what ``take`` raises, or :class:`ConnectionLost`.
        """
        self._calls += 1
        number, slot = self._calls, _Slot(take)
        self._send(method, params, number)
        self._slots[number] = slot
        try:
            await slot.come.wait()
        finally:
            self._slots.pop(number, None)
        if slot.error is not None:
            raise slot.error
        if slot.made is None:
            raise self._gone()
        return slot.made

    def call_now(self, method: str, params: Mapping[str, Any]) -> tuple[Result, Sequence[Line]]:
        """Ask and wait without giving way to any task: the result, and the lines that came before it.

        As where the executor is in this process, such a call changes nothing that the session shows but by its answer:
        the lines before it are dispatched after it.
        """
        self._calls += 1
        self._send(method, params, self._calls)
        assert self._process is not None
        answer, before = self._process.wait_answer(self._calls, self._answer_s)
        if answer is None:
            if not self._process.is_over and not any(isinstance(line, Rubbish) for line in before):
                self._refuse(f"no answer to {method} within {self._answer_s:g} s")
            raise self.lost or ConnectionLost(f"the executor did not answer {method}", fix="look at its stderr")
        if answer.error is not None:
            raise from_error(answer.error)
        return answer.result or {}, before

    def malformed(self, what: str) -> NoReturn:
        """The executor has answered with something else than what was asked. Raises :class:`ConnectionLost`."""
        self._refuse(what)
        raise self._gone()


def _as_it_is(result: Result) -> Result:
    return result
