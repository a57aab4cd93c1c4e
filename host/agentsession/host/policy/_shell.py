"""Shell commands as policies see them: split into their parts, each a list of words that a rule's prefixes are held to.

Not for: running anything, nor for being a shell. Rules carried: none of the contract's. May import: ``_conditions``.

Only what is certainly understood is split. A line with loops, groups, functions, here-documents or arithmetic is *not
parsed*: no allow holds for it, every denial and question with ``shell`` does. What a part runs cannot be known from a
pattern (a script may do anything), so this narrows what an allow covers and is no sandbox.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Final

from agentsession.host.policy._conditions import Fit, is_odd_text

__all__ = ["Part", "parse_command"]

_MOST_PARTS: Final = 64
_MOST_WORDS: Final = 1_000
_DEEPEST: Final = 4
_RESERVED: Final = frozenset(
    {"!", "[[", "]]", "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"}
    | {"select", "function", "coproc", "time", "in"}
)
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})
_WRAPPERS: Final = _SHELLS | frozenset(
    {"sudo", "doas", "env", "command", "builtin", "exec", "eval", "nohup", "nice", "ionice", "timeout", "setsid"}
    | {"stdbuf", "xargs", "watch", "busybox", "find", "parallel", "ssh", "su", "chroot", "unshare", "strace", "script"}
)
"""Programs that run what follows them: a denial or a question also looks at each later word as a beginning."""
_TEXT_TAKERS: Final = frozenset({"env", "ssh", "su", "watch", "script", "parallel", "xargs"})
"""Those that may take a command line in one word: ``su -c TEXT``, ``env -S TEXT``."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One command of a line."""

    words: tuple[str | None, ...]
    """``None`` is a word that is only known when it runs: ``$X``, ``*.py``."""
    is_plain: bool = True
    """No redirection to a file and no assignment before it; an allow holds for no other."""
    heads: frozenset[str] | None = dataclasses.field(init=False, compare=False, repr=False)
    """The words that a prefix must begin with to have a chance; ``None``: any may."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", self._heads())

    def _heads(self) -> frozenset[str] | None:
        first = self.words[0] if self.words else ""
        if first is None:
            return None
        words = self.words if os.path.basename(first) in _WRAPPERS else (first,)
        if None in words:
            return None
        known = [word for word in words if word is not None]
        return frozenset({first, *map(os.path.basename, known)})

    def fits(self, prefixes: Sequence[tuple[str, ...]], *, is_allow: bool) -> Fit:
        """Whether one of the prefixes begins it. For a denial or a question also behind ``sudo``, ``env`` and such."""
        best = max((_begins(self.words, prefix) for prefix in prefixes), default=Fit.NO)
        if is_allow:
            return Fit.ODD if best is Fit.YES and not self.is_plain else best
        if best is Fit.YES or not self.words:
            return best
        first = self.words[0]
        if first is None:
            return Fit.ODD
        name = os.path.basename(first)
        starts = range(len(self.words)) if name in _WRAPPERS else (0,)
        for start in starts:
            words = self.words[start:]
            if words[0] is not None:
                words = (os.path.basename(words[0]), *words[1:])
            best = max(best, *(_begins(words, prefix) for prefix in prefixes))
        return best


def _begins(words: Sequence[str | None], prefix: Sequence[str]) -> Fit:
    for place, wanted in enumerate(prefix):
        if place >= len(words):
            return Fit.NO
        if words[place] is None:
            return Fit.ODD
        if words[place] != wanted:
            return Fit.NO
    return Fit.YES


def parse_command(command: Any) -> tuple[Part, ...] | None:
    """The parts of a command line, or of a list of words; ``None`` if it cannot be understood."""
    if isinstance(command, list):
        words: list[Any] = [*command]  # pyright: ignore[reportUnknownVariableType]
        if not 0 < len(words) <= _MOST_WORDS or not all(
            isinstance(word, str) and not is_odd_text(word) for word in words
        ):
            return None
        inner = _inner(words, 0)
        return None if inner is None else (Part(tuple(words)), *inner)
    if not isinstance(command, str) or is_odd_text(command):
        return None
    try:
        parts = _Reader(command, 0).parts()
    except _NotUnderstood:
        return None
    return tuple(parts) if 0 < len(parts) <= _MOST_PARTS else None


class _NotUnderstood(Exception):
    pass


class _Reader:
    """Reads one line, character by character."""

    def __init__(self, text: str, depth: int) -> None:
        if depth > _DEEPEST or any(ord(sign) < 32 and sign not in "\t\n" for sign in text):
            raise _NotUnderstood
        self._text = text
        self._depth = depth
        self._at = 0
        self._parts: list[Part] = []
        self._words: list[str | None] = []
        self._is_plain = True
        self._word: list[str] | None = None
        self._is_known = True
        self._is_quoted = False

    def parts(self) -> list[Part]:
        """All of it. Raises :class:`_NotUnderstood`."""
        while self._at < len(self._text):
            self._step(self._text[self._at])
            if len(self._parts) > _MOST_PARTS or len(self._words) > _MOST_WORDS:
                raise _NotUnderstood
        self._end_part()
        return self._parts

    def _step(self, sign: str) -> None:
        if sign in " \t":
            self._end_word()
            self._at += 1
        elif sign in ";\n|&":
            if self._text.startswith("&>", self._at):
                self._redirect()
                return
            self._end_part()
            self._at += 1
        elif sign in "<>":
            self._redirect()
        elif sign in "(){}":
            raise _NotUnderstood
        elif sign == "#" and self._word is None:
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        elif sign == "'":
            end = self._text.find("'", self._at + 1)
            if end < 0:
                raise _NotUnderstood
            self._add(self._text[self._at + 1 : end], quoted=True)
            self._at = end + 1
        elif sign == '"':
            self._at += 1
            self._double_quoted()
        elif sign == "\\":
            if self._at + 1 >= len(self._text):
                raise _NotUnderstood
            if self._text[self._at + 1] != "\n":  # else the line goes on; not in a comment, which ended with its line
                self._add(self._text[self._at + 1], quoted=True)
            self._at += 2
        elif sign in "$`":
            self._expansion()
        else:
            if sign in "*?[~":
                self._unknown()
            self._add(sign)
            self._at += 1

    def _double_quoted(self) -> None:
        self._add("", quoted=True)
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == '"':
                self._at += 1
                return
            if sign in "$`":
                self._expansion()
            elif sign == "\\" and self._text[self._at + 1 : self._at + 2] in ("$", "`", '"', "\\", "\n"):
                self._add(self._text[self._at + 1].strip("\n"), quoted=True)
                self._at += 2
            else:
                self._add(sign, quoted=True)
                self._at += 1
        raise _NotUnderstood

    def _expansion(self) -> None:
        """``$X``, ``${X}``, ``$(command)``, or a command between backquotes: the word is unknown, the command a
        part."""
        text, at = self._text, self._at
        self._unknown()
        if text[at] == "`":
            end = text.find("`", at + 1)
            if end < 0 or "\\" in text[at:end]:
                raise _NotUnderstood
            self._nested(text[at + 1 : end])
            self._at = end + 1
        elif text.startswith("$((", at) or text.startswith(("$'", '$"', "$["), at):
            raise _NotUnderstood
        elif text.startswith("$(", at):
            end = _closing(text, at + 2)
            self._nested(text[at + 2 : end])
            self._at = end + 1
        elif text.startswith("${", at):
            end = text.find("}", at)
            inner = text[at + 2 : end] if end > 0 else ""
            if not inner.isidentifier():
                raise _NotUnderstood
            self._at = end + 1
        else:
            self._at += 1
            while self._at < len(text) and (text[self._at].isalnum() or text[self._at] == "_"):
                self._at += 1

    def _nested(self, text: str) -> None:
        self._parts += _Reader(text, self._depth + 1).parts()

    def _redirect(self) -> None:
        """A redirection. Only those that write nowhere leave the part plain: ``2>&1``, ``>/dev/null``."""
        text = self._text
        if self._word is not None and "".join(self._word).isdecimal() and not self._is_quoted:
            self._word, self._is_known = None, True  # 2>: the number is part of the sign
        self._end_word()
        signs = next(
            sign
            for sign in ("<<", "<(", ">(", "&>>", "&>", ">>", ">|", ">&", "<&", "<>", ">", "<")
            if text.startswith(sign, self._at)
        )
        if signs in ("<<", "<(", ">("):
            raise _NotUnderstood
        self._at += len(signs)
        before = len(self._words)
        while self._at < len(text) and text[self._at] in " \t":
            self._at += 1
        while self._at < len(text) and text[self._at] not in " \t\n;|&<>":
            self._step(text[self._at])
        self._end_word()
        if len(self._words) != before + 1:
            raise _NotUnderstood
        target = self._words.pop()
        is_harmless = target == "/dev/null" or (signs in (">&", "<&") and target is not None and target.isdecimal())
        self._is_plain = self._is_plain and is_harmless

    def _add(self, text: str, *, quoted: bool = False) -> None:
        if self._word is None:
            self._word = []
        self._is_quoted = self._is_quoted or quoted
        self._word.append(text)

    def _unknown(self) -> None:
        self._add("")
        self._is_known = False

    def _end_word(self) -> None:
        if self._word is None:
            return
        word = "".join(self._word)
        if not self._words and self._is_known and not self._is_quoted and word in _RESERVED:
            raise _NotUnderstood
        if not self._words and "=" in word and word.partition("=")[0].rstrip("+").isidentifier():
            self._is_plain = False  # an assignment: LD_PRELOAD=x git status
        else:
            self._words.append(word if self._is_known else None)
        self._word, self._is_known, self._is_quoted = None, True, False

    def _end_part(self) -> None:
        self._end_word()
        if self._words or not self._is_plain:
            self._parts.append(Part(tuple(self._words), self._is_plain))
            if self._words and all(isinstance(word, str) for word in self._words):
                inner = _inner([str(word) for word in self._words], self._depth)
                if inner is None:
                    raise _NotUnderstood
                self._parts += inner
        self._words, self._is_plain = [], True


def _inner(words: Sequence[str], depth: int) -> list[Part] | None:
    """What ``sh -c TEXT``, ``eval TEXT`` and ``ssh HOST TEXT`` run, also behind ``sudo`` and such, as parts of their
    own; ``None`` if it cannot be understood."""
    starts = range(len(words)) if os.path.basename(words[0]) in _WRAPPERS else (0,)
    parts: list[Part] = []
    for text in [text for start in starts for text in _texts(words[start:]) if text]:
        try:
            parts += _Reader(text, depth + 1).parts()
        except _NotUnderstood:
            return None
    return parts


def _texts(words: Sequence[str]) -> list[str]:
    """The words that a program takes for whole command lines, if it may be one that does."""
    name, rest = os.path.basename(words[0]), words[1:]
    if name == "eval":
        return [" ".join(rest)]
    if name in _SHELLS:  # whichever of its flags has the c: a flag before it may have a value that looks like one
        flags = [place for place, word in enumerate(rest) if word[:1] in "-+" and word[:2] != "--" and "c" in word]
        return [rest[place + 1] for place in flags if place + 1 < len(rest)]
    if name in _TEXT_TAKERS:
        return [word for word in rest if any(sign.isspace() or sign in ";|&" for sign in word)]
    return []


def _closing(text: str, at: int) -> int:
    """Where the command that begins at ``at`` ends: its parenthesis. Nested ones and quotes are left to be refused."""
    end = text.find(")", at)
    if end < 0 or any(sign in text[at:end] for sign in "('\"`\\"):
        raise _NotUnderstood
    return end
