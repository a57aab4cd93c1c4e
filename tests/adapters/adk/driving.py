"""Driving a real AdkExecutor in tests: whole turns, answers by tool name, and a check of every record.

Nothing of ADK is replaced: a real Runner, a real session service, a model that answers from a script.
"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import jsonschema
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm
from agentsession.adapters.base import BaseSession
from agentsession.protocol import (
    Answer,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    LifecycleInterceptor,
    Message,
    OpenOptions,
    SessionMachine,
    StreamEnd,
    Text,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    event_schema,
    result,
)

__all__ = [
    "Driven",
    "Runs",
    "Turn",
    "Visit",
    "agent",
    "assert_valid_history",
    "check_schema_of",
    "driven",
    "history",
    "host_tool",
    "model_calls",
    "texts",
    "verify",
]

LIMIT_S = 20
"""Bounds a hang; no test waits for it."""


def agent(*script: Any, name: str = "root", **fields: Any) -> LlmAgent:
    """An LlmAgent whose model answers from a script."""
    return LlmAgent(name=name, model=ScriptedLlm(script=list(script)), **fields)


def host_tool(name: str, **fields: Any) -> ToolDescriptor:
    return ToolDescriptor(name=name, description=f"The host's {name}.", parameters_schema={"type": "object"}, **fields)


def history(model: Any, call: int = -1) -> list[tuple[str, str]]:
    """What a model call was shown, by part: ``("call c1", "look")``, ``("result c1", "…")``, ``("user", "…")``."""
    out: list[tuple[str, str]] = []
    for content in model.requests[call].contents:
        for part in content.parts or []:
            if part.function_call is not None:
                out.append((f"call {part.function_call.id}", part.function_call.name or ""))
            elif part.function_response is not None:
                shown = json.dumps(part.function_response.response, sort_keys=True)
                out.append((f"result {part.function_response.id}", shown))
            elif part.text:
                out.append((("thought" if part.thought else content.role) or "", part.text))
    return out


def assert_valid_history(model: Any) -> None:
    """In each model call, every function call is answered exactly once, and nothing else is answered."""
    for number, request in enumerate(model.requests):
        parts: list[types.Part] = [part for content in request.contents for part in content.parts or []]
        made = [part.function_call.name for part in parts if part.function_call is not None]
        answered = [part.function_response.name for part in parts if part.function_response is not None]
        assert sorted(map(str, made)) == sorted(map(str, answered)), (number, made, answered)


def texts(events: Sequence[Event]) -> list[str]:
    """What the agents said, whole messages only."""
    return [
        "".join(part.text for part in event.content if isinstance(part, Text))
        for event in events
        if isinstance(event, Message) and not event.partial and event.source != "user"
    ]


def model_calls(root: LlmAgent) -> int:
    """How often the model of an agent made by :func:`agent` was called."""
    assert isinstance(root.model, ScriptedLlm)
    return len(root.model.requests)


@functools.cache
def _validator() -> Any:
    return jsonschema.Draft202012Validator(event_schema())


def verify(session: BaseSession) -> None:
    """The record obeys every rule, folds to the live state, and each event fits the published schema."""
    folded = SessionMachine.fold(session.record)
    live = session.machine.snapshot(ephemeral=False)
    assert folded.snapshot(ephemeral=False).model_copy(update={"state": live.state}) == live
    for event in session.record:
        check_schema_of(event)


def check_schema_of(event: Event) -> None:
    """The event, as JSON, fits the published schema."""
    _validator().validate(json.loads(json.dumps(event.to_wire(), allow_nan=False)))


class Turn:
    """The events of one stream, and its end."""

    def __init__(self, events: list[Event], end: StreamEnd) -> None:
        self.events = events
        self.end = end

    @property
    def reason(self) -> str:
        return self.end.reason

    @property
    def texts(self) -> list[str]:
        return texts(self.events)

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if _type(event) == kind]


def _type(event: Event) -> str:
    return str(event.to_wire()["type"])


Reply = Callable[[ToolRequest | ElicitationRequest], Answer]


class Driven:
    """One session and short ways to drive it."""

    def __init__(self, executor: AdkExecutor, session: BaseSession) -> None:
        self.executor = executor
        self.session = session

    async def stream(self, input: Any = None, options: ExecutionOptions | None = None) -> Turn:
        """One stream from its start to its end."""
        events: list[Event] = []
        with anyio.fail_after(LIMIT_S):
            async with self.session.stream(input, options) as stream:
                async for event in stream:
                    events.append(event)
        assert stream.end is not None
        return Turn(events, stream.end)

    async def turn(self, message: Any = "go", reply: Reply | Mapping[str, Any] | None = None) -> Turn:
        """A whole turn: whatever waits is answered by ``reply``, or by the data under its tool's name."""
        replies = reply if callable(reply) else functools.partial(_by_name, reply or {})
        done = await self.stream(message)
        events = list(done.events)
        while done.reason == "input_required":
            done = await self.stream([replies(request) for request in self.session.pending])
            events += done.events
        return Turn(events, done.end)

    def pending(self, name: str) -> str:
        """The id of the one request that waits under this tool name, or kind of question."""
        found = [
            item.request_id
            for item in self.session.pending
            if (item.name if isinstance(item, ToolRequest) else item.kind) == name
        ]
        assert len(found) == 1, (name, self.session.pending)
        return found[0]

    def responses(self) -> dict[str, str]:
        """The status of every tool response in the record, by tool name; several of one tool are joined."""
        out: dict[str, str] = {}
        for event in self.session.record:
            if isinstance(event, ToolResponse):
                out[event.name] = f"{out[event.name]} {event.status}" if event.name in out else event.status
        return out

    def types(self, *kinds: str) -> list[str]:
        return [kind for kind in map(_type, self.session.record) if not kinds or kind in kinds]


Visit = Callable[..., AbstractAsyncContextManager[Driven]]
"""Opens a session, and after that loads it, for a root agent: the fixture ``visit``."""


def _by_name(data: Mapping[str, Any], request: ToolRequest | ElicitationRequest) -> Answer:
    from agentsession.protocol import accept, grant

    if isinstance(request, ElicitationRequest):
        return accept(request.request_id, data.get(request.kind))
    if request.name in data:
        return result(request.request_id, data[request.name])
    return grant(request.request_id) if request.needs == "grant" else result(request.request_id, "done")


@asynccontextmanager
async def driven(
    root: Any,
    *,
    tools: Sequence[ToolDescriptor] | None = None,
    options: OpenOptions | None = None,
    execution: Mapping[str, Any] | None = None,
    hooks: LifecycleInterceptor | None = None,
    **executor: Any,
) -> AsyncIterator[Driven]:
    """An executor with one open session; its record is verified when the test is done."""
    if options is None:
        options = OpenOptions(execution=ExecutionOptions(tools=list(tools) if tools else None, **(execution or {})))
    async with AdkExecutor(root, **executor) as made:
        session = await made.open(options, hooks=hooks)
        desk = Driven(made, session)
        yield desk
        verify(session)
        await session.aclose()
        verify(session)


class Runs:
    """A tool of the agent that notes each run."""

    def __init__(self, answer: Any = "ran") -> None:
        self.args: list[dict[str, Any]] = []
        self.answer = answer

    @property
    def count(self) -> int:
        return len(self.args)

    def tool(self, name: str = "write", **fields: Any) -> FunctionTool:
        def write(path: str = "", text: str = "") -> Any:
            """Write a file."""
            self.args.append({"path": path, "text": text})
            return self.answer

        write.__name__ = name
        return FunctionTool(write, **fields)
