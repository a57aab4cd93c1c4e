"""Lines from stdin while an event loop runs.

In a thread, because a pipe, a file, a terminal and /dev/null are then read the same way and none can hold up the end.
From the descriptor itself, because a thread that waits in Python's buffered reader aborts the interpreter at its exit.
May import: the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable

__all__ = ["read_stdin"]

_PIECE = 65_536


def read_stdin(on_line: Callable[[bytes | None], None]) -> None:
    """Call ``on_line`` in the running loop for each line, without its line feed, and with ``None`` at the end."""
    loop = asyncio.get_running_loop()

    def tell(text: bytes | None) -> None:
        loop.call_soon_threadsafe(on_line, text)

    def read() -> None:
        with contextlib.suppress(RuntimeError, OSError, ValueError):  # the loop or stdin is closed: it is over
            rest = b""
            number = sys.stdin.fileno()
            while piece := os.read(number, _PIECE):
                *lines, rest = (rest + piece).split(b"\n")
                for text in lines:
                    tell(text)
            if rest:
                tell(rest)
            tell(None)

    threading.Thread(target=read, daemon=True, name="stdin").start()
