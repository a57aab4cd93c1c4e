"""What is a secret by its name, by its form, or by where else it stands."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession.host._masking import Masker, masked, names_a_secret


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
