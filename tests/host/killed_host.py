"""Hosts whose process is killed anywhere: the killed side of ``test_killed_anywhere.py``.

Run with a folder, a number of kills and a seed. Session after session is played to its end by a :class:`Host` over the
scripted executor and a SQLite record, each in a folder of its own, and each *life* of it in a forked process. A life
counts its steps: writes to the record, entries and exits of tools, questions, receipts, events that the observer was
given. At the step that was drawn for it (the n-th of a kind) it kills itself by SIGKILL; the next life loads the
session and goes on.

Only steps change what is on the disk, or what somebody outside knows of it; so to be killed at every step is to be
killed anywhere. What must be known outside goes to ``notes.ndjson`` of the session's folder at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import itertools
import json
import logging
import os
import random
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import anyio
import anyio.lowlevel
from sqlalchemy.event import listen

from agentsession.adapters.scripted import Ask, Call, Calls, Deltas, Say, ScriptedExecutor, Step
from agentsession.host import Approval, CallbackChannel, Host, SqliteRecordStore, ask_all, tool
from agentsession.protocol import (
    AgentSession,
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    OpenOptions,
    Receipt,
    RecordKey,
    SessionNotFound,
    StreamEnd,
    ToolDenial,
    ToolGrant,
    accept,
    is_ephemeral,
)

SESSION: Final = "s-killed"
NOTES: Final = "notes.ndjson"
TURNS: Final = 2
"""So many turns are completed; a turn that was lost does not count."""
SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

_SCRIPTED: Final = 40
_LIFE_S: Final = 60
"""Bounds a life that hangs; no life waits for it."""
_MOST_LIVES: Final = 40

Death = tuple[str, int]
"""The n-th step of a kind."""


class Notes:
    """What is known outside of the process, and the life's steps."""

    def __init__(self, folder: Path, life: int, death: Death | None) -> None:
        self._file = os.open(folder / NOTES, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._life = life
        self._death = death
        self._counting = threading.Lock()
        self.steps: Counter[str] = Counter()

    def note(self, kind: str, **fields: Any) -> None:
        os.write(self._file, (json.dumps({"note": kind, "life": self._life, **fields}) + "\n").encode())

    def step(self, what: str) -> None:
        """One step further, in whatever thread; or the end."""
        with self._counting:
            self.steps[what] += 1
            if (what, self.steps[what]) == self._death:
                self.note("killed", at=f"{what}, {self.steps[what]}")
                os.kill(os.getpid(), signal.SIGKILL)


class Records(SqliteRecordStore):
    """The record store; before and after each of its writes is a step."""

    def __init__(self, path: Path, notes: Notes) -> None:
        super().__init__(path)
        listen(self._engine, "connect", _do_not_sync)
        self._notes = notes

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
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
    # What a process has written outlives it; only a machine that stops would lose it.
    connection.execute("PRAGMA synchronous=OFF").close()


def script(notes: Notes) -> list[list[Step]]:
    """Every turn is alike but for the numbers in its calls, by which they are told apart."""

    def write(args: dict[str, Any]) -> str:
        call = key_of("write", args)
        notes.note("entered", call=call, args=args)
        notes.step("when a tool has begun")
        notes.note("left", call=call)
        notes.step("after a tool has ended")
        return "written"

    def turn(number: int) -> list[Step]:
        first, second, third = (10 * number + place for place in (1, 2, 3))
        return [
            Deltas(["I ", "look."]),
            Calls(
                Call("pay", {"n": first}),
                Call("write", {"n": first}, needs="grant", run=write),
                Call("look", {"n": first}),
            ),
            Ask("Where?", schema=SCHEMA),
            Calls(Call("pay", {"n": second}), Call("pay", {"n": third})),
            Say("done"),
        ]

    return [turn(number) for number in range(1, _SCRIPTED)]


def key_of(name: str, args: Mapping[str, Any]) -> str:
    """A call's name in the notes."""
    return f"{name} {args['n']}"


class Desk:
    """The host's tools and its person, in one life."""

    def __init__(self, notes: Notes, seed: str, life: int) -> None:
        self._notes = notes
        self._seed = seed
        self._drawn = random.Random(f"{seed}/{life}")
        self._session: AgentSession

    def host(self) -> Host:
        notes = self._notes

        async def work(name: str, n: int) -> None:
            call = key_of(name, {"n": n})
            notes.note("entered", call=call, args={"n": n})
            notes.step("when a tool has begun")
            for _ in range(self._drawn.randint(0, 5)):  # turns of the loop for what goes on beside it
                await anyio.lowlevel.checkpoint()
            notes.note("left", call=call)
            notes.step("after a tool has ended")

        @tool
        async def pay(n: int) -> str:
            """Pay."""
            await work("pay", n)
            return f"paid {n}"

        @tool(read_only=True)
        async def look(n: int) -> str:
            """Look."""
            await work("look", n)
            return f"saw {n}"

        channel = CallbackChannel(self.approve, self.answer, concurrent=True)
        return Host(tools=[pay, look], policy=ask_all, channel=channel, observer=self.saw, on_answer=self.told)

    async def approve(self, request: Any, decision: Any, position: Any) -> Approval:
        self._notes.step("when a person is asked")
        if says_no(self._seed, request.name, request.args):
            return Approval.no("no")
        if request.name == "write":
            return Approval.yes({"n": request.args["n"]})
        return Approval.yes()

    async def answer(self, request: ElicitationRequest, position: Any) -> ElicitationAnswer:
        self._notes.step("when a person is asked")
        return accept(request.request_id, {"city": "Rome"})

    def saw(self, event: Event) -> None:
        self._notes.note("saw", event=event.to_wire())
        self._notes.step(f"when the observer has {'a delta' if is_ephemeral(event) else 'an event'}")

    def told(self, answer: Answer, receipt: Receipt) -> None:
        if receipt.status == "applied":
            self._notes.note("receipt", request=receipt.request_id, said=word_of(answer))
        self._notes.step("after a receipt")

    async def live(self, folder: Path) -> None:
        host = self.host()
        async with (
            Records(folder / "record.db", self._notes) as store,
            ScriptedExecutor(script(self._notes), reenter=True, store=store) as executor,
        ):
            self._session = session = await self._found(host, executor, store)
            while True:
                ends = [e.reason async for e in session.events() if isinstance(e, StreamEnd)]
                if session.state == "input_required":
                    await host.run_turn(session)
                elif ends.count("completed") >= TURNS:
                    break
                else:
                    await host.run_turn(session, "go")
            await host.close(session)

    async def _found(self, host: Host, executor: ScriptedExecutor, store: Records) -> AgentSession:
        options = OpenOptions(session_id=SESSION)
        if await store.list(executor.descriptor.name, options.user_id):
            try:
                return await host.open(executor, options, load=SESSION)
            except SessionNotFound:  # its opening was cut off
                await executor.delete(SESSION)
        return await host.open(executor, options)


def says_no(seed: str, name: str, args: Mapping[str, Any]) -> bool:
    """Whether the person denies this call: the same in every life."""
    return random.Random(f"{seed} {name} {args['n']}").random() < 0.2


def word_of(answer: Answer) -> str:
    """What the record must say of a request whose answer was acknowledged."""
    if isinstance(answer, ElicitationAnswer):
        return answer.action
    if isinstance(answer, ToolGrant):
        return "granted"
    if isinstance(answer, ToolDenial):
        return "denied"
    return "unknown" if getattr(answer, "unknown", None) else "completed"


# -- lives and deaths -------------------------------------------------------------------------------------------------


def fork_life(folder: Path, seed: str, life: int, death: Death | None) -> bool:
    """One life in a process of its own; whether it was killed."""
    child = os.fork()
    if child == 0:
        _live(folder, seed, life, death)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        raise SystemExit(f"life {life} of {folder.name} failed; it ended with {os.waitstatus_to_exitcode(status)}")
    return False


def _live(folder: Path, seed: str, life: int, death: Death | None) -> NoReturn:
    faulthandler.dump_traceback_later(_LIFE_S, exit=True)
    status = 1
    try:
        notes = Notes(folder, life, death)
        notes.note("born")
        asyncio.run(Desk(notes, seed, life).live(folder))
        notes.note("done", steps=notes.steps)
        status = 0
    except BaseException:  # noqa: BLE001  # whatever it is, the parent's code must not go on in this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def notes_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / NOTES).read_text().splitlines()]


def deaths_of(steps: Mapping[str, int], drawn: random.Random) -> Iterator[Death]:
    """For first lives, for ever: every step once, one of each kind after the other, then anew."""
    while True:
        left = {what: drawn.sample(range(1, count + 1), count) for what, count in steps.items()}
        while left:
            for what in drawn.sample(sorted(left), len(left)):
                yield what, left[what].pop()
            left = {what: numbers for what, numbers in left.items() if numbers}


def main(place: str, kills: str, seed: str) -> None:
    drawn = random.Random(seed)
    left = int(kills)
    steps: Mapping[str, int] = {}
    deaths: Iterator[Death] = iter(())
    for number in itertools.count():
        folder = Path(place, f"session-{number}")
        folder.mkdir()
        for life in range(_MOST_LIVES):
            death: Death | None = None
            if number and left:  # the first session is not killed; each other one dies once, and perhaps again
                death = next(deaths) if life == 0 or drawn.random() < 0.4 else None
            if not fork_life(folder, f"{seed} {number}", life, death):
                break
            left -= 1
        else:
            raise SystemExit(f"{folder.name} does not end")
        if not number:
            steps = notes_in(folder)[-1]["steps"]
            deaths = deaths_of(steps, drawn)
        if not left:
            return


def folders(place: Path) -> Sequence[Path]:
    """The sessions, in order."""
    return sorted(place.iterdir(), key=lambda folder: int(folder.name.rpartition("-")[2]))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*sys.argv[1:4])
