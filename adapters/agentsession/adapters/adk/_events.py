"""What an ADK event carries beside its content: usage, state, artifacts, metadata, custom things, and its marks.

Not for: content, calls, deltas (``_translate``). Rules carried: WIRE-01, SEC-01.
May import: ``_errors``, ``_values``, protocol, google.adk types for the annotations.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from google.genai import types

from agentsession.adapters.adk._content import parts_to_content
from agentsession.adapters.adk._errors import error_status, is_error, is_retryable, safe_message
from agentsession.adapters.adk._values import clean_id, iso_timestamp, lossy_json, redact, thread_of
from agentsession.protocol import REDACTED, Custom, Error, Event, JsonError, SessionUpdate, Usage, repair_text

if TYPE_CHECKING:
    from google.adk.events.event import Event as AdkEvent
    from google.adk.events.event_actions import EventActions

__all__ = ["action_events", "code_of", "error_event", "lone_marks", "marks_of", "problem_event", "usage_event"]

_INTERNAL_STATE = "_adk"
_INTERNAL_METADATA = ("__adk_internal_", "agentsession_")

# Most events have none of these. What was never given to a model is not in its set of fields, and one look at that set
# is quicker than one at each of them. (What is changed in place, such as a state delta, is not in it: it is read.)
_RESPONSE_FIELDS = frozenset(
    {
        "turn_complete",
        "turn_complete_reason",
        "interaction_id",
        "interaction_status",
        "environment_id",
        "live_session_id",
    }
)
_RARE_ACTIONS = frozenset(
    {"compaction", "rewind_before_invocation_id", "route", "render_ui_widgets", "set_model_response"}
)
_RARE_FIELDS = frozenset(
    {
        "output",
        "grounding_metadata",
        "citation_metadata",
        "logprobs_result",
        "avg_logprobs",
        "input_transcription",
        "output_transcription",
        "cache_metadata",
        "voice_activity",
        "go_away",
        "live_session_resumption_update",
        "custom_metadata",
    }
)


def code_of(value: object) -> str | None:
    """An error code or finish reason as text; ADK puts enum members into a field for text."""
    if value is None:
        return None
    if isinstance(value, enum.Enum):
        value = value.value
    return repair_text(str(value)) if value else None


def marks_of(event: AdkEvent) -> dict[str, Any]:
    """What goes to ``_meta.adk``: where the event comes from, and flags that only ADK has."""
    marks: dict[str, Any] = {"eventId": event.id, "invocationId": event.invocation_id}
    if event.branch:
        marks["branch"] = event.branch
    if event.node_info.path:
        marks["nodePath"] = event.node_info.path
    if event.isolation_scope:
        marks["isolationScope"] = event.isolation_scope
    actions = event.actions
    if actions.skip_summarization:
        marks["skipSummarization"] = True
    if actions.escalate:
        marks["escalate"] = True
    if actions.transfer_to_agent:
        marks["transferToAgent"] = actions.transfer_to_agent
    if actions.transfer_reason:
        marks["transferReason"] = actions.transfer_reason
    finish = code_of(event.finish_reason)
    if finish and finish != "STOP":
        marks["finishReason"] = finish
    if event.model_version and event.usage_metadata is None:  # else the usage says it
        marks["modelVersion"] = event.model_version
    if not _RESPONSE_FIELDS.isdisjoint(event.__pydantic_fields_set__):
        marks |= _response_marks(event)
    for key, value in marks.items():
        if type(value) is str:
            marks[key] = value if value.isascii() else repair_text(value)
        elif value is not True:
            marks[key] = lossy_json(value)[0]  # an id that is no text, in an event that nobody validated
    return marks


def _response_marks(event: AdkEvent) -> dict[str, Any]:
    """How a response stands with its provider: ids and states of live sessions and of interactions."""
    if not (
        event.turn_complete
        or event.turn_complete_reason
        or event.interaction_id is not None
        or event.interaction_status
        or event.environment_id is not None
        or event.live_session_id is not None
    ):
        return {}
    found = {
        "turnComplete": event.turn_complete or None,
        "turnCompleteReason": code_of(event.turn_complete_reason),
        "interactionId": event.interaction_id,
        "interactionStatus": code_of(event.interaction_status),
        "environmentId": event.environment_id,
        "liveSessionId": event.live_session_id,
    }
    return {key: value for key, value in found.items() if value is not None}


def lone_marks(event: AdkEvent, common: Mapping[str, Any]) -> Iterator[Event]:
    """What an event says that holds nothing but such states: elsewhere they are in ``_meta.adk``."""
    marks = _response_marks(event)
    if marks:
        yield from _custom("response_state", marks, common)


def usage_event(
    usage: types.GenerateContentResponseUsageMetadata, model: str | None, common: Mapping[str, Any]
) -> Usage | None:
    """The usage of one model call, or ``None`` when nothing was reported.

    Providers disagree on whether the output count holds the reasoning: Gemini counts them apart, LiteLLM's completion
    tokens include them. The total tells; without a total they are taken to be apart.
    """
    prompt, tools = _count(usage.prompt_token_count), _count(usage.tool_use_prompt_token_count)
    output, reasoning = _count(usage.candidates_token_count), _count(usage.thoughts_token_count)
    total = _count(usage.total_token_count)
    inputs = None if prompt is None and tools is None else (prompt or 0) + (tools or 0)
    if (
        output is not None
        and reasoning
        and total is not None
        and (inputs or 0) + output == total
        and output >= reasoning
    ):
        output -= reasoning
    counts: dict[str, Any] = {
        "input_tokens": inputs,
        "output_tokens": output,
        "cached_tokens": _count(usage.cached_content_token_count),
        "reasoning_tokens": reasoning,
        "total_tokens": total,
    }
    reported: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
    if not reported:
        return None
    return Usage(model=repair_text(model) if model else None, **reported, **common)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def error_event(code: str, message: str | None, common: Mapping[str, Any], **marks: Any) -> Error:
    """The error event for an ADK code: never fatal by itself, the session decides that."""
    return Error(
        status=error_status(code),
        message=safe_message(code, message),
        code=code,
        **with_marks(common, retryable=True if is_retryable(code) else None, **marks),
    )


def problem_event(what: str, problems: list[str], common: Mapping[str, Any]) -> Error:
    """The error event for values that JSON cannot say; the values themselves are marked where they stood."""
    shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
    return Error(
        status="INVALID_ARGUMENT", code="not-json", message=f"{what} holds what JSON cannot say: {shown}", **common
    )


def with_marks(common: Mapping[str, Any], **marks: Any) -> dict[str, Any]:
    """A copy of ``common``, and of the ``_meta.adk`` in it, with more entries there; those of ``None`` are left out."""
    adk = common["meta"]["adk"].copy()
    if marks:
        adk |= {key: value for key, value in marks.items() if value is not None}
    fields = dict(common)
    fields["meta"] = {"adk": adk}
    return fields


def action_events(event: AdkEvent, common: Mapping[str, Any]) -> Iterator[Event]:
    """State, artifacts and everything that the contract has no type for; ADK's internal keys are dropped."""
    actions = event.actions
    if actions.state_delta:
        yield from _state(actions.state_delta, common)
    if actions.artifact_delta:
        yield from _custom("artifact_delta", actions.artifact_delta, common)
    if not _RARE_ACTIONS.isdisjoint(actions.__pydantic_fields_set__):
        yield from _rare_actions(actions, common)
    if _RARE_FIELDS.isdisjoint(event.__pydantic_fields_set__):
        return
    if event.output is not None:
        yield from _custom("output", event.output, common)
    if event.partial:
        return
    if event.grounding_metadata is not None:
        yield from _custom("grounding", event.grounding_metadata, common)
    if event.citation_metadata is not None:
        yield from _custom("citation", event.citation_metadata, common)
    if event.logprobs_result is not None or event.avg_logprobs is not None:
        yield from _custom("logprobs", _logprobs(event), common)
    if event.input_transcription or event.output_transcription:
        yield from _custom("transcription", _transcription(event), common)
    if event.cache_metadata is not None:
        yield from _custom("context_cache", event.cache_metadata, common)
    if event.voice_activity is not None:
        yield from _custom("voice_activity", event.voice_activity, common)
    if event.go_away is not None:
        yield from _custom("go_away", event.go_away, common)
    if event.live_session_resumption_update is not None:
        yield from _custom("session_resumption", _resumption(event.live_session_resumption_update), common)
    if event.custom_metadata:
        given = event.custom_metadata.items()
        metadata = {key: value for key, value in given if not str(key).startswith(_INTERNAL_METADATA)}
        if metadata:
            yield from _custom("custom_metadata", metadata, common)


def _rare_actions(actions: EventActions, common: Mapping[str, Any]) -> Iterator[Event]:
    if actions.compaction is not None:
        yield from _compaction(actions.compaction, common)
    if actions.rewind_before_invocation_id:
        rewound = {"beforeInvocationId": actions.rewind_before_invocation_id}
        yield from _custom("rewind", rewound, common)
    if actions.route is not None:
        yield from _custom("route", actions.route, common)
    for widget in actions.render_ui_widgets or ():
        yield from _custom("ui_widget", widget, common)
    if actions.set_model_response is not None:
        yield from _custom("structured_output", actions.set_model_response, common)


def _state(delta: Mapping[str, Any], common: Mapping[str, Any]) -> Iterator[Event]:
    shown = {key: value for key, value in delta.items() if not str(key).startswith(_INTERNAL_STATE)}
    if not shown:
        return
    values, problems = lossy_json(shown)
    yield SessionUpdate(state_delta=redact(values), **common)
    if problems:
        yield problem_event("the state", problems, common)


def _custom(kind: str, value: Any, common: Mapping[str, Any]) -> Iterator[Event]:
    data, problems = lossy_json(value)
    yield Custom(kind=kind, data=data, **common)
    if problems:
        yield problem_event(kind, problems, common)


def _compaction(compaction: Any, common: Mapping[str, Any]) -> Iterator[Event]:
    content = compaction.compacted_content
    try:
        parts = [part.to_wire() for part in parts_to_content(content.parts if content is not None else None)]
    except JsonError as error:
        parts = []
        yield problem_event("a compaction", [f"{error.path}: {error.got}"], common)
    data = {
        "start": iso_timestamp(compaction.start_timestamp),
        "end": iso_timestamp(compaction.end_timestamp),
        "content": parts,
    }
    yield from _custom("compaction", data, common)


def _logprobs(event: AdkEvent) -> Any:
    """The log probabilities, with their average where the provider gives one."""
    if event.avg_logprobs is None:
        return event.logprobs_result
    result = lossy_json(event.logprobs_result)[0] if event.logprobs_result is not None else None
    return {**(result if isinstance(result, dict) else {}), "avgLogprobs": event.avg_logprobs}


def _resumption(update: Any) -> Any:
    """Whether a live session can be resumed; the handle lets its holder into the conversation, so it is not told."""
    if update.new_handle is None:
        return update
    return update.model_copy(update={"new_handle": REDACTED})


def _transcription(event: AdkEvent) -> dict[str, Any]:
    heard = (("user", event.input_transcription), ("agent", event.output_transcription))
    return {role: text for role, text in heard if text}


def common_fields(event: AdkEvent, timestamp: str, thread_prefix: str | None, unread: Any) -> dict[str, Any]:
    """The base fields of every event that comes from ``event``."""
    marks = marks_of(event)
    if unread:
        marks["unread"] = lossy_json(unread)[0]
    thread = thread_of(event.branch)
    if thread_prefix:
        thread = clean_id(f"{thread_prefix}.{thread}" if thread else thread_prefix)
    return {"timestamp": timestamp, "thread_id": thread, "meta": {"adk": marks}}


def reports_error(event: AdkEvent) -> str | None:
    """The code under which a response failed or stopped short: its error code, else a finish reason that is one."""
    if event.error_code is None and event.finish_reason is None:
        return None
    code = code_of(event.error_code)
    if is_error(code):
        return code
    finish = code_of(event.finish_reason)
    return finish if code is None and is_error(finish) else None
