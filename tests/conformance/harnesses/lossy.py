"""For kills and sequences at random: executors that only a kill shows to be wrong, and three that play little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.harnesses.scripted import ScriptedHarness

from agentsession.conformance.harness import CannotPlay, Play
from agentsession.conformance.script import STEPS
from agentsession.conformance.stdio._store import FileStore
from agentsession.protocol import AgentExecutor, Event, RecordKey, RecordStore

__all__ = ["hasty", "late", "recounting", "short", "unheld", "whole"]


class LateStore(FileStore):
    """Says that events are stored when the next ones come."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._waiting: dict[RecordKey, tuple[Sequence[Event], int]] = {}

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        before = self._waiting.get(key)
        self._waiting[key] = (events, reserved_seq)
        if before is not None:
            await super().append(key, before[0], reserved_seq=before[1])

    async def unlock(self, key: RecordKey, owner: str) -> None:
        await self.append(key, [], reserved_seq=0)
        self._waiting.pop(key)
        await super().unlock(key, owner)


class RecountingStore(FileStore):
    """Forgets which seqs were given to what is not stored."""

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        await super().append(key, events, reserved_seq=0)


class Lossy(ScriptedHarness):
    """The scripted executor over another store."""

    def __init__(self, store: type[FileStore]) -> None:
        super().__init__(reenter=True)
        self._store = store

    def store(self, folder: Path) -> RecordStore:
        return self._store(folder / "records")


class Hasty(ScriptedHarness):
    """Begins the body of a tool, and then once more."""

    def executor(self, play: Play) -> AgentExecutor:
        once = play.ran

        def ran(name: str, args: Mapping[str, Any]) -> None:
            once(name, args)
            once(name, args)

        play.ran = ran  # type: ignore[method-assign]  # what the tool does is what is broken
        return super().executor(play)


class Whole(ScriptedHarness):
    """Says everything in one piece, and declares so."""

    plays = STEPS - {"stream"}


class Unheld(ScriptedHarness):
    """Has no way to wait at a mark."""

    plays = STEPS - {"hold"}


class Short(ScriptedHarness):
    """Plays no script of more than two turns, and says so when it gets one."""

    def executor(self, play: Play) -> AgentExecutor:
        if len(play.script.turns) > 2:
            raise CannotPlay("two turns at the most")
        return super().executor(play)


late = Lossy(LateStore)
recounting = Lossy(RecountingStore)
hasty = Hasty(reenter=True)
unheld = Unheld()
short = Short()
whole = Whole(capabilities=["host_tool_execution", "load", "resume"])
