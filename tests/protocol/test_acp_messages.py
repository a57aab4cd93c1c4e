"""ACP's messages before an SDK sees them: broken lines, shapes that end its loop, ``_meta`` that replaces arguments."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession.protocol._acp_messages import decode_line, message_kind, nest_meta, nested_meta


@pytest.mark.parametrize(
    "line", [b"", b"null", b"[1]", b'"text"', b"{", b"\xff{}", b'{"a": NaN}', b'{"a": -Infinity}', b"[" * 100_000]
)
def test_a_line_without_a_json_object_gives_nothing(line: bytes) -> None:
    assert decode_line(line) is None


def test_a_line_with_an_object_gives_it() -> None:
    assert decode_line(b' {"id": 1, "result": null}\r\n') == {"id": 1, "result": None}


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"id": 1, "method": "session/new"}, "request"),
        ({"id": None, "method": "session/new"}, "request"),
        ({"method": "session/update"}, "notification"),
        ({"id": "a", "result": None}, "response"),
        ({"id": 1, "error": {"code": -32000, "message": "no"}}, "response"),
        ({}, "invalid"),
        ({"id": 1}, "invalid"),
        ({"id": [1], "result": 1}, "invalid"),
        ({"id": True, "result": 1}, "invalid"),
        ({"id": 1.0, "result": 1}, "invalid"),
        ({"id": 1, "error": "no"}, "invalid"),
        ({"id": 1, "error": {"code": "x", "message": "no"}}, "invalid"),
        ({"method": ["session/update"]}, "invalid"),
    ],
)
def test_a_shape_that_would_end_the_sdks_loop_is_invalid(message: dict[str, Any], kind: str) -> None:
    assert message_kind(message) == kind


def test_meta_cannot_replace_a_validated_argument() -> None:
    params = {"sessionId": "mine", "_meta": {"session_id": "theirs", "update": {}}}
    nested = nest_meta({"method": "session/update", "params": params})
    arguments = {"session_id": nested["params"]["sessionId"]}
    arguments.update(nested["params"]["_meta"])  # what the SDK's router does
    assert arguments["session_id"] == "mine"
    assert nested_meta(arguments) == {"session_id": "theirs", "update": {}}


def test_nesting_changes_nothing_of_the_message_that_it_was_given() -> None:
    message = {"method": "x", "params": {"_meta": {"a": 1}}}
    nest_meta(message)
    assert message == {"method": "x", "params": {"_meta": {"a": 1}}}


@pytest.mark.parametrize("params", [None, [1], {}, {"_meta": None}, {"_meta": "text"}])
def test_params_without_an_object_for_meta_stay_as_they_are(params: Any) -> None:
    message = {"method": "x", "params": params}
    assert nest_meta(message) == message
