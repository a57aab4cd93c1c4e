"""Recordings of other programs: HTTP pairs and lines of responses, read to exchanges, replayed, and served again."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_request import LlmRequest
from google.genai import Client, errors, types
from tests.adapters.adk.driving import driven

from agentsession.adapters.adk import (
    GeminiLoopback,
    HttpReply,
    HttpRequest,
    LoopbackPlayback,
    Recording,
    RecordingDiffers,
    ReplayLlm,
    read_recording,
    request_json,
)
from agentsession.adapters.adk._gemini_requests import wire_json
from agentsession.protocol import SchemaError

pytestmark = pytest.mark.anyio

URL = "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash"
ASKED = {"contents": [{"parts": [{"text": "capital?"}], "role": "user"}], "generationConfig": {"temperature": 0.0}}


def said(text: str, finish: str | None = "STOP") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text}]}}
    return {"candidates": [{**candidate, **({"finishReason": finish} if finish else {})}]}


def posted(url: str, body: Any) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"POST {url} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw


def answered(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/2.0 {status}", *lines, "", ""]).encode() + body


def httprr(*pairs: tuple[bytes, bytes]) -> bytes:
    return b"httprr trace v1\n" + b"".join(f"{len(a)} {len(b)}\n".encode() + a + b for a, b in pairs)


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join(f"data: {json.dumps(chunk)}\r\n\r\n".encode() for chunk in chunks)


JSON_PAIR = (
    posted(f"{URL}:generateContent", ASKED),
    answered(json.dumps(said("Paris"), indent=2).encode(), Content_Type="application/json"),
)
STREAM = sse(said("Pa", None), said("ris"))
STREAM_PAIR = (
    posted(f"{URL}:streamGenerateContent?alt=sse", ASKED),
    answered(STREAM, Content_Type="text/event-stream"),
)


def asking() -> LlmRequest:
    config = types.GenerateContentConfig(temperature=0.0)
    return LlmRequest(model="gemini-2.5-flash", contents=[types.UserContent("capital?")], config=config)


# -- reading ----------------------------------------------------------------------------------------------------------


def test_http_pairs_are_read_to_exchanges() -> None:
    whole, streamed = read_recording(httprr(JSON_PAIR, STREAM_PAIR))

    assert (whole.stream, streamed.stream) == (False, True)
    assert whole.request == streamed.request == {"model": "gemini-2.5-flash", **ASKED}
    assert list(whole.responses) == [said("Paris")]
    assert list(streamed.responses) == [said("Pa", None), said("ris")]


def test_bodies_may_be_in_chunks_and_compressed() -> None:
    packed = gzip.compress(json.dumps(said("Paris")).encode())
    body = (
        b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in (packed[:5], packed[5:])) + b"0\r\n\r\n"
    )
    pair = (JSON_PAIR[0], answered(body, Transfer_Encoding="chunked", Content_Encoding="gzip"))

    (exchange,) = read_recording(httprr(pair))

    assert list(exchange.responses) == [said("Paris")]


def test_a_stream_without_events_is_a_list() -> None:
    body = json.dumps([said("Pa", None), said("ris")]).encode()

    (exchange,) = read_recording(httprr((posted(f"{URL}:streamGenerateContent", ASKED), answered(body))))

    assert len(exchange.responses) == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow down"}}', "slow down"),
        (b'[{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow down"}}]', "slow down"),
        (b"<html>too many</html>", "HTTP 429"),
    ],
)
async def test_an_http_error_is_the_provider_s_error(body: bytes, message: str) -> None:
    recording = read_recording(httprr((JSON_PAIR[0], answered(body, "429 Too Many Requests"))))

    with pytest.raises(errors.ClientError) as caught:
        [_ async for _ in ReplayLlm.of(recording).generate_content_async(asking())]

    assert (caught.value.code, caught.value.message) == (429, message)


def test_calls_of_other_methods_are_left_out_and_named() -> None:
    count = (posted(f"{URL}:countTokens", ASKED), answered(b'{"totalTokens": 3}'))
    page = (b"GET https://a.example/ HTTP/1.1\r\n\r\n", answered(b"hi"))

    recording = read_recording(httprr(count, JSON_PAIR, page), name="t")

    assert len(recording) == 1
    assert [line.split(":")[0] for line in recording.left_out] == ["t pair 1", "t pair 3"]


def test_names_in_snake_case_and_unknown_fields_are_read() -> None:
    body = {
        "contents": ASKED["contents"],
        "generationConfig": {"temperature": 0, "thinking_config": {"include_thoughts": True}},
        "hurry": 1,
    }

    (exchange,) = read_recording(httprr((posted(f"{URL}:generateContent", body), JSON_PAIR[1])))

    assert exchange.request is not None
    assert exchange.request["generationConfig"] == {"temperature": 0.0, "thinkingConfig": {"includeThoughts": True}}
    assert exchange.unread == {"/hurry": 1}


def test_lines_of_responses_are_read() -> None:
    lines = [
        {"method": "generateContentStream", "response": [said("Pa", None), said("ris")]},
        {"method": "generateContent", "response": said("Rome")},
        {"method": "countTokens", "response": {"totalTokens": 3}},
    ]

    recording = read_recording("\n".join(map(json.dumps, lines)) + "\n", name="t")

    assert [(item.stream, len(item.responses), item.request) for item in recording] == [
        (True, 2, None),
        (False, 1, None),
    ]
    assert recording.left_out == ("t line 3: countTokens is no model call",)
    assert read_recording(json.dumps(lines)).exchanges[0].responses == recording.exchanges[0].responses


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize(
    ("data", "kind", "place"),
    [
        (b"httprr trace v1\n", "not-a-recording", "t"),
        (b"httprr trace v1\nx y\n", "not-a-recording", "t pair 1"),
        (b"httprr trace v1\n5", "not-a-recording", "t pair 1"),
        (httprr(JSON_PAIR)[:-4], "not-a-recording", "t pair 1"),
        (httprr(JSON_PAIR) + b"1 9\nab", "not-a-recording", "t pair 2"),
        (httprr((posted(f"{URL}:generateContent", b"{"), JSON_PAIR[1])), "bad-json", "t pair 1, request"),
        (httprr((posted(f"{URL}:generateContent", b"\xff"), JSON_PAIR[1])), "not-a-recording", "t pair 1, request"),
        (
            httprr((posted(f"{URL}:generateContent", {"contents": 5}), JSON_PAIR[1])),
            "schema",
            "t pair 1, request at /contents",
        ),
        (httprr((JSON_PAIR[0], answered(b"<html>"))), "bad-json", "t pair 1, response"),
        (httprr((JSON_PAIR[0], b"")), "not-a-recording", "t pair 1"),
        (
            httprr((JSON_PAIR[0], answered(b"5\r\nab", Transfer_Encoding="chunked"))),
            "not-a-recording",
            "t pair 1, response",
        ),
        (httprr((JSON_PAIR[0], answered(b"zz", Content_Encoding="gzip"))), "not-a-recording", "t pair 1, response"),
        (
            httprr((STREAM_PAIR[0], answered(b"data: {\r\n\r\n", Content_Type="text/event-stream"))),
            "bad-json",
            "t pair 1, response event 0",
        ),
        (httprr((JSON_PAIR[0], answered(b'{"candidates": 5}'))), "schema", "t pair 1, response 0 at /candidates"),
        (b'{"method": "generateContent", "response": 5}', "schema", "t /response, response 0 at /"),
        (b'\xff{"method"', "not-a-recording", "t"),
    ],
)
def test_broken_traffic_is_one_error_that_names_the_place(data: bytes, kind: str, place: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read_recording(data, name="t")

    assert (caught.value.id, caught.value.where) == (kind, place)


def test_an_object_that_is_no_call_is_told_by_its_keys_also_without_any() -> None:
    with pytest.raises(SchemaError) as caught:
        read_recording("{}")
    assert caught.value.got == "an object with no keys"


# -- answering from it ------------------------------------------------------------------------------------------------


async def test_recorded_traffic_answers_the_same_request_and_no_other() -> None:
    model = ReplayLlm.of(read_recording(httprr(STREAM_PAIR)))
    heard = [item async for item in model.generate_content_async(asking(), stream=True)]

    assert heard[-1].content == types.ModelContent("Paris")
    other = asking()
    other.contents = [types.UserContent("river?")]
    with pytest.raises(RecordingDiffers) as caught:
        [_ async for _ in ReplayLlm.of(read_recording(httprr(JSON_PAIR))).generate_content_async(other)]
    assert caught.value.pointer == "/contents/0/parts/0/text"


async def test_an_agent_runs_from_lines_of_responses() -> None:
    look = {"functionCall": {"name": "look", "args": {}}}
    lines = [
        {
            "method": "generateContentStream",
            "response": [{"candidates": [{"content": {"parts": [look]}, "finishReason": "STOP"}]}],
        },
        {"method": "generateContentStream", "response": [said("It is ", None), said("blue.")]},
    ]

    def sky() -> str:
        """Look."""
        return "blue"

    sky.__name__ = "look"
    model = ReplayLlm.of(read_recording("\n".join(map(json.dumps, lines))), checks_requests=False)
    async with driven(LlmAgent(name="root", model=model, tools=[sky])) as desk:
        turn = await desk.turn("go")
        assert (turn.reason, turn.texts) == ("completed", ["It is blue."])


async def by_gemini(server: GeminiLoopback, request: LlmRequest, *, streaming: bool) -> list[Any]:
    client = Client(api_key="k", http_options=types.HttpOptions(base_url=server.url))
    gemini = Gemini(model="gemini-2.5-flash", client=client)
    try:
        return [wire_json(item) async for item in gemini.generate_content_async(request, stream=streaming)]
    finally:
        await client.aio.aclose()
        client.close()


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_served_recording_is_heard_by_the_real_client_as_it_is_replayed(streaming: bool) -> None:
    recording = read_recording(httprr(STREAM_PAIR if streaming else JSON_PAIR))
    replies = await LoopbackPlayback.of(recording)

    with GeminiLoopback(replies) as server:
        heard = await by_gemini(server, asking(), streaming=streaming)

    replayed = [
        wire_json(item) async for item in ReplayLlm.of(recording).generate_content_async(asking(), stream=streaming)
    ]
    assert heard == replayed
    assert (replies.problems, replies.playback.left) == ([], ())


async def test_a_call_that_differs_from_the_served_recording_is_an_error_of_the_api() -> None:
    replies = await LoopbackPlayback.of(read_recording(httprr(JSON_PAIR)))
    request = LlmRequest(model="gemini-2.5-flash", contents=[types.UserContent("river?")])

    with GeminiLoopback(replies) as server, pytest.raises(errors.ClientError) as caught:
        await by_gemini(server, request, streaming=False)

    assert (caught.value.code, caught.value.status) == (400, "FAILED_PRECONDITION")
    (problem,) = replies.problems
    assert isinstance(problem, RecordingDiffers)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (HttpReply.of({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "s3cret"}}), "429"),
        (HttpReply.of({"error": {"code": 500, "status": "INTERNAL", "message": "s3cret"}}), "500"),
        (HttpReply(body=b"<html>s3cret</html>", status=503, content_type="text/html"), "503"),
    ],
)
async def test_errors_of_the_served_api_end_the_turn_with_their_code_and_no_text(
    reply: HttpReply, code: str, streaming: bool
) -> None:
    with GeminiLoopback([reply]) as server:
        client = Client(api_key="k", http_options=types.HttpOptions(base_url=server.url))
        root = LlmAgent(name="root", model=Gemini(model="gemini-2.5-flash", client=client))
        async with driven(root, execution={"streaming": streaming}) as desk:
            turn = await desk.turn("go")
            assert (turn.reason, [item.code for item in turn.of("error")]) == ("failed", [code])
            assert "s3cret" not in json.dumps([event.to_wire() for event in desk.session.record])
        await client.aio.aclose()
        client.close()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("body", [b"{", b"s3cret", b'{"candidates": 5}', b'data: {"candi\r\n\r\n'])
async def test_a_body_that_is_no_answer_ends_the_turn_failed_and_the_next_one_works(
    body: bytes, streaming: bool
) -> None:
    kind = "text/event-stream" if streaming else "application/json"
    with GeminiLoopback([HttpReply(body=body, content_type=kind), HttpReply.of(said("fine"))]) as server:
        client = Client(api_key="k", http_options=types.HttpOptions(base_url=server.url))
        root = LlmAgent(name="root", model=Gemini(model="gemini-2.5-flash", client=client))
        async with driven(root, execution={"streaming": streaming}) as desk:
            turn = await desk.turn("go")
            assert (turn.reason, turn.texts, len(turn.of("error"))) == ("failed", [], 1)
            assert "s3cret" not in json.dumps([event.to_wire() for event in desk.session.record])
            assert (await desk.turn("again")).texts == ["fine"]
        await client.aio.aclose()
        client.close()


def test_a_call_beyond_the_replies_and_an_unknown_path_are_errors_of_the_api() -> None:
    with GeminiLoopback([]) as server:
        client = Client(api_key="k", http_options=types.HttpOptions(base_url=server.url))
        with pytest.raises(errors.ClientError) as beyond:
            client.models.generate_content(model="m", contents="hi")
        with pytest.raises(errors.ClientError) as unknown:
            client.models.count_tokens(model="m", contents="hi")
        client.close()

    assert (beyond.value.code, unknown.value.code) == (400, 404)
    assert len(server.requests) == 1


def test_what_a_function_of_replies_raises_is_raised_when_the_block_ends() -> None:
    def broken(request: HttpRequest) -> HttpReply:
        raise LookupError(request.model)

    heard: list[int] = []

    def one_call() -> None:
        with GeminiLoopback(broken) as server:
            client = Client(api_key="k", http_options=types.HttpOptions(base_url=server.url))
            try:
                client.models.generate_content(model="m", contents="hi")
            except errors.ServerError as error:
                heard.append(error.code)
            client.close()

    with pytest.raises(LookupError, match="m"):
        one_call()

    assert heard == [500]


def test_the_request_in_a_recording_is_the_one_that_adk_says() -> None:
    (exchange,) = read_recording(httprr(JSON_PAIR))

    assert exchange.request == request_json(asking())
    assert isinstance(read_recording(Recording((exchange,)).to_text()), Recording)
