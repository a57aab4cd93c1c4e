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
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            with contextlib.suppress(OSError, ValueError):  # stdin is closed, or no file: that is its end
                begun: list[bytes] = []  # a line of many pieces is joined once: joining at each piece is quadratic
                number = sys.stdin.fileno()
                while piece := os.read(number, _PIECE):
                    first, *more = piece.split(b"\n")
                    begun.append(first)
                    for text in more:
                        tell(b"".join(begun))
                        begun = [text]
                if rest := b"".join(begun):
                    tell(rest)
            tell(None)

    threading.Thread(target=read, daemon=True, name="stdin").start()
