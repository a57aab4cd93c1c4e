"""The scripted executor under the suite: ``agentsession conform tests.conformance.harnesses.scripted:harness``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentsession.adapters import scripted
from agentsession.adapters.base import RunContext
from agentsession.adapters.scripted import Memory, ScriptedExecutor
from agentsession.conformance import script
from agentsession.conformance.harness import Harness, Play
from agentsession.protocol import (
    AgentExecutor,
    Answer,
    ElicitationAnswer,
    ElicitationRequest,
    ElicitationResponse,
    ToolDenial,
    ToolGrant,
    ToolRequest,
    ToolResponse,
    ToolResult,
)

__all__ = ["ScriptedHarness", "Streamed", "forgetful", "harness", "reentered"]


class ScriptedHarness(Harness):
    """Plays every step."""

    def __init__(self, *, reenter: bool = False, capabilities: Sequence[str] | None = None) -> None:
        """``capabilities``: what is declared; all that there is when left out."""
        self.name = "scripted, re-entered" if reenter else "scripted"
        self._reenter = reenter
        self._capabilities = capabilities

    def executor(self, play: Play) -> AgentExecutor:
        turns = [[self.step(play, step) for step in turn] for turn in play.script.turns]
        return ScriptedExecutor(
            turns,
            own_tools=play.script.own_tools(),
            capabilities=self._capabilities,
            reenter=self._reenter,
            store=play.store,
            grace_s=2.0,
        )

    def step(self, play: Play, step: script.Step) -> scripted.Step:
        """A step of the suite as one of the scripted executor."""
        match step:
            case script.Say(text=text):
                return scripted.Say(text)
            case script.Stream():
                return Streamed(play, step)
            case script.Think(text=text):
                return scripted.Think(text)
            case script.Calls(calls=calls):
                made = [(call, self.call(play, call)) for call in calls]
                if any(call.confirm or call.asks for call in calls):
                    return Asking(made, self.is_yes)
                return scripted.Calls(*(mine for _, mine in made))
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
                    **{name: [self.step(play, inner) for inner in steps] for name, steps in agents.items()}
                )

    def call(self, play: Play, call: script.Call) -> scripted.Call:
        """A call of the suite as one of the scripted executor."""

        async def run(args: dict[str, Any]) -> Any:
            return await self.run(play, call, args)

        return scripted.Call(call.name, call.args, needs=call.needs, run=run)

    async def run(self, play: Play, call: script.Call, args: dict[str, Any]) -> Any:
        """The body of a tool."""
        return await play.run_tool(call, args)

    def is_yes(self, answer: Answer | None) -> bool:
        """Whether a person's answer lets a tool run."""
        return isinstance(answer, ElicitationAnswer) and answer.action == "accept"


class Streamed:
    """A message in pieces, which may wait before its last one."""

    def __init__(self, play: Play, step: script.Stream) -> None:
        self._play = play
        self._step = step

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        async with ctx.message() as message:
            for number, piece in enumerate(self._step.pieces, start=1):
                if self._step.hold is not None and number == len(self._step.pieces):
                    await self.wait(ctx, self._step.hold)
                await message.text(piece)

    async def wait(self, ctx: RunContext, mark: str) -> None:
        await self._play.hold(mark)


class Asking:
    """Calls at once of which some ask a person: before they run (``confirm``), or as they run (``asks``)."""

    def __init__(
        self, calls: Sequence[tuple[script.Call, scripted.Call]], is_yes: Callable[[Answer | None], bool]
    ) -> None:
        self._calls = calls
        self._is_yes = is_yes

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        made = [(call, mine, mine.request(ctx)) for call, mine in self._calls]
        for _, _, request in made:
            if request.needs == "none":
                await ctx.emit(request)
        first = [_confirmation(ctx, request) if call.confirm else request for call, _, request in made]
        answers = await self._answers(ctx, memory, first)
        for (call, mine, request), asked, answer in zip(made, first, answers, strict=True):
            if call.asks and isinstance(answer, ToolGrant):
                yes = self._is_yes(await ctx.request(_confirmation(ctx, request)))
            else:
                yes = asked is request or self._is_yes(answer)
            if yes:
                await mine.finish(ctx, request, answer if asked is request else None)
            else:
                await ctx.respond(request, {"error": "not confirmed"}, is_error=True, status="denied")

    async def _answers(
        self, ctx: RunContext, memory: Memory, asked: Sequence[ToolRequest | ElicitationRequest]
    ) -> list[Answer | None]:
        waits = [item for item in asked if not (isinstance(item, ToolRequest) and item.needs == "none")]
        given = dict(zip([item.request_id for item in waits], await ctx.requests(*waits), strict=True))
        memory.answers.update(given)
        return [given.get(item.request_id) for item in asked]


def _confirmation(ctx: RunContext, request: ToolRequest) -> ElicitationRequest:
    return ElicitationRequest(
        request_id=ctx.new_id("q"),
        kind="tool_confirmation",
        message=f"Run {request.name}?",
        tool_request_id=request.request_id,
        context=request.args,
    )


class Recited:
    """Says what the model was told in this turn, on its own thread."""

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        turn = [event for event in ctx.record if event.turn_id == ctx.turn_id and event.thread_id == ctx.thread_id]
        ends = {event.request_id: event for event in turn if isinstance(event, (ToolResponse, ElicitationResponse))}
        told = [
            _told(event, memory, ends)
            for event in turn
            if (isinstance(event, ToolRequest) and not event.partial)
            or (isinstance(event, ElicitationRequest) and event.tool_request_id is None)
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
forgetful = ScriptedHarness(capabilities=("streaming", "host_tool_execution", "elicitation", "abort"))
