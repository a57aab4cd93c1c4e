"""Arguments of the wrong type: refused at the call, in words, before anything is recorded.

Not for: values of the right type that cannot be taken (the calls themselves refuse those). A class of the contract
checks what it is built from; here is what no class is built of, such as a dictionary where options belong.
May import: ``agentsession.protocol``.
"""

from __future__ import annotations

from typing import Any, TypeVar

from agentsession.protocol import InvalidInput

__all__ = ["need"]

T = TypeVar("T")


def need(value: Any, kind: type[T], what: str, fix: str) -> T:
    """``value``, which must be of ``kind``; raises :class:`InvalidInput` that tells its type and not what it holds."""
    if isinstance(value, kind):
        return value
    got = type(value).__name__
    raise InvalidInput(f"the {what} is of type {got}", got=got, expected=kind.__name__, fix=fix)
