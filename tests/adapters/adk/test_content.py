"""Content parts from genai parts and back: nothing is lost, nothing is invented."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.adapters.adk.strategies import json_objects, of_type, parts

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


def _each_field(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """The path of every field of a model, those of the models inside it included."""
    for name, field in model.model_fields.items():
        inner = _model_in(field.annotation)
        yield from ((name, *path) for path in _each_field(inner)) if inner is not None else [(name,)]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((found for inner in get_args(annotation) if (found := _model_in(inner)) is not None), None)


def _only(model: type[BaseModel], path: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """A model in which the field at ``path`` is set and nothing else."""
    name, *below = path
    annotation: Any = model.model_fields[name].annotation
    inner = _model_in(annotation)
    if inner is None or not below:
        value = of_type(annotation).filter(lambda made: made is not None)
    else:
        value = _only(inner, tuple(below))
        if "list[" in str(annotation).lower():
            value = st.lists(value, min_size=1, max_size=2)
    return value.map(lambda made: model(**{name: made}))


_FIELDS = list(_each_field(types.Part))


def test_all_fields_of_a_part_are_found() -> None:
    """The enumeration below sees what genai has, at every depth."""
    assert {path[0] for path in _FIELDS} == set(types.Part.model_fields)
    assert ("function_response", "parts", "inline_data", "data") in _FIELDS
    assert len(_FIELDS) > 50


@pytest.mark.parametrize("path", _FIELDS, ids=".".join)
def test_every_field_that_genai_has_comes_back(path: tuple[str, ...]) -> None:
    """Read from the installed genai: a field that it adds is a case here without anybody listing it."""

    @settings(max_examples=8, database=None)
    @given(_only(types.Part, path))
    def comes_back(part: types.Part) -> None:
        assert fields(part)[path[0]] is not None
        assert fields(content_to_part(part_to_content(part))) == fields(part)

    comes_back()


_maybe_text = st.none() | st.text(max_size=8)
_base64 = st.binary(max_size=8).map(lambda raw: base64.b64encode(raw).decode())


def _made(kind: type[ContentPart], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[ContentPart]:
    return st.fixed_dictionaries(fields).map(lambda given: kind(**given))


_said_by_genai: st.SearchStrategy[ContentPart] = st.one_of(
    _made(Text, text=st.text(min_size=1), signature=st.none() | _base64),
    _made(Thought, text=st.text(min_size=1), signature=st.none() | _base64),
    _made(Media, mime_type=st.text(), data=_base64, name=_maybe_text),
    _made(Reference, uri=st.text(), mime_type=_maybe_text, title=_maybe_text),
    _made(Code, code=st.text(), language=st.sampled_from([None, "python"])),
    _made(CodeResult, output=st.text(), outcome=st.sampled_from([None, "ok", "failed", "deadline_exceeded"])),
    _made(FunctionCall, id=_maybe_text, name=st.text(), args=st.none() | json_objects),
    _made(FunctionResponse, id=_maybe_text, name=st.text(), response=json_objects),
)


@given(_said_by_genai)
def test_a_content_part_that_genai_has_words_for_comes_back_as_it_was(part: ContentPart) -> None:
    back = part_to_content(content_to_part(part))

    # Absent and null are one where genai knows no difference.
    assert {key: value for key, value in back.to_wire().items() if value is not None} == {
        key: value for key, value in part.to_wire().items() if value is not None
    }


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
