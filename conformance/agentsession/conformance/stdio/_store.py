"""A record store of plain files, for executors that are served over stdio: what is acknowledged outlives any kill.

Not for: hosts (``agentsession.host`` has a store with a database). Rules carried: PER-02, ORD-01.
May import: ``agentsession.protocol``, the standard library.

A record is a file of JSON lines, only ever appended to, each write synchronised with the disk before it counts. One
write is one line: of a line that a kill has cut nothing counts.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from agentsession.protocol import (
    Event,
    RecordInfo,
    RecordKey,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    parse_event,
)

try:
    import fcntl
except ImportError:  # pragma: no cover  # Windows: only the sessions of one process are kept apart
    fcntl = None  # type: ignore[assignment]  # see _take

__all__ = ["FileStore"]

_LONGEST_NAME: Final = 200


class FileStore:
    """Keeps records in a folder; satisfies ``agentsession.protocol.RecordStore``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[RecordKey, tuple[str, int]] = {}

    def _path(self, key: RecordKey) -> Path:
        name = quote(f"{key.agent}|{key.user_id}|{key.session_id}", safe="")
        return self._folder / f"{name[:_LONGEST_NAME]}.ndjson"

    def _lines(self, path: Path) -> Iterator[dict[str, Any]]:
        for line in path.read_bytes().split(b"\n")[:-1]:  # what follows the last line feed was cut off
            yield json.loads(line)

    def _write(self, path: Path, line: dict[str, Any], flags: int = 0) -> None:
        file = os.open(path, os.O_RDWR | os.O_APPEND | flags, 0o600)
        try:
            whole = path.read_bytes().rfind(b"\n") + 1
            os.ftruncate(file, whole)  # a line that was cut off must not become part of the next
            os.write(file, json.dumps(line).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    async def create(self, key: RecordKey) -> None:
        """Make an empty record. Raises :class:`SessionExists`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        number = 1 + sum(1 for _ in self._folder.glob("*.ndjson"))
        made = {"agent": key.agent, "user": key.user_id, "session": key.session_id, "number": number}
        try:
            self._write(self._path(key), {"record": made, "events": [], "reserved": 0}, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            raise SessionExists(f"session {key.session_id} exists", fix="choose another id, or load it") from None

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        """Store events in one step. Raises :class:`SessionNotFound`."""
        line = {"events": [event.to_wire() for event in events], "reserved": reserved_seq}
        self._write(self._found(key), line)

    async def read(self, key: RecordKey, *, after: int = 0, limit: int | None = None) -> builtins.list[Event]:
        """The stored events with a seq above ``after``. Raises :class:`SessionNotFound`."""
        lines = self._lines(self._found(key))
        found = [parse_event(event) for line in lines for event in line["events"] if event["seq"] > after]
        return found if limit is None else found[:limit]

    async def info(self, key: RecordKey) -> RecordInfo:
        """What is known of a record. Raises :class:`SessionNotFound`."""
        return self._info(key, self._found(key))

    def _info(self, key: RecordKey, path: Path) -> RecordInfo:
        last = reserved = 0
        for line in self._lines(path):
            last = max([last, *(event["seq"] for event in line["events"])])
            reserved = max(reserved, line["reserved"])
        return RecordInfo(key, last, max(last, reserved))

    async def list(self, agent: str, user_id: str) -> builtins.list[RecordInfo]:
        """The records of one user with one agent, newest first."""
        found: builtins.list[tuple[int, RecordInfo]] = []
        for path in self._folder.glob("*.ndjson"):
            made = next(self._lines(path), {}).get("record", {})
            if (made.get("agent"), made.get("user")) == (agent, user_id):
                found.append((made["number"], self._info(RecordKey(agent, user_id, made["session"]), path)))
        return [info for _, info in sorted(found, key=lambda item: item[0], reverse=True)]

    async def delete(self, key: RecordKey) -> None:
        """Remove a record. Raises :class:`SessionNotFound`, :class:`SessionBusy`."""
        path = self._found(key)
        if key in self._locks:
            raise SessionBusy(f"session {key.session_id} is open", fix="close it first")
        path.unlink()

    async def lock(self, key: RecordKey, owner: str) -> None:
        """Take a record; the lock of a process that is gone is gone with it. Raises :class:`SessionBusy`."""
        path = self._found(key)
        held = self._locks.get(key)
        if held is not None and held[0] == owner:
            return
        file = _take(path) if held is None else None
        if file is None:
            raise SessionBusy(f"session {key.session_id} is open elsewhere", fix="close it, or fork it")
        self._locks[key] = owner, file

    async def unlock(self, key: RecordKey, owner: str) -> None:
        """Give a record back."""
        held = self._locks.get(key)
        if held is not None and held[0] == owner:
            del self._locks[key]
            os.close(held[1])

    def _found(self, key: RecordKey) -> Path:
        path = self._path(key)
        if not path.exists():
            raise SessionNotFound(f"no session {key.session_id} of user {key.user_id}", fix="list the sessions")
        return path


def _take(path: Path) -> int | None:
    """A descriptor that holds the lock of a file, ``None`` if another process holds it."""
    file = os.open(path, os.O_RDONLY)
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file
