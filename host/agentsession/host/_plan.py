"""A plan, as ``custom`` events of kind ``plan`` carry it: steps, each with how far it is.

Not for: showing it. Rules carried: none; the contract leaves ``data`` open, so several shapes are read and anything
else is no plan. May import: the standard library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

__all__ = ["PlanStep", "StepState", "plan_steps"]

StepState = Literal["open", "working", "done", "dropped"]

_LISTS: Final = ("entries", "steps", "items", "todos", "tasks", "plan")
_TEXTS: Final = ("content", "text", "title", "step", "description", "task", "name")
_STATES: Final = ("status", "state", "done", "completed", "checked")
_WORDS: Final[Mapping[object, StepState]] = {
    True: "done",
    **dict.fromkeys(("done", "completed", "complete", "finished", "success"), "done"),
    **dict.fromkeys(("in_progress", "in-progress", "inprogress", "active", "running", "started", "working"), "working"),
    **dict.fromkeys(("cancelled", "canceled", "skipped", "dropped", "failed"), "dropped"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan."""

    text: str
    state: StepState = "open"


def plan_steps(data: Any) -> list[PlanStep] | None:
    """The steps of a plan: a list of texts or objects, or an object that holds one; ``None`` for anything else."""
    if isinstance(data, Mapping):
        data = next((data[name] for name in _LISTS if isinstance(data.get(name), (list, tuple))), None)
    if not isinstance(data, (list, tuple)) or not data:
        return None
    steps = [_step(item) for item in data]
    known = [step for step in steps if step is not None]
    return known if len(known) == len(steps) else None


def _step(item: Any) -> PlanStep | None:
    if isinstance(item, str):
        return PlanStep(item)
    if not isinstance(item, Mapping):
        return None
    text = next((item[name] for name in _TEXTS if isinstance(item.get(name), str)), None)
    if text is None:
        return None
    state = next((item[name] for name in _STATES if isinstance(item.get(name), (str, bool))), None)
    return PlanStep(text, _WORDS.get(state.lower() if isinstance(state, str) else state, "open"))
