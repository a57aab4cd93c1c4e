"""JSON of unknown shape, read without surprises: a value that is not what was hoped for is nothing.

May import: the standard library.
"""

from __future__ import annotations

from typing import Any, cast

__all__ = ["as_list", "as_object", "is_list"]


def as_object(value: object) -> dict[str, Any] | None:
    """The value, if it is a JSON object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any]:
    """The value, if it is a JSON array; else an empty list."""
    return cast("list[Any]", value) if isinstance(value, (list, tuple)) else []


def is_list(value: object) -> bool:
    """Whether the value is a list or a tuple; told without narrowing, so that its items stay of any type."""
    return isinstance(value, (list, tuple))
