"""Tools for the tests of the command."""

from __future__ import annotations

import anyio

from agentsession.host import Tool
from agentsession.protocol import ToolAnnotations


def read_file(path: str) -> str:
    """Read a file."""
    return f"content of {path}\nsecond line"


def paint() -> str:
    """Answer with what a terminal would obey."""
    return "\x1b[2J\x1b[31mred"


async def wait_long() -> str:
    """Run until somebody stops it."""
    await anyio.sleep_forever()
    return ""


READS = ToolAnnotations(read_only=True)
tools = [Tool.from_function(function, annotations=READS) for function in (read_file, paint, wait_long)]


def make_tools() -> list[Tool]:
    return tools
