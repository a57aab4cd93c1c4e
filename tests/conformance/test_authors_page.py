"""The page for authors of executors: each file is saved, each command run, and prints what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.doc_pages import LIMIT_S, read_page

PAGE = "docs/tutorial/write-an-executor.md"


def run(words: list[str], place: Path) -> str:
    """What a command prints, with the seconds left out: the exit code may say that a rule fails."""
    if words[0] == "agentsession":
        words = ["-m", "agentsession.host.cli", *words[1:]]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=place,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode in (0, 1), done.stderr
    return timeless(done.stdout)


def timeless(text: str) -> str:
    """How long it took, and how many steps a version of hypothesis draws, are not compared."""
    return re.sub(r"\d+ steps", "0 steps", re.sub(r"\d+\.\d+s", "0s", text))


def test_the_page_leads_from_an_executor_to_one_that_is_proven(tmp_path: Path) -> None:
    commands = 0
    for shown in read_page(PAGE):
        if shown.name:
            shown.save(tmp_path)
        elif shown.prints is not None:
            commands += 1
            assert run(shlex.split(shown.text), tmp_path) == timeless(shown.prints)
    assert commands == 3
    collected = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_tiny.py"], tmp_path)
    assert re.search(r"59 passed, 13 skipped", collected), collected
