"""One entered executor that plays a script: its sessions, its marks, its death.

Not for: reading or judging (``scene.py``). Rules carried: none.
May import: ``agentsession.protocol``, anyio, ``engine``, ``harness``, ``results``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from agentsession.conformance.engine import Break, evidence_of
from agentsession.conformance.harness import CannotPlay, Play
from agentsession.conformance.results import Evidence
from agentsession.protocol import (
    AgentExecutor,
    AgentSession,
    ExecutionOptions,
    HostCapabilities,
    OpenOptions,
    StreamEnd,
)

if TYPE_CHECKING:
    from agentsession.conformance.scene import Scene

__all__ = ["HarnessBroke", "NotReached", "Stage"]

_ENDING_S: Final = 1.0
"""How long what waits at a mark may take to end after its executor was left: it was cancelled by then."""
_TELLING_TAKES: Final = 50
"""For how many turns of the loop the word that a mark was reached may be on its way, when the stream has ended."""


_HINT: Final = "<- here: a thread is not ended by cancelling the task that waits for it"

_logger: Final = logging.getLogger("agentsession.conformance")


class HarnessBroke(Exception):
    """The harness could not make or enter an executor."""


class NotReached(Exception):
    """The agent does not come to a mark of the script any more."""

    def __init__(self, message: str, evidence: Sequence[Evidence]) -> None:
        super().__init__(message)
        self.message = message
        self.evidence = tuple(evidence)


class Stage:
    """One entered executor that plays a script."""

    def __init__(self, scene: Scene, executor: AgentExecutor, play: Play) -> None:
        self.scene = scene
        self.executor = executor
        self.play = play
        self.sessions: list[AgentSession] = []
        self._kinds: dict[str, Collection[str] | None] = {}
        self._dead = False
        self._leaving = anyio.Event()
        self._left = anyio.Event()

    def options(self, *, kinds: Collection[str] | None = None, **execution: Any) -> OpenOptions:
        """How the suite opens a session: the host's tools of the script are declared, own tools wait for it or not.

        ``kinds`` are the kinds of question that the host can show, ``None`` for all. What is ``None`` is left out.
        """
        script = self.play.script
        given: dict[str, Any] = {"tools": script.host_tools() or None, "host_tool_execution": script.is_gated}
        given |= execution
        return OpenOptions(
            host=HostCapabilities(elicitation_kinds=None if kinds is None else list(kinds)),
            execution=ExecutionOptions(**{name: value for name, value in given.items() if value is not None}),
        )

    async def open(self, options: OpenOptions | None = None) -> AgentSession:
        """A new session, whose record is checked at the end of the scenario."""
        options = options or self.options()
        return self._keep(await self.executor.open(options, store=self.play.store), options)

    async def load(self, session_id: str, options: OpenOptions | None = None) -> AgentSession:
        """A stored session."""
        options = options or self.options()
        return self._keep(await self.executor.load(session_id, options, store=self.play.store), options)

    async def fork(self, session_id: str, at: int) -> AgentSession:
        """A fork of a session."""
        options = self.options()
        return self._keep(await self.executor.fork(session_id, at, options, store=self.play.store), options)

    def _keep(self, session: AgentSession, options: OpenOptions) -> AgentSession:
        self.sessions.append(session)
        self._kinds[session.session_id] = options.host.elicitation_kinds
        return session

    def kinds(self, session: AgentSession) -> Collection[str] | None:
        """The kinds of question that the host said it could show."""
        return self._kinds.get(session.session_id)

    async def reached(self, mark: str) -> None:
        """Wait until the agent has come to a mark of the script.

        Raises:
            NotReached: no stream of this executor's runs any more that could bring it there.
            Exception: what a reader of such a stream raises, as where the executor is gone.
        """
        if self.play.has_reached(mark):
            return
        given_up: list[Exception] = []
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                given_up.append(await self._nobody_comes(mark))
                group.cancel_scope.cancel()

            group.start_soon(watch)
            await self.play.reached(mark)
            group.cancel_scope.cancel()
        if given_up and not self.play.has_reached(mark):
            raise given_up[0]

    async def _nobody_comes(self, mark: str) -> Exception:
        """Wait until no stream of this executor's runs; why the agent will not come to a mark."""
        try:
            async with anyio.create_task_group() as group:
                for session in {session.session_id: session for session in self.sessions}.values():
                    group.start_soon(self._ended, session)
            for _ in range(_TELLING_TAKES):
                await checkpoint()
        except BaseExceptionGroup as error:
            broke = next((each for each in error.exceptions if isinstance(each, Exception)), None)
            if broke is None:
                raise
            return broke
        return await self._missed(mark)

    async def _ended(self, session: AgentSession) -> None:
        """Wait until no stream of a session runs. Its reader is not entered, so that it holds nobody."""
        if session.state != "running":
            return
        reader = session.events(session.last_seq, follow=True)
        try:
            async for event in reader:
                if isinstance(event, StreamEnd):
                    return
        finally:
            with anyio.CancelScope(shield=True):
                await reader.aclose()

    async def _missed(self, mark: str) -> NotReached:
        """What to say of a mark that nobody came to."""
        for session in reversed(self.sessions):
            if session.state == "closed":
                continue
            record = await self.scene.record(session)
            end = next((event for event in reversed(record) if isinstance(event, StreamEnd)), None)
            if end is not None:
                said = f"the stream ended {end.reason}, and the agent has not come to the mark {mark!r}"
                return NotReached(said, evidence_of(record, remark="<- here"))
        said = f"no stream runs, and the agent has not come to the mark {mark!r}"
        return NotReached(said, [Evidence(said, is_break=True)])

    def release(self, mark: str) -> None:
        """Let the agent go on from a mark."""
        self.play.release(mark)

    async def kill(self) -> None:
        """End the executor as the death of its process would."""
        self._dead = True
        self.scene.drop(self)
        await self.scene.harness.kill(self.executor, self.play)
        await self.leave()

    async def again(self) -> Stage:
        """A new executor of the same script that finds what this one left."""
        return await self.scene.enter(self.play.again())

    async def leave(self) -> None:
        """Leave the executor, and wait until it is left.

        What waits at a mark by then is let go, so that it holds up no other scenario.

        Raises:
            Break: LIFE-13, it could not be left in time, or something of it went on.
        """
        self.play.release_stubborn()
        for line in self.scene.harness.log(self.executor):
            self.scene.logged.add(line)
        self._leaving.set()
        with anyio.move_on_after(self.scene.leave_s) as leaving:
            await self._left.wait()
        if not leaving.cancelled_caught:
            with anyio.move_on_after(_ENDING_S):
                await self.play.free()
        marks = self.play.held
        for mark in marks:
            self.release(mark)
        where = f": an abort or close did not end what waits at the mark {marks[0]!r}" if marks else ""
        if leaving.cancelled_caught:
            said = f"the executor could not be left within {self.scene.leave_s:g} s{where}"
            _logger.error("%s", said)  # where nothing ends it, this is the last that is heard
            await self._left.wait()
        elif marks and not self._dead:
            said = f"the executor was left, and something of it goes on{where}"
        else:
            return
        raise Break("LIFE-13", said, evidence_of(self.scene.seen.latest, remark=_HINT))

    async def hold(self, *, task_status: TaskStatus[None]) -> None:
        """Enter the executor and stay in it until it is left: it is entered and left in one task, as it may ask.

        What a killed executor still wants to say is of no interest.
        """
        entered = False
        try:
            async with self.executor:
                entered = True
                task_status.started()
                await self._leaving.wait()
        except CannotPlay:  # an executor in another process says so only when it gets the script
            raise
        except (Exception, BaseExceptionGroup) as error:
            if not entered:
                raise HarnessBroke(f"{type(error).__name__}: {error}") from error
            if not self._dead:
                raise
        finally:
            self._left.set()
