"""What a user may name by mistake, and what fails when it is called."""

from __future__ import annotations

import functools
import sys

from agentsession.host import Tool


def leave() -> None:
    sys.exit(5)


def fail() -> None:
    raise ValueError("no database")


def nothing() -> None: ...


def needs(settings: str) -> None: ...


def make_tools() -> list[Tool]:
    raise ValueError("no database")


async def make_tools_later() -> list[Tool]:
    return []


def scale(factor: int, number: int) -> int:
    """Scale."""
    return factor * number


class Greeter:
    """Greets."""

    def __call__(self, name: str) -> str:
        return f"hello {name}"


tools = [scale, functools.partial(scale, 2)]
mixed = [scale, 7]
callables = [functools.partial(scale, 2), Greeter()]
