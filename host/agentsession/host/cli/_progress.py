"""What a plan and the progress of a long tool look like in lines.

Not for: keeping track of a session (``_render.py``). May import: ``agentsession.protocol``, ``_plan``, the pure modules
beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from agentsession.host._plan import PlanStep, StepState
from agentsession.host.cli._lines import Line, Style, View, line
from agentsession.host.cli._text import cut, escape, plural
from agentsession.protocol import ToolUpdate, plain_text

__all__ = ["EVERY_S", "Progress", "plan_lines"]

EVERY_S: Final = 10.0
"""Where there is no live area, the progress of a tool is told at most so often."""
_WORDS: Final[dict[StepState, tuple[str, Style]]] = {
    "open": ("to do", ""),
    "working": ("doing", "warn"),
    "done": ("done", "good"),
    "dropped": ("dropped", "dim"),
}


def plan_lines(steps: Sequence[PlanStep], before: Sequence[PlanStep], view: View) -> list[Line]:
    """A plan as a checklist; of one that was shown before, the steps that changed."""
    done = sum(step.state == "done" for step in steps)
    head = line(("* plan", "strong"), f"  {done} of {plural(len(steps), 'step')} done")
    shown = set(before)
    changed = [step for step in steps if step not in shown]
    return [head, *(_step(step, view) for step in changed)] if changed or len(steps) != len(before) else []


def _step(step: PlanStep, view: View) -> Line:
    word, style = _WORDS[step.state]
    text = cut(escape(step.text), view.width - 12, view.glyphs.ellipsis)
    return line("  ", (f"{word:<8}", style), f"  {text}")


@dataclasses.dataclass(slots=True)
class Progress:
    """How far a tool says it is."""

    done: float | None = None
    total: float | None = None
    text: str = ""
    told_at: float | None = None
    """When it was last told in a line, or the tool began."""

    def feed(self, event: ToolUpdate) -> bool:
        """Take an update; whether it says anything of progress. What it leaves out stays as it was."""
        text = plain_text(event.content or ()).strip()
        if event.progress is None and not text:
            return False
        if event.progress is not None:
            self.done = event.progress
        if event.total is not None:
            self.total = event.total
        if text:
            self.text = escape(text).rsplit("\n", 1)[-1]
        return True

    @property
    def words(self) -> str:
        """``40 of 200 (20%)  compiling``."""
        parts: list[str] = []
        if self.done is not None:
            parts.append(f"{self.done:g}")
            if self.total:
                parts[0] += f" of {self.total:g} ({max(0.0, min(1.0, self.done / self.total)):.0%})"
        return "  ".join([*parts, self.text] if self.text else parts)

    def is_due(self, now: float | None) -> bool:
        """Whether it is time to tell it in a line."""
        if now is None:
            return False
        if self.told_at is None or now - self.told_at >= EVERY_S:
            is_first, self.told_at = self.told_at is None, now
            return not is_first
        return False
