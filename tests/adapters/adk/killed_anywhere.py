"""Sessions whose process is killed anywhere: the killed side of ``test_session_killed_anywhere.py``.

Run with a folder, ``inline`` or ``parked``, a number of kills and a seed. Session after session is played to its end,
each in a folder of its own, and each *life* of it in a forked process. A life counts its steps: what it writes to the
record and to ADK's session, entries and exits of tools, model calls, answers, events that its reader was given. At the
step that was drawn for it (the n-th of a kind), it kills itself by SIGKILL; the next life loads the session, answers
what waits and goes on.

A kill leaves what is on the disk, and only steps change what is there, or what somebody outside knows of it. So to be
killed at every step is to be killed anywhere.

What must be known outside goes to ``notes.ndjson`` of the session's folder, by O_APPEND, at once; what tools do and
what was acknowledged also by fsync. The databases need not wait for the disk: what a process has written outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
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
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import anyio
from google.adk.events.event import Event as AdkEvent
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from sqlalchemy.event import listen
from tests.adapters.adk.driving import agent, host_tool

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, Step, call, calls, stream
from agentsession.adapters.base import BaseSession
from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    OpenOptions,
    Receipt,
    RecordKey,
    SessionNotFound,
    StreamEnd,
    ToolDenial,
    ToolGrant,
    ToolRequest,
    accept,
    decline,
    deny,
    grant,
    is_ephemeral,
    result,
)

SESSION: Final = "s-killed"
NOTES: Final = "notes.ndjson"
SAID: Final = ("first", "second")
"""What the person says; each has a turn of its own. Over a turn that was lost it says ``go on``."""

DECIDED: Final = ("look", "write", "delete", "ask", "question about ask", "clarification")
"""What the host says yes or no to."""

_LIFE_S: Final = 60
"""Bounds a life that hangs; no life waits for it."""

_MOST_LIVES: Final = 40

_SYNCED: Final = ("entered", "left", "receipt", "killed")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is drawn for one session: everything in it follows from the seed and the session's number."""

    seed: str
    parked: bool
    declined: frozenset[str]
    turns_a_write: int
    """How often others get their turn before the record is written: who does not wait for the store goes on."""

    @classmethod
    def of(cls, seed: str, number: int, *, parked: bool) -> Plan:
        drawn = random.Random(f"{seed} {parked} {number}")
        # To the first nobody says no: it is not killed, and tells what steps there are.
        declined = drawn.sample(DECIDED, 2 if number else 0)
        return cls(f"{seed} {parked} {number}", parked, frozenset(declined), drawn.choice((0, 1000, 1000)))


Death = tuple[str, int]
"""The n-th step of a kind."""


class Notes:
    """The life's steps, and what it tells those outside."""

    def __init__(self, folder: Path, life: int, death: Death | None) -> None:
        self._file = os.open(folder / NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
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


# -- what is on the disk ----------------------------------------------------------------------------------------------


class Records(SqliteRecordStore):
    """The record store; also the moment before a transaction is done is a step."""

    def __init__(self, path: str, notes: Notes, turns_a_write: int) -> None:
        super().__init__(path)
        listen(self._engine, "connect", _do_not_sync)
        self._notes = notes
        self._turns_a_write = turns_a_write

    async def append(self, key: RecordKey, events: Sequence[Event], *, reserved_seq: int) -> None:
        for _ in range(self._turns_a_write):  # turns of the loop, drawn: nothing is waited for
            await anyio.lowlevel.checkpoint()
        await super().append(key, events, reserved_seq=reserved_seq)

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Any]:
        if not write:
            with super()._transaction(write=False) as connection:
                yield connection
            return
        with super()._transaction(write=True) as connection:
            yield connection
            self._notes.step("before the commit of a write to the record")
        self._notes.step("after a write to the record")


def _do_not_sync(connection: Any, record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF").close()


class Sessions(SqliteSessionService):
    """ADK's session service."""

    def __init__(self, path: str, notes: Notes) -> None:
        super().__init__(path)
        self._notes = notes

    @contextlib.asynccontextmanager
    async def _get_db_connection(self) -> AsyncIterator[Any]:
        async with super()._get_db_connection() as connection:
            await connection.execute("PRAGMA synchronous=OFF")
            yield connection

    async def create_session(self, **fields: Any) -> Session:
        self._notes.step("before ADK's session is written")
        made = await super().create_session(**fields)
        self._notes.step("after ADK's session was written")
        return made

    async def append_event(self, session: Session, event: AdkEvent) -> AdkEvent:
        if event.partial:
            return await super().append_event(session, event)
        given = " results" if event.get_function_responses() else ""
        self._notes.step(f"before ADK's session is written{given}")
        stored = await super().append_event(session, event)
        self._notes.step(f"after ADK's session was written{given}")
        return stored


# -- the agent --------------------------------------------------------------------------------------------------------


class Tools:
    """The agent's own tools. Each is asynchronous and gives others their turn between its entry and its exit."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    async def _work(self, tool: str, context: ToolContext, **seen: Any) -> None:
        notes, call_id = self._notes, context.function_call_id
        notes.step("before a tool begins")
        notes.note("entered", tool=tool, call=call_id, **seen)
        notes.step("when a tool has begun")
        for _ in range(3):  # turns of the loop for the calls beside it: nothing is waited for
            await anyio.lowlevel.checkpoint()
        notes.note("left", tool=tool, call=call_id)
        notes.step("after a tool has ended")

    async def write(self, text: str, tool_context: ToolContext) -> str:
        """Write."""
        await self._work("write", tool_context, args={"text": text})
        return f"wrote {text}"

    async def delete(self, path: str, tool_context: ToolContext) -> str:
        """Delete."""
        await self._work("delete", tool_context, args={"path": path})
        return f"deleted {path}"

    async def ask(self, about: str, tool_context: ToolContext) -> Any:
        """Do something, when a person has said how."""
        said = tool_context.tool_confirmation
        if said is None:
            self._notes.note("asked", tool="ask", call=tool_context.function_call_id)
            self._notes.step("after a tool has ended")
            tool_context.request_confirmation(hint="How?", payload={"how": "?"})
            return {"status": "asked"}
        await self._work("ask", tool_context, args={"about": about}, payload=said.payload)
        return f"did {about}"


FIRST: Final = (
    stream("First ", "I ", "look.")
    + call("look", {"n": 1}, id="c-look")
    + call("write", {"text": "draft one"}, id="c-write")
    + call("delete", {"path": "x"}, id="c-delete")
    + call("ask", {"about": "y"}, id="c-ask")
)
SECOND: Final = calls(
    call("adk_request_input", {"message": "Where?"}, id="c-input"),
    call("write", {"text": "draft two"}, id="c-write-2"),
)


def model(notes: Notes) -> ScriptedLlm:
    """What it answers follows from what it is shown alone: a life knows nothing of those before it."""

    def answer(request: LlmRequest) -> Step:
        parts = [part for content in request.contents for part in content.parts or []]
        shown: list[list[Any]] = []
        for part in parts:
            if part.function_call is not None:
                shown.append(["call", part.function_call.id, part.function_call.name])
            elif part.function_response is not None:
                shown.append(["result", part.function_response.id, part.function_response.response])
        said = [content.parts[0].text for content in request.contents if content.role == "user" and content.parts]
        spoke = [part.text for content in request.contents for part in content.parts or [] if content.role == "model"]
        notes.note("model", shown=shown, said=[text for text in said if text], spoke=[text for text in spoke if text])
        notes.step("in a model call")
        called = {part.function_call.id for part in parts if part.function_call is not None}
        if "c-look" not in called:
            return FIRST
        if SAID[1] in said and "c-input" not in called:
            return SECOND
        return stream("do", "ne")

    return ScriptedLlm(forever=answer)


# -- the host ---------------------------------------------------------------------------------------------------------


class Person:
    """Drives one life of the session to the end of both turns."""

    def __init__(self, notes: Notes, plan: Plan, life: int) -> None:
        self._notes = notes
        self._plan = plan
        self._drawn = random.Random(f"{plan.seed}/{life}")
        self._seen: set[int] = set()

    async def live(self, folder: Path, seen: int) -> None:
        notes = self._notes
        tools = Tools(notes)
        own = [tools.write, FunctionTool(tools.delete, require_confirmation=True), tools.ask, request_input]
        root = agent(tools=own).model_copy(update={"model": model(notes)})
        async with (
            Records(str(folder / "record.db"), notes, self._plan.turns_a_write) as store,
            AdkExecutor(
                root,
                session_service=Sessions(str(folder / "adk.db"), notes),
                store=store,
                parked=self._plan.parked,
            ) as executor,
        ):
            session = await self._found(executor, store)
            async with session.events(after=min(seen, session.last_seq), follow=True) as follower:
                followed = asyncio.create_task(self._follow(follower))
                await self._play(session)
                await session.aclose()
                await followed

    async def _found(self, executor: AdkExecutor, store: Records) -> BaseSession:
        options = OpenOptions(session_id=SESSION, execution=ExecutionOptions(tools=[host_tool("look")]))
        if await store.list(executor.descriptor.name, options.user_id):
            try:
                return await executor.load(SESSION, options)
            except SessionNotFound:  # its opening was cut off
                await executor.delete(SESSION)
        return await executor.open(options)

    async def _follow(self, reader: Any) -> None:
        async for event in reader:
            self._saw(event)

    def _saw(self, event: Event) -> None:
        if event.seq not in self._seen:  # the other reader has noted it
            self._seen.add(event.seq)
            self._notes.note("saw", event=event.to_wire())

    async def _play(self, session: BaseSession) -> None:
        for _ in range(100):
            if session.state == "input_required":
                await self._answer(session)
                continue
            reasons = [event.reason for event in session.record if isinstance(event, StreamEnd)]
            done = reasons.count("completed")
            if done == len(SAID):
                return
            await self._read(session, "go on" if reasons and reasons[-1] == "failed" else SAID[done])
        raise AssertionError("the turns do not end")

    async def _answer(self, session: BaseSession) -> None:
        """Some of the answers or all, before the stream or with it."""
        drawn = self._drawn
        waiting = sorted(session.pending, key=lambda item: item.request_id)
        if not waiting:
            await self._read(session, None)
            return
        chosen = drawn.sample(waiting, drawn.randint(1, len(waiting)))
        answers = [self._said_to(session, item) for item in chosen]
        self._notes.step("before an answer")
        if drawn.random() < 0.6:
            self._got(answers, await session.respond(*answers))
        else:
            await self._read(session, answers)

    def _got(self, answers: Sequence[Answer], receipts: Sequence[Receipt]) -> None:
        for answer, receipt in zip(answers, receipts, strict=True):
            assert receipt.status == "applied", receipt
            self._notes.note("receipt", request=receipt.request_id, said=word_of(answer))
            self._notes.step("after a receipt")

    async def _read(self, session: BaseSession, given: str | list[Answer] | None) -> None:
        async with session.stream(given) as events:
            self._got(given if isinstance(given, list) else [], events.receipts)
            async for event in events:
                self._saw(event)
                self._notes.step(f"when the reader has {'a delta' if is_ephemeral(event) else 'an event'}")

    def _said_to(self, session: BaseSession, item: ToolRequest | ElicitationRequest) -> Answer:
        declined, request_id = self._plan.declined, item.request_id
        if isinstance(item, ToolRequest):
            if item.name in declined:
                return deny(request_id, "no")
            if item.needs == "result":
                return result(request_id, {"lines": 3})
            return grant(request_id, edited(item.args) if item.name == "write" else None)
        if item.kind == "clarification":
            return decline(request_id) if item.kind in declined else accept(request_id, {"city": "Rome"})
        asks = [
            event.name
            for event in session.record
            if getattr(event, "request_id", None) == item.tool_request_id
            if isinstance(event, ToolRequest)
        ]
        if asks[0] == "ask":
            if "question about ask" in declined:
                return decline(request_id)
            return accept(request_id, {"payload": {"how": "gently"}})
        return decline(request_id) if asks[0] in declined else accept(request_id)


def word_of(answer: Answer) -> str:
    """What the record must say of a request whose answer was acknowledged."""
    if isinstance(answer, ElicitationAnswer):
        return answer.action
    if isinstance(answer, ToolGrant):
        return "granted"
    return "denied" if isinstance(answer, ToolDenial) else "completed"


def edited(args: Any) -> dict[str, Any]:
    return {"text": str(args["text"]).replace("draft", "final")}


# -- lives and deaths -------------------------------------------------------------------------------------------------


def fork_life(folder: Path, plan: Plan, life: int, death: Death | None) -> bool:
    """One life in a process of its own; whether it was killed."""
    child = os.fork()
    if child == 0:
        _live(folder, plan, life, death)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        raise SystemExit(f"life {life} of {folder.name} failed; it ended with {os.waitstatus_to_exitcode(status)}")
    return False


def _live(folder: Path, plan: Plan, life: int, death: Death | None) -> NoReturn:
    faulthandler.dump_traceback_later(_LIFE_S, exit=True)
    status = 1
    try:
        notes = Notes(folder, life, death)
        notes.note("born")
        asyncio.run(Person(notes, plan, life).live(folder, last_seen(folder)))
        notes.note("done", steps=notes.steps)
        status = 0
    except BaseException:  # noqa: BLE001  # whatever it is, the parent's code must not go on in this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def last_seen(folder: Path) -> int:
    """Where a reader of the session goes on: the cursor that it has kept."""
    return max((note["event"]["seq"] for note in notes_in(folder) if note["note"] == "saw"), default=0)


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


def early(steps: Mapping[str, int], drawn: random.Random) -> Death:
    """For later lives, which are shorter."""
    what = drawn.choice(sorted(steps))
    return what, drawn.randint(1, min(steps[what], 4))


def main(place: str, mode: str, kills: str, seed: str) -> None:
    drawn = random.Random(f"{seed} {mode}")
    left = int(kills)
    steps: Mapping[str, int] = {}
    deaths: Iterator[Death] = iter(())
    for number in itertools.count():
        folder = Path(place, f"session-{number}")
        folder.mkdir()
        plan = Plan.of(seed, number, parked=mode == "parked")
        for life in range(_MOST_LIVES):
            death: Death | None = None
            if number and left:  # the first session is not killed; each other one dies once, and perhaps again
                death = next(deaths) if life == 0 else early(steps, drawn) if drawn.random() < 0.4 else None
            if not fork_life(folder, plan, life, death):
                break
            left -= 1
        else:
            raise SystemExit(f"{folder.name} does not end")
        if not number:
            steps = notes_in(folder)[-1]["steps"]
            deaths = deaths_of(steps, drawn)
        if not left:
            return


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*sys.argv[1:5])
