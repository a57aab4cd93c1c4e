"""The harness of an executor in any language: a command, run once for each stage, spoken to over stdin and stdout.

Not for: the command line (``agentsession conform --stdio CMD``). Rules carried: none.
May import: ``agentsession.protocol``, ``harness``, ``client``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from agentsession.conformance.harness import Harness, Play
from agentsession.conformance.stdio.client import StdioExecutor
from agentsession.protocol import AgentExecutor, InvalidInput

__all__ = ["StdioHarness"]


class StdioHarness(Harness):
    """Starts ``command`` for each stage. Its death is a real one: SIGKILL.

    Which steps it can play the process says when it gets a script.
    """

    def __init__(self, command: Sequence[str], *, start_s: float = 30.0, answer_s: float = 10.0) -> None:
        """``start_s`` and ``answer_s``: see ``StdioExecutor``."""
        if isinstance(command, str) or not command:
            raise InvalidInput("a command is a list of words", got=repr(command), fix='such as ["node", "mine.mjs"]')
        self.command = tuple(command)
        self.name = shlex.join(self.command)
        self._start_s = start_s
        self._answer_s = answer_s

    def executor(self, play: Play, *, kill_at: int | None = None) -> StdioExecutor:
        """An executor that is not started yet. ``kill_at``: it is killed once it has printed so many lines."""
        return StdioExecutor(self.command, play, start_s=self._start_s, answer_s=self._answer_s, kill_at=kill_at)

    def log(self, executor: AgentExecutor) -> Sequence[str]:
        """What its process has written to stderr."""
        assert isinstance(executor, StdioExecutor)
        return executor.log()

    async def kill(self, executor: AgentExecutor, play: Play) -> None:
        """End its process by SIGKILL."""
        assert isinstance(executor, StdioExecutor)
        await executor.kill()
