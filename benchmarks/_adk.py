"""Agents, scripts, services and turns for the benchmarks of the ADK adapter: raw ADK's, and the adapter's.

May import: google.adk, agentsession.adapters.adk, agentsession.host (the record store, when it is asked for).
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from agentsession.protocol import AgentSession, Answer, EventStream, ToolDescriptor, ToolRequest

__all__ = ["APP", "HOST_TOOL", "Services", "fill", "look", "old_turns", "raw_turn", "turn", "whole_turn"]

APP = "root"
CONFIG = RunConfig(streaming_mode=StreamingMode.SSE)

HOST_TOOL = ToolDescriptor(
    name="look",
    description="Look at a file.",
    parameters_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def look(path: str) -> dict[str, Any]:
    """Look at a file."""
    return {"path": path, "lines": 3}


class Services:
    """Session services of one kind, and record stores to go with them; closed together."""

    def __init__(self, folder: Path | None) -> None:
        """``folder``: SQLite files in a folder of their own in it; ``None``: in memory."""
        self._folder = Path(tempfile.mkdtemp(dir=folder)) if folder is not None else None
        self._open: list[SqliteSessionService] = []
        self._count = 0

    def sessions(self) -> BaseSessionService:
        if self._folder is None:
            return InMemorySessionService()  # type: ignore[no-untyped-call,unused-ignore]
        self._count += 1
        service = SqliteSessionService(str(self._folder / f"adk{self._count}.db"))
        self._open.append(service)
        return service

    def records(self) -> Any:
        """A record store that lasts as long as the sessions do; in memory none is needed."""
        if self._folder is None:
            return None
        from agentsession.host import SqliteRecordStore

        self._count += 1
        return SqliteRecordStore(self._folder / f"records{self._count}.db")

    async def aclose(self) -> None:
        while self._open:
            await self._open.pop().close()


@asynccontextmanager
async def opened(services: Services) -> AsyncIterator[Services]:
    """The services, closed at the end."""
    try:
        yield services
    finally:
        await services.aclose()


def old_turns(count: int) -> list[Event]:
    """``count`` events of turns with a question and an answer, some time ago."""
    began = time.time() - 10 * count
    events = []
    for at in range(count):
        author = "user" if at % 2 == 0 else "root"
        role = "user" if author == "user" else "model"
        part = types.Part(text=f"What was said at {at}, in a sentence of usual length, with nothing special in it.")
        content = types.Content(role=role, parts=[part])
        event = Event(author=author, invocation_id=f"old-{at // 2}", content=content)
        event.timestamp = began + at
        events.append(event)
    return events


async def fill(service: BaseSessionService, user: str, session: str, events: Iterable[Event]) -> None:
    """Put events into a stored session as its service would, without the minutes that this takes one by one."""
    if isinstance(service, InMemorySessionService):
        service.sessions[APP][user][session].events.extend(events)
        return
    assert isinstance(service, SqliteSessionService)
    with sqlite3.connect(service._db_path) as db:
        db.executemany(
            "INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    e.id,
                    APP,
                    user,
                    session,
                    e.invocation_id,
                    e.timestamp,
                    json.dumps(json.loads(e.model_dump_json(exclude_none=True))),
                )
                for e in events
            ],
        )
    db.close()


def raw_runner(agent: LlmAgent, service: BaseSessionService) -> Runner:
    return Runner(app=App(name=APP, root_agent=agent), session_service=service)


async def raw_turn(runner: Runner, text: str = "go", answer: Callable[[Any], Any] | None = None) -> float:
    """The seconds that one turn takes raw ADK; with ``answer``, calls that pause it are answered and it is resumed."""
    message: types.Content | None = types.Content(role="user", parts=[types.Part(text=text)])
    start = time.perf_counter()
    while message is not None:
        following = None
        async for event in runner.run_async(user_id="u", session_id="s", new_message=message, run_config=CONFIG):
            for made in event.get_function_calls() if answer is not None else ():
                assert answer is not None
                response = types.FunctionResponse(id=made.id, name=made.name, response=answer(made.args))
                following = types.Content(role="user", parts=[types.Part(function_response=response)])
        message = following
    return time.perf_counter() - start


async def turn(events: EventStream) -> str:
    """Read a stream to its end; the reason."""
    async with events:
        async for _ in events:
            pass
    assert events.end is not None
    return events.end.reason


async def whole_turn(session: AgentSession, reply: Callable[[ToolRequest], Answer]) -> int:
    """A turn with all its pauses, each answered by ``reply`` in a new stream; how many there were."""
    pauses = 0
    reason = await turn(session.stream("go"))
    while reason == "input_required":
        pauses += 1
        (request,) = session.pending
        assert isinstance(request, ToolRequest)
        reason = await turn(session.stream(reply(request)))
    assert reason == "completed", reason
    return pauses
