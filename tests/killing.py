"""Sessions whose process is killed anywhere: what the killed sides of the tests for hosts and for ADK share.

Session after session is played to its end, each in a folder of its own, and each *life* of it in a forked process. A
life counts its steps: what it writes, entries and exits of tools, questions, answers, events that its reader was given.
At the step that was drawn for it (the n-th of a kind), it kills itself by SIGKILL; the next life loads the session and
goes on.

A kill leaves what is on the disk, and only steps change what is there, or what somebody outside knows of it. So to be
killed at every step is to be killed anywhere. What must be known outside goes to ``notes.ndjson`` of the session's
folder, by O_APPEND, at once; what tools do and what was acknowledged also by fsync. The databases need not wait for the
disk: what a process has written outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import itertools
import json
import os
import random
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import anyio.lowlevel
from sqlalchemy.event import listen

from agentsession.host import SqliteRecordStore
from agentsession.protocol import Answer, ElicitationAnswer, Event, RecordKey, ToolDenial, ToolGrant

__all__ = ["Death", "Notes", "Records", "folders", "notes_in", "play", "word_of"]

_NOTES: Final = "notes.ndjson"
_SYNCED: Final = ("entered", "left", "receipt", "killed")
_LIFE_S: Final = 60
"""Bounds a life that hangs; no life waits for it."""
_MOST_LIVES: Final = 40

Death: TypeAlias = tuple[str, int]
"""The n-th step of a kind."""
Life: TypeAlias = Callable[[Path, int, int, "Notes"], Coroutine[Any, Any, None]]
"""Plays in this folder, of the session of this number, this life of it."""


class Notes:
    """The life's steps, and what it tells those outside."""

    def __init__(self, folder: Path, life: int, death: Death | None) -> None:
        self._file = os.open(folder / _NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._counting = threading.Lock()
        self._life = life
        self._death = death
        self.steps: Counter[str] = Counter()

    def note(self, kind: str, **fields: Any) -> None:
        os.write(self._file, (json.dumps({"note": kind, "life": self._life, **fields}) + "\n").encode())
        if kind in _SYNCED:
            os.fsync(self._file)

    def step(self, what: str) -> None:
        """One step further, in whatever thread; or the end."""
        with self._counting:
            self.steps[what] += 1
            if (what, self.steps[what]) == self._death:
                self.note("killed", at=f"{what}, {self.steps[what]}")
                os.kill(os.getpid(), signal.SIGKILL)


class Records(SqliteRecordStore):
    """The record store: before and after each append is a step, and the moment before a transaction is done.

    ``turns_a_write``: how often others get their turn before the record is written: who does not wait for it goes on.
    """

    def __init__(self, path: Path, notes: Notes, turns_a_write: int = 0) -> None:
        super().__init__(path)
        listen(self._engine, "connect", _do_not_sync)
        self._notes = notes
        self._turns_a_write = turns_a_write

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        for _ in range(self._turns_a_write):  # turns of the loop, drawn: nothing is waited for
            await anyio.lowlevel.checkpoint()
        self._notes.step("before a write to the record")
        await super().append(key, events, reserved_seq=reserved_seq)
        self._notes.step("after a write to the record")

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Any]:
        with super()._transaction(write=write) as connection:
            yield connection
            if write:
                self._notes.step("before the commit of a transaction")


def _do_not_sync(connection: Any, record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF").close()


def word_of(answer: Answer) -> str:
    """What the record must say of a request whose answer was acknowledged."""
    if isinstance(answer, ElicitationAnswer):
        return answer.action
    if isinstance(answer, ToolGrant):
        return "granted"
    if isinstance(answer, ToolDenial):
        return "denied"
    return "unknown" if getattr(answer, "unknown", None) else "completed"


def notes_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / _NOTES).read_text().splitlines()]


def folders(place: Path) -> Sequence[Path]:
    """The sessions, in order: the n-th has the number n."""
    return sorted(place.iterdir(), key=lambda folder: int(folder.name.rpartition("-")[2]))


def play(place: Path, kills: int, seed: str, live: Life) -> None:
    """Play and kill sessions until there were so many kills."""
    drawn = random.Random(seed)
    steps: Mapping[str, int] = {}
    deaths: Iterator[Death] = iter(())
    for number in itertools.count():
        folder = place / f"session-{number}"
        folder.mkdir()
        for life in range(_MOST_LIVES):
            death: Death | None = None
            if number and kills:  # the first session is not killed; each other one dies once, and perhaps again
                death = next(deaths) if life == 0 else _early(steps, drawn) if drawn.random() < 0.4 else None
            if not _fork(folder, number, life, death, live):
                break
            kills -= 1
        else:
            raise SystemExit(f"{folder.name} does not end")
        if not number:
            steps = notes_in(folder)[-1]["steps"]
            deaths = _deaths_of(steps, drawn)
        if not kills:
            return


def _deaths_of(steps: Mapping[str, int], drawn: random.Random) -> Iterator[Death]:
    """For first lives, for ever: every step once, one of each kind after the other, then anew."""
    while True:
        left = {what: drawn.sample(range(1, count + 1), count) for what, count in steps.items()}
        while left:
            for what in drawn.sample(sorted(left), len(left)):
                yield what, left[what].pop()
            left = {what: numbers for what, numbers in left.items() if numbers}


def _early(steps: Mapping[str, int], drawn: random.Random) -> Death:
    """For later lives, which are shorter."""
    what = drawn.choice(sorted(steps))
    return what, drawn.randint(1, min(steps[what], 4))


def _fork(folder: Path, number: int, life: int, death: Death | None, live: Life) -> bool:
    """One life in a process of its own; whether it was killed."""
    child = os.fork()
    if child == 0:
        _live(folder, number, life, death, live)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        raise SystemExit(f"life {life} of {folder.name} failed; it ended with {os.waitstatus_to_exitcode(status)}")
    return False


def _live(folder: Path, number: int, life: int, death: Death | None, live: Life) -> NoReturn:
    faulthandler.dump_traceback_later(_LIFE_S, exit=True)
    status = 1
    try:
        notes = Notes(folder, life, death)
        notes.note("born")
        asyncio.run(live(folder, number, life, notes))
        notes.note("done", steps=notes.steps)
        status = 0
    except BaseException:  # noqa: BLE001  # whatever it is, the parent's code must not go on in this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
