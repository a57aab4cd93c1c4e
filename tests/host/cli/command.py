"""Runs the command as a process of its own, the way a shell does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PROJECT", "run_command"]

PROJECT = Path(__file__).parent / "project"


def run_command(
    *args: str, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path = PROJECT
) -> subprocess.CompletedProcess[str]:
    """The finished process; its input is a pipe that ends."""
    return subprocess.run(
        [sys.executable, "-m", "agentsession.host.cli", *args],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **(env or {})},
        timeout=60,
        check=False,
    )
