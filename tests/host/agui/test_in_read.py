"""Reading a RunAgentInput: what is taken, and what is refused without saying what was sent."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host.agui.inputs import assistant, body, tool_message, user

from agentsession.host.agui._in_faults import Malformed
from agentsession.host.agui._in_read import read_input


def test_an_input_is_read_with_what_may_be_new_apart() -> None:
    given_ = read_input(body(user("u1"), assistant("a1", "x", "c1"), tool_message("c1"), user("u2"), user("u3")))
    assert (given_.thread_id, given_.run_id, given_.parent_run_id) == ("t1", "r1", None)
    assert [message.id for message in given_.tail] == ["u2", "u3"]
    assert [message.tool_call_id for message in given_.results] == ["c1"]
    assert len(given_.history) == 5
    assert given_.state == {}
    assert given_.resume == []


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        (b"", "/"),
        (b"{", "/"),
        (b'{"a": NaN}', "/"),
        (b"\xff\xfe", "/"),
        (b'{"threadId": "\\ud800"}', "/"),
        (b"[]", "/"),
        (b"{}", "/messages"),
        (body(threadId=""), "/threadId"),
        (body(threadId="a/b"), "/threadId"),
        (body(threadId="../x"), "/threadId"),
        (body(threadId="a" * 129), "/threadId"),
        (body(threadId=5), "/threadId"),
        (body(threadId=None), "/threadId"),
        (body(runId="a b"), "/runId"),
        (body(runId="a\x00"), "/runId"),
        (body(parentRunId="é"), "/parentRunId"),
        (body(messages={}), "/messages"),
        (body("hello"), "/messages/0"),  # type: ignore[arg-type]
        (body({"id": "m", "role": "root", "content": "x"}), "/messages/0/role"),
        (body({"id": "m", "role": ["user"], "content": "x"}), "/messages/0/role"),
        (body({"id": "", "role": "user", "content": "x"}), "/messages/0/id"),
        (body({"id": 1, "role": "user", "content": "x"}), "/messages/0/id"),
        (body(user("a/b")), "/messages/0/id"),
        (body(user("u", 5)), "/messages/0/content"),
        (body(user("u", [{"type": "text"}])), "/messages/0/content/0/text"),
        (
            body(user("u", [{"type": "image", "source": {"type": "data", "value": "!", "mimeType": "image/png"}}])),
            "/messages/0/content/0/source/value",
        ),
        (body({"id": "t", "role": "tool", "content": "x"}), "/messages/0/toolCallId"),
        (body(tool_message("")), "/messages/0/toolCallId"),
        (body(tool_message("c", error=5)), "/messages/0/error"),
        (body(tools=[{"name": "", "description": ""}]), "/tools/0/name"),
        (body(tools=[{"name": "a\nb", "description": ""}]), "/tools/0/name"),
        (body(tools=[{"name": "a", "description": "", "parameters": "any"}]), "/tools/0/parameters"),
        (body(tools=[{"name": "a", "description": ""}] * 257), "/tools"),
        (body(resume=[{"interruptId": "a", "status": "maybe"}]), "/resume/0/status"),
        (body(context=[{"description": "a", "value": 1}]), "/context/0/value"),
        (body(*[user(f"u{index}") for index in range(65)]), "/messages"),
    ],
)
def test_what_is_no_input_is_refused_with_its_place(sent: bytes, pointer: str) -> None:
    with pytest.raises(Malformed) as refused:
        read_input(sent)
    assert refused.value.pointer == pointer


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    secret = "sk-very-secret-value"
    for sent in (
        body(threadId=secret + "/"),
        body(user("u", {"a": secret})),
        body(context=secret),
        b'{"a": ' + secret.encode(),
    ):
        with pytest.raises(Malformed) as refused:
            read_input(sent)
        assert secret not in str(refused.value)


def test_an_old_message_may_have_any_id_and_is_not_validated() -> None:
    old = {"id": "odd/id \u00e9", "role": "user", "content": {"odd": 1}}
    assert read_input(body(old, assistant("a/1"), user("u2"))).tail[0].id == "u2"


@pytest.mark.parametrize("state", [0, "", [], False, {"a": 1}])
def test_the_state_may_be_any_json(state: Any) -> None:
    got = read_input(body(state=state)).state
    assert got == state
    assert type(got) is type(state)


def test_a_null_state_is_the_state_of_a_client_that_has_none() -> None:
    assert read_input(body(state=None)).state == {}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
_FIELDS = ("threadId", "runId", "parentRunId", "messages", "state", "tools", "context", "forwardedProps", "resume")


@given(st.dictionaries(st.sampled_from(_FIELDS), _JSON), st.binary(max_size=40))
def test_no_body_raises_anything_but_malformed(changes: dict[str, Any], junk: bytes) -> None:
    for sent in (junk, json.dumps({**json.loads(body(user("u1"))), **changes}).encode()):
        with contextlib.suppress(Malformed):
            read_input(sent)
