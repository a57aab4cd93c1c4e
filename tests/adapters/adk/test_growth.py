"""What a session leaves in the process when it is closed: nothing (R120; the full size is a benchmark, adk_growth)."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from tests.adapters.adk.driving import Driven, host_tool
from tests.adapters.adk.test_recent_history import LONG, put, small_talk

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say
from agentsession.protocol import ExecutionOptions, MemoryRecordStore, OpenOptions

pytestmark = pytest.mark.anyio

SESSIONS = 20


def _agent(**fields: Any) -> LlmAgent:
    def step(request: LlmRequest) -> Any:
        model.requests.clear()
        last = request.contents[-1].parts or []
        return say("done") if any(part.function_response for part in last) else call("ask_host", {"q": 1})

    model = ScriptedLlm(forever=step)
    return LlmAgent(name="root", model=model, **fields)


async def _used(executor: AdkExecutor, how: str) -> None:
    ephemeral = how != "lasting"
    options = OpenOptions(execution=ExecutionOptions(tools=[host_tool("ask_host")], ephemeral=ephemeral))
    session = await executor.open(options)
    desk = Driven(executor, session)
    if how == "long":
        await put(desk, small_talk(LONG))
    if how == "waiting":
        assert (await desk.stream("go")).reason == "input_required"
    elif how == "aborted":
        await desk.stream("go")
        await session.abort("no")
    else:
        assert (await desk.turn("go")).reason == "completed"
    await session.aclose()
    if how == "lasting":
        await executor.delete(session.session_id)


async def _objects() -> Counter[str]:
    for _ in range(4):  # what hears that a task has ended holds it for a turn of the loop, and may free others
        await anyio.lowlevel.checkpoint()
        gc.collect()
    return Counter(f"{type(item).__module__}.{type(item).__qualname__}" for item in gc.get_objects())


@pytest.mark.parametrize("how", ["answered", "waiting", "aborted", "lasting", "long"])
async def test_sessions_that_were_closed_leave_no_objects(how: str, tmp_path: Any) -> None:
    service = SqliteSessionService(str(tmp_path / "adk.db")) if how == "lasting" else None
    async with AdkExecutor(_agent(), session_service=service, store=MemoryRecordStore()) as executor:
        counts: list[Counter[str]] = []
        for _ in range(3):
            for _ in range(SESSIONS):
                await _used(executor, how)
            counts.append(await _objects())
        if service is not None:
            await service.close()
    # What grows once is a cache; what each session leaves grows again and again.
    kept = (counts[1] - counts[0]) & (counts[2] - counts[1])
    assert not {kind: count for kind, count in kept.items() if count >= SESSIONS // 2}
