"""The ADK executor under the suite: a real Runner over a scripted model.

In memory and with SQLite, waiting inside ADK's run or parked:
``agentsession conform tests.conformance.harnesses.adk:sqlite``.

The model is asked by ADK and answers from the script: it finds its place by what the record says of its turn, so it
needs no memory of its own and a new process goes on where the old one was. Death in one process is played by the record
store and by ADK's session service, whose writes stop counting at the same moment; the service in memory, which a real
death would take along, stands for one in a process of its own.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from fastapi.openapi.models import APIKey
from google.adk.agents import LlmAgent
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event as AdkEvent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from agentsession.adapters.adk import AdkExecutor, ScriptedLlm, fail, hold, raw
from agentsession.adapters.adk import Step as Reply
from agentsession.adapters.base import RunContext, RunResult
from agentsession.conformance import script
from agentsession.conformance.harness import CannotPlay, Harness, Killed, Play
from agentsession.host import SqliteRecordStore
from agentsession.protocol import AgentExecutor, ElicitationRequest, MemoryRecordStore, RecordStore, ToolRequest

__all__ = ["AdkHarness", "memory", "parked", "sqlite", "sqlite_parked"]

_RUN: ContextVar[RunContext] = ContextVar("_RUN")
"""The turn that the model is asked in; ADK's tasks inherit it."""

_ENDS: Final = (script.Calls, script.Ask, script.Delegate)
"""Steps that end a model call: the model is asked again with what they gave."""


class AdkHarness(Harness):
    """Plays every step, but for questions of a kind that no model of ADK's can ask."""

    def __init__(self, *, lasting: bool = False, parked: bool = False) -> None:
        self.name = f"adk, {'sqlite' if lasting else 'memory'}{', parked' if parked else ''}"
        self._lasting = lasting
        self._parked = parked
        self._services: dict[Path, InMemorySessionService] = {}

    def store(self, folder: Path) -> RecordStore:
        return SqliteRecordStore(str(folder / "record.db")) if self._lasting else MemoryRecordStore()

    def executor(self, play: Play) -> AgentExecutor:
        for step in play.script.steps():
            if isinstance(step, script.Ask) and step.kind not in ("clarification", "auth_required"):
                raise CannotPlay(f"a model of ADK's cannot ask a question of the kind {step.kind}")
            if isinstance(step, script.Stop) and step.reason != "max_tokens":
                raise CannotPlay(f"a model of ADK's does not stop with {step.reason}")
        return Turns(_agent(play), session_service=self._service(play), store=play.store, parked=self._parked)

    def _service(self, play: Play) -> BaseSessionService:
        if self._lasting:
            return MortalSqlite(str(play.folder / "adk.db"), play)
        kept = self._services.setdefault(play.folder, InMemorySessionService())
        return MortalMemory(kept, play)


class Turns(AdkExecutor):
    """Tells the model which turn it is asked in."""

    async def run(self, ctx: RunContext) -> RunResult | None:
        _RUN.set(ctx)
        return await super().run(ctx)


def _agent(play: Play) -> LlmAgent:
    steps = [step for turn in play.script.turns for step in turn]
    children = {
        name: _child(play, name, inner)
        for step in steps
        if isinstance(step, script.Delegate)
        for name, inner in step.agents.items()
    }
    tools: list[Any] = [*_tools(play, steps), *(AgentTool(child) for child in children.values())]
    return LlmAgent(name="root", model=ScriptedLlm(script=[], forever=Root(play)), tools=tools)


def _child(play: Play, name: str, steps: Sequence[script.Step]) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedLlm(script=[], forever=Child(play, steps)), tools=_tools(play, steps))


def _tools(play: Play, steps: Sequence[script.Step]) -> list[Any]:
    calls: dict[str, list[script.Call]] = {}
    for step in steps:
        for call in step.calls if isinstance(step, script.Calls) else ():
            if call.needs != "result":
                calls.setdefault(call.name, []).append(call)
    kinds = {step.kind for step in steps if isinstance(step, script.Ask)}
    return [
        *(Tool(play, same) for same in calls.values()),
        *([request_input] if "clarification" in kinds else []),
        *([SignIn()] if "auth_required" in kinds else []),
    ]


class Tool(BaseTool):
    """One of the agent's own tools; what it does for a call is written in the script."""

    def __init__(self, play: Play, calls: Sequence[script.Call]) -> None:
        super().__init__(name=calls[0].name, description=f"Does {calls[0].name}.")
        self._play = play
        self._calls = calls
        self._require_confirmation = calls[0].confirm  # by this name ADK's own tools say that they always ask

    def _get_declaration(self) -> types.FunctionDeclaration:
        (described,) = [tool for tool in self._play.script.own_tools() if tool.name == self.name]
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=described.parameters_schema
        )

    async def check_require_confirmation(self, args: dict[str, Any], tool_context: ToolContext) -> bool:
        return self._require_confirmation

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        call = next((call for call in self._calls if call.args == args), self._calls[0])
        if call.confirm or call.asks:
            confirmation = tool_context.tool_confirmation
            if confirmation is None:
                tool_context.request_confirmation(hint=f"Run {self.name}?")
                return {"status": "waits for a yes"}
            if not confirmation.confirmed:
                return {"error": "not confirmed"}
        return await self._play.run_tool(call, args)


class SignIn(BaseTool):
    """How an agent of ADK's asks for a credential: by a tool that needs one."""

    def __init__(self) -> None:
        super().__init__(name="sign_in", description="Signs in.")
        scheme = APIKey.model_validate({"in": "header", "name": "X-Key"})
        self._config = AuthConfig(auth_scheme=scheme, credential_key="suite")

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(name=self.name, description=self.description)

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        given = tool_context.get_auth_response(self._config)
        if given is None or given.api_key is None:
            tool_context.request_credential(self._config)
            return {"status": "waits for a credential"}
        return {"signed": "in"}


class Root:
    """The model of the root agent."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._said: set[tuple[str, int, int]] = set()
        """What was said already, by session, turn and place: asked again, because of a steer, the model takes note."""

    def __call__(self, request: LlmRequest) -> Reply:
        ctx, turns = _RUN.get(), self._play.script.turns
        if ctx.turn_number > len(turns):
            return _text(f"(the script has {len(turns)} turns, this is turn {ctx.turn_number})")
        made = sum(
            (isinstance(event, ToolRequest) and not event.partial)
            or (isinstance(event, ElicitationRequest) and event.tool_request_id is None)
            for event in ctx.record
            if event.turn_id == ctx.turn_id and event.thread_id is None
        )
        place, steps = _next(turns[ctx.turn_number - 1], made)
        key = (ctx.session_id, ctx.turn_number, place)
        if key in self._said:
            return _text("(noted)")
        self._said.add(key)
        return _reply(self._play, steps, _told(request, made))


class Child:
    """The model of a sub-agent, whose history is its own."""

    def __init__(self, play: Play, steps: Sequence[script.Step]) -> None:
        self._play = play
        self._steps = steps

    def __call__(self, request: LlmRequest) -> Reply:
        made = sum(part.function_call is not None for part in _parts(request))
        return _reply(self._play, _next(self._steps, made)[1], _told(request, made))


def _next(steps: Sequence[script.Step], made: int) -> tuple[int, Sequence[script.Step]]:
    """What a model does that has made so many calls: the place of its next step, and all up to its next calls."""
    first = 0
    for place, step in enumerate(steps, start=1):
        if made <= 0:
            break
        if isinstance(step, _ENDS):
            made -= _size(step)
            first = place
    end = next((place for place in range(first, len(steps)) if isinstance(steps[place], _ENDS)), len(steps))
    return first, steps[first : end + 1]


def _size(step: script.Step) -> int:
    match step:
        case script.Calls():
            return len(step.calls)
        case script.Delegate():
            return len(step.agents)
        case _:
            return 1


def _reply(play: Play, steps: Sequence[script.Step], told: list[dict[str, Any]]) -> Reply:
    """One answer of the model: each message comes as it is said, as from a provider that streams."""
    reply = Reply()
    for step in steps:
        match step:
            case script.Say(text=text):
                reply += _text(text)
            case script.Stream():
                reply += _streamed(play, step)
            case script.Think(text=text):
                reply += _response(types.Part(text=text, thought=True))
            case script.Recite():
                reply += _text(json.dumps(told))
            case script.Calls(calls=calls):
                # Models count their calls anew in each answer: ids repeat.
                reply += _response(*(_call(call.name, call.args, place) for place, call in enumerate(calls)))
            case script.Ask(kind="auth_required"):
                reply += _response(_call("sign_in", {}, 0))
            case script.Ask():
                schema = {} if step.requested_schema is None else {"response_schema": step.requested_schema}
                reply += _response(_call("adk_request_input", {"message": step.message, **schema}, 0))
            case script.Delegate(agents=agents):
                reply += _response(*(_call(name, {"request": "go"}, place) for place, name in enumerate(agents)))
            case script.Hold(mark=mark):
                reply += _hold(play, mark)
            case script.Fail(message=message):
                reply += raw(LlmResponse(error_code="UNAVAILABLE", error_message=message))
            case script.Raise(message=message):
                reply += fail(RuntimeError(message))
            case script.Refuse(text=text):
                reply += _response(types.Part(text=text), finish=types.FinishReason.SAFETY)
            case script.Count():
                usage = types.GenerateContentResponseUsageMetadata(
                    prompt_token_count=step.input_tokens, candidates_token_count=step.output_tokens
                )
                reply += raw(LlmResponse(usage_metadata=usage, partial=False))
            case script.Stop():
                reply += raw(LlmResponse(error_code="MAX_TOKENS", finish_reason=types.FinishReason.MAX_TOKENS))
    return reply if reply.actions else _response()


def _text(text: str) -> Reply:
    return _response(types.Part(text=text))


def _streamed(play: Play, step: script.Stream) -> Reply:
    reply = Reply()
    for number, piece in enumerate(step.pieces, start=1):
        if step.hold is not None and number == len(step.pieces):
            reply += _hold(play, step.hold)
        reply += _response(types.Part(text=piece), partial=True)
    return reply + _text("".join(step.pieces))


def _hold(play: Play, mark: str) -> Reply:
    return hold(lambda: play.hold(mark))


def _call(name: str, args: Mapping[str, Any], place: int) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=copy.deepcopy(dict(args)), id=f"call_{place}"))


def _response(*parts: types.Part, partial: bool = False, finish: types.FinishReason | None = None) -> Reply:
    content = types.Content(role="model", parts=list(parts)) if parts else None
    reason = finish or (None if partial else types.FinishReason.STOP)
    return raw(LlmResponse(content=content, partial=partial, finish_reason=reason))


def _told(request: LlmRequest, made: int) -> list[dict[str, Any]]:
    """What the model is told of the last calls that it has made, as many as it has made in this turn."""
    calls = [part.function_call for part in _parts(request) if part.function_call is not None]
    answers = {
        part.function_response.id: part.function_response.response or {}
        for part in _parts(request)
        if part.function_response is not None
    }
    return [_told_of(call, answers.get(call.id, {})) for call in calls[len(calls) - made :]]


def _told_of(call: types.FunctionCall, answer: Mapping[str, Any]) -> dict[str, Any]:
    failed = "error" in answer
    data = answer["error"] if failed else answer["result"] if set(answer) == {"result"} else dict(answer)
    if call.name == "sign_in":
        return {"action": "decline" if failed else "accept", "content": None}
    if call.name == "adk_request_input":
        return {"action": data, "content": None} if failed else {"action": "accept", "content": data}
    return {"name": call.name, "args": call.args, "data": data, "is_error": failed}


def _parts(request: LlmRequest) -> Iterator[types.Part]:
    for content in request.contents:
        yield from content.parts or ()


class MortalSqlite(SqliteSessionService):
    """ADK's sessions in a file, until the process dies."""

    def __init__(self, path: str, play: Play) -> None:
        super().__init__(path)
        self._play = play

    async def create_session(self, **given: Any) -> Session:
        _alive(self._play)
        return await super().create_session(**given)

    async def append_event(self, session: Session, event: AdkEvent) -> AdkEvent:
        _alive(self._play)
        return await super().append_event(session, event)

    async def delete_session(self, **given: Any) -> None:
        _alive(self._play)
        await super().delete_session(**given)


class MortalMemory(InMemorySessionService):
    """A process's access to sessions that are kept in memory elsewhere, until it dies."""

    def __init__(self, kept: InMemorySessionService, play: Play) -> None:
        super().__init__()
        self._play = play
        self.sessions, self.user_state, self.app_state = kept.sessions, kept.user_state, kept.app_state

    async def create_session(self, **given: Any) -> Session:
        _alive(self._play)
        return await super().create_session(**given)

    async def append_event(self, session: Session, event: AdkEvent) -> AdkEvent:
        _alive(self._play)
        return await super().append_event(session, event)

    async def delete_session(self, **given: Any) -> None:
        _alive(self._play)
        await super().delete_session(**given)


def _alive(play: Play) -> None:
    if play.is_dead:
        raise Killed


memory = AdkHarness()
parked = AdkHarness(parked=True)
sqlite = AdkHarness(lasting=True)
sqlite_parked = AdkHarness(lasting=True, parked=True)
