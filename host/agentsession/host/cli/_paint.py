"""Lines to text for one output: plain words, or with sixteen colours drawn by Rich.

Not for: what the lines say. Rich is imported when the first coloured line is drawn, and never for plain output.
May import: ``_lines``; ``rich`` inside the function that needs it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from agentsession.host.cli._lines import Line, Style

__all__ = ["ColorChoice", "ansi", "color_wanted", "plain"]

ColorChoice = Literal["auto", "always", "never"]

_RICH_STYLES: Final[Mapping[Style, str]] = MappingProxyType(
    {
        "": "",
        "dim": "bright_black",
        "strong": "bold",
        "good": "green",
        "bad": "bold red",
        "warn": "yellow",
        "ask": "bold yellow",
        "added": "green",
        "removed": "red",
        "user": "bold cyan",
    }
)


def color_wanted(choice: ColorChoice, is_tty: bool, environ: Mapping[str, str]) -> bool:
    """Whether to colour: an explicit choice first, then NO_COLOR and TERM=dumb, then whether a terminal reads."""
    if choice != "auto":
        return choice == "always"
    return is_tty and not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("dumb", "")


def plain(lines: Sequence[Line]) -> str:
    """The words alone, each line ended with a line feed."""
    return "".join(f"{one.plain}\n" for one in lines)


def ansi(lines: Sequence[Line]) -> str:
    """The lines with the terminal's own sixteen colours on its own background."""
    return _painter()(lines)


def _painter() -> Callable[[Sequence[Line]], str]:
    global _cached  # one console for the life of the process: making it costs more than drawing with it
    if _cached is None:
        _cached = _make_painter()
    return _cached


_cached: Callable[[Sequence[Line]], str] | None = None


def _make_painter() -> Callable[[Sequence[Line]], str]:
    from rich.console import Console
    from rich.text import Text

    target = io.StringIO()
    console = Console(
        file=target,
        force_terminal=True,
        color_system="standard",
        no_color=False,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
        legacy_windows=False,
        width=1000,
    )

    def paint(lines: Sequence[Line]) -> str:
        target.seek(0)
        target.truncate()
        for one in lines:
            text = Text(no_wrap=True, end="")
            for span in one.spans:
                text.append(span.text, _RICH_STYLES[span.style])
            console.print(text, soft_wrap=True, crop=False)
        return target.getvalue()

    return paint
