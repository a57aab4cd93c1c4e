"""One row of the table of errors.

Not for: the rows (``_error_table.py``, ``_error_table_http.py``). May import: ``_exit_codes``.
"""

from __future__ import annotations

import dataclasses

from agentsession.host.cli._exit_codes import Exit

__all__ = ["ErrorEntry"]


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorEntry:
    """What an error id means, why it comes up, and what to do."""

    id: str
    sentence: str
    why: str
    fix: str
    exit: Exit | None = Exit.FAILED
    """``None``: it ends nothing. A denial or the error of one call is told to the model, and the turn goes on."""
