"""``acp``: an agent for an editor, over stdio.

Not for: the protocol (``agentsession.host.acp``). May import: that, and the modules beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import logging
import os
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentsession.host._toolbox import connected
from agentsession.host.cli._command_policy import CommandPolicy, remembered_answers
from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._hooks import find_hooks
from agentsession.host.cli._out import CommandError, Out
from agentsession.host.cli._run import quiet_libraries
from agentsession.host.cli._setup import Loaded, RunOptions, open_store, prepare
from agentsession.host.cli._signals import signals
from agentsession.host.cli._text import escape
from agentsession.host.policy import RememberedAnswers
from agentsession.protocol import ConfigurationError

if TYPE_CHECKING:
    from agentsession.host.acp._sessions import HostOptions

__all__ = ["run_acp"]


def run_acp(options: RunOptions) -> Exit:
    """Serve until the editor closes its side or ends the process. stdout carries the protocol, and nothing else."""
    quiet_libraries(debug=options.debug)
    if options.debug:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    importlib.import_module("agentsession.host.acp")  # said before the agent is loaded, if it is not installed

    _check_stdio()
    with contextlib.redirect_stdout(sys.stderr):
        loaded = prepare(options, "acp", folder=None)
        CommandPolicy(options, folder=None)  # a file that cannot be used is said now, not to the editor
        remembered_answers()
    return asyncio.run(_serve(options, loaded))


def _check_stdio() -> None:
    """Say to whoever typed the command that an editor types it."""
    if os.isatty(0):
        Out(sys.stderr).text("acp waits for an editor's messages on stdin; it is not for typing. Ctrl-C ends it.\n")
    if os.name == "nt":  # there the protocol is read and written by threads, which files are good for
        return
    for name, number in (("stdin", 0), ("stdout", 1)):
        try:
            what = "a file" if stat.S_ISREG(os.fstat(number).st_mode) else None
        except OSError:
            what = "closed"
        if what is not None:
            raise CommandError(
                f"{name} is {what}",
                where="acp",
                expected="pipes: an editor starts the command and talks to it",
                fix="name the command in the editor's settings (docs/how-to/use-an-agent-in-your-editor.md)",
            )


async def _serve(options: RunOptions, loaded: Loaded) -> Exit:
    from agentsession.host.acp import serve_acp

    remembered = functools.lru_cache(maxsize=64)(lambda folder: remembered_answers(folder=folder))

    execution = options.limits.execution(options.model)
    if options.mode is not None:
        execution = execution.model_copy(update={"permission_mode": options.mode})
    async with open_store(options) as store, connected(loaded.tools):
        serving = asyncio.ensure_future(
            serve_acp(
                loaded.executor,
                tools=loaded.tools,
                store=store,
                execution=execution,
                in_folder=lambda folder: _in_folder(options, loaded, folder, remembered),
            )
        )
        stopped: list[Exit] = []

        def stop(code: Exit) -> None:
            stopped.append(code)
            serving.cancel()

        with signals(lambda: stop(Exit.INTERRUPTED), lambda: stop(Exit.TERMINATED)):
            try:
                await serving
            except asyncio.CancelledError:
                if not stopped:
                    raise
        return stopped[0] if stopped else Exit.COMPLETED


def _in_folder(
    options: RunOptions, loaded: Loaded, folder: str, remembered: Callable[[str], RememberedAnswers]
) -> HostOptions:
    """The rules and hooks that count in a folder of the editor's, as ``run`` has them in the current one.

    Raises :class:`ConfigurationError` for a file that cannot be used; the editor is not told what is in it.
    """
    try:
        return {
            "policy": CommandPolicy(options, folder),
            "hooks": [*find_hooks((), folder), *loaded.hooks],
            "remembered": remembered(folder),
        }
    except ConfigurationError as error:
        Out(sys.stderr).text(escape(f"acp: {error}").replace("\n", " ") + "\n")
        raise
