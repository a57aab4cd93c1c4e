"""What leaves the host without secrets, and still folds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsession.host.records import Redactor
from agentsession.protocol import (
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Message,
    SessionUpdate,
    StreamEnd,
    Text,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    args_digest,
    dump_event,
)

BASE: dict[str, Any] = {
    "timestamp": "2026-01-31T12:00:00.000Z",
    "session_id": "s-1",
    "stream_id": "s1",
    "turn_id": "t1",
}
PIECES: dict[str, Any] = {"seq": 5, "id": "e5", **BASE}


def request(args: dict[str, Any]) -> ToolRequest:
    return ToolRequest(**PIECES, request_id="c1", name="login", args=args, owner="agent", needs="grant")


def redact(event: Event, **options: Any) -> dict[str, Any]:
    return json.loads(dump_event(Redactor(environ={}, **options)(event)))  # type: ignore[no-any-return]  # JSON


SECRET_NAMES = (
    "password Password api_key apiKey API_KEY client_secret access_token token authToken Authorization set-cookie"
    " privateKey credentials db-password passphrase"
)


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_a_value_under_a_secret_name_goes(name: str) -> None:
    told = redact(request({"user": "ann", "deep": [{name: "hunter2", "n": 1}]}))
    assert told["args"] == {"user": "ann", "deep": [{name: "[redacted]", "n": 1}]}


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokens", "keyboard", "secretary", "passwordless_count", "key", "author"]
)
def test_a_value_under_a_name_that_only_sounds_like_it_stays(name: str) -> None:
    event = request({name: "five"})
    assert Redactor(environ={})(event) is event


def test_everything_below_a_secret_name_goes_but_its_shape() -> None:
    told = redact(request({"credential": {"user": "ann", "parts": ["a", 7, None, True]}}))
    assert told["args"] == {"credential": {"user": "[redacted]", "parts": ["[redacted]", "[redacted]", None, True]}}


def test_of_a_pair_of_name_and_value_the_value_goes() -> None:
    told = redact(request({"headers": [{"name": "X-Api-Key", "value": "abc"}, {"name": "Accept", "value": "*/*"}]}))
    assert told["args"]["headers"] == [
        {"name": "X-Api-Key", "value": "[redacted]"},
        {"name": "Accept", "value": "*/*"},
    ]


def test_names_of_the_hosts_own_count_too() -> None:
    assert redact(request({"Kunde": "Ann"}), names=["kunde"])["args"] == {"Kunde": "[redacted]"}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("key sk-abcdefghijklmnop1234 ok", "key [redacted] ok"),
        ("ghp_abcdefghijklmnopqrstuvwx", "[redacted]"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [redacted]"),
        ("postgres://ann:hunter2@db/x", "postgres://[redacted]@db/x"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nend", "[redacted]\nend"),
        ("nothing here: sk-1", "nothing here: sk-1"),
    ],
)
def test_texts_that_look_like_keys_go_wherever_they_stand(text: str, left: str) -> None:
    event = Message(**PIECES, message_id="m1", content=[Text(text=text)])
    assert redact(event)["content"][0]["text"] == left
    assert redact(request({"command": text}))["args"] == {"command": left}


def test_values_of_the_environment_and_known_values_go() -> None:
    environ = {"MY_API_KEY": "correct-horse", "SHORT_TOKEN": "abc", "HOME": "/home/ann-and-bob"}
    redactor = Redactor(environ=environ, values=["correct-horse-battery", "x1"])
    text = "correct-horse-battery correct-horse abc /home/ann-and-bob x1"
    told = redactor(Message(**PIECES, message_id="m1", content=[Text(text=text)]))
    assert isinstance(told, Message)
    assert told.content[0].text == "[redacted] [redacted] abc /home/ann-and-bob [redacted]"  # type: ignore[union-attr]  # a text


def test_names_in_a_schema_are_no_secrets() -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string", "format": "password"}}}
    event = ElicitationRequest(**PIECES, request_id="q1", kind="clarification", message="Who?", requested_schema=schema)
    assert redact(event)["requestedSchema"] == schema


def test_what_a_schema_marks_as_secret_goes_from_the_answer() -> None:
    redactor = Redactor(environ={})
    schema = {"properties": {"pin": {"writeOnly": True}, "name": {"type": "string"}}}
    redactor(ElicitationRequest(**PIECES, request_id="q1", kind="clarification", message="?", requested_schema=schema))
    answer = ElicitationResponse(**PIECES, request_id="q1", action="accept", content={"pin": "1234", "name": "Ann"})
    told = redactor(answer)
    assert isinstance(told, ElicitationResponse)
    assert told.content == {"pin": "[redacted]", "name": "Ann"}


@pytest.mark.parametrize("is_seen", [True, False])
def test_an_answer_to_a_sign_in_goes_whole_also_where_the_question_was_not_seen(is_seen: bool) -> None:
    redactor = Redactor(environ={})
    if is_seen:
        redactor(ElicitationRequest(**PIECES, request_id="q1", kind="auth_required", message="?"))
    told = redactor(ElicitationResponse(**PIECES, request_id="q1", action="accept", content={"value": "s3cret"}))
    assert isinstance(told, ElicitationResponse)
    assert told.content == {"value": "[redacted]"}


def test_digests_are_those_of_what_is_left() -> None:
    redactor = Redactor(environ={})
    args: dict[str, Any] = {"user": "ann", "password": "hunter2"}
    asked = redactor(request(args))
    decided = redactor(ToolDecision(**PIECES, request_id="c1", decision="granted", args_digest=args_digest(args)))
    assert isinstance(asked, ToolRequest)
    assert isinstance(decided, ToolDecision)
    assert decided.args_digest == args_digest(asked.args or {})
    edited = {"user": "bob", "password": "other"}
    again = redactor(
        ToolDecision(**PIECES, request_id="c1", decision="granted", args=edited, args_digest=args_digest(edited))
    )
    assert isinstance(again, ToolDecision)
    assert again.args_digest == args_digest({"user": "bob", "password": "[redacted]"})


def test_state_config_and_results_are_redacted() -> None:
    told = redact(
        SessionUpdate(**PIECES, state_delta={"api_key": "abc"}, config={"token": "abc"}, title="my sk-" + "a" * 20)
    )
    assert (told["stateDelta"], told["config"]) == ({"api_key": "[redacted]"}, {"token": "[redacted]"})
    assert told["title"] == "my [redacted]"
    done = ToolResponse(**PIECES, request_id="c1", name="x", status="completed", data={"jwt": "abc", "n": 1})
    assert redact(done)["data"] == {"jwt": "[redacted]", "n": 1}


def test_ids_and_names_stay() -> None:
    event = request({}).model_copy(update={"name": "get_token", "request_id": "password"})
    assert Redactor(environ={}, values=["s-1"])(event) == event


def test_what_somebody_said_of_a_denial_is_redacted_and_why_a_stream_ended_stays() -> None:
    denied = ToolDecision(
        **PIECES, request_id="c1", decision="denied", args_digest="x", reason="not with sk-" + "a" * 20
    )
    assert redact(denied)["reason"] == "not with [redacted]"
    ended = StreamEnd(**PIECES, reason="completed")
    assert Redactor(environ={}, values=["completed"])(ended) is ended


def said(text: str) -> Message:
    return Message(**PIECES, message_id="m1", content=[Text(text=text)])


def text_of(event: Event) -> str:
    assert isinstance(event, Message)
    return "".join(part.text for part in event.content if isinstance(part, Text))


def test_what_was_a_secret_in_one_place_is_one_in_every_later_text() -> None:
    redactor = Redactor(environ={})
    assert text_of(redactor(said("hunter2-and-more"))) == "hunter2-and-more"
    redactor(request({"password": "hunter2-and-more"}))
    assert text_of(redactor(said("try hunter2-and-more!"))) == "try [redacted]!"


def test_what_it_has_learnt_goes_from_earlier_texts_too() -> None:
    redactor = Redactor(environ={})
    events: list[Event] = [said("hunter2-and-more"), request({"password": "hunter2-and-more", "n": "short"})]
    redactor.learn(events)
    assert text_of(redactor(events[0])) == "[redacted]"


def test_a_text_of_which_a_part_went_is_no_secret_itself() -> None:
    redactor = Redactor(environ={})
    text = "my key is sk-abcdefghijklmnop1234"
    redactor.learn([said(text)])
    assert text_of(redactor(said(text))) == "my key is [redacted]"


def test_what_stands_behind_a_name_in_a_text_goes() -> None:
    told = redact(request({"command": "curl 'https://a.example/?token=hunter2x' --password hunter2x"}))
    assert told["args"] == {"command": "curl 'https://a.example/?token=[redacted]' --password [redacted]"}
