"""Gemini's responses as JSON and as ADK's: round trips, and what ADK's own Gemini makes of the same bytes over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import Client, errors, types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.adapters.adk.genai_models import JSON, model

from agentsession.adapters.adk._gemini_loopback import GeminiLoopback, HttpReply
from agentsession.adapters.adk._gemini_requests import wire_json
from agentsession.adapters.adk._gemini_responses import (
    adk_response,
    answer_with,
    error_of,
    read_response,
    response_json,
    wire_chunks,
)
from agentsession.protocol import SchemaError

pytestmark = pytest.mark.anyio

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
NOT_SENT = frozenset({"sdk_http_response", "parsed", "automatic_function_calling_history"})
USAGE = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}


def said(*parts: dict[str, Any], finish: str | None = "STOP", **fields: Any) -> dict[str, Any]:
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    return {"candidates": [{**content, **({"finishReason": finish} if finish else {})}], **fields}


def plain(responses: list[LlmResponse]) -> list[dict[str, Any]]:
    """Comparable: the ids that ADK makes for calls are left out."""
    out = [json.loads(json.dumps(wire_json(response))) for response in responses]
    for response in out:
        for part in response.get("content", {}).get("parts", []):
            if str(part.get("functionCall", {}).get("id", "")).startswith("adk-"):
                del part["functionCall"]["id"]
    return out


async def gathered(responses: AsyncIterator[LlmResponse]) -> list[LlmResponse]:
    return [response async for response in responses]


# -- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-01")
@settings(SLOW, max_examples=80)
@given(model(LlmResponse, 6, leave_out=frozenset({"cache_metadata"})))
def test_an_adk_response_read_back_says_the_same(response: LlmResponse) -> None:
    made = response_json(response)

    again = adk_response(json.loads(json.dumps(made)))

    assert wire_json(again) == wire_json(response)


@pytest.mark.rule("WIRE-01")
@settings(SLOW, max_examples=60)
@given(model(types.GenerateContentResponse, 6, leave_out=NOT_SENT))
def test_a_response_of_google_genai_read_back_says_the_same(response: types.GenerateContentResponse) -> None:
    made = wire_json(response)

    read = read_response(made)

    assert wire_json(read.value) == made
    assert read.unread == {}


@pytest.mark.rule("WIRE-01")
def test_unknown_fields_of_a_response_are_reported_with_their_place() -> None:
    read = read_response(said({"text": "hi", "mood": 1}, weather={"sky": "blue"}))

    assert read.unread == {"/candidates/0/content/parts/0/mood": 1, "/weather": {"sky": "blue"}}
    assert read.value.text == "hi"


def test_a_finish_reason_of_tomorrow_is_kept() -> None:
    response = adk_response(said(finish="TOO_TIRED"))

    assert (response.error_code, response.finish_reason) == ("TOO_TIRED", "TOO_TIRED")


def test_bytes_are_read_in_both_alphabets_of_base64() -> None:
    parts = [
        adk_response(said({"text": "x", "thoughtSignature": text})).content.parts[0]  # type: ignore[union-attr,index]  # as built above
        for text in ("+/+/", "-_-_")
    ]

    assert [part.thought_signature for part in parts] == [b"\xfb\xff\xbf", b"\xfb\xff\xbf"]


@pytest.mark.parametrize("name", ["citationSources", "citations"])
def test_citations_have_either_name(name: str) -> None:
    made = said({"text": "x"})
    made["candidates"][0]["citationMetadata"] = {name: [{"uri": "https://a.example"}]}

    response = adk_response(made)

    assert response.citation_metadata is not None
    assert response.citation_metadata.citations == [types.Citation(uri="https://a.example")]
    assert response_json(response)["candidates"][0]["citationMetadata"] == {
        "citationSources": [{"uri": "https://a.example"}]
    }


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize(
    ("made", "place"),
    [
        ("hi", "/"),
        ({"candidates": {}}, "/candidates"),
        ({"candidates": ["x"]}, "/candidates/0"),
        (said({"text": 5}), "/candidates/0/content/parts/0/text"),
        (said({"inlineData": {"data": "?"}}), "/candidates/0/content/parts/0/inlineData/data"),
        (said({"functionCall": {"name": "f", "args": []}}), "/candidates/0/content/parts/0/functionCall/args"),
        ({"usageMetadata": {"promptTokenCount": "many"}}, "/usageMetadata/promptTokenCount"),
        ({"error": "no"}, "/error"),
        ({"error": {"code": "429"}}, "/error/code"),
        ({"error": {"code": True}}, "/error/code"),
        ({"error": {"code": 200}}, "/error/code"),
        ({"error": {"code": 500, "message": {}}}, "/error/message"),
        ({**said({"text": "x"}), "adk": 5}, "/adk"),
        ({**said({"text": "x"}), "adk": {"partial": []}}, "/adk/partial"),
    ],
)
def test_a_response_that_is_none_is_one_error_with_its_place(made: Any, place: str) -> None:
    with pytest.raises(SchemaError) as caught:
        adk_response(made)

    assert caught.value.pointer == place
    assert caught.value.where == f"response at {place}"


@given(JSON)
def test_any_json_is_read_or_refused_by_name(made: Any) -> None:
    for value in (made, {"candidates": made}, {"candidates": [{"content": made}]}, {"error": made}):
        try:
            read_response(value)
        except (SchemaError, errors.APIError):
            continue


@pytest.mark.parametrize(("code", "kind"), [(429, errors.ClientError), (503, errors.ServerError)])
def test_an_error_is_the_exception_that_the_client_raises(code: int, kind: type[errors.APIError]) -> None:
    found = error_of({"error": {"code": code, "status": "X", "message": "busy"}})

    assert type(found) is kind
    assert (found.code, found.status, found.message) == (code, "X", "busy")


# -- as ADK's Gemini hears it -----------------------------------------------------------------------------------------

CALL = {"functionCall": {"name": "look", "args": {"a_b": None}}}
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "text": [said({"text": "Hel"}, finish=None), said({"text": "lo"}, usageMetadata=USAGE, modelVersion="m-1")],
    "one chunk": [said({"text": "Hello"}, usageMetadata=USAGE, responseId="r1")],
    "thoughts and a call": [
        said({"text": "hm", "thought": True, "thoughtSignature": "+/+/"}, finish=None),
        said({"text": "I look."}, CALL, finish=None),
        said(CALL, {"functionCall": {"id": "c1", "name": "read", "args": {}}}),
    ],
    "usage in a chunk of its own": [said({"text": "a"}, finish=None), {"usageMetadata": USAGE}, said(finish="STOP")],
    "cut off": [said({"text": "half"}, finish="MAX_TOKENS")],
    "refused": [said(finish="SAFETY")],
    "blocked": [{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE}],
    "malformed call": [said({"text": "a", "thought": True}, finish=None), said(finish="MALFORMED_FUNCTION_CALL")],
    "nothing": [{}],
    "stopped without a word": [said(finish="STOP")],
    "second candidate": [
        {"candidates": [*said({"text": "a"})["candidates"], {**said({"text": "b"})["candidates"][0], "index": 1}]}
    ],
    "second candidate in a chunk of its own": [
        said({"text": "a"}, finish=None),
        {"candidates": [{**said({"text": "b"})["candidates"][0], "index": 1}]},
        said({"text": "c"}),
    ],
    "image": [said({"text": "see "}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}, {"text": "this"})],
    "grounding": [
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": "a"}]},
                    "finishReason": "STOP",
                    "citationMetadata": {"citationSources": [{"uri": "https://a.example", "startIndex": 1}]},
                    "groundingMetadata": {"webSearchQueries": ["q"]},
                    "avgLogprobs": -0.5,
                    "logprobsResult": {"chosenCandidates": [{"token": "a", "logProbability": -0.5}]},
                }
            ]
        }
    ],
}


async def by_gemini(chunks: list[dict[str, Any]], *, streaming: bool) -> list[LlmResponse]:
    with GeminiLoopback([HttpReply.of(*chunks)]) as server:
        client = Client(api_key="k", http_options=types.HttpOptions(base_url=server.url))
        gemini = Gemini(model="gemini-2.5-flash", client=client)
        request = LlmRequest(model="gemini-2.5-flash", contents=[types.UserContent("hi")])
        try:
            return [item async for item in gemini.generate_content_async(request, stream=streaming)]
        finally:
            await client.aio.aclose()
            client.close()


@pytest.mark.parametrize("name", list(ANSWERS))
async def test_a_stream_of_chunks_is_heard_as_adk_s_gemini_hears_it(name: str) -> None:
    wanted = await by_gemini(ANSWERS[name], streaming=True)

    assert plain(await gathered(answer_with(ANSWERS[name], streaming=True))) == plain(wanted)


@pytest.mark.parametrize("name", [name for name, chunks in ANSWERS.items() if len(chunks) == 1])
async def test_a_whole_response_is_heard_as_adk_s_gemini_hears_it(name: str) -> None:
    wanted = await by_gemini(ANSWERS[name], streaming=False)

    assert plain(await gathered(answer_with(ANSWERS[name], streaming=False))) == plain(wanted)


async def test_chunks_without_streaming_are_one_whole_response() -> None:
    (whole,) = await gathered(answer_with(ANSWERS["text"], streaming=False))

    assert whole.content is not None
    assert [part.text for part in whole.content.parts or []] == ["Hello"]


async def test_an_error_in_the_middle_of_a_stream_comes_after_what_was_said() -> None:
    chunks = [said({"text": "Hel"}, finish=None), {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}]
    seen: list[LlmResponse] = []

    async def read() -> None:
        async for response in answer_with(chunks, streaming=True):
            seen.append(response)

    with pytest.raises(errors.ServerError) as caught:
        await read()

    assert caught.value.code == 503
    assert [response.partial for response in seen] == [True]


# -- back to the wire -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "streaming"),
    [(name, True) for name in ANSWERS] + [(name, False) for name, chunks in ANSWERS.items() if len(chunks) == 1],
)
async def test_what_adk_heard_can_be_sent_and_is_heard_the_same(name: str, streaming: bool) -> None:
    heard = await gathered(answer_with(ANSWERS[name], streaming=streaming))

    sent = await wire_chunks([response_json(response) for response in heard])
    again = await gathered(answer_with(sent, streaming=streaming))

    assert all("adk" not in chunk for chunk in sent)
    assert plain(again)[-1] == plain(heard)[-1]


async def test_deltas_that_do_not_add_up_to_the_whole_are_not_sent() -> None:
    partial = LlmResponse(content=types.ModelContent("Hel"), partial=True)
    whole = LlmResponse(content=types.ModelContent("Bye"), partial=False, finish_reason=types.FinishReason.STOP)

    sent = await wire_chunks([response_json(partial), response_json(whole)])

    assert sent == [said({"text": "Bye"})]


async def test_an_answer_that_broke_off_is_sent_up_to_its_error() -> None:
    error = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}
    partial = LlmResponse(content=types.ModelContent("Hel"), partial=True)

    sent = await wire_chunks([response_json(partial), error])

    assert sent == [said({"text": "Hel"}, finish=None), error]


@settings(SLOW, max_examples=60)
@given(st.lists(st.sampled_from(["a", "bc"]), min_size=1, max_size=4), st.booleans())
async def test_deltas_that_add_up_are_sent_as_deltas(texts: list[str], usage: bool) -> None:
    partials = [LlmResponse(content=types.ModelContent(text), partial=True) for text in texts]
    counted = types.GenerateContentResponseUsageMetadata(prompt_token_count=3) if usage else None
    whole = LlmResponse(
        content=types.ModelContent("".join(texts)),
        partial=False,
        usage_metadata=counted,
        finish_reason=types.FinishReason.STOP,
    )

    sent = await wire_chunks([response_json(response) for response in (*partials, whole)])
    heard = await gathered(answer_with(sent, streaming=True))

    assert [chunk["candidates"][0].get("content") is not None for chunk in sent] == [*(True for _ in texts), False]
    assert plain(heard)[-1] == plain([whole])[0]
