"""The scripted executor under the suite: ``agentsession conform tests.conformance.harnesses.scripted:harness``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentsession.adapters import scripted
from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Memory, ScriptedExecutor
from agentsession.conformance import script
from agentsession.conformance.harness import Harness, Play
from agentsession.protocol import (
    AgentExecutor,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    ToolDenial,
    ToolRequest,
    ToolResponse,
    ToolResult,
)

__all__ = ["ScriptedHarness", "harness", "reentered"]


class ScriptedHarness(Harness):
    """Plays every step."""

    def __init__(self, *, reenter: bool = False) -> None:
        self.name = "scripted, re-entered" if reenter else "scripted"
        self._reenter = reenter

    def executor(self, play: Play) -> AgentExecutor:
        turns = [[_step(play, step) for step in turn] for turn in play.script.turns]
        return ScriptedExecutor(turns, own_tools=play.script.own_tools(), reenter=self._reenter, store=play.store)


def _step(play: Play, step: script.Step) -> scripted.Step:
    """A step of the suite as one of the scripted executor."""
    match step:
        case script.Say(text=text):
            return scripted.Say(text)
        case script.Stream(pieces=pieces):
            return scripted.Deltas(pieces)
        case script.Think(text=text):
            return scripted.Think(text)
        case script.Calls(calls=calls):
            if any(call.confirm for call in calls):
                return Confirmed(play, calls[0])
            return scripted.Calls(*(_call(play, call) for call in calls))
        case script.Ask():
            return scripted.Ask(step.message, kind=step.kind, schema=step.requested_schema)
        case script.Recite():
            return Recited()
        case script.Hold(mark=mark):
            return scripted.Delay(until=lambda: play.hold(mark))
        case script.Fail(message=message):
            return scripted.Fail(message)
        case script.Raise(message=message):
            return scripted.Raise(RuntimeError(message))
        case script.Refuse(text=text):
            return scripted.Refuse(text)
        case script.Count():
            return scripted.Count(input_tokens=step.input_tokens, output_tokens=step.output_tokens)
        case script.Stop(reason=reason):
            return scripted.End(reason)
        case script.Delegate(agents=agents):
            return scripted.Parallel(
                **{name: [_step(play, inner) for inner in steps] for name, steps in agents.items()}
            )


def _call(play: Play, call: script.Call) -> scripted.Call:
    return scripted.Call(call.name, call.args, needs=call.needs, run=_body(play, call))


def _body(play: Play, call: script.Call) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    async def run(args: dict[str, Any]) -> Any:
        return await play.run_tool(call, args)

    return run


class Confirmed:
    """A call of a tool that a person must confirm: shown, asked about, and run on a clear yes."""

    def __init__(self, play: Play, call: script.Call) -> None:
        self._call = _call(play, call)

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        request = self._call.request(ctx)
        await ctx.emit(request)
        answer = await ctx.elicit(
            "tool_confirmation", f"Run {request.name}?", tool_request_id=request.request_id, context=request.args
        )
        memory.answers[answer.request_id] = answer
        if answer.action == "accept":
            await self._call.finish(ctx, request, None)
        else:
            await ctx.respond(request, {"error": "not confirmed"}, is_error=True, status="denied")


class Recited:
    """Says what the model was told in this turn."""

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        turn = [event for event in ctx.record if event.turn_id == ctx.turn_id]
        ends = {event.request_id: event for event in turn if isinstance(event, (ToolResponse, ElicitationResponse))}
        told = [
            _told(event, memory, ends)
            for event in turn
            if isinstance(event, (ToolRequest, ElicitationRequest)) and not getattr(event, "partial", False)
        ]
        await ctx.say(json.dumps(told))


def _told(
    asked: ToolRequest | ElicitationRequest,
    memory: Memory,
    ends: Mapping[str, ToolResponse | ElicitationResponse],
) -> dict[str, Any]:
    answer, end = memory.answers.get(asked.request_id), ends.get(asked.request_id)
    if isinstance(asked, ElicitationRequest):
        said = answer if isinstance(answer, ElicitationAnswer) else end
        return {"action": getattr(said, "action", None), "content": getattr(said, "content", None)}
    told: dict[str, Any] = {"name": asked.name, "args": asked.args}
    if isinstance(answer, ToolResult):
        return told | {"data": answer.data, "is_error": answer.is_error}
    if isinstance(answer, ToolDenial):
        return told | {"data": answer.reason, "is_error": True}
    return told | {"data": getattr(end, "data", None), "is_error": getattr(end, "is_error", None)}


harness = ScriptedHarness()
reentered = ScriptedHarness(reenter=True)
