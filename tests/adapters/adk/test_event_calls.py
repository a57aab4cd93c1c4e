"""One ADK Event to contract events: calls and what answers them, paired, and the usage that is reported beside them."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest
from google.genai import types
from tests.adapters.adk.make import call_part, called, delta, event, responded, said
from tests.adapters.adk.translated import Report, all_of, feed, only, usage_of

from agentsession.adapters.adk import Translator
from agentsession.protocol import (
    Custom,
    Error,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
)


def test_the_pieces_of_a_call_and_the_call_have_one_id() -> None:
    """R01: ADK gives the partial and the final call different ids; the host sees one, which ADK accepts."""
    piece = types.FunctionCall(name="write", id="adk-u1", will_continue=True)
    text = types.FunctionCall(
        id="adk-u9", will_continue=False, partial_args=[types.PartialArg(json_path="$.text", string_value="hi")]
    )
    translator = Translator()
    made = feed(
        event(types.Part(function_call=piece), id="e1", partial=True),
        event(types.Part(function_call=text), id="e1", partial=True),
        called("write", "adk-u2", {"text": "hi"}, id="e1"),
        translator=translator,
    )

    partial, whole = all_of(ToolRequest, made)
    assert (partial.partial, partial.args_delta, whole.args) == (True, '{"text":"hi"}', {"text": "hi"})
    assert partial.request_id == whole.request_id
    assert translator.adk_call_id(whole.request_id) == "adk-u2"
    assert translator.request_id("adk-u2") == whole.request_id


def test_a_whole_call_in_partial_events_is_one_request() -> None:
    """R08: partial, aggregated partial, final: one logical call."""
    made = feed(
        called("ask", "adk-1", {"q": 1}, id="e1", partial=True),
        called("ask", "adk-2", {"q": 1}, id="e1", partial=True),
        called("ask", "adk-3", {"q": 1}, id="e1", partial=False),
    )

    assert only(ToolRequest, made).request_id == "adk-3"


def test_two_equal_calls_in_one_turn_are_two_requests() -> None:
    """R08: identical arguments do not make two calls one."""
    made = feed(event(call_part("ask", "adk-1", {"q": 1}), call_part("ask", "adk-2", {"q": 1})))

    assert [request.request_id for request in all_of(ToolRequest, made)] == ["adk-1", "adk-2"]


def test_a_repeated_call_id_is_a_new_request_and_answers_are_paired_in_their_turn() -> None:
    """R26: turn 1 calls a, turn 4 calls b, both with the model's id call_807."""
    translator = Translator()
    first = feed(called("a", "call_807", id="e1"), translator=translator)
    feed(responded("a", "call_807", {"v": 1}), translator=translator)
    second = feed(called("b", "call_807", id="e5", invocation_id="i4"), translator=translator)
    made = feed(responded("b", "call_807", {"v": 2}, invocation_id="i4"), translator=translator)

    requests = [only(ToolRequest, first).request_id, only(ToolRequest, second).request_id]
    response = only(ToolResponse, made)
    assert len(set(requests)) == 2
    assert (response.request_id, response.name, response.data) == (requests[1], "b", {"v": 2})
    assert translator.adk_call_id(requests[1]) == "call_807"


def test_an_unanswered_call_of_an_earlier_turn_does_not_take_the_answer() -> None:
    made = feed(
        called("a", "call_1", id="e1"),
        called("a", "call_1", id="e2", invocation_id="i2"),
        responded("a", "call_1", {"v": 2}, invocation_id="i2"),
    )

    second = all_of(ToolRequest, made)[1]
    assert only(ToolResponse, made).request_id == second.request_id


def test_an_unanswered_call_of_an_earlier_step_does_not_take_the_answer() -> None:
    """Also not where the earlier one waits for a confirmation, which a result would break."""
    question = {"originalFunctionCall": {"id": "call_1", "name": "a"}, "toolConfirmation": {"hint": "?"}}
    made = feed(
        called("a", "call_1", id="e1"),
        called("adk_request_confirmation", "q1", question, id="e2", long_running_tool_ids={"q1"}),
        called("a", "call_1", id="e3"),
        responded("a", "call_1", {"v": 2}),
    )

    second = all_of(ToolRequest, made)[1]
    assert only(ToolResponse, made).request_id == second.request_id


def test_calls_of_two_branches_that_share_an_id_get_the_results_of_their_branches() -> None:
    made = feed(
        called("a", "call_1", id="e1", author="x", branch="both.x"),
        called("a", "call_1", id="e2", author="y", branch="both.y"),
        responded("a", "call_1", {"v": "x"}, author="x", branch="both.x"),
        responded("a", "call_1", {"v": "y"}, author="y", branch="both.y"),
    )

    threads = {request.request_id: request.thread_id for request in all_of(ToolRequest, made)}
    answered = [(threads[response.request_id], response.data["v"]) for response in all_of(ToolResponse, made)]
    assert answered == [("both.x", "x"), ("both.y", "y")]


def test_a_users_answer_to_a_repeated_id_is_for_the_latest_call_wherever_it_stands() -> None:
    made = feed(
        called("a", "call_1", id="e1", long_running_tool_ids={"call_1"}),
        called("a", "call_1", id="e2", author="y", branch="both.y", long_running_tool_ids={"call_1"}),
        responded("a", "call_1", {"v": "y"}, author="user"),
    )

    second = all_of(ToolRequest, made)[1]
    assert only(ToolResponse, made).request_id == second.request_id


def test_calls_without_ids_are_paired_by_name_and_order() -> None:
    made = feed(
        event(call_part("a", None, {"n": 1}), call_part("a", None, {"n": 2}), id="e1"),
        responded("a", None, {"v": 1}),
        responded("a", None, {"v": 2}),
    )

    requests = [request.request_id for request in all_of(ToolRequest, made)]
    assert len(set(requests)) == 2
    assert [(r.request_id, r.data) for r in all_of(ToolResponse, made)] == [
        (requests[0], {"v": 1}),
        (requests[1], {"v": 2}),
    ]


@pytest.mark.parametrize(("name", "shown"), [(None, ""), ("", ""), ("search_resumez", "search_resumez")])
def test_an_invented_or_missing_name_is_kept_as_text(name: str | None, shown: str) -> None:
    assert only(ToolRequest, feed(called(name, "c1"))).name == shown


@pytest.mark.parametrize("args", [[1, 2], "text", 7])
def test_arguments_that_are_no_object_are_absent_and_kept_beside(args: object) -> None:
    request = only(ToolRequest, feed(called("f", "c1", args)))

    assert request.args is None
    assert request.meta is not None
    assert request.meta["adk"]["invalidArgs"] is True
    assert request.meta["adk"]["rawArgs"] == args


def test_no_arguments_are_an_empty_object() -> None:
    assert only(ToolRequest, feed(event(types.Part(function_call=types.FunctionCall(name="f"))))).args == {}


@pytest.mark.parametrize("name", ["search", "adk_request_confirmation"])
def test_an_id_that_is_no_text_is_repaired_wherever_it_is_told(name: str) -> None:
    question = {"originalFunctionCall": {"id": "c1", "name": "a"}, "toolConfirmation": {"hint": "?"}}
    for item in feed(called(name, "\ud800", question, long_running_tool_ids={"\ud800"}), responded(name, "\ud800", {})):
        item.to_wire_json()  # raises where text is none


def test_a_transfer_is_shown_and_needs_nothing() -> None:
    translator = Translator(needs=lambda name, long_running: "grant")

    made = feed(
        called("transfer_to_agent", "c1", {"agent_name": "b"}), called("read", "c2", id="e2"), translator=translator
    )

    assert [request.needs for request in all_of(ToolRequest, made)] == ["none", "grant"]


def test_the_session_s_policy_says_what_a_call_needs_and_whose_it_is() -> None:
    asked: list[tuple[str, bool]] = []

    def needs(name: str, long_running: bool) -> str:
        asked.append((name, long_running))
        return "result"

    translator = Translator(needs=needs, owner=lambda name: "host")
    request = only(ToolRequest, feed(called("f", "c1", long_running_tool_ids={"c1"}), translator=translator))

    assert asked == [("f", True)]
    assert (request.needs, request.owner, request.long_running) == ("result", "host", True)


def test_a_call_that_is_a_delegation_is_not_shown() -> None:
    translator = Translator()
    translator.delegated.add("c1")

    assert feed(called("kid", "c1"), responded("kid", "c1", {}, author="user"), translator=translator) == []


def test_a_child_translator_gives_no_id_of_its_parent() -> None:
    parent = Translator()
    feed(called("f", "c1", id="e1"), translator=parent)
    child = Translator(parent=parent, thread_prefix="kid@c1")

    request = only(ToolRequest, feed(called("g", "c1", id="e1", author="kid"), translator=child))

    assert request.request_id != "c1"
    assert request.thread_id == "kid@c1"
    assert parent.adk_call_id(request.request_id) == "c1"


@pytest.mark.parametrize(
    ("response", "data", "is_error"),
    [
        ({"result": "42"}, "42", False),
        ({"result": None}, None, False),
        ({"result": 1, "more": 2}, {"result": 1, "more": 2}, False),
        ({"error": "no such file"}, {"error": "no such file"}, True),
        ({"error": None, "value": 1}, {"error": None, "value": 1}, False),
        ({"content": [], "isError": True}, {"content": [], "isError": True}, True),
    ],
)
def test_results_are_unwrapped_and_errors_marked(response: Any, data: Any, is_error: bool) -> None:
    made = only(ToolResponse, feed(called("f", "c1"), responded("f", "c1", response)))

    assert (made.data, made.is_error, made.status) == (data, is_error, "failed" if is_error else "completed")


def test_parallel_responses_of_another_invocation_belong_to_their_calls() -> None:
    """R92: ADK's merged response event may carry an invocation id of its own."""
    both = event(
        types.Part(function_response=types.FunctionResponse(id="c2", name="b", response={"v": 2})),
        types.Part(function_response=types.FunctionResponse(id="c1", name="a", response={"v": 1})),
        role="user",
        invocation_id="another",
    )

    made = feed(event(call_part("a", "c1"), call_part("b", "c2"), invocation_id="i1"), both)

    assert [(r.request_id, r.data) for r in all_of(ToolResponse, made)] == [("c2", {"v": 2}), ("c1", {"v": 1})]


def test_a_long_running_tool_s_first_word_is_an_update() -> None:
    made = feed(
        called("ask", "c1", long_running_tool_ids={"c1"}),
        responded("ask", "c1", {"status": "pending"}),
        responded("ask", "c1", {"result": "yes"}, author="user"),
    )

    assert only(ToolUpdate, made).data == {"status": "pending"}
    assert (only(ToolResponse, made).data, only(ToolResponse, made).source) == ("yes", "host")


def test_a_long_running_tool_that_fails_at_once_is_answered() -> None:
    made = feed(
        called("order", "c1", long_running_tool_ids={"c1"}), responded("order", "c1", {"error": "quantity is 0"})
    )

    assert (only(ToolResponse, made).status, all_of(ToolUpdate, made)) == ("failed", [])


def test_a_second_answer_changes_nothing_and_is_shown() -> None:
    made = feed(called("f", "c1"), responded("f", "c1", {"v": 1}), responded("f", "c1", {"v": 2}, author="user"))

    assert only(ToolResponse, made).data == {"v": 1}
    assert only(Custom, made).kind == "late_response"


def test_a_response_to_nothing_is_shown_and_answers_nothing() -> None:
    made = feed(responded("f", "c9", {"v": 1}))

    assert (only(Custom, made).kind, all_of(ToolResponse, made)) == ("stray_response", [])


def test_what_the_session_resolved_itself_is_not_said_again() -> None:
    translator = Translator()
    feed(called("f", "c1"), translator=translator)

    translator.resolve("c1")

    assert feed(responded("f", "c1", {"v": 1}), translator=translator) == []


def test_a_wrong_name_in_a_response_is_noted_and_the_request_s_name_shown() -> None:
    response = only(ToolResponse, feed(called("a", "c1"), responded("b", "c1", {"v": 1})))

    assert response.name == "a"
    assert response.meta is not None
    assert response.meta["adk"]["responseName"] == "b"


def test_files_in_a_result_are_content() -> None:
    image = types.FunctionResponsePart(inline_data=types.FunctionResponseBlob(data=b"\x00", mime_type="image/png"))
    made = types.FunctionResponse(id="c1", name="shot", response={"ok": True}, parts=[image])

    response = only(ToolResponse, feed(called("shot", "c1"), event(types.Part(function_response=made), role="user")))

    assert [part.to_wire() for part in response.content] == [{"type": "media", "mimeType": "image/png", "data": "AA=="}]


def test_python_values_in_a_result_become_json() -> None:
    """R31: models, sets, dates and NaN by rule."""
    value = {
        "when": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC),
        "report": Report(title="t", tags={"b", "a"}),
        "nan": math.nan,
        "raw": b"\x00",
    }

    response = only(ToolResponse, feed(called("f", "c1"), responded("f", "c1", value)))

    assert response.data == {
        "when": "2026-01-31T00:00:00+00:00",
        "report": {"title": "t", "tags": ["a", "b"]},
        "nan": "NaN",
        "raw": {"$bytes": "AA=="},
    }


def test_what_json_cannot_say_in_a_result_is_an_error_with_its_path() -> None:
    """R31: unknown types are named by their key path; the rest of the result stays."""
    made = feed(called("f", "c1"), responded("f", "c1", {"ok": 1, "bad": {"fn": len}}))

    assert "/bad/fn" in only(Error, made).message
    assert only(ToolResponse, made).data["ok"] == 1


def test_calls_that_an_abort_sealed_are_unknown_when_they_ran_and_cancelled_when_they_waited() -> None:
    made = feed(
        event(call_part("ran", "c1"), call_part("waited", "c2"), long_running_tool_ids={"c2"}),
        responded("ran", "c1", {"error": "aborted"}, error_code="INVOCATION_ABORTED"),
        responded("waited", "c2", {"error": "aborted"}, error_code="INVOCATION_ABORTED"),
    )

    assert [r.status for r in all_of(ToolResponse, made)] == ["unknown", "cancelled"]
    assert all_of(Error, made) == []


def test_usage_without_content_is_reported() -> None:
    """R21: the last chunk of a turn that ends in a tool call has counts and no content."""
    made = feed(event(usage_metadata=usage_of(prompt_token_count=900, candidates_token_count=40)))

    usage = only(Usage, made)
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (900, 40, None)


def test_usage_that_only_a_partial_event_had_is_reported_once_with_the_final() -> None:
    made = feed(
        delta("a", usage_metadata=usage_of(prompt_token_count=5)),
        delta("b", usage_metadata=usage_of(prompt_token_count=5, candidates_token_count=2)),
        said("ab", id="e1"),
    )

    assert (only(Usage, made).input_tokens, only(Usage, made).output_tokens) == (5, 2)


def test_no_counts_are_no_usage() -> None:
    assert all_of(Usage, feed(said("a", usage_metadata=usage_of()))) == []


@pytest.mark.parametrize(
    ("total", "output"),
    [(60, 20), (80, 40), (None, 40)],  # counted inside the output (LiteLLM); apart (Gemini); not known: apart
)
def test_output_is_without_reasoning(total: int | None, output: int) -> None:
    counts = usage_of(
        prompt_token_count=20, candidates_token_count=40, thoughts_token_count=20, total_token_count=total
    )

    usage = only(Usage, feed(said("a", usage_metadata=counts)))

    assert (usage.output_tokens, usage.reasoning_tokens) == (output, 20)
