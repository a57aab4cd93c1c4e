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


def follow(page: str, place: Path) -> int:
    """Save each file of a page, run each command that the page shows the output of, and compare; returns how many."""
    commands = 0
    for shown in read_page(page):
        if shown.name:
            shown.save(place)
        elif shown.prints is not None:
            commands += 1
            assert run(shlex.split(shown.text), place) == timeless(shown.prints)
    return commands


def timeless(text: str) -> str:
    """How long it took, and how many steps a version of hypothesis draws, are not compared."""
    return re.sub(r"\d+ steps", "0 steps", re.sub(r"\d+\.\d+s", "0s", text))


def test_the_page_leads_from_an_executor_to_one_that_is_proven(tmp_path: Path) -> None:
    assert follow(PAGE, tmp_path) == 3
    collected = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_tiny.py"], tmp_path)
    assert re.search(r"60 passed, 13 skipped", collected), collected


ABORTS = """
import anyio
from concurrent.futures import ThreadPoolExecutor
from blocking import Blocking

async def main():
    threads = ThreadPoolExecutor(max_workers=1)
    for turn in range(3):
        blocking, begun = Blocking(threads), anyio.Event()

        async def model():
            begun.set()
            await anyio.sleep_forever()

        async def run():
            await blocking.run(lambda: blocking.on_loop(model()), lambda: print("cancelled", turn))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await begun.wait()
            group.cancel_scope.cancel()

anyio.run(main)
"""


def test_what_the_page_runs_in_a_thread_gives_the_thread_back_after_an_abort(tmp_path: Path) -> None:
    for shown in read_page(PAGE):
        if shown.name == "blocking.py":
            shown.save(tmp_path)
    (tmp_path / "aborts.py").write_text(ABORTS, encoding="utf-8")
    assert run(["aborts.py"], tmp_path) == "cancelled 0\ncancelled 1\ncancelled 2\n"
