"""What the command prints: lines made of styled spans, and the signs it draws with.

Not for: turning them into bytes (``_paint.py``). May import: ``_text``.

A style is a name for a meaning (``bad``), never a colour; without colour the words alone must say it all.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

from agentsession.host.cli._text import cells

__all__ = ["ASCII", "UNICODE", "Glyphs", "Line", "Span", "Style", "View", "glyphs_for", "line"]

Style = Literal["", "dim", "strong", "good", "bad", "warn", "ask", "added", "removed", "user"]
"""What a span means."""


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A piece of text with one meaning. The text is already escaped and holds no line feed."""

    text: str
    style: Style = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One printed line."""

    spans: tuple[Span, ...]

    @property
    def plain(self) -> str:
        """The words alone."""
        return "".join(span.text for span in self.spans).rstrip()

    @property
    def width(self) -> int:
        """In columns."""
        return cells(self.plain)


def line(*parts: str | tuple[str, Style]) -> Line:
    """A line of plain texts and (text, style) pairs; it stays one line whatever a name or a reason in it holds."""
    return Line(tuple(_span(part) if isinstance(part, str) else _span(*part) for part in parts))


def _span(text: str, style: Style = "") -> Span:
    return Span(text.replace("\n", "\\n"), style)


@dataclasses.dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs; each one stands beside a word that says the same."""

    user: str
    thought: str
    calls: str
    denied: str
    agent: str
    ask: str
    nested: str
    end: str
    live: str
    warn: str
    ellipsis: str


UNICODE: Final = Glyphs(
    user="›",
    thought="·",
    calls="+",
    denied="✗",
    agent="▸",
    ask="?",
    nested="│",
    end="──",
    live="~",
    warn="!",
    ellipsis="…",
)
ASCII: Final = Glyphs(
    user=">",
    thought=".",
    calls="+",
    denied="x",
    agent=">",
    ask="?",
    nested="|",
    end="==",
    live="~",
    warn="!",
    ellipsis="...",
)


def glyphs_for(encoding: str | None) -> Glyphs:
    """The signs that ``encoding`` can write: all of them, or the ASCII set."""
    try:
        "".join(getattr(UNICODE, field.name) for field in dataclasses.fields(Glyphs)).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


@dataclasses.dataclass(slots=True)
class View:
    """How to draw: shared by all that draws, and changed when the window changes."""

    width: int = 80
    glyphs: Glyphs = UNICODE
    interactive: bool = False
    """Whether hints about what to type (``/o 2``) make sense."""
    more: str = "--json shows all"
    """How to see what was folded, where nobody can type."""
