"""A model whose calls the host answers: a person, a program, or a recording plays the provider.

Not for: what the answer's chunks become (``_gemini_responses``), how a wait works (``_live``).
Rules carried: HITL-07, HITL-08, SEC-01. May import: the modules beside it, ``agentsession.protocol``, google.adk.

In a session each call becomes an ``elicitation_request`` of the kind ``model_call``: its context is the
``GenerateContentRequest`` without secrets, and the stream ends ``input_required`` like for every other question. An
``accept`` carries what the model answers, in any of these forms::

    "It is sunny."                                                        # text
    {"text": "I look.", "calls": [{"name": "look", "args": {"at": 1}}]}   # text, calls, or both
    {"candidates": [...], "usageMetadata": {...}}                         # a GenerateContentResponse
    [{"candidates": [...]}, {"candidates": [...]}]                        # the chunks of a stream
    {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}              # the provider's error

``decline`` and ``cancel`` end the call with an error code; nothing is invented in the model's place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from google.adk.models._capabilities import LlmCapabilities
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse

from agentsession.adapters.adk._errors import MODEL_CALL_CANCELLED, MODEL_CALL_DECLINED, safe_message
from agentsession.adapters.adk._exchanges import agent_of, redacted_request
from agentsession.adapters.adk._gemini_requests import asked_json
from agentsession.adapters.adk._gemini_responses import answer_with, check_answer
from agentsession.adapters.adk._values import is_list
from agentsession.protocol import (
    ConfigurationError,
    ElicitationAnswer,
    ElicitationRequest,
    RunEnded,
    SchemaError,
    dumps,
    find_problem,
)

__all__ = ["ANSWER_SCHEMA", "MODEL_CALL", "HostLlm", "model_answer"]

MODEL_CALL: Final = "model_call"
"""The kind of question that a model call of :class:`HostLlm` becomes."""

_SHOWN: Final = 500
"""How many characters of a text the message of a question holds; its context holds all."""

_BASE64: Final = {"type": "string", "pattern": "^[A-Za-z0-9+/_-]*={0,2}$"}
_CALL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "args": {"type": "object"},
        "id": {"type": "string"},
    },
    "required": ["name"],
}
_PART: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "thought": {"type": "boolean"},
        "thoughtSignature": _BASE64,
        "functionCall": _CALL,
        "inlineData": {
            "type": "object",
            "properties": {"mimeType": {"type": "string"}, "data": _BASE64},
            "required": ["mimeType", "data"],
        },
    },
}
_CANDIDATE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "content": {
            "type": "object",
            "properties": {"role": {"type": "string"}, "parts": {"type": "array", "items": _PART}},
        },
        "finishReason": {"type": "string"},
        "finishMessage": {"type": "string"},
        "index": {"type": "integer"},
        "citationMetadata": {"type": "object"},
        "groundingMetadata": {"type": "object"},
        "avgLogprobs": {"type": "number"},
        "logprobsResult": {"type": "object"},
    },
}
_RESPONSE: Final[dict[str, Any]] = {
    "title": "GenerateContentResponse",
    "type": "object",
    "properties": {
        "candidates": {"type": "array", "items": _CANDIDATE},
        "promptFeedback": {
            "type": "object",
            "properties": {"blockReason": {"type": "string"}, "blockReasonMessage": {"type": "string"}},
        },
        "usageMetadata": {
            "type": "object",
            "properties": {
                name: {"type": "integer", "minimum": 0}
                for name in (
                    "promptTokenCount",
                    "candidatesTokenCount",
                    "thoughtsTokenCount",
                    "cachedContentTokenCount",
                    "totalTokenCount",
                )
            },
        },
        "modelVersion": {"type": "string"},
        "responseId": {"type": "string"},
    },
    "anyOf": [{"required": [name]} for name in ("candidates", "promptFeedback", "usageMetadata", "adk")],
}
_ERROR: Final[dict[str, Any]] = {
    "title": "error",
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer", "minimum": 400, "maximum": 599},
                "status": {"type": "string"},
                "message": {"type": "string"},
            },
            "required": ["code"],
        }
    },
    "required": ["error"],
}
_SHORT: Final[dict[str, Any]] = {
    "title": "text and calls",
    "type": "object",
    "properties": {"text": {"type": "string"}, "calls": {"type": "array", "items": _CALL}},
    "additionalProperties": False,
    "minProperties": 1,
}
ANSWER_SCHEMA: Final[dict[str, Any]] = {
    "type": ["string", "object", "array"],  # for hosts that make a form of it: the answer is one value
    "anyOf": [
        {"title": "text", "type": "string"},
        _SHORT,
        _RESPONSE,
        _ERROR,
        {"title": "chunks", "type": "array", "items": {"anyOf": [_RESPONSE, _ERROR]}, "minItems": 1},
    ],
}
"""What a host may answer; each form may hold more fields of Gemini's API than are named here, but for the short one."""


def model_answer(content: Any) -> list[Mapping[str, Any]]:
    """The chunks that a host's answer stands for.

    Raises:
        SchemaError: it is none of the forms, or holds what google-genai cannot take; the error has the place.
    """
    problem = find_problem(ANSWER_SCHEMA, content)
    if problem is not None:
        raise SchemaError(
            "not an answer of a model",
            pointer=problem.pointer,
            where=f"answer at {problem.pointer}",
            got=problem.message,
            expected="text, {text, calls}, a GenerateContentResponse, its chunks, or an error",
        )
    if isinstance(content, str):
        return [_whole([{"text": content}] if content else [])]
    if is_list(content):
        chunks: list[Mapping[str, Any]] = content
    elif set(content) <= {"text", "calls"}:
        said = [{"text": content["text"]}] if content.get("text") else []
        chunks = [_whole([*said, *({"functionCall": call} for call in content.get("calls", ()))])]
    else:
        chunks = [content]
    for index, chunk in enumerate(chunks):
        check_answer(chunk, name=f"answer {index}" if len(chunks) > 1 else "answer")
    return chunks


def _whole(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def _message(request: Mapping[str, Any], agent: str | None) -> str:
    """The question for a person who sees no more of it: what was said last, and what may be called."""
    lines = [f"What does the model of {agent} answer?" if agent else "What does the model answer?"]
    content = request["contents"][-1] if request["contents"] else {}
    for part in content.get("parts", ()):
        if "functionResponse" in part:
            found = part["functionResponse"]
            lines.append(f"result of {found.get('name')}: {dumps(found.get('response'))}")
        else:
            lines.append(f"{content.get('role', 'user')}: {part.get('text') or '[' + ', '.join(sorted(part)) + ']'}")
    names = [
        item.get("name", "?") for tool in request.get("tools", ()) for item in tool.get("functionDeclarations", ())
    ]
    if names:
        lines.append(f"it may call: {', '.join(names)}")
    return "\n".join(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..." for text in lines)


class HostLlm(BaseLlm):
    """A model that asks the host what it answers, in a session of :class:`~agentsession.adapters.adk.AdkExecutor`.

    Each call is a question of the kind ``model_call``, also of sub-agents, children of an AgentTool and parallel
    branches. It counts against the turn's limits like any model call, waits in the run that is kept open, and so does
    not survive the process (``data.volatile``). One instance may serve several agents and sessions.
    """

    model: str = "host"
    output_schema_and_tools: bool = False
    """Whether ADK may ask for structured output and offer tools in one call; otherwise it asks by a tool."""

    @property
    def capabilities(self) -> LlmCapabilities:
        """What this instance says."""
        return LlmCapabilities(output_schema_and_tools=self.output_schema_and_tools)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        answer = await self._ask(redacted_request(asked_json(self, llm_request)))
        if answer.action != "accept":
            code = MODEL_CALL_DECLINED if answer.action == "decline" else MODEL_CALL_CANCELLED
            yield LlmResponse(error_code=code, error_message=safe_message(code, None))
            return
        async for response in answer_with(model_answer(answer.content), streaming=stream, name="answer"):
            yield response

    async def _ask(self, request: dict[str, Any]) -> ElicitationAnswer:
        # At run time: importing the live run imports all of ADK's runner, which a script of answers has no need of.
        from agentsession.adapters.adk._live import current_run

        live = current_run()
        if live is None:
            raise ConfigurationError(
                "there is no host to answer this model call",
                where=f"HostLlm {self.model!r}",
                expected="an agent that runs in a session of AdkExecutor",
                fix="open a session with AdkExecutor; without a host use ScriptedLlm or ReplayLlm",
                id="no-session",
            )
        await live.attached()
        thread = live.brackets.current_thread()
        working = live.ctx.open_agents.get(thread, ())
        agent = agent_of(request)
        if agent not in working:  # the label may be the user's own
            agent = working[-1] if working else None
        question = ElicitationRequest(
            request_id=live.state.new_request_id(live.ctx.new_id, "q"),
            kind=MODEL_CALL,
            message=_message(request, agent),
            context=request,
            requested_schema=ANSWER_SCHEMA,
            agent_id=agent,
            thread_id=thread,
        )
        try:
            live.ctx.emit_nowait(question)
        except RunEnded:
            raise asyncio.CancelledError from None
        answer = await live.wait(question.request_id)
        if isinstance(answer, ElicitationAnswer):
            return answer
        return ElicitationAnswer(request_id=question.request_id, action="cancel")
