"""Where the command writes: two outputs, what each can show, and what happens when its reader is gone.

Not for: what is written. May import: ``agentsession.protocol`` and the modules beside it that it names.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import traceback
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TextIO

from agentsession.host._masking import masked
from agentsession.host.cli._error_table import exit_for
from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._lines import Glyphs, Line, View, glyphs_for
from agentsession.host.cli._paint import ColorChoice, ansi, color_wanted, plain
from agentsession.host.cli._text import clamp_width, escape
from agentsession.protocol import AgentSessionError, ProtocolViolation

__all__ = ["CommandError", "Out", "ReaderGone", "error_object", "error_text", "exit_of", "masked", "reader_gone"]


class CommandError(AgentSessionError):
    """Something the command itself refuses: its id is one of docs/reference/errors.md."""

    default_id = "usage"


class ReaderGone(Exception):
    """The process that read the output has closed it: end quietly, with 141."""


class Out:
    """One output: a stream, whether it is a terminal, whether it is coloured, which signs it can write."""

    def __init__(
        self, stream: TextIO, *, color: ColorChoice = "auto", environ: Mapping[str, str] | None = None
    ) -> None:
        environ = os.environ if environ is None else environ
        self.stream = stream
        self.is_tty = stream.isatty()
        self.colored = color_wanted(color, self.is_tty, environ)
        self.glyphs: Glyphs = glyphs_for(stream.encoding)
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[attr-defined]  # TextIOWrapper has it, TextIO does not

    @property
    def view(self) -> View:
        """A fresh view for this output."""
        return View(width=self.width, glyphs=self.glyphs)

    @property
    def width(self) -> int:
        """Columns to draw for, read now: 40 to 100."""
        return clamp_width(shutil.get_terminal_size((80, 24)).columns)

    def lines(self, lines: Sequence[Line]) -> None:
        """Write finished lines."""
        if lines:
            self.text(ansi(lines) if self.colored else plain(lines))

    def json_line(self, text: str) -> None:
        """Write one line of JSON, at once, as UTF-8 whatever the locale says."""
        self.raw_text(text + "\n")

    def raw_text(self, text: str) -> None:
        """Write a document, at once, as UTF-8 whatever the locale says."""
        with reader_gone():
            raw = getattr(self.stream, "buffer", None)
            if raw is None:
                self.stream.write(text)
            else:
                raw.write(text.encode("utf-8", "replace"))
            self.stream.flush()

    def text(self, text: str) -> None:
        """Write text as it is, at once."""
        with reader_gone():
            self.stream.write(text)
            self.stream.flush()


@contextlib.contextmanager
def reader_gone() -> Generator[None]:
    """Turn a broken pipe into :class:`ReaderGone`, and any other failure to write into ``output-failed``."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        if sys.platform == "win32" and error.errno == 22:  # a closed pipe on Windows
            raise ReaderGone from error
        raise CommandError(
            "the output cannot be written",
            id="output-failed",
            got=error.strerror or str(error),
            fix="make room, or write it elsewhere; what was stored with --store is complete",
        ) from error


def error_text(error: BaseException, *, debug: bool = False) -> str:
    """An error for a person: its id, what, where, got, expected, fix; the traceback only with ``debug``."""
    text = str(error) if isinstance(error, AgentSessionError) else str(_as_internal(error))
    if debug:
        text += "\n" + "".join(traceback.format_exception(error)).rstrip()
    return escape(masked(text)) + "\n"


def error_object(error: BaseException) -> str:
    """An error as one line of JSON: ``{"error": ID, "what": …}`` with the parts that are known."""
    known = error if isinstance(error, AgentSessionError) else _as_internal(error)
    parts: dict[str, Any] = {"error": known.id, "what": known.what, **known.parts()}
    if isinstance(known, ProtocolViolation):
        parts["blame"] = known.blame
    return masked(json.dumps(parts, ensure_ascii=False, separators=(",", ":")))


def _as_internal(error: BaseException) -> AgentSessionError:
    return AgentSessionError(
        f"{type(error).__name__}: {error}".rstrip(": "),
        id="internal",
        fix="run again with --debug and report the traceback",
    )


def exit_of(error: BaseException) -> Exit:
    """The exit code for an error that ended the command."""
    if isinstance(error, AgentSessionError):
        return exit_for(error.id)
    return Exit.HARNESS
