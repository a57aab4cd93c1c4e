"""A scripted executor: an agent that does what a list of steps says. No dependencies, deterministic.

For: tests, demos, hosts' own tests, and as the example that authors of executors copy.
Not for: scripting the model of a real agent (``agentsession.adapters.adk`` ships a scripted model for that).
May import: ``agentsession.protocol``, ``agentsession.adapters.base``, anyio.

::

    script = [
        [Think("Two files."), Calls(Call("read", {"path": "a.py"}), Call("read", {"path": "b.py"})), Say("Done.")],
    ]
    async with ScriptedExecutor(script) as executor:
        session = await executor.open()

A script is a list of turns, a turn a list of steps. With ``reenter=True`` the executor returns at each question and is
called again with the answers, like a backend that keeps nothing between calls; else it waits inside. Both give the same
events. Sub-agents (:class:`Parallel`) wait inside in either case, so what they ask does not survive the process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol, TypeVar

import anyio

from agentsession.adapters.base import BaseExecutor, BaseSession, HookBlocked, RunContext, RunResult, wrong_args
from agentsession.protocol import (
    AgentDescriptor,
    Answer,
    ElicitationRequest,
    Error,
    RecordStore,
    Refusal,
    Thought,
    ToolDescriptor,
    ToolGrant,
    ToolRequest,
    Usage,
    to_json,
)

__all__ = [
    "Ask",
    "Call",
    "Calls",
    "Count",
    "Delay",
    "Deltas",
    "End",
    "Fail",
    "Parallel",
    "Raise",
    "Refuse",
    "Say",
    "ScriptedExecutor",
    "Step",
    "Think",
    "entry_point",
]

_CAPABILITIES: Final = [
    "streaming",
    "host_tool_execution",
    "elicitation",
    "steering",
    "mid_turn_update",
    "abort",
    "load",
    "list",
    "delete",
    "fork",
    "rewind",
    "sub_agents",
    "usage",
    "reasoning",
]


class Memory:
    """What a turn remembers between its steps: the answers so far, by request id and in order."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}

    @property
    def last(self) -> Answer | None:
        """The answer that came last."""
        return next(reversed(self.answers.values()), None)


class Step(Protocol):
    """One thing the agent does."""

    async def play(self, ctx: RunContext, memory: Memory) -> RunResult | None:
        """Do it. A result ends the turn."""
        ...


Saying = str | Callable[[Memory], str]
"""Text, or a function of what the turn remembers."""


@dataclasses.dataclass(frozen=True)
class Say:
    """One whole message."""

    text: Saying

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        await ctx.say(self.text(memory) if callable(self.text) else self.text)


@dataclasses.dataclass(frozen=True)
class Deltas:
    """A message said in pieces."""

    pieces: Sequence[str]

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        async with ctx.message() as message:
            for piece in self.pieces:
                await message.text(piece)


@dataclasses.dataclass(frozen=True)
class Think:
    """A message of reasoning."""

    text: str
    signature: str | None = None

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        await ctx.say(Thought(text=self.text, signature=self.signature))


@dataclasses.dataclass(frozen=True)
class Call:
    """A tool call. ``needs`` result: the host runs it. Grant: ``run`` is called after the grant. None: at once.

    What ``run`` gives may be awaitable: it is then awaited.
    """

    name: str
    args: Mapping[str, Any] | None = dataclasses.field(default_factory=dict)
    needs: str = "result"
    run: Callable[[dict[str, Any]], Any] | None = None
    id: str | None = None

    def request(self, ctx: RunContext) -> ToolRequest:
        """The event that asks for it."""
        return ToolRequest(
            request_id=self.id or ctx.new_id("r"),
            name=self.name,
            args=None if self.args is None else dict(self.args),
            needs=self.needs,
            owner="host" if self.needs == "result" else "agent",
        )

    async def finish(self, ctx: RunContext, request: ToolRequest, answer: Answer | None) -> None:
        """Run what the executor itself runs, after its grant."""
        if answer is not None and not isinstance(answer, ToolGrant):
            return
        if ctx.grace is not None and not ctx.is_open_request(request.request_id):
            return  # denied: nothing is started in a last word
        args = dict(request.args or {}) if answer is None or answer.args is None else dict(answer.args)
        wrong = wrong_args(ctx.descriptor, request.name, args)
        if wrong is not None:
            await ctx.respond(request, {"error": f"wrong arguments: {wrong}"}, is_error=True, status="failed")
            return
        try:
            given = self.run(args) if self.run is not None else {"ok": True}
            data = to_json(await given if inspect.isawaitable(given) else given)
        except Exception as error:  # noqa: BLE001 - a tool's failure is a result that the model reads
            failed = {"error": type(error).__name__}
            await ctx.respond(request, failed, is_error=True, status="failed")
        else:
            await ctx.respond(request, data)

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        await Calls(self).play(ctx, memory)


class Calls:
    """Tool calls at once: all are asked before any answer is needed."""

    def __init__(self, *calls: Call) -> None:
        self.calls = calls

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        requests = [call.request(ctx) for call in self.calls]
        asked = [request for request in requests if request.needs != "none"]
        await self.start(ctx, requests)
        if asked:
            answers = dict(zip([item.request_id for item in asked], await ctx.requests(*asked), strict=True))
            await self.finish(ctx, memory, requests, answers)

    async def start(self, ctx: RunContext, requests: Sequence[ToolRequest]) -> None:
        """Show and run the calls that need nobody."""
        alone: list[tuple[Call, ToolRequest]] = []
        for call, request in zip(self.calls, requests, strict=True):
            if request.needs == "none":
                with contextlib.suppress(HookBlocked):  # recorded as denied
                    alone.append((call, await ctx.emit(request)))
        if alone:  # a process that is killed must not leave a tool that ran and a record that knows of none
            await ctx.stored()
        for call, request in alone:
            await call.finish(ctx, request, None)

    async def finish(
        self, ctx: RunContext, memory: Memory, requests: Sequence[ToolRequest], answers: Mapping[str, Answer]
    ) -> None:
        """The second half: what happens once every answer is there."""
        memory.answers.update(answers)
        for call, request in zip(self.calls, requests, strict=True):
            waits = ctx.open_request(request.request_id)
            if request.needs == "grant" and waits is not None:
                # The arguments that were decided on: a hook of the host may have changed those that were asked.
                decided = request.model_copy(update={"args": waits.args})
                await call.finish(ctx, decided, answers[request.request_id])


@dataclasses.dataclass(frozen=True)
class Ask:
    """A question to the person."""

    message: str
    kind: str = "clarification"
    schema: Mapping[str, Any] | None = None
    tool_request_id: str | None = None
    url: str | None = None

    def request(self, ctx: RunContext) -> ElicitationRequest:
        """The event that asks."""
        return ElicitationRequest(
            request_id=ctx.new_id("q"),
            kind=self.kind,
            message=self.message,
            requested_schema=None if self.schema is None else dict(self.schema),
            tool_request_id=self.tool_request_id,
            url=self.url,
        )

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        request = self.request(ctx)
        memory.answers[request.request_id] = await ctx.request(request)


class Count:
    """What a model call used; the fields of ``Usage``."""

    def __init__(self, **counts: Any) -> None:
        self.usage = Usage(**counts)

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        await ctx.emit(self.usage)


@dataclasses.dataclass(frozen=True)
class Fail:
    """An error event; ``fatal`` ends the stream."""

    message: str = "it failed"
    status: str = "INTERNAL"
    fatal: bool = False
    code: str | None = None

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        await ctx.emit(Error(status=self.status, message=self.message, fatal=self.fatal, code=self.code))


@dataclasses.dataclass(frozen=True)
class Raise:
    """An exception that leaves the executor."""

    error: Exception

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        raise self.error.with_traceback(None)  # the same error may be raised many times


@dataclasses.dataclass(frozen=True)
class Delay:
    """Wait for ``until`` (a coroutine function, such as an event's ``wait``), or for some seconds."""

    seconds: float = 0.0
    until: Callable[[], Awaitable[object]] | None = None

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        if self.until is not None:
            await self.until()
        else:
            await anyio.sleep(self.seconds)


@dataclasses.dataclass(frozen=True)
class Refuse:
    """The model declines: a refusal, and the turn ends with that reason."""

    text: str = "I can't help with that."

    async def play(self, ctx: RunContext, memory: Memory) -> RunResult:
        await ctx.say(Refusal(text=self.text))
        return RunResult("refusal")


@dataclasses.dataclass(frozen=True)
class End:
    """The turn ends with a reason, such as max_tokens."""

    reason: str
    data: dict[str, Any] | None = None

    async def play(self, ctx: RunContext, memory: Memory) -> RunResult:
        return RunResult(self.reason, self.data)


class Parallel:
    """Sub-agents at work side by side, each with steps of its own on a thread of its own."""

    def __init__(self, **agents: Sequence[Step]) -> None:
        self.agents = agents

    async def play(self, ctx: RunContext, memory: Memory) -> None:
        def worker(steps: Sequence[Step]) -> Callable[[RunContext], Awaitable[None]]:
            async def work(child: RunContext) -> None:
                for step in steps:
                    await step.play(child, memory)

            return work

        await ctx.parallel(*((name, worker(steps)) for name, steps in self.agents.items()))


class ScriptedExecutor(BaseExecutor):
    """An executor that plays a script; see the module's docstring.

    Beyond the script's last turn it says so. Steers are taken before every step. For the limits of a turn, what comes
    up to a question or to calls and with them counts as one model call, and as one step. ``grace`` are the steps of the
    last word of a turn that reached a limit; by default it says which.
    """

    counts_model_calls: ClassVar[bool] = True
    gives_grace: ClassVar[bool] = True

    def __init__(
        self,
        script: Sequence[Sequence[Step]],
        *,
        name: str = "scripted",
        own_tools: Sequence[ToolDescriptor] = (),
        reenter: bool = False,
        capabilities: Sequence[str] | None = None,
        store: RecordStore | None = None,
        grace: Sequence[Step] | None = None,
        **base: Any,
    ) -> None:
        super().__init__(store=store, **base)
        self.script = [list(turn) for turn in script]
        self.grace = None if grace is None else list(grace)
        self.reenter = reenter
        declared = list(_CAPABILITIES if capabilities is None else capabilities)
        if reenter and capabilities is None:
            declared.append("resume")
        self.descriptor = AgentDescriptor(
            name=name,
            executor="scripted",
            description="Plays a script.",
            capabilities=declared,
            own_tools=list(own_tools),
        )

    def volatile(self, session: BaseSession) -> Sequence[str]:
        """What waits inside a run: everything, or what sub-agents ask."""
        if not self.can_resume(session):
            return list(session.machine.requests)
        return [request_id for request_id, request in session.recorder.requests.items() if _place(request) is None]

    async def run(self, ctx: RunContext) -> RunResult | None:
        """Play the turn's steps, from the step after the one that was answered when re-entered."""
        number = ctx.turn_number
        if ctx.grace is not None:
            steps = [Say(f"I have to stop here: {ctx.grace.limit}.")] if self.grace is None else self.grace
            return await self._play(ctx, steps)
        if number > len(self.script):
            await ctx.steers()
            await ctx.say(f"(the script has {len(self.script)} turns, this is turn {number})")
            await ctx.steers()
            return None
        return await self._play(ctx, self.script[number - 1])

    async def _play(self, ctx: RunContext, steps: Sequence[Step]) -> RunResult | None:
        memory = Memory()
        start = 0
        if ctx.input is None and (ctx.grace is None or ctx.answers):
            start = await self._resume(ctx, steps, memory)
        for index, step in enumerate(steps[start:], start=start):
            reason = self._over_limit(ctx, steps[:index])
            if reason is not None and ctx.grace is not None:
                return None  # its one model call is over
            if reason is not None:
                message = f"the turn may make no more model calls ({reason})"
                await ctx.emit(Error(status="RESOURCE_EXHAUSTED", message=message, code=reason))
                return RunResult(reason)
            await ctx.steers()
            if self.reenter and isinstance(step, (Call, Calls, Ask)):
                if await self._post(ctx, step, index):
                    return None
                continue
            result = await step.play(ctx, memory)
            if result is not None:
                return result
        await ctx.steers()
        return None

    @staticmethod
    def _over_limit(ctx: RunContext, done: Sequence[Step]) -> str | None:
        """The limit that one more model call would pass, where one begins after the steps that are ``done``."""
        asking = (Call, Calls, Ask)
        if not done or not isinstance(done[-1], asking):
            return None
        made = sum(isinstance(step, asking) for step in done)
        if ctx.grace is not None:
            return ctx.grace.limit
        for name in ("max_llm_calls", "max_turns"):
            allowed = getattr(ctx.limits, name)
            if allowed is not None and made >= allowed:
                return name
        return None

    async def _post(self, ctx: RunContext, step: Call | Calls | Ask, index: int) -> bool:
        """Ask; whether anything waits, so that the run leaves. The step's place goes with the requests."""
        if isinstance(step, Ask):
            await ctx.post(_placed(step.request(ctx), index, 0))
            return True
        calls = step if isinstance(step, Calls) else Calls(step)
        requests = [_placed(call.request(ctx), index, number) for number, call in enumerate(calls.calls)]
        await calls.start(ctx, requests)
        return bool(await ctx.post(*(request for request in requests if request.needs != "none")))

    async def _resume(self, ctx: RunContext, steps: Sequence[Step], memory: Memory) -> int:
        """Finish the step whose answers came; the index of the next one."""
        asked = [
            (place, event)
            for event in ctx.record
            if isinstance(event, (ToolRequest, ElicitationRequest)) and event.request_id in ctx.answers
            if (place := _place(event)) is not None
        ]
        memory.answers.update(ctx.answers)
        if not asked:
            return len(steps)
        index = asked[-1][0][0]
        step = steps[index]
        for (_, number), request in asked:
            waits = ctx.open_request(request.request_id)
            if isinstance(request, ToolRequest) and waits is not None:
                call = step.calls[number] if isinstance(step, Calls) else step
                assert isinstance(call, Call)
                # The arguments that were decided on: who reads the event may have changed those in it.
                decided = request.model_copy(update={"args": waits.args})
                await call.finish(ctx, decided, ctx.answers[request.request_id])
        return index + 1


R = TypeVar("R", ToolRequest, ElicitationRequest)


def _placed(request: R, step: int, number: int) -> R:
    """``request`` with its place in the script."""
    return request.model_copy(update={"meta": {"step": step, "call": number}})


def _place(request: ToolRequest | ElicitationRequest) -> tuple[int, int] | None:
    """The step and the call in it that a request came from; ``None`` for one of a sub-agent."""
    meta = request.meta or {}
    return (int(meta["step"]), int(meta["call"])) if "step" in meta and "call" in meta else None


def entry_point() -> type[ScriptedExecutor]:
    """What the entry point ``agentsession.executors: scripted`` gives: the class."""
    return ScriptedExecutor
