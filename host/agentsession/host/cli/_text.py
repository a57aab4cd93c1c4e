"""Text for a terminal: escaped, measured, wrapped, folded. Pure functions.

Not for: what is shown of an event (``_render.py``), colour (``_paint.py``). May import: the standard library.

What an agent or a tool says is data. It can hold escape sequences, bidirectional overrides and zero-width characters;
:func:`escape` makes each of them visible, so that none of them is obeyed and none of them hides anything.
"""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = [
    "DIFF_FOLD",
    "MAX_WIDTH",
    "MIN_WIDTH",
    "OUTPUT_FOLD",
    "call_title",
    "cells",
    "clamp_width",
    "count",
    "cut",
    "diff_counts",
    "diff_lines",
    "escape",
    "fold",
    "old_and_new",
    "plural",
    "seconds",
    "settled",
    "wrap",
]

MIN_WIDTH: Final = 40
MAX_WIDTH: Final = 100
OUTPUT_FOLD: Final = 12
"""Lines of a tool's output that are shown before it is folded."""
DIFF_FOLD: Final = 60
"""Lines of a diff that are shown before it is folded."""
_DIFF_INPUT_LIMIT: Final = 4000
"""Lines of a text beyond which a diff is counted as replaced: difflib is quadratic, and a person waits."""

_SUSPECT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
"""Control, bidirectional and zero-width characters, and halves of a surrogate pair; line feed and tab are not here."""
_JOINER: Final = "\u200d"
_OLD_AND_NEW: Final = (("old_text", "new_text"), ("old_string", "new_string"), ("oldText", "newText"), ("old", "new"))


def escape(text: str) -> str:
    """``text`` with every character that a terminal could obey, or a reader could not see, spelled out.

    Line feeds stay, ``\\r\\n`` becomes a line feed, a tab becomes four spaces. A zero-width joiner between two
    pictographs stays: without it a family falls apart into four people.

    >>> escape("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    if text.isascii() and text.isprintable():
        return text
    return _SUSPECT.sub(lambda found: _spell(found, text), text)


def _spell(found: re.Match[str], text: str) -> str:
    sign = found.group()
    if sign == _JOINER and _is_picture(text, found.start() - 1, -1) and _is_picture(text, found.end(), 1):
        return sign
    code = ord(sign)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_picture(text: str, index: int, step: int) -> bool:
    while 0 <= index < len(text) and (text[index] == "\ufe0f" or unicodedata.category(text[index]) == "Sk"):
        index += step
    return 0 <= index < len(text) and unicodedata.category(text[index]) == "So"


def cells(text: str) -> int:
    """How many columns ``text`` takes, near enough: terminals disagree about joined emoji, so nothing is boxed in."""
    if text.isascii():
        return len(text)
    return sum(_cell(sign) for sign in text)


def _cell(sign: str) -> int:
    if unicodedata.combining(sign) or sign in ("\u200d", "\ufe0f"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1


def clamp_width(width: int) -> int:
    """The width to draw for: 40 to 100 columns, whatever the terminal says."""
    return max(MIN_WIDTH, min(MAX_WIDTH, width))


def cut(text: str, width: int, ellipsis: str = "...") -> str:
    """The first line of ``text`` in at most ``width`` columns; what was left out is marked with ``ellipsis``."""
    first, feed, _ = text.partition("\n")
    if not feed and cells(first) <= width:
        return first
    room = max(0, width - cells(ellipsis))
    return _take(first, room) + ellipsis


def _take(text: str, width: int) -> str:
    used = 0
    for index, sign in enumerate(text):
        used += _cell(sign)
        if used > width:
            return text[:index]
    return text


def wrap(text: str, width: int) -> list[str]:
    """One paragraph (no line feed) broken at spaces into rows of at most ``width`` columns; long words are cut.

    Greedy, so that the rows before the last do not change when more text follows: a row once printed stays right.
    """
    return [row for row, _ in _broken(text, width)]


def settled(text: str, width: int) -> tuple[list[str], str]:
    """The rows of a paragraph that more text can no longer change, and the rest of the text.

    The last row still grows and the one before it may end in a cut word: both are kept back.
    """
    rows = _broken(text, width)[:-2]
    return [row for row, _ in rows], text[rows[-1][1] :] if rows else text


def _broken(text: str, width: int) -> list[tuple[str, int]]:
    """The rows, each with the index in ``text`` where the next one starts."""
    rows: list[tuple[str, int]] = []
    row = ""
    for found in re.finditer(r"\s+|\S+", text):
        piece, start = found.group(), found.start()
        if cells(row) + cells(piece) <= width or piece.isspace():
            row += piece
            continue
        if row.strip():
            rows.append((row.rstrip(), start))
            row = ""
        while cells(row) + cells(piece) > width:
            head = _take(piece, width - cells(row)) or piece[:1]
            start += len(head)
            rows.append((row + head, start))
            row, piece = "", piece[len(head) :]
        row += piece
    rows.append((row.rstrip(), len(text)))
    return rows


def fold(lines: Sequence[str], limit: int) -> tuple[list[str], int, list[str]]:
    """Head, number of lines left out, tail: both ends are kept, the head twice as long. Nothing is left out in vain."""
    if len(lines) <= limit:
        return list(lines), 0, []
    tail = max(1, limit // 3)
    head = max(1, limit - tail)
    return list(lines[:head]), len(lines) - head - tail, list(lines[len(lines) - tail :])


def plural(number: int, noun: str) -> str:
    """``1 line``, ``2 lines``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def count(number: int | None) -> str:
    """A token count in four characters or so: ``812``, ``12.4k``, ``1.2M``; unknown is ``n/a``, never 0."""
    if number is None:
        return "n/a"
    if number < 1000:
        return str(number)
    if number < 999_950:
        return f"{number / 1000:.1f}k"
    if number >= 10**15:  # a count is any whole number that JSON can say
        return "over 1000T"
    return f"{number / 1_000_000:.1f}M"


def seconds(span_s: float) -> str:
    """A time span for a person: ``0.1s``, ``42s``, ``3m05s``."""
    if span_s < 9.95:
        return f"{span_s:.1f}s"
    whole = round(span_s)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60:02d}s"


def call_title(name: str, args: Mapping[str, Any] | None) -> str:
    """A call in a few words: ``read_file cart.py``, ``edit_file cart.py +1 -1``. Escaped, not cut."""
    words = [escape(name) or "(no name)"]
    shown = dict(args) if isinstance(args, Mapping) else {}  # an executor may have checked nothing
    pair = old_and_new(shown)
    if pair is not None:
        for names in _OLD_AND_NEW:
            if names[0] in shown and names[1] in shown:
                del shown[names[0]], shown[names[1]]
                break
    for value in shown.values():
        if isinstance(value, str):
            text = escape(value).replace("\n", "\\n")
            words.append(f'"{text}"' if not text or " " in text else text)
        else:
            words.append(escape(json.dumps(value, ensure_ascii=False)))
    if pair is not None:
        added, removed = diff_counts(*pair)
        words.append(f"+{added} -{removed}")
    return " ".join(words)


def old_and_new(args: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """The two texts of an edit, when the arguments look like one."""
    for old, new in _OLD_AND_NEW:
        if args and isinstance(args.get(old), str) and isinstance(args.get(new), str):
            return args[old], args[new]
    return None


def diff_lines(old: str, new: str) -> list[tuple[str, str]]:
    """The changed lines with a little of what is around them, each as (``+``, ``-``, `` `` or ``@``, text)."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) > _DIFF_INPUT_LIMIT or len(after) > _DIFF_INPUT_LIMIT:
        return [*(("-", line) for line in before), *(("+", line) for line in after)]
    out: list[tuple[str, str]] = []
    for index, line in enumerate(difflib.unified_diff(before, after, lineterm="", n=2)):
        if index < 2:
            continue
        out.append(("@", line) if line.startswith("@@") else (line[:1], line[1:]))
    return out[1:] if len([1 for sign, _ in out if sign == "@"]) == 1 else out


def diff_counts(old: str, new: str) -> tuple[int, int]:
    """How many lines a change adds and removes."""
    signs = [sign for sign, _ in diff_lines(old, new)]
    return signs.count("+"), signs.count("-")
