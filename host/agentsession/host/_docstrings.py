"""Docstrings to tool descriptions: the summary, and what is said of each argument.

Not for: types (those come from the signature). May import: the standard library.

Three styles are read: Google (``Args:``), NumPy (``Parameters`` underlined) and Sphinx (``:param x:``). What cannot be
read is left in the description rather than lost.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Sequence

__all__ = ["Docstring", "parse_docstring"]

_ARGUMENT_SECTIONS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
)
_OTHER_SECTIONS = frozenset(
    {
        "attributes",
        "example",
        "examples",
        "note",
        "notes",
        "raises",
        "references",
        "return",
        "returns",
        "see also",
        "todo",
        "warning",
        "warnings",
        "warns",
        "yields",
    }
)
_GOOGLE_ENTRY = re.compile(
    r"^\*{0,2}(?P<names>\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*:\s*(?P<text>.*)$"
)
_NUMPY_ENTRY = re.compile(r"^\*{0,2}(?P<names>\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX_FIELD = re.compile(r"^:(?P<kind>\w+)(?:\s+(?P<what>[^:]*))?:\s*(?P<text>.*)$")
_SPHINX_ARGUMENTS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


@dataclasses.dataclass(frozen=True, slots=True)
class Docstring:
    """What a docstring says, taken apart."""

    description: str
    """All text before the first section."""
    arguments: dict[str, str]
    """What is said of each argument, on one line."""


def parse_docstring(text: str | None) -> Docstring:
    """Take a docstring apart; one without sections is all description."""
    lines = inspect.cleandoc(text or "").splitlines()
    description: list[str] = []
    arguments: dict[str, str] = {}
    index = 0
    while index < len(lines):
        line = lines[index]
        field = _SPHINX_FIELD.match(line)
        title, numpy = _section(lines, index)
        if field is not None:
            end = _end_of_field(lines, index)
            if field["kind"] in _SPHINX_ARGUMENTS and field["what"]:
                name = field["what"].split()[-1].lstrip("*")
                arguments[name] = _one_line([field["text"], *lines[index + 1 : end]])
            index = end
        elif title is not None:
            start = index + (2 if numpy else 1)
            end = _end_of_section(lines, start, numpy)
            if title in _ARGUMENT_SECTIONS:
                found, unread = _entries(lines[start:end], numpy)
                arguments.update(found)
                description.extend(unread)
            index = end
        else:
            description.append(line)
            index += 1
    return Docstring("\n".join(description).strip(), arguments)


def _section(lines: Sequence[str], index: int) -> tuple[str | None, bool]:
    """The section that begins at this line, and whether it is NumPy's form."""
    line = lines[index]
    if not line or line[0].isspace():
        return None, False
    title = line.strip().lower()
    following = lines[index + 1].strip() if index + 1 < len(lines) else ""
    if len(following) >= 3 and set(following) == {"-"} and title in _ARGUMENT_SECTIONS | _OTHER_SECTIONS:
        return title, True
    if title.endswith(":") and title[:-1] in _ARGUMENT_SECTIONS | _OTHER_SECTIONS:
        return title[:-1], False
    return None, False


def _end_of_field(lines: Sequence[str], start: int) -> int:
    index = start + 1
    while index < len(lines) and lines[index] and lines[index][0].isspace():
        index += 1
    return index


def _end_of_section(lines: Sequence[str], start: int, numpy: bool) -> int:
    for index in range(start, len(lines)):
        line = lines[index]
        if not line.strip():
            continue
        if _section(lines, index)[0] is not None or _SPHINX_FIELD.match(line):
            return index
        if not numpy and not line[0].isspace():
            return index
    return len(lines)


def _entries(lines: Sequence[str], numpy: bool) -> tuple[dict[str, str], list[str]]:
    """What is said of each argument, and the lines that are in no style that is read here."""
    body = [line for line in lines if line.strip()]
    if not body:
        return {}, []
    indent = 0 if numpy else len(body[0]) - len(body[0].lstrip())
    pattern = _NUMPY_ENTRY if numpy else _GOOGLE_ENTRY
    found: dict[str, list[str]] = {}
    unread: list[str] = []
    names: list[str] = []
    for line in body:
        begins = len(line) - len(line.lstrip()) <= indent
        entry = pattern.match(line.strip()) if begins else None
        if entry is not None:
            names = [name.strip().lstrip("*") for name in entry["names"].split(",")]
            for name in names:
                found[name] = [] if numpy else [entry["text"]]
        elif begins or not names:
            names = []
            unread.append(line[indent:])
        else:
            for name in names:
                found[name].append(line)
    return {name: _one_line(texts) for name, texts in found.items()}, unread


def _one_line(texts: Sequence[str]) -> str:
    return " ".join(" ".join(texts).split())
