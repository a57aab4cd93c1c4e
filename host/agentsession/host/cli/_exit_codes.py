"""The exit codes of the command, in one table; the reference page is made from it.

Not for: deciding how a turn ended (its ``stream_end`` says). May import: the standard library.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["EXIT_BY_REASON", "MEANINGS", "Exit", "exit_code", "exit_codes_table"]


class Exit(enum.IntEnum):
    """Why the command ended. 0 always means that the work was done."""

    COMPLETED = 0
    FAILED = 1
    USAGE = 2
    INPUT_REQUIRED = 3
    NO_CREDENTIALS = 4
    HARNESS = 6
    BUSY = 7
    REFUSAL = 10
    MAX_TOKENS = 11
    MAX_TURNS = 12
    MAX_LLM_CALLS = 13
    MAX_BUDGET = 14
    MAX_TIME = 15
    DEADLINE = 16
    ABORTED = 17
    UNKNOWN_REASON = 19
    INTERRUPTED = 130
    READER_GONE = 141
    TERMINATED = 143


EXIT_BY_REASON: Final[Mapping[str, Exit]] = MappingProxyType(
    {
        "completed": Exit.COMPLETED,
        "failed": Exit.FAILED,
        "input_required": Exit.INPUT_REQUIRED,
        "refusal": Exit.REFUSAL,
        "max_tokens": Exit.MAX_TOKENS,
        "max_turns": Exit.MAX_TURNS,
        "max_llm_calls": Exit.MAX_LLM_CALLS,
        "max_budget": Exit.MAX_BUDGET,
        "max_time": Exit.MAX_TIME,
        "deadline": Exit.DEADLINE,
        "aborted": Exit.ABORTED,
    }
)
"""The exit code for the reason of the last ``stream_end``."""

MEANINGS: Final[Mapping[Exit, str]] = MappingProxyType(
    {
        Exit.COMPLETED: "completed",
        Exit.FAILED: "failed: the turn, the demo or a check",
        Exit.USAGE: "the command line or the configuration is wrong",
        Exit.INPUT_REQUIRED: "something waits for an answer (`--on-ask pause`); the command that resumes is printed",
        Exit.NO_CREDENTIALS: "no credentials for the model",
        Exit.HARNESS: "the harness itself broke, or nothing ran",
        Exit.BUSY: "the session is open in another process",
        Exit.REFUSAL: "the model or its provider refused",
        Exit.MAX_TOKENS: "the model's output limit was reached",
        Exit.MAX_TURNS: "the limit of model steps was reached",
        Exit.MAX_LLM_CALLS: "the limit of model calls was reached",
        Exit.MAX_BUDGET: "the budget was spent",
        Exit.MAX_TIME: "the time limit was reached",
        Exit.DEADLINE: "the deadline passed",
        Exit.ABORTED: "aborted by a program",
        Exit.UNKNOWN_REASON: "the turn ended for a reason that this version does not know",
        Exit.INTERRUPTED: "Ctrl-C",
        Exit.READER_GONE: "the reader of the output went away",
        Exit.TERMINATED: "SIGTERM",
    }
)
"""One sentence for each code."""


def exit_code(reason: str, data: Mapping[str, object] | None = None) -> Exit:
    """The exit code for a ``stream_end``'s reason and data; a reason that is not known is 19, never 0.

    A turn that waited when its deadline came was settled: its reason is ``aborted``, its cause the deadline.
    """
    if reason == "aborted" and data is not None and data.get("cause") == "deadline":
        return Exit.DEADLINE
    return EXIT_BY_REASON.get(reason, Exit.UNKNOWN_REASON)


def exit_codes_table() -> str:
    """The table of the reference page, in Markdown."""
    rows = [f"| {int(code)} | {MEANINGS[code]} |" for code in Exit]
    return "\n".join(["| Code | Meaning |", "|---|---|", *rows])
