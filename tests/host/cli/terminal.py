"""A real pseudo-terminal with a screen behind it, for tests of what a person sees.

No sleeps: a test waits for words to appear (bounded), and the reading thread wakes it with each piece of output.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

__all__ = ["TerminalSession"]

TIMEOUT_S = 15.0


class TerminalSession:
    """A process at a terminal of ``rows`` by ``columns``."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        rows: int = 40,
        columns: int = 80,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self._changed = threading.Condition()
        self._ended = False
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environ = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "EDITOR", "VISUAL")}
        environ |= {"TERM": "xterm-256color", "PAGER": "cat", "LINES": "", "COLUMNS": "", **(env or {})}
        for name in ("LINES", "COLUMNS"):
            del environ[name]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentsession.host.cli", *args],
            stdin=side,
            stdout=side,
            stderr=side,
            cwd=cwd,
            env=environ,
            start_new_session=True,
        )
        os.close(side)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        self._thread.join(TIMEOUT_S)
        os.close(self._main)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._main, 65536)
            except OSError:
                data = b""
            with self._changed:
                self._ended = not data
                self.raw += data
                if data:
                    # pyte knows no private modes with a dollar and no 2026; it ignores the latter.
                    self._stream.feed(data)
                self._changed.notify_all()
            if not data:
                return

    @property
    def text(self) -> str:
        """Everything that is or was on the screen, top to bottom."""
        with self._changed:
            past = [
                "".join(row[column].data for column in range(self.screen.columns)) for row in self.screen.history.top
            ]
            rows = [*past, *self.screen.display]
        return "\n".join(row.rstrip() for row in rows).rstrip() + "\n"

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._main, text.encode())

    def wait_for(self, pattern: str, *, count: int = 1) -> str:
        """Return the text once ``pattern`` is found ``count`` times in it."""
        return self.wait_until(lambda text: len(re.findall(pattern, text, re.MULTILINE)) >= count, repr(pattern))

    def wait_until(self, is_so: Callable[[str], bool], what: str) -> str:
        """Return the text once it is so."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            text = self.text
            if is_so(text):
                return text
            with self._changed:
                if self._ended:
                    raise AssertionError(f"the process ended before {what} was seen:\n{text}")
                if time.monotonic() > end:
                    raise AssertionError(f"{what} was not seen in {TIMEOUT_S} s:\n{text}")
                self._changed.wait(0.5)

    def wait_exit(self) -> int:
        """The exit code, once the process ended."""
        code = self.process.wait(TIMEOUT_S)
        self._thread.join(TIMEOUT_S)
        return code

    def resize(self, rows: int, columns: int) -> None:
        """Change the window."""
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        with self._changed:
            self.screen.resize(rows, columns)
        os.kill(self.process.pid, signal.SIGWINCH)

    def echo_is_on(self) -> bool:
        """Whether the terminal was left in a usable state."""
        return bool(termios.tcgetattr(self._main)[3] & termios.ECHO)
