"""Questions that ADK dresses as calls: confirmations, credentials, input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.adk.events.event_actions import EventActions
from google.adk.flows.llm_flows import functions
from google.adk.tools.tool_confirmation import ToolConfirmation
from tests.adapters.adk.make import called, responded
from tests.adapters.adk.translated import feed, only

from agentsession.adapters.adk import Translator
from agentsession.adapters.adk._elicit import CONFIRMATION, CREDENTIAL, INPUT
from agentsession.protocol import ElicitationRequest, ElicitationResponse, Event, ToolRequest, ToolResponse

CONFIRM_ARGS = {
    "originalFunctionCall": {"id": "c1", "name": "rm", "args": {"p": "x"}},
    "toolConfirmation": {"hint": "Remove x?", "confirmed": False, "payload": {"p": "x"}},
}
AUTH_ARGS = {
    "functionCallId": "c1",
    "authConfig": {
        "authScheme": {"type": "oauth2", "flows": {"authorizationCode": {"tokenUrl": "https://idp.test/token"}}},
        "rawAuthCredential": {"authType": "oauth2", "oauth2": {"clientId": "me", "clientSecret": "s3cr3t"}},
        "exchangedAuthCredential": {
            "oauth2": {"clientId": "me", "clientSecret": "s3cr3t", "authUri": "https://idp.test/auth?client_id=me"}
        },
    },
}


def asked(
    name: str, args: dict[str, Any], translator: Translator | None = None
) -> tuple[Translator, ElicitationRequest]:
    made = translator or Translator()
    feed(called("rm", "c1", {"p": "x"}), translator=made)
    question = feed(called(name, "q1", args, long_running_tool_ids={"q1"}), translator=made)
    return made, only(ElicitationRequest, question)


def answered(translator: Translator, name: str, response: Any, **fields: Any) -> ElicitationResponse:
    return only(
        ElicitationResponse,
        feed(responded(name, "q1", response, **{"author": "user", **fields}), translator=translator),
    )


def test_the_names_are_adk_s() -> None:
    assert CONFIRMATION == functions.REQUEST_CONFIRMATION_FUNCTION_CALL_NAME
    assert CREDENTIAL == functions.REQUEST_EUC_FUNCTION_CALL_NAME
    assert INPUT == functions.REQUEST_INPUT_FUNCTION_CALL_NAME


def test_a_confirmation_is_a_question_about_its_tool() -> None:
    _, question = asked(CONFIRMATION, CONFIRM_ARGS)

    assert (question.kind, question.message, question.context, question.tool_request_id) == (
        "tool_confirmation",
        "Remove x?",
        {"p": "x"},
        "c1",
    )


def test_the_hint_that_adk_writes_for_programs_is_put_in_words_for_people() -> None:
    hint = "Please approve or reject the tool call rm() by responding with a FunctionResponse with an expected payload."

    _, question = asked(CONFIRMATION, CONFIRM_ARGS | {"toolConfirmation": {"hint": hint}})

    assert question.message == "May rm run?"


def test_the_adapter_s_own_gate_is_not_shown() -> None:
    translator = Translator(is_gate=lambda hint: hint == "GATE")
    gate = CONFIRM_ARGS | {"toolConfirmation": {"hint": "GATE"}}

    ask = called(CONFIRMATION, "q1", gate, id="e2", long_running_tool_ids={"q1"})
    made = feed(called("rm", "c1"), ask, translator=translator)
    made += feed(responded(CONFIRMATION, "q1", {"confirmed": True}, author="user"), translator=translator)

    assert [item.type for item in made] == ["tool_request"]


def test_snake_case_is_read_as_well() -> None:
    args = {
        "original_function_call": {"id": "c1", "name": "rm"},
        "tool_confirmation": {"hint": "Remove x?"},
    }

    _, question = asked(CONFIRMATION, args)

    assert (question.message, question.tool_request_id) == ("Remove x?", "c1")


def test_a_credential_request_shows_the_url_and_no_secret() -> None:
    _, question = asked(CREDENTIAL, AUTH_ARGS)

    shown = question.to_wire_json()
    assert (question.kind, question.url) == ("auth_required", "https://idp.test/auth?client_id=me")
    assert "s3cr3t" not in shown
    assert "https://idp.test/token" in shown


def test_a_request_for_input_carries_its_schema() -> None:
    args = {"message": "Which region?", "response_schema": {"type": "string"}, "payload": {"n": 1}}

    _, question = asked(INPUT, args)

    assert (question.kind, question.message, question.requested_schema, question.context) == (
        "clarification",
        "Which region?",
        {"type": "string"},
        {"n": 1},
    )


@pytest.mark.parametrize("args", [{"odd": True}, CONFIRM_ARGS | AUTH_ARGS | {"message": "Your password?"}])
@pytest.mark.parametrize("name", [CONFIRMATION, CREDENTIAL, INPUT])
def test_a_model_that_invents_such_a_call_only_calls_a_tool(name: str, args: dict[str, Any]) -> None:
    made = feed(called(name, "c1", args))

    assert only(ToolRequest, made).name == name


def test_the_placeholder_of_a_waiting_tool_is_not_its_result() -> None:
    placeholder = responded(
        "rm",
        "c1",
        {"error": "This tool call requires confirmation, please approve or reject."},
        actions=EventActions(requested_tool_confirmations={"c1": ToolConfirmation(hint="?")}),
    )
    real = responded("rm", "c1", {"result": "removed"}, id="e3")

    made = feed(called("rm", "c1"), placeholder, real)

    assert only(ToolResponse, made).data == "removed"


@pytest.mark.parametrize(
    ("response", "action", "content"),
    [
        ({"confirmed": True}, "accept", None),
        ({"confirmed": True, "payload": {"p": "y"}}, "accept", {"payload": {"p": "y"}}),
        ({"confirmed": False}, "decline", None),
        ({"response": json.dumps({"confirmed": True})}, "accept", None),
        ({"response": "not json"}, "decline", None),
        ({"error": "sealed"}, "cancel", None),
        ("yes", "decline", None),
        ({"confirmed": "true"}, "decline", None),
        (None, "decline", None),
    ],
)
def test_only_a_clear_yes_is_an_accept(response: Any, action: str, content: Any) -> None:
    translator, _ = asked(CONFIRMATION, CONFIRM_ARGS)

    made = answered(translator, CONFIRMATION, response)

    assert (made.action, made.content) == (action, content)


def test_a_credential_never_comes_back_out() -> None:
    translator, _ = asked(CREDENTIAL, AUTH_ARGS)

    made = answered(translator, CREDENTIAL, AUTH_ARGS["authConfig"])

    assert "s3cr3t" not in made.to_wire_json()
    assert made.action == "accept"


@pytest.mark.parametrize(
    ("response", "content"),
    [
        (
            {"credential": {"type": "bearer", "value": "s3cr3t"}},
            {"credential": {"type": "bearer", "value": "[redacted]"}},
        ),
        ({"credential": {"type": "s3cr3t", "value": "s3cr3t"}}, {"credential": "[redacted]"}),
        ({"credential": {"type": ["s3cr3t"]}}, {"credential": "[redacted]"}),
        ({"auth_response_uri": "https://host.test/back?code=s3cr3t"}, "[redacted]"),
    ],
)
def test_of_a_credential_no_more_than_a_known_type_comes_back_out(response: Any, content: Any) -> None:
    translator, _ = asked(CREDENTIAL, AUTH_ARGS)

    made = answered(translator, CREDENTIAL, response)

    assert made.content == content


def test_input_is_unwrapped() -> None:
    translator, _ = asked(INPUT, {"message": "?"})

    assert answered(translator, INPUT, {"result": "eu-west"}).content == "eu-west"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_input_that_was_refused_is_told_from_an_answer(action: str) -> None:
    translator, _ = asked(INPUT, {"message": "?"})

    assert answered(translator, INPUT, {"error": action}).action == action


def test_an_answer_is_the_host_s_wherever_adk_writes_it() -> None:
    """A run that stayed open writes the answer as a result of the agent's."""
    translator, _ = asked(INPUT, {"message": "?"})

    made = answered(translator, INPUT, {"result": "eu-west"}, author="root")

    assert (made.source, made.agent_id) == ("host", "root")


def test_an_abort_cancels_the_question() -> None:
    translator, _ = asked(CONFIRMATION, CONFIRM_ARGS)

    sealed = answered(translator, CONFIRMATION, {"error": "x"}, author="root", error_code="INVOCATION_ABORTED")

    assert sealed.action == "cancel"


@pytest.mark.parametrize(
    ("said", "is_error"), [({"error": "This tool call is rejected."}, True), ({"status": "rejected"}, False)]
)
def test_a_tool_whose_confirmation_was_declined_is_denied(said: dict[str, Any], is_error: bool) -> None:
    """A tool that asks from inside is told of the no by ADK, and says so in its own words."""
    translator, _ = asked(CONFIRMATION, CONFIRM_ARGS)
    answered(translator, CONFIRMATION, {"confirmed": False})

    made: list[Event] = feed(responded("rm", "c1", said), translator=translator)

    response = only(ToolResponse, made)
    assert (response.status, response.is_error, response.data) == ("denied", is_error, said)


def test_a_constant_interrupt_id_makes_two_requests() -> None:
    """Workflow interrupts may use one id in every round."""
    translator, first = asked(INPUT, {"message": "1?"})
    answered(translator, INPUT, {"result": "a"})

    second = only(
        ElicitationRequest,
        feed(called(INPUT, "q1", {"message": "2?"}, id="e9", long_running_tool_ids={"q1"}), translator=translator),
    )

    assert first.request_id != second.request_id
    assert translator.adk_call_id(second.request_id) == "q1"
