"""Every field of ADK's events is in the record of a real run, typed or custom, or on a list with the reason why not."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import ParallelAgent
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.events.ui_widget import UiWidget
from google.adk.models.cache_metadata import CacheMetadata
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import BaseModel
from tests.adapters.adk.driving import Turn, agent, driven, model_calls

from agentsession.adapters.adk import call, raw, say, stream

pytestmark = pytest.mark.anyio

TEXT = types.Content(role="model", parts=[types.Part(text="said-4711")])


def grounding() -> types.GroundingMetadata:
    web = types.GroundingChunkWeb(uri="https://example.org/4711", title="t")
    support = types.GroundingSupport(segment=types.Segment(start_index=0, end_index=4), grounding_chunk_indices=[0])
    return types.GroundingMetadata(
        web_search_queries=["q"], grounding_chunks=[types.GroundingChunk(web=web)], grounding_supports=[support]
    )


RESPONSES: dict[str, Any] = {
    "model_version": "model-4711",
    "content": TEXT,
    "grounding_metadata": grounding(),
    "turn_complete": True,
    "turn_complete_reason": types.TurnCompleteReason.NEED_MORE_INPUT,
    "interaction_status": types.InteractionStatus.REQUIRES_ACTION,
    "finish_reason": types.FinishReason.SAFETY,
    "error_code": "CODE_4711",
    "error_message": "message-4711",
    "interrupted": True,
    "custom_metadata": {"key": "meta-4711"},
    "usage_metadata": types.GenerateContentResponseUsageMetadata(prompt_token_count=4711, total_token_count=4711),
    "live_session_id": "live-4711",
    "go_away": types.LiveServerGoAway(time_left="4711s"),
    "voice_activity": types.VoiceActivity(audio_offset="4711s"),
    "live_session_resumption_update": types.LiveServerSessionResumptionUpdate(
        new_handle="handle-secret", last_consumed_client_message_index=4711
    ),
    "input_transcription": types.Transcription(text="heard-4711", finished=True),
    "output_transcription": types.Transcription(text="spoken-4711", finished=True),
    "avg_logprobs": -4711.5,
    "logprobs_result": types.LogprobsResult(chosen_candidates=[types.LogprobsResultCandidate(token="4711")]),
    "cache_metadata": CacheMetadata(fingerprint="print-4711", contents_count=1),
    "citation_metadata": types.CitationMetadata(citations=[types.Citation(uri="https://example.org/4711")]),
    "interaction_id": "interaction-4711",
    "environment_id": "environment-4711",
}
"""A value for each field of a model's response, with something in it that nothing else says."""

NEEDLES: dict[str, str] = {
    "turn_complete": '"turnComplete": true',
    "turn_complete_reason": "NEED_MORE_INPUT",
    "interaction_status": "REQUIRES_ACTION",
    "finish_reason": "SAFETY",
    "interrupted": '"interrupted": true',
}

EVENTS: dict[str, Any] = {
    "output": {"node": "4711"},
    "branch": "4711",
    "isolation_scope": "scope-4711",
}

ACTIONS: dict[str, Any] = {
    "skip_summarization": True,
    "state_delta": {"key": "state-4711"},
    "artifact_delta": {"file-4711.txt": 3},
    "transfer_to_agent": "agent_4711",
    "transfer_reason": "reason-4711",
    "escalate": True,
    "compaction": EventCompaction(start_timestamp=1.0, end_timestamp=2.0, compacted_content=TEXT),
    "rewind_before_invocation_id": "invocation-4711",
    "route": "route-4711",
    "render_ui_widgets": [UiWidget(id="widget-4711", provider="p")],
    "set_model_response": {"city": "4711"},
}
ACTION_NEEDLES = {"skip_summarization": '"skipSummarization": true', "escalate": '"escalate": true'}

ELSEWHERE: dict[str, str] = {
    "partial": "a delta is `partial` itself; test_session_control.py",
    "invocation_id": "ADK sets it; `_meta.adk.invocationId` of every event",
    "author": "ADK's agent; `agentId` of every event",
    "actions": "its fields are told one by one",
    "node_info": "a Workflow sets it; `_meta.adk.nodePath`, test_events.py",
    "long_running_tool_ids": "ADK sets it; `longRunning` of a request, test_session_tools.py",
    "id": "ADK sets it; `_meta.adk.eventId` of every event",
    "timestamp": "the time of the event",
}
"""Fields of an event that are tested elsewhere or hold for every event."""

NOT_SHOWN: dict[str, str] = {
    "requested_auth_configs": "ADK's own question is made of it: an elicitation_request",
    "requested_tool_confirmations": "the adapter asks: an elicitation_request",
    "end_of_agent": "where a resumable run goes on; brackets say when an agent ends",
    "agent_state": "a checkpoint of ADK's own agents",
}
"""Fields of an event's actions that no event of the contract holds, and why."""


def test_every_field_of_adks_response_event_and_actions_is_accounted_for() -> None:
    """A field that a new ADK brings fails here: map it, or say why not."""
    assert set(LlmResponse.model_fields) == set(RESPONSES) | {"partial"}
    own = set(AdkEvent.model_fields) - set(LlmResponse.model_fields)
    assert own == set(EVENTS) | set(ELSEWHERE) - {"partial"}
    assert set(EventActions.model_fields) == set(ACTIONS) | set(NOT_SHOWN)


def shown(turn: Turn) -> str:
    """All that a turn recorded after what the user said."""
    return json.dumps([event.to_wire() for event in turn.events[1:]])


@pytest.mark.parametrize("field", RESPONSES)
async def test_a_field_of_a_models_response_is_in_the_record(field: str) -> None:
    given: dict[str, Any] = {"content": TEXT.model_copy(deep=True), field: RESPONSES[field]}
    if field in ("error_code", "error_message"):
        given = {"error_code": "CODE_4711", field: RESPONSES[field]}
    root = agent(raw(LlmResponse(**given)), say("next"))
    async with driven(root) as driver:
        turn = await driver.stream("go")
        needle = NEEDLES.get(field) or _needle(RESPONSES[field])
        assert needle in shown(turn), field
        assert "handle-secret" not in shown(turn)
        assert (await driver.stream("go")).texts == ["next"]


def _needle(value: Any) -> str:
    """What of a value must be found: the word or number with 4711 in it."""
    text = json.dumps(value, default=lambda item: item.model_dump(mode="json", exclude_none=True))
    return next(word for word in re.split(r'[\s",{}\[\]]+', text) if "4711" in word)


class Yields(BaseAgent):
    """An agent of the user's own that yields one event."""

    made: dict[str, Any]

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[AdkEvent, None]:
        yield AdkEvent(author=self.name, invocation_id=ctx.invocation_id, **self.made)


@pytest.mark.parametrize("field", EVENTS)
async def test_a_field_of_an_event_is_in_the_record(field: str) -> None:
    async with driven(Yields(name="root", made={"content": TEXT, field: EVENTS[field]})) as driver:
        turn = await driver.stream("go")
        assert turn.reason == "completed"
        assert _needle(EVENTS[field]) in shown(turn).replace("said-4711", "")


STEERING = {"skip_summarization", "escalate", "transfer_to_agent", "transfer_reason"}
"""They steer ADK: an event that holds nothing else says nothing that happened."""


@pytest.mark.parametrize(
    ("field", "speaks"),
    [(field, speaks) for field in ACTIONS for speaks in (True, False) if speaks or field not in STEERING],
)
async def test_a_field_of_an_events_actions_is_in_the_record(field: str, speaks: bool) -> None:
    made: dict[str, Any] = {"actions": EventActions(**{field: ACTIONS[field]})}
    if speaks:
        made["content"] = types.Content(role="model", parts=[types.Part(text="hello")])
    async with driven(Yields(name="root", made=made)) as driver:
        turn = await driver.stream("go")
        needle = ACTION_NEEDLES.get(field) or _needle(ACTIONS[field])
        assert needle in shown(turn), field


async def test_a_response_that_holds_nothing_but_a_state_is_told() -> None:
    made = {"interaction_id": "interaction-4711", "turn_complete": True}
    async with driven(Yields(name="root", made=made)) as driver:
        (custom,) = (await driver.stream("go")).of("custom")
        assert (custom.kind, custom.data) == (
            "response_state",
            {"interactionId": "interaction-4711", "turnComplete": True},
        )


# -- grounding, code, live fields --------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [True, False])
async def test_grounding_and_citations_of_an_answer_come_whole_and_once(streams: bool) -> None:
    cited = types.CitationMetadata(citations=[types.Citation(uri="https://example.org/c", start_index=1, end_index=2)])
    whole = LlmResponse(content=TEXT, grounding_metadata=grounding(), citation_metadata=cited)
    steps = [raw(LlmResponse(content=TEXT, partial=True), whole) if streams else raw(whole)]
    async with driven(agent(*steps)) as driver:
        turn = await driver.stream("go")
        told = {event.kind: event.data for event in turn.of("custom")}
        assert [event.kind for event in turn.of("custom")] == ["grounding", "citation"]
        assert told["grounding"]["groundingChunks"][0]["web"]["uri"] == "https://example.org/4711"
        assert told["grounding"]["groundingSupports"][0]["segment"]["endIndex"] == 4
        assert told["citation"]["citations"][0]["endIndex"] == 2


async def test_code_that_a_provider_ran_is_code_and_its_result() -> None:
    parts = [
        types.Part(executable_code=types.ExecutableCode(code="print(1)", language=types.Language.PYTHON)),
        types.Part(code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="1\n")),
        types.Part(text="one"),
    ]
    async with driven(agent(raw(LlmResponse(content=types.Content(role="model", parts=parts))))) as driver:
        turn = await driver.stream("go")
        (message,) = [event for event in turn.of("message") if event.source == "agent"]
        assert [part.type for part in message.content] == ["code", "code_result", "text"]
        assert (message.content[0].code, message.content[1].output, turn.texts) == ("print(1)", "1\n", ["one"])


async def test_adks_internal_metadata_is_not_shown_beside_the_users() -> None:
    meta = {"key": "kept", "__adk_internal_x": "hidden-4711"}
    async with driven(agent(raw(LlmResponse(content=TEXT, custom_metadata=meta)))) as driver:
        turn = await driver.stream("go")
        assert [event.data for event in turn.of("custom")] == [{"key": "kept"}]
        assert "hidden-4711" not in shown(turn)


async def test_an_average_of_log_probabilities_is_told_beside_the_tokens() -> None:
    result = types.LogprobsResult(chosen_candidates=[types.LogprobsResultCandidate(token="a", log_probability=-0.5)])
    response = LlmResponse(content=TEXT, logprobs_result=result, avg_logprobs=-0.5)
    async with driven(agent(raw(response))) as driver:
        (custom,) = (await driver.stream("go")).of("custom")
        assert custom.data["avgLogprobs"] == -0.5
        assert custom.data["chosenCandidates"][0]["token"] == "a"


# -- structured output -------------------------------------------------------------------------------------------------


class Place(BaseModel):
    city: str
    rank: int


GOOD = '{"city": "Paris", "rank": 1}'


async def test_an_answer_that_fits_its_schema_is_text_and_its_key_is_state() -> None:
    async with driven(agent(say(GOOD), output_schema=Place, output_key="place")) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts) == ("completed", [GOOD])
        (update,) = turn.of("session_update")
        assert update.state_delta == {"place": {"city": "Paris", "rank": 1}}
        assert driver.session.state_values == {"place": {"city": "Paris", "rank": 1}}


async def test_structured_output_beside_tools_is_a_call_a_custom_and_the_answer() -> None:
    def look() -> str:
        """Look."""
        return "seen"

    answer = {"city": "Paris", "rank": 1}
    root = agent(
        call("look", id="c1"),
        call("set_model_response", {"city": "Paris", "rank": "first"}, id="c2"),
        call("set_model_response", answer, id="c3"),
        output_schema=Place,
        output_key="place",
        tools=[look],
    )
    async with driven(root) as driver:
        turn = await driver.turn("go")
        assert (turn.reason, [json.loads(text) for text in turn.texts]) == ("completed", [answer])
        assert [(event.kind, event.data) for event in turn.of("custom")] == [("structured_output", answer)]
        statuses = [(event.name, event.status) for event in turn.of("tool_response")]
        assert statuses == [
            ("look", "completed"),
            ("set_model_response", "failed"),
            ("set_model_response", "completed"),
        ]
        assert driver.session.state_values == {"place": answer}


@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_that_does_not_fit_ends_the_turn_and_its_usage_is_told(streams: bool) -> None:
    """The trap: ADK raises before it makes an event of the answer, and with it the usage would be gone."""
    bad = (stream("not", " json") if streams else say("not json")).using(input=5, output=3)
    root = agent(bad, say(GOOD), output_schema=Place, output_key="place")
    async with driven(root) as driver:
        turn = await driver.stream("go")
        assert turn.reason == "failed"
        assert [event.code for event in turn.of("error")] == ["ValidationError"]
        assert [(event.input_tokens, event.output_tokens) for event in turn.of("usage")] == [(5, 3)]
        assert turn.texts == (["not json"] if streams else [])
        assert (await driver.stream("again")).texts == [GOOD]
        assert model_calls(root) == 2


async def test_without_a_key_an_answer_that_does_not_fit_is_the_answer() -> None:
    async with driven(agent(say("not json"), output_schema=Place)) as driver:
        turn = await driver.stream("go")
        assert (turn.reason, turn.texts) == ("completed", ["not json"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # ADK's own parallel agent
async def test_usage_of_a_branchs_answer_that_does_not_fit_is_told_of_that_branch() -> None:
    one = agent(say("not json").using(input=5, output=3), name="one", output_schema=Place, output_key="place")
    root = ParallelAgent(name="root", sub_agents=[one])
    async with driven(root) as driver:
        turn = await driver.stream("go")
        assert turn.reason == "failed"
        assert [(event.agent_id, event.input_tokens) for event in turn.of("usage")] == [("one", 5)]
