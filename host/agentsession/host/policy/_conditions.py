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


_UP: Final = re.compile(r"(?:^|[/\\]|%2f|%5c)(?:\.|%2e){2}(?:[/\\?#]|%2f|%5c|$)", re.IGNORECASE)
"""A step up, in a path or a URL."""
_IDLE: Final = re.compile(r"(?<!:)/(?:\.?/)+")
_AT_ONCE: Final = re.compile(r"^(?:\./+)+")
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


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """``args = { "/pointer" = { operator = operand } }``, ready to be tested."""

    pointer: str
    operator: str
    operand: Any
    kinds: frozenset[str]
    """Of the values that it can judge."""
    check: Check

    def fits(self, values: Values) -> Fit:
        """Whether it holds. An absent key is no match; a value of another kind is odd."""
        kind, value = values[self.pointer]
        if kind in self.kinds:
            found = self.check(value)
            return Fit.ODD if found is None else Fit.YES if found else Fit.NO
        return Fit.NO if kind == "absent" else Fit.ODD

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


def _on_path(holds: Callable[[str], bool], operand: str) -> Check:
    """``src/../../etc`` begins with ``src/`` and leads elsewhere, so it is odd where the operand is a path; so is
    ``//etc/passwd`` to ``/etc/``. A URL may say the dots as ``%2e``, and with a tab among them."""
    if "/" not in operand:
        return holds
    is_url = "://" in operand

    def check(value: str) -> bool | None:
        if (".." in value or "%2" in value) and _UP.search(value) is not None:
            return None
        if is_url and not value.isprintable():
            return None
        says = holds(value)
        if ("//" in value or "./" in value) and holds(_IDLE.sub("/", _AT_ONCE.sub("", value))) is not says:
            return None
        return says

    return check


def _regex(pattern: re.Pattern[str]) -> Check:
    return lambda value: None if len(value) > _LONGEST_FOR_REGEX else pattern.fullmatch(value) is not None


def _under(folder: str, workspace: str) -> Check:
    """Below a folder both as it is written and with every link followed; where the two disagree the path is odd.

    The folder's own links are followed now: what an agent does to them later does not move the rule.
    """
    written = os.path.normpath(os.path.join(workspace, folder))
    leads_to = os.path.realpath(written)

    def check(value: str) -> bool | None:
        if not value or value[0] == "~" or "\\" in value or "://" in value or value.startswith("file:"):
            return None  # some tools make another path of it
        path = os.path.join(workspace, value)
        says = _is_in(os.path.normpath(path), written)
        try:
            leads = _is_in(os.path.realpath(path), leads_to)
        except (OSError, ValueError):
            return None
        return says if says == leads else None

    return check


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
            return Condition(pointer, operator, operand, frozenset(kinds), _one_of(listed))
    elif operator in ("gt", "lt"):
        if _kind(operand) == "number" and operand == operand:
            bound: float = operand
            check: Check = (lambda value: value > bound) if operator == "gt" else (lambda value: value < bound)
            return Condition(pointer, operator, operand, frozenset({"number"}), check)
    elif isinstance(operand, str) and operand:
        return Condition(pointer, operator, operand, frozenset({"text"}), _text_check(operator, operand, workspace))
    raise ValueError(OPERATORS[operator])


def _text_check(operator: str, operand: str, workspace: str) -> Check:
    if operator == "prefix":
        return _on_path(lambda value: value.startswith(operand), operand)
    if operator == "glob":
        pattern = glob_pattern(operand)
        return _on_path(lambda value: pattern.fullmatch(value) is not None, operand)
    if operator == "regex":
        return _regex(re.compile(operand))
    return _under(os.path.expanduser(operand), workspace)
