"""The shapes of agent trees that tests of control go through: one inner agent, and what is put around it.

Whatever the shape, the inner agent's script is what the test wants of its first steps; afterwards every model says
"fresh", so that a next turn is answered. Used with ``driving.py``.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event as AdkEvent
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import Workflow
from tests.adapters.adk.driving import Driven, assert_valid_history

from agentsession.adapters.adk import ScriptedLlm, call, say
from agentsession.protocol import Event, StreamEnd

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from google.adk.agents import LoopAgent, ParallelAgent, SequentialAgent

__all__ = ["SHAPES", "Clock", "Gate", "LoopTime", "Planted", "at_baseline", "pipeline", "plant", "read_while"]

SHAPES: Final = ("plain", "sequential", "loop", "parallel", "handoff", "child", "grandchild", "workflow", "custom")

FRESH: Final = say("fresh")


def pipeline(kind: Any, *agents: Any, name: str = "pipe", **fields: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return kind(name=name, sub_agents=list(agents), **fields)


class Custom(BaseAgent):
    """A root of one's own, which runs its children in its own way."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[AdkEvent, None]:
        for child in self.sub_agents:
            async for event in child.run_async(ctx):
                yield event


class Planted:
    """A tree, its inner agent, and all its models."""

    def __init__(self, root: Any, inner: LlmAgent, *others: LlmAgent) -> None:
        self.root = root
        self.inner = inner
        self.models: list[ScriptedLlm] = [made.model for made in (inner, *others)]  # type: ignore[misc]

    def check_histories(self) -> None:
        """Every model call of every agent had a valid history."""
        for model in self.models:
            assert_valid_history(model)


def plant(shape: str, *steps: Any, tools: Sequence[Any] = ()) -> Planted:
    """A tree of that shape whose inner agent's model answers ``steps`` first."""
    inner = LlmAgent(name="inner", model=ScriptedLlm(script=list(steps), forever=FRESH), tools=list(tools))
    if shape == "plain":
        return Planted(inner, inner)
    if shape == "sequential":
        first = _agent("first", say("first"))
        return Planted(pipeline(SequentialAgent, first, inner), inner, first)
    if shape == "loop":
        return Planted(pipeline(LoopAgent, inner, max_iterations=2), inner)
    if shape == "parallel":
        other = _agent("other", say("other"))
        return Planted(pipeline(ParallelAgent, inner, other), inner, other)
    if shape == "handoff":
        root = _agent("root", call("transfer_to_agent", {"agent_name": "inner"}, id="t1"), sub_agents=[inner])
        return Planted(root, inner, root)
    if shape == "workflow":
        first = _agent("first", say("first"))
        return Planted(Workflow(name="flow", edges=[("START", first, inner)]), inner, first)
    if shape == "custom":
        return Planted(Custom(name="custom", sub_agents=[inner]), inner)
    asks = {"request": "do it"}
    middle = _agent("middle", call("inner", asks, id="m1"), tools=[AgentTool(inner)])
    if shape == "child":
        return Planted(middle, inner, middle)
    root = _agent("root", call("middle", asks, id="r1"), tools=[AgentTool(middle)])
    return Planted(root, inner, middle, root)


def _agent(name: str, *steps: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedLlm(script=list(steps), forever=FRESH), **fields)


class Gate:
    """Something that is entered and then waits for ever, or until it is opened."""

    def __init__(self) -> None:
        self.entered = anyio.Event()
        self.release = anyio.Event()

    async def __call__(self) -> str:
        self.entered.set()
        await self.release.wait()
        return "released"

    async def stubborn(self) -> str:
        """Never give up."""
        self.entered.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        return "late"


class Clock:
    """An executor's time (``now=``), which goes on only when it is told to."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms

    async def pass_ms(self, ms: int) -> None:
        self.ms += ms


class LoopTime:
    """The time of the running loop, which also goes on when it is told to: timers that are due by then fire at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_s = 0.0
        loop = asyncio.get_running_loop()
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self._ahead_s)

    async def goes_on(self, seconds: float) -> None:
        await self._turns()
        self._ahead_s += seconds
        await self._turns()

    @staticmethod
    async def _turns() -> None:
        """What can happen in no time happens."""
        for _ in range(20):
            await anyio.lowlevel.checkpoint()


async def read_while(desk: Driven, message: Any, does: Callable[[], Awaitable[None]]) -> list[Event]:
    """The events of a new turn's first stream, during which ``does`` is done."""
    events: list[Event] = []
    with anyio.fail_after(20):
        async with desk.session.stream(message) as turn:
            async with anyio.create_task_group() as group:

                async def read() -> None:
                    async for event in turn:
                        events.append(event)

                group.start_soon(read)
                await does()
    assert isinstance(events[-1], StreamEnd)
    return events


async def at_baseline(before: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """The tasks that are there beyond those of ``before``, when all that can end has ended."""
    for _ in range(200):
        if not asyncio.all_tasks() - before:
            break
        await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()  # what hears that a task has ended holds it until it has heard
    return asyncio.all_tasks() - before
