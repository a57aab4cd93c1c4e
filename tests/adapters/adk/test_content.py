"""Content parts from genai parts and back: nothing is lost, nothing is invented."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from tests.adapters.adk.strategies import json_objects, parts

from agentsession.adapters.adk import content_to_part, part_to_content
from agentsession.adapters.adk._values import is_list, is_object
from agentsession.protocol import (
    Code,
    CodeResult,
    ContentPart,
    Diff,
    FunctionCall,
    FunctionResponse,
    JsonError,
    Media,
    Reference,
    Refusal,
    Terminal,
    Text,
    Thought,
    UnknownPart,
    repair_text,
)


def repaired(value: Any) -> Any:
    """A part's JSON with the text rule of the contract applied: what "nothing lost" can mean for broken text."""
    if is_object(value):
        return {repair_text(key): repaired(item) for key, item in value.items()}
    if is_list(value):
        return [repaired(item) for item in value]
    return repair_text(value) if isinstance(value, str) else value


def fields(part: types.Part) -> Any:
    return repaired(part.model_dump(exclude_none=True))


@given(parts(json_objects))
def test_a_part_comes_back_as_it_was(part: types.Part) -> None:
    assert fields(content_to_part(part_to_content(part))) == fields(part)


@given(parts(json_objects))
def test_a_part_is_valid_json_on_the_wire(part: types.Part) -> None:
    part_to_content(part).to_wire_json().encode("utf-8")


def test_a_thought_keeps_its_signature_as_base64() -> None:
    content = part_to_content(types.Part(text="hm", thought=True, thought_signature=b"\xfb\xff"))

    assert content == Thought(text="hm", signature="+/8=")


def test_text_may_carry_a_signature() -> None:
    content = part_to_content(types.Part(text="", thought_signature=b"s"))

    assert content == Text(text="", signature=base64.b64encode(b"s").decode())


def test_inline_bytes_become_media() -> None:
    blob = types.Blob(data=b"\x00\x01", mime_type="image/png", display_name="dot.png")

    assert part_to_content(types.Part(inline_data=blob)) == Media(mime_type="image/png", data="AAE=", name="dot.png")


def test_a_file_becomes_a_reference() -> None:
    file = types.FileData(file_uri="gs://b/x.pdf", mime_type="application/pdf", display_name="x")

    content = part_to_content(types.Part(file_data=file))

    assert content == Reference(uri="gs://b/x.pdf", mime_type="application/pdf", title="x")


def test_code_and_its_result_keep_language_and_outcome() -> None:
    code = types.ExecutableCode(code="1+1", language=types.Language.PYTHON)
    result = types.CodeExecutionResult(output="2", outcome=types.Outcome.OUTCOME_OK)

    assert part_to_content(types.Part(executable_code=code)) == Code(code="1+1", language="python")
    assert part_to_content(types.Part(code_execution_result=result)) == CodeResult(output="2", outcome="ok")


def test_arguments_keep_their_nulls() -> None:
    call = types.FunctionCall(id="c", name="f", args={"a": None})

    assert part_to_content(types.Part(function_call=call)) == FunctionCall(id="c", name="f", args={"a": None})


def test_a_response_without_a_value_differs_from_an_empty_one() -> None:
    absent = part_to_content(types.Part(function_response=types.FunctionResponse(name="f")))
    empty = part_to_content(types.Part(function_response=types.FunctionResponse(name="f", response={})))

    assert "response" not in absent.to_wire()
    assert empty == FunctionResponse(name="f", response={})


def test_what_the_contract_has_no_field_for_stays_beside_the_text() -> None:
    part = types.Part(text="t", video_metadata=types.VideoMetadata(fps=2.0))

    content = part_to_content(part)

    assert content.to_wire() == {"type": "text", "text": "t", "adk": {"videoMetadata": {"fps": 2.0}}}


def test_inline_data_is_not_kept_twice() -> None:
    part = types.Part(inline_data=types.Blob(data=b"x" * 300, mime_type=None))

    wire = part_to_content(part).to_wire_json()

    assert wire.count(base64.b64encode(b"x" * 300).decode()) == 1
    assert len(wire) < 600


def test_a_kind_of_part_that_the_contract_does_not_know_is_kept_whole() -> None:
    part = types.Part(tool_call=types.ToolCall(id="t1"))

    content = part_to_content(part)

    assert isinstance(content, UnknownPart)
    assert content_to_part(content) == part


def test_bytes_in_arguments_are_marked() -> None:
    call = types.FunctionCall(name="f", args={"raw": b"\x00"})

    content = part_to_content(types.Part(function_call=call))

    assert isinstance(content, FunctionCall)
    assert content.args == {"raw": {"$bytes": "AA=="}}


def test_arguments_that_json_cannot_say_are_refused_with_their_path() -> None:
    call = types.FunctionCall(name="f", args={"deep": [object()]})

    with pytest.raises(JsonError) as caught:
        part_to_content(types.Part(function_call=call))

    assert caught.value.path == "/functionCall/args/deep/0"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (Refusal(text="I will not"), "I will not"),
        (Diff(path="a.py", patch="@@ -1 +1 @@"), "a.py\n@@ -1 +1 @@"),
        (Terminal(command="ls", output="a b"), "$ ls\na b"),
    ],
)
def test_parts_that_genai_has_no_word_for_become_text(content: ContentPart, text: str) -> None:
    assert content_to_part(content) == types.Part(text=text)


def test_media_by_uri_becomes_a_file() -> None:
    part = content_to_part(Media(mime_type="image/png", uri="https://example.test/x.png"))

    assert part.file_data == types.FileData(file_uri="https://example.test/x.png", mime_type="image/png")
