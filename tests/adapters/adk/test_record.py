"""Stored sessions as whole records: they pass the session machine and the published schema, and say what ADK stored."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types
from hypothesis import given, settings
from tests.adapters.adk.make import (
    call_part,
    called,
    delta,
    event,
    old_agent,
    responded,
    said,
    schema_validator,
    user_said,
)
from tests.adapters.adk.strategies import histories
from tests.adapters.adk.translated import all_of, only

from agentsession.adapters.adk import ScriptedLlm, call, calls, describe_agent, error, map_events, say, stream
from agentsession.adapters.adk._errors import SEALED_CODE, SEALS
from agentsession.protocol import (
    AgentDescriptor,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Message,
    SessionMachine,
    StreamEnd,
    ToolRequest,
    ToolResponse,
    event_schema,
    parse_event,
    plain_text,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # ADK's own sequential and parallel agents


@functools.cache
def validator() -> Any:
    return schema_validator(event_schema())


def record(events: list[AdkEvent], descriptor: AgentDescriptor | None = None, *, schema: bool = True) -> list[Event]:
    """The record of a history; every event was checked by the machine, the models and, if ``schema``, the schema."""
    machine = SessionMachine()
    made = list(map_events(events, descriptor, session_id="s-1"))
    for item in made:
        machine.feed(item)
        text = item.to_wire_json()
        assert parse_event(text).to_wire_json() == text
        if schema:
            validator().validate(json.loads(text))
    assert machine.stream_id is None
    return made


def outline(events: list[Event]) -> list[str]:
    """What a reader sees at a glance: types, with who or why."""
    out: list[str] = []
    for item in events:
        wire = item.to_wire()
        mark = {
            "agent_start": wire.get("agentId"),
            "agent_end": f"{wire.get('agentId')} {wire.get('reason')}",
            "stream_end": wire.get("reason"),
            "message": wire.get("role"),
            "tool_request": wire.get("name"),
            "tool_response": wire.get("status"),
            "elicitation_response": wire.get("action"),
        }.get(wire["type"], "")
        out.append(f"{wire['type']} {mark}".strip())
    return out


@given(histories())
@settings(max_examples=60)
def test_any_history_becomes_a_valid_record(history: list[AdkEvent]) -> None:
    record(history, schema=False)


@given(histories())
@settings(max_examples=10)
def test_any_history_validates_against_the_published_schema(history: list[AdkEvent]) -> None:
    record(history)


def test_a_turn_has_brackets_and_one_end() -> None:
    made = record([user_said("hi"), called("f", "c1"), responded("f", "c1", {"v": 1}), said("done")])

    assert outline(made) == [
        "initialize",
        "message user",
        "agent_start root",
        "tool_request f",
        "tool_response completed",
        "message agent",
        "agent_end root completed",
        "stream_end completed",
    ]


def test_the_times_are_adk_s() -> None:
    made = record([user_said("hi", timestamp=1733043686.5), said("yo", timestamp=1733043687.25)])

    assert [item.timestamp for item in all_of(Message, made)] == [
        "2024-12-01T09:01:26.500Z",
        "2024-12-01T09:01:27.250Z",
    ]


def test_all_events_of_a_turn_share_its_ids() -> None:
    """R92: whatever invocation ids ADK gave them."""
    made = record(
        [user_said("hi"), called("f", "c1", invocation_id="i1"), responded("f", "c1", {}, invocation_id="other")]
    )

    assert {(item.turn_id, item.stream_id) for item in made[1:]} == {("turn-1", "stream-1")}


def test_a_call_that_waits_ends_the_stream_and_its_answer_continues_the_turn() -> None:
    made = record(
        [
            user_said("hi"),
            called("ask", "c1", long_running_tool_ids={"c1"}),
            responded("ask", "c1", {"result": "yes"}, author="user"),
            said("thanks"),
        ]
    )

    assert outline(made)[2:] == [
        "agent_start root",
        "tool_request ask",
        "agent_end root input_required",
        "stream_end input_required",
        "tool_response completed",
        "agent_start root",
        "message agent",
        "agent_end root completed",
        "stream_end completed",
    ]
    assert [end.pending for end in all_of(StreamEnd, made)] == [["c1"], []]
    assert {item.turn_id for item in made[1:]} == {"turn-1"}


def test_a_message_over_a_waiting_call_settles_it_first() -> None:
    made = record(
        [user_said("hi"), called("ask", "c1", long_running_tool_ids={"c1"}), user_said("never mind"), said("ok")]
    )

    ends = [(end.turn_id, end.reason) for end in all_of(StreamEnd, made)]
    assert ends == [("turn-1", "input_required"), ("turn-1", "aborted"), ("turn-2", "completed")]
    assert only(ToolResponse, made).status == "cancelled"


def test_an_answer_to_an_earlier_turn_answers_nothing() -> None:
    made = record(
        [
            user_said("hi"),
            called("ask", "c1", long_running_tool_ids={"c1"}),
            user_said("never mind"),
            said("ok"),
            responded("ask", "c1", {"result": "late"}, author="user"),
        ]
    )

    assert only(ToolResponse, made).status == "cancelled"


def test_a_native_call_without_a_response_is_unknown() -> None:
    made = record([user_said("hi"), called("f", "c1")])

    assert only(ToolResponse, made).status == "unknown"


def test_a_session_that_ends_waiting_has_its_requests_pending() -> None:
    made = record([user_said("hi"), called("ask", "c1", long_running_tool_ids={"c1"})])

    assert all_of(StreamEnd, made)[-1].pending == ["c1"]


def test_an_answer_of_the_user_s_belongs_to_the_agent_that_asked() -> None:
    asked = called("ask", "c1", long_running_tool_ids={"c1"}, author="b", branch="par.b")

    made = record([user_said("hi"), asked, responded("ask", "c1", {"result": 1}, author="user")])

    response = only(ToolResponse, made)
    assert (response.source, response.agent_id, response.thread_id) == ("host", "b", "par.b")


@pytest.mark.parametrize("status", ["unknown", "cancelled"])
def test_what_this_adapter_sealed_is_no_error_and_keeps_its_status(status: str) -> None:
    sealed = responded("f", "c1", dict(SEALS[status]), error_code=SEALED_CODE, error_message="the run ended")

    made = record([user_said("hi"), called("f", "c1"), sealed, said("ok")])

    response = only(ToolResponse, made)
    assert (response.status, response.data) == (status, None)
    assert "error" not in outline(made)
    assert all_of(StreamEnd, made)[-1].reason == "completed"


def test_a_result_that_only_looks_like_a_seal_is_a_result() -> None:
    made = record([user_said("hi"), called("f", "c1"), responded("f", "c1", dict(SEALS["cancelled"])), said("ok")])

    assert (only(ToolResponse, made).status, only(ToolResponse, made).data) == ("failed", SEALS["cancelled"])


def test_a_rewind_closes_what_it_takes_back() -> None:
    rewind = event(author="user", actions=EventActions(rewind_before_invocation_id="i1"), invocation_id="i2")

    made = record([user_said("hi"), called("ask", "c1", long_running_tool_ids={"c1"}), rewind])

    assert only(ToolResponse, made).status == "cancelled"
    assert "custom" in outline(made)


def test_a_stream_that_was_cut_is_closed_interrupted() -> None:
    made = record([user_said("hi"), delta("Hel", id="m"), delta("lo", id="m")])

    closing = [message for message in all_of(Message, made) if message.role == "agent" and not message.partial]
    assert [(plain_text(message.content), message.interrupted) for message in closing] == [("Hello", True)]


def test_a_handoff_ends_one_agent_and_starts_the_other() -> None:
    transfer = responded("transfer_to_agent", "c1", {}, actions=EventActions(transfer_to_agent="b"), author="a")

    made = record([user_said("hi"), called("transfer_to_agent", "c1", author="a"), transfer, said("hello", author="b")])

    assert "agent_end a handoff" in outline(made)
    assert outline(made)[-3:] == ["message agent", "agent_end b completed", "stream_end completed"]


def test_an_agent_that_takes_over_while_it_streams_keeps_its_message() -> None:
    """The agent before it ends at its first delta; that closes what the other had open, and not this message."""
    made = record(
        [
            user_said("hi"),
            delta("cut", id="m1", author="a"),
            delta("He", id="m2", author="b"),
            delta("llo", id="m2", author="b"),
            said("Hello", id="m2", author="b"),
        ]
    )

    whole = [item for item in all_of(Message, made) if item.role == "agent" and not item.partial]
    assert [(item.agent_id, plain_text(item.content), item.interrupted) for item in whole] == [
        ("a", "cut", True),
        ("b", "Hello", False),
    ]
    assert "custom" not in outline(made)


def test_children_end_before_the_agent_they_hang_under() -> None:
    made = record(
        [
            user_said("hi"),
            said("1", author="b", branch="par.b"),
            said("2", author="c", branch="par.c"),
            said("3", author="z"),
        ]
    )

    assert outline(made)[2:-1] == [
        "agent_start par",
        "agent_start b",
        "message agent",
        "agent_start c",
        "message agent",
        "agent_end c completed",
        "agent_end b completed",
        "agent_end par completed",
        "agent_start z",
        "message agent",
        "agent_end z completed",
    ]


def test_a_turn_in_which_nothing_was_said_says_so() -> None:
    made = record([user_said("hi"), event(error_code="STOP", id="e2")])

    assert only(StreamEnd, made).data == {"empty": True}


@pytest.mark.parametrize(
    ("code", "reason"),
    [("SAFETY", "refusal"), ("MAX_TOKENS", "max_tokens"), ("Boom", "failed"), ("INVOCATION_ABORTED", "aborted")],
)
def test_a_turn_ends_with_the_reason_of_its_last_response(code: str, reason: str) -> None:
    made = record([user_said("hi"), event(error_code=code, id="e2")])

    assert only(StreamEnd, made).reason == reason


@pytest.mark.parametrize("before", [[], [user_said("hi")]])
@pytest.mark.parametrize("author", ["root", ""])
def test_a_response_that_was_cut_before_it_said_anything_is_all_that_its_agent_did(
    before: list[Any], author: str
) -> None:
    counts = types.GenerateContentResponseUsageMetadata(prompt_token_count=3)
    made = record([*before, event(id="e2", partial=True, error_code="SAFETY", usage_metadata=counts, author=author)])

    kinds = [item.type for item in made if item.type != "message"]
    assert kinds == ["initialize", "agent_start", "usage", "error", "agent_end", "stream_end"]
    assert only(StreamEnd, made).reason == "refusal"


def test_responses_of_two_agents_that_were_cut_are_closed_by_the_agent_at_work_first() -> None:
    made = record([event(id="e1", partial=True, error_code="SAFETY", author="other"), delta("hello", id="e2")])

    assert [(item.type, item.agent_id) for item in made if item.type in ("agent_start", "message", "agent_end")] == [
        ("agent_start", "root"),
        ("message", "root"),
        ("message", "root"),
        ("agent_end", "root"),
        ("agent_start", "other"),
        ("agent_end", "other"),
    ]
    assert not [item for item in made if item.type == "custom"]


def test_a_question_under_the_id_of_a_call_that_was_shown_in_pieces_is_a_request_of_its_own() -> None:
    piece = types.FunctionCall(
        id="c1", name="search", partial_args=[types.PartialArg(json_path="$.a", string_value="b")]
    )
    question = {"originalFunctionCall": {"id": "c1", "name": "search"}, "toolConfirmation": {"hint": "?"}}
    made = record(
        [
            user_said("hi"),
            event(types.Part(function_call=piece), id="e2", partial=True),
            called("adk_request_confirmation", "c1", question, id="e3", long_running_tool_ids={"c1"}),
            responded("adk_request_confirmation", "c1", {"confirmed": True}, author="user"),
        ]
    )

    shown, asked = only(ToolRequest, made), only(ElicitationRequest, made)
    assert shown.request_id != asked.request_id
    assert only(ElicitationResponse, made).request_id == asked.request_id


def test_text_and_an_answer_in_one_message_are_an_answer_and_then_a_message() -> None:
    both = event(
        types.Part(function_response=types.FunctionResponse(id="c1", name="ask", response={"result": "yes"})),
        types.Part(text="and more"),
        author="user",
        role="user",
    )

    made = record([user_said("hi"), called("ask", "c1", long_running_tool_ids={"c1"}), both, said("ok")])

    assert only(ToolResponse, made).status == "completed"
    assert [m.turn_id for m in all_of(Message, made) if m.role == "user"] == ["turn-1", "turn-2"]


def test_what_breaks_a_rule_is_kept_as_it_is() -> None:
    """A confirmation accepted after the tool had answered: no ADK writes that, a file may."""
    question = {"originalFunctionCall": {"id": "c1", "name": "rm"}, "toolConfirmation": {"hint": "?"}}
    made = record(
        [
            user_said("hi"),
            called("rm", "c1"),
            called("adk_request_confirmation", "q1", question, id="e3", long_running_tool_ids={"q1"}),
            responded("rm", "c1", {"result": "removed"}),
        ]
    )

    kept = next(item.to_wire() for item in made if item.to_wire().get("kind") == "adk:unplaced")
    assert kept["data"]["rule"] == "HITL-01"
    assert kept["data"]["event"]["data"] == "removed"


# --- sessions that ADK itself ran -------------------------------------------------------------------------------------


def rm(path: str) -> str:
    """Remove a file."""
    return f"removed {path}"


def ask(question: str) -> None:
    """Ask somebody."""
    del question


def read(path: str) -> dict[str, str]:
    """Read a file."""
    return {"text": path}


def answer_to(name: str, response: dict[str, Any]) -> Callable[[list[AdkEvent]], types.Content]:
    def make(events: list[AdkEvent]) -> types.Content:
        found = next(made for one in reversed(events) for made in one.get_function_calls() if made.name == name)
        part = types.Part(function_response=types.FunctionResponse(id=found.id, name=name, response=response))
        return types.Content(role="user", parts=[part])

    return make


async def run_adk(agent: Any, *inputs: str | Callable[[list[AdkEvent]], types.Content]) -> list[AdkEvent]:
    """Run ADK itself, and return what it stored."""
    runner = InMemoryRunner(agent=agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    for given_input in inputs:
        stored = await runner.session_service.get_session(app_name="app", user_id="u", session_id=session.id)
        assert stored is not None
        message = types.UserContent(given_input) if isinstance(given_input, str) else given_input(stored.events)
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message):
            pass
    stored = await runner.session_service.get_session(app_name="app", user_id="u", session_id=session.id)
    assert stored is not None
    return stored.events


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # ADK runs on nothing else


@pytest.mark.anyio
async def test_parallel_calls_of_a_real_run() -> None:
    model = ScriptedLlm(script=[calls(call("read", {"path": "a"}), call("read", {"path": "b"})), stream("do", "ne")])
    agent = LlmAgent(name="coder", model=model, tools=[read])

    made = record(await run_adk(agent, "go"), describe_agent(agent))

    assert outline(made)[2:] == [
        "agent_start coder",
        "tool_request read",
        "tool_request read",
        "tool_response completed",
        "tool_response completed",
        "message agent",
        "agent_end coder completed",
        "stream_end completed",
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(("confirmed", "status"), [(True, "completed"), (False, "denied")])
async def test_a_confirmation_of_a_real_run(confirmed: bool, status: str) -> None:
    model = ScriptedLlm(script=[call("rm", {"path": "x"}), say("done")])
    agent = LlmAgent(name="coder", model=model, tools=[FunctionTool(rm, require_confirmation=True)])

    events = await run_adk(agent, "go", answer_to("adk_request_confirmation", {"confirmed": confirmed}))
    made = record(events, describe_agent(agent))

    assert [end.reason for end in all_of(StreamEnd, made)] == ["input_required", "completed"]
    assert only(ToolResponse, made).status == status


@pytest.mark.anyio
async def test_a_long_running_tool_of_a_real_run() -> None:
    model = ScriptedLlm(script=[call("ask", {"question": "?"}), say("thanks")])
    agent = LlmAgent(name="coder", model=model, tools=[LongRunningFunctionTool(ask)])

    made = record(await run_adk(agent, "go", answer_to("ask", {"result": "yes"})), describe_agent(agent))

    assert (only(ToolResponse, made).data, only(ToolResponse, made).source) == ("yes", "host")


@pytest.mark.anyio
async def test_a_pipeline_of_a_real_run() -> None:
    model = ScriptedLlm(forever="x")
    parallel = old_agent(
        "ParallelAgent", name="par", sub_agents=[LlmAgent(name="b", model=model), LlmAgent(name="c", model=model)]
    )
    agent = old_agent("SequentialAgent", name="seq", sub_agents=[LlmAgent(name="a", model=model), parallel])

    made = record(await run_adk(agent, "go"), describe_agent(agent))

    assert {(item.agent_id, item.thread_id) for item in all_of(Message, made) if item.role == "agent"} == {
        ("a", None),
        ("b", "par.b"),
        ("c", "par.c"),
    }


@pytest.mark.anyio
async def test_a_delegation_over_two_turns_of_a_real_run_is_brackets() -> None:
    model = ScriptedLlm(script=[call("kid", {"request": "x"}), "which?", call("finish_task", {"result": "ok"}), "done"])
    agent = LlmAgent(name="root", model=model, sub_agents=[LlmAgent(name="kid", model=model, mode="task")])

    made = record(await run_adk(agent, "go", "that one"), describe_agent(agent))

    assert "tool_request kid" not in outline(made)
    assert outline(made).count("agent_start kid") == 2


@pytest.mark.anyio
async def test_an_agent_tool_of_a_real_run_is_a_tool() -> None:
    model = ScriptedLlm(script=[call("kid", {"request": "x"}), "42", "done"])
    agent = LlmAgent(name="root", model=model, tools=[AgentTool(LlmAgent(name="kid", model=model))])

    made = record(await run_adk(agent, "go"), describe_agent(agent))

    assert only(ToolResponse, made).data == "42"


@pytest.mark.anyio
async def test_a_refusal_of_a_real_run() -> None:
    agent = LlmAgent(name="root", model=ScriptedLlm(script=[error("SAFETY", "no")]))

    made = record(await run_adk(agent, "go"), describe_agent(agent))

    assert only(StreamEnd, made).reason == "refusal"


def test_two_calls_with_one_id_in_one_event_are_answered_in_order() -> None:
    made = record(
        [
            user_said("hi"),
            event(call_part("f", "c1", {"n": 1}), call_part("f", "c1", {"n": 2}), id="e1"),
            responded("f", "c1", {"v": 1}, id="e2"),
            responded("f", "c1", {"v": 2}, id="e3"),
        ]
    )

    assert [response.data for response in all_of(ToolResponse, made)] == [{"v": 1}, {"v": 2}]


def test_a_turn_ends_when_its_agent_was_done_and_not_when_the_person_came_back() -> None:
    history = [user_said("one"), said("1"), user_said("two"), said("2")]
    for item, at in zip(history, (100.0, 103.0, 900.0, 901.0), strict=True):
        item.timestamp = at
    ends = [item.timestamp for item in record(history) if isinstance(item, StreamEnd)]
    assert ends == ["1970-01-01T00:01:43.000Z", "1970-01-01T00:15:01.000Z"]
