"""One AG-UI run: its place in the queue, its session, the clients that read it, and its end.

Not for: HTTP (``_app.py``), what its input does (``_app_steps.py``). Rules carried: LIFE-07.
May import: asyncio, ``live``, the ``_app``, ``_in`` and ``_out`` modules, ``protocol``.

A run is a task of its own and goes on when its client is gone: for a moment, or for as long as the endpoint says.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Collection
from typing import Final, Literal

import anyio

from agentsession.host._masking import masked
from agentsession.host.agui._app_folded import Folded, FoldedSessions
from agentsession.host.agui._app_queue import Place
from agentsession.host.agui._app_sink import Sink
from agentsession.host.agui._app_steps import Steps
from agentsession.host.agui._in_faults import RunRefused
from agentsession.host.agui._in_memory import Mark, Memory
from agentsession.host.agui._in_new import new_of
from agentsession.host.agui._in_read import RunInput
from agentsession.host.agui._out import RunMapper
from agentsession.host.agui._out_known import Known
from agentsession.host.live import LiveSession, LiveSessions
from agentsession.protocol import (
    AgentSessionError,
    OpenOptions,
    SessionExists,
    SessionNotFound,
    StreamEnd,
)

__all__ = ["Disconnect", "Endpoint", "Run"]

logger = logging.getLogger("agentsession.host")

Disconnect = Literal["cancel", "carry_on"]

_FAILED: Final = "The run failed."


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """What the runs of an application share."""

    sessions: LiveSessions
    agent: str
    folded: FoldedSessions
    on_disconnect: Disconnect
    grace_s: float
    cap_s: float
    forwarded: Collection[str]


class Run:
    """See the module. ``sink``: that of the client that began it."""

    def __init__(self, endpoint: Endpoint, user_id: str, given: RunInput, place: Place, sink: Sink) -> None:
        self.endpoint = endpoint
        self.user_id = user_id
        self.given = given
        self._place = place
        self._sink = sink
        self._memory = Memory()
        self.live: LiveSession | None = None
        self.began: Mark | None = None
        """How far the record had come when it began; ``None`` while it waits."""
        self.ended = 0
        """The record's last seq when it ended."""
        self.last_end: StreamEnd | None = None
        """The end of the thread's last stream, when it ended."""
        self.client_tools: Collection[str] | None = None
        """See :class:`RunMapper`."""
        self.begun = asyncio.Event()
        """Set when it has begun, or will not."""
        self.message_ids: frozenset[str] = frozenset()
        """The client's messages that it runs."""
        self.fault: tuple[str, str] | None = None
        """The code and message of the error that it ended with, where that was not the agent's."""
        self.done = asyncio.Event()
        self.readers = 1
        """Clients that read it."""
        self.is_abandoned = False
        """Nobody came back in time: it begins nothing more."""
        self._leaving: asyncio.TimerHandle | None = None
        self._aborting: asyncio.Task[None] | None = None
        # Not the task's own cancel(): that would leave a record behind that a thread is just locking.
        self._scope = anyio.CancelScope()
        self.task = asyncio.get_running_loop().create_task(self._work())

    @property
    def is_left(self) -> bool:
        """Whether nobody reads it, and it will be ended for that."""
        return self._leaving is not None

    def covers(self, given: RunInput) -> bool:
        """Whether an input holds nothing new that this run does not have. A state or tools alone are nothing new."""
        own = self.given
        is_again = given.run_id == own.run_id
        if self.began is None or self.live is None:
            return is_again and (given.tail, given.results, given.resume) == (own.tail, own.results, own.resume)
        if given.resume and not (is_again and given.resume == own.resume):
            return False
        waiting = {request.request_id for request in self.live.pending}
        try:
            new = new_of(given, self._memory, waiting)
        except RunRefused:
            return False  # a run of its own says why
        if new.results and not (is_again and given.results == own.results):
            return False
        return all(said in own.tail and (is_again or said.id in self.message_ids) for said in new.messages)

    # -- clients -----------------------------------------------------------------------------------------------------

    def joined(self) -> None:
        """A client reads it too."""
        self.readers += 1
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def left(self) -> None:
        """A client is gone. The last one takes the run with it, if it has not begun, or when nobody comes back."""
        self.readers -= 1
        if self.readers or self.done.is_set():
            return
        if not self.begun.is_set():
            self._scope.cancel()
            return
        endpoint = self.endpoint
        delay = endpoint.grace_s if endpoint.on_disconnect == "cancel" else endpoint.cap_s
        self._leaving = asyncio.get_running_loop().call_later(delay, self._abandon)

    def _abandon(self) -> None:
        self._leaving = None
        if not self.done.is_set():
            self.is_abandoned = True
            self._aborting = asyncio.get_running_loop().create_task(self._abort())

    async def _abort(self) -> None:
        if self.live is not None:
            try:
                await self.live.abort("the client went away")
            except AgentSessionError as error:
                logger.warning("session %s: %s", self.given.thread_id, error.what)

    def begin(self, live: LiveSession, folded: Folded) -> None:
        """It has its thread, and knows what was there before it."""
        self.live = live
        self.began = folded.memory.mark
        self.ended = self.began.seq
        self.last_end = folded.memory.last_end
        self._memory = folded.memory
        self.begun.set()

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            with self._scope:
                async with self._place:
                    await self._in_turn()
            if self._scope.cancelled_caught:
                self.fault = ("cancelled", "The run was cancelled.")
        except asyncio.CancelledError:
            self.fault = ("cancelled", "The run was cancelled.")
            raise
        finally:
            self.begun.set()
            self.done.set()
            if self._leaving is not None:
                self._leaving.cancel()
            self._sink.end()

    async def _in_turn(self) -> None:
        given = self.given
        mapper = RunMapper(
            thread_id=given.thread_id, run_id=given.run_id, known=Known(), parent_run_id=given.parent_run_id
        )
        steps = Steps(self, mapper, self._sink)
        try:
            live = self.live = await self._session()
            with live.hold():
                await steps.run(live, await self.endpoint.folded.of(live))
        except RunRefused as refused:
            steps.fail(refused.code, refused.message)
        except AgentSessionError as error:
            logger.info("run %s: %s", given.run_id, error.what)
            steps.fail(error.id.replace("-", "_"), masked(error.what))
        except Exception as error:  # whatever it is, the client is told that it failed, and not why
            logger.error("run %s failed: %s", given.run_id, type(error).__name__, exc_info=error)
            steps.fail("internal", _FAILED)

    async def _session(self) -> LiveSession:
        sessions, agent, thread_id = self.endpoint.sessions, self.endpoint.agent, self.given.thread_id
        try:
            return await sessions.get(agent, self.user_id, thread_id)
        except SessionNotFound:
            pass
        try:
            return await sessions.open(agent, self.user_id, OpenOptions(session_id=thread_id, user_id=self.user_id))
        except SessionExists:  # opened in the same moment, in another way
            return await sessions.get(agent, self.user_id, thread_id)
