"""Stores with one fault each, and the scenario that finds it. All keep their records by folder, so that they reopen."""

from __future__ import annotations

import builtins
import dataclasses
import itertools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar

import anyio
import anyio.lowlevel

from agentsession.protocol import (
    Event,
    InvalidInput,
    MemoryRecordStore,
    Message,
    RecordInfo,
    RecordKey,
    SessionBusy,
    SessionExists,
    StoredSnapshot,
    Text,
)

__all__ = ["BROKEN", "BrokenStore"]

BROKEN: list[type[BrokenStore]] = []


class BrokenStore(MemoryRecordStore):
    """The records of a folder, in memory; a subclass does one thing wrong."""

    scenario: ClassVar[str]
    folders: ClassVar[dict[Path, Any]] = {}

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._records = self.folders.setdefault(folder, {})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        BROKEN.append(cls)


class DropsNul(BrokenStore):
    """It drops what its database takes for the end of a text."""

    scenario = "read-back"

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        await super().append(key, [_without(event, "\x00") for event in events], reserved_seq=reserved_seq)


class NoLimit(BrokenStore):
    """It gives more than was asked for."""

    scenario = "tail"

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> builtins.list[Event]:
        return await super().read(key, after=after)


class TakesTwice(BrokenStore):
    """It takes a seq twice when both come at once."""

    scenario = "rising"

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        once = {event.seq: event for event in events}
        in_order = all(one.seq <= two.seq for one, two in itertools.pairwise(events))
        await super().append(key, list(once.values()) if in_order else events, reserved_seq=reserved_seq)


class SmallNumbers(BrokenStore):
    """Its seqs are numbers of 32 bits."""

    scenario = "gaps"

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        if any(event.seq >= 2**31 for event in events):
            raise OverflowError("integer out of range")
        await super().append(key, events, reserved_seq=reserved_seq)


class Forgets(BrokenStore):
    """It takes the last reserved seq that it hears, not the highest."""

    scenario = "reserved"

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        await super().append(key, events, reserved_seq=reserved_seq)
        self._records[key].reserved_seq = max(reserved_seq, (await self.info(key)).last_seq)


class KeepsHalf(BrokenStore):
    """It stores the events before the one that it refuses."""

    scenario = "atomic"

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        for event in events:
            await super().append(key, [event], reserved_seq=0)
        await super().append(key, [], reserved_seq=reserved_seq)


class Cuts(BrokenStore):
    """It cuts long texts."""

    scenario = "big"

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        await super().append(key, [_cut(event, 2**16) for event in events], reserved_seq=reserved_seq)


class LosesTheRest(BrokenStore):
    """It stores event by event, and stops in the middle when it is cancelled."""

    scenario = "cancelled"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lock = anyio.Lock()

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        async with self._lock:
            last = (await self.info(key)).last_seq
            for event in events:
                if event.seq <= last:
                    raise InvalidInput("it does not rise")
                last = event.seq
            for event in events:
                await super().append(key, [event], reserved_seq=reserved_seq)
                await anyio.lowlevel.checkpoint()
            await super().append(key, [], reserved_seq=reserved_seq)


class ChecksTooEarly(BrokenStore):
    """It looks where the record ends, waits, and then appends."""

    scenario = "appenders"

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        last = (await self.info(key)).last_seq
        for event in events:
            if event.seq <= last:
                raise InvalidInput("it does not rise")
            last = event.seq
        await anyio.lowlevel.checkpoint()
        record = self._records[key]
        record.events.extend(events)
        for event in events:
            record.summary.note(event)
            record.answered += event.type == "tool_response"
        await super().append(key, [], reserved_seq=max(reserved_seq, last))


class KeepsToItself(BrokenStore):
    """It writes the reserved seq when it is closed."""

    scenario = "acknowledged"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._reserved: dict[RecordKey, int] = {}

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        await super().append(key, events, reserved_seq=0)
        self._reserved[key] = max(self._reserved.get(key, 0), reserved_seq)

    async def info(self, key: RecordKey) -> RecordInfo:
        info = await super().info(key)
        return dataclasses.replace(info, reserved_seq=max(info.reserved_seq, self._reserved.get(key, 0)))

    async def delete(self, key: RecordKey) -> None:
        await super().delete(key)
        self._reserved.pop(key, None)


class BeginsAnew(BrokenStore):
    """A second create empties the record before it says that it exists."""

    scenario = "create"

    async def create(self, key: RecordKey) -> None:
        if key in self._records:
            self._records[key].events.clear()
        await super().create(key)


class LooksFirst(BrokenStore):
    """It looks whether the record exists, waits, and then makes it."""

    scenario = "create-race"

    async def create(self, key: RecordKey) -> None:
        if key in self._records:
            raise SessionExists("it exists")
        await anyio.lowlevel.checkpoint()
        self._records.pop(key, None)
        await super().create(key)


class TakesNothing(BrokenStore):
    """An append of nothing to no record is fine with it."""

    scenario = "not-found"

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        if events or key in self._records:
            await super().append(key, events, reserved_seq=reserved_seq)


class OneName(BrokenStore):
    """It makes one name of the three, with a sign between them that may stand in one."""

    scenario = "isolation"

    async def create(self, key: RecordKey) -> None:
        def name(key: RecordKey) -> str:
            return f"{key.agent}|{key.user_id}|{key.session_id}"

        if any(name(other) == name(key) for other in self._records):
            raise SessionExists("it exists")
        await super().create(key)


class OldestFirst(BrokenStore):
    """Its lists begin with the oldest."""

    scenario = "list"

    async def list(self, agent: str, user_id: str) -> builtins.list[RecordInfo]:
        return (await super().list(agent, user_id))[::-1]


class Jealous(BrokenStore):
    """An owner cannot take its own lock again."""

    scenario = "lock"

    async def lock(self, key: RecordKey, owner: str) -> None:
        if self._get(key).owner is not None:
            raise SessionBusy("it is open")
        await super().lock(key, owner)


class LocksTooLate(BrokenStore):
    """It looks whether the record is free, waits, and then takes it."""

    scenario = "lock-race"

    async def lock(self, key: RecordKey, owner: str) -> None:
        record = self._get(key)
        if record.owner not in (None, owner):
            raise SessionBusy("it is open")
        await anyio.lowlevel.checkpoint()
        record.owner = owner


class OwnLocks(BrokenStore):
    """Its locks hold for itself alone."""

    scenario = "lock-shared"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._owners: dict[RecordKey, str] = {}

    async def lock(self, key: RecordKey, owner: str) -> None:
        self._get(key)
        if self._owners.setdefault(key, owner) != owner:
            raise SessionBusy("it is open")

    async def unlock(self, key: RecordKey, owner: str) -> None:
        if self._owners.get(key) == owner:
            del self._owners[key]

    async def delete(self, key: RecordKey) -> None:
        if key in self._owners:
            raise SessionBusy("it is open")
        await super().delete(key)


class DeletesItsOwn(BrokenStore):
    """It deletes a record that is locked, if the lock was taken here."""

    scenario = "locked-stays"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._mine: set[RecordKey] = set()

    async def lock(self, key: RecordKey, owner: str) -> None:
        await super().lock(key, owner)
        self._mine.add(key)

    async def delete(self, key: RecordKey) -> None:
        if key in self._mine and key in self._records:
            self._records[key].owner = None
        await super().delete(key)


class Remembers(BrokenStore):
    """A new record under an old id goes on behind the old one's reserved seq."""

    scenario = "delete"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._before: dict[RecordKey, int] = {}

    async def delete(self, key: RecordKey) -> None:
        before = self._get(key).reserved_seq
        await super().delete(key)
        self._before[key] = before

    async def create(self, key: RecordKey) -> None:
        await super().create(key)
        self._records[key].reserved_seq = self._before.get(key, 0)


class FewAtOnce(BrokenStore):
    """It fails when more than eight records are written at once."""

    scenario = "many"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._writing = 0

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        self._writing += 1
        try:
            if self._writing > 8:
                raise RuntimeError("no connection left")
            if len(events) == 1:
                await anyio.lowlevel.checkpoint()
            await super().append(key, events, reserved_seq=reserved_seq)
        finally:
            self._writing -= 1


class NewestFirst(BrokenStore):
    """It gives the newest events newest first."""

    scenario = "queries"

    async def select(
        self,
        key: RecordKey,
        *,
        after: int = 0,
        before: int | None = None,
        types: Collection[str] | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> builtins.list[Event]:
        found = await super().select(key, after=after, before=before, types=types, limit=limit, newest=newest)
        return found[::-1] if newest else found


class KeepsAllSnapshots(BrokenStore):
    """It keeps snapshots that nothing goes on from any more."""

    scenario = "snapshots"

    async def put_snapshot(self, key: RecordKey, snapshot: StoredSnapshot) -> None:
        self._get(key).snapshots.append(snapshot)


class OnePage(BrokenStore):
    """Each of its pages is the first one."""

    scenario = "catalog"

    async def browse(
        self,
        *,
        agent: str | None = None,
        user_id: str | None = None,
        limit: int | None = None,
        after: RecordKey | None = None,
    ) -> builtins.list[RecordInfo]:
        return await super().browse(agent=agent, user_id=user_id, limit=limit)


class CountsStreams(BrokenStore):
    """It takes a stream that goes on with a turn for another turn."""

    scenario = "summary"

    async def info(self, key: RecordKey) -> RecordInfo:
        info = await super().info(key)
        return dataclasses.replace(info, turns=(info.turns or 0) + bool(info.pending))


def _without(event: Event, sign: str) -> Event:
    if not isinstance(event, Message):
        return event
    parts = [Text(text=part.text.replace(sign, "")) if isinstance(part, Text) else part for part in event.content]
    return event.model_copy(update={"content": parts})


def _cut(event: Event, length: int) -> Event:
    if not isinstance(event, Message):
        return event
    parts = [Text(text=part.text[:length]) if isinstance(part, Text) else part for part in event.content]
    return event.model_copy(update={"content": parts})
