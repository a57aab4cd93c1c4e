"""Conditions on the arguments of a call: one JSON pointer, one comparison, and three possible outcomes.

Not for: shell commands (``_shell.py``) or which rule wins (``_engine.py``). Rules carried: none of the contract's.
May import: the standard library.

Not every value can be judged: a number that is a text, a text that is too long or not whole. Such a value is *odd*, and
an allow must not hold for it while a denial or a question must. So a condition says :attr:`Fit.NO`, :attr:`Fit.ODD` or
:attr:`Fit.YES`, several conditions say the least of theirs, and the rule's decision makes of ``ODD`` what is closed.
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

__all__ = [
    "ABSENT",
    "LONGEST",
    "OPERATORS",
    "Condition",
    "Fit",
    "find",
    "glob_pattern",
    "is_odd_text",
    "make_condition",
]

LONGEST: Final = 65_536
"""Bytes of UTF-8 up to which a text is compared; longer ones are odd."""
_LONGEST_FOR_REGEX: Final = 4_096
"""Characters. What a pattern costs can grow faster than the text it looks at."""


_MARKED: Final = re.compile(r"\.\.|//|\./|/\.?\Z|%2|[\x00-\x1f\x7f]")
"""Signs by which a text may mean another path, or hide a part of itself."""
_UP: Final = re.compile(r"(?:^|[/\\]|%2f|%5c)(?:\.|%2e){2}(?:[/\\?#]|%2f|%5c|$)", re.IGNORECASE)
"""A step up, in a path or a URL."""
_IDLE: Final = re.compile(r"(?<!:)/(?:\.?/)+")
_AT_ONCE: Final = re.compile(r"^(?:\./+)+")
_AT_LAST: Final = re.compile(r"(?<=[^/])/\.?\Z")
"""Steps that lead nowhere; two slashes after a URL's scheme are none."""


class Fit(enum.IntEnum):
    """Whether a condition holds; of several the least counts."""

    NO = 0
    ODD = 1
    YES = 2


class _Mark(enum.Enum):
    ABSENT = enum.auto()
    ODD = enum.auto()


ABSENT: Final = _Mark.ABSENT
"""What :func:`find` returns where there is no such key."""

Check = Callable[[Any], bool | None]
"""Of a value of the right kind; ``None`` is odd after all."""


class Marked:
    """A text with signs that may mean more than they show, and what these come to: found once, asked by many rules."""

    __slots__ = ("composed", "idle_left_out", "is_printable", "leads_up", "text", "without_end")

    def __init__(self, text: str) -> None:
        self.text = text
        self.leads_up = _UP.search(text) is not None
        self.idle_left_out = _IDLE.sub("/", _AT_ONCE.sub("", text))
        self.without_end = _AT_LAST.sub("", self.idle_left_out)
        self.is_printable = text.isprintable()
        self.composed: Marked | None = None if _is_composed(text) else Marked(_composed(text))
        """With letters and their accents written as one sign; ``None`` where they are."""


Careful = Callable[[Marked], bool | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """``args = { "/pointer" = { operator = operand } }``, ready to be tested."""

    pointer: str
    operator: str
    operand: Any
    kinds: frozenset[str]
    """Of the values that it can judge."""
    check: Check
    careful: Careful | None = None
    """Of a text with signs that may mean more than they show (kind ``marked``), if it judges texts."""

    def fits(self, values: Values) -> Fit:
        """Whether it holds. An absent key is no match; a value of another kind is odd."""
        kind, value = values[self.pointer]
        if kind in self.kinds:
            found = self.check(value)
        elif kind == "marked" and self.careful is not None:
            found = self.careful(value)
        else:
            return Fit.NO if kind == "absent" else Fit.ODD
        return Fit.ODD if found is None else Fit.YES if found else Fit.NO

    @property
    def beginning(self) -> str:
        """What every plain text that it holds for begins with; empty where that is not known."""
        if self.operator == "glob":
            return _SIGNS.split(self.operand, maxsplit=1)[0]
        return self.operand if self.operator == "prefix" else ""

    @property
    def words(self) -> str:
        """For a person: ``/amount gt 100``."""
        return f"{self.pointer} {self.operator} {self.operand!r}"


class Values(dict[str, tuple[str, Any]]):
    """The arguments of one call by JSON pointer, each with its kind: what many rules look at is found once."""

    def __init__(self, args: Mapping[str, Any]) -> None:
        self._args = args

    def __missing__(self, pointer: str) -> tuple[str, Any]:
        found = self[pointer] = _kind_of(find(self._args, _steps(pointer)))
        return found


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _kind_of(value: Any) -> tuple[str, Any]:
    if value is ABSENT:
        return "absent", None
    kind = _kind(value)
    if kind is None or (kind == "text" and is_odd_text(value)) or (kind == "number" and value != value):
        return "odd", None
    if kind == "text" and (_MARKED.search(value) is not None or not _is_composed(value)):
        return "marked", Marked(value)
    return kind, value


def find(args: Any, steps: Sequence[str]) -> Any:
    """The value that a JSON pointer's steps lead to, :data:`ABSENT`, or the mark of a shape nobody can walk."""
    value = args
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step, ABSENT)  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
            if value is ABSENT:
                return ABSENT
        elif isinstance(value, list):
            if not step.isascii() or not step.isdecimal() or len(step) > 9 or (step[0] == "0" and step != "0"):
                return _Mark.ODD
            index = int(step)
            if index >= len(value):  # pyright: ignore[reportUnknownArgumentType]
                return ABSENT
            value = value[index]  # pyright: ignore[reportUnknownVariableType]
        else:
            return _Mark.ODD
    return value  # pyright: ignore[reportUnknownVariableType]


def is_odd_text(text: str) -> bool:
    """Whether a text cannot be judged: too long, a NUL, half a surrogate pair, or the sign that one was replaced by."""
    if "\0" in text or len(text) > LONGEST:
        return True
    if text.isascii():
        return False
    if "\ufffd" in text:
        return True
    try:
        return len(text.encode()) > LONGEST
    except UnicodeEncodeError:
        return True


_SIGNS: Final = re.compile(r"[*?\[]")


def glob_pattern(pattern: str) -> re.Pattern[str]:
    """A glob over paths: ``*`` and ``?`` stay in one folder, ``**`` crosses folders, ``[a-z]`` is one character."""
    out: list[str] = []
    place = 0
    while place < len(pattern):
        if pattern.startswith("**/", place) and (place == 0 or pattern[place - 1] == "/"):
            out.append("(?:.*/)?")
            place += 3
        elif pattern.startswith("**", place):
            out.append(".*")
            place += 2
        elif pattern[place] == "*":
            out.append("[^/]*")
            place += 1
        elif pattern[place] == "?":
            out.append("[^/]")
            place += 1
        elif pattern[place] == "[" and (end := pattern.find("]", place + 2)) > 0:
            one = fnmatch.translate(pattern[place : end + 1])
            out.append(one.removeprefix("(?s:").rsplit(")", 1)[0])
            place = end + 1
        else:
            out.append(re.escape(pattern[place]))
            place += 1
    return re.compile("(?s:" + "".join(out) + ")")


# --- the operators ----------------------------------------------------------------------------------------------------


def _kind(value: object) -> str | None:
    """Python takes ``True`` for 1; JSON, and so a rule, does not."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else None


def _one_of(members: Sequence[Any]) -> Check:
    # By kind: Python takes 1 and True for equal.
    known = frozenset((_kind(member), member) for member in members)
    return lambda value: (_kind(value), value) in known


def _on_path(holds: Check, operand: str) -> Careful:
    """``src/../../etc`` begins with ``src/`` and leads elsewhere, so it is odd where the operand is a path; so is
    ``//etc/passwd`` to ``/etc/``. A URL may say the dots as ``%2e``, and with a tab among them."""
    if "/" not in operand:
        return _plain(holds)
    is_url = "://" in operand

    def check(value: Marked) -> bool | None:
        if value.leads_up or (is_url and not value.is_printable):
            return None
        says = holds(value.text)
        if says is False and holds(value.without_end):  # /data/ is /data to whoever denies that
            return None
        return says if holds(value.idle_left_out) is says else None

    return check


def _over_lines(holds: Check, operand: str) -> Careful:
    """A line end must not hide the rest of a text from a ``.``, nor let it pass: where it decides, the text is odd."""
    pattern = re.compile(operand, re.DOTALL)

    def check(value: Marked) -> bool | None:
        says = holds(value.text)
        return says if says is None or (pattern.fullmatch(value.text) is not None) is says else None

    return check


def _is_composed(text: str) -> bool:
    return text.isascii() or unicodedata.is_normalized("NFC", text)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _either(holds: Careful, composed: Careful) -> Careful:
    """A letter with an accent is written in two ways, which some file systems take for one: where it decides, the text
    is odd. ``composed`` is the same check of an operand in the shorter way."""

    def check(value: Marked) -> bool | None:
        says = holds(value)
        return says if value.composed is None or composed(value.composed) is says else None

    return check


def _plain(check: Check) -> Careful:
    return lambda value: check(value.text)


def _under(folder: str, workspace: str) -> Check:
    """Below a folder both as it is written and with every link followed; where the two disagree the path is odd.

    The folder's own links are followed now: what an agent does to them later does not move the rule.
    """
    written = os.path.normpath(os.path.join(workspace, folder))
    leads_to = os.path.realpath(written)
    folds = _folds_case(written)

    def check(value: str) -> bool | None:
        if not value or value[0] == "~" or "\\" in value or "://" in value or value.startswith("file:"):
            return None  # some tools make another path of it
        path = os.path.join(workspace, value)
        says = _is_in(os.path.normpath(path), written)
        try:
            leads = _is_in(os.path.realpath(path), leads_to)
        except (OSError, ValueError):
            return None
        if folds and not says and not leads and _is_in(os.path.normpath(path).casefold(), written.casefold()):
            return None
        return says if says == leads else None

    return check


def _folds_case(path: str) -> bool:
    """Whether ``SRC`` is ``src`` there: as the file system shows, or where there is nothing yet, as the system is known
    to do."""
    try:
        return os.path.samefile(path, path.swapcase())
    except OSError:
        return sys.platform in ("darwin", "win32") and not os.path.exists(path)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


# --- making one -------------------------------------------------------------------------------------------------------

OPERATORS: Final[Mapping[str, str]] = {
    "eq": "a text, a number or a boolean",
    "in": "a list of texts, numbers or booleans",
    "prefix": "a text",
    "glob": "a text",
    "regex": "a regular expression",
    "under": "a path",
    "gt": "a number",
    "lt": "a number",
}
"""The operators, each with what it is compared to."""


def make_condition(pointer: str, operator: str, operand: Any, *, workspace: str) -> Condition:
    """A condition. Raises :class:`ValueError` with what was expected, and :class:`re.error`."""
    if operator in ("eq", "in"):
        members: Any = operand if operator == "in" else [operand]
        listed: list[Any] = [*members] if isinstance(members, list) else []  # pyright: ignore[reportUnknownArgumentType]
        kinds = [kind for kind in map(_kind, listed) if kind is not None]
        if kinds and len(kinds) == len(listed):
            check = _one_of(listed)
            shorter = _one_of([_composed(one) if isinstance(one, str) else one for one in listed])
            careful = _either(_plain(check), _plain(shorter)) if "text" in kinds else None
            return Condition(pointer, operator, operand, frozenset(kinds), check, careful)
    elif operator in ("gt", "lt"):
        if _kind(operand) == "number" and operand == operand:
            bound: float = operand
            check = (lambda value: value > bound) if operator == "gt" else (lambda value: value < bound)
            return Condition(pointer, operator, operand, frozenset({"number"}), check)
    elif isinstance(operand, str) and operand:
        check, careful = _text_checks(operator, operand, workspace)
        _, shorter = _text_checks(operator, _composed(operand), workspace)
        return Condition(pointer, operator, operand, frozenset({"text"}), check, _either(careful, shorter))
    raise ValueError(OPERATORS[operator])


def _text_checks(operator: str, operand: str, workspace: str) -> tuple[Check, Careful]:
    """Of any text, and of one that is marked."""
    if operator == "under":
        check = _under(os.path.expanduser(operand), workspace)
        return check, _plain(check)
    if operator == "regex":
        check = _regex(re.compile(operand))
        return check, _over_lines(check, operand)
    check = _begins_with(operand) if operator == "prefix" else _matches(operand)
    return check, _on_path(check, operand)


def _begins_with(operand: str) -> Check:
    return lambda value: value.startswith(operand)


def _matches(glob: str) -> Check:
    pattern = glob_pattern(glob)
    literal = _SIGNS.split(glob, maxsplit=1)[0]  # most globs fail here, which costs a tenth of asking the pattern
    return lambda value: value.startswith(literal) and pattern.fullmatch(value) is not None


def _regex(pattern: re.Pattern[str]) -> Check:
    return lambda value: None if len(value) > _LONGEST_FOR_REGEX else pattern.fullmatch(value) is not None
