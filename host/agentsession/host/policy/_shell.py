"""Shell commands as policies see them: split into their parts, each a list of words that a rule's prefixes are held to.

Not for: running anything, nor for being a shell. Rules carried: none of the contract's. May import: ``_conditions``,
``_programs``.

Only what is certainly understood is split. A line with loops, groups, functions, here-documents or arithmetic is *not
parsed*: no allow holds for it, every denial and question with ``shell`` does. What a part runs cannot be known from a
pattern (a script may do anything), so this narrows what an allow covers and is no sandbox.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from agentsession.host.policy._conditions import Fit, is_odd_text
from agentsession.host.policy._programs import RUNNERS, is_blind, name_of, texts_in, with_tail

__all__ = ["Part", "parse_command"]

_MOST_PARTS: Final = 64
_MOST_WORDS: Final = 1_000
"""Of a line with all that is nested in it, as of its parts: reading one costs at most so much."""
_DEEPEST: Final = 4
_RESERVED: Final = frozenset(
    {"!", "[[", "]]", "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"}
    | {"select", "function", "coproc", "time", "in", "and", "or", "not", "begin", "repeat", "foreach"}
)
"""First words that are no commands, in some shell."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One command of a line."""

    words: tuple[str | None, ...]
    """``None`` is a word that is only known when it runs: ``$X``, ``*.py``."""
    is_plain: bool = True
    """No redirection to a file and no assignment before it; an allow holds for no other."""
    heads: frozenset[str] | None = dataclasses.field(init=False, compare=False, repr=False)
    """The words that a prefix must begin with to have a chance; ``None``: any may."""
    _starts: tuple[int, ...] = dataclasses.field(init=False, compare=False, repr=False)
    """Where a command may begin, to a denial: a program that runs others has several."""
    _run: tuple[str | None, ...] = dataclasses.field(init=False, compare=False, repr=False)
    """The words with what is put behind them when it runs."""

    def __post_init__(self) -> None:
        first = self.words[0] if self.words else ""
        runs_others = first is not None and name_of(first) in RUNNERS
        run = with_tail(self.words) if runs_others else self.words
        starts = range(len(self.words)) if runs_others else range(min(1, len(self.words)))
        heads: frozenset[str] | None = None
        begins = [self.words[start] for start in starts]
        if None not in begins and not (runs_others and is_blind(self.words)):
            known = [word for word in begins if word is not None]
            heads = frozenset({*known[:1], *map(name_of, known)})
        object.__setattr__(self, "heads", heads)
        object.__setattr__(self, "_starts", tuple(starts))
        object.__setattr__(self, "_run", run)

    def fits(self, prefixes: Sequence[tuple[str, ...]], *, is_allow: bool) -> Fit:
        """Whether one of the prefixes begins it. For a denial or a question also behind ``sudo``, ``env`` and such, and
        with options before the next word: ``git -C dir push``."""
        if is_allow:
            best = max((_begins(self.words, prefix) for prefix in prefixes), default=Fit.NO)
            return Fit.ODD if best is Fit.YES and not self.is_plain else best
        starts = self._starts
        if self.heads is None:  # at least odd, so the first word is enough to know
            starts = starts[:1]
        best = Fit.ODD if self.heads is None else Fit.NO
        for start in starts:
            best = max(best, *(_may_begin(self._run, start, prefix) for prefix in prefixes))
            if best is Fit.YES:
                break
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


def _may_begin(words: Sequence[str | None], start: int, prefix: Sequence[str]) -> Fit:
    """As :func:`_begins` from ``start`` on, however the program is written, and past options and their values."""
    first = words[start]
    if first is None:
        return Fit.ODD
    if first != prefix[0] and name_of(first) != prefix[0].casefold():
        return Fit.NO
    places = {start + 1}
    is_odd = False
    for wanted in prefix[1:]:
        found: set[int] = set()
        seen: set[int] = set()
        while places:
            place = places.pop()
            if place >= len(words) or place in seen:
                continue
            seen.add(place)
            word = words[place]
            is_odd = is_odd or word is None
            if word == wanted:
                found.add(place + 1)
            if word is not None and word[:1] == "-":
                places |= {place + 1, place + 2}
        places = found
        if not places:
            return Fit.ODD if is_odd else Fit.NO
    return Fit.YES


def parse_command(command: Any) -> tuple[Part, ...] | None:
    """The parts of a command line, or of a list of words; ``None`` if it cannot be understood."""
    if isinstance(command, list):
        words: list[Any] = [*command]  # pyright: ignore[reportUnknownVariableType]
        if not 0 < len(words) <= _MOST_WORDS or not all(
            isinstance(word, str) and not is_odd_text(word) for word in words
        ):
            return None
        left = _Left()
        try:
            return (Part(tuple(words)), *_inner(words, 0, left))
        except _NotUnderstood:
            return None
    if not isinstance(command, str) or is_odd_text(command):
        return None
    try:
        return tuple(_Reader(command, 0, _Left()).parts()) or None
    except _NotUnderstood:
        return None


class _NotUnderstood(Exception):
    pass


class _Left:
    """How much more of a line is read; shared by all that is nested in it, which could else cost without bound."""

    def __init__(self) -> None:
        self._parts = _MOST_PARTS
        self._words = _MOST_WORDS

    def take(self, *, parts: int = 0, words: int = 0) -> None:
        """Raises :class:`_NotUnderstood` when there is nothing left."""
        self._parts -= parts
        self._words -= words
        if self._parts < 0 or self._words < 0:
            raise _NotUnderstood


class _Reader:
    """Reads one line, character by character."""

    def __init__(self, text: str, depth: int, left: _Left) -> None:
        if depth > _DEEPEST or any(ord(sign) < 32 and sign not in "\t\n" for sign in text):
            raise _NotUnderstood
        self._text = text
        self._depth = depth
        self._left = left
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
            is_test = sign == "[" and self._word is None and self._text[self._at + 1 : self._at + 2] in ("", " ", "\t")
            if (sign in "*?[~" and not is_test) or (sign == "=" and self._word is None):  # zsh makes a path of =rm
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
        self._parts += _Reader(text, self._depth + 1, self._left).parts()

    def _redirect(self) -> None:
        """A redirection. Only those that write nowhere leave the part plain: ``2>&1``, ``>/dev/null``."""
        text = self._text
        if self._is_known and not self._is_quoted and self._word is not None and _is_digits("".join(self._word)):
            self._word = None  # 2>: the number is part of the sign
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
        is_harmless = target == "/dev/null" or (signs in (">&", "<&") and target is not None and _is_digits(target))
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
            self._left.take(words=1)
            self._words.append(word if self._is_known else None)
        self._word, self._is_known, self._is_quoted = None, True, False

    def _end_part(self) -> None:
        self._end_word()
        if self._words or not self._is_plain:
            self._left.take(parts=1)
            self._parts.append(Part(tuple(self._words), self._is_plain))
            self._parts += _inner(self._words, self._depth, self._left)
        self._words, self._is_plain = [], True


def _inner(words: Sequence[str | None], depth: int, left: _Left) -> list[Part]:
    """What ``sh -c TEXT``, ``eval TEXT`` and ``ssh HOST TEXT`` run, also behind ``sudo`` and such, as parts of their
    own. Raises :class:`_NotUnderstood`."""
    first = words[0] if words else None
    if first is None or name_of(first) not in RUNNERS:
        return []
    parts: list[Part] = []
    read: set[str] = set()
    for text in texts_in(words):
        if text and text not in read:
            read.add(text)
            parts += _Reader(text, depth + 1, left).parts()
    return parts


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _closing(text: str, at: int) -> int:
    """Where the command that begins at ``at`` ends: its parenthesis. Nested ones and quotes are left to be refused."""
    end = text.find(")", at)
    if end < 0 or any(sign in text[at:end] for sign in "('\"`\\"):
        raise _NotUnderstood
    return end
