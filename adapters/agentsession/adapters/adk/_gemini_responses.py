"""Gemini's responses as JSON (``GenerateContentResponse``, an error, a stream of chunks) and as ADK's. Pure.

Not for: requests (``_gemini_requests``), who answers (``_host_model``, ``_recorded_model``).
Rules carried: WIRE-01, WIRE-02. May import: ``_lenient``, ``_gemini_requests``, google.adk.models, google.genai.

Chunks become ADK responses by ADK's own code, so that a recording, a host and the provider are heard alike: a stream
gives each chunk as a partial response and then the whole, a call without streaming gives the whole alone.

What an ADK response holds and Gemini's JSON has no field for is kept beside it in the field ``adk``, so that
``adk_response(response_json(r))`` says the same as ``r``. JSON with that field is an ADK response as it was, no chunk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from google.adk.models.llm_response import LlmResponse
from google.adk.utils.streaming_utils import StreamingResponseAggregator
from google.genai import errors, types

from agentsession.adapters.adk._gemini_requests import GeminiRead, wire_json
from agentsession.adapters.adk._lenient import read_model, refused
from agentsession.adapters.adk._values import is_list, is_object, lossy_json

__all__ = ["adk_response", "answer_with", "check_answer", "error_of", "read_response", "response_json", "wire_chunks"]

_ADK: Final = "adk"
_CANDIDATE: Final = {
    "content": "content",
    "finish_reason": "finishReason",
    "citation_metadata": "citationMetadata",
    "grounding_metadata": "groundingMetadata",
    "avg_logprobs": "avgLogprobs",
    "logprobs_result": "logprobsResult",
}
"""Fields of an ADK response that are the candidate's."""

_WHOLE: Final = {"usage_metadata": "usageMetadata", "model_version": "modelVersion"}
"""Fields of an ADK response that are the response's."""


def read_response(value: Any, *, name: str = "response") -> GeminiRead[types.GenerateContentResponse]:
    """A ``GenerateContentResponse``, or one chunk of a stream, from JSON.

    Raises:
        SchemaError: it is not one; the error has the JSON pointer of the place.
        google.genai.errors.APIError: it is the provider's error (:func:`error_of`).
    """
    if not is_object(value):
        raise refused(name, "", "not a GenerateContentResponse", value, "an object")
    if "error" in value:
        raise error_of(value, name=name)
    data = {key: item for key, item in value.items() if key != _ADK}
    if is_list(data.get("candidates")):
        data["candidates"] = [_known_citations(item) for item in data["candidates"]]
    unread: dict[str, Any] = {}
    response = read_model(types.GenerateContentResponse, data, unread, name=name)
    return GeminiRead(response, unread)


def error_of(value: Any, *, name: str = "response") -> errors.APIError:
    """The exception that google-genai raises for ``{"error": {"code", "status", "message"}}``.

    Raises:
        SchemaError: it has no such shape.
    """
    error = value.get("error") if is_object(value) else None
    if not is_object(error):
        raise refused(name, "/error", "not an error of the Gemini API", error, "an object with code, status, message")
    code = error.get("code")
    if isinstance(code, bool) or not isinstance(code, int) or not 400 <= code <= 599:
        raise refused(name, "/error/code", "not an error of the Gemini API", code, "an HTTP status from 400 to 599")
    for field in ("message", "status"):
        if not isinstance(error.get(field, ""), str):
            raise refused(name, f"/error/{field}", "not an error of the Gemini API", error[field], "text")
    kind = errors.ClientError if code < 500 else errors.ServerError
    return kind(code, dict(value))


def check_answer(value: Any, *, name: str = "response") -> None:
    """Raise :class:`~agentsession.protocol.SchemaError` unless ``value`` is a response, a chunk, or an error."""
    try:
        if is_object(value) and _ADK in value:
            adk_response(value, name=name)
        else:
            read_response(value, name=name)
    except errors.APIError:
        pass


def response_json(response: LlmResponse) -> dict[str, Any]:
    """``response`` as a ``GenerateContentResponse``, with what that cannot say in ``adk``.

    Raises:
        InvalidInput: something in it is no JSON; the error has the place.
    """
    candidate = {
        wire: wire_json(value, f"/candidates/0/{wire}")
        for field, wire in _CANDIDATE.items()
        if (value := getattr(response, field)) is not None
    }
    citations = candidate.get("citationMetadata")
    if is_object(citations) and "citations" in citations:
        citations["citationSources"] = citations.pop("citations")
    out: dict[str, Any] = {
        wire: wire_json(value, f"/{wire}")
        for field, wire in _WHOLE.items()
        if (value := getattr(response, field)) is not None
    }
    if response.error_code and response.error_code == response.finish_reason:
        if response.error_message is not None:
            candidate["finishMessage"] = wire_json(response.error_message)
    elif not candidate and response.error_code in types.BlockedReason.__members__:
        feedback = {"blockReason": response.error_code, "blockReasonMessage": response.error_message}
        out["promptFeedback"] = wire_json({key: item for key, item in feedback.items() if item is not None})
    if candidate == {"content": {"parts": [], "role": "model"}}:
        candidate = {}  # ADK's reading of a response without candidates
    if candidate:
        out = {"candidates": [candidate], **out}
    # What reading this back would not give is said beside it; ``null``: the response had none.
    made = LlmResponse.create(read_response(out).value)
    beside: dict[str, Any] = {}
    for field in LlmResponse.model_fields:
        said = wire_json(getattr(response, field), f"/adk/{_alias(field)}")
        if field == "partial" or said != wire_json(getattr(made, field)):
            beside[_alias(field)] = said
    return {**out, _ADK: beside}


def adk_response(value: Any, *, name: str = "response") -> LlmResponse:
    """The ADK response that JSON stands for: what ADK makes of Gemini's, and then what ``adk`` says.

    Raises:
        SchemaError: it is not one; the error has the JSON pointer of the place.
        google.genai.errors.APIError: it is the provider's error.
    """
    made = LlmResponse.create(read_response(value, name=name).value)
    beside = value.get(_ADK)
    if beside is None:
        return made
    if not is_object(beside):
        raise refused(name, "/adk", "not an ADK response", beside, "an object")
    read = read_model(LlmResponse, beside, {}, pointer="/adk", name=name, what="ADK response")
    for field in read.model_fields_set:
        setattr(made, field, getattr(read, field))
    return made


async def answer_with(
    chunks: Sequence[Mapping[str, Any]], *, streaming: bool, name: str = "response"
) -> AsyncIterator[LlmResponse]:
    """What a model that answered with ``chunks`` gives ADK: see the module's words on streams.

    Raises:
        SchemaError: a chunk is no response. APIError: a chunk is the provider's error; those before it were given.
    """
    if any(_ADK in chunk for chunk in chunks):
        for index, chunk in enumerate(chunks):
            response = adk_response(chunk, name=f"{name} {index}" if len(chunks) > 1 else name)
            if streaming or not response.partial:
                yield response
        return
    if not streaming and len(chunks) == 1:
        yield adk_response(chunks[0], name=name)
        return
    aggregator = StreamingResponseAggregator()
    usage: types.GenerateContentResponseUsageMetadata | None = None
    for index, chunk in enumerate(chunks):
        read = read_response(chunk, name=f"{name} {index}" if len(chunks) > 1 else name).value
        usage = read.usage_metadata or usage
        if read.candidates:
            read.candidates = [candidate for candidate in read.candidates if not candidate.index]
            if not read.candidates:
                continue  # ADK's Gemini reads the first candidate alone
        async for partial in aggregator.process_response(read):
            if streaming:
                yield partial
    whole = aggregator.close()
    if whole is not None:
        if usage is not None:
            whole.usage_metadata = usage
        yield whole


async def wire_chunks(responses: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``responses`` as a provider would send them: chunks without ``adk``, whose sum is the whole response.

    Where the partial responses add up to the whole, they are the chunks, and the whole only closes them; where they do
    not, the whole alone is sent.
    """
    plain = [{key: item for key, item in response.items() if key != _ADK} for response in responses]
    if not any(_ADK in response for response in responses):
        return plain
    partial = [chunk for chunk, response in zip(plain, responses, strict=True) if _is_partial(response)]
    whole = [chunk for chunk, response in zip(plain, responses, strict=True) if not _is_partial(response)]
    if any("error" in chunk for chunk in whole):
        return plain  # it broke off: there is no whole
    if not partial or len(whole) != 1:
        return whole
    summed = [response async for response in answer_with(partial, streaming=False)] if len(partial) > 1 else []
    summed = summed or [LlmResponse.create(read_response(partial[0]).value)]
    wanted = LlmResponse.create(read_response(whole[0]).value)
    if _said(summed[-1]) != _said(wanted):
        return whole
    if partial[-1] == whole[0] or _closes(partial[-1]):
        return partial
    closing = {**whole[0]}
    for candidate in closing.get("candidates", ()):
        candidate.pop("content", None)
    return [*partial, closing]


def _is_partial(response: Mapping[str, Any]) -> bool:
    beside = response.get(_ADK)
    return is_object(beside) and beside.get("partial") is True


def _closes(chunk: Mapping[str, Any]) -> bool:
    candidates = chunk.get("candidates")
    return is_list(candidates) and any(is_object(item) and item.get("finishReason") for item in candidates)


def _said(response: LlmResponse) -> Any:
    """The parts of a response without the ids that ADK makes for calls that have none."""
    parts = wire_json(response.content)["parts"] if response.content is not None and response.content.parts else []
    for part in parts:
        call = part.get("functionCall")
        if call is not None and str(call.get("id", "")).startswith("adk-"):
            del call["id"]
    return lossy_json(parts)[0]


def _known_citations(candidate: Any) -> Any:
    """The Gemini API calls them ``citationSources``, Vertex and google-genai ``citations``."""
    citations = candidate.get("citationMetadata") if is_object(candidate) else None
    if not is_object(citations) or "citationSources" not in citations or "citations" in citations:
        return candidate
    rest = {key: item for key, item in citations.items() if key != "citationSources"}
    return {**candidate, "citationMetadata": {**rest, "citations": citations["citationSources"]}}


def _alias(field: str) -> str:
    return LlmResponse.model_fields[field].alias or field
