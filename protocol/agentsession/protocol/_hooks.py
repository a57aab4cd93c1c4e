"""Lifecycle hooks: what a host's interceptor is asked at the points of a session's life, and what it may answer.

Not for: running hooks (``agentsession.adapters.base`` fires them), or deciding who may run a tool (that is policy).
Rules carried: HITL-04 (an approval is for the arguments that run), SEC-01. May import: ``_base``, ``_content``,
``_errors``.

Everything a hook sees and answers is JSON, so that a command or a server can be a hook as well as a function. The set
of points is open: an executor fires those that it has, and an interceptor lets pass the ones that it does not know.

*Stages only tighten.* A hook can refuse a tool call or change what it is asked with; it cannot allow one: there is no
such word, and policy and person are asked after it.

*When a hook fails* (it raises, or answers what cannot be used) the points ``before_*`` block and the others go on; an
``error`` event with the code ``hook-failed`` says where, without the exception's text.
"""

from collections.abc import Awaitable, Mapping
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Protocol, Self, runtime_checkable

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

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
from agentsession.protocol._content import ContentPart, as_content
from agentsession.protocol._errors import InvalidInput

__all__ = [
    "HOOK_POINTS",
    "AgentHook",
    "ContentChange",
    "ErrorHook",
    "EventHook",
    "FallbackQuestion",
    "HookChange",
    "HookOutcome",
    "HookPayload",
    "HookPoint",
    "LifecycleInterceptor",
    "ModelContent",
    "ModelErrorChange",
    "ModelErrorHook",
    "ModelRequestChange",
    "ModelRequestHook",
    "ModelResponseHook",
    "RunHook",
    "SessionHook",
    "ToolArgsChange",
    "ToolCallHook",
    "ToolErrorHook",
    "ToolResultChange",
    "ToolResultHook",
    "UserMessageHook",
    "block",
    "modify",
    "proceed",
    "read_change",
    "wants_hook",
]

Seconds = Annotated[Float, Field(ge=0, le=86_400)]

# --- what a hook is told ----------------------------------------------------------------------------------------------


class HookPayload(Model):
    """What every hook is told: whose session it is, and where in it."""

    session_id: Id
    user_id: Id
    turn_id: Id | None = optional()
    """Absent outside a turn."""
    agent_id: Id | None = optional()
    """The agent at work."""
    thread_id: Id | None = optional()
    """Where it works; absent on the main thread."""
    permission_mode: Str | None = optional()
    principal_path: list[Id] | None = optional()
    """The agents from the root to the one at work, where the host knows them: always of its sub-agents, which have
    sessions of their own."""


class SessionHook(HookPayload):
    """``session_start``, ``session_end``: fired by every executor of the base class."""

    reason: Annotated[str, open_str("opened", "loaded", "forked", "adopted", "closed")]


class UserMessageHook(HookPayload):
    """``on_user_message``: somebody speaks to an agent."""

    content: list[ContentPart]
    source: Annotated[str, open_str("user", "agent")] = "user"
    """``agent``: an agent speaks to one that it uses as a tool."""
    steer: Bool = False
    """It was said while the turn was running."""


class RunHook(HookPayload):
    """``before_run``, ``after_run``: the executor's framework begins or ends a run; a turn may have several."""

    resumed: Bool = False
    """The run goes on with answers to what an earlier run of the turn asked."""


class AgentHook(HookPayload):
    """``before_agent``, ``after_agent``."""


class ErrorHook(HookPayload):
    """``on_agent_error``, ``on_run_error``: only told; what the hook answers changes nothing."""

    error_type: Str
    """The name of the exception's class; never its text, which may hold a secret."""


class EventHook(HookPayload):
    """``on_event``: the framework made a whole event, which is neither stored nor shown yet."""

    content: list[ContentPart] = Field(default_factory=list)
    """What it says, calls and results among it."""
    error_code: Str | None = optional()


class ModelContent(Model):
    """One entry of what a model reads."""

    role: Str | None = optional()
    content: list[ContentPart] = Field(default_factory=list)


class ModelRequestHook(HookPayload):
    """``before_model``: a model is about to be called with this."""

    model: Str | None = optional()
    contents: list[ModelContent] = Field(default_factory=list)
    system_instruction: Str | None = optional()
    tools: list[Str] = Field(default_factory=list)
    """The names of the tools it is offered."""
    config: JsonObject = Field(default_factory=dict)
    """How it answers: temperature, top_p, top_k, max_output_tokens, stop_sequences, seed, penalties; what is set."""


class ModelResponseHook(HookPayload):
    """``after_model``: a model's whole answer, calls among it. With streaming its deltas were shown already."""

    model: Str | None = optional()
    content: list[ContentPart] = Field(default_factory=list)
    finish_reason: Str | None = optional()
    error_code: Str | None = optional()


class ModelErrorHook(ErrorHook):
    """``on_model_error``: a model call raised. What it means is told in numbers and names; its text is not."""

    model: Str | None = optional()
    """The model that was called."""
    code: Int | None = optional()
    """The HTTP status, where the provider answered with one."""
    status: Str | None = optional()
    """The google.rpc name; ``UNAVAILABLE`` where the provider was not reached, absent where the error does not say."""
    reason: Str | None = optional()
    """The provider's own short name for it, such as ``RATE_LIMIT_EXCEEDED``."""
    retry_after_s: Seconds | None = optional()
    """How long the provider asks to wait."""
    exhausted: Bool = False
    """A quota is used up for long, or there is none: waiting a moment does not help."""
    attempt: Int = 1
    """How many calls were made for this answer so far, whatever the model."""
    began: Bool = False
    """Something of the answer was shown already: a repeated call starts another message."""
    can_retry: Bool = False
    """The call can be made again: on this model or another."""
    answer: JsonObject | None = optional()
    """What the person said to the question that the hook asked about this error: ``action``, and ``content`` if any."""


class ToolCallHook(HookPayload):
    """``before_tool``: an agent wants a tool. Fired once for each call, before anybody is asked about it."""

    request_id: Id
    name: Str
    args: JsonObject = Field(default_factory=dict)
    owner: Str = "agent"
    """Who would run it: agent or host."""
    granted: Bool = False
    """Fired a second time, because the host granted the call with arguments of its own: these. A change blocks now."""


class ToolResultHook(HookPayload, JsonFieldsModel):
    """``after_tool``: what a call returned, before the model or the record has it. Also of calls that were refused."""

    request_id: Id | None = optional()
    name: Str
    args: JsonObject = Field(default_factory=dict)
    data: Json = None
    content: list[ContentPart] = Field(default_factory=list)
    """Parts beside the data or in its place, where the tool gave any; other data stands in the place of both."""
    is_error: Bool = False


class ToolErrorHook(ErrorHook):
    """``on_tool_error``: a tool of the agent raised."""

    request_id: Id | None = optional()
    name: Str
    args: JsonObject = Field(default_factory=dict)


# --- what it may answer -----------------------------------------------------------------------------------------------


class HookOutcome(Model):
    """What a hook answers; ``None`` in its place is :func:`proceed`."""

    action: Annotated[str, open_str("proceed", "block")] = "proceed"
    """An action that is not known counts as a failure of the hook. ``ask`` is a word between hooks and hosts
    (``agentsession.host.hooks``), which no executor knows."""
    message: Str | None = optional()
    """When it blocks: what is told in the place of what was blocked, to the person or to the model."""
    reason: Str | None = optional()
    """For the record."""
    by: Str | None = optional()
    """Which hook it was, for the record."""
    modifications: JsonObject | None = optional()
    """When it proceeds: the fields of the point's change (:data:`HOOK_POINTS`) that shall be other."""
    failure: Str | None = optional()
    """Of an interceptor made of several hooks: which of them failed, for the record (``hook-failed``). The action says
    what came of it."""


class HookChange(Model):
    """Base of what a hook may change at some point. Unlike elsewhere, a field that is not known is refused."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class ContentChange(HookChange):
    """Other content: text or parts. Where there are calls or results in it, they must stay as they were."""

    content: list[ContentPart]

    @field_validator("content", mode="before", json_schema_input_type=str | list[ContentPart])
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return as_content(value) if isinstance(value, str) else value


class ModelRequestChange(HookChange):
    """Another request, for this call alone; what is absent stays."""

    model: Str | None = optional()
    contents: list[ModelContent] | None = optional()
    system_instruction: Str | None = optional()
    tools: list[Str] | None = optional()
    """The tools that stay: those offered that are not named are taken away; none can be added."""
    config: JsonObject | None = optional()
    """Of :attr:`ModelRequestHook.config`: the values that shall be other; ``null`` unsets one."""


class FallbackQuestion(HookChange):
    """What a person is to be asked about a model that fails: an elicitation of the kind ``model_fallback``."""

    message: Str
    requested_schema: JsonObject
    """What may be answered."""
    context: JsonObject | None = optional()


class ModelErrorChange(HookChange):
    """What becomes of a model call that raised: one of four things, told apart by the fields that are given.

    ``content`` is its answer. ``next_model`` or ``after_s``: it is made again. ``ask``: a person is asked, and the
    hook is fired again with the answer. ``fail_as``: it fails, under a code of the hook's own.
    """

    content: list[ContentPart] | None = optional()
    next_model: Str | None = optional()
    """The model to call; absent: the same."""
    after_s: Seconds | None = optional()
    """How long to wait before; an abort ends the wait."""
    ask: FallbackQuestion | None = optional()
    fail_as: Annotated[str, Field(strict=True, pattern=r"^[A-Z][A-Z0-9_]{0,63}$")] | None = optional()

    @field_validator("content", mode="before", json_schema_input_type=str | list[ContentPart])
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return as_content(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        given = [self.content is not None, self.repeats, self.ask is not None, self.fail_as is not None]
        if sum(given) > 1:
            raise ValueError("a model call that failed is answered, repeated, asked about or failed: one of them")
        return self

    @property
    def repeats(self) -> bool:
        """The call shall be made again."""
        return self.next_model is not None or self.after_s is not None


class ToolArgsChange(HookChange):
    """Other arguments, the whole of them; they must fit the tool's schema."""

    args: JsonObject


class ToolResultChange(HookChange):
    """Another result."""

    data: Json


def proceed() -> HookOutcome:
    """Go on as if there were no hook."""
    return HookOutcome()


def block(message: str | None = None, *, reason: str | None = None, by: str | None = None) -> HookOutcome:
    """Stop what the hook stands before; what that means is said at each point of :data:`HOOK_POINTS`."""
    return HookOutcome(action="block", message=message, reason=reason, by=by)


def modify(*, reason: str | None = None, by: str | None = None, **modifications: Any) -> HookOutcome:
    """Go on with something changed, such as ``modify(args={…})`` at ``before_tool``.

    Content may be parts, or text. Raises :class:`ValueError` where a value is not JSON.
    """
    return HookOutcome(
        modifications={name: _plain(value) for name, value in modifications.items()}, reason=reason, by=by
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.to_wire()
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


# --- the points -------------------------------------------------------------------------------------------------------


class HookPoint(NamedTuple):
    """One point: what its hooks are told, what they may change, and what a block does."""

    payload: type[HookPayload]
    change: type[HookChange] | None
    block: str | None
    """What a block does; ``None``: it does nothing, hooks are only told."""
    fails_closed: bool = False
    """A hook that fails has blocked."""


HOOK_POINTS: Final[Mapping[str, HookPoint]] = {
    "session_start": HookPoint(SessionHook, None, "the session is not opened: `open` raises `hook-blocked`"),
    "session_end": HookPoint(SessionHook, None, None),
    "on_user_message": HookPoint(
        UserMessageHook,
        ContentChange,
        "the agent does not hear it; the message is said in the agent's place, and the turn ends `aborted`; "
        "of a steer nothing is said and the turn goes on",
    ),
    "before_run": HookPoint(
        RunHook, None, "no agent works; the message is said instead, and the turn ends `aborted`", fails_closed=True
    ),
    "after_run": HookPoint(RunHook, None, None),
    "on_event": HookPoint(
        EventHook, ContentChange, "the message stands in the place of what the event says; calls and results stay"
    ),
    "before_agent": HookPoint(
        AgentHook, None, "the agent does not work; the message is said in its place", fails_closed=True
    ),
    "after_agent": HookPoint(AgentHook, ContentChange, None),
    "before_model": HookPoint(
        ModelRequestHook, ModelRequestChange, "the model is not called; the message is its answer", fails_closed=True
    ),
    "after_model": HookPoint(
        ModelResponseHook, ContentChange, "the message stands in the place of the answer; none of its calls is made"
    ),
    "on_model_error": HookPoint(ModelErrorHook, ModelErrorChange, "the message is the model's answer"),
    "before_tool": HookPoint(
        ToolCallHook, ToolArgsChange, "the tool does not run; the model is told the message", fails_closed=True
    ),
    "after_tool": HookPoint(ToolResultHook, ToolResultChange, "the model is told the message instead of the result"),
    "on_tool_error": HookPoint(ToolErrorHook, ToolResultChange, "the model is told the message"),
    "on_agent_error": HookPoint(ErrorHook, None, None),
    "on_run_error": HookPoint(ErrorHook, None, None),
}
"""The points that executors fire. At ``after_agent`` changed content is said in addition; at ``on_model_error`` it is
the answer (or the call is made again), at ``on_tool_error`` changed data is the result. Those of sessions, messages and
tool calls are fired for every executor of the base class, the others by frameworks that have them.
``before_tool_selection``, ``notification`` and ``pre_compress`` are names for points of a host's own."""


@runtime_checkable
class LifecycleInterceptor(Protocol):
    """A host's hooks, handed to a session when it is opened.

    An interceptor may have an attribute ``points``, a collection of names: it is then asked at no others, which costs
    nothing. How long a hook may take is its own affair; an abort cancels one that hangs.
    """

    def fire(self, hook_point: str, payload: HookPayload, /) -> HookOutcome | Awaitable[HookOutcome | None] | None:
        """Answer at a point; ``None`` proceeds. Whatever it raises is a failure of the hook (see the module)."""
        ...


def wants_hook(hooks: LifecycleInterceptor | None, point: str) -> bool:
    """Whether there is an interceptor that wants to be asked at ``point``."""
    if hooks is None:
        return False
    points: Any = getattr(hooks, "points", None)
    return points is None or point in points


def read_change(point: str, outcome: HookOutcome) -> HookChange | None:
    """What an outcome changes at a point, or ``None``.

    Raises:
        InvalidInput: an action that is not known, a block where nothing can be blocked, or modifications that the
            point does not take.
    """
    spec = HOOK_POINTS[point]
    if outcome.action == "block" and spec.block is not None:
        return None
    if outcome.action != "proceed":
        raise InvalidInput(
            f"a hook answered {outcome.action!r} at {point}",
            where=point,
            expected="proceed" if spec.block is None else "proceed or block",
        )
    if not outcome.modifications:
        return None
    if spec.change is None:
        raise InvalidInput("a hook changed something where nothing can be changed", where=point)
    try:
        return spec.change.model_validate(outcome.modifications)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(
            f"a hook's modifications cannot be used: {'.'.join(map(str, first['loc']))}: {first['msg']}", where=point
        ) from None
