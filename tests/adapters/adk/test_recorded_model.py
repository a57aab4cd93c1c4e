"""Model calls recorded and replayed: the same run without the model, no secret in the file, each difference named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import errors, types
from hypothesis import given
from tests.adapters.adk.driving import driven, host_tool
from tests.adapters.adk.genai_models import JSON

from agentsession.adapters.adk import (
    ModelExchange,
    Playback,
    Recording,
    RecordingDiffers,
    RecordingExhausted,
    RecordingLlm,
    ReplayLlm,
    ScriptedLlm,
    call,
    calls,
    fail,
    hold,
    load_recording,
    read_recording,
    request_json,
    say,
    stream,
    think,
    wire,
)
from agentsession.adapters.adk._exchanges import digest_of, redacted_request, redacted_response
from agentsession.adapters.adk._gemini_requests import wire_json
from agentsession.protocol import ConfigurationError, SchemaError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # ADK's own parallel agents
]

OK = {"candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}


def asking(*texts: str, **config: Any) -> LlmRequest:
    contents: list[types.Content] = [types.UserContent(text) for text in texts]
    return LlmRequest(contents=contents, config=types.GenerateContentConfig(**config))


async def heard(model: BaseLlm, request: LlmRequest, *, streaming: bool = True) -> list[Any]:
    return [wire_json(item) async for item in model.generate_content_async(request, stream=streaming)]


def recorded(*requests: dict[str, Any] | None) -> Recording:
    return Recording(tuple(ModelExchange((OK,), request, where=f"call {n}") for n, request in enumerate(requests, 1)))


# -- the same again ---------------------------------------------------------------------------------------------------

STEPS: dict[str, Any] = {
    "text": say("hi"),
    "deltas": stream("Hel", "lo").using(input=9, output=4),
    "thought": think("hm", "hm", signature=b"\xff\xfe") + "so",
    "calls": calls(call("look", {"a_b": None}), call("look", {"at": 1}, id="c1")),
    "cut off": say("half").finishing("MAX_TOKENS"),
    "nothing": LlmResponse(content=None, error_code="SAFETY", error_message="no"),
    "marked": LlmResponse(content=types.ModelContent("x"), custom_metadata={"a": 1}, turn_complete=True),
    "wire": wire({"candidates": [{"content": {"parts": [{"text": "a"}]}}]}, {"usageMetadata": {"promptTokenCount": 1}}),
}


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", list(STEPS))
async def test_a_replay_gives_every_response_as_it_was(name: str, streaming: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    recording = RecordingLlm(llm=ScriptedLlm(script=[STEPS[name]]), path=path)
    first = await heard(recording, asking("hi"), streaming=streaming)

    again = await heard(ReplayLlm.of(path), asking("hi"), streaming=streaming)

    assert again == first
    assert len(first) >= 1


async def test_an_error_of_the_provider_is_raised_again_after_what_was_said() -> None:
    error = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow down: /v1?key=s3cret"}}
    recording = RecordingLlm(llm=ScriptedLlm(script=[wire({"candidates": OK["candidates"]}, error)]))
    seen: list[Any] = []

    async def read(model: BaseLlm) -> None:
        async for response in model.generate_content_async(asking("hi"), stream=True):
            seen.append(response.partial)

    with pytest.raises(errors.ClientError) as first:
        await read(recording)
    with pytest.raises(errors.ClientError) as again:
        await read(ReplayLlm.of(recording.recording))
    assert (first.value.code, again.value.code) == (429, 429)
    assert seen == [True, True]
    assert "s3cret" not in recording.recording.to_text()


@pytest.mark.rule("SEC-01")
async def test_another_exception_is_recorded_by_its_type_alone() -> None:
    recording = RecordingLlm(llm=ScriptedLlm(script=[fail(RuntimeError("at https://a.example/?token=s3cret"))]))
    with pytest.raises(RuntimeError):
        await heard(recording, asking("hi"))

    assert "s3cret" not in recording.recording.to_text()
    with pytest.raises(errors.ServerError, match="RuntimeError"):
        await heard(ReplayLlm.of(recording.recording), asking("hi"))


async def test_a_call_that_is_cancelled_is_not_recorded(tmp_path: Path) -> None:
    started = anyio.Event()

    async def wait_for_ever() -> None:
        started.set()
        await anyio.sleep_forever()

    recording = RecordingLlm(llm=ScriptedLlm(script=[stream("a") + hold(wait_for_ever)]), path=tmp_path / "r.ndjson")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(heard, recording, asking("hi"))
            await started.wait()
            group.cancel_scope.cancel()

    assert len(recording.recording) == 0
    assert not (tmp_path / "r.ndjson").exists()


async def test_the_file_is_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    model = RecordingLlm(llm=ScriptedLlm(forever=say("größer")), path=path)
    for text in ("one", "two"):
        await heard(model, asking(text))

    loaded = load_recording(path)

    assert loaded.to_text() == model.recording.to_text() == path.read_text(encoding="utf-8")
    assert [exchange.stream for exchange in loaded] == [True, True]


def test_a_recording_model_is_named_and_able_like_the_one_it_asks() -> None:
    inner = ScriptedLlm(model="tiny")

    assert RecordingLlm(llm=inner).model == "tiny"
    assert RecordingLlm(llm=inner).capabilities == inner.capabilities


def test_two_runs_are_not_recorded_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    path.write_text("{}\n")

    with pytest.raises(ConfigurationError) as caught:
        RecordingLlm(llm=ScriptedLlm(), path=path)

    assert caught.value.id == "recording-exists"


def test_a_replay_of_nothing_says_so() -> None:
    with pytest.raises(ConfigurationError, match="nothing to replay"):
        ReplayLlm()


# -- which answer -----------------------------------------------------------------------------------------------------


def test_answers_are_taken_in_order_each_once() -> None:
    one, two = request_json(asking("one")), request_json(asking("two"))
    playback = Playback(recorded(one, two, one))

    taken = [playback.take(request).where for request in (one, two, one)]

    assert taken == ["call 1", "call 2", "call 3"]
    assert playback.left == ()


def test_another_model_and_other_labels_ask_the_same() -> None:
    request = request_json(asking("one"))
    playback = Playback(recorded({**request, "model": "gemini-x", "labels": {"team": "a"}}))

    assert playback.take({**request, "model": "host"}).where == "call 1"


def test_parallel_calls_may_come_in_another_order() -> None:
    one, two = request_json(asking("one")), request_json(asking("two"))
    playback = Playback(recorded(one, two))

    assert [playback.take(request).where for request in (two, one)] == ["call 2", "call 1"]


def test_a_call_too_many_is_an_error_that_says_what_was_asked() -> None:
    request = request_json(asking("and now?"))
    playback = Playback(recorded(request))
    playback.take(request)

    with pytest.raises(RecordingExhausted) as caught:
        playback.take(request)

    assert caught.value.what == "model call 2 is not in the recording"
    assert "and now?" in (caught.value.got or "")


@pytest.mark.parametrize(
    ("was", "now", "pointer", "expected", "got"),
    [
        (asking("a"), asking("b"), "/contents/0/parts/0/text", '"a"', '"b"'),
        (asking("a"), asking("a", "b"), "/contents/1", "nothing there", '{"parts":[{"text":"b"}],"role":"user"}'),
        (asking("a", "b"), asking("a"), "/contents/1", '{"parts":[{"text":"b"}],"role":"user"}', "nothing there"),
        (asking("a", top_k=1), asking("a", top_k=2), "/generationConfig/topK", "1.0", "2.0"),
        (asking("a"), asking("a", temperature=0.5), "/generationConfig", "nothing there", '{"temperature":0.5}'),
    ],
)
def test_a_request_that_differs_is_an_error_that_says_where(
    was: LlmRequest, now: LlmRequest, pointer: str, expected: str, got: str
) -> None:
    with pytest.raises(RecordingDiffers) as caught:
        Playback(recorded(request_json(was))).take(request_json(now))

    assert caught.value.pointer == pointer
    assert (caught.value.expected, caught.value.got) == (expected, got)
    assert caught.value.where == f"call 1 at {pointer}"


def test_a_difference_is_told_against_the_call_of_the_same_agent() -> None:
    def by(agent: str, text: str) -> dict[str, Any]:
        return request_json(asking(text, labels={"adk_agent_name": agent}))

    with pytest.raises(RecordingDiffers) as caught:
        Playback(recorded(by("left", "one"), by("right", "two"))).take(by("right", "three"))

    assert (caught.value.where or "").startswith("call 2 at ")


def test_true_is_not_one() -> None:
    def with_args(value: Any) -> dict[str, Any]:
        part = types.Part(function_call=types.FunctionCall(name="f", args={"x": value}))
        return request_json(LlmRequest(contents=[types.Content(parts=[part])]))

    with pytest.raises(RecordingDiffers) as caught:
        Playback(recorded(with_args(1))).take(with_args(True))

    assert caught.value.pointer == "/contents/0/parts/0/functionCall/args/x"


def test_unchecked_answers_are_given_in_order_whatever_is_asked() -> None:
    playback = Playback(recorded(request_json(asking("one")), None), checks_requests=False)

    assert [playback.take(request_json(asking("x"))).where for _ in range(2)] == ["call 1", "call 2"]


@given(JSON, JSON)
def test_two_requests_differ_exactly_where_their_digests_do(one: Any, other: Any) -> None:
    was, now = {"contents": [], "cachedContent": one}, {"contents": [], "cachedContent": other}
    if digest_of(was) == digest_of(now):
        assert Playback(recorded(was)).take(now).where == "call 1"
    else:
        with pytest.raises(RecordingDiffers) as caught:
            Playback(recorded(was)).take(now)
        assert caught.value.pointer.startswith("/cachedContent")


# -- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-01")
def test_what_is_secret_by_name_or_in_a_url_is_left_out() -> None:
    request = redacted_request(
        {
            "contents": [
                {"parts": [{"functionResponse": {"name": "login", "response": {"password": "s3cret-1", "ok": 1}}}]}
            ],
            "systemInstruction": {"parts": [{"text": "ask https://a.example/?api_key=s3cret-2&q=1"}]},
            "tools": [
                {"googleMaps": {"authConfig": {"apiKeyConfig": {"apiKeyString": "s3cret-3"}}}},
                {
                    "mcpServers": [
                        {"streamableHttpTransport": {"headers": {"X-Key": "s3cret-4"}, "url": "https://b.example"}}
                    ]
                },
                {"exaAiSearch": {"apiKey": "s3cret-5"}},
            ],
            "generationConfig": {"temperature": 1},
        }
    )

    assert "s3cret" not in json.dumps(request)
    assert request["contents"][0]["parts"][0]["functionResponse"]["response"]["ok"] == 1
    assert request["tools"][1]["mcpServers"][0]["streamableHttpTransport"]["url"] == "https://b.example"


@pytest.mark.parametrize("field", ["parameters", "parametersJsonSchema", "responseJsonSchema"])
def test_a_schema_keeps_its_names_and_loses_values_of_secrets(field: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "password": {"type": "string", "default": "s3cret-1", "description": "The password."},
            "pin": {"type": "string", "writeOnly": True, "examples": ["s3cret-2"]},
            "city": {"type": "string", "default": "Rome"},
            "token": {"type": "object", "properties": {"value": {"const": "s3cret-3"}}},
        },
        "required": ["password"],
    }

    shown = redacted_request({"tools": [{"functionDeclarations": [{"name": "login", field: schema}]}]})
    kept = shown["tools"][0]["functionDeclarations"][0][field]

    assert "s3cret" not in json.dumps(shown)
    assert kept["required"] == ["password"]
    assert kept["properties"]["password"] == {"type": "string", "default": "[redacted]", "description": "The password."}
    assert kept["properties"]["city"] == schema["properties"]["city"]  # type: ignore[index]  # as written above


def test_the_tokens_of_log_probabilities_are_no_secrets() -> None:
    response = {"candidates": [{"logprobsResult": {"chosenCandidates": [{"token": "a", "logProbability": -1.0}]}}]}

    assert redacted_response(response) == response


@pytest.mark.rule("SEC-01")
async def test_a_recorded_call_holds_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    model = RecordingLlm(llm=ScriptedLlm(script=[call("login", {"password": "s3cret-1", "user": "ann"})]), path=path)
    http = types.HttpOptions(headers={"Authorization": "Bearer s3cret-2"})
    await heard(model, asking("hi", http_options=http))

    text = path.read_text(encoding="utf-8")
    assert "s3cret" not in text
    assert "ann" in text


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "not-a-recording"),
        ("nonsense", "bad-json"),
        ('{"a": 1}', "not-a-recording"),
        ("[]", "not-a-recording"),
        ("5", "not-a-recording"),
        ('{"format": "agentsession.model-exchange/9", "responses": []}', "not-a-recording"),
        ('{"format": "agentsession.model-exchange/1", "responses": {}}', "schema"),
        ('{"format": "agentsession.model-exchange/1", "request": [], "responses": []}', "schema"),
        ('{"format": "agentsession.model-exchange/1", "responses": [{"candidates": 5}]}', "schema"),
        ('{"format": "agentsession.model-exchange/1", "request": {}, "digest": "x", "responses": []}', "schema"),
    ],
)
def test_what_is_no_recording_is_one_error_with_its_name(text: str, kind: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read_recording(text, name="a.ndjson")

    assert caught.value.id == kind
    assert "a.ndjson" in (caught.value.where or "")


def test_a_broken_line_is_named_by_its_number() -> None:
    good = ModelExchange((OK,), request_json(asking("a"))).to_line()

    with pytest.raises(SchemaError) as caught:
        read_recording(f"{good}\n\n{good[:-5]}\n", name="a.ndjson")

    assert "a.ndjson line 3" in (caught.value.where or "")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_recording(tmp_path / "none.ndjson")

    assert caught.value.id == "no-file"


# -- whole agents -----------------------------------------------------------------------------------------------------


async def test_parallel_agents_replay_from_one_recording() -> None:
    def tree(model: BaseLlm) -> ParallelAgent:
        names = ("left", "right", "middle")
        agents = [LlmAgent(name=name, model=model, instruction=f"You are {name}.") for name in names]
        return ParallelAgent(name="root", sub_agents=list(agents))

    def by_instruction(request: LlmRequest) -> str:
        return f"from {str(request.config.system_instruction).split()[2]}"

    recording = RecordingLlm(llm=ScriptedLlm(forever=by_instruction))
    async with driven(tree(recording)) as desk:
        first = await desk.turn("go")
    replay = ReplayLlm.of(Recording(tuple(reversed(recording.recording.exchanges))))
    async with driven(tree(replay)) as desk:
        second = await desk.turn("go")

    assert sorted(second.texts) == sorted(first.texts) == ["from left.", "from middle.", "from right."]
    assert replay.calls_left == 0


async def test_a_replay_that_differs_ends_the_turn_with_an_error_that_names_it() -> None:
    recording = RecordingLlm(llm=ScriptedLlm(script=[call("look", id="c1"), say("seen")]))
    async with driven(LlmAgent(name="root", model=recording), tools=[host_tool("look")]) as desk:
        await desk.turn("go", {"look": 1})
    async with driven(
        LlmAgent(name="root", model=ReplayLlm.of(recording.recording)), tools=[host_tool("look")]
    ) as desk:
        turn = await desk.turn("go", {"look": 2})

    assert turn.reason == "failed"
    (error,) = turn.of("error")
    assert error.code == "recording-differs"
    assert "call 2" in error.message
    assert "first at /contents/2/parts/0/functionResponse/response" in error.message
