"""From arguments to an exit code: the one place where an error becomes text and a number.

Not for: what the commands do (``_app.py`` and the modules it names). May import: ``_app`` inside :func:`main`, because
it needs typer; ``_error_table``, ``_exit_codes``, ``_out``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from agentsession.host._toolcontext import tool_threads
from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._out import CommandError, Out, ReaderGone, error_object, error_text, exit_of
from agentsession.host.cli._text import escape

__all__ = ["main"]

_EXTRA = 'pip install "agent-session-protocol[cli]"'


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Never raises: an error is one text on stderr, or JSON on stdout."""
    _open_missing_streams()
    code = _main(list(sys.argv[1:] if argv is None else argv))
    if argv is None:
        _leave_threads_behind(code)
    return code


def _main(args: list[str]) -> int:
    debug = "--debug" in args
    try:
        return int(_run(args))
    except ReaderGone:
        _quiet_stdout()
        return Exit.READER_GONE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except SystemExit as error:  # a command of another package ends as it likes
        return error.code if isinstance(error.code, int) else Exit.FAILED if error.code else Exit.COMPLETED
    except BaseException as error:  # noqa: BLE001 - the last frame: told with its id, with --debug traced
        try:
            _report(error, as_json="--json" in args, debug=debug)
        except ReaderGone:
            _quiet_stdout()
            return Exit.READER_GONE
        except CommandError:  # stdout cannot be written: it is told on stderr, if there is one
            _quiet_stdout()
            with contextlib.suppress(ReaderGone, CommandError):
                _report(error, as_json=False, debug=debug)
        if getattr(error, "id", None) == "output-failed":
            _quiet_stdout()
        return exit_of(error)


def _open_missing_streams() -> None:
    """A stream that was closed before the process began is ``None``: let it read as empty and swallow what it gets."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the life of the process


def _run(args: list[str]) -> int:
    try:
        from agentsession.host.cli._app import make_command
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("typer", "click", "rich", "shellingham"):
            raise CommandError(
                f"{error.name} is not installed", id="extra-missing", where="the command agentsession", fix=_EXTRA
            ) from error
        raise
    try:
        code = make_command(args).main(args=args, prog_name="agentsession", standalone_mode=False)
    except Exception as error:
        known = _usage_error(error)
        if known is None:
            raise
        raise known from error
    return code if isinstance(code, int) else Exit.COMPLETED


def _leave_threads_behind(code: int) -> None:
    """End the process if a tool that was given up still runs: the interpreter would wait for its thread for ever."""
    left = tool_threads()
    if not left:
        return
    names = ", ".join(sorted({name or "a tool" for name in left.values()}))
    with contextlib.suppress(ReaderGone, OSError, ValueError):
        Out(sys.stderr).text(escape(f"left behind, still running: {names}").replace("\n", " ") + "\n")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _usage_error(error: Any) -> BaseException | None:
    """What typer (or click, which older releases of it use) raises, in our form. Told by shape: both have both."""
    if type(error).__name__ == "Abort":
        return KeyboardInterrupt()
    if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "agentsession"
    known = getattr(context.command, "commands", None) if context is not None else None
    if known and (type(error).__name__ == "NoArgsIsHelpError" or error.format_message().startswith("Missing command")):
        return CommandError(
            f"{command} needs a command", where=command, expected=", ".join(known), fix=f"{command} --help"
        )
    # "Value error, " is pydantic's, which newer releases of typer use.
    message = str(error.format_message()).rstrip(".").replace(": Value error, ", ": ")
    return CommandError(message, where=command, fix=f"{command} --help")


def _report(error: BaseException, *, as_json: bool, debug: bool) -> None:
    if as_json:
        Out(sys.stdout).json_line(error_object(error))
    if debug or not as_json:
        Out(sys.stderr).text(error_text(error, debug=debug))


def _quiet_stdout() -> None:
    """Point stdout at nothing: the interpreter flushes it once more at exit, and its reader is gone."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return
