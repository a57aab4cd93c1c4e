"""Hypothesis strategies for genai Parts and ADK Events: what a model, a tool or a file may hand to the adapter."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from fastapi.openapi.models import APIKey
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.events.ui_widget import UiWidget
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from hypothesis import strategies as st
from pydantic import BaseModel

__all__ = ["any_text", "events", "histories", "json_objects", "of_model", "of_type", "parts", "wild_objects"]


class Note(BaseModel):
    """A model of a tool's own, as tools return them."""

    title: str = "n"
    tags: set[str] = {"a"}
    size: float = math.nan


def _cycle() -> dict[str, Any]:
    """A value that holds itself."""
    value: dict[str, Any] = {"deep": []}
    value["deep"].append(value)
    return value


any_text = st.one_of(
    st.text(max_size=12),
    st.text(alphabet=st.characters(exclude_categories=()), max_size=6),  # lone surrogates included
    st.sampled_from(["", "\x00", "a\ud83d", "\ude00b", "😀", "‏שלום", "\u202e", "Hello"]),
)
"""Text as it reaches an adapter: halves of characters, NUL, marks, nothing."""

_clean_text = st.text(max_size=12)
_blobs = st.binary(max_size=16)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _clean_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
json_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(st.text(max_size=6), _json, max_size=3)
_wild = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        any_text,
        st.binary(max_size=4),
        st.sampled_from([math.nan, math.inf, object(), len, {1, 2}, b"\xff", print, 10**400, Note(), frozenset("x")]),
        st.builds(_cycle),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.one_of(any_text, st.integers(), st.binary(max_size=2)), inner, max_size=3)
    ),
    max_leaves=6,
)
wild_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(any_text, _wild, max_size=3)
"""What Python code may put into a tool's response or into the state."""

_names = (
    st.sampled_from(["search", "write", "transfer_to_agent", "adk_request_confirmation", "", "invented tool"])
    | any_text
)
_ids = st.sampled_from(["call_1", "call_2", "adk-3", ""]) | st.none() | any_text
_flags = st.none() | st.booleans()


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _some(fields: Mapping[str, st.SearchStrategy[Any]], most: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """A few of these fields. ``fixed_dictionaries`` with optional keys tosses a coin for each, which is slow."""
    entries = [st.tuples(st.just(name), made) for name, made in fields.items()]
    return st.lists(st.one_of(entries), max_size=most).map(dict)


def of_type(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of a field of genai's own models, by its annotation, so that a new field is filled too."""
    inner = [option for option in get_args(annotation) if option is not type(None)]
    if get_origin(annotation) in (Union, UnionType):
        return st.none() | st.one_of(*map(of_type, inner))
    if get_origin(annotation) is list:
        return st.lists(of_type(inner[0]), max_size=2)
    if get_origin(annotation) is Literal:
        return st.sampled_from(inner)
    if get_origin(annotation) is dict:
        return json_objects
    if issubclass(annotation, enum.Enum):
        return st.sampled_from(annotation)
    if issubclass(annotation, BaseModel):
        return of_model(annotation)
    return _PLAIN[annotation]


_PLAIN: dict[type, st.SearchStrategy[Any]] = {
    str: _clean_text,
    bytes: _blobs,
    bool: st.booleans(),
    int: st.integers(0, 99),
    float: st.floats(0, 60),
}


def of_model(model: type[BaseModel], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A model of genai's with any of its fields set; ``given`` says what some of them hold."""
    fields = {
        name: given[name] if name in given else of_type(field.annotation) for name, field in model.model_fields.items()
    }
    return _some(fields, most=len(fields)).map(lambda chosen: model(**chosen))


_KINDS = frozenset(
    {
        "text",
        "inline_data",
        "file_data",
        "executable_code",
        "code_execution_result",
        "function_call",
        "function_response",
        "tool_call",
        "tool_response",
    }
)
"""The fields of a part of which one is its content; the others may stand beside it."""

_beside = _some(
    {name: of_type(field.annotation) for name, field in types.Part.model_fields.items() if name not in _KINDS}
)


def parts(objects: st.SearchStrategy[dict[str, Any]] = json_objects) -> st.SearchStrategy[types.Part]:
    """Parts of every kind that genai has, alone and with the fields that may stand beside."""
    partial = of_model(
        types.PartialArg,
        json_path=st.sampled_from(["$.a", "$.b[0]", "$.b[1].c", "$['x y']", "", "$..", "a"]),
        string_value=_maybe(any_text),
        number_value=_maybe(st.floats(-9, 9)),
    )
    named = {"id": _ids, "name": st.none() | _names}
    pieces = _maybe(st.lists(partial, max_size=2))
    kinds: dict[str, st.SearchStrategy[Any]] = {
        name: of_type(field.annotation) for name, field in types.Part.model_fields.items() if name in _KINDS
    } | {
        "text": any_text,
        "function_call": of_model(types.FunctionCall, **named, args=_maybe(objects), partial_args=pieces),
        "function_response": of_model(types.FunctionResponse, **named, response=_maybe(objects)),
    }
    alone = [st.fixed_dictionaries({name: made}) for name, made in kinds.items()]
    # Calls and responses more often than the rest: most rules are about them.
    return st.builds(
        _part,
        st.one_of(*alone, alone[_CALL_AT], alone[_CALL_AT + 1], alone[_CALL_AT + 1], st.just({})),
        st.just({}) | _beside,
    )


_CALL_AT = [name for name in types.Part.model_fields if name in _KINDS].index("function_call")


def _part(kind: dict[str, Any], beside: dict[str, Any]) -> types.Part:
    return types.Part(**kind, **beside)


# --- events -----------------------------------------------------------------------------------------------------------

_places = {
    "invocation_id": st.sampled_from(["i1", "i1", "i2", ""]),
    "author": st.sampled_from(["user", "root", "other", "root", "root", ""]) | any_text,
    "branch": st.none()
    | st.none()
    | st.sampled_from(["par.agent_1", "par.agent_10", "kid@call_1", "a@1.b@2"])
    | any_text,
}
_times = st.sampled_from([0.0, 1733043686.842, 1733043600.0, 1733043686842.0, -1.0, 1e300, math.nan])
_codes = st.sampled_from(["STOP", "SAFETY", "MAX_TOKENS", "MALFORMED_FUNCTION_CALL", "INVOCATION_ABORTED", "Boom"])
_usages = of_model(
    types.GenerateContentResponseUsageMetadata,
    **{
        name: _maybe(st.integers(-1, 50))
        for name in ("prompt_token_count", "candidates_token_count", "thoughts_token_count", "total_token_count")
    },
    **{
        name: st.none()
        for name in types.GenerateContentResponseUsageMetadata.model_fields
        if name.endswith("_details") or name == "traffic_type"
    },
)


def events() -> st.SearchStrategy[Event]:
    """Events with any fields set, related by few authors, branches, invocations and call ids."""
    content = st.builds(
        types.Content, role=st.sampled_from(["model", "user"]), parts=_maybe(st.lists(parts(wild_objects), max_size=3))
    )
    often = {
        "id": st.sampled_from(["e1", "e2", "e3"]) | st.uuids().map(str),
        **_places,
        "content": _maybe(content),
        "actions": _actions(),
        "partial": _flags,
        "timestamp": _times,
        "usage_metadata": st.none() | st.none() | _usages,
        "long_running_tool_ids": st.none() | st.just({"call_1"}),
    }
    seldom = _some(
        {
            "interrupted": st.booleans(),
            "error_code": _codes,
            "error_message": any_text,
            "finish_reason": st.sampled_from(types.FinishReason),
            "custom_metadata": wild_objects,
            "isolation_scope": st.just("call_2"),
            "output": _wild,
            "model_version": any_text,
            "turn_complete": st.booleans(),
            "turn_complete_reason": st.sampled_from(types.TurnCompleteReason),
            "interaction_status": st.sampled_from(types.InteractionStatus),
            "interaction_id": any_text,
            "environment_id": any_text,
            "live_session_id": any_text,
            "input_transcription": of_model(types.Transcription),
            "output_transcription": of_model(types.Transcription),
            "avg_logprobs": st.floats(),
            "go_away": of_model(types.LiveServerGoAway),
            "live_session_resumption_update": of_model(types.LiveServerSessionResumptionUpdate),
            "citation_metadata": st.just(types.CitationMetadata(citations=[types.Citation(uri="u")])),
            "grounding_metadata": st.just(types.GroundingMetadata(web_search_queries=["q"])),
        },
    )
    return st.builds(_event, st.fixed_dictionaries(often), st.just({}) | seldom)


def _event(often: dict[str, Any], seldom: dict[str, Any]) -> Event:
    return Event(**often, **seldom)


_auth = AuthConfig(
    auth_scheme=APIKey.model_validate({"type": "apiKey", "in": "header", "name": "X-Key"}),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="SECRET-KEY"),
)


def _actions() -> st.SearchStrategy[EventActions]:
    confirmation = st.builds(ToolConfirmation, hint=any_text, payload=json_objects)
    compaction = st.builds(
        lambda **fields: EventCompaction(**fields),  # hypothesis would fill ADK's aliases by itself
        start_timestamp=_times,
        end_timestamp=_times,
        compacted_content=st.builds(types.Content, parts=_maybe(st.lists(parts(wild_objects), max_size=1))),
    )
    call_ids = st.sampled_from(["call_1", "call_2"])
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "skip_summarization": st.booleans(),
        "state_delta": wild_objects.map(lambda state: {str(key): value for key, value in state.items()}),
        "artifact_delta": st.dictionaries(any_text, st.integers(0, 9), max_size=2),
        "transfer_to_agent": st.sampled_from(["other", ""]) | any_text,
        "transfer_reason": any_text,
        "escalate": st.booleans(),
        "requested_auth_configs": st.dictionaries(call_ids, st.just(_auth), max_size=1),
        "requested_tool_confirmations": st.dictionaries(call_ids, confirmation, max_size=1),
        "compaction": compaction,
        "end_of_agent": st.booleans(),
        "agent_state": json_objects,
        "rewind_before_invocation_id": st.just("i1"),
        "route": st.booleans() | st.integers() | any_text | st.lists(any_text, max_size=2),
        "render_ui_widgets": st.lists(
            st.builds(UiWidget, id=any_text, provider=st.just("mcp"), payload=wild_objects), max_size=2
        ),
        "set_model_response": _wild,
    }
    assert set(kinds) == set(EventActions.model_fields), "ADK has another action: it needs a row in the mapping"
    return st.builds(lambda chosen: EventActions(**chosen), st.just({}) | _some(kinds, most=5))


def _streams() -> st.SearchStrategy[list[Event]]:
    """One model response in pieces, as ADK streams it: text, thoughts and calls, mostly with a closing event."""
    call = st.builds(
        lambda name, call_id, piece, more: types.Part(
            function_call=types.FunctionCall(
                name=name,
                id=call_id,
                partial_args=[types.PartialArg(json_path="$.a", string_value=piece)],
                will_continue=more,
            )
        ),
        st.sampled_from(["search", None]),
        st.sampled_from(["call_1", "adk-9", None]),
        any_text,
        _flags,
    )
    piece = st.builds(lambda text, thought: types.Part(text=text, thought=thought), any_text, _flags) | call
    return st.builds(
        _stream,
        st.fixed_dictionaries({"id": st.sampled_from(["m1", "m2", "m3"]), **_places, "timestamp": _times}),
        st.lists(piece, min_size=1, max_size=5),
        st.sampled_from(["whole", "other text", "none", "calls"]),
        st.none() | _codes,
    )


def _stream(fields: dict[str, Any], pieces: list[types.Part], closing: str, code: str | None) -> list[Event]:
    made = [Event(**fields, partial=True, content=types.Content(role="model", parts=[piece])) for piece in pieces]
    text = "".join(piece.text for piece in pieces if piece.text and not piece.thought)
    last = {"whole": [types.Part(text=text)], "other text": [types.Part(text="other")], "calls": []}.get(closing)
    if last is None:
        return made
    if any(piece.function_call is not None for piece in pieces):
        last.append(types.Part(function_call=types.FunctionCall(name="search", id="adk-7", args={"a": text})))
    return [*made, Event(**fields, partial=False, error_code=code, content=types.Content(role="model", parts=last))]


def _exchanges() -> st.SearchStrategy[list[Event]]:
    """A call or a question of ADK's, and its answer, by the agent or by the user, once, twice or never."""
    return st.builds(
        _exchange,
        st.fixed_dictionaries({"invocation_id": st.sampled_from(["i1", "i2"]), "timestamp": _times}),
        st.sampled_from(
            ["search", "adk_request_confirmation", "adk_request_credential", "adk_request_input", "transfer_to_agent"]
        ),
        st.sampled_from(["call_1", "q_1", "q_2"]),
        st.booleans(),
        st.lists(
            st.tuples(
                st.sampled_from(["user", "root"]),
                st.sampled_from([{"confirmed": True}, {"confirmed": False}, {"error": "no"}, {"result": 1}, {}, None])
                | wild_objects,
            ),
            max_size=2,
        ),
    )


def _exchange(
    fields: dict[str, Any], name: str, call_id: str, waits: bool, answers: list[tuple[str, dict[str, Any] | None]]
) -> list[Event]:
    args = {"originalFunctionCall": {"name": "search", "id": "call_1"}, "toolConfirmation": {"hint": "May I?"}}
    call = types.Part(function_call=types.FunctionCall(name=name, id=call_id, args=args if "adk" in name else {}))
    out = [
        Event(
            **fields,
            author="root",
            content=types.Content(role="model", parts=[call]),
            long_running_tool_ids={call_id} if waits else None,
        )
    ]
    for author, response in answers:
        answer = types.Part(function_response=types.FunctionResponse(name=name, id=call_id, response=response))
        out.append(Event(**fields, author=author, content=types.Content(role="user", parts=[answer])))
    return out


def histories(min_size: int = 0, max_size: int = 8) -> st.SearchStrategy[list[Event]]:
    """Sessions: events in an order that no ADK would write, among them streams and calls as ADK does write them.

    The sizes count pieces; a piece is one event, or a stream, or a call with its answers.
    """
    single = events().map(lambda event: [event])
    pieces = st.lists(single | _streams() | _exchanges(), min_size=min_size, max_size=max_size)
    return pieces.map(lambda made: [event for piece in made for event in piece])
