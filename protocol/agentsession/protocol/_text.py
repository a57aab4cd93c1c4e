"""Joining text that a provider cut inside a character: one emoji split over two deltas must arrive as one emoji.

Not for: repairing finished text (``_json.repair_text``). Rules carried: LIFE-14. May import: the standard library.
"""

from __future__ import annotations

from agentsession.protocol._json import repair_text

__all__ = ["DeltaJoiner"]


class DeltaJoiner:
    """Holds back the first half of a surrogate pair until its second half comes with the next delta.

    >>> joiner = DeltaJoiner()
    >>> joiner.feed("smile \\ud83d"), joiner.feed("\\ude00!"), joiner.flush()
    ('smile ', '😀!', '')
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, delta: str) -> str:
        """The text that can be shown now; may be empty."""
        if not self._held and delta.isascii():
            return delta
        text = self._held + delta
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held = text[-1]
            text = text[:-1]
        return repair_text(text)

    def flush(self) -> str:
        """What was held back when no more deltas come: U+FFFD, or nothing."""
        held, self._held = self._held, ""
        return repair_text(held)
