"""The replay executor under the suite: ``agentsession conform tests.conformance.harnesses.replay:harness``.

It plays a record that the scripted executor made of the same script beforehand, answered by the suite's standard host
(``hosting.py``). What a replay cannot know by itself this harness adds: it waits where the script says that the model
or a tool waits, and tells the suite of a run of a tool when the replay shows the result of one. A replay has no model
and no tools, so what a rule says of these holds of what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar, cast

import anyio
from tests.conformance.harnesses.scripted import ScriptedHarness, Streamed

from agentsession.adapters import scripted
from agentsession.adapters.base import RunContext, RunResult
from agentsession.adapters.replay import ReplayExecutor
from agentsession.adapters.scripted import Memory
from agentsession.conformance import script
from agentsession.conformance.harness import Harness, Play
from agentsession.conformance.scene import scene_of
from agentsession.protocol import AgentExecutor, Custom, Event, ToolDecision, ToolResponse

__all__ = ["ReplayHarness", "harness"]

E = TypeVar("E", bound=Event)

_MARK: Final = "x-mark"
"""The kind of the event that stands in a record where its model waited."""


class ReplayHarness(Harness):
    """Plays every step, from a record of it."""

    name = "replay"

    def __init__(self) -> None:
        self._records: dict[str, Sequence[Event]] = {}

    def executor(self, play: Play) -> AgentExecutor:
        key = play.script.model_dump_json()
        if key not in self._records:
            with ThreadPoolExecutor(1) as thread:  # a loop of its own, for this one is running
                self._records[key] = thread.submit(anyio.run, _recorded, play.script).result()
        return Replayed(self._records[key], play)


async def _recorded(played: script.Script) -> Sequence[Event]:
    """The record of a session in which the standard host goes through the whole script."""
    async with scene_of(Marking()) as scene:
        _, session = await scene.opened(*played.turns)
        for _ in played.turns:
            await scene.turn(session)
        return scene.seen.with_record(session.session_id, await scene.record(session))


class Marking(ScriptedHarness):
    """The scripted executor, which leaves a mark in the record where the script says to wait, and waits nowhere."""

    def step(self, play: Play, step: script.Step) -> scripted.Step:
        match step:
            case script.Hold(mark=mark):
                return Mark(mark)
            case script.Stream():
                return MarkedStream(play, step)
            case script.Calls(calls=calls):
                free = [call.model_copy(update={"hold": None}) for call in calls]
                return super().step(play, script.Calls(calls=free))
            case _:
                return super().step(play, step)


class Mark:
    """Leaves a mark."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        await ctx.emit(Custom(kind=_MARK, data=self._mark))


class MarkedStream(Streamed):
    """Leaves a mark where a message waits."""

    async def wait(self, ctx: RunContext, mark: str) -> None:
        await ctx.emit(Custom(kind=_MARK, data=mark))


class Replayed(ReplayExecutor):
    """The replay, at the pace of the script."""

    def __init__(self, record: Sequence[Event], play: Play) -> None:
        super().__init__(record, store=play.store)
        self._play = play

    async def run(self, ctx: RunContext) -> RunResult | None:
        return await super().run(cast(RunContext, Paced(ctx, self._play)))


class Paced:
    """A context that waits at marks, and tells of the runs of tools."""

    def __init__(self, ctx: RunContext, play: Play) -> None:
        self._ctx = ctx
        self._play = play

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    async def emit(self, event: E) -> E:
        if isinstance(event, Custom) and event.kind == _MARK:
            await self._play.hold(str(event.data))
            return event
        if isinstance(event, ToolResponse) and _ran(event):
            await self._run(event)
        return await self._ctx.emit(event)

    async def _run(self, response: ToolResponse) -> None:
        request = self._ctx.open_request(response.request_id)
        args = dict((request.args if request is not None else None) or {})
        for event in self._ctx.record:
            if isinstance(event, ToolDecision) and event.request_id == response.request_id and event.args is not None:
                args = event.args
        self._play.ran(response.name, args)
        call = next((call for call in self._play.script.calls() if call.name == response.name), None)
        if call is not None and call.hold is not None:
            await self._play.hold(call.hold)


def _ran(response: ToolResponse) -> bool:
    """Whether it is the result of a tool of the agent's own whose body ran."""
    data = response.data if isinstance(response.data, dict) else {}
    return response.source == "agent" and ("ran" in data or data.get("error") == "ToolFailed")


harness = ReplayHarness()
