"""A host as a user would write it: type-checked against the installed wheel, never run.

``assert_type`` states what a type checker must infer; a change that widens a public type to ``Any`` fails here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from agentsession.protocol import (
    AbortResult,
    AgentExecutor,
    AgentSession,
    Answer,
    ElicitationRequest,
    EventStream,
    ExecutionOptions,
    MemoryRecordStore,
    Message,
    OpenOptions,
    PendingRequest,
    ProtocolViolation,
    Receipt,
    RecordStore,
    SteerData,
    StreamActive,
    StreamEnd,
    ToolDescriptor,
    ToolRequest,
    accept,
    decline,
    deny,
    grant,
    plain_text,
    result,
)

READ_FILE = ToolDescriptor(name="read_file", description="Read one file.")


def answer_one(request: PendingRequest) -> Answer:
    """Every kind of pending request has an answer: no ``Any`` and no cast is needed."""
    if isinstance(request, ElicitationRequest):
        if request.kind == "clarification":
            return accept(request.request_id, {"region": "eu-west"})
        return decline(request.request_id)
    assert_type(request, ToolRequest)
    if request.needs == "grant":
        return grant(request.request_id, {"path": "cart.py"})
    if request.name == "rm":
        return deny(request.request_id, "outside the workspace")
    return result(request.request_id, {"lines": 41}, is_error=False)


async def one_turn(session: AgentSession, text: str) -> str:
    said: list[str] = []
    todo: str | Sequence[Answer] = text
    while True:
        async with session.stream(todo) as stream:
            assert_type(stream, EventStream)
            async for event in stream:
                if isinstance(event, Message) and event.role == "agent" and not event.partial:
                    said.append(plain_text(event.content))
            end = stream.end
            assert_type(end, StreamEnd | None)
        if end is None or end.reason != "input_required":
            return "".join(said)
        todo = [answer_one(request) for request in session.pending]


async def drive(executor: AgentExecutor) -> None:
    store: RecordStore = MemoryRecordStore()
    options = OpenOptions(user_id="u-1", execution=ExecutionOptions(tools=[READ_FILE], streaming=True))
    async with executor, await executor.open(options, store=store) as session:
        assert_type(session, AgentSession)
        try:
            await one_turn(session, "Fix the login bug")
        except StreamActive:
            await session.steer("wait for the tests")
        except ProtocolViolation as error:
            print(error.rule, error.blame, error.fix)
        assert_type(await session.respond(result("r-1", 1)), Sequence[Receipt])
        assert_type(await session.steer(SteerData(action="background")), Receipt)
        assert_type(await session.abort("the user pressed Ctrl-C"), AbortResult)
        async for event in session.events(after=0, types={"message"}):
            print(event.seq, event.type)
