"""How an executor's sessions begin: new, from a stored record, or from a part of another session's.

Not for: what a session does then (``_session.py``), or what the agent behind needs (the executor's ``on_…`` methods).
Rules carried: PER-01, PER-04, PER-05. May import: ``agentsession.protocol``, anyio, the modules beside it.

A session that cannot be started leaves nothing behind: neither a record, nor its lock, nor what the agent has made.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from agentsession.adapters.base._arguments import need
from agentsession.adapters.base._limits import check_limits, deadline_ms
from agentsession.adapters.base._loading import read_record
from agentsession.adapters.base._session import BaseSession
from agentsession.adapters.base._stamping import restamp
from agentsession.protocol import (
    PROTOCOL_VERSION,
    ConfigurationError,
    CursorGone,
    Event,
    Initialize,
    InvalidInput,
    LifecycleInterceptor,
    OpenOptions,
    RecordKey,
    RecordStore,
    SessionBusy,
    SessionExists,
    SessionMachine,
    SessionNotFound,
    SessionUpdate,
    check_version,
    is_ephemeral,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._executor import BaseExecutor

__all__ = ["SessionOpener", "new_owner"]

_logger = logging.getLogger("agentsession.adapters")


class SessionOpener:
    """Makes the sessions of one executor, and enters them in ``sessions``, which the executor keeps."""

    def __init__(self, executor: BaseExecutor, sessions: dict[RecordKey, BaseSession]) -> None:
        self._executor = executor
        self._sessions = sessions

    async def open(
        self, options: OpenOptions | None, store: RecordStore | None, hooks: LifecycleInterceptor | None
    ) -> BaseSession:
        """A new session (see ``AgentExecutor.open``)."""
        executor = self._executor
        executor.task_group  # noqa: B018  # raises when the executor is not entered
        options = self.checked(options)
        kept = None if options.execution.ephemeral else (store or executor.store)

        async def ready(session: BaseSession) -> None:
            session.recorder.record(
                Initialize(
                    protocol_version=PROTOCOL_VERSION,
                    workspace=options.workspace,
                    config_schema=executor.descriptor.config_schema,
                    descriptor=executor.descriptor,
                    agent_id=executor.descriptor.name,
                    source="host",
                )
            )
            if options.execution.state:
                session.recorder.record(SessionUpdate(state_delta=options.execution.state, source="host"))
            await executor.on_open(session)

        return await self.begin(self.new_key(options), options, kept, hooks, ready, reason="opened")

    async def load(
        self,
        session_id: str,
        options: OpenOptions,
        store: RecordStore | None,
        hooks: LifecycleInterceptor | None,
    ) -> BaseSession:
        """A stored session, repaired where it was cut off (see ``AgentExecutor.load``); the options were checked."""
        executor, kept = self._executor, self.store_of(store)
        key = executor.record_key(session_id, options.user_id)
        owner = new_owner()
        session = BaseSession(executor, key, options, kept, owner, hooks)
        try:
            await kept.lock(key, owner)
        except anyio.get_cancelled_exc_class():  # it may have been taken all the same
            with anyio.CancelScope(shield=True):
                await kept.unlock(key, owner)
            raise
        if key in self._sessions:  # one that is not kept in this store: two under one key could not both be closed
            with anyio.CancelScope(shield=True):
                await kept.unlock(key, owner)
            raise SessionBusy(f"session {session_id} is open here, without this store", fix="close that one first")
        self._sessions[key] = session
        async with self._starting(session, None, is_new=False):
            try:
                await self._read(session, kept, owner)
            except BaseException:
                session.machine.abandon()  # else closing it would settle what waits in a record that is not taken on
                raise
            session.steers.restore()
            if session.state == "running":
                session.ending.add_known(await executor.on_cut(session))
            session.ending.repair()
            await session.stored()
            await executor.on_load(session)
            session.hooked()
            await session.fire_start("loaded")
            if session.state == "input_required" and session.machine.turn_id is not None:
                session.limits.watch_deadline(session.machine.turn_id, options.execution)
        return session

    async def _read(self, session: BaseSession, kept: RecordStore, owner: str) -> None:
        """The stored record, into ``session``. Raises for one that cannot be read, or that the executor refuses."""
        key = session.recorder.key
        first = await read_record(session, kept, await kept.info(key), owner[-4:])
        if first is None:
            raise SessionNotFound(
                f"session {key.session_id} has no beginning: its opening was cut off",
                where=f"user {key.user_id}, agent {self._executor.descriptor.name}",
                fix="delete it, and open a new session",
            )
        check_version(first.protocol_version)
        self._executor.check_record(session.record)

    async def fork(
        self,
        session_id: str,
        at: int,
        options: OpenOptions | None,
        store: RecordStore | None,
        hooks: LifecycleInterceptor | None,
    ) -> BaseSession:
        """A new session that begins with the record of another one up to seq ``at`` (see ``AgentExecutor.fork``)."""
        executor, options = self._executor, self.checked(options)
        kept = self.store_of(store)
        source = executor.record_key(session_id, options.user_id)
        info = await kept.info(source)
        if at > info.reserved_seq:
            raise CursorGone(
                f"seq {at} is beyond the record", where=f"session {session_id}", expected=f"up to {info.last_seq}"
            )
        key = self.new_key(options)
        events = [event for event in await kept.read(source) if event.seq <= at]
        copied = [restamp(event, session_id=key.session_id) for event in events]
        if not events or SessionMachine.fold(copied).state == "running":
            raise InvalidInput(
                f"session {session_id} cannot be forked at seq {at}",
                got="a stream is open there" if events else "nothing is there",
                fix="fork at the seq of a stream_end",
            )

        async def ready(session: BaseSession) -> None:
            session.ending.settle_fork()
            await session.stored()
            await executor.on_fork(source, session, at)

        return await self.begin(key, options, kept, hooks, ready, events=copied, reserved_seq=at, reason="forked")

    async def begin(
        self,
        key: RecordKey,
        options: OpenOptions,
        kept: RecordStore | None,
        hooks: LifecycleInterceptor | None,
        ready: Callable[[BaseSession], Awaitable[None]],
        *,
        events: Sequence[Event] = (),
        reserved_seq: int = 0,
        reason: str,
        is_new: bool = True,
    ) -> BaseSession:
        """A session whose record is made now: with ``events``, if there are any, and what ``ready`` records.

        ``ready`` makes what the agent behind needs. ``is_new``: that is the session's alone, and goes with it where it
        cannot be started.
        """
        if key in self._sessions:
            raise SessionExists(f"session {key.session_id} is open", fix="choose another id")
        owner = new_owner()
        session = BaseSession(self._executor, key, options, kept, owner, hooks)
        if events:
            session.recorder.load(events, reserved_seq, owner[-4:])
            session.steers.restore()
        self._sessions[key] = session
        if kept is not None:
            try:
                # Shielded: a record that nobody began could neither be opened nor loaded.
                with anyio.CancelScope(shield=True):
                    await kept.create(key)
            except BaseException:
                self._executor.forget(session)
                raise
        async with self._starting(session, kept, is_new=is_new):
            if kept is not None:
                await kept.lock(key, owner)
                if events:
                    durable = [event for event in events if not is_ephemeral(event)]
                    await kept.append(key, durable, reserved_seq=session.recorder.seq)
            await ready(session)
            session.hooked()
            await session.fire_start(reason)
            await session.stored()
        return session

    @asynccontextmanager
    async def _starting(self, session: BaseSession, made: RecordStore | None, *, is_new: bool) -> AsyncIterator[None]:
        """If the session cannot be started, close it and remove the record that was ``made`` for it.

        ``is_new``: what the agent behind keeps of it begins with it, and is removed too, once that has been made.
        """
        key = session.recorder.key
        try:
            yield
        except BaseException:
            with anyio.CancelScope(shield=True):
                try:
                    await session.aclose()
                    if is_new and session.is_hooked:
                        await self._executor.on_delete(key)
                    if made is not None:
                        await made.delete(key)
                except Exception:  # logged; why it could not be started is what the caller must hear
                    _logger.exception("session %s: what was begun could not be removed", key.session_id)
            raise

    def checked(self, options: OpenOptions | None) -> OpenOptions:
        """Options that the agent can work with. Raises :class:`ConfigurationError`, :class:`InvalidInput`."""
        options = need(options or OpenOptions(), OpenOptions, "options argument", "pass OpenOptions(...)")
        descriptor = self._executor.descriptor
        counts, execution = self._executor.counts_model_calls, options.execution
        check_limits(descriptor, execution.limits, counts_calls=counts, prices=execution.prices)
        deadline_ms(options.execution)
        offered = {tool.name for tool in options.execution.tools or ()}
        missing = [name for name in descriptor.required_tools if name not in offered]
        if missing:
            raise ConfigurationError(
                f"agent {descriptor.name} needs the tools {', '.join(missing)}",
                expected="them among the host's tools",
                fix="pass them in ExecutionOptions.tools",
                id="tools-missing",
            )
        return options

    def new_key(self, options: OpenOptions) -> RecordKey:
        """The key of a new session: of the id that the host chose, also one that is refused by this, or a new one."""
        chosen = options.session_id
        return self._executor.record_key(chosen if chosen is not None else f"s-{secrets.token_hex(8)}", options.user_id)

    def store_of(self, store: RecordStore | None) -> RecordStore:
        """``store``, or the executor's. Raises :class:`ConfigurationError` (``store-missing``) without either."""
        kept = store or self._executor.store
        if kept is None:
            raise ConfigurationError(
                "there is no record store", fix="pass store= here or to the executor", id="store-missing"
            )
        return kept


def new_owner() -> str:
    """Who holds the lock of a record: this process, and one holder of it."""
    return f"pid {os.getpid()}:{secrets.token_hex(4)}"
