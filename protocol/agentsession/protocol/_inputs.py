"""What a host puts in: messages, answers, steers, updates, options, and the receipts it gets.

Not for: what comes back (``_events.py``). Rules carried: TOOL-09, TOOL-10, TOOL-14, HITL-08, HITL-09, CTL-06, CTL-07.
May import: ``_base``, ``_content``, ``_descriptor``, ``_errors``, ``_events``, ``_limits``, ``_secrets``.

On the wire an input is told apart by ``kind``. Kinds are a closed set: an input that cannot be read is refused, never
guessed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from agentsession.protocol._base import (
    Bool,
    Float,
    Id,
    Json,
    JsonFieldsModel,
    JsonObject,
    Model,
    Str,
    open_str,
    optional,
)
from agentsession.protocol._content import Content, ContentPart, as_content
from agentsession.protocol._descriptor import Constraints, ToolDescriptor
from agentsession.protocol._errors import InvalidInput
from agentsession.protocol._events import Decision, Spent
from agentsession.protocol._limits import Grace, Price
from agentsession.protocol._secrets import REDACTED

__all__ = [
    "INPUT_CLASSES",
    "STEER_QUEUED",
    "AbortResult",
    "Answer",
    "ElicitationAnswer",
    "ExecutionOptions",
    "HostCapabilities",
    "MessageInput",
    "OpenOptions",
    "Receipt",
    "SessionConfig",
    "SteerData",
    "StreamInput",
    "ToolDenial",
    "ToolGrant",
    "ToolProgress",
    "ToolResult",
    "accept",
    "as_answers",
    "cancel",
    "decline",
    "deny",
    "grant",
    "result",
]


class MessageInput(Model):
    """What the user says: starts a turn."""

    kind: Literal["message"] = "message"
    content: list[ContentPart]
    role: Annotated[str, open_str("user", "developer")] = "user"
    message_id: Id | None = optional()
    """Chosen by the host; the session makes one when absent."""
    idempotency_key: Id | None = optional()
    """A message with a key that was seen before re-attaches to that turn and runs nothing."""

    @field_validator("content", mode="before", json_schema_input_type=str | list[ContentPart])
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return as_content(value) if isinstance(value, str) else value


class _AnswerBase(Model):
    request_id: Id
    name: Str | None = optional()
    """The tool's name, if the host wants it checked against the request (rule TOOL-14)."""
    decision: Decision | None = optional()


class ToolResult(JsonFieldsModel, _AnswerBase):
    """The host ran the tool; this is what it returned, or how it failed (``is_error``)."""

    kind: Literal["tool_result"] = "tool_result"
    content: list[ContentPart] = Field(default_factory=list)
    data: Json = None
    is_error: Bool = False
    display: JsonObject | None = optional()
    args: JsonObject | None = optional()
    """The whole arguments that the tool ran with when they were edited; absent when they were those of the request."""
    unknown: Bool | None = optional()
    """Not how it ended: it had started and was cut off, so its effects are not known. The response's status says so."""
    spent: Spent | None = optional()
    """What counts against the turn's limits, beside the agent's own model calls."""


class ToolGrant(_AnswerBase):
    """The executor may run its own tool now, with the requested arguments or with ``args`` instead."""

    kind: Literal["tool_grant"] = "tool_grant"
    args: JsonObject | None = optional()
    """The whole arguments when they were edited; absent to approve them as requested."""


class ToolDenial(_AnswerBase):
    """Policy or a person said no; the model is told, with the reason."""

    kind: Literal["tool_denial"] = "tool_denial"
    reason: Str | None = optional()


class ToolProgress(JsonFieldsModel, _AnswerBase):
    """Not an answer yet: progress of a tool that the host runs, or its start; becomes a ``tool_update``."""

    kind: Literal["tool_progress"] = "tool_progress"
    content: list[ContentPart] = Field(default_factory=list)
    data: Json = None
    progress: Float | None = optional()
    total: Float | None = optional()
    started: Bool | None = optional()
    """The tool is about to run. Once the receipt is there this is in the record: whoever finds it there without a
    response after a crash knows that the tool may have had its effects. A second start is stale. Rule: TOOL-16."""


class ElicitationAnswer(JsonFieldsModel, _AnswerBase):
    """What the person answered. ``accept`` may carry content; ``decline`` and ``cancel`` never do (rule HITL-09)."""

    kind: Literal["elicitation_response"] = "elicitation_response"
    action: Annotated[str, open_str("accept", "decline", "cancel")]
    content: Json = None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What a person answered is in no repr: it may be a secret, which only the question's schema would tell, and
        those of answers end in logs and in the reports of exceptions (SEC-01)."""
        for name, value in super().__repr_args__():
            yield name, REDACTED if name == "content" and value is not None else value


Answer = Annotated[
    ToolResult | ToolGrant | ToolDenial | ToolProgress | ElicitationAnswer,
    Field(discriminator="kind"),
]
"""One answer to one pending request, told apart by ``kind``."""

StreamInput = Annotated[
    MessageInput | ToolResult | ToolGrant | ToolDenial | ToolProgress | ElicitationAnswer,
    Field(discriminator="kind"),
]
"""One input of ``stream()`` on the wire."""

INPUT_CLASSES: Final[Mapping[str, type[Model]]] = {
    "message": MessageInput,
    "tool_result": ToolResult,
    "tool_grant": ToolGrant,
    "tool_denial": ToolDenial,
    "tool_progress": ToolProgress,
    "elicitation_response": ElicitationAnswer,
}
"""The class of each kind of input; all but ``message`` are answers. The set is closed."""


_ANSWER_CLASSES: Final = (ToolResult, ToolGrant, ToolDenial, ToolProgress, ElicitationAnswer)


def as_answers(given: Answer | Iterable[Answer]) -> list[Answer]:
    """One answer or several as a list. Raises :class:`InvalidInput`, naming the type, for anything else."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, Model))
    answers: list[Any] = list(given) if several else [given]
    for answer in answers:
        if not isinstance(answer, _ANSWER_CLASSES):
            nested = isinstance(answer, (list, tuple))
            raise InvalidInput(
                f"a value of type {type(answer).__name__} is no answer",
                got=type(answer).__name__,
                expected="one of " + ", ".join(kind.__name__ for kind in _ANSWER_CLASSES),
                fix="take the answers out of the list, as in respond(*answers)"
                if nested
                else "make one with result(), grant(), deny(), accept(), decline() or cancel()",
            )
    return answers


def result(
    request_id: str,
    data: Any = None,
    *,
    content: Content | None = None,
    is_error: bool = False,
    args: dict[str, Any] | None = None,
) -> ToolResult:
    """The host ran the tool: answer with its JSON ``data`` and, or, ``content``.

    With neither it returned ``null``; with ``content`` alone it returned no data. ``args`` are the whole arguments that
    it ran with, if they were edited.
    """
    given: dict[str, Any] = {} if data is None and content is not None else {"data": data}
    return ToolResult(request_id=request_id, content=as_content(content), is_error=is_error, args=args, **given)


def grant(request_id: str, args: dict[str, Any] | None = None, *, decision: Decision | None = None) -> ToolGrant:
    """Let the executor run its own tool, with the requested arguments or with ``args``."""
    return ToolGrant(request_id=request_id, args=args, decision=decision)


def deny(request_id: str, reason: str | None = None, *, decision: Decision | None = None) -> ToolDenial:
    """Refuse a tool request; the model is told ``reason``."""
    return ToolDenial(request_id=request_id, reason=reason, decision=decision)


def accept(request_id: str, content: Any = None) -> ElicitationAnswer:
    """Say yes to a question, with ``content`` where the question asks for some."""
    if content is None:
        return ElicitationAnswer(request_id=request_id, action="accept")
    return ElicitationAnswer(request_id=request_id, action="accept", content=content)


def decline(request_id: str) -> ElicitationAnswer:
    """Say no to a question."""
    return ElicitationAnswer(request_id=request_id, action="decline")


def cancel(request_id: str) -> ElicitationAnswer:
    """Leave a question without an answer: the person closed it."""
    return ElicitationAnswer(request_id=request_id, action="cancel")


class Receipt(Model):
    """What became of one answer, steer or update, at once.

    ``status``: applied, stale (answered or settled before), not_found, invalid (still pending), queued or rejected
    (steers and updates).
    """

    status: Annotated[str, open_str("applied", "stale", "not_found", "invalid", "queued", "rejected")]
    request_id: Id | None = optional()
    """The request that was answered, or the steer's id under which it appears in the record."""
    rule: Id | None = optional()
    """The rule that refused it, such as ``TOOL-09``."""
    reason: Str | None = optional()

    @property
    def ok(self) -> bool:
        """Whether it took effect: applied or queued."""
        return self.status in ("applied", "queued")


class AbortResult(Model):
    """What ``abort()`` did: ``aborted`` (the turn ended), ``idle`` (nothing to end), ``too_late`` (it just had)."""

    status: Annotated[str, open_str("aborted", "idle", "too_late")]
    stream_id: Id | None = optional()


STEER_QUEUED: Final = "steer_queued"
"""Kind of the ``custom`` event that keeps a queued steer until it is injected: ``{"steerId": …, "content": […]}``."""


class SteerData(JsonFieldsModel):
    """An intervention while the agent works: content to inject before the next model call, or a named action."""

    message: list[ContentPart] | None = optional()
    action: Str | None = optional()
    data: Json = None

    @field_validator("message", mode="before", json_schema_input_type=str | list[ContentPart] | None)
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return as_content(value) if isinstance(value, str) else value


class SessionConfig(Model):
    """What ``update()`` may change, from the next model call on; wholly applied or not at all."""

    title: Str | None = optional()
    model: Str | None = optional()
    permission_mode: Annotated[str, open_str("default", "auto_edit", "autonomous", "plan")] | None = optional()
    tools: list[ToolDescriptor] | None = optional()
    state: JsonObject | None = optional()
    """Keys to set in the session's state, recorded as given whatever they are called: no place for secrets."""
    config: JsonObject | None = optional()


class ExecutionOptions(Model):
    """How to run: for a session (``open``) or for one turn (``stream``)."""

    tools: list[ToolDescriptor] | None = optional()
    """Tools that the host declares and runs."""
    model: Str | None = optional()
    host_tool_execution: Bool | None = optional()
    """Whether the executor's own tools wait for the host's grant. Absent means yes: nothing runs without an allow."""
    streaming: Bool | None = optional()
    """Whether deltas are wanted. Absent means yes."""
    permission_mode: Annotated[str, open_str("default", "auto_edit", "autonomous", "plan")] | None = optional()
    limits: Constraints | None = optional()
    deadline: Str | None = optional()
    """ISO 8601, UTC."""
    state: JsonObject | None = optional()
    """The session's first state. It is recorded as given, whatever its keys are called: no place for secrets."""
    ephemeral: Bool | None = optional()
    """Keep nothing after the session is closed."""
    trace_context: JsonObject | None = optional()
    """W3C trace context headers of the caller."""
    config: JsonObject | None = optional()
    """Open, for the executor."""
    grace: Grace | None = optional()
    """A last model call for a turn that reached a limit. Absent means none: a limit of three calls is three calls."""
    prices: dict[Str, Price] | None = optional()
    """What models cost, for calls that do not say it themselves: by it ``max_budget_usd`` can be kept."""
    loop_detection: Bool | None = optional()
    """Whether a turn that only repeats itself is told so, and then stopped. Absent means no."""


class HostCapabilities(Model):
    """What the host can do. A question it cannot show is requested and cancelled in one step (rule HITL-07)."""

    elicitation_kinds: list[Str] | None = optional()
    """Kinds the host can show; absent means all, empty means none."""
    elicitation_modes: list[Str] | None = optional()
    """``form`` and, or, ``url``; absent means both."""
    content_types: list[Str] | None = optional()
    """Content types the host can show; absent means all."""
    tool_execution: Bool = True
    """Whether the host runs tools that it declares."""


class OpenOptions(Model):
    """What ``open`` takes beside the record store: who the user is, what the host can do, how to run."""

    session_id: Id | None = optional()
    """Chosen by the host; made by the executor when absent. Checked like every id at the edge."""
    user_id: Id = "local"
    host: HostCapabilities = Field(default_factory=HostCapabilities)
    execution: ExecutionOptions = Field(default_factory=ExecutionOptions)
    workspace: Str | None = optional()
