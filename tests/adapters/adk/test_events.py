"""One ADK Event to contract events: messages, errors, state and the rest. Calls are in test_event_calls.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.events.ui_widget import UiWidget
from google.adk.models.cache_metadata import CacheMetadata
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from tests.adapters.adk.make import call_part, called, delta, event, responded, said, user_said
from tests.adapters.adk.strategies import any_text, histories
from tests.adapters.adk.translated import Report, all_of, feed, only, usage_of

from agentsession.adapters.adk import Translator
from agentsession.protocol import (
    Custom,
    Error,
    Message,
    SessionUpdate,
    Text,
    Thought,
    ToolRequest,
    ToolResponse,
    Usage,
    parse_event,
    plain_text,
)


@given(histories())
def test_no_history_breaks_the_translator_and_every_payload_is_valid(history: list[AdkEvent]) -> None:
    translator = Translator()
    made = [item for adk_event in history for item in translator.feed(adk_event)] + translator.close_messages()

    for number, item in enumerate(made, start=1):
        stamp = {"id": f"e{number}", "seq": number, "session_id": "s", "timestamp": "2026-01-31T12:00:00.000Z"}
        text = item.model_copy(update=stamp).to_wire_json()
        assert parse_event(text.encode("utf-8")).to_wire_json() == text


@given(histories())
def test_what_is_set_in_an_event_after_it_was_made_is_told_too(history: list[AdkEvent]) -> None:
    for made in history:
        plain = AdkEvent(author=made.author)
        for name in sorted(made.model_fields_set - {"actions"}):
            setattr(plain, name, getattr(made, name))
        for name in sorted(made.actions.model_fields_set):
            kept = getattr(plain.actions, name)
            if isinstance(kept, dict):
                kept |= getattr(made.actions, name)  # a state delta is filled in place, as a tool's context does
            else:
                setattr(plain.actions, name, getattr(made.actions, name))
        plain.id, plain.timestamp = made.id, made.timestamp
        assert Translator().feed(plain) == Translator().feed(made)


@given(histories())
def test_request_and_message_ids_are_never_given_twice(history: list[AdkEvent]) -> None:
    translator = Translator()
    made = [item for adk_event in history for item in translator.feed(adk_event)]

    whole = [item.request_id for item in all_of(ToolRequest, made) if not item.partial]
    messages = [item.message_id for item in all_of(Message, made) if not item.partial]
    assert len(whole) == len(set(whole))
    assert len(messages) == len(set(messages))


@given(histories())
def test_one_response_at_most_for_each_request(history: list[AdkEvent]) -> None:
    made = feed(*history)

    answered = [item.request_id for item in all_of(ToolResponse, made)]
    assert len(answered) == len(set(answered))


# --- messages ---------------------------------------------------------------------------------------------------------


def test_partials_and_the_final_event_are_one_message() -> None:
    made = feed(delta("Hel"), delta("lo"), said("Hello", id="e1", partial=False))

    assert [(m.partial, m.index, plain_text(m.content)) for m in all_of(Message, made)] == [
        (True, 0, "Hel"),
        (True, 1, "lo"),
        (False, None, "Hello"),
    ]
    assert {m.message_id for m in all_of(Message, made)} == {"e1"}


def test_partials_of_a_provider_that_numbers_each_are_one_message_too() -> None:
    made = feed(delta("Hel", id="e1"), delta("lo", id="e2"), said("Hello", id="e3"))

    assert len({m.message_id for m in all_of(Message, made)}) == 1
    assert not all_of(Message, made)[-1].revised


def test_two_branches_that_stream_at_once_are_two_messages() -> None:
    made = feed(
        delta("a", id="1", author="x", branch="p.x"),
        delta("b", id="2", author="y", branch="p.y"),
        said("a", id="1", author="x", branch="p.x"),
        said("b", id="2", author="y", branch="p.y"),
    )

    closing = [m for m in all_of(Message, made) if not m.partial]
    assert [(m.thread_id, plain_text(m.content), m.revised) for m in closing] == [
        ("p.x", "a", False),
        ("p.y", "b", False),
    ]


def test_thoughts_are_a_part_of_their_own() -> None:
    """R15: reasoning is not the answer."""
    made = feed(event(types.Part(text="I should...", thought=True), types.Part(text="Paris.")))

    message = only(Message, made)
    assert message.content == [Thought(text="I should..."), Text(text="Paris.")]
    assert plain_text(message.content) == "Paris."


def test_a_thought_alone_is_nothing_said() -> None:
    """R15: an event with only thoughts is not taken as the final answer."""
    translator = Translator()
    feed(event(types.Part(text="hm", thought=True)), translator=translator)

    assert not translator.said_something


def test_an_emoji_cut_over_two_deltas_arrives_whole() -> None:
    """R96: deltas are joined before their text is repaired."""
    made = feed(delta("\ud83d"), delta("\ude00"), said("\ud83d\ude00", id="e1"))

    assert [plain_text(m.content) for m in all_of(Message, made)] == ["😀", "😀"]


@pytest.mark.parametrize("text", ["parce que c\udcc3\udcb4t", "a\x00b", "\u202eabc", "‏שלום"])
def test_odd_text_is_valid_json_and_as_near_as_can_be(text: str) -> None:
    """R96: lone surrogates are repaired, everything else stays."""
    message = only(Message, feed(user_said(text)))

    shown = json.loads(message.to_wire_json().encode("utf-8"))["content"][0]["text"]
    assert shown == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_the_user_s_message_is_the_user_s() -> None:
    message = only(Message, feed(user_said("hi", id="u1")))

    assert (message.role, message.source, message.agent_id, message.message_id) == ("user", "user", None, "u1")


def test_a_call_in_a_user_s_message_is_content_and_no_request() -> None:
    made = feed(event(call_part("wipe", "c1", {"all": True}), author="user", role="user"))

    assert [item.type for item in made] == ["message"]


def test_an_event_that_is_fed_twice_is_shown_once() -> None:
    whole = said("hi", id="e9")

    assert len(feed(whole, whole)) == 1


def test_a_message_that_stops_in_the_middle_is_closed_with_what_was_shown() -> None:
    translator = Translator()
    feed(delta("Hel"), delta("lo"), translator=translator)

    (closing,) = translator.close_messages()
    assert isinstance(closing, Message)
    assert (plain_text(closing.content), closing.interrupted, closing.partial) == ("Hello", True, False)


def test_a_response_that_never_ended_is_closed_when_the_next_begins() -> None:
    made = feed(delta("a", id="1"), delta("b", id="1"), delta("c", id="2"))

    closing = [m for m in all_of(Message, made) if not m.partial]
    assert [(plain_text(m.content), m.interrupted) for m in closing] == [("ab", True)]


def test_a_bookkeeping_event_in_between_does_not_close_a_message() -> None:
    state = event(id="s", actions=EventActions(state_delta={"k": 1}))

    made = feed(delta("a"), state, delta("b"), said("ab", id="e1"))

    assert len([m for m in all_of(Message, made) if not m.partial]) == 1


def shown_by(deltas: list[AdkEvent], *, quick: bool) -> list[tuple[str, str, int | None, str]]:
    """The deltas shown of a stream, with or without the short way that a live session takes."""
    translator = Translator()
    out: list[tuple[str, str, int | None, str]] = []
    for one in deltas:
        piece = translator.quick_delta(one) if quick else None
        if piece is not None:
            out += [(piece.kind, piece.text, piece.index, piece.message_id)] if piece.text else []
            continue
        for message in all_of(Message, translator.feed(one)):
            out += [(part.type, part.text, message.index, message.message_id) for part in message.content]  # type: ignore[union-attr]  # these streams hold text alone
    closing = all_of(Message, translator.close_messages())
    return out + [(str(m.role), plain_text(m.content), None, m.message_id) for m in closing]


@given(st.lists(st.tuples(any_text, st.booleans(), st.sampled_from(["e1", "e1", "e2"])), max_size=8))
def test_the_short_way_for_text_shows_what_the_long_way_shows(pieces: list[tuple[str, bool, str]]) -> None:
    deltas = [
        event(types.Part(text=text, thought=thought or None), id=adk_id, partial=True)
        for text, thought, adk_id in pieces
    ]

    assert shown_by(deltas, quick=True) == shown_by(deltas, quick=False)


# --- errors and ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"error_code": "STOP"}, {"finish_reason": types.FinishReason.STOP}])
def test_a_stop_without_content_is_no_error(fields: dict[str, Any]) -> None:
    """R124: an empty completion."""
    translator = Translator()

    assert all_of(Error, feed(event(**fields), translator=translator)) == []
    assert (translator.end_reason, translator.said_something) == ("completed", False)


def test_adk_s_own_word_for_an_empty_reply_is_no_error() -> None:
    made = feed(event(error_code="MODEL_RETURNED_NO_CONTENT", error_message="nothing"))

    assert (only(Custom, made).kind, all_of(Error, made)) == ("empty_reply", [])


def test_a_malformed_call_is_a_typed_error_with_its_usage() -> None:
    """R40: no content, no message, but counts."""
    translator = Translator()
    made = feed(
        event(
            error_code="MALFORMED_FUNCTION_CALL",
            finish_reason=types.FinishReason.MALFORMED_FUNCTION_CALL,
            usage_metadata=usage_of(prompt_token_count=2595, total_token_count=2595),
        ),
        translator=translator,
    )

    error = only(Error, made)
    assert (error.code, error.status, error.fatal) == ("MALFORMED_FUNCTION_CALL", "INVALID_ARGUMENT", False)
    assert error.meta is not None
    assert error.meta["adk"]["retryable"] is True
    assert only(Usage, made).input_tokens == 2595
    assert translator.end_reason == "failed"


def test_a_call_beside_a_malformed_one_is_not_requested() -> None:
    """R40, variant: the reason is there and a call was parsed all the same."""
    translator = Translator()
    made = feed(called("rm", "c1", {"p": "x"}, error_code="MALFORMED_FUNCTION_CALL"), translator=translator)
    late = feed(responded("rm", "c1", {"result": "removed"}), translator=translator)

    assert (all_of(ToolRequest, made), late) == ([], [])
    assert only(Error, made).to_wire()["_meta"]["adk"]["calls"] == [{"id": "c1", "name": "rm", "args": {"p": "x"}}]


def test_arguments_cut_at_the_token_limit_make_no_request() -> None:
    """R38: the stream ends in the middle of a call's arguments."""
    piece = types.FunctionCall(
        name="write",
        id="c1",
        will_continue=True,
        partial_args=[types.PartialArg(json_path="$.text", string_value="half")],
    )
    translator = Translator()
    made = feed(
        event(types.Part(function_call=piece), id="e1", partial=True),
        called("write", "c2", {"text": "half"}, id="e1", error_code="MAX_TOKENS"),
        translator=translator,
    )

    assert [request.partial for request in all_of(ToolRequest, made)] == [True]
    assert only(Error, made).code == "MAX_TOKENS"
    assert translator.end_reason == "max_tokens"


def test_a_stream_that_was_cut_without_a_final_event_ends_with_its_reason() -> None:
    """R38: no aggregate ever comes."""
    translator = Translator()
    feed(delta("half", finish_reason=types.FinishReason.MAX_TOKENS), translator=translator)

    translator.close_messages()

    assert translator.end_reason == "max_tokens"


def test_text_that_hit_the_limit_is_kept_and_the_limit_reported() -> None:
    made = feed(said("long text", finish_reason=types.FinishReason.MAX_TOKENS))

    assert [item.type for item in made] == ["message", "error"]


@pytest.mark.parametrize("code", ["SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "JAILBREAK"])
def test_safety_codes_are_refusals(code: str) -> None:
    translator = Translator()

    error = only(Error, feed(event(error_code=code), translator=translator))

    assert (error.code, error.fatal, translator.end_reason) == (code, False, "refusal")


def test_an_error_has_no_traceback_and_no_token() -> None:
    message = "call failed, Bearer abc123\nTraceback (most recent call last):\n  File x"

    error = only(Error, feed(event(error_code="500", error_message=message)))

    assert (error.status, error.message) == ("INTERNAL", "call failed, Bearer [redacted]")


def test_a_later_answer_takes_the_error_back() -> None:
    translator = Translator()
    feed(event(error_code="UNAVAILABLE"), said("here it is"), translator=translator)

    assert translator.end_reason == "completed"


def test_an_abort_is_no_error() -> None:
    translator = Translator()

    assert feed(event(error_code="INVOCATION_ABORTED"), translator=translator) == []
    assert translator.end_reason == "aborted"


# --- state, artifacts, the rest ---------------------------------------------------------------------------------------


def test_state_keeps_its_scopes_and_loses_adk_s_own_keys() -> None:
    """R125: the scopes are shown."""
    delta_of_state = {"temp:x": 1, "user:y": 2, "app:z": 3, "k": None, "_adk_internal": 9}

    update = only(SessionUpdate, feed(event(actions=EventActions(state_delta=delta_of_state))))

    assert update.state_delta == {"temp:x": 1, "user:y": 2, "app:z": 3, "k": None}


def test_state_holds_models_and_sets_and_names_what_cannot_be_kept() -> None:
    """R31: the state of a session may hold anything."""
    state = {"m": Report(title="t", tags=set()), "s": {2, 1}, "f": len}

    made = feed(event(actions=EventActions(state_delta=state)))

    assert only(SessionUpdate, made).state_delta == {
        "m": {"title": "t", "tags": []},
        "s": [1, 2],
        "f": {"$unserializable": "builtin_function_or_method"},
    }
    assert "/f" in only(Error, made).message


def test_all_saved_files_are_listed() -> None:
    """R89: two tools that save two files."""
    made = feed(event(actions=EventActions(artifact_delta={"a.txt": 3, "b.txt": 0})))

    assert (only(Custom, made).kind, only(Custom, made).data) == ("artifact_delta", {"a.txt": 3, "b.txt": 0})


def test_events_of_agents_with_like_names_stay_on_their_threads() -> None:
    """R64: agent_1 is not agent_10."""
    made = feed(said("a", author="agent_1", branch="par.agent_1"), said("b", author="agent_10", branch="par.agent_10"))

    assert [(item.agent_id, item.thread_id) for item in made] == [
        ("agent_1", "par.agent_1"),
        ("agent_10", "par.agent_10"),
    ]


def test_everything_the_contract_has_no_type_for_is_custom() -> None:
    actions = EventActions(
        compaction=EventCompaction(
            start_timestamp=1.0, end_timestamp=2.0, compacted_content=types.Content(parts=[types.Part(text="sum")])
        ),
        render_ui_widgets=[UiWidget(id="w", provider="mcp")],
        rewind_before_invocation_id="i1",
        route="left",
    )
    made = feed(
        event(
            actions=actions,
            grounding_metadata=types.GroundingMetadata(web_search_queries=["q"]),
            citation_metadata=types.CitationMetadata(),
            custom_metadata={"trace": 1, "__adk_internal_x": 2},
            output={"n": 1},
        )
    )

    found = {item.kind: item.data for item in all_of(Custom, made)}
    assert found["compaction"]["content"] == [{"type": "text", "text": "sum"}]
    assert found["ui_widget"]["id"] == "w"
    assert found["rewind"] == {"beforeInvocationId": "i1"}
    assert found["route"] == "left"
    assert found["grounding"] == {"webSearchQueries": ["q"]}
    assert found["custom_metadata"] == {"trace": 1}
    assert found["output"] == {"n": 1}
    assert "citation" in found


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("output", {"n": 1}, "output"),
        ("grounding_metadata", types.GroundingMetadata(web_search_queries=["q"]), "grounding"),
        ("citation_metadata", types.CitationMetadata(), "citation"),
        ("logprobs_result", types.LogprobsResult(), "logprobs"),
        ("avg_logprobs", -0.5, "logprobs"),
        ("input_transcription", types.Transcription(text="a"), "transcription"),
        ("output_transcription", types.Transcription(text="a"), "transcription"),
        ("cache_metadata", CacheMetadata(fingerprint="f", contents_count=1), "context_cache"),
        ("voice_activity", types.VoiceActivity(), "voice_activity"),
        ("go_away", types.LiveServerGoAway(time_left="1s"), "go_away"),
        ("live_session_resumption_update", types.LiveServerSessionResumptionUpdate(), "session_resumption"),
        ("custom_metadata", {"trace": 1}, "custom_metadata"),
        ("turn_complete", True, "response_state"),
        ("turn_complete_reason", types.TurnCompleteReason.NEED_MORE_INPUT, "response_state"),
        ("interaction_id", "i", "response_state"),
        ("environment_id", "e", "response_state"),
        ("live_session_id", "l", "response_state"),
        ("actions", EventActions(route="left"), "route"),
        ("actions", EventActions(rewind_before_invocation_id="i"), "rewind"),
        ("actions", EventActions(set_model_response={"a": 1}), "structured_output"),
        ("actions", EventActions(render_ui_widgets=[UiWidget(id="w", provider="mcp")]), "ui_widget"),
        ("actions", EventActions(artifact_delta={"f": 1}), "artifact_delta"),
        (
            "actions",
            EventActions(
                compaction=EventCompaction(start_timestamp=1.0, end_timestamp=2.0, compacted_content=types.Content())
            ),
            "compaction",
        ),
    ],
)
def test_a_field_that_an_event_has_alone_is_told(field: str, value: object, kind: str) -> None:
    fields: dict[str, Any] = {field: value}
    assert [item.kind for item in all_of(Custom, feed(event(**fields)))] == [kind]


@pytest.mark.parametrize(
    ("field", "value", "mark"),
    [
        ("turn_complete", True, "turnComplete"),
        ("turn_complete_reason", types.TurnCompleteReason.NEED_MORE_INPUT, "turnCompleteReason"),
        ("interaction_id", "i", "interactionId"),
        ("interaction_status", types.InteractionStatus.IDLE, "interactionStatus"),
        ("environment_id", "e", "environmentId"),
        ("live_session_id", "l", "liveSessionId"),
    ],
)
def test_a_state_of_the_response_is_in_the_meta_of_what_it_says(field: str, value: object, mark: str) -> None:
    fields: dict[str, Any] = {field: value}
    message = only(Message, feed(said("a", **fields)))
    assert mark in (message.meta or {})["adk"]


def test_where_an_event_comes_from_is_in_its_meta() -> None:
    message = only(Message, feed(said("a", id="e7", branch="a.b", node_path="wf@1/a@1")))

    assert message.meta == {"adk": {"eventId": "e7", "invocationId": "i1", "branch": "a.b", "nodePath": "wf@1/a@1"}}
    assert message.timestamp == "2024-12-01T09:01:26.500Z"
