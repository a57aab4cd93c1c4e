"""What an answer must look like to count: the right kind, valid content, and a yes that is a clear yes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.record import confirmation, question, request, response, running

from agentsession.conformance.strategies import inputs, json_values
from agentsession.protocol import (
    Answer,
    ElicitationAnswer,
    Event,
    InvalidInput,
    MessageInput,
    Receipt,
    StreamInput,
    ToolDecision,
    ToolGrant,
    ToolProgress,
    ToolResult,
    accept,
    args_digest,
    as_answers,
    cancel,
    check_schema,
    contradicts_yes,
    decline,
    deny,
    grant,
    parse_answer,
    result,
)

CONFIRM = {"type": "object", "properties": {"confirmed": {"type": "boolean"}}, "required": ["confirmed"]}

CLEAR: list[Any] = [
    None,
    True,
    "yes",
    " Yes ",
    "ok",
    "APPROVED",
    {},
    {"confirmed": True},
    {"Confirmed": True, "comment": "no hurry"},
    {"accepted": True, "remember": "no"},
    {"decision": "allow"},
    {"decision": True},
    {"action": "accept", "approved": True},
    {"payload": {"confirmed": False}},
    {"comment": "please do"},
    {"denied": False},
]
UNCLEAR: list[Any] = [
    False,
    0,
    1,
    1.0,
    "",
    "no",
    " NO ",
    "maybe",
    "false",
    "n",
    "deny",
    [],
    [True],
    {"confirmed": False},
    {"confirmed": None},
    {"confirmed": "yes"},
    {"confirmed": 1},
    {"accepted": False},
    {"approved": 0},
    {"confirmed": True, "accepted": False},
    {"decision": "deny"},
    {"decision": "maybe"},
    {"decision": None},
    {"decision": False},
    {"decision": 1},
    {"outcome": {"outcome": "cancelled"}},
    {"action": "decline", "approved": True},
    {"denied": True},
    {"reject": "yes"},
    {"choice": "no"},
    {"value": "Reject"},
]


def receipt_for(answer: Answer, *events: Event, check: Any = check_schema) -> Receipt:
    """The receipt for an answer after some events; that a receipt changes nothing is checked each time."""
    machine = running().add(*events).machine
    before = machine.snapshot()
    found = machine.check_answer(answer, check)
    assert machine.snapshot() == before
    assert found.request_id == answer.request_id
    if not found.ok:
        assert found.reason
    return found


def outcome(answer: Answer, *events: Event) -> tuple[str, str | None]:
    found = receipt_for(answer, *events)
    return found.status, found.rule


# --- a clear yes -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-08")
@pytest.mark.parametrize("content", CLEAR, ids=repr)
def test_a_clear_yes_is_one(content: Any) -> None:
    assert not contradicts_yes(content)


@pytest.mark.rule("HITL-08")
@pytest.mark.parametrize("content", UNCLEAR, ids=repr)
def test_what_hints_at_a_no_contradicts_the_yes(content: Any) -> None:
    assert contradicts_yes(content)


@pytest.mark.rule("HITL-08")
@given(json_values())
def test_any_content_is_judged_and_only_assent_is_clear(content: Any) -> None:
    if contradicts_yes(content) is False:
        assert content is None or content is True or isinstance(content, (str, dict))


@pytest.mark.rule("HITL-08")
@pytest.mark.parametrize("kind", ["tool_confirmation", "user_approval"])
@pytest.mark.parametrize("content", [item for item in UNCLEAR if item is not None], ids=repr)
def test_an_acceptance_that_is_no_clear_yes_is_invalid_and_stays_pending(kind: str, content: Any) -> None:
    asked = question("q-1", kind)
    assert outcome(accept("q-1", content), asked) == ("invalid", "HITL-08")


@pytest.mark.rule("HITL-08")
def test_content_of_another_kind_of_question_is_not_judged_as_a_yes() -> None:
    for content in (False, "no", 0, {"confirmed": False}):
        assert outcome(accept("q-1", content), question("q-1", "clarification")) == ("applied", None)


# --- content and schema ----------------------------------------------------------------------------------------------


@pytest.mark.rule("HITL-08")
@pytest.mark.parametrize(
    ("schema", "content", "applies"),
    [
        ({"type": "boolean"}, True, True),
        ({"type": "boolean"}, None, False),
        ({"type": ["boolean", "null"]}, None, True),
        (CONFIRM, {"confirmed": True}, True),
        (CONFIRM, {}, False),
        (CONFIRM, {"confirmed": None}, False),
        (CONFIRM, None, False),
        ({"type": "string"}, "yes", True),
        ({"type": "string"}, True, False),
        ({"$ref": "https://example.com/schema.json"}, True, False),
        ({"type": "nonsense"}, True, False),
        ({"type": "string", "pattern": "("}, "yes", False),
    ],
    ids=repr,
)
@pytest.mark.parametrize("check", [check_schema, None])
def test_accepted_content_satisfies_the_schema_of_the_question(
    schema: dict[str, Any], content: Any, applies: bool, check: Any
) -> None:
    answer = ElicitationAnswer(request_id="q-1", action="accept", content=content)
    found = receipt_for(answer, question("q-1", "tool_confirmation", requested_schema=schema), check=check)
    assert (found.status, found.rule) == (("applied", None) if applies else ("invalid", "HITL-08"))


@pytest.mark.rule("HITL-08")
def test_a_bare_yes_is_enough_for_a_confirmation_and_not_for_a_form() -> None:
    assert outcome(accept("q-1"), question("q-1", "tool_confirmation", requested_schema=CONFIRM)) == ("applied", None)
    form = question("q-1", "clarification", requested_schema={"type": "object"})
    assert outcome(accept("q-1"), form) == ("invalid", "HITL-08")
    assert outcome(accept("q-1", {}), form) == ("applied", None)
    assert outcome(accept("q-1"), question("q-1", "clarification")) == ("applied", None)


@pytest.mark.rule("HITL-08")
def test_null_that_was_given_differs_from_no_content() -> None:
    given_null = parse_answer('{"kind":"elicitation_response","requestId":"q-1","action":"accept","content":null}')
    asked = question("q-1", "tool_confirmation", requested_schema={"type": "boolean"})
    assert outcome(given_null, asked) == ("invalid", "HITL-08")
    assert outcome(accept("q-1"), asked) == ("applied", None)


@pytest.mark.rule("HITL-09")
@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("content", [{"why": "no"}, False, "", 0, {}], ids=repr)
def test_decline_and_cancel_with_content_are_invalid(action: str, content: Any) -> None:
    answer = ElicitationAnswer(request_id="q-1", action=action, content=content)
    assert outcome(answer, question()) == ("invalid", "HITL-09")


@pytest.mark.rule("HITL-09")
def test_decline_and_cancel_apply_whatever_the_schema_says() -> None:
    for answer in (decline("q-1"), cancel("q-1")):
        assert outcome(answer, question(requested_schema=CONFIRM)) == ("applied", None)


@pytest.mark.rule("HITL-02")
@pytest.mark.parametrize("action", ["yes", "ACCEPT", "approve", "maybe", "accept "])
def test_an_action_that_is_not_known_is_invalid(action: str) -> None:
    answer = ElicitationAnswer(request_id="q-1", action=action)
    assert outcome(answer, question("q-1", "tool_confirmation")) == ("invalid", "HITL-02")


# --- kind, name and id -----------------------------------------------------------------------------------------------

PROGRESS = ToolProgress(request_id="r-1", progress=0.5)


@pytest.mark.rule("TOOL-14")
@pytest.mark.parametrize(
    ("needs", "answer", "applies"),
    [
        ("result", result("r-1", 1), True),
        ("result", deny("r-1"), True),
        ("result", PROGRESS, True),
        ("result", grant("r-1"), False),
        ("result", accept("r-1"), False),
        ("grant", grant("r-1"), True),
        ("grant", grant("r-1", {"path": "b"}), True),
        ("grant", deny("r-1", "no"), True),
        ("grant", result("r-1", 1), True),
        ("grant", PROGRESS, False),
        ("grant", accept("r-1"), False),
        ("none", result("r-1", 1), False),
        ("none", grant("r-1"), False),
        ("none", deny("r-1"), False),
        ("none", PROGRESS, False),
        ("x-later", result("r-1", 1), True),
        ("x-later", deny("r-1"), True),
        ("x-later", grant("r-1"), False),
    ],
)
def test_the_kind_of_an_answer_fits_what_the_request_needs(needs: str, answer: Answer, applies: bool) -> None:
    expected = ("applied", None) if applies else ("invalid", "TOOL-14")
    assert outcome(answer, request(needs=needs)) == expected


@pytest.mark.rule("TOOL-14")
@pytest.mark.parametrize(
    "answer", [result("q-1", 1), grant("q-1"), deny("q-1"), ToolProgress(request_id="q-1")], ids=lambda a: str(a.kind)
)
def test_a_question_takes_only_an_elicitation_response(answer: Answer) -> None:
    assert outcome(answer, question()) == ("invalid", "TOOL-14")


@pytest.mark.rule("TOOL-14")
def test_a_name_that_is_given_must_be_that_of_the_request() -> None:
    right, wrong = ToolResult(request_id="r-1", name="read"), ToolResult(request_id="r-1", name="rm")
    assert outcome(right, request()) == ("applied", None)
    assert outcome(wrong, request()) == ("invalid", "TOOL-14")
    assert outcome(ElicitationAnswer(request_id="q-1", name="auth_required", action="cancel"), question()) == (
        "invalid",
        "TOOL-14",
    )


@pytest.mark.rule("TOOL-10")
@pytest.mark.parametrize(
    "answer", [result("r-9"), grant("r-9"), deny("r-9"), cancel("r-9"), ToolProgress(request_id="r-9")]
)
def test_an_id_that_nobody_asked_under_is_not_found(answer: Answer) -> None:
    assert outcome(answer, request(), question()) == ("not_found", "TOOL-10")


@pytest.mark.rule("TOOL-09")
@pytest.mark.parametrize("answer", [result("r-1"), grant("r-1"), deny("r-1"), accept("r-1"), PROGRESS])
def test_any_answer_after_the_response_is_stale(answer: Answer) -> None:
    assert outcome(answer, request(), response()) == ("stale", "TOOL-09")


@pytest.mark.rule("TOOL-09")
@pytest.mark.parametrize("decision", ["granted", "denied"])
@pytest.mark.parametrize("answer", [grant("r-1"), deny("r-1"), result("r-1"), accept("r-1")])
def test_any_answer_after_the_decision_is_stale(decision: str, answer: Answer) -> None:
    decided = ToolDecision(request_id="r-1", decision=decision, args_digest=args_digest({"path": "a.py"}))
    assert outcome(answer, request(needs="grant"), decided) == ("stale", "TOOL-09")


@pytest.mark.rule("TOOL-14")
def test_progress_after_a_decision_is_invalid() -> None:
    denied = ToolDecision(request_id="r-1", decision="denied", args_digest=args_digest({"path": "a.py"}))
    assert outcome(PROGRESS, request(), denied) == ("invalid", "TOOL-14")


@pytest.mark.rule("TOOL-14")
def test_a_tool_that_waits_for_its_confirmation_is_answered_through_the_question_alone() -> None:
    asked = (request(needs="none"), confirmation())
    assert outcome(result("r-1"), *asked) == ("invalid", "TOOL-14")
    assert outcome(accept("q-1"), *asked) == ("applied", None)


@given(inputs(), st.sampled_from(["result", "grant", "none", "x-later"]))
def test_any_answer_to_any_request_gets_a_receipt_and_changes_nothing(given_input: StreamInput, needs: str) -> None:
    if isinstance(given_input, MessageInput):
        return
    for request_id in ("r-1", "q-1", "q-2", "r-9"):
        answer = given_input.model_copy(update={"request_id": request_id})
        asked = (request(needs=needs), question("q-1", requested_schema=CONFIRM), question("q-2", "user_approval"))
        found = receipt_for(answer, *asked)
        assert found.status in ("applied", "invalid", "not_found")
        assert (found.rule is None) is (found.status == "applied")


# --- making answers --------------------------------------------------------------------------------------------------


def test_answers_are_short_to_make() -> None:
    assert deny("r-1", "outside").to_wire() == {"requestId": "r-1", "kind": "tool_denial", "reason": "outside"}
    assert grant("r-1") == ToolGrant(request_id="r-1")
    assert accept("q-1", {"a": 1}).content == {"a": 1}
    assert decline("q-1").to_wire() == {"requestId": "q-1", "kind": "elicitation_response", "action": "decline"}
    assert result("r-1", {"n": 1}, is_error=True).is_error


@pytest.mark.parametrize(("given", "fix"), [([[grant("r1")]], "respond(*answers)"), ([1], "make one with result()")])
def test_what_is_no_answer_is_refused_with_what_to_do_about_it(given: Any, fix: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        as_answers(given)
    assert fix in (refused.value.fix or "")
