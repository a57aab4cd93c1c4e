"""How a run ends: outcomes, interrupts, usage, errors."""

from __future__ import annotations

from typing import Any

import pytest
from ag_ui.core import Interrupt
from tests.host.agui.story import Story
from tests.host.agui.streams import kinds, of_type

from agentsession.host.agui import Known, OutOptions, RunMapper, interrupt_of
from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    Custom,
    ElicitationRequest,
    Error,
    Event,
    SessionUpdate,
    StreamEnd,
    Text,
    ToolDecision,
    ToolDescriptor,
    ToolRequest,
    UnknownEvent,
    Usage,
    args_digest,
)

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def ended(
    reason: str = "completed", *events: tuple[type[Event], dict[str, Any]], **fields: Any
) -> list[dict[str, Any]]:
    story = Story()
    story.turn()
    for cls, given in events:
        story.add(cls, **given)
    story.end(reason, **fields)
    return story.run()


def asking(**fields: Any) -> dict[str, Any]:
    """The one interrupt of a run that ends with a question."""
    story = Story()
    story.turn()
    story.add(ElicitationRequest, **{"request_id": "q-1", "message": "Well?", **fields})
    story.end("input_required")
    (found,) = story.run()[-1]["outcome"]["interrupts"]
    return dict(found)


# -- the beginning ----------------------------------------------------------------------------------------------------


def test_a_run_begins_with_the_version_of_the_protocol_and_what_it_is_of() -> None:
    mapper = RunMapper(thread_id="t", run_id="r", known=Known(), parent_run_id="r-0")
    assert mapper.start(session_id="s", turn_id="u") == [
        {
            "type": "RUN_STARTED",
            "threadId": "t",
            "runId": "r",
            "parentRunId": "r-0",
            "protocolVersion": "1.0",
            "metadata": {"agentsession": {"sessionId": "s", "turnId": "u"}},
        }
    ]


# -- outcomes ---------------------------------------------------------------------------------------------------------


def test_a_completed_turn_is_a_success_with_the_roots_result() -> None:
    story = Story()
    story.turn()
    story.add(AgentEnd, agent_id="root", result={"answer": 42})
    story.add(StreamEnd, reason="completed", source="host", data={"empty": True})
    end = of_type(story.run(), "RUN_FINISHED")
    assert end == [
        {
            "type": "RUN_FINISHED",
            "threadId": "t",
            "runId": "r",
            "outcome": {"type": "success"},
            "result": {"answer": 42},
            "metadata": {"agentsession": {"reason": "completed", "empty": True}},
        }
    ]


def test_an_aborted_turn_is_cancelled() -> None:
    assert ended("aborted")[-1]["outcome"] == {"type": "cancelled"}


@pytest.mark.parametrize("reason", ["refusal", "max_tokens", "x-not-known"])
def test_an_end_that_is_no_failure_is_a_success_that_says_it(reason: str) -> None:
    end = ended(reason)[-1]
    assert (end["outcome"], end["metadata"]["agentsession"]["reason"]) == ({"type": "success"}, reason)


@pytest.mark.parametrize("reason", ["failed", "max_turns", "max_llm_calls", "max_budget", "max_time", "deadline"])
def test_an_end_that_is_a_failure_is_an_error_with_its_reason(reason: str) -> None:
    end = ended(reason)[-1]
    assert (end["type"], end["code"]) == ("RUN_ERROR", reason)


def test_a_fatal_error_is_the_runs_error() -> None:
    error = (Error, {"status": "UNAVAILABLE", "message": "The model is gone.", "fatal": True, "code": "gone"})
    out = ended("failed", error)
    assert kinds(out)[-1] == "RUN_ERROR"
    assert (out[-1]["message"], out[-1]["code"]) == ("The model is gone.", "gone")
    assert "CUSTOM" not in kinds(out)


def test_an_error_that_ends_nothing_is_a_custom_event() -> None:
    out = ended("completed", (Error, {"status": "UNAVAILABLE", "message": "again"}))
    assert of_type(out, "CUSTOM") == [
        {"type": "CUSTOM", "name": "agentsession:error", "value": {"status": "UNAVAILABLE", "message": "again"}}
    ]
    assert out[-1]["outcome"] == {"type": "success"}


def test_an_error_in_the_middle_closes_what_is_open_first() -> None:
    story = Story()
    story.turn()
    story.delta("m-1", Text(text="Half"), 0)
    story.add(ToolRequest, request_id="r-1", name="run", args_delta='{"a": [', partial=True)
    mapper, out = story.open()
    out += mapper.fail("history_conflict", "It says something else.")
    assert kinds(out)[-1] == "RUN_ERROR"
    assert mapper.is_over
    assert {"TEXT_MESSAGE_END", "TOOL_CALL_END", "STEP_FINISHED"} <= set(kinds(out))


def test_a_settlement_before_a_turn_in_one_run_is_no_outcome() -> None:
    story = Story()
    story.turn()
    story.call("r-1")
    story.end("input_required")
    story.run()
    story.resume(None)
    story.answer("r-1", status="cancelled", is_error=True)
    story.end("aborted", agents=())
    story.turn("go on")
    story.end()
    out = story.run(is_resumed=True)
    assert kinds(out).count("RUN_FINISHED") == 1
    assert out[-1]["outcome"] == {"type": "success"}


# -- what waits -------------------------------------------------------------------------------------------------------


def test_calls_of_the_client_that_wait_are_a_success_that_names_them() -> None:
    story = Story()
    story.turn()
    story.call("r-1")
    story.call("r-2")
    story.end("input_required")
    out = story.run()
    assert out[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["r-1", "r-2"]}
    assert "MESSAGES_SNAPSHOT" not in kinds(out)


def test_calls_of_an_earlier_run_that_still_wait_are_named_too() -> None:
    story = Story()
    story.turn()
    for request_id in ("r-1", "r-2"):
        story.call(request_id)
    story.end("input_required")
    story.run()
    story.answer("r-1", stream_id=None)
    story.unseen()
    mapper, _ = story.open()
    end = mapper.finish(StreamEnd(reason="input_required", pending=["r-2"]))
    assert end[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["r-2"]}


def test_a_call_that_the_client_does_not_run_waits_to_be_allowed() -> None:
    story = Story()
    story.add(SessionUpdate, tools=[ToolDescriptor(name="rm", parameters_schema=SCHEMA)], source="host")
    story.turn()
    story.call("r-1", "rm")
    story.call("r-2", "pick")
    story.end("input_required")
    end = story.run(client_tools=["pick"])[-1]
    assert [item["id"] for item in end["outcome"]["interrupts"]] == ["r-1"]
    assert end["metadata"]["agentsession"]["pendingToolCallIds"] == ["r-2"]


def test_before_an_interrupt_the_client_is_told_everything() -> None:
    story = Story()
    story.add(SessionUpdate, state_snapshot={"a": 1, "_b": 2}, source="host")
    story.turn("Delete it", message_id="u-1")
    story.call("r-1", needs="grant")
    story.end("input_required")
    out = story.run(begin={"client_state": {"a": 1}})
    assert kinds(out)[-3:] == ["STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert out[-3]["snapshot"] == {"a": 1}
    assert [item["id"] for item in out[-2]["messages"]] == ["u-1", "r-1"]


def test_a_grant_is_an_interrupt_of_the_real_call_with_the_schema_of_its_edited_arguments() -> None:
    own = ToolDescriptor(name="rm", parameters_schema=SCHEMA, owner="agent")
    story = Story(AgentDescriptor(name="root", executor="x", own_tools=[own]))
    story.turn()
    story.call("r-1", "rm", needs="grant")
    story.end("input_required")
    (found,) = story.run()[-1]["outcome"]["interrupts"]
    assert (found["id"], found["reason"], found["toolCallId"]) == ("r-1", "tool_call", "r-1")
    assert found["responseSchema"]["properties"] == {
        "approved": {"type": "boolean"},
        "editedArgs": SCHEMA,
        "reason": {"type": "string"},
    }
    assert found["responseSchema"]["required"] == ["approved"]


def test_a_confirmation_is_an_interrupt_of_the_call_that_it_is_for() -> None:
    form = {"type": "object", "properties": {"why": {"type": "string"}}}
    story = Story()
    story.turn()
    story.call("r-1", needs="none")
    story.add(
        ElicitationRequest,
        request_id="q-1",
        kind="tool_confirmation",
        message="Really?",
        tool_request_id="r-1",
        requested_schema=form,
    )
    story.end("input_required")
    (found,) = story.run()[-1]["outcome"]["interrupts"]
    assert (found["id"], found["reason"], found["toolCallId"]) == ("q-1", "tool_call", "r-1")
    assert found["responseSchema"]["properties"] == {"approved": {"type": "boolean"}, "payload": form}


def test_an_approval_is_a_confirmation() -> None:
    found = asking(kind="user_approval", title="Deploy", expires_at="2026-02-01T00:00:00Z", context={"to": "prod"})
    assert found == {
        "id": "q-1",
        "reason": "confirmation",
        "message": "Well?",
        "expiresAt": "2026-02-01T00:00:00Z",
        "responseSchema": {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]},
        "metadata": {"agentsession": {"kind": "user_approval", "title": "Deploy", "context": {"to": "prod"}}},
    }


def test_a_sign_in_names_the_address_and_asks_for_one_of_two_answers() -> None:
    found = asking(kind="auth_required", url="https://id.example/login")
    assert found["reason"] == "agentsession:auth_required"
    assert found["metadata"]["url"] == "https://id.example/login"
    assert set(found["responseSchema"]["properties"]) == {"credential", "auth_response_uri"}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("clarification", "input_required"),
        ("model_fallback", "agentsession:model_fallback"),
        ("x_open", "agentsession:x_open"),
    ],
)
def test_other_questions_ask_for_what_they_ask_for(kind: str, reason: str) -> None:
    found = asking(kind=kind, requested_schema=SCHEMA)
    assert (found["reason"], found["responseSchema"]) == (reason, SCHEMA)


def test_an_interrupt_is_one_of_the_models() -> None:
    found = interrupt_of(ToolRequest(request_id="r-1", name="rm", needs="grant"), subagent_run_id="c#1")
    assert Interrupt.model_validate(found).subagent_run_id == "c#1"


def test_what_the_host_asks_itself_is_an_interrupt_too() -> None:
    story = Story()
    story.turn()
    story.call("r-1")
    story.end("input_required")
    mapper, _ = story.open()
    end = mapper.finish(interrupts=[{"id": "h-1", "reason": "confirmation"}], history=story.events)[-1]
    assert [item["id"] for item in end["outcome"]["interrupts"]] == ["h-1"]


def test_how_a_question_was_answered_is_told_without_what_was_said() -> None:
    from agentsession.protocol import ElicitationResponse

    out = ended(
        "completed",
        (ElicitationRequest, {"request_id": "q-1", "kind": "clarification", "message": "Code?"}),
        (
            ElicitationResponse,
            {"request_id": "q-1", "action": "accept", "content": {"code": "hunter2"}, "source": "host"},
        ),
    )
    assert of_type(out, "CUSTOM") == [
        {
            "type": "CUSTOM",
            "name": "agentsession:elicitation_response",
            "value": {"requestId": "q-1", "action": "accept"},
        }
    ]
    assert "hunter2" not in str(out)


# -- usage ------------------------------------------------------------------------------------------------------------


def test_usage_is_summed_for_each_model_and_counts_reasoning_as_output() -> None:
    out = ended(
        "completed",
        (Usage, {"model": "a", "input_tokens": 10, "output_tokens": 2, "reasoning_tokens": 3, "cost": 0.25}),
        (Usage, {"model": "b", "input_tokens": 1}),
        (Usage, {"model": "a", "input_tokens": 5, "cached_tokens": 4, "total_tokens": 7, "cost": 0.5}),
    )
    assert out[-1]["usage"] == [
        {
            "model": "a",
            "inputTokens": 15,
            "outputTokens": 5,
            "reasoningTokens": 3,
            "cachedInputTokens": 4,
            "totalTokens": 7,
        },
        {"model": "b", "inputTokens": 1},
    ]
    assert out[-1]["metadata"]["agentsession"]["cost"] == 0.75


def test_an_error_has_the_usage_too() -> None:
    assert ended("failed", (Usage, {"input_tokens": 10}))[-1]["usage"] == [{"inputTokens": 10}]


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_a_custom_event_has_our_prefix() -> None:
    out = ended("completed", (Custom, {"kind": "citation", "data": {"n": 1}}))
    assert of_type(out, "CUSTOM") == [{"type": "CUSTOM", "name": "agentsession:citation", "value": {"n": 1}}]


def test_a_plan_is_one_activity_that_is_replaced() -> None:
    out = ended("completed", *[(Custom, {"kind": "plan", "data": {"entries": [step]}}) for step in ("a", "b")])
    found = of_type(out, "ACTIVITY_SNAPSHOT")
    assert len({event["messageId"] for event in found}) == 1
    assert [event["content"] for event in found] == [{"entries": ["a"]}, {"entries": ["b"]}]


def test_each_widget_is_an_activity_of_its_own() -> None:
    out = ended("completed", *[(Custom, {"kind": "ui_widget", "data": [n]}) for n in (1, 2)])
    found = of_type(out, "ACTIVITY_SNAPSHOT")
    assert len({event["messageId"] for event in found}) == 2
    assert found[0]["content"] == {"data": [1]}


def test_an_event_of_an_unknown_type_is_left_out_unless_raw_ones_are_asked_for() -> None:
    story = Story()
    story.turn()
    story.add(UnknownEvent, type="x_later", hello=1)
    story.end()
    assert "RAW" not in kinds(story.run())
    story._begun = 0
    found = of_type(story.run(options=OutOptions(raw=True)), "RAW")
    assert (found[0]["source"], found[0]["event"]["hello"]) == ("agentsession", 1)


def test_a_fatal_error_of_a_stream_before_is_not_the_runs() -> None:
    story = Story()
    story.turn()
    story.add(Error, status="INTERNAL", message="broken", fatal=True)
    story.end("failed")
    story.turn("again")
    story.end()
    assert story.run()[-1]["outcome"] == {"type": "success"}


def test_a_result_of_a_turn_that_did_not_complete_is_not_the_runs() -> None:
    story = Story()
    story.turn()
    story.add(AgentEnd, agent_id="root", result="half")
    story.add(StreamEnd, reason="max_tokens", source="host")
    assert "result" not in story.run()[-1]


def test_the_last_event_has_the_time_of_the_streams_end() -> None:
    assert ended()[-1]["timestamp"] == 1769860800000


def test_what_an_end_does_not_name_does_not_wait() -> None:
    story = Story()
    story.turn()
    story.call("r-1")
    story.call("r-2")
    story.end("input_required")
    mapper, _ = story.open()
    end = mapper.finish(StreamEnd(reason="input_required", pending=["r-2"]))[-1]
    assert end["outcome"]["pendingToolCallIds"] == ["r-2"]


def test_what_was_granted_waits_no_longer() -> None:
    story = Story()
    story.turn()
    story.call("r-1", needs="grant")
    story.add(ToolDecision, request_id="r-1", decision="granted", args_digest=args_digest({}), source="host")
    known = Known.of(story.events)
    assert (list(known.asked), list(known.calls)) == ([], ["r-1"])


def test_an_unknown_event_that_is_called_like_one_of_ag_ui_is_put_into_an_object() -> None:
    story = Story()
    story.turn()
    story.add(UnknownEvent, type="TEXT_MESSAGE_START", hello=1)
    story.end()
    assert "type" not in of_type(story.run(options=OutOptions(raw=True)), "RAW")[0]["event"]
