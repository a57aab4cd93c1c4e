"""Makes stamped events for the tests of what is shown."""

from __future__ import annotations

from typing import Any

from agentsession.host.cli._lines import ASCII, View
from agentsession.host.cli._render import Renderer
from agentsession.protocol import Event, Message, Text

__all__ = ["Scene"]


class Scene:
    """A renderer and the events that are fed to it, one a second, all of one turn."""

    def __init__(self, width: int = 80, *, interactive: bool = False, questions: bool = True) -> None:
        self.renderer = Renderer(View(width=width, glyphs=ASCII, interactive=interactive), questions=questions)
        self.lines: list[str] = []
        self._number = 0

    def feed(self, event_class: type[Event], /, **fields: Any) -> list[str]:
        """Feed one event, and return the lines that it added."""
        self._number += 1
        made = event_class(
            id=f"e{self._number}",
            seq=self._number,
            timestamp=f"2026-01-31T12:{self._number // 60:02d}:{self._number % 60:02d}.000Z",
            session_id="s-7f3a",
            stream_id="t-1",
            turn_id="u-1",
            **fields,
        )
        added = [one.plain for one in self.renderer.feed(made)]
        self.lines += added
        return added

    def say(self, text: str, **fields: Any) -> list[str]:
        """Feed a whole message of the agent."""
        fields.setdefault("message_id", f"m{self._number}")
        return self.feed(Message, content=[Text(text=text)], **fields)

    def delta(self, text: str, message_id: str = "m") -> list[str]:
        """Feed one delta."""
        return self.feed(Message, message_id=message_id, partial=True, index=0, content=[Text(text=text)])
