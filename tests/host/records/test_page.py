"""The page about records shows what runs, and what it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.doc_pages import read_page


def test_what_the_page_shows_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    shown = next(shown for shown in read_page("docs/how-to/keep-records.md") if shown.name == "records.py")
    shown.save(tmp_path)
    assert shown.prints is not None
    assert shown.run(tmp_path) == shown.prints


def test_the_forks_and_rewinds_that_the_page_shows_print_what_it_says(tmp_path: Path) -> None:
    shown = next(shown for shown in read_page("docs/how-to/keep-records.md") if shown.name == "branches.py")
    shown.save(tmp_path)
    assert shown.run(tmp_path) == shown.prints


def test_the_suite_that_the_page_shows_passes_under_pytest(tmp_path: Path) -> None:
    shown = next(shown for shown in read_page("docs/how-to/keep-records.md") if shown.name == "test_my_store.py")
    shown.save(tmp_path)
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", shown.name]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "25 passed" in done.stdout
