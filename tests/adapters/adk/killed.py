"""A process that is killed while a turn waits: the child's side of ``test_session_durability.py``.

Run with a folder, a scenario, ``inline`` or ``parked``, and the step: ``start`` runs the turn to its pause and dies by
``os._exit``; ``cut`` dies in the middle of a stream; ``resume`` loads the session, answers and prints what came out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.function_tool import FunctionTool
from tests.adapters.adk.driving import Driven, agent, history, host_tool

from agentsession.adapters.adk import AdkExecutor, call, calls, hold, say
from agentsession.host import SqliteRecordStore
from agentsession.protocol import (
    Answer,
    ElicitationRequest,
    ExecutionOptions,
    OpenOptions,
    SessionMachine,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    accept,
    grant,
    result,
)

SESSION = "s-killed"
OPTIONS = OpenOptions(session_id=SESSION, execution=ExecutionOptions(tools=[host_tool("look"), host_tool("find")]))


def write(text: str) -> str:
    """Write."""
    note(f"wrote {text}")
    return f"wrote {text}"


def crash() -> None:
    """Die in the middle of the work."""
    note("began")
    os._exit(9)


def delete(text: str) -> str:
    """Delete."""
    note(f"deleted {text}")
    return "gone"


def note(line: str) -> None:
    with Path(sys.argv[1], "ran.txt").open("a") as file:
        file.write(line + "\n")


STEPS: dict[str, Any] = {
    "host": call("look", {"n": 1}, id="c1"),
    "two": calls(call("look", id="c1"), call("find", id="c2")),
    "mixed": calls(call("look", id="c1"), call("write", {"text": "x"}, id="c2")),
    "gate": call("write", {"text": "x"}, id="c1"),
    "crash": call("crash", id="c1"),
    "confirm": call("delete", {"text": "x"}, id="c1"),
    "input": call("adk_request_input", {"message": "Which?"}, id="c1"),
}


def root(step: str, scenario: str) -> Any:
    async def die() -> None:
        os._exit(9)

    after = hold(die) + say("never") if step == "cut" else say("done")
    script = {"start": [STEPS[scenario]], "cut": [STEPS[scenario], after], "resume": [say("done"), say("next")]}
    return agent(*script[step], tools=[write, crash, FunctionTool(delete, require_confirmation=True), request_input])


async def main(folder: str, scenario: str, mode: str, step: str) -> None:
    store = SqliteRecordStore(str(Path(folder, "record.db")))
    service = SqliteSessionService(str(Path(folder, "adk.db")))
    made = root(step, scenario)
    async with AdkExecutor(made, session_service=service, store=store, parked=mode == "parked") as executor:
        if step == "resume":
            await resume(executor, made)
            return
        desk = Driven(executor, await executor.open(OPTIONS))
        turn = await desk.stream("go")
        while scenario == "mixed" and desk.session.pending and _has(desk, "write"):
            turn = await desk.stream(grant(desk.pending("write")))
        assert turn.reason == "input_required"
        if step == "cut":
            await desk.stream(result(desk.pending("look"), "before the cut"))
        os._exit(9)


def _has(desk: Driven, name: str) -> bool:
    return any(getattr(item, "name", None) == name for item in desk.session.pending)


async def resume(executor: AdkExecutor, made: Any) -> None:
    session = await executor.load(SESSION, OpenOptions(execution=OPTIONS.execution))
    desk = Driven(executor, session)
    pending = [getattr(item, "name", getattr(item, "kind", "")) for item in session.pending]
    texts: list[str] = []
    while session.pending:
        item = session.pending[0]
        turn = await desk.stream(answer_to(item))
        texts += turn.texts
    shown = history(made.model) if made.model.requests else []
    last = await desk.stream("and now?")
    SessionMachine.fold(session.record)
    out = {
        "pending": pending,
        "texts": texts,
        "history": shown,
        "next": last.texts,
        "later": history(made.model),
        "responses": {e.name: e.status for e in session.record if isinstance(e, ToolResponse)},
        "ends": [[e.reason, (e.data or {}).get("cause")] for e in session.record if isinstance(e, StreamEnd)],
    }
    await session.aclose()
    sys.stdout.write(json.dumps(out))


def answer_to(item: ToolRequest | ElicitationRequest) -> Answer:
    if isinstance(item, ElicitationRequest):
        return accept(item.request_id, {"city": "Rome"} if item.kind == "clarification" else None)
    if item.needs == "grant":
        return grant(item.request_id, {"text": "edited"} if item.name == "write" else None)
    return result(item.request_id, f"{item.name} answered")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(*sys.argv[1:5]))
