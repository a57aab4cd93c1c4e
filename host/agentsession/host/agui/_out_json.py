"""The JSON text of a call's arguments while it is streamed: what of it may be sent, and what would close it.

Not for: reading JSON. Pure. Rules carried: none of the contract's. May import: the standard library.

A client reads the fragments of a call's arguments as one JSON text, and a call may end in the middle of them. So only
what can still become an object is let through, and at any point there is an end that makes it one. Each character is
looked at once, most of them by a regular expression.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ArgsText"]

_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_SPACE: Final = re.compile(r"[ \t\n\r]+")
_DIGITS: Final = re.compile(r"[0-9]+")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_WORDS: Final = {"t": "true", "f": "false", "n": "null"}
_AFTER_NUMBER: Final = frozenset("0de")
"""States of a number in which it may end: a zero, digits, digits of a fraction or of an exponent."""
_MAX_DEPTH: Final = 256


class ArgsText:
    """The text of one call's arguments, fed in pieces that may be cut anywhere.

    ``broken``: something came that can never become an object; it and what follows is not let through.
    """

    __slots__ = ("_pieces", "_rest", "_stack", "_state", "broken")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._stack: list[str] = []
        """The closing brackets that are owed, innermost last."""
        self._state = "start"
        self._rest = ""
        """Of a word, such as ``true``: what is owed; of an escape: how many digits."""
        self.broken = False

    @property
    def text(self) -> str:
        """What was let through so far."""
        return "".join(self._pieces)

    @property
    def is_whole(self) -> bool:
        """Whether the text is an object already."""
        return self._state == "end"

    def feed(self, piece: str) -> str:
        """Take the next piece; return what of it may be sent."""
        if self.broken:
            return ""
        at, end = 0, len(piece)
        while at < end:
            step = self._step(piece, at)
            if step == 0:
                self.broken = True
                break
            at += step
        taken = piece[:at]
        if taken:
            self._pieces.append(taken)
        return taken

    def close(self) -> str:
        """What makes an object of the text so far; the text then has it too."""
        suffix = self._ending() + "".join(reversed(self._stack))
        if self._state == "start":
            suffix = "{}"
        self._stack.clear()
        self._state = "end"
        self._pieces.append(suffix)
        return suffix

    # -- what is owed -------------------------------------------------------------------------------------------------

    def _ending(self) -> str:
        """What ends the value, key or number that the text stops in, and leaves only brackets to close."""
        state = self._state
        if state.startswith("number"):
            return "" if state[-1] in _AFTER_NUMBER else "0"
        if state == "word":
            return self._rest
        if state in ("key_or_end", "value_or_end", "comma"):
            return ""
        in_string = {"string": '"', "escape": '\\"', "hex": "0" * len(self._rest) + '"'}
        if state in in_string:
            return in_string[state]
        if state.startswith("key_") and state != "key_colon":
            return in_string[state[4:]] + ":null" if state[4:] in in_string else ""
        return {"key": '"":null', "key_colon": ":null", "value": "null"}.get(state, "")

    # -- one step -----------------------------------------------------------------------------------------------------

    def _step(self, piece: str, at: int) -> int:
        """How many characters from ``at`` on go on with the text; 0: none."""
        state = self._state
        if state in ("string", "key_string"):
            return self._in_string(piece, at)
        if state in ("escape", "key_escape", "hex", "key_hex"):
            return self._in_escape(piece[at])
        if state == "word":
            return self._in_word(piece[at])
        if state.startswith("number"):
            return self._in_number(piece, at)
        space = _SPACE.match(piece, at)
        if space is not None:
            return space.end() - at
        return self._between(piece[at])

    def _in_string(self, piece: str, at: int) -> int:
        plain = _PLAIN.match(piece, at)
        if plain is not None:
            return plain.end() - at
        prefix = "key_" if self._state == "key_string" else ""
        if piece[at] == "\\":
            self._state = prefix + "escape"
        elif piece[at] == '"':
            self._state = "key_colon" if prefix else "comma"
        else:
            return 0
        return 1

    def _in_escape(self, char: str) -> int:
        prefix = "key_" if self._state.startswith("key_") else ""
        if self._state.endswith("hex"):
            if char not in _HEX:
                return 0
            self._rest = self._rest[1:]
            if not self._rest:
                self._state = prefix + "string"
        elif char == "u":
            self._state, self._rest = prefix + "hex", "0000"
        elif char in '"\\/bfnrt':
            self._state = prefix + "string"
        else:
            return 0
        return 1

    def _in_word(self, char: str) -> int:
        if not self._rest.startswith(char):
            return 0
        self._rest = self._rest[1:]
        if not self._rest:
            self._state = "comma"
        return 1

    def _in_number(self, piece: str, at: int) -> int:
        """After a sign ``-``, a zero ``0``, digits ``d``, a point ``.``, digits behind it ``fd``, ``E``, its sign ``+``
        or its digits ``de``."""
        char, kind = piece[at], self._state[7:]
        digits = _DIGITS.match(piece, at)
        if digits is not None:
            if kind == "-" and char == "0":
                self._state = "number_0"
                return 1
            if kind in ("0",):
                return 0
            self._state = {"-": "number_d", "d": "number_d", ".": "number_fd", "fd": "number_fd"}.get(kind, "number_de")
            return digits.end() - at
        if char == "." and kind in ("0", "d"):
            self._state = "number_."
        elif char in "eE" and kind in ("0", "d", "fd"):
            self._state = "number_E"
        elif char in "+-" and kind == "E":
            self._state = "number_+"
        elif kind in ("0", "d", "fd", "de"):
            self._state = "comma"
            return self._step(piece, at)
        else:
            return 0
        return 1

    def _between(self, char: str) -> int:
        state = self._state
        if state == "start":
            return self._open(char) if char == "{" else 0
        if state in ("key", "key_or_end") and char == '"':
            self._state = "key_string"
        elif state == "key_colon" and char == ":":
            self._state = "value"
        elif state == "comma" and char == ",":
            self._state = "key" if self._stack[-1] == "}" else "value"
        elif state in ("comma", "key_or_end", "value_or_end") and char == self._stack[-1]:
            self._stack.pop()
            self._state = "comma" if self._stack else "end"
        elif state in ("value", "value_or_end"):
            return self._open(char)
        else:
            return 0
        return 1

    def _open(self, char: str) -> int:
        if char in "{[":
            if len(self._stack) == _MAX_DEPTH:
                return 0
            self._stack.append("}" if char == "{" else "]")
            self._state = "key_or_end" if char == "{" else "value_or_end"
        elif char == '"':
            self._state = "string"
        elif char in _WORDS:
            self._state, self._rest = "word", _WORDS[char][1:]
        elif char == "-" or char in "0123456789":
            self._state = "number_-" if char == "-" else "number_0" if char == "0" else "number_d"
        else:
            return 0
        return 1
