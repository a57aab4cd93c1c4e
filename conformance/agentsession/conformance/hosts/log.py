"""What happened in a scene, in one list: calls of the host, events of the agent, tools, people and the policy.

Not for: judging it (``checks.py``). Rules carried: none. May import: anyio.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import anyio

__all__ = ["Entry", "Log", "Who"]

Who = Literal["host", "agent", "tool", "person", "policy", "suite"]

_SHOWN = 100
"""How much of an entry's data a report shows."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened."""

    who: Who
    what: str
    about: str
    """A request's id, or the name of a tool or a kind of question."""
    data: Any

    def __str__(self) -> str:
        said = "" if self.data is None else f" {_short(self.data)}"
        return f"{self.who}: {_short(self.what)}{f' {_short(self.about)}' if self.about else ''}{said}"


class Log:
    """The entries, and who waits for one."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._changed = anyio.Event()

    def add(self, who: Who, what: str, about: str = "", data: Any = None) -> None:
        """Something happened."""
        self.entries.append(Entry(who, what, about, data))
        self._changed.set()

    def find(self, who: Who, what: str, about: str | None = None) -> list[Entry]:
        """The entries like this."""
        return [
            entry for entry in self.entries if entry.who == who and entry.what == what and about in (None, entry.about)
        ]

    def has(self, who: Who, what: str, about: str | None = None) -> bool:
        """Whether there is one like this."""
        return bool(self.find(who, what, about))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something that an entry brings about holds."""
        while not holds():
            if self._changed.is_set():
                self._changed = anyio.Event()
            await self._changed.wait()


def _short(data: Any) -> str:
    try:
        text = data if isinstance(data, str) else repr(data)
    except (RecursionError, ValueError):
        text = type(data).__name__
    text = ascii(text)[1:-1] if not text.isprintable() else text
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
