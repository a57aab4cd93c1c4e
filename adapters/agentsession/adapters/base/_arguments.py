"""Arguments of the wrong type: refused at the call, in words, before anything is recorded.

Not for: values of the right type that cannot be taken (the calls themselves refuse those). A class of the contract
checks what it is built from; here is what no class is built of, such as a dictionary where options belong.
May import: ``agentsession.protocol``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from agentsession.protocol import (
    Answer,
    ElicitationAnswer,
    InvalidInput,
    Model,
    ToolDenial,
    ToolGrant,
    ToolProgress,
    ToolResult,
)

__all__ = ["answers_of", "need"]

T = TypeVar("T")

_ANSWERS: Final = (ToolResult, ToolGrant, ToolDenial, ToolProgress, ElicitationAnswer)


def need(value: Any, kind: type[T], what: str, fix: str) -> T:
    """``value``, which must be of ``kind``; raises :class:`InvalidInput` that tells its type and not what it holds."""
    if isinstance(value, kind):
        return value
    got = type(value).__name__
    raise InvalidInput(f"the {what} is of type {got}", got=got, expected=kind.__name__, fix=fix)


def answers_of(given: Any) -> list[Answer]:
    """One answer or several as a list. Raises :class:`InvalidInput` for anything else."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, Model))
    answers: list[Any] = list(given) if several else [given]
    for answer in answers:
        if not isinstance(answer, _ANSWERS):
            raise InvalidInput(
                f"a value of type {type(answer).__name__} is no answer",
                got=type(answer).__name__,
                expected="one of " + ", ".join(kind.__name__ for kind in _ANSWERS),
                fix="make one with result(), grant(), deny(), accept(), decline() or cancel()",
            )
    return answers
