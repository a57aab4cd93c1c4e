"""What the command tries beside the scenarios: sequences of steps at random, and kills of a process.

Not for: what these do (``machine.py``, ``kills.py``). Rules carried: none.
May import: ``agentsession.protocol``, anyio, and when they are wanted the modules beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from typing import Final

import anyio

from agentsession.conformance.harness import Harness
from agentsession.conformance.results import Extra
from agentsession.conformance.runner import judged
from agentsession.conformance.scene import HarnessBroke
from agentsession.protocol import ConfigurationError

__all__ = ["try_extras"]

_ANY: Final = ("LIFE-12",)
"""The rule of what could not be tried at all."""


def try_extras(
    harness: Harness, *, sequences: int, kills: int, seed: int, rules: Collection[str] | None = None
) -> list[Extra]:
    """Drive so many sequences at random, and kill so many processes; neither where the number is 0.

    Where the harness makes no executor nothing more is tried, and that is what came of it.

    Args:
        harness: Makes the executors.
        sequences: How many sequences of steps are tried, until a rule breaks.
        kills: How many processes are killed.
        seed: Of all that is left to chance.
        rules: Ids of the rules that count in sequences; ``None``: all.

    Raises:
        ConfigurationError: hypothesis is missing, or there is no process to be killed.
    """
    wanted: list[tuple[str, Callable[[], Extra]]] = []
    if kills:  # first: where there is no process, that is said before sequences were tried for minutes
        wanted.append(("kills", lambda: _kills(harness, kills, seed)))
    if sequences:
        wanted.append(("random", lambda: _random(harness, sequences, seed, rules)))
    made: list[Extra] = []
    for name, tried in wanted:
        try:
            made.append(tried())
        except HarnessBroke as error:
            broke = judged(_ANY, error)
            return [*made, Extra(name, broke[0].message, tuple(broke))]
    return made


def _random(harness: Harness, sequences: int, seed: int, rules: Collection[str] | None) -> Extra:
    try:
        from hypothesis.configuration import set_hypothesis_home_dir

        from agentsession.conformance.machine import drive_at_random
    except ImportError as error:
        raise ConfigurationError(
            "sequences at random need hypothesis",
            got=str(error),
            fix='pip install "agent-session-protocol[conformance]"',
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)  # else it leaves a folder of its own where the command was typed
        try:
            return drive_at_random(harness, sequences=sequences, seed=seed, rules=rules).extra
        finally:
            set_hypothesis_home_dir(None)


def _kills(harness: Harness, kills: int, seed: int) -> Extra:
    from agentsession.conformance.kills import run_kills
    from agentsession.conformance.stdio.harness import StdioHarness

    if not isinstance(harness, StdioHarness):
        raise ConfigurationError(
            "there is no process to be killed",
            got="an executor in this process",
            expected="--kills with --stdio COMMAND",
            fix="the scenarios play the death of an executor in this process",
            id="usage",
        )
    return anyio.run(lambda: run_kills(harness, kills=kills, seed=seed)).extra
