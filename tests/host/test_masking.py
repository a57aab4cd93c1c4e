"""What is a secret by its name, by its form, or by where else it stands."""

from __future__ import annotations

import base64
import json
import time
from typing import Any
from urllib.parse import quote

import pytest

from agentsession.host._known_texts import KnownTexts
from agentsession.host._masking import Masker, masked, names_a_secret, taken_out
from agentsession.protocol import REDACTED


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("apiKey", True),
        ("OPENAI_API_KEY", True),
        ("refresh_token", True),
        ("Set-Cookie", True),
        ("client-secret", True),
        ("max_tokens", False),
        ("key", False),
        ("tokenizer", False),
        ("passage", False),
        ("", False),
        (7, False),
    ],
)
def test_a_name_says_whether_its_value_is_a_secret(name: Any, secret: bool) -> None:
    assert names_a_secret(name) is secret


def test_all_below_a_name_for_secrets_is_masked_there_and_everywhere() -> None:
    record = {
        "credentials": {"user": "ann-the-first", "pins": ["12345678", None, True, 3]},
        "said": "I am ann-the-first",
    }
    assert Masker([record], environ={}).json(record) == {
        "credentials": {"user": "***", "pins": ["***", None, True, "***"]},
        "said": "I am ***",
    }


@pytest.mark.parametrize("word", ["name", "key"])
def test_of_a_pair_of_name_and_value_the_value_is_masked(word: str) -> None:
    record = {"env": [{word: "DB_PASSWORD", "value": "hunter2-long"}, {word: "HOME", "value": "/home/ann"}]}
    masker = Masker([record], environ={})
    assert masker.json(record)["env"] == [{word: "DB_PASSWORD", "value": "***"}, {word: "HOME", "value": "/home/ann"}]
    assert masker.text("it is hunter2-long") == "it is ***"


def test_a_schema_has_names_of_secrets_and_no_values() -> None:
    record = {"requestedSchema": {"properties": {"password": {"type": "string", "title": "Your password"}}}}
    assert Masker([record], environ={}).json(record) == record


def test_of_two_secrets_where_one_begins_with_the_other_nothing_of_the_longer_stays() -> None:
    assert (
        Masker(secrets=["longsecret", "longsecret-and-more"], environ={}).text("a longsecret-and-more b") == "a *** b"
    )


@pytest.mark.parametrize(
    "text",
    [
        "sk-abcdefghijklmnop1234",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "-----BEGIN PRIVATE KEY-----\nMIIE\nabc",
        "AKIAABCDEFGHIJKLMNOP",
    ],
)
def test_what_looks_like_a_key_is_masked_without_being_named(text: str) -> None:
    assert masked(f"a {text}", {}) == "a ***"


def test_a_value_of_the_environment_is_masked_where_its_variable_is_named_like_a_secret() -> None:
    environ = {"SERVICE_TOKEN": "plain words", "HOME": "/home/ann", "A_KEY": "short"}
    assert masked("plain words in /home/ann, short", environ) == "*** in /home/ann, short"


SECRET = 'pa/ss "wörd" 1'
FORMS = {
    "as it is": SECRET,
    "JSON": json.dumps({"said": SECRET}),
    "JSON in JSON's own letters": json.dumps({"said": SECRET}, ensure_ascii=False),
    "an address": f"https://example.org/?q={quote(SECRET, safe='')}&n=1",
    "Base64 at a place of each kind": " ".join(
        base64.b64encode(b"x" * before + SECRET.encode() + b"y" * after).decode()
        for before in range(4)
        for after in range(4)
    ),
    "Base64 of addresses": base64.urlsafe_b64encode(b"??>" + SECRET.encode()).decode(),
}


@pytest.mark.parametrize("others", [0, 100], ids=["alone", "among many"])
@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_a_known_secret_is_found_in_each_form_that_it_may_have(text: str, others: int) -> None:
    known = KnownTexts([SECRET, *(f"another secret {number}" for number in range(others))])
    inner = base64.b64encode(SECRET.encode()).decode()[4:-4]
    left = known.sub("***", text)
    assert "***" in left
    assert "ss" not in left
    assert inner not in left
    assert left.count("***") == (16 if " " in text and "eHh4" in text else 1)


def test_many_known_secrets_are_found_like_few() -> None:
    secrets = [f"secret {number:03} " + "x" * (number % 7) for number in range(200)]
    others = ["secret", "secret 9", secrets[6][:-1]]
    text = " and ".join([*secrets, "short", *others])
    assert KnownTexts([*secrets, "short"]).sub("*", text) == " and ".join(["*"] * 201 + others)
    assert not KnownTexts([])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("run --password hunter2x --json", "run --password *** --json"),
        ("run --db-token=hunter2x", "run --db-token=***"),
        ("DB_PASSWORD=hunter2x ./run", "DB_PASSWORD=*** ./run"),
        ('password = "two words", n = 1', 'password = "***", n = 1'),
        ('{"api_key": "a b c", "n": 1}', '{"api_key": "***", "n": 1}'),
        ('"{\\"token\\": \\"a1\\", \\"n\\": 1}"', '"{\\"token\\": \\"***\\", \\"n\\": 1}"'),
        ("https://a.example/x?page=2&access_token=hunter2x&n=1", "https://a.example/x?page=2&access_token=***&n=1"),
        ("https://a.example/x?X-Amz-Signature=0a1b2c3d&n=1", "https://a.example/x?X-Amz-Signature=***&n=1"),
        ("the password: it is long", "the password: it is long"),
        ("token = lexer.next()", "token = lexer.next()"),
        ("--key-file is an option", "--key-file is an option"),
    ],
)
def test_a_value_behind_a_name_for_secrets_is_masked_in_a_text(text: str, left: str) -> None:
    assert Masker(environ={}).text(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "redis://:hunter2@cache/1",
        "Authorization: Basic YW5uOmh1bnRlcjI=",
        "github_pat_11ABCDEFG0abcdefghijk",
        "sk_live_abcdefghijklmnop12",
    ],
)
def test_more_forms_of_keys(text: str) -> None:
    assert "***" in masked(text, {})
    assert masked("Basic authentication", {}) == "Basic authentication"


def test_what_was_taken_out_is_what_nothing_is_left_of() -> None:
    before = {"a": "gone", "b": ["kept", "gone too"], "c": {"d": "all"}, "e": "a part", "key": "x"}
    after = {"a": REDACTED, "b": ["kept", REDACTED], "c": REDACTED, "e": f"a {REDACTED}", REDACTED: "x"}
    assert [*taken_out(before, after)] == ["gone", "gone too", "all"]


@pytest.mark.parametrize("text", ['password="' + "\\" * 100_000, "secret='" * 20_000, "--token" + " " * 100_000])
def test_a_text_that_is_made_to_be_slow_to_mask_is_not(text: str) -> None:
    """A model or a tool may write it: with the square of its length, one of them took a minute."""
    began = time.perf_counter()
    Masker([]).text(text)
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("escapes", range(9))
def test_a_quoted_secret_ends_at_its_quote_however_often_it_is_escaped(escapes: int) -> None:
    slashes = "\\" * escapes
    text = f'password={slashes}"hunter2 is it{slashes}", and more'
    assert Masker([]).text(text) == f'password={slashes}"***{slashes}", and more'
