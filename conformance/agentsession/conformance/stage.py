"""One entered executor that plays a script: its sessions, its marks, its death.

Not for: reading or judging (``scene.py``). Rules carried: none.
May import: ``agentsession.protocol``, anyio, ``harness``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskStatus

from agentsession.conformance.harness import CannotPlay, Play
from agentsession.protocol import AgentExecutor, AgentSession, ExecutionOptions, HostCapabilities, OpenOptions

if TYPE_CHECKING:
    from agentsession.conformance.scene import Scene

__all__ = ["HarnessBroke", "Stage"]


class HarnessBroke(Exception):
    """The harness could not make or enter an executor."""


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
        """Wait until the agent has come to a mark of the script."""
        await self.play.reached(mark)

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
        """Leave the executor, and wait until it is left."""
        self._leaving.set()
        await self._left.wait()

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
