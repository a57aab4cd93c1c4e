"""Events: what comes back from a session. One class a type, fifteen types, an open set.

Not for: the rules about their order (``_lifecycle.py``), reading them from text (``_wire.py``).
Rules carried: WIRE-01, WIRE-02, ORD-01, ORD-02 (the base fields). May import: ``_base``, ``_content``, ``_descriptor``.

An executor builds events without ``id``, ``seq``, ``timestamp``, ``session_id``: the base class stamps them, and only
stamped events are in a record or on the wire. A type that is not in :data:`EVENT_TYPES` becomes an
:class:`UnknownEvent` and is kept unchanged.
"""

# A field may fill in a base class's read-only property: the models are frozen, and pyright cannot know it.
# pyright: reportIncompatibleMethodOverride=false

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, SerializerFunctionWrapHandler, Tag, field_validator, model_serializer

from agentsession.protocol._base import (
    Bool,
    Float,
    Id,
    Int,
    Json,
    JsonFieldsModel,
    JsonObject,
    Model,
    Str,
    open_str,
    optional,
)
from agentsession.protocol._content import ContentPart
from agentsession.protocol._descriptor import AgentDescriptor, ToolDescriptor

__all__ = [
    "EVENT_CLASSES",
    "EVENT_TYPES",
    "AgentEnd",
    "AgentEvent",
    "AgentStart",
    "Custom",
    "Decision",
    "ElicitationRequest",
    "ElicitationResponse",
    "Error",
    "Event",
    "Initialize",
    "Message",
    "SessionUpdate",
    "Spent",
    "StreamEnd",
    "ToolDecision",
    "ToolRequest",
    "ToolResponse",
    "ToolUpdate",
    "UnknownEvent",
    "Usage",
    "is_ephemeral",
]


class Event(Model):
    """Base of every event: who, where in the record, when."""

    id: Str = ""
    """Unique in its session, never reused, also not after a restart. Empty until stamped."""
    seq: Int = Field(default=0, ge=0)
    """Place in the record, strictly increasing from 1, gaps legal. 0 until stamped. A cursor is a seq."""
    timestamp: Str = ""
    """ISO 8601, UTC, milliseconds or finer, such as ``2026-01-31T12:00:00.000Z``. Empty until stamped."""
    session_id: Str = ""
    stream_id: Id | None = optional()
    """Absent outside a stream."""
    turn_id: Id | None = optional()
    """Absent outside a turn."""
    agent_id: Id | None = optional()
    thread_id: Id | None = optional()
    """Absent on the main thread; ``parent.child`` when nested."""
    source: Annotated[str, open_str("agent", "user", "host", "ext:")] = "agent"
    """Who caused it: ``agent``, ``user``, ``host`` or ``ext:NAME``."""
    meta: JsonObject | None = optional(alias="_meta")
    """Open, for what the contract has no field for."""

    if TYPE_CHECKING:
        # Every concrete event class has the field; here it is only declared, so that a reader of any event may ask.
        @property
        def type(self) -> str:
            """What happened, such as ``tool_request``; open."""
            ...


class Decision(Model):
    """By whom and why a request was granted, denied or answered; recorded with it."""

    by: Annotated[str, open_str("policy", "user", "hook", "remembered", "host")] = "host"
    """``policy``, ``user``, ``hook``, ``remembered``, ``host``, or one of these with ``:ID`` appended."""
    reason: Str | None = optional()


class Spent(Model):
    """What a tool's call has used of the limits of its turn, such as by a sub-agent or a paid service behind it."""

    model_calls: Int = Field(default=0, ge=0)
    cost: Float | None = optional(ge=0)
    """US dollars; absent with model calls: nobody knows."""
    seconds: Float | None = optional(ge=0)
    """That the host's tools worked since the last answer while no stream of the turn was open, without what people
    took: time at work that the session did not see."""


class Initialize(Event):
    """The first event of a session, exactly once. Rules: LIFE-02, LIFE-03."""

    type: Literal["initialize"] = "initialize"
    protocol_version: Str
    workspace: Str | None = optional()
    config_schema: JsonObject | None = optional()
    descriptor: AgentDescriptor


class SessionUpdate(JsonFieldsModel, Event):
    """Something about the session changed; recorded if and only if it was applied. Rule: CTL-07."""

    type: Literal["session_update"] = "session_update"
    title: Str | None = optional()
    model: Str | None = optional()
    permission_mode: Str | None = optional()
    tools: list[ToolDescriptor] | None = optional()
    state_delta: JsonObject | None = optional()
    """Keys to set, each with its new value."""
    state_patch: list[JsonObject] | None = optional()
    """RFC 6902 operations on the state."""
    state_snapshot: Json = None
    """The whole state, any JSON."""
    config: JsonObject | None = optional()


class AgentStart(Event):
    """An agent begins, or goes on after a pause, on a thread. Rules: LIFE-04, LIFE-16."""

    type: Literal["agent_start"] = "agent_start"
    agent_id: Id  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]  # required here
    parent_thread_id: Id | None = optional()
    """The thread that this thread hangs under; absent for the main thread and its direct children."""
    resumed: Bool = False


class AgentEnd(JsonFieldsModel, Event):
    """An agent stopped working on a thread. Rule: LIFE-16."""

    type: Literal["agent_end"] = "agent_end"
    agent_id: Id  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]  # required here
    reason: Annotated[str, open_str("completed", "input_required", "failed", "aborted", "handoff")] = "completed"
    result: Json = None
    data: Json = None


class Message(Event):
    """Something said: a whole message, or with ``partial`` one delta of it.

    All deltas and the one closing event share ``message_id``. The closing event holds the whole content and its text
    per part type equals that of the deltas, unless ``revised``. Rule: LIFE-14.
    """

    type: Literal["message"] = "message"
    message_id: Id
    role: Annotated[str, open_str("user", "agent", "developer")] = "agent"
    content: list[ContentPart]
    partial: Bool = False
    index: Int | None = optional(ge=0)
    """Place of a delta in its message, from 0."""
    interrupted: Bool = False
    """The message was cut by an abort, a failure or a pause."""
    revised: Bool = False
    """The whole text differs from the deltas on purpose, for example after a guardrail."""


class ToolRequest(Event):
    """The agent wants a tool to run. ``partial`` events stream the argument text; nothing runs before the whole one.

    Rules: TOOL-01 to TOOL-06.
    """

    type: Literal["tool_request"] = "tool_request"
    request_id: Id
    name: Str
    """The tool's name as the model gave it, perhaps invented or empty."""
    args: JsonObject | None = optional()
    args_delta: Str | None = optional()
    """With ``partial``: the next piece of the arguments' JSON text, perhaps cut anywhere."""
    owner: Annotated[str, open_str("agent", "host")] = "host"
    needs: Annotated[str, open_str("result", "grant", "none")] = "result"
    """``result``: the host runs it and answers with a result or a denial. ``grant``: the executor runs it after a
    grant. ``none``: shown, not asked. An unknown value waits for the host like ``result``."""
    message_id: Id | None = optional()
    display: JsonObject | None = optional()
    long_running: Bool = False
    partial: Bool = False


class ToolDecision(Event):
    """A request was granted or denied: what an auditor reads. Rules: TOOL-15, HITL-04."""

    type: Literal["tool_decision"] = "tool_decision"
    request_id: Id
    decision: Annotated[str, open_str("granted", "denied")]
    """Anything but ``granted`` is a denial."""
    args: JsonObject | None = optional()
    """The approved arguments when they were edited; absent when approved as requested."""
    args_digest: Str
    """Digest of the arguments that were decided on, edited ones where there are: hex SHA-256 of their RFC 8785
    canonical JSON (``args_digest``)."""
    by: Str | None = optional()
    reason: Str | None = optional()


class ToolUpdate(JsonFieldsModel, Event):
    """Progress of a running tool; for people, never for the model. Ephemeral unless ``started``. Rule: TOOL-12."""

    type: Literal["tool_update"] = "tool_update"
    request_id: Id
    content: list[ContentPart] = Field(default_factory=list)
    data: Json = None
    progress: Float | None = optional()
    total: Float | None = optional()
    display: JsonObject | None = optional()
    started: Bool | None = optional()
    """The host runs its tool from here on. Such an update stays in the record; each request has one. Rule: TOOL-16."""


class ToolResponse(JsonFieldsModel, Event):
    """How a request ended: exactly one per whole request, in its turn. Rule: TOOL-01."""

    type: Literal["tool_response"] = "tool_response"
    request_id: Id
    name: Str
    content: list[ContentPart] = Field(default_factory=list)
    data: Json = None
    is_error: Bool = False
    status: Annotated[str, open_str("completed", "failed", "denied", "cancelled", "unknown")] = "completed"
    """``unknown``: it had started and was cut off, so its effects are not known."""
    display: JsonObject | None = optional()
    spent: Spent | None = optional()
    """What counts against the turn's limits, beside the agent's own model calls."""


class ElicitationRequest(JsonFieldsModel, Event):
    """A question to the person or the host. Rules: HITL-01 to HITL-11."""

    type: Literal["elicitation_request"] = "elicitation_request"
    request_id: Id
    kind: Annotated[
        str, open_str("tool_confirmation", "auth_required", "clarification", "model_fallback", "user_approval")
    ]
    message: Str
    title: Str | None = optional()
    requested_schema: JsonObject | None = optional()
    """JSON Schema that the content of an ``accept`` must satisfy."""
    context: Json = None
    tool_request_id: Id | None = optional()
    display: Annotated[str, open_str("inline", "modal")] | None = optional()
    url: Str | None = optional()
    expires_at: Str | None = optional()
    """ISO 8601, UTC."""


class ElicitationResponse(JsonFieldsModel, Event):
    """How a question was answered; secrets are redacted. Rule: HITL-09."""

    type: Literal["elicitation_response"] = "elicitation_response"
    request_id: Id
    action: Annotated[str, open_str("accept", "decline", "cancel")]
    content: Json = None


class Usage(Event):
    """What one model call used. A count that was not reported is absent, not 0."""

    type: Literal["usage"] = "usage"
    model: Str | None = optional()
    input_tokens: Int | None = optional(ge=0)
    output_tokens: Int | None = optional(ge=0)
    """Without the reasoning tokens."""
    cached_tokens: Int | None = optional(ge=0)
    """Of the input tokens, those that came from a cache."""
    reasoning_tokens: Int | None = optional(ge=0)
    total_tokens: Int | None = optional(ge=0)
    cost: Float | None = optional(ge=0)
    """US dollars."""
    context_window: Int | None = optional(ge=0)


class Error(Event):
    """Something went wrong. ``fatal`` ends the stream at once. No stack trace and no secret. Rules: LIFE-09, SEC-01."""

    type: Literal["error"] = "error"
    status: Annotated[
        str,
        open_str(
            "INVALID_ARGUMENT",
            "FAILED_PRECONDITION",
            "NOT_FOUND",
            "PERMISSION_DENIED",
            "UNAUTHENTICATED",
            "RESOURCE_EXHAUSTED",
            "CANCELLED",
            "DEADLINE_EXCEEDED",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNKNOWN",
        ),
    ]
    """A google.rpc code name; open."""
    message: Str
    fatal: Bool = False
    code: Str | None = optional()
    """A rule id, or a provider's own code."""


class StreamEnd(Event):
    """The last event of a stream; nothing with the same stream id follows it. Rules: LIFE-05, LIFE-17."""

    type: Literal["stream_end"] = "stream_end"
    reason: Annotated[
        str,
        open_str(
            "completed",
            "input_required",
            "failed",
            "aborted",
            "refusal",
            "max_tokens",
            "max_turns",
            "max_llm_calls",
            "max_budget",
            "max_time",
            "deadline",
        ),
    ]
    pending: list[Id] = Field(default_factory=list)
    """The request ids that wait for the host; not empty if and only if the reason is ``input_required``."""
    data: JsonObject | None = optional()
    """``cause``, ``undelivered`` (steer ids), ``volatile`` (request ids that end with the process), ``empty``,
    ``grace`` (``completed``, ``failed`` or ``skipped``: what came of the last word after a limit)."""


class Custom(JsonFieldsModel, Event):
    """Something the contract has no type for: artifact_delta, compaction, plan, citation, grounding, ui_widget …"""

    type: Literal["custom"] = "custom"
    kind: Id
    data: Json = None


EVENT_CLASSES: Final[Mapping[str, type[Event]]] = {
    "initialize": Initialize,
    "session_update": SessionUpdate,
    "agent_start": AgentStart,
    "agent_end": AgentEnd,
    "message": Message,
    "tool_request": ToolRequest,
    "tool_decision": ToolDecision,
    "tool_update": ToolUpdate,
    "tool_response": ToolResponse,
    "elicitation_request": ElicitationRequest,
    "elicitation_response": ElicitationResponse,
    "usage": Usage,
    "error": Error,
    "stream_end": StreamEnd,
    "custom": Custom,
}
"""The class of each event type that this version knows."""

EVENT_TYPES: Final = frozenset(EVENT_CLASSES)
"""The event types that this version knows; others are kept as :class:`UnknownEvent`."""


class UnknownEvent(Event):
    """An event of a type that this version does not know, kept unchanged; legal in any open stream."""

    type: Id

    @model_serializer(mode="wrap")
    def _as_it_came(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        out: dict[str, Any] = handler(self)
        for name, field in type(self).model_fields.items():
            if name not in self.model_fields_set:
                out.pop(field.alias or name, None)
        return out

    @field_validator("type")
    @classmethod
    def _not_known(cls, value: str) -> str:
        if value in EVENT_TYPES:
            raise ValueError(f"{value!r} is a known event type; use its own class")
        return value


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) and kind in EVENT_TYPES else "?"


AgentEvent = Annotated[
    Annotated[Initialize, Tag("initialize")]
    | Annotated[SessionUpdate, Tag("session_update")]
    | Annotated[AgentStart, Tag("agent_start")]
    | Annotated[AgentEnd, Tag("agent_end")]
    | Annotated[Message, Tag("message")]
    | Annotated[ToolRequest, Tag("tool_request")]
    | Annotated[ToolDecision, Tag("tool_decision")]
    | Annotated[ToolUpdate, Tag("tool_update")]
    | Annotated[ToolResponse, Tag("tool_response")]
    | Annotated[ElicitationRequest, Tag("elicitation_request")]
    | Annotated[ElicitationResponse, Tag("elicitation_response")]
    | Annotated[Usage, Tag("usage")]
    | Annotated[Error, Tag("error")]
    | Annotated[StreamEnd, Tag("stream_end")]
    | Annotated[Custom, Tag("custom")]
    | Annotated[UnknownEvent, Tag("?")],
    Discriminator(_tag),
]
"""One event, known or not."""


def is_ephemeral(event: Event) -> bool:
    """Whether ``event`` may be dropped from the record after its stream's end: deltas and progress."""
    kind = event.type
    if kind == "message" or kind == "tool_request":
        return bool(event.partial)  # type: ignore[attr-defined]  # both of these classes have it
    return bool(kind == "tool_update" and not event.started)  # type: ignore[attr-defined]  # the class has it
