"""Ways to change a script. Not for: the faults themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentsession.conformance.script import Delegate, Script, Step

__all__ = ["replaced"]

Change = Callable[[Step], Sequence[Step]]


def replaced(script: Script, change: Change) -> Script:
    """The script with each step replaced by others, those of sub-agents too."""
    return Script.of(*(_steps(turn, change) for turn in script.turns))


def _steps(steps: Sequence[Step], change: Change) -> list[Step]:
    made: list[Step] = []
    for step in steps:
        if isinstance(step, Delegate):
            inner = {name: _steps(own, change) for name, own in step.agents.items()}
            made.append(step.model_copy(update={"agents": inner}))
        else:
            made += change(step)
    return made
