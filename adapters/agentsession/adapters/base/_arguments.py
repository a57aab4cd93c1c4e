"""Arguments of the wrong type or shape: those of the host's calls, and those of the agent's tools.

Not for: values of the right type that cannot be taken (the calls themselves refuse those). A class of the contract
checks what it is built from; here is what no class is built of, such as a dictionary where options belong.
Rules carried: TOOL-04. May import: ``agentsession.protocol``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from agentsession.protocol import AgentDescriptor, InvalidInput, check_schema

__all__ = ["need", "wrong_args"]

T = TypeVar("T")


def need(value: Any, kind: type[T], what: str, fix: str) -> T:
    """``value``, which must be of ``kind``; raises :class:`InvalidInput` that tells its type and not what it holds."""
    if isinstance(value, kind):
        return value
    got = type(value).__name__
    raise InvalidInput(f"the {what} is of type {got}", got=got, expected=kind.__name__, fix=fix)


def wrong_args(descriptor: AgentDescriptor, name: str, args: Mapping[str, Any]) -> str | None:
    """What the declared schema of the agent's own tool ``name`` has against ``args``; ``None``: nothing (TOOL-04)."""
    tool = next((tool for tool in descriptor.own_tools if tool.name == name), None)
    if tool is None or tool.parameters_schema is None:
        return None
    return check_schema(tool.parameters_schema, dict(args))
