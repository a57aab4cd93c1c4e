"""What the agent under test does, as data: steps of a model that every executor can play in its own way.

For: harnesses (``harness.py``) turn a script into an agent; scenarios write scripts; over stdio a script is its JSON.
Not for: what the host does. Rules carried: none. May import: ``agentsession.protocol``, pydantic.

A script is a list of turns, a turn a list of steps. The suite never depends on a prompt or on what a model feels like
saying: an author whose executor wraps a real SDK plays the steps with that SDK's own way of faking a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentsession.protocol import ToolDescriptor

__all__ = [
    "STEPS",
    "Ask",
    "Call",
    "Calls",
    "Count",
    "Delegate",
    "Fail",
    "Hold",
    "Raise",
    "Recite",
    "Refuse",
    "Say",
    "Script",
    "Step",
    "Stop",
    "Stream",
    "Think",
]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Say(_Data):
    """One whole message."""

    step: Literal["say"] = "say"
    text: str


class Stream(_Data):
    """One message in pieces, each a delta, then the whole."""

    step: Literal["stream"] = "stream"
    pieces: list[str]
    hold: str | None = None
    """The model waits at this mark (see :class:`Hold`) before the last piece."""


class Think(_Data):
    """A message of reasoning."""

    step: Literal["think"] = "think"
    text: str


class Call(_Data):
    """One tool call."""

    name: str
    args: dict[str, Any] = {}
    needs: Literal["result", "grant", "none"] = "result"
    """``result``: a tool of the host's. ``grant``: the agent's own, which the host must grant. ``none``: the agent's
    own, which the host leaves to the executor."""
    confirm: bool = False
    """With ``none``: the tool declares that a person must confirm it, by an elicitation ``tool_confirmation``."""
    asks: bool = False
    """The tool asks from inside: its body, once it is let run, first asks for a person's yes, by an elicitation
    ``tool_confirmation``, and does no work without it. What counts as its run is what comes after the yes."""
    fails: bool = False
    """The tool's body raises an error when it runs."""
    parameters: dict[str, Any] | None = None
    """The schema that the tool declares; any object when left out. The first call of a name has the say."""
    hold: str | None = None
    """The tool's body waits at this mark (see :class:`Hold`) before it returns."""


class Calls(_Data):
    """Tool calls that the model makes at once."""

    step: Literal["calls"] = "calls"
    calls: list[Call] = Field(min_length=1)


class Ask(_Data):
    """A question of the agent's to the person."""

    step: Literal["ask"] = "ask"
    message: str
    kind: str = "clarification"
    requested_schema: dict[str, Any] | None = None


class Recite(_Data):
    """The model says, as one message, the JSON list of what it was told of its calls and questions of this turn:
    ``{"name", "args", "data", "is_error"}`` for a call and ``{"action", "content"}`` for a question, in their order.

    ``args`` are those that the model wrote. A sub-agent tells of its own alone. What the model was told of a denial is
    up to the executor, as long as ``is_error`` says that it was no result."""

    step: Literal["recite"] = "recite"


class Hold(_Data):
    """The model thinks until the suite lets it go on, or aborts it: ``await play.hold(mark)``."""

    step: Literal["hold"] = "hold"
    mark: str
    stubborn: bool = False
    """It does not heed an abort either: ``play.hold(mark)`` sees to that. An executor may end it nevertheless."""


class Fail(_Data):
    """The executor reports an error of its own and goes on."""

    step: Literal["fail"] = "fail"
    message: str = "a tool is slow"


class Raise(_Data):
    """The executor's code raises an exception with this text, which no event may repeat."""

    step: Literal["raise"] = "raise"
    message: str


class Refuse(_Data):
    """The model declines, and the turn ends with the reason ``refusal``."""

    step: Literal["refuse"] = "refuse"
    text: str = "I can't help with that."


class Count(_Data):
    """What the model call used."""

    step: Literal["count"] = "count"
    input_tokens: int
    output_tokens: int


class Stop(_Data):
    """The model stops short, with this reason of ``stream_end``, such as ``max_tokens``."""

    step: Literal["stop"] = "stop"
    reason: str = "max_tokens"


class Delegate(_Data):
    """Sub-agents at work side by side, each with steps of its own on a thread of its own."""

    step: Literal["delegate"] = "delegate"
    agents: dict[str, list[Step]]


Step = Annotated[
    Say | Stream | Think | Calls | Ask | Recite | Hold | Fail | Raise | Refuse | Count | Stop | Delegate,
    Field(discriminator="step"),
]
"""One thing that the agent does."""

Delegate.model_rebuild()

STEPS: Final = frozenset(
    ("say", "stream", "think", "calls", "ask", "recite", "hold", "fail", "raise", "refuse", "count", "stop", "delegate")
)
"""The names of all steps: a harness that cannot play some of them says which it can."""

_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": True}


class Script(_Data):
    """What the agent does, turn by turn. Beyond the last turn it says that the script is over."""

    turns: list[list[Step]]

    @classmethod
    def of(cls, *turns: Sequence[Step]) -> Script:
        """The script of these turns."""
        return cls(turns=[list(turn) for turn in turns])

    def steps(self) -> Iterator[Step]:
        """Every step, those of sub-agents too."""
        for turn in self.turns:
            yield from _all(turn)

    @property
    def needed(self) -> frozenset[str]:
        """The names of the steps that a harness must be able to play."""
        return frozenset(step.step for step in self.steps())

    @property
    def is_gated(self) -> bool | None:
        """Whether own tools wait for the host: as the calls have it, ``None`` where no call cares."""
        needs = {call.needs for call in self.calls() if not call.confirm}
        return "grant" in needs if needs & {"grant", "none"} else None

    def calls(self) -> Iterator[Call]:
        """Every call."""
        for step in self.steps():
            if isinstance(step, Calls):
                yield from step.calls

    def host_tools(self) -> list[ToolDescriptor]:
        """The tools that the host declares for it."""
        return _tools(call for call in self.calls() if call.needs == "result")

    def own_tools(self) -> list[ToolDescriptor]:
        """The tools that the agent has itself."""
        return _tools(call for call in self.calls() if call.needs != "result")


def _all(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        if isinstance(step, Delegate):
            for inner in step.agents.values():
                yield from _all(inner)


def _tools(calls: Iterator[Call]) -> list[ToolDescriptor]:
    first: dict[str, Call] = {}
    for call in calls:
        first.setdefault(call.name, call)
    return [
        ToolDescriptor(
            name=call.name,
            description=f"Does {call.name}.",
            parameters_schema=dict(_PARAMETERS if call.parameters is None else call.parameters),
            owner="host" if call.needs == "result" else "agent",
        )
        for call in first.values()
    ]
