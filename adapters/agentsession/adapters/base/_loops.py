"""Telling an agent that goes in circles: the same calls with the same results, the same text again and again.

Not for: what is done about it (``_loopwatch.py``). Rules carried: none. May import: the standard library.

Pure: no clock, no events, no I/O. What it finds depends on what it was given alone, and for text not on how the text
was cut into pieces.

*Calls*: what a model calls at once is one step. Two steps are equal when their calls have the same names, arguments and
results; a poll whose answer changes is no loop. A cycle of one to five steps that was seen five times in a row is one.

*Text*: a stretch of 50 characters that came ten times, without overlap, on average no more than 250 characters apart,
with no more than five different texts between: a list of different things that begin alike is no loop. Code is passed
over, and a text that begins as JSON. Headings, tables, lists, quotes and rules begin anew, for they repeat themselves
by nature.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable
from typing import Final

__all__ = ["CallLoop", "CallSteps", "TextLoop"]

TIMES: Final = 5
"""How often a cycle of steps is seen before it is a loop."""
LONGEST: Final = 5
"""Steps of the longest cycle that is looked for."""

_CHUNK: Final = 50
_CHUNKS: Final = 10
_GAP: Final = 250
_PERIODS: Final = 5
_REACH: Final = _GAP * (_CHUNKS - 1) + _CHUNK
"""How far back a stretch that ends now can matter."""

_MARK: Final = 8
"""So many characters of a line, without its indentation, say what kind of line it is."""
_INDENT: Final = 40
"""Beyond so much of it the line is plain, whatever comes."""
_FENCE: Final = re.compile(r"```|~~~")
_DATA: Final = re.compile(r"\{\s*(?:[\"}]|$)|\[\s*(?:[\[{\"\]]|-?\d+(?:[.,\s]|$)|true\b|false\b|null\b|$)")
"""What a text begins with that is data for a program, such as a matrix of zeros."""
_STRUCTURE: Final = re.compile(r"\||[-*+•] |\d{1,3}[.)] |#{1,6} |>|-{3}|\*{3}|={3}|_{3}")


class CallLoop:
    """The steps of one agent."""

    def __init__(self) -> None:
        self._steps: deque[Hashable] = deque(maxlen=LONGEST)
        self._equal = [0] * LONGEST
        """By length of a cycle less one: how many steps in a row are equal to the one a cycle before."""

    def step(self, step: Hashable) -> int | None:
        """Take one more step; the length of the cycle that it has closed for the fifth time. It counts anew then."""
        for index in range(LONGEST):
            length = index + 1
            same = length <= len(self._steps) and self._steps[-length] == step
            self._equal[index] = self._equal[index] + 1 if same else 0
            if self._equal[index] >= (TIMES - 1) * length:
                self.reset()
                return length
        self._steps.append(step)
        return None

    def reset(self) -> None:
        """Begin anew."""
        self._steps.clear()
        self._equal = [0] * LONGEST


class _Step:
    __slots__ = ("calls", "open")

    def __init__(self) -> None:
        self.calls: list[Hashable] = []
        self.open: dict[str, Hashable] = {}


class CallSteps:
    """From the requests and responses of one agent to its steps: what was asked before the first answer is one step."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._asks = False

    def asked(self, request_id: str, call: Hashable) -> None:
        """A call was made; ``call`` stands for its name and arguments."""
        if not self._asks:
            self._steps.append(_Step())
            self._asks = True
        self._steps[-1].open[request_id] = call

    def answered(self, request_id: str, result: Hashable) -> Hashable | None:
        """A call has its result; the step that is complete with it, its calls in no particular order."""
        self._asks = False
        for step in self._steps:
            if request_id in step.open:
                step.calls.append((step.open.pop(request_id), result))
                if step.open:
                    return None
                self._steps.remove(step)
                return tuple(sorted(map(repr, step.calls)))
        return None


class TextLoop:
    """What one agent says."""

    def __init__(self) -> None:
        self._held = ""
        """The begin of a line whose kind is not known yet."""
        self._in_line = False
        self._is_skipped = False
        self._in_code = False
        self._is_begun = False
        """Whether a line was not blank."""
        self._is_data = False
        self._text = ""
        self._new = ""
        """What follows the text, and was not looked at yet."""
        self._due = _CHUNK
        """Where in the text the next stretch ends that is looked at."""

    def reset(self) -> None:
        """Begin anew: something else came between."""
        self._held, self._in_line, self._is_skipped, self._in_code = "", False, False, False
        self._is_begun = self._is_data = False
        self._forget()

    def feed(self, text: str) -> int:
        """Take the next piece of text; how many loops it has closed. After each it counts anew."""
        if self._in_line and "\n" not in text:
            return 0 if self._is_skipped else self._take(text)
        found = 0
        held = self._held + text
        while held:
            if not self._in_line and not self._begin_line(held):
                break
            end = held.find("\n") + 1
            piece, held = (held[:end], held[end:]) if end else (held, "")
            if not self._is_skipped:
                found += self._take(piece)
            self._in_line = not end
        self._held = held
        return found

    def _begin_line(self, held: str) -> bool:
        """Find out what kind of line begins; whether enough of it is there."""
        line, newline, _ = held.partition("\n")
        bare = line[:_INDENT].lstrip(" \t")
        if not newline and len(bare) < _MARK and len(line) < _INDENT:
            return False
        mark = bare[:_MARK]
        self._in_line = True
        if mark and not self._is_begun:
            self._is_begun, self._is_data = True, _DATA.match(mark) is not None
        if self._is_data:
            self._is_skipped = True
        elif _FENCE.match(mark):
            self._in_code = not self._in_code
            self._is_skipped = True
            self._forget()
        elif self._in_code:
            self._is_skipped = True
        else:
            self._is_skipped = False
            if _STRUCTURE.match(mark):
                self._forget()
        return True

    def _forget(self) -> None:
        self._text, self._due, self._new = "", _CHUNK, ""

    def _take(self, text: str) -> int:
        self._new += text
        if len(self._text) + len(self._new) < self._due:
            return 0
        self._text, self._new = self._text + self._new, ""
        found = 0
        while len(self._text) >= self._due:
            if self._repeats(self._due):
                found += 1
                self._text, self._due = self._text[self._due :], _CHUNK
            else:
                self._due += _CHUNK
        spare = self._due - _CHUNK - _REACH
        if spare > _REACH:
            self._text, self._due = self._text[spare:], self._due - spare
        return found

    def _repeats(self, end: int) -> bool:
        """Whether the stretch that ends there has come often enough, close enough, and with few differences."""
        text, first, place = self._text, max(0, end - _REACH), end - _CHUNK
        chunk = text[place:end]
        if text.find(chunk, first, place) < 0:  # rfind is many times slower, and seldom needed
            return False
        periods: set[str] = set()
        for _ in range(_CHUNKS - 1):
            before = text.rfind(chunk, first, place)
            if before < 0:
                return False
            periods.add(text[before:place])
            place = before
        return len(periods) <= _PERIODS
