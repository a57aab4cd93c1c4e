"""What is known of programs that run others: where a command, or a whole line of them, stands among their words.

Not for: splitting a line (``_shell.py``) or deciding. Rules carried: none of the contract's. May import: the standard
library.

For denials and questions alone: an allow is held to the words as they are. Doubt therefore errs to "it may run that".
What a script, or a program's own language, does is not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["RUNNERS", "is_blind", "name_of", "texts_in", "with_tail"]

Word = str | None
"""``None`` is a word that is only known when it runs."""

_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "csh", "tcsh", "fish"})
_LINES: Final = frozenset({"env", "ssh", "su", "runuser", "watch", "script", "flock", "tmux", "screen", "trap"})
"""They may take a command line in one word: ``su -c TEXT``, ``env -S TEXT``."""
_FROM_INPUT: Final = frozenset({"xargs", "parallel"})
"""They put what they read behind their words."""
_READERS: Final = frozenset({"at", "batch", "crontab", "alias", "hash", "enable"})
"""They run what they read, or make another program of a name."""
RUNNERS: Final = (
    _SHELLS
    | _LINES
    | _FROM_INPUT
    | _READERS
    | {"sudo", "doas", "pkexec", "command", "builtin", "exec", "eval", "time", "nohup", "nice", "ionice", "timeout"}
    | {"setsid", "stdbuf", "unbuffer", "busybox", "toybox", "find", "fd", "chroot", "unshare", "nsenter", "setpriv"}
    | {"strace", "ltrace", "valgrind", "taskset", "chrt", "setarch", "prlimit", "fakeroot", "systemd-run", "xvfb-run"}
    | {"source", ".", "-", "noglob", "nocorrect", "uv", "poetry", "pipenv", "npx"}
)
"""Programs that run what follows them: each later word may begin a command."""

_INPUTS: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_WITH_VALUE: Final = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
"""Options of shells whose value is a word of its own."""
_COUNTS: Final = frozenset({"-a", "-d", "-E", "-L", "-n", "-P", "-s"})
"""Those of xargs."""
_SCRIPTS: Final = frozenset({"source", "."})
_TAKE_C: Final = frozenset({"su", "runuser", "script", "flock", "fish"})
"""With ``-c`` they take a line that may hang on it."""


def name_of(word: str) -> str:
    """The program that a word names; upper case, too, where a file system does not tell it from lower case."""
    return os.path.basename(word).casefold().removesuffix(".exe")


def with_tail(words: Sequence[Word]) -> tuple[Word, ...]:
    """The words with one more that is not known, where what is read from the input is put behind them."""
    takes = any(word is not None and name_of(word) in _FROM_INPUT for word in words)
    return (*words, None) if takes else tuple(words)


def texts_in(words: Sequence[Word]) -> Iterator[str]:
    """The words that are whole command lines to some program among them: of ``sh -c``, ``eval``, ``su -c`` and such."""
    takes_lines = False
    is_shell = False
    for place, word in enumerate(words):
        if word is None:
            continue
        name = name_of(word)
        if takes_lines and _is_line(word):
            yield word
        if name == "eval":
            yield " ".join(part for part in words[place + 1 :] if part is not None)
        # Whichever of its flags has the c: a flag before it may have a value that looks like one.
        if is_shell and word[:1] in ("-", "+") and word[:2] != "--" and "c" in word:
            following = range(place + 1, len(words))
            line = next((part for at in following if (part := words[at]) is not None and part[:1] not in "-+"), None)
            yield from (part for part in (line, *words[place + 1 : place + 2]) if part is not None)
        is_shell = is_shell or name in _SHELLS
        takes_lines = takes_lines or name in _LINES or name in _FROM_INPUT


def is_blind(words: Sequence[Word]) -> bool:
    """Whether some program among them runs what cannot be seen: what it reads, or a line that hangs on an option."""
    known = [word for word in words if word is not None]
    names = [name_of(word) for word in known]
    if not _READERS.isdisjoint(names):
        return True
    for place, name in enumerate(names):
        if name in _SHELLS and _reads(known, place + 1):
            return True
    # Of each kind the first one: what may be said of a later one is among its words, too.
    for kind, is_so in ((_FROM_INPUT, _is_filled), (_LINES | _SHELLS, _hang), (_SCRIPTS, _reads_script)):
        first = next((place for place, name in enumerate(names) if name in kind), None)
        if first is not None and is_so(names[first], known[first + 1 :]):
            return True
    return False


def _is_line(word: str) -> bool:
    return any(sign.isspace() or sign in ";|&" for sign in word)


def _hang(name: str, rest: Sequence[str]) -> bool:
    """A line on an option: ``-c'rm x'``, ``--command=rm``, ``-Srm``; in the last two it may be one word."""
    return any(_hangs(word, has_line=name in _TAKE_C) for word in rest)


def _hangs(word: str, *, has_line: bool) -> bool:
    if word[:2] == "--":
        return word.startswith(("--c", "--s")) and "=" in word
    if word[:1] != "-":
        return False
    return _is_line(word) or "S" in word[:-1] or (has_line and "c" in word[:-1])


def _reads_script(_: str, rest: Sequence[str]) -> bool:
    return not _INPUTS.isdisjoint(rest)


def _reads(words: Sequence[str], place: int) -> bool:
    """Whether a shell, with the words from ``place`` on, takes its commands from its input."""
    while place < len(words):
        word = words[place]
        if word in _INPUTS:
            return True
        if word[:1] not in ("-", "+"):
            return False  # a line, or a script
        if word in ("--version", "--help"):
            return False
        if word[:2] != "--" and "s" in word:
            return True
        place += 2 if word in _WITH_VALUE else 1
    return True


def _is_filled(name: str, rest: Sequence[str]) -> bool:
    """Whether what is read may itself be, or become, the command."""
    if any(word.startswith(("-i", "-I", "-J", "--replace")) for word in rest):
        return True
    if name == "parallel":
        names = {name_of(word) for word in rest} - {"-", "."}
        return not names.isdisjoint(RUNNERS) or (":::" not in rest and all(word[:1] == "-" for word in rest))
    place = 0
    while place < len(rest) and rest[place][:1] == "-":
        place += 2 if rest[place] in _COUNTS else 1
    return place < len(rest) and name_of(rest[place]) in RUNNERS
