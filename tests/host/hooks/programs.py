"""Programs that tests use as hooks: each a line of shell, run for real."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agentsession.host.hooks import CommandHook

__all__ = ["is_alive", "sh"]


def sh(script: str, point: str = "before_tool", **options: Any) -> CommandHook:
    """A hook that runs a line of shell."""
    return CommandHook(options.pop("id", "h"), point, ["/bin/sh", "-c", script], **options)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] != "Z"
