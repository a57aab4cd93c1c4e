"""What the ADK adapter costs, as ratios to raw ADK measured in the same process and minute.

- 2,000 text deltas in one answer: through the adapter against ``Runner.run_async`` alone.
- 200 round trips of a host's tool, each a stream that ends input_required and one that continues, against raw ADK that
  runs the same tool natively; and against raw ADK's own pause and resume of a long-running tool.

Each pair is run several times in turn. Times are the process's own CPU seconds, for a shared machine drifts by more
than what is measured; the ratio is that of the fastest runs, which the machine disturbed least.
"""

from __future__ import annotations

import asyncio
import gc
import logging
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
ROUNDS = 5


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
    start = time.process_time()
    while message is not None:
        answer = None
        async for event in runner.run_async(user_id="u", session_id="s", new_message=message, run_config=config):
            for made in event.get_function_calls() if resume else ():
                response = types.FunctionResponse(id=made.id, name=made.name, response=look(**(made.args or {})))
                answer = types.Content(role="user", parts=[types.Part(function_response=response)])
        message = answer
    return time.process_time() - start


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
        start = time.process_time()
        async with session.stream("go") as events:
            async for _ in events:
                pass
        return time.process_time() - start


async def adapter_trips() -> float:
    options = OpenOptions(execution=ExecutionOptions(tools=[HOST_TOOL]))
    async with AdkExecutor(LlmAgent(name="root", model=trips_model())) as executor:
        session = await executor.open(options)
        start = time.process_time()
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
        elapsed = time.process_time() - start
        assert trips == TRIPS, trips
        assert events.end.reason == "completed", events.end
        return elapsed


Measured = Callable[[], Awaitable[float]]


def compare(rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """The fastest run of each in CPU seconds, and the ratio of the fastest, by name.

    A shared machine only ever makes a run slower, so the fastest of several is the nearest to what the code costs.
    """
    logging.disable(logging.WARNING)
    pairs: dict[str, dict[str, Measured]] = {
        "2,000 deltas": {"raw": raw_deltas, "adapter": adapter_deltas},
        "200 host tool round trips": {"raw": raw_native_trips, "adapter": adapter_trips, "raw pause": raw_paused_trips},
    }
    out: dict[str, dict[str, float]] = {}
    for name, ways in pairs.items():
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(2 * rounds if "deltas" in name else rounds):
            for way, measured in ways.items():
                # ADK's own modules are a large heap: one full collection takes as long as 400 deltas, and without this
                # it fell into the second of each pair, whichever that was.
                gc.collect()
                times[way].append(asyncio.run(measured()))  # type: ignore[arg-type]  # coroutine functions
        fastest = {way: min(values) for way, values in times.items()}
        out[name] = {**fastest, "ratio": fastest["adapter"] / fastest["raw"]}
    return out


def main(rounds: int = ROUNDS) -> None:
    """Print the table."""
    for name, figures in compare(rounds).items():
        shown = "  ".join(f"{key} {value:.3f}" + ("" if key == "ratio" else " s") for key, value in figures.items())
        print(f"{name:28} {shown}")


if __name__ == "__main__":
    main()
