"""What the ADK adapter costs, as ratios to raw ADK measured in the same process and minute.

- 2,000 text deltas in one answer: through the adapter against ``Runner.run_async`` alone.
- 200 round trips of a tool in one turn, each a stream that ends input_required and one that continues, against raw ADK
  that runs the same tool natively: a tool of the host's, and the agent's own tool behind a grant. In memory, and with
  ADK's sessions and the record on SQLite. Beside them raw ADK's own pause and resume of a long-running tool.

Times are elapsed seconds, with the garbage collector on, as a user has them; see ``in_turn`` for how they are compared.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.long_running_tool import LongRunningFunctionTool

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say, stream
from agentsession.protocol import Answer, ExecutionOptions, OpenOptions, ToolRequest, grant, result
from benchmarks._adk import APP, HOST_TOOL, Services, look, opened, raw_runner, raw_turn, turn, whole_turn
from benchmarks._rows import Measured, Row, in_turn, ratio

__all__ = ["rows"]

_DELTAS = 2_000
_TRIPS = 200
_ROUNDS = 6
_GOALS = {"deltas": 1.15, "trips": 1.25}


def _deltas_agent() -> LlmAgent:
    return LlmAgent(name=APP, model=ScriptedLlm(script=[stream(*["token "] * _DELTAS)]))


def _trips_agent(*tools: Any) -> LlmAgent:
    script = [*(call("look", {"path": f"f{n}"}, id=f"c{n}") for n in range(_TRIPS)), say("end")]
    return LlmAgent(name=APP, model=ScriptedLlm(script=script), tools=list(tools))


def raw(make: Callable[[], LlmAgent], folder: Path | None = None, *, resumes: bool = False) -> Measured:
    """One turn by raw ADK."""

    async def measured() -> float:
        async with opened(Services(folder)) as services:
            service = services.sessions()
            await service.create_session(app_name=APP, user_id="u", session_id="s")
            answer = (lambda args: look(**args)) if resumes else None
            return await raw_turn(raw_runner(make(), service), answer=answer)

    return measured


def adapter(
    make: Callable[[], LlmAgent],
    folder: Path | None = None,
    *,
    options: ExecutionOptions | None = None,
    reply: Callable[[ToolRequest], Answer] | None = None,
) -> Measured:
    """One turn through the adapter; ``reply`` answers what waits."""

    async def measured() -> float:
        async with opened(Services(folder)) as services:
            executor = AdkExecutor(make(), session_service=services.sessions(), store=services.records())
            async with executor:
                session = await executor.open(OpenOptions(execution=options or ExecutionOptions()))
                start = time.perf_counter()
                if reply is None:
                    assert await turn(session.stream("go")) == "completed"
                else:
                    pauses = await whole_turn(session, reply)
                    assert pauses == _TRIPS, pauses
                return time.perf_counter() - start

    return measured


def _native() -> LlmAgent:
    return _trips_agent(look)


def _parked() -> LlmAgent:
    def parked(path: str) -> None:
        """Look at a file."""

    parked.__name__ = "look"
    return _trips_agent(LongRunningFunctionTool(parked))


def _answered(request: ToolRequest) -> Answer:
    return result(request.request_id, look(**(request.args or {})))


def _granted(request: ToolRequest) -> Answer:
    return grant(request.request_id)


def rows() -> Iterator[Row]:
    """Deltas, then round trips: seconds of each way, and the ratio to the first."""
    logging.disable(logging.WARNING)
    yield from _compared(
        "2,000 deltas",
        4 * _ROUNDS,
        {"raw ADK": raw(_deltas_agent), "adapter": adapter(_deltas_agent)},
        _GOALS["deltas"],
    )
    hosts = ExecutionOptions(tools=[HOST_TOOL])
    gated = ExecutionOptions(host_tool_execution=True)
    with tempfile.TemporaryDirectory() as place:
        for where, folder in (("in memory", None), ("SQLite", Path(place))):
            ways = {
                "raw ADK, native": raw(_native, folder),
                "host's tool": adapter(_trips_agent, folder, options=hosts, reply=_answered),
                "agent's tool, granted": adapter(_native, folder, options=gated, reply=_granted),
                "raw ADK, pause and resume": raw(_parked, folder, resumes=True),
            }
            yield from _compared(f"{_TRIPS} trips {where}", _ROUNDS, ways, _GOALS["trips"])


def _compared(name: str, rounds: int, ways: dict[str, Measured], goal: float) -> Iterator[Row]:
    times = in_turn(rounds, ways)
    first = next(iter(ways))
    for way, taken in times.items():
        yield Row(f"{name}: {way}", statistics.median(taken), "s")
    for way, taken in times.items():
        if way != first:
            wanted = None if way.startswith("raw") else goal
            yield Row(f"{name}: {way} in terms of {first}", ratio(taken, times[first]), "times", wanted)
