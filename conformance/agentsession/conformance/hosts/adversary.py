"""The executor of a scene: it has a play for each turn, and a log of all that the host does to it.

For: scenes. Not for: what a session does (``session.py``). Rules carried: none.
May import: ``agentsession.protocol``, anyio, ``agent``, ``log``, ``session``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, NoReturn, Self

from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from agentsession.conformance.hosts.agent import Play
from agentsession.conformance.hosts.log import Log
from agentsession.conformance.hosts.session import ROOT, AdversarySession
from agentsession.protocol import (
    AgentDescriptor,
    LifecycleInterceptor,
    OpenOptions,
    RecordInfo,
    RecordStore,
    Unimplemented,
)

__all__ = ["Adversary"]

_CAPABILITIES: Final = ("streaming", "host_tool_execution", "elicitation", "abort")


class Adversary:
    """The executor of a scene. It has one play for each turn that the host starts."""

    def __init__(self, plays: Sequence[Play], log: Log, tasks: TaskGroup) -> None:
        self.descriptor = AgentDescriptor(name=ROOT, executor=ROOT, capabilities=list(_CAPABILITIES))
        self.log = log
        self.plays = list(plays)
        self.tasks = tasks
        self.sessions: list[AdversarySession] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def open(
        self,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> AdversarySession:
        await checkpoint()
        self.log.add("host", "opens a session")
        session = AdversarySession(self, f"s-{len(self.sessions) + 1}")
        self.sessions.append(session)
        return session

    def _cannot(self, call: str) -> NoReturn:
        raise Unimplemented(f"the executor of a scene has no {call}()")

    async def load(
        self,
        session_id: str,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> AdversarySession:
        self._cannot("load")

    async def list(self, user_id: str = "local", *, store: RecordStore | None = None) -> Sequence[RecordInfo]:
        self._cannot("list")

    async def delete(self, session_id: str, user_id: str = "local", *, store: RecordStore | None = None) -> None:
        self._cannot("delete")

    async def fork(
        self,
        session_id: str,
        at: int,
        options: OpenOptions | None = None,
        *,
        store: RecordStore | None = None,
        hooks: LifecycleInterceptor | None = None,
    ) -> AdversarySession:
        self._cannot("fork")

    async def rewind(
        self, session_id: str, to: int, user_id: str = "local", *, store: RecordStore | None = None
    ) -> None:
        self._cannot("rewind")
