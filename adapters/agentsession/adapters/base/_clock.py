"""Timestamps of events: ISO 8601 in UTC with milliseconds, never going backwards within a session.

Not for: waiting or time limits. May import: the standard library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

__all__ = ["EventClock", "Milliseconds"]

Milliseconds = Callable[[], int]
"""Returns the time as whole milliseconds since 1970, UTC; replaced by a fake in tests."""


class EventClock:
    """Formats the present moment; a machine whose clock is set back repeats its last stamp until time catches up."""

    __slots__ = ("_last_ms", "_now", "_prefix", "_second", "_text")

    def __init__(self, now: Milliseconds | None = None) -> None:
        self._now = now
        self._last_ms = -1
        self._second = -1
        self._prefix = ""
        self._text = ""

    def stamp(self) -> str:
        """The timestamp for an event that happens now."""
        now = time.time_ns() // 1_000_000 if self._now is None else self._now()
        if now <= self._last_ms:
            return self._text
        self._last_ms = now
        second, millisecond = divmod(now, 1000)
        if second != self._second:
            self._second = second
            self._prefix = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        self._text = f"{self._prefix}.{millisecond:03d}Z"
        return self._text

    def start_after(self, text: str) -> None:
        """Never stamp earlier than ``text``, the timestamp of a loaded record's last event."""
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return  # a foreign record with another form of time: its order is in seq
        if moment.tzinfo is not None:
            self._last_ms = int(moment.timestamp() * 1000)
            self._text = text
