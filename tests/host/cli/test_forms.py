"""A question of the agent as a form: each field checked at once, sent only after a last yes, secrets unseen."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession.host import Position
from agentsession.host.cli._forms import FormQuestion
from agentsession.host.cli._lines import ASCII, View
from agentsession.host.cli._questions import READ_TIME_S, Answered, Say, Steer, Step, joined
from agentsession.protocol import ElicitationAnswer, ElicitationRequest

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"enum": ["eu-west", "us-east"]},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "dry": {"type": "boolean"},
        "token": {"type": "string", "format": "password"},
    },
    "required": ["region", "token"],
}


def form(schema: dict[str, Any] | None = None, **fields: Any) -> FormQuestion:
    request = ElicitationRequest(
        request_id="q1", kind="clarification", message="Where to?", requested_schema=schema, **fields
    )
    return FormQuestion(request, Position(), view=View(width=80, glyphs=ASCII))


def take(asked: FormQuestion, *lines: str) -> Step:
    step: Step | None = None
    for text in lines:
        step = asked.take(text, begun=READ_TIME_S, drawn=0.0)
    assert step is not None
    return step


def answer(step: Step) -> ElicitationAnswer:
    assert isinstance(step, Answered)
    assert isinstance(step.value, ElicitationAnswer)
    return step.value


def said(step: Step) -> str:
    assert isinstance(step, Say)
    return joined(step.lines)


def test_a_form_is_filled_in_line_by_line_and_sent_after_a_last_yes() -> None:
    asked = form(SCHEMA)
    assert asked.prompt == "region*> "
    summary = said(take(asked, "1", "", "n", "hunter2"))
    assert summary == '  send region="eu-west" replicas=2 dry=false token=***?  y / b back'
    sent = answer(take(asked, "y"))
    assert (sent.action, sent.content) == (
        "accept",
        {"region": "eu-west", "replicas": 2, "dry": False, "token": "hunter2"},
    )
    assert sent.decision is not None
    assert sent.decision.by == "user"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["3"], "choose 1 to 2"),
        (["9" * 5_000], "choose 1 to 2"),
        (["1", "12"], "12 is more than 9"),
        (["1", "0"], "0 is less than 1"),
        (["1", "two"], "two is not a whole number"),
        (["1", "2", "maybe"], "answer y or n"),
        ([""], "region is required"),
    ],
)
def test_a_wrong_value_is_told_at_once_and_asked_for_again(lines: list[str], problem: str) -> None:
    asked = form(SCHEMA)
    *before, wrong = lines
    for text in before:
        take(asked, text)
    prompt = asked.prompt
    assert problem in said(take(asked, wrong))
    assert asked.prompt == prompt


@pytest.mark.parametrize(
    ("field", "asks", "typed", "value"),
    [
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, "some of 1 a   2 b   3 c", "1, c", ["a", "c"]),
        ({"type": "array", "items": {"$ref": "#/$defs/Size"}}, "some of 1 s   2 l", '["l"]', ["l"]),
        (
            {"oneOf": [{"const": "once", "title": "for this call"}, {"const": "stop", "title": "stop"}]},
            "1 once (for this call)   2 stop",
            "1",
            "once",
        ),
        ({"type": "array", "items": {"type": "string"}}, "texts with commas between", "a b, c", ["a b", "c"]),
        ({"type": "array", "items": {"type": "integer"}}, "whole numbers with commas", "1,2", [1, 2]),
        ({"type": "array", "items": {"type": "array", "enum": [["a"]]}}, "JSON list", '[["a"]]', [["a"]]),
        (
            {"type": "object", "properties": {"zip": {}}, "required": ["zip"]},
            "JSON object with zip*",
            '{"zip": 1}',
            {"zip": 1},
        ),
        ({"type": "string", "format": "date"}, "date, such as 2026-01-31", "2026-02-01", "2026-02-01"),
        ({"type": "string", "minLength": 2}, "text, at least 2 characters", "ab", "ab"),
        (
            {"type": "string", "format": "password", "minLength": 4, "maxLength": 8},
            "never recorded, 4 to 8",
            "abcd",
            "abcd",
        ),
    ],
)
def test_a_field_says_what_it_takes_and_takes_that(field: dict[str, Any], asks: str, typed: str, value: object) -> None:
    asked = form({"type": "object", "properties": {"field": field}, "$defs": {"Size": {"enum": ["s", "l"]}}})
    assert asks in joined(asked.block)
    take(asked, typed)
    assert answer(take(asked, "y")).content == {"field": value}


def test_lists_within_lists_without_end_are_typed_as_json() -> None:
    nested = {"type": "array", "items": {"$ref": "#/$defs/Nested"}, "enum": [[]]}
    asked = form(
        {"type": "object", "properties": {"field": {"$ref": "#/$defs/Nested"}}, "$defs": {"Nested": nested}},
    )
    assert "choose 1 to 1" in said(take(asked, "a, b"))


def test_one_of_several_that_is_none_is_named() -> None:
    asked = form({"type": "object", "properties": {"tags": {"type": "array", "items": {"enum": ["a", "b"]}}}})
    assert "d: choose 1 to 2, or write one of them out" in said(take(asked, "a, d"))


def test_what_was_typed_is_kept_by_an_empty_line_when_one_goes_back() -> None:
    asked = form(SCHEMA)
    take(asked, "2", "3", "y", "hunter2")
    assert "Enter keeps ***" in said(take(asked, "b"))
    assert "hunter2" not in said(take(asked, "b"))
    assert said(take(asked, "", "")) == '  send region="us-east" replicas=3 dry=true token=***?  y / b back'
    assert answer(take(asked, "y")).content == {"region": "us-east", "replicas": 3, "dry": True, "token": "hunter2"}


@pytest.mark.parametrize(
    ("field", "row"),
    [
        ({"title": "Start Day", "description": "which day", "type": "string"}, "start_day (which day)  text"),
        ({"title": "First day", "description": "which day", "type": "string"}, "start_day (First day)  text"),
        ({"title": "Start Day", "type": "string"}, "start_day  text"),
    ],
)
def test_a_field_is_explained_by_what_its_name_does_not_say(field: dict[str, Any], row: str) -> None:
    assert row in joined(form({"type": "object", "properties": {"start_day": field}}).block)


def test_the_title_of_a_tools_question_is_shown() -> None:
    request = ElicitationRequest(request_id="q1", kind="clarification", message="Who?", title="Identify")
    asked = FormQuestion(request, Position(), view=View(width=80, glyphs=ASCII), about="[1] who")
    assert "QUESTION  [1] who: Identify" in joined(asked.block)


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize(
    ("schema", "typed"),
    [
        ({"type": "integer"}, "hunter2"),
        ({"type": "string", "minLength": 20}, "hunter2"),
        ({"type": "string", "pattern": "^[0-9]+$"}, "hunter2"),
        ({"type": "number", "maximum": 9}, "271828"),
        ({"type": "number"}, "hunter2"),
        ({"type": "object"}, "hunter2"),
        ({"enum": ["a", "b"]}, "hunter2"),
    ],
)
@pytest.mark.parametrize("mark", [{"format": "password"}, {"writeOnly": True}])
def test_what_is_wrong_with_a_secret_is_told_without_the_secret(
    schema: dict[str, Any], typed: str, mark: dict[str, Any]
) -> None:
    asked = form({"type": "object", "properties": {"token": {**schema, **mark}}})
    assert typed not in said(take(asked, typed))
    assert asked.secret


def test_what_would_do_is_told_of_a_secret() -> None:
    asked = form({"type": "object", "properties": {"pin": {"type": "string", "format": "password", "minLength": 4}}})
    assert "expected at least 4 characters" in said(take(asked, "abc"))


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize(
    "field",
    [
        {"anyOf": [{"type": "string", "format": "password"}, {"type": "null"}]},
        {"$ref": "#/$defs/Secret"},
        {"allOf": [{"$ref": "#/$defs/Secret"}], "title": "Token"},
        {"type": "object", "properties": {"inner": {"type": "string", "writeOnly": True}}},
        {"$ref": "https://example.invalid/secret.json"},
    ],
)
def test_a_secret_is_typed_unseen_however_its_schema_is_written(field: dict[str, Any]) -> None:
    asked = form(
        {
            "type": "object",
            "properties": {"token": field},
            "$defs": {"Secret": {"type": "string", "format": "password"}},
        }
    )
    assert asked.secret
    assert "secret, never recorded" in joined(asked.block)


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, "3", 3),
        ({"type": ["null", "boolean"]}, "y", True),
        ({"$ref": "#/$defs/Region"}, "2", "us-east"),
        ({"allOf": [{"$ref": "#/$defs/Region"}], "default": "us-east"}, "1", "eu-west"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "3", "3"),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "3", 3),
    ],
)
def test_a_field_is_read_by_its_type_however_its_schema_is_written(
    field: dict[str, Any], typed: str, value: object
) -> None:
    region = {"enum": ["eu-west", "us-east"], "type": "string"}
    asked = form({"type": "object", "properties": {"field": field}, "$defs": {"Region": region}})
    take(asked, typed)
    assert answer(take(asked, "y")).content == {"field": value}


@pytest.mark.parametrize("typed", ["NaN", "-Infinity", "1e999", "9" * 5000])
@pytest.mark.parametrize("kind", ["number", "object", "integer"])
def test_a_number_that_json_cannot_say_is_told_at_once(typed: str, kind: str) -> None:
    asked = form({"type": "object", "properties": {"amount": {"type": kind}}})
    assert len(said(take(asked, typed))) < 200
    assert asked.prompt == "amount> "


def test_an_optional_field_may_be_left_out() -> None:
    asked = form({"type": "object", "properties": {"note": {"type": "string"}}})
    take(asked, "")
    assert answer(take(asked, "y")).content == {}


def test_b_goes_back() -> None:
    asked = form(SCHEMA)
    take(asked, "1", "b")
    assert asked.prompt == "region*> "


@pytest.mark.parametrize(("word", "action"), [("/decline", "decline"), ("/cancel", "cancel")])
def test_it_can_be_left_at_any_field_and_then_carries_no_content(word: str, action: str) -> None:
    asked = form(SCHEMA)
    left = answer(take(asked, "1", word))
    assert (left.action, left.content) == (action, None)


def test_a_secret_is_typed_unseen_and_kept_as_it_was_typed() -> None:
    asked = form({"type": "object", "properties": {"token": {"type": "string", "format": "password"}}})
    hidden = [asked.secret]
    assert "***" in said(take(asked, " spaces "))
    hidden.append(asked.secret)
    assert hidden == [True, False]
    assert answer(take(asked, "y")).content == {"token": " spaces "}


@pytest.mark.parametrize("text", ["yes", "Y", "x", ""])
def test_a_question_without_fields_needs_a_whole_y(text: str) -> None:
    assert isinstance(take(form(), text), Say)


def test_a_question_without_fields_is_accepted_declined_or_steered_past() -> None:
    assert answer(take(form(), "y")).action == "accept"
    assert answer(take(form(), "n")).action == "decline"
    assert take(form(), "yes you may not") == Steer("yes you may not")


@pytest.mark.rule("SEC-01")
@pytest.mark.parametrize(
    ("fields", "lines", "content"),
    [
        (
            {"url": "https://login.example/auth", "context": {"authScheme": {"type": "oauth2"}}},
            ["https://host.example/back?code=1"],
            {"auth_response_uri": "https://host.example/back?code=1"},
        ),
        (
            {"context": {"rawAuthCredential": {"authType": "apiKey"}}},
            ["", "sk-planted"],
            {"credential": {"type": "api_key", "value": "sk-planted"}},
        ),
        (
            {"context": {"authScheme": {"type": "http", "scheme": "bearer"}}},
            ["", "sk-planted"],
            {"credential": {"type": "bearer", "value": "sk-planted"}},
        ),
        ({}, ["bearer", "sk-planted"], {"credential": {"type": "bearer", "value": "sk-planted"}}),
        (
            {"context": {"authScheme": {"type": "http", "scheme": "basic"}}},
            ["ann", "hunter2"],
            {"credential": {"type": "basic", "username": "ann", "password": "hunter2"}},
        ),
    ],
)
def test_a_credential_can_be_given_unseen(fields: dict[str, Any], lines: list[str], content: dict[str, Any]) -> None:
    request = ElicitationRequest(request_id="q1", kind="auth_required", message="A tool needs a credential", **fields)
    asked = FormQuestion(request, Position(), view=View(width=80, glyphs=ASCII))
    *before, secret = lines
    for text in before:
        take(asked, text)
    assert asked.secret
    assert secret not in said(take(asked, secret))
    assert answer(take(asked, "y")).content == content


@pytest.mark.parametrize("schema", [SCHEMA, {"properties": {"token": {"type": "string", "format": "password"}}}])
def test_a_line_that_was_begun_before_the_question_is_put_back_and_goes_nowhere(schema: dict[str, Any]) -> None:
    asked = form(schema)
    step = asked.take("don't touch the API", begun=0.1, drawn=0.0)
    assert isinstance(step, Say)
    assert step.put_back
    assert asked.content == {}


def test_a_bare_value_can_be_asked_for() -> None:
    asked = form({"type": "string", "minLength": 3})
    assert "at least 3 characters" in said(take(asked, "ab"))
    take(asked, "abc")
    assert answer(take(asked, "y")).content == "abc"


def test_a_nested_field_takes_json() -> None:
    asked = form({"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "object"}}}})
    assert "a, b is not a JSON list" in said(take(asked, "a, b"))
    take(asked, '[{"a": 1}]')
    assert answer(take(asked, "y")).content == {"tags": [{"a": 1}]}


@pytest.mark.parametrize(
    ("typed", "content"),
    [
        ("hello", "hello"),
        ("5", "5"),
        ('{"text": "hi"}', {"text": "hi"}),
        ('{"text": 5}', '{"text": 5}'),
        ('{"text"', '{"text"'),
    ],
)
def test_a_value_of_several_types_is_an_object_where_it_reads_as_one(typed: str, content: Any) -> None:
    shape = {"type": "object", "properties": {"text": {"type": "string"}}}
    asked = form({"type": ["string", "object"], "anyOf": [{"type": "string"}, shape]})
    take(asked, typed)
    assert answer(take(asked, "y")).content == content


def test_an_address_is_shown_whole() -> None:
    address = "https://example.com/" + "x" * 200
    assert address in joined(form(url=address).block)
