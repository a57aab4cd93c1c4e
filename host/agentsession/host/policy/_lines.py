"""Where in a policy file something stands: the standard library's TOML reader gives values without their lines.

Not for: reading the values. May import: the standard library.

Lines that begin a rule or a key are found outside of texts that run over several lines. A file in another style (rules
as inline tables) is read as well; of its errors the line is then that of the list, or not known.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Places"]

_RULE: Final = re.compile(r"\s*\[\[\s*[\"']?rule[\"']?\s*\]\]")
_TABLE: Final = re.compile(r"\s*\[\s*[\"']?rule[\"']?\s*\.\s*[\"']?(\w+)")
_KEY: Final = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*(?:\.|=)")


class Places:
    """The lines, from 1, of a file's rules and their keys."""

    def __init__(self, text: str) -> None:
        self._rules: list[dict[str | None, int]] = []
        self._top: dict[str, int] = {}
        inside: str | None = None
        for number, line in enumerate(text.split("\n"), start=1):
            if inside is None:
                self._take(line, number)
            inside = _inside_after(line, inside)

    def _take(self, line: str, number: int) -> None:
        if _RULE.match(line):
            self._rules.append({None: number})
            return
        if (table := _TABLE.match(line)) is not None and self._rules:
            self._rules[-1].setdefault(table.group(1), number)
        elif (key := _KEY.match(line)) is not None:
            if self._rules:
                self._rules[-1].setdefault(key.group(1), number)
            else:
                self._top.setdefault(key.group(1), number)
        elif (other := re.match(r"\s*\[+\s*[\"']?([\w-]+)", line)) is not None:
            self._top.setdefault(other.group(1), number)

    def top(self, key: str) -> int | None:
        """The line of a key outside of the rules."""
        return self._top.get(key) or (self._rules[0][None] if key == "rule" and self._rules else None)

    def rule(self, index: int, key: str | None = None) -> int | None:
        """The line where rule number ``index`` begins, or that of one of its keys."""
        if index >= len(self._rules):
            return self._top.get("rule")
        keys = self._rules[index]
        return keys.get(key, keys[None])


def _inside_after(line: str, inside: str | None) -> str | None:
    """Which kind of text over several lines goes on after this line, if one does."""
    place = 0
    while place < len(line):
        if inside is not None:
            end = line.find(inside, place)
            while end > 0 and inside == '"""' and line[end - 1] == "\\":
                end = line.find(inside, end + 1)
            if end < 0:
                return inside
            place, inside = end + 3, None
        elif line.startswith(('"""', "'''"), place):
            inside, place = line[place : place + 3], place + 3
        elif line[place] in "\"'":
            quote = line[place]
            place += 1
            while place < len(line) and line[place] != quote:
                place += 2 if quote == '"' and line[place] == "\\" else 1
            place += 1
        elif line[place] == "#":
            return None
        else:
            place += 1
    return inside
