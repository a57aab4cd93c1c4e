"""Times, branches, secrets and values that JSON cannot say."""

from __future__ import annotations

import json
import math
import os
import time
from typing import Any

import pytest
from hypothesis import given
from tests.adapters.adk.strategies import any_text, wild_objects

from agentsession.adapters.adk._values import (
    clean_id,
    is_within,
    iso_timestamp,
    lossy_json,
    redact,
    thread_of,
)
from agentsession.protocol import REDACTED


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1733043686.8428597, "2024-12-01T09:01:26.843Z"),
        (1733043686842, "2024-12-01T09:01:26.842Z"),
        (1733043686.99999, "2024-12-01T09:01:27.000Z"),
        (0.0, ""),
        (-1.0, ""),
        (math.nan, ""),
        (1e300, ""),
        ("now", ""),
        (True, ""),
    ],
)
def test_seconds_and_milliseconds_become_utc(value: object, text: str) -> None:
    assert iso_timestamp(value) == text


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of a process cannot be changed here")
def test_the_zone_of_the_machine_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert iso_timestamp(1781000000.123) == "2026-06-09T10:13:20.123Z"
    finally:
        monkeypatch.undo()
        assert os.environ.get("TZ") == before
        time.tzset()


@pytest.mark.parametrize(
    ("branch", "thread"),
    [
        (None, None),
        ("", None),
        ("par.agent_1", "par.agent_1"),
        ("wf@1.node@12", "wf.node-12"),
        ("kid@adk-12ab", "kid@adk-12ab"),
    ],
)
def test_a_branch_becomes_a_thread(branch: str | None, thread: str | None) -> None:
    assert thread_of(branch) == thread


def test_threads_are_compared_by_whole_segments() -> None:
    """R64: an agent whose name begins like another's is not below it."""
    assert not is_within("par.agent_10", "par.agent_1")
    assert is_within("par.agent_1.child", "par.agent_1")
    assert is_within("par.agent_1", None)


@given(any_text)
def test_an_id_is_usable_text_of_bounded_length(text: str) -> None:
    made = clean_id(text * 100)

    made.encode("utf-8")
    assert len(made) <= 256


def test_two_long_ids_stay_two() -> None:
    assert clean_id("a" * 1000 + "1") != clean_id("a" * 1000 + "2")


@pytest.mark.parametrize(
    "secret",
    [
        {"oauth2": {"clientSecret": "s3cr3t", "clientId": "me"}},
        {"api_key": "s3cr3t"},
        {"http": {"scheme": "basic", "credentials": {"username": "u", "password": "s3cr3t"}}},
        {"serviceAccount": {"serviceAccountCredential": {"private_key": "s3cr3t", "privateKeyId": "s3cr3t"}}},
        {"refresh_token": "s3cr3t", "idToken": "s3cr3t", "accessToken": "s3cr3t"},
        {"user:token": "s3cr3t"},
        ["https://idp.test/cb?state=1&code=s3cr3t#access_token=s3cr3t"],
    ],
)
def test_secrets_are_redacted_by_their_key(secret: Any) -> None:
    shown = json.dumps(redact(secret))

    assert "s3cr3t" not in shown
    assert REDACTED in shown


def test_what_only_sounds_secret_is_kept() -> None:
    harmless = {"token_count": 3, "tokenUrl": "https://idp.test/token", "token": 7, "clientId": "me", "apiKey": ""}

    assert redact(harmless) == harmless


@given(wild_objects)
def test_any_python_value_becomes_json_with_its_problems_listed(value: dict[str, Any]) -> None:
    shown, problems = lossy_json(value)

    text = json.dumps(shown, allow_nan=False)
    assert ("$unserializable" in text) == bool(problems)


def test_only_the_offending_place_is_marked() -> None:
    """R31: other values are unaffected, and the place is named."""
    shown, problems = lossy_json({"good": [1, {"a"}], "bad": {"f": len}})

    assert shown == {"good": [1, ["a"]], "bad": {"f": {"$unserializable": "builtin_function_or_method"}}}
    assert problems == ["/bad/f: a value of type builtin_function_or_method"]


def test_a_value_that_contains_itself_is_marked_and_not_followed() -> None:
    value: dict[str, Any] = {"a": 1}
    value["self"] = value

    shown, problems = lossy_json(value)

    assert problems
    json.dumps(shown)
