"""What sessions leave behind: 1,000 sessions opened, used for a turn with a call of the host's tool, and closed, twice.

ADK's in-memory sessions are the user's to keep or delete; the sessions here are ephemeral, so closing deletes them. The
first thousand fills caches; what the second adds is growth. ``left open``: the turn waits, and the session is closed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import Iterator

from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say
from agentsession.protocol import Answer, ExecutionOptions, OpenOptions, ToolRequest, result
from benchmarks._adk import APP, HOST_TOOL, look, turn, whole_turn
from benchmarks._rows import Row

__all__ = ["grown", "rows"]

_SESSIONS = 1_000


def _agent() -> LlmAgent:
    """Calls the tool when it was told something, says yes when it has the result, and keeps no requests."""

    def step(request: LlmRequest) -> object:
        last = request.contents[-1]
        model.requests.clear()
        answered = any(part.function_response for part in last.parts or ())
        return say("Yes.") if answered else call("look", {"path": "f"})

    model = ScriptedLlm(forever=step)
    return LlmAgent(name=APP, model=model)


def _reply(request: ToolRequest) -> Answer:
    return result(request.request_id, look(**(request.args or {})))


async def grown(sessions: int, *, answers: bool) -> tuple[int, int]:
    """By how many objects, and bytes, the second of two runs of so many sessions grew the process."""
    options = OpenOptions(execution=ExecutionOptions(tools=[HOST_TOOL], ephemeral=True))
    counts: list[int] = []
    sizes: list[int] = []
    tracemalloc.start()
    try:
        async with AdkExecutor(_agent()) as executor:
            for _ in range(2):
                for _ in range(sessions):
                    session = await executor.open(options)
                    if answers:
                        await whole_turn(session, _reply)
                    else:
                        assert await turn(session.stream("go")) == "input_required"
                    await session.aclose()
                session = None  # type: ignore[assignment]
                for _ in range(3):
                    await asyncio.sleep(0)
                    gc.collect()
                counts.append(len(gc.get_objects()))
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    return counts[1] - counts[0], sizes[1] - sizes[0]


def rows() -> Iterator[Row]:
    """Objects and bytes for each session of the second thousand."""
    logging.disable(logging.WARNING)
    for name, answers in (("used and closed", True), ("left open, and closed unanswered", False)):
        objects, size = asyncio.run(grown(_SESSIONS, answers=answers))
        yield Row(f"{_SESSIONS:,} sessions {name}: objects left by each", objects / _SESSIONS, "objects", 0.05)
        yield Row(f"{_SESSIONS:,} sessions {name}: memory left by each", size / _SESSIONS, "bytes", 50)
