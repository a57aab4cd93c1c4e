"""Runs the command: as a process of its own, the way a shell does, or (much faster) in this one."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentsession.host.cli import main

__all__ = ["PROJECT", "Command", "run_command"]

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


class Command:
    """Calls the command in this process; each call loads the project's modules anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *args: str, stdin: str = "", cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
        with self._monkeypatch.context() as patch, warnings.catch_warnings():
            patch.chdir(cwd)
            patch.setattr(sys, "path", [str(cwd), *sys.path])
            patch.setattr(logging, "lastResort", logging.lastResort)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
            for file in PROJECT.glob("*.py"):
                patch.delitem(sys.modules, file.stem, raising=False)
            code = main(args)
            for file in PROJECT.glob("*.py"):
                sys.modules.pop(file.stem, None)
        out, err = self._capfd.readouterr()
        return subprocess.CompletedProcess(list(args), code, out, err)
