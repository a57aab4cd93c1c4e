"""Running what a page of the docs shows, as its reader would: files saved under their names, commands typed.

In a page, a ``python`` block that begins with ``# name.py`` is a file. A block that is followed by a ``text`` block is
run, and prints exactly that; so does an ``sh`` block. A file that others import stands alone, without a ``text`` block.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Shown", "read_page"]

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# (\w+\.py)\n")
LIMIT_S = 120
"""Bounds a hang."""


@dataclasses.dataclass(frozen=True)
class Shown:
    """One thing that a page shows: a file, or commands; and what they print, if the page says it."""

    name: str
    """Of a file; empty for commands."""
    text: str
    prints: str | None

    def save(self, place: Path) -> None:
        """Save the file."""
        (place / self.name).write_text(self.text, encoding="utf-8")

    def run(self, place: Path) -> str:
        """What the file, or the commands, print. Raises :class:`AssertionError` where one of them fails."""
        lines = [f"python {self.name}"] if self.name else [line for line in self.text.splitlines() if line]
        return "".join(_run(shlex.split(line, comments=True), place) for line in lines)


def read_page(path: str) -> Iterator[Shown]:
    """What the page shows, from its top to its bottom."""
    blocks = _BLOCK.findall((ROOT / path).read_text(encoding="utf-8"))
    for index, (kind, text) in enumerate(blocks):
        follows = blocks[index + 1] if index + 1 < len(blocks) else ("", "")
        named = _NAMED.match(text)
        if kind in ("python", "sh"):
            # A program that the page runs by a command prints below that command.
            yield Shown(named.group(1) if named else "", text, follows[1] if follows[0] == "text" else None)


def _run(words: list[str], place: Path) -> str:
    if words[0] == "python":
        words = [sys.executable, "-W", "ignore", *words[1:]]
    elif words[0] == "agentsession":
        words = [sys.executable, "-W", "ignore", "-m", "agentsession.host.cli", *words[1:]]
    done = subprocess.run(
        words,
        cwd=place,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"},
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout
