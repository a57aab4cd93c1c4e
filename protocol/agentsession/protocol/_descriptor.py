"""What an agent is and what its tools look like: plain data, no live objects.

Not for: creating agents (a host's registry maps ``executor`` to a factory). Rules carried: LIFE-01.
May import: ``_base``.

Capabilities are the single source of truth: what is declared is tested as mandatory, and a call that is not declared
raises :class:`agentsession.protocol.Unimplemented`.
"""

from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from agentsession.protocol._base import Bool, Float, Id, Int, JsonObject, Model, OpenStr, Str, open_str, optional

__all__ = [
    "CAPABILITIES",
    "AgentDescriptor",
    "Composition",
    "Constraints",
    "Metadata",
    "ToolAnnotations",
    "ToolDescriptor",
]

CAPABILITIES: Final = frozenset(
    {
        "streaming",
        "host_tool_execution",
        "elicitation",
        "steering",
        "mid_turn_update",
        "abort",
        "resume",
        "load",
        "list",
        "delete",
        "fork",
        "rewind",
        "sub_agents",
        "usage",
        "cost",
        "reasoning",
        "media_input",
        "structured_output",
        "background",
    }
)
"""The capabilities with a meaning in this version; the list in a descriptor is open."""


def _identifier(value: str) -> str:
    if not value.isidentifier():
        raise ValueError("an agent's name is an identifier: letters, digits and underscores, not starting with a digit")
    return value


_NAME_PATTERN: Final = r"^[^\x00-@\[-^`{-\x7f][^\x00-/:-@\[-^`{-\x7f]*$"
"""What the published schema can say in every dialect of regular expressions: right for ASCII, open for the rest."""

AgentName = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=128),
    AfterValidator(_identifier),
    Field(json_schema_extra={"pattern": _NAME_PATTERN}),
]
"""A valid identifier: letters, digits and underscores, not starting with a digit."""


class ToolAnnotations(Model):
    """What a tool does to the world, as claimed by whoever declares it; open, and only a claim."""

    read_only: Bool | None = optional()
    destructive: Bool | None = optional()
    idempotent: Bool | None = optional()
    long_running: Bool | None = optional()
    open_world: Bool | None = optional()
    category: Str | None = optional()
    may_repeat: Bool | None = optional()
    """Calling it again with the same arguments is no sign of an agent that goes in circles, such as where it waits."""


class ToolDescriptor(Model):
    """One tool: its name, what it is for, and the JSON Schema of its arguments."""

    name: Id
    display_name: Str | None = optional()
    description: Str | None = optional()
    parameters_schema: JsonObject | None = optional()
    """JSON Schema of the arguments object; absent means: any object."""
    output_schema: JsonObject | None = optional()
    annotations: ToolAnnotations | None = optional()
    owner: Annotated[str, open_str("agent", "host")] = "host"
    """Who runs it: the ``agent`` (the executor, after a grant) or the ``host``."""


class Composition(Model):
    """How an agent uses its sub-agents."""

    pattern: Annotated[str, open_str("hierarchical", "sequential", "parallel", "loop", "transfer")]
    max_iterations: Int | None = optional(ge=1)
    transfer_targets: list[Str] | None = optional()
    max_depth: Int | None = optional(ge=0)


class Constraints(Model):
    """Limits that the agent itself declares; a host may set tighter ones in the execution options."""

    max_turns: Int | None = optional(ge=1)
    """Model steps per turn."""
    max_llm_calls: Int | None = optional(ge=1)
    """Model calls per turn, with retries and children."""
    max_time_seconds: Float | None = optional(gt=0)
    """Active seconds per turn, of the agent and of the host's tools; waiting for a person does not count."""
    max_budget_usd: Float | None = optional(gt=0)


class Metadata(Model):
    """Versions and marks of an agent; open."""

    version: Str | None = optional()
    interface_version: Str | None = optional()
    hash: Str | None = optional()
    """A digest of what makes the agent behave as it does; a stored session can be refused when it changed."""
    experimental: Bool | None = optional()


class AgentDescriptor(Model):
    """What an agent is, JSON-serialisable: the contract between who offers an agent and who hosts it.

    Rule: LIFE-01 (the descriptor validates against the published schema).
    """

    name: AgentName
    display_name: Str | None = optional()
    description: Str | None = optional()
    executor: OpenStr
    """The factory key that a host's registry maps to a creator, such as ``adk`` or ``scripted``; open."""
    input_schema: JsonObject | None = optional()
    output_schema: JsonObject | None = optional()
    capabilities: list[Str] = Field(default_factory=list)
    own_tools: list[ToolDescriptor] = Field(default_factory=list)
    """Tools that the executor itself runs, each only after a grant when the host controls tools."""
    required_tools: list[Str] = Field(default_factory=list)
    """Names of tools that the host must supply; opening a session without one of them is refused."""
    sub_agents: list["AgentDescriptor"] = Field(default_factory=list)
    composition: Composition | None = optional()
    constraints: Constraints | None = optional()
    metadata: Metadata | None = optional()
    config_schema: JsonObject | None = optional()
    """JSON Schema of the open ``config`` that ``update`` and the options accept."""

    @field_validator("capabilities")
    @classmethod
    def _distinct(cls, value: list[str]) -> list[str]:
        return list(dict.fromkeys(value))

    def supports(self, capability: str) -> bool:
        """Whether ``capability`` is declared."""
        return capability in self.capabilities
