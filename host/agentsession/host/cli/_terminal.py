"""The terminal: an input box and a live area below finished lines that are printed once.

Not for: what is said there (``_interactive.py``). The only module that imports prompt_toolkit.

One inline application, never a screen of its own. Finished blocks go above it in commits, at most thirty a second, each
one write: output is held back while the live area is erased, the block printed and the area drawn again, and the whole
is wrapped in the terminal's synchronized-update mode, so that nothing flickers. Tried and dropped: asking the terminal
for the cursor's position (a query a commit), un-awaited printing (the last lines were lost).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input.defaults import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.processors import BeforeInput, ConditionalProcessor, PasswordProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.defaults import create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._lines import Line, View
from agentsession.host.cli._out import Out
from agentsession.host.cli._paint import ansi, plain
from agentsession.host.cli._setup import RunOptions
from agentsession.host.cli._text import clamp_width, escape

if TYPE_CHECKING:
    from agentsession.host.cli._interactive import Conversation

__all__ = ["Terminal"]

_FRAME_S = 1 / 30
_LIVE_ROWS = 7
_SYNC_ON, _SYNC_OFF = "\x1b[?2026h", "\x1b[?2026l"
_STYLE = Style.from_dict({"dim": "ansibrightblack", "prompt": "bold"})


class _HeldOutput(Vt100_Output):
    """Keeps what is written until it is released, so that a commit reaches the terminal in one piece."""

    held = False

    def flush(self) -> None:
        """Write, unless held."""
        if not self.held:
            super().flush()


class Terminal:
    """A :class:`agentsession.host.cli._screen.Screen` on prompt_toolkit."""

    echoes = False
    live = True

    def __init__(self, options: RunOptions) -> None:
        self._out = Out(sys.stdout, color=options.color)
        self._view = View(width=self._out.width, glyphs=self._out.glyphs, interactive=True)
        self._waiting: list[Line] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._label = ""
        self._secret = False
        self._begun: float | None = None
        self._talk: Conversation
        self._output = self._make_output()
        self._box = Buffer(multiline=True, on_text_changed=self._changed)
        self._app: Application[Exit] = self._make_app()

    # -- what the conversation uses --------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """How to draw, with the width of now."""
        self._view.width = clamp_width(shutil.get_terminal_size((80, 24)).columns)
        return self._view

    def show(self, lines: Sequence[Line]) -> None:
        """Print finished lines with the next commit."""
        if lines:
            self._waiting.extend(lines)
            self._idle.clear()
            self._wake.set()
        self._app.invalidate()

    def forget_typed(self) -> None:
        """Nothing to do: the box knows when its text was begun."""

    async def drawn(self) -> None:
        """Return once everything that was shown is on the screen."""
        await self._idle.wait()

    def prompt(self, label: str, *, secret: bool = False) -> None:
        """What stands before the input."""
        self._label, self._secret = label, secret
        self._app.invalidate()

    def fill(self, text: str) -> bool:
        """Put text into the empty box."""
        if self._box.text:
            return False
        self._box.text = text
        self._box.cursor_position = len(text)
        return True

    async def page(self, text: str) -> None:
        """Show a long text in $PAGER, or print it."""
        command = shlex.split(os.environ.get("PAGER") or "less")
        if command and shutil.which(command[0]):
            await self.drawn()
            # Without the line feed, what is drawn next would stand on its last line.
            shown = (escape(text).rstrip("\n") + "\n").encode("utf-8", "replace")
            await run_in_terminal(lambda: subprocess.run(command, input=shown, check=False), in_executor=True)
        else:
            from agentsession.host.cli._lines import line

            self.show([line(row) for row in escape(text).split("\n")])

    def leave(self, code: Exit) -> None:
        """End :meth:`run`."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit(result=code)

    async def run(self, conversation: Conversation) -> Exit:
        """Read keys and draw until :meth:`leave`."""
        self._talk = conversation
        committing = asyncio.create_task(self._commit_forever())
        try:
            return await self._app.run_async(pre_run=self._started, handle_sigint=False, set_exception_handler=False)
        finally:
            committing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await committing
            self._output.held = False
            self._output.write_raw(self._painted(self._waiting).replace("\n", "\r\n"))
            self._waiting.clear()
            self._output.flush()
            self._idle.set()

    # -- commits -----------------------------------------------------------------------------------------------------

    def _started(self) -> None:
        self._starting = asyncio.ensure_future(self._talk.start())

    async def _commit_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            lines, self._waiting = self._waiting, []
            if lines:
                await self._commit(self._painted(lines).replace("\n", "\r\n"))
            if not self._waiting:
                self._idle.set()
            await asyncio.sleep(_FRAME_S)

    async def _commit(self, text: str) -> None:
        self._output.held = True
        self._output.write_raw(_SYNC_ON)
        try:
            await run_in_terminal(lambda: self._output.write_raw(text))
        finally:
            self._output.write_raw(_SYNC_OFF)
            self._output.held = False
            self._output.flush()

    def _painted(self, lines: Sequence[Line]) -> str:
        text = ansi(lines) if self._out.colored else plain(lines)
        encoding = self._out.stream.encoding or "ascii"
        return text.encode(encoding, "replace").decode(encoding)

    # -- the application ---------------------------------------------------------------------------------------------

    def _make_output(self) -> Any:  # Any: _HeldOutput, or on Windows whatever prompt_toolkit chooses there
        if sys.platform == "win32":
            return create_output()

        def size() -> Size:
            found = shutil.get_terminal_size((80, 24))
            return Size(rows=found.lines, columns=found.columns)

        return _HeldOutput(sys.stdout, size, term=os.environ.get("TERM"), enable_bell=False, enable_cpr=False)

    def _make_app(self) -> Application[Exit]:
        secret = Condition(lambda: self._secret)
        live = Window(
            FormattedTextControl(self._live_text),
            dont_extend_height=True,
            wrap_lines=False,
            height=lambda: min(_LIVE_ROWS, len(self._live())) or 0,
        )
        box = Window(
            BufferControl(
                self._box,
                input_processors=[
                    ConditionalProcessor(PasswordProcessor(), secret),
                    BeforeInput(lambda: [("class:prompt" if self._out.colored else "", self._label)]),
                ],
            ),
            dont_extend_height=True,
            wrap_lines=True,
        )
        return Application(
            layout=Layout(HSplit([live, box]), focused_element=box),
            key_bindings=self._keys(),
            style=_STYLE if self._out.colored else None,
            color_depth=ColorDepth.DEPTH_4_BIT if self._out.colored else ColorDepth.DEPTH_1_BIT,
            input=create_input(),
            output=self._output,
            full_screen=False,
            erase_when_done=True,
            min_redraw_interval=_FRAME_S,
            refresh_interval=1.0,
        )

    def _live(self) -> list[Line]:
        return self._talk.live() if hasattr(self, "_talk") else []

    def _live_text(self) -> StyleAndTextTuples:
        out: StyleAndTextTuples = []
        for one in self._live()[-_LIVE_ROWS:]:
            for span in one.spans:
                dim = "class:dim" if self._out.colored and span.style == "dim" else ""
                out.append((dim, span.text))
            out.append(("", "\n"))
        return out[:-1]

    def _changed(self, box: Buffer) -> None:
        if not box.text:
            self._begun = None
        elif self._begun is None:
            self._begun = self._talk.clock()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            text, begun = self._box.text, self._begun
            self._box.reset()
            self._begun = None
            self._talk.line(text, begun if begun is not None else self._talk.clock())

        @keys.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            self._box.insert_text("\n")

        @keys.add("c-c")
        def _interrupt(event: KeyPressEvent) -> None:
            if not self._talk.is_running and self._box.text:
                self._box.reset()
                self._begun = None
            else:
                self._talk.interrupt()

        @keys.add("c-d", filter=Condition(lambda: not self._box.text))
        def _end(event: KeyPressEvent) -> None:
            self._talk.end_of_input()

        return keys
