"""Sessions whose process is killed anywhere: the killed side of ``test_session_killed_anywhere.py``.

Run with a folder, ``inline`` or ``parked``, a number of kills and a seed. Session after session is played by an ADK
agent, and killed as ``tests/killing.py`` says: at writes to the record and to ADK's session, entries and exits of
tools, model calls, answers, events that the reader was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from google.adk.events.event import Event as AdkEvent
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.driving import agent, host_tool
from tests.killing import Notes, Records, notes_in, play, word_of

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, Step, call, calls, stream
from agentsession.adapters.base import BaseSession
from agentsession.protocol import (
    Answer,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    OpenOptions,
    Receipt,
    SessionNotFound,
    StreamEnd,
    ToolRequest,
    accept,
    decline,
    deny,
    grant,
    is_ephemeral,
    result,
)

SESSION: Final = "s-killed"
SAID: Final = ("first", "second")
"""What the person says; each has a turn of its own. Over a turn that was lost it says ``go on``."""

DECIDED: Final = ("look", "write", "delete", "ask", "question about ask", "clarification")
"""What the host says yes or no to."""


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


# -- what is on the disk ----------------------------------------------------------------------------------------------


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
            Records(folder / "record.db", notes, self._plan.turns_a_write) as store,
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


def edited(args: Any) -> dict[str, Any]:
    return {"text": str(args["text"]).replace("draft", "final")}


# -- lives and deaths -------------------------------------------------------------------------------------------------


def last_seen(folder: Path) -> int:
    """Where a reader of the session goes on: the cursor that it has kept."""
    return max((note["event"]["seq"] for note in notes_in(folder) if note["note"] == "saw"), default=0)


def main(place: str, mode: str, kills: str, seed: str) -> None:
    async def live(folder: Path, number: int, life: int, notes: Notes) -> None:
        plan = Plan.of(seed, number, parked=mode == "parked")
        await Person(notes, plan, life).live(folder, last_seen(folder))

    play(Path(place), int(kills), f"{seed} {mode}", live)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*sys.argv[1:5])
