"""What the ADK adapter costs, as ratios to raw ADK measured in the same process and minute.

- 2,000 text deltas in one answer: through the adapter against ``Runner.run_async`` alone.
- 200 round trips of a host's tool, each a stream that ends input_required and one that continues, against raw ADK that
  runs the same tool natively; and against raw ADK's own pause and resume of a long-running tool.

Times are elapsed seconds, with the garbage collector on, as a user has them. A shared machine drifts by more than what
is measured, so the two of a pair run one after the other, first one and then the other first, and the ratio is the
median of the ratios of many pairs.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, call, say, stream
from agentsession.protocol import ExecutionOptions, OpenOptions, ToolDescriptor, ToolRequest, result

DELTAS = 2_000
TRIPS = 200
ROUNDS = 6
RATIOS = ("ratio", "of the fastest")


def look(path: str) -> dict[str, Any]:
    """Look at a file."""
    return {"path": path, "lines": 3}


HOST_TOOL = ToolDescriptor(
    name="look",
    description="Look at a file.",
    parameters_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def deltas_model() -> ScriptedLlm:
    return ScriptedLlm(script=[stream(*["token "] * DELTAS)])


def trips_model() -> ScriptedLlm:
    return ScriptedLlm(script=[*(call("look", {"path": f"f{n}"}, id=f"c{n}") for n in range(TRIPS)), say("end")])


def _user(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


async def _raw(agent: LlmAgent, *, resume: bool = False) -> float:
    service = InMemorySessionService()  # type: ignore[no-untyped-call,unused-ignore]
    runner = Runner(app=App(name="bench", root_agent=agent), session_service=service)
    await service.create_session(app_name="bench", user_id="u", session_id="s")
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    message: types.Content | None = _user("go")
    start = time.perf_counter()
    while message is not None:
        answer = None
        async for event in runner.run_async(user_id="u", session_id="s", new_message=message, run_config=config):
            for made in event.get_function_calls() if resume else ():
                response = types.FunctionResponse(id=made.id, name=made.name, response=look(**(made.args or {})))
                answer = types.Content(role="user", parts=[types.Part(function_response=response)])
        message = answer
    return time.perf_counter() - start


async def raw_deltas() -> float:
    return await _raw(LlmAgent(name="root", model=deltas_model()))


async def raw_native_trips() -> float:
    return await _raw(LlmAgent(name="root", model=trips_model(), tools=[look]))


async def raw_paused_trips() -> float:
    def parked(path: str) -> None:
        """Look at a file."""

    parked.__name__ = "look"
    return await _raw(LlmAgent(name="root", model=trips_model(), tools=[LongRunningFunctionTool(parked)]), resume=True)


async def adapter_deltas() -> float:
    async with AdkExecutor(LlmAgent(name="root", model=deltas_model())) as executor:
        session = await executor.open()
        start = time.perf_counter()
        async with session.stream("go") as events:
            async for _ in events:
                pass
        return time.perf_counter() - start


async def adapter_trips() -> float:
    options = OpenOptions(execution=ExecutionOptions(tools=[HOST_TOOL]))
    async with AdkExecutor(LlmAgent(name="root", model=trips_model())) as executor:
        session = await executor.open(options)
        start = time.perf_counter()
        events = session.stream("go")
        trips = 0
        while True:
            async with events:
                async for _ in events:
                    pass
            assert events.end is not None
            if events.end.reason != "input_required":
                break
            trips += 1
            request = session.pending[0]
            assert isinstance(request, ToolRequest)
            events = session.stream(result(request.request_id, look(**(request.args or {}))))
        elapsed = time.perf_counter() - start
        assert trips == TRIPS, trips
        assert events.end.reason == "completed", events.end
        return elapsed


Measured = Callable[[], Awaitable[float]]


def compare(rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """The median seconds of each way, and the median ratio of the adapter to raw ADK over the pairs, by name."""
    logging.disable(logging.WARNING)
    pairs: dict[str, tuple[int, dict[str, Measured]]] = {
        "2,000 deltas": (4 * rounds, {"raw": raw_deltas, "adapter": adapter_deltas}),
        "200 host tool round trips": (
            rounds,
            {"raw": raw_native_trips, "adapter": adapter_trips, "raw pause": raw_paused_trips},
        ),
    }
    out: dict[str, dict[str, float]] = {}
    for name, (count, ways) in pairs.items():
        times: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(count):
            for way, measured in ways.items() if number % 2 else reversed(ways.items()):
                times[way].append(asyncio.run(measured()))  # type: ignore[arg-type]  # coroutine functions
        ratios = [ours / raw for ours, raw in zip(times["adapter"], times["raw"], strict=True)]
        out[name] = {
            **{way: statistics.median(values) for way, values in times.items()},
            "ratio": statistics.median(ratios),
            "of the fastest": min(times["adapter"]) / min(times["raw"]),
        }
    return out


def main(rounds: int = ROUNDS) -> None:
    """Print the table."""
    for name, figures in compare(rounds).items():
        shown = "  ".join(f"{key} {value:.3f}" + ("" if key in RATIOS else " s") for key, value in figures.items())
        print(f"{name:28} {shown}")


if __name__ == "__main__":
    main()
