"""Hypothesis strategies for genai Parts and ADK Events: what a model, a tool or a file may hand to the adapter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from hypothesis import strategies as st

__all__ = ["any_text", "events", "histories", "json_objects", "parts", "wild_objects"]

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
        st.sampled_from([math.nan, math.inf, object(), len, {1, 2}, b"\xff", print]),
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


def parts(objects: st.SearchStrategy[dict[str, Any]] = json_objects) -> st.SearchStrategy[types.Part]:
    """Parts of every kind that genai has, alone and with the fields that may stand beside."""
    return st.one_of(_text_parts(), _data_parts(), _call_parts(objects), _response_parts(objects), _other_parts())


def _text_parts() -> st.SearchStrategy[types.Part]:
    return st.builds(
        types.Part,
        text=any_text,
        thought=_flags,
        thought_signature=_maybe(_blobs),
        video_metadata=_maybe(st.builds(types.VideoMetadata, fps=_maybe(st.floats(0, 60)), start_offset=st.just("1s"))),
    )


def _data_parts() -> st.SearchStrategy[types.Part]:
    blob = st.builds(types.Blob, data=_maybe(_blobs), mime_type=_maybe(_clean_text), display_name=_maybe(_clean_text))
    file = st.builds(
        types.FileData, file_uri=_maybe(_clean_text), mime_type=_maybe(_clean_text), display_name=_maybe(_clean_text)
    )
    code = st.builds(
        types.ExecutableCode,
        code=_maybe(_clean_text),
        language=_maybe(st.sampled_from(types.Language)),
        id=_ids_clean(),
    )
    result = st.builds(
        types.CodeExecutionResult,
        output=_maybe(_clean_text),
        outcome=_maybe(st.sampled_from(types.Outcome)),
        id=_ids_clean(),
    )
    beside = {
        "thought": _flags,
        "thought_signature": _maybe(_blobs),
        "part_metadata": _maybe(json_objects),
        "video_metadata": _maybe(
            st.builds(types.VideoMetadata, fps=_maybe(st.floats(0, 60)), end_offset=st.just("2s"))
        ),
    }
    return st.one_of(
        st.builds(types.Part, inline_data=blob, **beside),
        st.builds(types.Part, file_data=file, **beside),
        st.builds(types.Part, executable_code=code, **beside),
        st.builds(types.Part, code_execution_result=result, **beside),
    )


def _ids_clean() -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(["call_1", "x"])


def _call_parts(objects: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[types.Part]:
    partial = st.builds(types.PartialArg, json_path=st.sampled_from(["$.a", "$.b[0]", ""]), string_value=any_text)
    call = st.builds(
        types.FunctionCall,
        id=_ids,
        name=st.none() | _names,
        args=_maybe(objects),
        partial_args=_maybe(st.lists(partial, max_size=2)),
        will_continue=_flags,
    )
    return st.builds(types.Part, function_call=call, thought_signature=_maybe(_blobs))


def _response_parts(objects: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[types.Part]:
    blob = st.builds(types.FunctionResponseBlob, data=_blobs, mime_type=st.just("image/png"))
    response = st.builds(
        types.FunctionResponse,
        id=_ids,
        name=st.none() | _names,
        response=_maybe(objects),
        parts=_maybe(st.lists(st.builds(types.FunctionResponsePart, inline_data=blob), max_size=1)),
        scheduling=_maybe(st.sampled_from(types.FunctionResponseScheduling)),
    )
    return st.builds(types.Part, function_response=response)


def _other_parts() -> st.SearchStrategy[types.Part]:
    return st.builds(
        types.Part,
        thought=_flags,
        thought_signature=_maybe(_blobs),
        part_metadata=_maybe(json_objects),
        tool_call=_maybe(st.builds(types.ToolCall, id=_ids_clean())),
    )


def events() -> st.SearchStrategy[Event]:
    """Events with any fields set, related by few authors, branches, invocations and call ids."""
    actions = st.builds(
        _actions,
        state=wild_objects,
        artifacts=st.dictionaries(st.sampled_from(["a.txt", "b.txt"]), st.integers(0, 9), max_size=2),
        transfer=st.none() | st.sampled_from(["other"]),
        confirm=st.lists(st.sampled_from(["call_1", "call_2"]), max_size=1),
        rewind=st.none() | st.just("i1"),
    )
    usage = st.builds(
        types.GenerateContentResponseUsageMetadata,
        prompt_token_count=_maybe(st.integers(-1, 50)),
        candidates_token_count=_maybe(st.integers(-1, 50)),
        thoughts_token_count=_maybe(st.integers(0, 9)),
        total_token_count=_maybe(st.integers(0, 99)),
    )
    content = st.builds(
        types.Content, role=st.sampled_from(["model", "user"]), parts=_maybe(st.lists(parts(wild_objects), max_size=3))
    )
    return st.builds(
        Event,
        id=st.sampled_from(["e1", "e2", "e3"]) | st.uuids().map(str),
        invocation_id=st.sampled_from(["i1", "i2", ""]),
        author=st.sampled_from(["user", "root", "other", "root", "root", ""]) | any_text,
        branch=st.none() | st.sampled_from(["par.agent_1", "par.agent_10", "kid@call_1", "a@1.b@2"]) | any_text,
        content=_maybe(content),
        actions=actions,
        partial=_flags,
        interrupted=_flags,
        timestamp=st.sampled_from([0.0, 1733043686.842, 1733043686842.0, -1.0, 1e300, math.nan]),
        usage_metadata=_maybe(usage),
        error_code=st.none()
        | st.sampled_from(["STOP", "SAFETY", "MAX_TOKENS", "MALFORMED_FUNCTION_CALL", "INVOCATION_ABORTED", "Boom"]),
        error_message=_maybe(any_text),
        long_running_tool_ids=st.none() | st.just({"call_1"}),
        custom_metadata=_maybe(wild_objects),
        isolation_scope=st.none() | st.just("call_2"),
        output=_maybe(_wild),
    )


def _actions(
    state: Mapping[str, Any], artifacts: dict[str, int], transfer: str | None, confirm: list[str], rewind: str | None
) -> EventActions:
    return EventActions(
        state_delta={str(key): value for key, value in state.items()},
        artifact_delta=artifacts,
        transfer_to_agent=transfer,
        requested_tool_confirmations={call_id: ToolConfirmation(hint="May I?") for call_id in confirm},
        rewind_before_invocation_id=rewind,
    )


def histories() -> st.SearchStrategy[list[Event]]:
    """Sessions: lists of events in an order that no ADK would write."""
    return st.lists(events(), max_size=8)
