"""``run``: which of its three ways is meant, and the warnings and logs of the agent's own libraries.

Not for: the ways themselves (``_once.py``, ``_program.py``, ``_interactive.py``). May import: the modules beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import sys
import warnings

from agentsession.host.cli._exit_codes import Exit
from agentsession.host.cli._out import CommandError, Out
from agentsession.host.cli._setup import RunOptions, prepare

__all__ = ["quiet_libraries", "run"]


def run(options: RunOptions) -> Exit:
    """Run the agent at the terminal, once with a prompt, or for the program on stdin."""
    quiet_libraries(debug=options.debug)
    if options.prompt == "-":
        options = dataclasses.replace(options, prompt=sys.stdin.read().strip())
    if options.prompt is not None:
        if not options.prompt.strip():
            raise CommandError("the prompt is empty", where="run --prompt", fix='-p "Fix the failing test"')
        return _once(options)
    if options.as_json:
        from agentsession.host.cli._program import refuse_tools, run_program

        refuse_tools(options)
        out = Out(sys.stdout, color="never")
        with contextlib.redirect_stdout(sys.stderr):
            loaded = prepare(options)
            return asyncio.run(run_program(options, loaded, out))
    if sys.stdin.isatty() and sys.stdout.isatty():
        from agentsession.host.cli._interactive import run_interactive

        loaded = prepare(options)
        return asyncio.run(run_interactive(options, loaded))
    if options.session is not None and options.store is not None:
        return _once(options)
    raise CommandError(
        "nothing to run: no terminal to type in, and no prompt",
        id="no-prompt",
        where=f"run {options.target}",
        fix=f'agentsession run {options.target} -p "..."',
    )


def _once(options: RunOptions) -> Exit:
    """stdout is for the answer or the record alone: what the agent's code prints goes to stderr."""
    from agentsession.host.cli._once import run_once

    out = Out(sys.stdout, color=options.color)
    with contextlib.redirect_stdout(sys.stderr):
        loaded = prepare(options)
        return asyncio.run(run_once(options, loaded, out))


def quiet_libraries(*, debug: bool) -> None:
    """Keep warnings and logs of the agent's libraries out of the conversation; ``--debug`` lets them through."""
    if debug or os.environ.get("PYTHONWARNINGS"):
        return
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())  # with no handler at all, logging says so on stderr
