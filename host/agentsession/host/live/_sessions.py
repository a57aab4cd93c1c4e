"""The sessions of some agents, kept open for clients that come and go.

Not for: the calls on one of them (``_session.py``). Rules carried: PER-01 of sessions that are closed for idleness.
May import: anyio, ``_hosted``, ``_options``, ``_session``, ``protocol``.

Every session is its user's: it is found by agent, user and id together, so that no user meets another's. One task
closes idle sessions; none is kept for a session that nobody uses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType, TracebackType
from typing import Final, Self

import anyio
import anyio.abc

from agentsession.host.live._hosted import Hosted
from agentsession.host.live._options import Remembered, lasting, with_mode_recorded
from agentsession.host.live._session import LiveSession, ServedAgent
from agentsession.protocol import (
    AgentSession,
    AgentSessionError,
    ConfigurationError,
    MemoryRecordStore,
    OpenOptions,
    RecordInfo,
    RecordKey,
    SessionConfig,
    SessionNotFound,
    StreamActive,
)

__all__ = ["LiveSessions", "TooManySessions"]

logger = logging.getLogger("agentsession.host.live")

_CLOSES_S: Final = 30.0
_Key = tuple[str, RecordKey]
"""The name under which an agent is served, and the record: two agents served may have one descriptor's name."""


class TooManySessions(AgentSessionError):
    """As many sessions are open as may be, and each of them is used."""


class LiveSessions:
    """Opens, finds and closes the sessions of ``agents``; entered with ``async with``, which enters their executors.

    ``idle_s``: seconds after which a session that nobody uses is closed; what waits in it stays in the record where
    the agent declares ``resume``. ``abandoned_s``: the same for a waiting turn that could not be loaded again: it is
    settled then. ``max_open``: how many may be open at once. Raises :class:`ConfigurationError` for what cannot be.
    """

    def __init__(
        self,
        agents: Iterable[ServedAgent],
        *,
        idle_s: float = 300.0,
        abandoned_s: float = 24 * 3600.0,
        max_open: int = 1000,
    ) -> None:
        named = list(agents)
        if not named or idle_s <= 0 or abandoned_s < idle_s or max_open < 1:
            raise ConfigurationError(
                "these sessions cannot be served",
                where="LiveSessions",
                expected="an agent, idle_s above 0, abandoned_s not below it, max_open of 1 or more",
            )
        # A record is needed to load from: without a store of its own an agent's sessions last as long as this object.
        stored = [
            each if each.store is not None else dataclasses.replace(each, store=MemoryRecordStore()) for each in named
        ]
        self.agents: Mapping[str, ServedAgent] = MappingProxyType({each.name: each for each in stored})
        if len(self.agents) < len(named):
            raise ConfigurationError("two agents have one name", where="LiveSessions", fix="name them apart")
        self._idle_s = idle_s
        self._abandoned_s = abandoned_s
        self._max_open = max_open
        self._open: dict[_Key, LiveSession] = {}
        self._remembered: Remembered[_Key] = Remembered(max_open)
        self._busy: dict[_Key, anyio.Lock] = {}
        self._beginning = 0
        """Sessions that are being opened or loaded: each has its place."""
        self._changed = anyio.Event()
        self._stack = AsyncExitStack()
        self._tasks: anyio.abc.TaskGroup
        self._is_closed = False

    def __repr__(self) -> str:
        return f"LiveSessions({', '.join(self.agents)}: {len(self._open)} open)"

    @property
    def open_sessions(self) -> Sequence[LiveSession]:
        """Those that are open now."""
        return list(self._open.values())

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for executor in {id(each.executor): each.executor for each in self.agents.values()}.values():
                await stack.enter_async_context(executor)
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            self._tasks.start_soon(self._sweep)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        self._tasks.cancel_scope.cancel()
        await self._stack.aclose()

    async def stop(self) -> None:
        """Close all sessions, and open none from now on: a server calls it before it cuts connections.

        Turns that run are aborted, what waits stays in the record where the agent declares ``resume``, and readers end.
        """
        self._is_closed = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSES_S):
            async with anyio.create_task_group() as closing:
                for live in self.open_sessions:
                    live.is_stopping = True
                    closing.start_soon(self._close, live)

    # --- sessions --------------------------------------------------------------------------------------------------

    async def open(self, agent: str, user_id: str, options: OpenOptions | None = None) -> LiveSession:
        """Start a session of ``user_id``, whatever user the options name.

        Raises :class:`SessionNotFound` for an agent that there is not, :class:`TooManySessions`, and what the
        executor's ``open`` raises, such as SessionExists and InvalidInput.
        """
        served = self._agent(agent)
        full = served.completed((options or OpenOptions()).model_copy(update={"user_id": user_id}))
        if full.session_id is None:
            return await self._start(served, user_id, full, None)
        async with self._one(_key(served, user_id, full.session_id)):
            return await self._start(served, user_id, full, None)

    async def get(self, agent: str, user_id: str, session_id: str) -> LiveSession:
        """The session, loaded from its record unless it is open.

        Raises :class:`SessionNotFound`, also for one of another user, SessionBusy where another process has it,
        InvalidInput for what is no id, :class:`TooManySessions`.
        """
        served = self._agent(agent)
        key = _key(served, user_id, session_id)
        found = self._found(key)
        if found is not None:
            return found
        async with self._one(key):
            found = self._found(key)  # several may have waited for one load
            if found is not None:
                return found
            options = self._remembered.options(key, served.completed(OpenOptions(user_id=user_id)))
            return await self._start(served, user_id, options, session_id)

    async def load(self, agent: str, user_id: str, session_id: str, options: OpenOptions) -> LiveSession:
        """The session with these options, as ``AgentExecutor.load`` takes them: what its host can be asked, tools,
        limits. One that is open with others is closed and loaded with these, unless somebody uses it or its waiting
        turn could not be loaded again: then it stays as it is, and its ``options`` say how.
        Hosted, the permission mode is set all the same.

        Raises what :meth:`get` and the executor's ``load`` raise.
        """
        served = self._agent(agent)
        full = served.completed(options.model_copy(update={"user_id": user_id, "session_id": None}))
        if served.host is not None:
            served.host.options(full)  # what it would refuse at loading must not have closed one that is open
        key = _key(served, user_id, session_id)
        async with self._one(key):
            found = self._found(key)
            if found is not None:
                if lasting(found.options) == lasting(full):
                    return found
                if not self._may_close(found):
                    if served.host is not None and full.execution.permission_mode is not None:
                        await found.update(SessionConfig(permission_mode=full.execution.permission_mode))
                    return found
                await self._close(found)
            return await self._start(served, user_id, full, session_id)

    async def fork(
        self, agent: str, user_id: str, session_id: str, at: int, options: OpenOptions | None = None
    ) -> LiveSession:
        """Copy the record up to seq ``at`` to a new session (see ``AgentExecutor.fork``)."""
        served = self._agent(agent)
        full = served.completed((options or OpenOptions()).model_copy(update={"user_id": user_id}))
        if served.host is not None:
            served.host.options(full)  # what it would refuse when it opens the fork must not have made one
        async with self._room():
            made = await served.executor.fork(session_id, at, full, store=served.store)
            if served.host is None:
                return self._keep(served, user_id, made, None, full)
            key = _key(served, user_id, made.session_id)
            async with self._one(key):
                await made.aclose()  # the host opens its sessions itself
                self._remembered.note(key, full, frozenset(tool.name for tool in full.execution.tools or ()))
                found = self._found(key)
                if found is None:
                    found = await self._made(served, user_id, self._remembered.options(key, full), made.session_id)
                return found

    async def rewind(self, agent: str, user_id: str, session_id: str, to: int) -> None:
        """Take back what came after seq ``to`` (see ``AgentExecutor.rewind``).

        Raises :class:`StreamActive` also while a host's tool runs between two streams, which could not be taken back.
        """
        served = self._agent(agent)
        live = self._open.get(_key(served, user_id, session_id))
        if live is not None and live.is_busy:
            raise StreamActive("a session that is at work cannot be rewound", where=f"session {session_id}")
        await served.executor.rewind(session_id, to, user_id, store=served.store)

    async def list(self, agent: str, user_id: str) -> Sequence[RecordInfo]:
        """The user's stored sessions, newest first."""
        served = self._agent(agent)
        return await served.executor.list(user_id, store=served.store)

    async def delete(self, agent: str, user_id: str, session_id: str) -> None:
        """Close the session if it is open, and remove all that it holds. Raises :class:`SessionNotFound`."""
        served = self._agent(agent)
        key = _key(served, user_id, session_id)
        async with self._one(key):
            live = self._open.get(key)
            if live is not None:
                await self._close(live)
            self._remembered.forget(key)
            await served.executor.delete(session_id, user_id, store=served.store)

    async def close(self, live: LiveSession) -> None:
        """Close a session; it can be loaded again."""
        async with self._one(_key_of(live)):
            await self._close(live)

    # --- how -------------------------------------------------------------------------------------------------------

    def _agent(self, name: str) -> ServedAgent:
        served = self.agents.get(name)
        if served is None:
            raise SessionNotFound(
                f"there is no agent {name[:64]!r}", expected=", ".join(self.agents), id="agent-not-found"
            )
        return served

    def _found(self, key: _Key) -> LiveSession | None:
        live = self._open.get(key)
        if live is not None and live.state == "closed":
            self._remembered.note(key, live.options, live.client_tools)
            del self._open[key]
            return None
        if live is not None:
            if live.is_closing:
                return None  # whoever asks waits for the lock, and loads it
            live.used_at = anyio.current_time()  # before it is handed out: who has it is about to use it
        return live

    @contextlib.asynccontextmanager
    async def _one(self, key: _Key) -> AsyncGenerator[None]:
        """One at a time opens, loads, closes or deletes a session."""
        lock = self._busy.setdefault(key, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.statistics().locked and not lock.statistics().tasks_waiting:
                self._busy.pop(key, None)

    async def _start(self, served: ServedAgent, user_id: str, options: OpenOptions, load: str | None) -> LiveSession:
        async with self._room():
            return await self._made(served, user_id, options, load)

    async def _made(self, served: ServedAgent, user_id: str, options: OpenOptions, load: str | None) -> LiveSession:
        if served.host is None:
            if load is None:
                session = await served.executor.open(options, store=served.store)
            else:
                session = await served.executor.load(load, options, store=served.store)
            hosted = None
        else:
            hosted = Hosted(served.host, user_id, self._tasks)
            hosted.client_tools.update(tool.name for tool in options.execution.tools or [])
            if load is not None:
                hosted.client_tools.update(self._remembered.names(_key(served, user_id, load)))
            session = await served.host.open(
                served.executor,
                options,
                load=load,
                store=served.store,
                channel=hosted.desk,
                client_tools=hosted.tools,
            )
            hosted.begin(session)
            try:
                options = await with_mode_recorded(session, options)
            except BaseException:  # nobody has it, so nobody else would close it
                with anyio.CancelScope(shield=True):
                    await _close_quietly(hosted, session.session_id)
                raise
        return self._keep(served, user_id, session, hosted, options)

    def _keep(
        self,
        served: ServedAgent,
        user_id: str,
        session: AgentSession,
        hosted: Hosted | None,
        options: OpenOptions,
    ) -> LiveSession:
        key = RecordKey(session.descriptor.name, user_id, session.session_id)
        live = self._open[served.name, key] = LiveSession(key, served, session, hosted, self._tell, options)
        self._remembered.forget((served.name, key))
        self._tell()
        return live

    @contextlib.asynccontextmanager
    async def _room(self) -> AsyncGenerator[None]:
        """A place for one more; where there are too many, the one that was longest not used is closed."""
        if self._is_closed:
            raise TooManySessions("the server is stopping", fix="try again later", id="stopping")
        self._beginning += 1  # before anything is awaited: several may begin at once
        try:
            while len(self._open) + self._beginning > self._max_open:
                idle = [live for live in self._open.values() if self._may_close(live) and not live.is_closing]
                if not idle:
                    raise TooManySessions(
                        f"{len(self._open)} sessions are open, and all of them are used",
                        fix="try again later, or serve with more: max_open",
                        id="too-many-sessions",
                    )
                longest = min(idle, key=lambda live: live.used_at)
                async with self._one(_key_of(longest)):  # else who asks for it meanwhile would find it locked
                    if self._may_close(longest):
                        await self._close(longest)
            yield
        finally:
            self._beginning -= 1

    def _may_close(self, live: LiveSession) -> bool:
        if live.is_held or live.is_busy:
            return False
        return live.state != "input_required" or live.descriptor.supports("resume")

    async def _close(self, live: LiveSession) -> None:
        live.is_closing = True
        self._remembered.note(_key_of(live), live.options, live.client_tools)
        try:
            await _close_quietly(live, live.session_id)
        finally:
            if self._open.get(_key_of(live)) is live:
                del self._open[_key_of(live)]

    def _due(self, live: LiveSession) -> float:
        may_close = self._may_close(live) or live.is_held or live.is_busy
        return live.used_at + (self._idle_s if may_close else self._abandoned_s)

    async def _close_unused(self, live: LiveSession) -> None:
        """Close it unless somebody took it up while its lock was waited for."""
        async with self._one(_key_of(live)):
            if not (live.is_held or live.is_busy) and self._due(live) <= anyio.current_time():
                await self._close(live)

    async def _sweep(self) -> None:
        """The one task that closes what nobody uses."""
        while True:
            now = anyio.current_time()
            nearest = float("inf")
            for live in self.open_sessions:
                if live.state == "closed":
                    self._found(_key_of(live))  # takes it out
                    continue
                if live.is_closing:
                    continue
                is_busy = live.is_held or live.is_busy
                if is_busy or live.was_busy:  # nobody may tell when its work ends: that is seen at the next look
                    live.used_at = now
                live.was_busy = is_busy
                due = self._due(live)
                if due <= now:
                    await self._close_unused(live)
                else:
                    nearest = min(nearest, due)
            changed = self._changed = anyio.Event()
            with anyio.move_on_after(max(nearest - anyio.current_time(), 0.0)):
                await changed.wait()
                # Much may change at once: looking at each change would cost the square of the sessions.
                await anyio.sleep(min(1.0, self._idle_s / 2))

    def _tell(self) -> None:
        self._changed.set()


def _key(served: ServedAgent, user_id: str, session_id: str) -> _Key:
    """Raises :class:`InvalidInput` for what is no id."""
    return served.name, RecordKey(served.executor.descriptor.name, user_id, session_id)


async def _close_quietly(closing: LiveSession | Hosted, session_id: str) -> None:
    try:
        await closing.aclose()
    except Exception as error:  # noqa: BLE001 - one that fails must not keep the others open
        logger.warning("session %s failed to close: %s", session_id, type(error).__name__)


def _key_of(live: LiveSession) -> _Key:
    return live.agent.name, live.key
