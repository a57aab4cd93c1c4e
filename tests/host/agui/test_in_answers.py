"""From resume to answers: all of them or none, replays do nothing, and what does not fit stays open."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from ag_ui.core import ResumeEntry
from hypothesis import given
from hypothesis import strategies as st
from tests.host.agui.inputs import grant_request, question

from agentsession.host.agui._in_answers import Resume, read_resume
from agentsession.host.agui._in_faults import RunRefused
from agentsession.host.agui._in_memory import Memory
from agentsession.protocol import (
    ElicitationAnswer,
    ElicitationResponse,
    PendingRequest,
    ToolDecision,
    ToolDenial,
    ToolGrant,
    ToolResponse,
    args_digest,
)

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def entry(id: str, status: str = "resolved", **more: Any) -> ResumeEntry:
    return ResumeEntry.model_validate({"interruptId": id, "status": status, **more})


def read(*entries: ResumeEntry, open_: list[PendingRequest] | None = None, memory: Memory | None = None) -> Resume:
    interrupts = {request.request_id: request for request in ([grant_request()] if open_ is None else open_)}
    return read_resume(entries, interrupts, memory or Memory(), _NOW, lambda name: _SCHEMA)


def refused(*entries: ResumeEntry, **more: Any) -> str:
    with pytest.raises(RunRefused) as error:
        read(*entries, **more)
    return error.value.code


def remembering(*events: Any) -> Memory:
    memory = Memory()
    for seq, event in enumerate(events, 1):
        memory.add(event.model_copy(update={"seq": seq}))
    return memory


def test_a_yes_is_a_grant() -> None:
    (answer,) = read(entry("r1", payload={"approved": True})).answers
    assert isinstance(answer, ToolGrant)
    assert answer.args is None
    assert answer.decision is not None
    assert answer.decision.by == "user"


def test_edited_arguments_are_in_the_grant() -> None:
    (answer,) = read(entry("r1", payload={"approved": True, "editedArgs": {"path": "b"}})).answers
    assert isinstance(answer, ToolGrant)
    assert answer.args == {"path": "b"}


def test_edited_arguments_that_do_not_fit_are_no_answer() -> None:
    assert refused(entry("r1", payload={"approved": True, "editedArgs": {"path": 1}})) == "answer_invalid"


def test_a_no_is_a_denial_with_its_reason() -> None:
    (answer,) = read(entry("r1", payload={"approved": False, "reason": "not today"})).answers
    assert isinstance(answer, ToolDenial)
    assert answer.reason == "not today"


def test_a_cancelled_grant_is_a_denial_and_a_cancelled_question_is_cancelled() -> None:
    got = read(entry("r1", "cancelled"), entry("q1", "cancelled"), open_=[grant_request(), question()])
    assert isinstance(got.answers[0], ToolDenial)
    assert isinstance(got.answers[1], ElicitationAnswer)
    assert got.answers[1].action == "cancel"
    assert got.abandons


def test_a_confirmation_takes_the_payload_beside_the_yes() -> None:
    (answer,) = read(entry("q1", payload={"approved": True, "payload": {"days": 3}}), open_=[question()]).answers
    assert isinstance(answer, ElicitationAnswer)
    assert answer.content == {"payload": {"days": 3}}


def test_a_confirmation_does_not_take_edited_arguments() -> None:
    sent = entry("q1", payload={"approved": True, "editedArgs": {}})
    assert refused(sent, open_=[question()]) == "answer_invalid"


@pytest.mark.parametrize("kind", ["tool_confirmation", "user_approval", "something_new"])
def test_a_declined_confirmation_is_a_decline(kind: str) -> None:
    (answer,) = read(entry("q1", payload=False), open_=[question(kind=kind)]).answers
    assert isinstance(answer, ElicitationAnswer)
    assert answer.action == "decline"


def test_a_form_is_answered_with_what_its_schema_wants() -> None:
    asked = question(kind="clarification", requested_schema=_FORM)
    (answer,) = read(entry("q1", payload={"city": "Oslo"}), open_=[asked]).answers
    assert isinstance(answer, ElicitationAnswer)
    assert answer.content == {"city": "Oslo"}
    for payload in ({}, {"city": 1}, None, True):
        assert refused(entry("q1", payload=payload), open_=[asked]) == "answer_invalid"
    assert refused(entry("q1"), open_=[asked]) == "answer_invalid"


@pytest.mark.parametrize(
    "payload", [{"credential": {"type": "bearer", "token": "x"}}, {"auth_response_uri": "https://x"}]
)
def test_a_credential_is_handed_on(payload: Any) -> None:
    (answer,) = read(entry("q1", payload=payload), open_=[question(kind="auth_required")]).answers
    assert isinstance(answer, ElicitationAnswer)
    assert answer.content == payload


@pytest.mark.parametrize(
    "payload", [True, "yes", {}, {"credential": None}, {"credential": {"a": 1}, "auth_response_uri": "x"}]
)
def test_what_is_no_credential_is_no_answer(payload: Any) -> None:
    assert refused(entry("q1", payload=payload), open_=[question(kind="auth_required")]) == "answer_invalid"


def test_an_expired_interrupt_can_only_be_left() -> None:
    asked = question(expires_at="2025-12-31T23:59:59Z")
    assert refused(entry("q1", payload=True), open_=[asked]) == "interrupt_expired"
    assert len(read(entry("q1", "cancelled"), open_=[asked]).answers) == 1
    assert len(read(entry("q1", payload=True), open_=[question(expires_at="2026-01-01T00:00:01Z")]).answers) == 1


def test_an_answer_to_some_of_the_open_interrupts_is_refused() -> None:
    assert refused(entry("r1", payload=True), open_=[grant_request(), question()]) == "interrupt_missing"


def test_one_bad_answer_spoils_the_good_one() -> None:
    sent = [entry("r1", payload=True), entry("q1", payload=1)]
    assert refused(*sent, open_=[grant_request(), question()]) == "answer_invalid"


def test_two_answers_to_one_interrupt_are_refused() -> None:
    assert refused(entry("r1", payload=True), entry("r1", payload=True)) == "interrupt_duplicate"


def test_an_answer_to_nothing_is_refused() -> None:
    assert refused(entry("r9", payload=True)) == "interrupt_unknown"
    assert refused(entry("r9", "cancelled")) == "interrupt_unknown"


_GRANTED = ToolDecision(request_id="r1", decision="granted", args_digest=args_digest({"path": "a"}))
_EDITED = ToolDecision(request_id="r1", decision="granted", args={"path": "b"}, args_digest=args_digest({"path": "b"}))
_DENIED = ToolDecision(request_id="r1", decision="denied", args_digest=args_digest({"path": "a"}))
_CANCELLED = ToolResponse(request_id="r1", name="wipe", status="cancelled")
_OK, _EDIT, _NOT = {"approved": True}, {"approved": True, "editedArgs": {"path": "b"}}, {"approved": False}


@pytest.mark.parametrize(
    ("event", "same", "others"),
    [
        (_GRANTED, _OK, [_EDIT, _NOT, 1]),
        (_EDITED, _EDIT, [_OK, _NOT, None]),
        (_DENIED, _NOT, [_OK, _EDIT, {}]),
        (_CANCELLED, None, [_OK, _EDIT, _NOT]),
    ],
)
def test_the_same_answer_again_does_nothing_and_another_is_stale(event: Any, same: Any, others: list[Any]) -> None:
    memory = remembering(grant_request(), event)
    if same is not None:
        assert read(entry("r1", payload=same), open_=[], memory=memory).answers == []
    assert read(entry("r1", "cancelled"), open_=[], memory=memory).answers == []
    for payload in others:
        assert refused(entry("r1", payload=payload), open_=[], memory=memory) == "interrupt_stale"


@pytest.mark.parametrize(
    ("kind", "action", "content", "same", "others"),
    [
        (
            "tool_confirmation",
            "accept",
            None,
            {"approved": True},
            [{"approved": False}, {"approved": True, "payload": 1}],
        ),
        (
            "tool_confirmation",
            "accept",
            {"payload": 1},
            {"approved": True, "payload": 1},
            [{"approved": True, "payload": True}],
        ),
        ("tool_confirmation", "decline", None, {"approved": False}, [{"approved": True}]),
        ("clarification", "accept", {"city": "Oslo"}, {"city": "Oslo"}, [{"city": "Rome"}, {}]),
        ("clarification", "accept", {"pin": "[redacted]"}, {"pin": "1234"}, [{"pin": "1", "city": "Rome"}]),
        ("auth_required", "accept", "[redacted]", {"auth_response_uri": "https://x"}, []),
    ],
)
def test_a_question_answered_the_same_again_does_nothing(
    kind: str, action: str, content: Any, same: Any, others: list[Any]
) -> None:
    given_: Mapping[str, Any] = {} if content is None else {"content": content}
    memory = remembering(question(kind=kind), ElicitationResponse(request_id="q1", action=action, **given_))
    assert read(entry("q1", payload=same), open_=[], memory=memory).answers == []
    for payload in others:
        assert refused(entry("q1", payload=payload), open_=[], memory=memory) == "interrupt_stale"


def test_a_replay_alone_is_no_answer_to_a_newer_interrupt() -> None:
    memory = remembering(grant_request(), _GRANTED)
    assert read(entry("r1", payload=True), open_=[grant_request("r2")], memory=memory).answers == []


_PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1) | st.sampled_from(["yes", "no", "true", "accept", "deny", ""]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["approved", "accepted", "action", "decision", "type", "editedArgs", "payload", "denied"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(_PAYLOADS)
def test_only_the_words_of_the_table_yield_a_grant(payload: Any) -> None:
    try:
        (answer,) = read(entry("r1", payload=payload)).answers
    except RunRefused:
        return
    flags = payload if isinstance(payload, dict) else {}
    clear = (
        payload is True
        or payload in ("yes", "accept")
        or any(flags.get(key) is True for key in ("approved", "accepted"))
        or any(flags.get(key) == "accept" for key in ("action", "decision", "type"))
    )
    assert isinstance(answer, ToolGrant) <= clear
    if isinstance(answer, ToolGrant) and answer.args is not None:
        assert answer.args == flags["editedArgs"]
