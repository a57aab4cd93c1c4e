"""Runs the command: as a process of its own, the way a shell does, or (much faster) in this one."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentsession.host.cli import main

__all__ = ["PROJECT", "Command", "read_until", "run_command", "started_command"]

PROJECT = Path(__file__).parent / "project"

LIMIT_S = 60
"""Bounds a hang; no test waits for it."""


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
        timeout=LIMIT_S,
        check=False,
    )


@contextmanager
def started_command(
    *args: str, env: Mapping[str, str] | None = None, cwd: Path = PROJECT
) -> Iterator[subprocess.Popen[str]]:
    """The process while it runs, both its outputs as pipes; it ends with this, or when it takes too long."""
    with _hears_ctrl_c():
        process = subprocess.Popen(
            [sys.executable, "-m", "agentsession.host.cli", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            cwd=cwd,
            env={**os.environ, "PYTHONIOENCODING": "utf-8", **(env or {})},
        )
    guard = threading.Timer(LIMIT_S, process.kill)
    guard.start()
    try:
        with process:  # closes the pipes, and waits
            try:
                yield process
            finally:
                process.kill()
    finally:
        guard.cancel()


@contextmanager
def _hears_ctrl_c() -> Iterator[None]:
    """Processes that are started in here hear SIGINT, also where it is ignored: a job that a shell runs in the
    background ignores it, and so does what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def read_until(wanted: str, process: subprocess.Popen[str]) -> None:
    """Read the error output to the end of the line that holds what is wanted."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if wanted in line:
            return
    raise AssertionError(f"{wanted!r} was not told: {seen}")


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
