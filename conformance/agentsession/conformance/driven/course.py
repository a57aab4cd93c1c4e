"""Where a session must stand, by the script and by what its host has done: a small model of its own.

Not for: judging (``checks.py``). Rules carried: none. May import: ``plans``, ``script``.

It knows the script, the answers that were taken and the marks that were passed, and says at which step the agent
stands and what waits there. It never looks at an event: two tellings of the same course are what is compared. Requests
are known by name: ``call 3`` and ``question 3`` are the call and the question of number 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from agentsession.conformance.driven.plans import Plan
from agentsession.conformance.script import Ask, Call, Calls, Delegate, Hold, Raise, Refuse, Say, Step, Stop, Stream

__all__ = ["Course", "Rest"]

_YES: Final = ("grant", "edit")
"""The answers that let an own tool run."""


@dataclasses.dataclass(frozen=True)
class Rest:
    """Where the agent stands until the host does something."""

    state: Literal["new", "idle", "running", "input_required"]
    waits: frozenset[str] = frozenset()
    """The requests that wait, by name."""
    reason: str | None = None
    """Why the turn ended, if it did."""
    place: int = 0
    """The step of the turn at which it stands."""


@dataclasses.dataclass
class Course:
    """What one session has come to."""

    plan: Plan
    turn: int = 0
    """The turn that was begun last, counted from 1."""
    given: dict[str, str] = dataclasses.field(default_factory=dict)
    """How each request was answered, by name."""
    released: set[str] = dataclasses.field(default_factory=set)
    """The marks that the agent may pass."""
    is_open: bool = False
    """Whether the turn goes on: it runs or waits."""
    reason: str | None = None
    """Why the last turn ended."""
    paused: Rest | None = None
    """Where the agent stood when the turn's last stream ended; ``None``: it was continued since."""

    # -- what happens -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A message starts the next turn."""
        self.turn += 1
        self.is_open, self.reason, self.paused = True, None, None

    def go_on(self) -> None:
        """The waiting turn is continued."""
        self.paused = None

    def answer(self, name: str, how: str) -> None:
        """An answer was taken."""
        self.given[name] = how

    def end(self, reason: str) -> None:
        """The turn is over, by the host's doing."""
        self.is_open, self.reason, self.paused = False, reason, None

    def settle(self) -> Rest:
        """The agent has come as far as it can: where it stands, which is remembered."""
        rest = self.rest()
        if self.is_open and rest.state == "idle":
            self.is_open, self.reason = False, rest.reason
        if rest.state == "input_required" and self.paused is None:
            self.paused = rest
        return rest

    # -- where that leads ---------------------------------------------------------------------------------------------

    @property
    def steps(self) -> Sequence[Step]:
        """The steps of the turn; beyond the script there are none."""
        turns = self.plan.script.turns
        return turns[self.turn - 1] if 0 < self.turn <= len(turns) else []

    def rest(self) -> Rest:
        """Where the agent stands when it has come as far as it can."""
        if not self.is_open:
            return Rest("new") if self.turn == 0 else Rest("idle", reason=self.reason, place=len(self.steps))
        if self.paused is not None:
            return dataclasses.replace(self.paused, waits=self._open(self.paused.waits))
        return self._rest()

    def _rest(self) -> Rest:
        for place, step in enumerate(self.steps):
            at = self._at(step)
            if at is not None:
                return dataclasses.replace(at, place=place)
        return Rest("idle", reason="completed", place=len(self.steps))

    def _at(self, step: Step) -> Rest | None:
        """Where the agent stands in a step; ``None``: it has passed it."""
        match step:
            case Hold(mark=mark):
                return self._held(mark)
            case Stream(hold=mark):
                return self._held(mark)
            case Calls(calls=calls):
                return self._in_calls(calls)
            case Ask(message=message):
                return self._waits(self._questions(f"question {message.split()[1].rstrip('?')}", "clarification"))
            case Delegate(agents=agents):
                inner = [each for steps in agents.values() for each in steps if isinstance(each, Calls)]
                return self._waits(f"call {call.args['n']}" for each in inner for call in each.calls)
            case Raise():
                return Rest("idle", reason="failed")
            case Refuse():
                return Rest("idle", reason="refusal")
            case Stop(reason=reason):
                return Rest("idle", reason=reason)
            case _:
                return None

    def _in_calls(self, calls: Sequence[Call]) -> Rest | None:
        first = [name for call in calls for name in self._first(call)]
        if self._open(first):
            return self._waits(first)
        inside = [name for call in calls if call.asks and self._is_let(call) for name in self._confirmation(call)]
        if self._open(inside):
            return self._waits(inside)
        return next((held for call in calls if self.runs(call) and (held := self._held(call.hold))), None)

    def _first(self, call: Call) -> Iterable[str]:
        """What is asked about a call before anything of it runs."""
        if call.confirm:
            return self._confirmation(call)
        return [] if call.needs == "none" else [f"call {call.args['n']}"]

    def _confirmation(self, call: Call) -> list[str]:
        return self._questions(f"question {call.args['n']}", "tool_confirmation")

    def _questions(self, name: str, kind: str) -> list[str]:
        """The question, unless the host cannot show it: then it is cancelled at once."""
        return [name] if self.plan.shows(kind) else []

    def _open(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if name not in self.given)

    def _waits(self, names: Iterable[str]) -> Rest | None:
        waits = self._open(names)
        return Rest("input_required", waits) if waits else None

    def _held(self, mark: str | None) -> Rest | None:
        return Rest("running") if mark is not None and mark not in self.released else None

    # -- tools --------------------------------------------------------------------------------------------------------

    def _is_let(self, call: Call) -> bool:
        """Whether the host lets a call of an own tool go ahead."""
        return call.needs == "none" or self.given.get(f"call {call.args['n']}") in _YES

    def runs(self, call: Call) -> bool:
        """Whether the body of a call may run, by what was answered so far."""
        if call.needs == "result" or not self._is_let(call):
            return False
        if not (call.confirm or call.asks):
            return True
        return self.given.get(f"question {call.args['n']}") == "accept"

    def passed(self) -> list[Call]:
        """The calls of the steps that the agent has passed in this turn."""
        done = self.steps[: self.rest().place]
        return [call for step in done if isinstance(step, Calls) for call in step.calls]

    def unsaid(self) -> list[str]:
        """What the agent says in this turn and cannot have said yet."""
        return [step.text for step in self.steps[self.rest().place :] if isinstance(step, Say)]
