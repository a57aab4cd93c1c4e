"""What the agent of a session plays that is driven at random: turns of blocks, each a few steps, each call numbered.

Not for: choosing the blocks (``machine.py``). Rules carried: none. May import: ``script``.

A plan is made of words alone, so that it can be drawn, shown and made smaller. Every call, question and text of it has
a number of its own: what the record says of it, what ran and what was answered can be told apart whatever happens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from agentsession.conformance.script import (
    Ask,
    Call,
    Calls,
    Count,
    Delegate,
    Fail,
    Hold,
    Raise,
    Recite,
    Refuse,
    Say,
    Script,
    Step,
    Stop,
    Stream,
    Think,
)

__all__ = ["SECRET", "Plan", "described", "plan_of", "words_for"]

SECRET: Final = "secret-of-the-suite-7f3a"
"""The text of an exception, which no event may repeat."""

_HOST: Final = frozenset({"host_tool_execution"})
_ASKS: Final = frozenset({"elicitation"})

_BLOCKS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "say": ("say", frozenset()),
    "look": ("calls", _HOST),
    "write": ("calls", _HOST),
    "hold": ("hold", frozenset()),
    "stream": ("stream", frozenset({"streaming"})),
    "look+look": ("calls", _HOST),
    "look+write": ("calls", _HOST),
    "look+write+look": ("calls", _HOST),
    "write+crash": ("calls", _HOST),
    "slow": ("calls", _HOST),
    "wipe": ("calls", _ASKS),
    "look+wipe": ("calls", _ASKS | _HOST),
    "wipe+wipe": ("calls", _ASKS),
    "deploy": ("calls", _ASKS | _HOST),
    "ask": ("ask", _ASKS),
    "form": ("ask", _ASKS),
    "think": ("think", frozenset({"reasoning"})),
    "count": ("count", frozenset({"usage"})),
    "fail": ("fail", frozenset()),
    "recite": ("recite", frozenset()),
    "held stream": ("stream", frozenset({"streaming"})),
    "delegate": ("delegate", _HOST | {"sub_agents"}),
    "raise": ("raise", frozenset()),
    "refuse": ("refuse", frozenset()),
    "stop": ("stop", frozenset()),
}
"""Each block: the step that a harness must be able to play for it, and the capabilities that it takes."""

_OFTEN: Final = ("hold", "slow", "held stream", "hold", "look+write", "wipe")
"""Blocks that are drawn more often: those where the agent is held while its host does something, or waits for more."""

_LAST: Final = ("raise", "refuse", "stop")
"""What ends a turn: nothing is planned after it."""

_TURNS: Final = 20
"""How many turns a script has: more than a sequence has steps, for a harness need not play beyond its script."""

FORM: Final[Mapping[str, Any]] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def words_for(plays: Collection[str], capabilities: Collection[str]) -> list[str]:
    """The blocks that an executor with these capabilities and a harness that plays these steps can play, some twice."""
    can = frozenset(capabilities)
    words = [word for word, (step, needs) in _BLOCKS.items() if step in plays and needs <= can]
    return [*words, *(word for word in _OFTEN if word in words)]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A script, how its host opens the session, and what the script is made of."""

    turns: tuple[tuple[str, ...], ...]
    """The blocks of each turn, by their names."""
    is_gated: bool
    """Whether the agent's own tools wait for the host's grant."""
    kinds: tuple[str, ...] | None
    """The kinds of question that the host can show; ``None``: all."""
    script: Script

    def shows(self, kind: str) -> bool:
        """Whether the host can show a question of this kind."""
        return self.kinds is None or kind in self.kinds

    def call(self, number: int) -> Call | None:
        """The call of this number."""
        return next((call for call in self.script.calls() if call.args.get("n") == number), None)

    def marks(self, turn: int) -> Iterator[str]:
        """The marks of one turn, counted from 1, at which the agent waits."""
        if turn > len(self.script.turns):
            return
        for step in self.script.turns[turn - 1]:
            holds = [step.mark] if isinstance(step, Hold) else [step.hold] if isinstance(step, Stream) else []
            if isinstance(step, Calls):
                holds = [call.hold for call in step.calls]
            yield from (mark for mark in holds if mark is not None)


def plan_of(turns: Sequence[Sequence[str]], *, is_gated: bool = True, kinds: Sequence[str] | None = None) -> Plan:
    """The plan of these blocks. What stands behind the end of a turn is left out, and what does not go together."""
    kept = [_whole(turn, is_gated) for turn in turns]
    numbers = iter(range(1, 1000))
    planned = [[step for word in turn for step in _steps(word, is_gated, numbers)] for turn in kept]
    more: list[list[Step]] = [[Say(text="again")]] * (_TURNS - len(planned))
    script = Script.of(*planned, *more)
    return Plan(tuple(map(tuple, kept)), is_gated, None if kinds is None else tuple(kinds), script)


def _whole(turn: Sequence[str], is_gated: bool) -> list[str]:
    kept: list[str] = []
    for word in turn:
        # That an agent is called may be an own tool's call, which would wait too; and a tool asks once it was granted.
        if (word == "delegate" and is_gated) or (word == "deploy" and not is_gated):
            continue
        kept.append(word)
        if word in _LAST:
            break
    return kept


def _steps(word: str, is_gated: bool, numbers: Iterator[int]) -> list[Step]:
    number = next(numbers)
    match word:
        case "say":
            return [Say(text=f"text {number}")]
        case "stream" | "held stream":
            hold = f"mark {number}" if word == "held stream" else None
            return [Stream(pieces=["text ", f"{number}", "."], hold=hold)]
        case "think":
            return [Think(text=f"thought {number}")]
        case "count":
            return [Count(input_tokens=3, output_tokens=number)]
        case "fail":
            return [Fail(message="a tool is slow"), Say(text=f"after {number}")]
        case "recite":
            return [Recite()]
        case "hold":
            return [Hold(mark=f"mark {number}")]
        case "raise":
            return [Raise(message=SECRET)]
        case "refuse":
            return [Refuse()]
        case "stop":
            return [Stop()]
        case "ask" | "form":
            schema = dict(FORM) if word == "form" else None
            return [Ask(message=f"Question {number}?", requested_schema=schema)]
        case "delegate":
            agents: dict[str, list[Step]] = {
                f"{side}{number}": [Calls(calls=[_call("look", is_gated, next(numbers))]), Say(text=f"{side} is done")]
                for side in ("left", "right")
            }
            return [Delegate(agents=agents)]
        case _:
            names = word.split("+")
            places = [number, *(next(numbers) for _ in names[1:])]
            return [
                Calls(calls=[_call(name, is_gated, place) for name, place in zip(names, places, strict=True)]),
                Say(text=f"after {number}"),
            ]


def _call(name: str, is_gated: bool, number: int) -> Call:
    args = {"n": number}
    own: Literal["grant", "none"] = "grant" if is_gated else "none"
    match name:
        case "look":
            return Call(name=name, args=args)
        case "wipe":
            return Call(name=name, args=args, needs="none", confirm=True)
        case "deploy":
            return Call(name=name, args=args, needs=own, asks=True)
        case "crash":
            return Call(name=name, args=args, needs=own, fails=True)
        case "slow":
            # A tool of its own: a harness may have one body for all calls of a name.
            return Call(name=f"slow_{number}", args=args, needs=own, hold=f"mark {number}")
        case _:
            return Call(name=name, args=args, needs=own)


def described(plan: Plan) -> list[str]:
    """What the agent does and how the host opens the session, a line for each turn."""
    planned = plan.script.turns[: len(plan.turns)]
    lines = [f"turn {number}: {_said(turn) or 'nothing'}" for number, turn in enumerate(planned, start=1)]
    how = "wait for a grant" if plan.is_gated else "are left to the agent"
    if any(call.needs != "result" and not call.confirm for call in plan.script.calls()):
        lines.append(f"the agent's own tools {how}")
    if plan.kinds is not None:
        lines.append(f"the host can show questions of the kinds: {', '.join(plan.kinds) or 'none'}")
    return lines


def _said(turn: Sequence[Step]) -> str:
    return ", then ".join(_step(step) for step in turn)


def _step(step: Step) -> str:
    match step:
        case Say(text=text):
            return f"says {text!r}"
        case Stream(pieces=pieces, hold=mark):
            return f"streams {''.join(pieces)!r}" + (f", held before its last piece at {mark!r}" if mark else "")
        case Hold(mark=mark):
            return f"is held at {mark!r}"
        case Ask(message=message, requested_schema=schema):
            return f"asks {message!r}" + (" with a form" if schema else "")
        case Calls(calls=calls):
            return "calls " + ", ".join(_called(call) for call in calls)
        case Delegate(agents=agents):
            return "delegates to " + " and to ".join(f"{name}, which {_said(steps)}" for name, steps in agents.items())
        case Think():
            return "thinks"
        case Count():
            return "tells what it used"
        case Fail():
            return "reports an error that is not fatal"
        case Recite():
            return "recites what it was told"
        case Raise():
            return "raises"
        case Refuse():
            return "refuses"
        case Stop(reason=reason):
            return f"stops with {reason}"


def _called(call: Call) -> str:
    extra = [
        *(["the host's"] if call.needs == "result" else []),
        *(["confirmed by a person"] if call.confirm else []),
        *(["asks from inside"] if call.asks else []),
        *(["fails"] if call.fails else []),
        *([f"held at {call.hold!r}"] if call.hold else []),
    ]
    return f"{call.name} {call.args}" + (f" ({', '.join(extra)})" if extra else "")
