"""A terminal without a live area: for screen readers, dumb terminals and those who ask for ``--plain``.

Not for: what is said there (``_interactive.py``). Lines are printed, lines are read, nothing is ever drawn twice.

In this mode the terminal itself edits the line, so nobody can know when it was begun. What was typed before a question
is therefore thrown away by the terminal just before the question is printed: no old ``y`` can answer it, and of what is
typed once it can be seen nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._lines import ASCII, Line, View, line
from agentsession.host.cli._out import Out
from agentsession.host.cli._setup import RunOptions
from agentsession.host.cli._stdin import read_stdin
from agentsession.host.cli._text import escape

if TYPE_CHECKING:
    from agentsession.host.cli._interactive import Conversation

__all__ = ["PlainTerminal"]


class PlainTerminal:
    """A :class:`agentsession.host.cli._screen.Screen` of printed and read lines."""

    echoes = True
    live = False

    def __init__(self, options: RunOptions) -> None:
        self._out = Out(sys.stdout, color=options.color)
        self._view = View(width=self._out.width, glyphs=ASCII, interactive=True)
        self._encoding = sys.stdin.encoding or "utf-8"
        self._label = ""
        self._secret = False
        self._talk: Conversation
        self._ended: asyncio.Future[Exit]

    @property
    def view(self) -> View:
        """How to draw, with the width of now."""
        self._view.width = self._out.width
        return self._view

    def show(self, lines: Sequence[Line]) -> None:
        """Print the lines."""
        self._out.lines(lines)

    def forget_typed(self) -> None:
        """Let the terminal drop it, see the module's docstring."""
        with contextlib.suppress(ImportError, OSError, ValueError):
            import termios

            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    async def drawn(self) -> None:
        """All is printed."""

    def prompt(self, label: str, *, secret: bool = False) -> None:
        """Print what is asked for now, when it is something else than before."""
        if label != self._label and label.strip() not in ("", ">"):
            self.show([line((label.strip(), "strong"))])
        self._label = label
        if secret != self._secret:
            self._echo(not secret)
        self._secret = secret

    def fill(self, text: str) -> bool:
        """There is no box: the text is printed, to be copied."""
        self.show([line(("  copy from: ", "dim"), escape(text).replace("\n", " "))])
        return True

    async def page(self, text: str) -> None:
        """Print the text."""
        self.show([line(row) for row in escape(text).split("\n")])

    def leave(self, code: Exit) -> None:
        """End :meth:`run`."""
        if not self._ended.done():
            self._ended.set_result(code)

    async def run(self, conversation: Conversation) -> Exit:
        """Read lines until :meth:`leave`."""
        self._talk = conversation
        self._ended = asyncio.get_running_loop().create_future()
        read_stdin(self._entered)
        try:
            await conversation.start()
            return await self._ended
        finally:
            if self._secret:
                self._echo(True)

    def _entered(self, text: bytes | None) -> None:
        if text is None:
            self._talk.end_of_input()
        else:
            self._talk.line(text.decode(self._encoding, "replace").rstrip("\r"), self._talk.clock())

    def _echo(self, on: bool) -> None:
        with contextlib.suppress(ImportError, OSError, ValueError):
            import termios

            number = sys.stdin.fileno()
            modes = termios.tcgetattr(number)
            modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
            termios.tcsetattr(number, termios.TCSADRAIN, modes)
