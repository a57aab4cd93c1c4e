"""Model requests as Gemini's JSON, against what google-genai's own client sends over HTTP for the same request."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.genai import Client, types
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.adapters.adk.genai_models import JSON, config_field, model

from agentsession.adapters.adk._gemini_loopback import GeminiLoopback, HttpReply, HttpRequest
from agentsession.adapters.adk._gemini_requests import _OF_THE_CLIENT, read_request, request_json
from agentsession.protocol import InvalidInput, SchemaError

SENT = sorted(set(types.GenerateContentConfig.model_fields) - _OF_THE_CLIENT)


def ok(request: HttpRequest) -> HttpReply:
    del request
    return HttpReply.of({"candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}}]})


class Wire:
    """The real client, of both APIs, and what it put on the wire."""

    def __init__(self, server: GeminiLoopback) -> None:
        self.server = server
        options = types.HttpOptions(base_url=server.url)
        self.clients = [Client(api_key="k", vertexai=vertex, http_options=options) for vertex in (False, True)]

    def sent(self, request: LlmRequest) -> dict[str, Any] | None:
        """The body for ``request``; ``None`` when neither API of the client takes it."""
        for client in self.clients:
            self.server.requests.clear()
            copy = request.model_copy(deep=True)
            with contextlib.suppress(ValueError):  # what only the other API takes
                client.models.generate_content(
                    model="gemini-2.5-flash",
                    contents=list(copy.contents),
                    config=copy.config,
                )
            if self.server.requests:
                body = self.server.requests[0].body
                assert isinstance(body, dict)
                return body
        return None


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with GeminiLoopback(ok) as server:
        found = Wire(server)
        yield found
        for client in found.clients:
            client.close()


def in_camel(value: Any) -> Any:
    """The client spells names inside some objects in snake_case, which the API takes for the same."""
    if isinstance(value, dict):
        return {
            re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), key): in_camel(item) for key, item in value.items()
        }
    return [in_camel(item) for item in value] if isinstance(value, list) else value


def body_of(request: LlmRequest) -> dict[str, Any]:
    made = request_json(request)
    assert made.pop("model", None) == request.model
    return made


CONTENTS = st.lists(model(types.Content), min_size=1, max_size=2)
SLOW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@SLOW
@given(contents=CONTENTS)
def test_contents_are_what_the_client_sends(wire: Wire, contents: list[types.Content]) -> None:
    request = LlmRequest(model="gemini-2.5-flash", contents=contents)
    sent = wire.sent(request)
    assume(sent is not None)
    assert sent is not None
    sent.pop("generationConfig", None)

    assert body_of(request) == in_camel(sent)


@pytest.mark.parametrize("field", SENT)
@settings(SLOW, max_examples=10)
@given(data=st.data())
def test_each_field_of_the_configuration_is_what_the_client_sends(wire: Wire, field: str, data: st.DataObject) -> None:
    value = data.draw(config_field(field))
    contents: list[types.Content] = [types.UserContent("hi")]
    request = LlmRequest(model="m", contents=contents, config=types.GenerateContentConfig(**{field: value}))
    sent = wire.sent(request)
    assume(sent is not None)
    assert sent is not None
    if not sent.get("generationConfig"):
        sent.pop("generationConfig", None)

    assert body_of(request) == in_camel(sent)


@pytest.mark.rule("WIRE-01")
@settings(SLOW, max_examples=60)
@given(contents=CONTENTS, data=st.data())
def test_a_request_read_back_is_the_same_request(contents: list[types.Content], data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.sampled_from(SENT), max_size=4, unique=True))
    config = types.GenerateContentConfig(**{field: data.draw(config_field(field)) for field in fields})
    try:
        made = request_json(LlmRequest(model="m", contents=contents, config=config))
    except InvalidInput:
        assume(False)  # such as a schema without a type, which google-genai does not send either
        raise

    read = read_request(made)

    assert request_json(read.value) == made
    assert read.unread == {}


class Answer(BaseModel):
    sky: str
    clouds: list[str] | None = None


def test_a_schema_given_as_a_class_is_sent_as_a_schema(wire: Wire) -> None:
    request = LlmRequest(model="m", contents=[types.UserContent("hi")])
    request.set_output_schema(Answer)

    sent = wire.sent(request)

    assert sent is not None
    assert body_of(request) == in_camel(sent)
    assert request_json(request)["generationConfig"]["responseSchema"]["required"] == ["sky"]


def test_names_with_underscores_in_arguments_and_schemas_stay_as_they_are() -> None:
    schema = {"type": "object", "properties": {"file_name": {"type": "string"}}}
    declaration = types.FunctionDeclaration(name="write_file", parameters_json_schema=schema)
    part = types.Part(function_call=types.FunctionCall(name="write_file", args={"file_name": None, "b_c": [1]}))
    request = LlmRequest(contents=[types.Content(role="model", parts=[part])])
    request.config.tools = [types.Tool(function_declarations=[declaration])]

    made = request_json(request)

    assert made["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == schema
    assert made["contents"][0]["parts"][0]["functionCall"]["args"] == {"file_name": None, "b_c": [1]}


@pytest.mark.rule("SEC-01")
def test_what_is_about_the_connection_is_never_said() -> None:
    request = LlmRequest(contents=[types.UserContent("hi")])
    request.config.http_options = types.HttpOptions(headers={"Authorization": "Bearer s3cret"})

    assert request_json(request) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


@pytest.mark.rule("WIRE-01")
def test_unknown_fields_are_reported_with_their_place_and_the_rest_is_read() -> None:
    made = {
        "contents": [{"role": "user", "parts": [{"text": "hi", "mood": "glad"}]}],
        "tools": [{"functionDeclarations": [{"name": "look", "shade": 1}]}, {"quantumSearch": {}}],
        "generationConfig": {"temperature": 0.5, "thinkingConfig": {"thinkingBudget": 3, "hurry": True}, "chill": 2},
        "quota": {"a": 1},
        "httpOptions": {"headers": {"X-Key": "k"}},
    }

    read = read_request(made)

    assert read.unread == {
        "/contents/0/parts/0/mood": "glad",
        "/tools/0/functionDeclarations/0/shade": 1,
        "/tools/1/quantumSearch": {},
        "/generationConfig/thinkingConfig/hurry": True,
        "/generationConfig/chill": 2,
        "/quota": {"a": 1},
        "/httpOptions": {"headers": {"X-Key": "k"}},
    }
    assert read.value.contents == [types.Content(role="user", parts=[types.Part(text="hi")])]
    assert read.value.config.temperature == 0.5
    assert read.value.config.http_options is None


@pytest.mark.rule("WIRE-02")
@pytest.mark.parametrize(
    ("made", "place"),
    [
        ([], "/"),
        ({"contents": {}}, "/contents"),
        ({"contents": [{"parts": [{"text": 1}]}]}, "/contents/0/parts/0/text"),
        ({"contents": [{"parts": [{"inlineData": {"data": "??"}}]}]}, "/contents/0/parts/0/inlineData/data"),
        ({"contents": ["hi"]}, "/contents/0"),
        ({"model": 1}, "/model"),
        ({"generationConfig": []}, "/generationConfig"),
        ({"generationConfig": {"topP": "much"}}, "/generationConfig/topP"),
        (
            {"generationConfig": {"thinking_config": {"thinkingBudget": []}}},
            "/generationConfig/thinking_config/thinkingBudget",
        ),
        ({"generationConfig": {"responseSchema": {"type": []}}}, "/generationConfig/responseSchema/type"),
        ({"systemInstruction": "be brief"}, "/systemInstruction"),
        ({"tools": {}}, "/tools"),
        ({"tools": [{"functionDeclarations": 5}]}, "/tools/0/functionDeclarations"),
        ({"safetySettings": [{"category": 4}]}, "/safetySettings/0/category"),
    ],
)
def test_a_request_that_is_none_is_one_error_with_its_place(made: Any, place: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read_request(made)

    assert caught.value.pointer == place
    assert caught.value.where == f"request at {place}"
    assert caught.value.got


@given(JSON)
def test_any_json_is_read_or_refused_by_name(made: Any) -> None:
    with contextlib.suppress(SchemaError):
        read_request({"contents": made, "generationConfig": made, "tools": made})


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"response_schema": types.Schema()}, "/generationConfig/responseSchema"),
    ],
)
def test_what_cannot_be_sent_is_an_error_with_its_place(config: dict[str, Any], place: str) -> None:
    request = LlmRequest(config=types.GenerateContentConfig(**config))

    with pytest.raises(InvalidInput) as caught:
        request_json(request)

    assert caught.value.where == f"request at {place}"


def test_a_result_that_is_no_json_is_an_error_with_its_place() -> None:
    part = types.Part(function_response=types.FunctionResponse(name="f", response={"a": [object()]}))

    with pytest.raises(InvalidInput) as caught:
        request_json(LlmRequest(contents=[types.Content(parts=[part])]))

    assert caught.value.where == "request at /contents/0/functionResponse/response/a/0".replace("/0/f", "/0/parts/0/f")
