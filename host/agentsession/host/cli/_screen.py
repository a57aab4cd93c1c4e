"""What a conversation needs of a terminal, and where the prints of the agent's own code go.

Not for: a terminal itself (``_terminal.py``, ``_plain_terminal.py``). May import: the modules beside it that it names.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import threading
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._lines import Line, View, line
from agentsession.host.cli._text import escape

if TYPE_CHECKING:
    from agentsession.host.cli._interactive import Conversation

__all__ = ["Screen", "printed_above"]


class Screen(Protocol):
    """What a conversation needs of a terminal."""

    @property
    def view(self) -> View:
        """How to draw, with the width of now."""
        ...

    @property
    def live(self) -> bool:
        """Whether it has a live area, in which what runs is drawn anew."""
        ...

    def show(self, lines: Sequence[Line]) -> None:
        """Print finished lines, in order, soon."""
        ...

    @property
    def echoes(self) -> bool:
        """Whether what was typed stays on the screen by itself."""
        ...

    def forget_typed(self) -> None:
        """A question comes: where nobody can know when a line was begun, what was typed and not read yet is dropped."""
        ...

    async def drawn(self) -> None:
        """Return once everything that was shown is on the screen."""
        ...

    def prompt(self, label: str, *, secret: bool = False) -> None:
        """What stands before the input from now on."""
        ...

    def fill(self, text: str) -> bool:
        """Put text into the box; whether there was room, that is, nothing typed in it."""
        ...

    async def page(self, text: str) -> None:
        """Show a long text whole."""
        ...

    def leave(self, code: Exit) -> None:
        """End :meth:`run` with this code."""
        ...

    async def run(self, conversation: Conversation) -> Exit:
        """Read keys and draw until :meth:`leave`."""
        ...


@contextlib.contextmanager
def printed_above(screen: Screen) -> Generator[None]:
    """What the agent's code and its libraries print becomes finished lines, instead of a torn live area."""
    with contextlib.redirect_stdout(_Printed(screen)), contextlib.redirect_stderr(_Printed(screen)):
        yield


class _Printed(io.TextIOBase):
    """A text stream that shows each whole line at a screen; may be written to from any thread."""

    def __init__(self, screen: Screen) -> None:
        self._show = screen.show
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._rest = ""

    def write(self, text: str, /) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            shown = [line((escape(one), "dim")) for one in lines]
            if threading.get_ident() == self._thread:  # now, or it would stand below events that came after it
                self._show(shown)
            else:
                with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is there to see it
                    self._loop.call_soon_threadsafe(self._show, shown)
        return len(text)
