"""A scripted model for tests and demos: what each call answers is written down, nothing is random, nothing sleeps.

Not for: driving a session without ADK (``agentsession.adapters.scripted`` does). May import: google.adk.models,
``_gemini_responses``.

One *step* answers one model call. Steps are added up within one answer::

    model = ScriptedLlm(script=[
        think("I should look first.") + call("read_file", {"path": "cart.py"}),
        calls(call("read_file", {"path": "a"}), call("read_file", {"path": "b"})),   # parallel
        stream("The total ", "is 81.").using(input=900, output=40),
    ])
    agent = LlmAgent(name="coder", model=model, tools=[read_file])

``model.requests`` holds what ADK asked, call by call. A step may also be text, an ``LlmResponse``, an exception to
raise, or a function of the request that returns any of these.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from google.adk.models._capabilities import LlmCapabilities
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import Field, PrivateAttr

from agentsession.adapters.adk._gemini_responses import answer_with
from agentsession.protocol import AgentSessionError

__all__ = [
    "ScriptExhausted",
    "ScriptItem",
    "ScriptedLlm",
    "Step",
    "call",
    "calls",
    "delay",
    "error",
    "fail",
    "hold",
    "raw",
    "say",
    "stream",
    "stream_call",
    "think",
    "wire",
]


class ScriptExhausted(AgentSessionError):
    """The model was called more often than its script has steps."""

    default_id = "script-exhausted"


@dataclasses.dataclass(frozen=True, slots=True)
class _Whole:
    part: types.Part


@dataclasses.dataclass(frozen=True, slots=True)
class _Delta:
    part: types.Part


@dataclasses.dataclass(frozen=True, slots=True)
class _StreamedCall:
    name: str
    id: str | None
    pieces: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Wait:
    seconds: float = 0.0
    until: Callable[[], Awaitable[object]] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Raise:
    error: BaseException


@dataclasses.dataclass(frozen=True, slots=True)
class _Raw:
    response: LlmResponse


@dataclasses.dataclass(frozen=True, slots=True)
class _Wire:
    chunks: tuple[Mapping[str, Any], ...]


_Action = _Whole | _Delta | _StreamedCall | _Wait | _Raise | _Raw | _Wire


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What one model call answers: actions in order, and what the closing response reports. Add two to join them."""

    actions: tuple[_Action, ...] = ()
    usage: types.GenerateContentResponseUsageMetadata | None = None
    error_code: str | None = None
    error_message: str | None = None
    finish_reason: types.FinishReason | None = None

    def __add__(self, other: Step | str) -> Step:
        """Both in one answer; what ``other`` reports wins."""
        other = say(other) if isinstance(other, str) else other
        return Step(
            actions=self.actions + other.actions,
            usage=other.usage or self.usage,
            error_code=other.error_code or self.error_code,
            error_message=other.error_message or self.error_message,
            finish_reason=other.finish_reason or self.finish_reason,
        )

    def using(
        self,
        *,
        input: int | None = None,  # the contract's word
        output: int | None = None,
        reasoning: int | None = None,
        cached: int | None = None,
        total: int | None = None,
    ) -> Step:
        """The same answer, reporting these token counts; what is left out is not reported."""
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=input,
            candidates_token_count=output,
            thoughts_token_count=reasoning,
            cached_content_token_count=cached,
            total_token_count=total,
        )
        return dataclasses.replace(self, usage=usage)

    def finishing(self, reason: types.FinishReason | str) -> Step:
        """The same answer with another finish reason, such as ``"MAX_TOKENS"``."""
        return dataclasses.replace(self, finish_reason=types.FinishReason(reason))


ScriptItem = Step | str | LlmResponse | BaseException | Callable[[LlmRequest], Any]
"""What a script is made of. A function gets the request and returns an item (or an awaitable of one)."""


def say(text: str) -> Step:
    """Text that arrives whole."""
    return Step((_Whole(types.Part(text=text)),))


def stream(*deltas: str) -> Step:
    """Text that arrives in deltas when ADK streams, and whole when it does not."""
    return Step(tuple(_Delta(types.Part(text=delta)) for delta in deltas))


def think(*deltas: str, signature: bytes | None = None) -> Step:
    """A thought, in deltas when more than one is given; the signature goes on the last."""
    parts = [types.Part(text=delta, thought=True) for delta in deltas]
    if parts:
        parts[-1].thought_signature = signature
    kind: type[_Delta] | type[_Whole] = _Delta if len(parts) > 1 else _Whole
    return Step(tuple(kind(part) for part in parts))


def call(name: str, args: Mapping[str, Any] | None = None, *, id: str | None = None) -> Step:
    """One function call. Without ``id`` the model gives none and ADK makes one."""
    made = types.FunctionCall(name=name, args=dict(args) if args is not None else {}, id=id)
    return Step((_Whole(types.Part(function_call=made)),))


def calls(*steps: Step) -> Step:
    """Several calls in one answer, which ADK runs in parallel."""
    total = Step()
    for step in steps:
        total = total + step
    return total


def stream_call(name: str, args: Mapping[str, str | Sequence[str]], *, id: str | None = None) -> Step:
    """A call whose string arguments arrive in pieces: ``stream_call("write", {"text": ["one ", "two"]})``."""
    pieces = [
        (key, piece) for key, value in args.items() for piece in ([value] if isinstance(value, str) else list(value))
    ]
    return Step((_StreamedCall(name, id, tuple(pieces)),))


def delay(seconds: float) -> Step:
    """Wait by the model's own ``wait`` function, which by default only notes the seconds and returns."""
    return Step((_Wait(seconds=seconds),))


def hold(until: Callable[[], Awaitable[object]]) -> Step:
    """Wait until ``until()`` has returned, such as ``hold(event.wait)``: for tests that stop a model in the middle."""
    return Step((_Wait(until=until),))


def fail(problem: BaseException | str) -> Step:
    """Raise ``problem`` out of the model call, after what was answered before it. Text becomes a RuntimeError."""
    return Step((_Raise(RuntimeError(problem) if isinstance(problem, str) else problem),))


def error(code: str, message: str | None = None) -> Step:
    """End the answer with a provider's code: ``"SAFETY"``, ``"MAX_TOKENS"``, ``"MALFORMED_FUNCTION_CALL"`` …"""
    known = code in types.FinishReason.__members__
    return Step(error_code=code, error_message=message, finish_reason=types.FinishReason(code) if known else None)


def raw(*responses: LlmResponse) -> Step:
    """Exactly these responses and no closing one, whether ADK streams or not."""
    return Step(tuple(_Raw(response) for response in responses))


def wire(*chunks: Mapping[str, Any]) -> Step:
    """What Gemini's API sends: one ``GenerateContentResponse`` as JSON, or the chunks of a stream, heard as ADK's own
    Gemini hears them; ``{"error": {"code": 429, …}}`` raises google-genai's exception."""
    return Step((_Wire(chunks),))


async def _note_only(seconds: float) -> None:
    del seconds


class ScriptedLlm(BaseLlm):
    """A model that answers from a script; one instance may serve several agents and sessions, in order of call."""

    model: str = "scripted"
    script: list[Any] = Field(default_factory=list)  # ScriptItem: functions and exceptions have no pydantic schema
    """One :data:`ScriptItem` a model call."""
    forever: Any = None  # ScriptItem
    """Answers every call after the script's end; ``None``: such a call raises :class:`ScriptExhausted`."""
    wait: Callable[[float], Awaitable[None]] = _note_only
    """What :func:`delay` awaits; pass ``anyio.sleep`` for real time."""

    _requests: list[LlmRequest] = PrivateAttr(default_factory=list[LlmRequest])

    @property
    def requests(self) -> list[LlmRequest]:
        """What ADK asked, call by call; the contents as they were at the call."""
        return self._requests

    @property
    def calls_left(self) -> int:
        """Steps that were not used yet."""
        return max(0, len(self.script) - len(self._requests))

    @property
    def capabilities(self) -> LlmCapabilities:
        """None, stated outright: ADK warns of models that leave it to be guessed from their name."""
        return LlmCapabilities(output_schema_and_tools=False)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        number = len(self._requests)
        self._requests.append(llm_request.model_copy(update={"contents": list(llm_request.contents)}))
        if number < len(self.script):
            item = self.script[number]
        elif self.forever is not None:
            item = self.forever
        else:
            raise ScriptExhausted(
                f"model call {number + 1} has no step in the script",
                where=f"ScriptedLlm {self.model!r}",
                expected=f"at most {len(self.script)} model calls",
                got=_last_content(llm_request),
                fix="add a step, or set forever=say(...)",
            )
        step = await _resolve(item, llm_request)
        async for response in self._answer(step, stream):
            yield response

    async def _answer(self, step: Step, streaming: bool) -> AsyncGenerator[LlmResponse, None]:
        whole: list[types.Part] = []
        only_raw = bool(step.actions)
        for action in step.actions:
            if not isinstance(action, (_Raw, _Wait, _Wire)):
                only_raw = False
            if isinstance(action, _Raw):
                yield action.response
            elif isinstance(action, _Wire):
                async for response in answer_with(action.chunks, streaming=streaming):
                    yield response
            elif isinstance(action, _Raise):
                raise action.error
            elif isinstance(action, _Wait):
                await (action.until() if action.until is not None else self.wait(action.seconds))
            elif isinstance(action, _Delta):
                if streaming:
                    yield _response([action.part.model_copy(deep=True)], partial=True)
                _append_text(whole, action.part)
            elif isinstance(action, _StreamedCall):
                if streaming:
                    for part in _call_pieces(action):
                        yield _response([part], partial=True)
                whole.append(_joined_call(action))
            else:
                # A copy: ADK writes the ids it makes into the calls it is given.
                whole.append(action.part.model_copy(deep=True))
        if only_raw:
            return
        yield LlmResponse(
            content=types.Content(role="model", parts=whole) if whole else None,
            partial=False if streaming else None,
            usage_metadata=step.usage,
            error_code=step.error_code,
            error_message=step.error_message,
            finish_reason=step.finish_reason or (types.FinishReason.STOP if step.error_code is None else None),
        )


async def _resolve(item: Any, request: LlmRequest) -> Step:
    if inspect.isawaitable(item):
        item = await item
    if isinstance(item, Step):
        return item
    if isinstance(item, str):
        return say(item)
    if isinstance(item, LlmResponse):
        return raw(item)
    if isinstance(item, BaseException):
        return fail(item)
    if callable(item):
        return await _resolve(item(request), request)
    raise TypeError(
        f"a script item is a Step, text, an LlmResponse, an exception or a function, not {type(item).__name__}"
    )


def _response(parts: list[types.Part], *, partial: bool) -> LlmResponse:
    return LlmResponse(content=types.Content(role="model", parts=parts), partial=partial)


def _append_text(whole: list[types.Part], part: types.Part) -> None:
    last = whole[-1] if whole else None
    if last is not None and last.text is not None and bool(last.thought) == bool(part.thought):
        joined = last.model_copy(update={"text": last.text + (part.text or "")})
        joined.thought_signature = part.thought_signature or last.thought_signature
        whole[-1] = joined
    else:
        whole.append(part.model_copy())


def _call_pieces(action: _StreamedCall) -> list[types.Part]:
    """The chunks Vertex sends: the name first, then the pieces by JSON path, then an empty closing one."""
    last_of = {key: index for index, (key, _) in enumerate(action.pieces)}
    parts = [types.Part(function_call=types.FunctionCall(name=action.name, id=action.id, will_continue=True))]
    for index, (key, piece) in enumerate(action.pieces):
        arg = types.PartialArg(json_path=f"$.{key}", string_value=piece, will_continue=index != last_of[key])
        parts.append(types.Part(function_call=types.FunctionCall(id=action.id, partial_args=[arg], will_continue=True)))
    parts.append(types.Part(function_call=types.FunctionCall(id=action.id, will_continue=False)))
    return parts


def _joined_call(action: _StreamedCall) -> types.Part:
    args: dict[str, str] = {}
    for key, piece in action.pieces:
        args[key] = args.get(key, "") + piece
    return types.Part(function_call=types.FunctionCall(name=action.name, id=action.id, args=dict(args)))


def _last_content(request: LlmRequest) -> str:
    if not request.contents:
        return "a request without contents"
    last = request.contents[-1]
    shown = " | ".join(_shown(part) for part in last.parts or [])
    return f"a call whose last content is {last.role}: {shown[:120]}"


def _shown(part: types.Part) -> str:
    if part.function_response is not None:
        return f"result of {part.function_response.name}"
    if part.function_call is not None:
        return f"call of {part.function_call.name}"
    return repr(part.text) if part.text is not None else "a part that is not text"
