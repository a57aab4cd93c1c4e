"""What is said, delta by delta: which rows of a message are final and can be printed.

Not for: anything but messages (``_render.py`` hands them over). May import: ``agentsession.protocol`` and the pure
modules beside it.
"""

from __future__ import annotations

import dataclasses

from agentsession.host.cli._blocks import indented, part_lines
from agentsession.host.cli._lines import Line, View, line
from agentsession.host.cli._text import cells, cut, escape, seconds, settled, wrap
from agentsession.host.cli._totals import at
from agentsession.protocol import Message, Text, Thought

__all__ = ["Speech"]


@dataclasses.dataclass(slots=True)
class _Growing:
    """A message of which deltas came: what is not printed yet, per kind."""

    text: str = ""
    printed: bool = False
    thought: str = ""
    thought_from: float | None = None
    thought_to: float | None = None


class Speech:
    """The messages of one session, as rows that are printed once and never again."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.thoughts: list[str] = []
        """Every thought so far, whole."""
        self._growing: dict[str, _Growing] = {}
        self._speaker: str | None = None

    @property
    def tail(self) -> str:
        """The last row of the text that still grows; escaped."""
        growing = self._growing.get(self._speaker or "")
        if growing is None:
            return ""
        if growing.text:
            return wrap(escape(growing.text), self.view.width)[-1]
        return f"{self.view.glyphs.thought} thinking: {escape(growing.thought)[-60:]}" if growing.thought else ""

    def clear(self) -> None:
        """Forget what was begun and will not go on: the turn is over."""
        self._growing.clear()
        self._speaker = None

    def feed(self, event: Message) -> list[Line]:
        """The rows that are final now; a user's message is not for here."""
        if event.partial:
            return self._delta(event)
        growing = self._growing.pop(event.message_id, None)
        if self._speaker == event.message_id:
            self._speaker = None
        if growing is None or not growing.printed or event.revised:
            mark = [line(("(revised)", "dim"))] if growing is not None and growing.printed else []
            out = [*mark, *self._whole(event, growing)]
        else:
            out = [*self._flush_thought(growing), *self._rows(growing.text)] if growing.text or growing.thought else []
            others = [part for part in event.content if not isinstance(part, (Text, Thought))]
            out.extend(one for part in others for one in part_lines(part, self.view))
        if event.interrupted and event.content:
            out.append(line(("(interrupted)", "dim")))
        return out

    def _delta(self, event: Message) -> list[Line]:
        growing = self._growing.setdefault(event.message_id, _Growing())
        if self._speaker is None and event.role != "user":
            self._speaker = event.message_id
        out: list[Line] = []
        for part in event.content:
            if isinstance(part, Thought):
                growing.thought += part.text
                growing.thought_to = at(event)
                growing.thought_from = growing.thought_from or growing.thought_to
            elif isinstance(part, Text):
                growing.text += part.text
        if self._speaker != event.message_id:  # another thread speaks: this one is printed whole, at its end
            return out
        if growing.text and growing.thought:
            out.extend(self._flush_thought(growing))
        done, feed, rest = growing.text.rpartition("\n")
        if feed:
            out.extend(self._rows(done))
            growing.text, growing.printed = rest, True
        if (
            cells(growing.text) > self.view.width
        ):  # from here on the rest is kept escaped; escaping twice changes nothing
            rows, growing.text = settled(escape(growing.text), self.view.width)
            out.extend(line(row) for row in rows)
        if out:
            growing.printed = True
        return out

    def _rows(self, text: str) -> list[Line]:
        return [line(row) for paragraph in escape(text).split("\n") for row in wrap(paragraph, self.view.width)]

    def _flush_thought(self, growing: _Growing) -> list[Line]:
        if not growing.thought:
            return []
        span = (growing.thought_to or 0.0) - (growing.thought_from or 0.0)
        out = self._thought(growing.thought, span)
        growing.thought = ""
        return out

    def _thought(self, text: str, span_s: float | None = None) -> list[Line]:
        self.thoughts.append(text)
        hint = "   /t shows it" if self.view.interactive else ""
        took = f" {seconds(span_s)}" if span_s is not None and span_s >= 0.05 else ""
        head = f"{self.view.glyphs.thought} thought{took}: "
        flat = " ".join(escape(text).split())
        room = self.view.width - cells(head) - len(hint)
        return [line((head + cut(flat, room, self.view.glyphs.ellipsis) + hint, "dim"))]

    def _whole(self, event: Message, growing: _Growing | None) -> list[Line]:
        out: list[Line] = []
        for part in event.content:
            if isinstance(part, Thought):
                if growing is None or growing.thought:
                    out.extend(self._thought(part.text))
                continue
            out.extend(part_lines(part, self.view))
        if event.role not in ("agent", "user"):
            out = indented(out, f"{escape(event.role)}: ")
        return out
