"""The port that an author fills in: an executor that plays a script, and what the suite is told while it plays.

For: authors of executors, who write one :class:`Harness`.
Not for: checking (``engine.py``, ``scenarios``). Rules carried: none.
May import: ``agentsession.protocol``, anyio, ``script``.

::

    class MyHarness(Harness):
        def executor(self, play: Play) -> AgentExecutor:
            return MyExecutor(model=FakeModel(play.script), tools=..., store=play.store)

The suite enters the executor, opens sessions and drives them as a host does. What only the agent can know it learns
from the play: the body of a tool of the agent's own is ``play.run_tool(...)``, a model that is to wait awaits
``play.hold(mark)``.
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from agentsession.conformance.script import STEPS, Call, Hold, Script
from agentsession.protocol import (
    AgentExecutor,
    AgentSession,
    ConnectionLost,
    Event,
    MemoryRecordStore,
    RecordInfo,
    RecordKey,
    RecordStore,
)

__all__ = ["CannotPlay", "Harness", "Killed", "MortalStore", "Play", "ToolFailed", "ToolRun"]


class CannotPlay(Exception):
    """The harness cannot play this script. What it would have shown is ``not-run``, unless another script shows it;
    then the report says what was not tried."""


@dataclasses.dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool of the agent's own whose body has begun."""

    name: str
    args: Mapping[str, Any]


class ToolFailed(Exception):
    """What the body of a tool raises that the script says must fail. Its text must not reach an event."""


class Play:
    """One executor's part: the script, where it may keep things, and what it tells the suite."""

    def __init__(self, script: Script, folder: Path | Callable[[], Path], store: MortalStore) -> None:
        """``folder``: there already, or made by this the first time that somebody asks for it."""
        self.script = script
        self._folder = folder
        self.store: RecordStore = store
        """The record store. An executor that uses it can be killed in this process; another one needs
        :meth:`Harness.kill`."""
        self.runs: list[ToolRun] = []
        """The bodies of own tools that have begun."""
        self._mortal = store
        self._reached: dict[str, anyio.Event] = {}
        self._released: dict[str, anyio.Event] = {}
        self._held: list[str] = []
        self._free = anyio.Event()

    # -- for the harness ----------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Lasts as long as the scenario: what an executor keeps itself goes here and is found again after a restart."""
        return self._folder() if callable(self._folder) else self._folder

    @property
    def is_dead(self) -> bool:
        """Whether the executor was killed: nothing that it keeps may change any more, wherever it keeps it."""
        return self._mortal.dead

    @property
    def is_storing(self) -> bool:
        """Whether something is on its way to :attr:`store`."""
        return self._mortal.writing > 0

    def ran(self, name: str, args: Mapping[str, Any]) -> None:
        """The body of an own tool begins. Call it first, before anything that may wait or fail."""
        if self._mortal.dead:
            raise ConnectionLost("this executor was killed", fix="end the tool's task with its process")
        self.runs.append(ToolRun(name, dict(args)))

    async def run_tool(self, call: Call, args: Mapping[str, Any]) -> dict[str, Any]:
        """The whole body of an own tool: says that it ran, waits or fails as the script has it, and gives a result.

        Raises:
            ToolFailed: the script says that it fails.
        """
        self.ran(call.name, args)
        if call.hold is not None:
            await self.hold(call.hold)
        if call.fails:
            raise ToolFailed(f"{call.name} failed: Traceback (most recent call last)")
        return {"ran": call.name, "args": dict(args)}

    async def hold(self, mark: str) -> None:
        """Say that the agent has come to ``mark``, and wait there until the suite lets it go on.

        Where the script says that it is stubborn there, cancelling has no effect on the wait.
        """
        self._event(self._reached, mark).set()
        self._held.append(mark)
        try:
            with anyio.CancelScope(shield=mark in self._stubborn()):
                await self._event(self._released, mark).wait()
        finally:
            self._held.remove(mark)
            if not self._held:
                free, self._free = self._free, anyio.Event()
                free.set()

    # -- for the suite ------------------------------------------------------------------------------------------------

    async def reached(self, mark: str) -> None:
        """Wait until the agent has come to ``mark``."""
        await self._event(self._reached, mark).wait()

    def has_reached(self, mark: str) -> bool:
        """Whether the agent has come to ``mark``."""
        return self._event(self._reached, mark).is_set()

    def release(self, mark: str) -> None:
        """Let it go on from ``mark``."""
        self._event(self._released, mark).set()

    def release_stubborn(self) -> None:
        """Let it go on where nothing else could end its wait, so that the executor can be left."""
        for mark in self._stubborn():
            self.release(mark)

    def _stubborn(self) -> set[str]:
        return {step.mark for step in self.script.steps() if isinstance(step, Hold) and step.stubborn}

    @property
    def held(self) -> Sequence[str]:
        """The marks at which the agent waits."""
        return tuple(self._held)

    async def free(self) -> None:
        """Wait until the agent waits at no mark."""
        if self._held:
            await self._free.wait()

    def again(self) -> Play:
        """The same play for an executor in a new process."""
        return Play(self.script, self._folder, MortalStore(self._mortal.inner))

    async def die(self) -> None:
        """From now on nothing that the executor does has an effect."""
        await self._mortal.kill()

    @staticmethod
    def _event(events: dict[str, anyio.Event], mark: str) -> anyio.Event:
        return events.setdefault(mark, anyio.Event())


class Harness(abc.ABC):
    """Makes executors that play scripts. One harness serves a whole run of the suite, one play at a time."""

    name: str = ""
    """As reports name it; the class's name when empty."""
    plays: Collection[str] = STEPS
    """The steps that it can play. A rule that needs another is ``not-run``, which counts against the executor."""

    @abc.abstractmethod
    def executor(self, play: Play) -> AgentExecutor:
        """An executor whose agent plays ``play.script``; the suite enters it.

        Its own tools are ``play.script.own_tools()``; the host declares the others when it opens a session.
        Raises :class:`CannotPlay` for a script with something in it that it has no way to play.
        """
        ...

    def store(self, folder: Path) -> RecordStore:
        """Where a scenario's records are kept; in memory unless another kind of store is to be used."""
        return MemoryRecordStore()

    async def kill(self, executor: AgentExecutor, play: Play) -> None:
        """End the executor as ``kill -9`` would. This way serves one that keeps nothing but ``play.store``."""
        await play.die()

    def log(self, executor: AgentExecutor) -> Sequence[str]:
        """The last lines that an executor wrote elsewhere than to this process's log; shown with a failure."""
        return ()

    async def compact(self, executor: AgentExecutor, session: AgentSession) -> int | None:
        """Let the executor drop the beginning of a record that has two turns: the last seq that is gone.

        ``None``: it keeps all that it has recorded, so that no cursor is ever compacted away.
        """
        return None


_STORE_TAKES: Final = 5
"""For how many turns of the loop a write is on its way: who shows an event before it is stored has lost it by then."""


class Killed(ConnectionLost):
    """The process of this executor is no more; nothing it does reaches a store."""

    def __init__(self) -> None:
        super().__init__("this executor was killed by the suite")


class MortalStore:
    """A record store whose process can be killed: from then on nothing reaches the records, and its locks are free."""

    def __init__(self, inner: RecordStore | None = None) -> None:
        self.inner: RecordStore = inner if inner is not None else MemoryRecordStore()
        self.dead = False
        self.writing = 0
        """How many appends are under way."""
        self._locks: dict[RecordKey, str] = {}

    async def kill(self) -> None:
        """The process dies."""
        self.dead = True
        for key, owner in self._locks.items():
            await self.inner.unlock(key, owner)

    def _alive(self) -> RecordStore:
        if self.dead:
            raise Killed
        return self.inner

    async def create(self, key: RecordKey) -> None:
        await self._alive().create(key)

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        self.writing += 1
        try:
            for _ in range(_STORE_TAKES):
                await checkpoint()
            await self._alive().append(key, events, reserved_seq=reserved_seq)
        finally:
            self.writing -= 1

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> builtins.list[Event]:
        return await self._alive().read(key, after=after, limit=limit)

    async def info(self, key: RecordKey) -> RecordInfo:
        return await self._alive().info(key)

    async def list(self, agent: str, user_id: str) -> builtins.list[RecordInfo]:
        return await self._alive().list(agent, user_id)

    async def delete(self, key: RecordKey) -> None:
        await self._alive().delete(key)

    async def lock(self, key: RecordKey, owner: str) -> None:
        await self._alive().lock(key, owner)
        self._locks[key] = owner

    async def unlock(self, key: RecordKey, owner: str) -> None:
        if not self.dead:
            await self.inner.unlock(key, owner)
            self._locks.pop(key, None)
