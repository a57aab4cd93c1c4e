"""The page about records shows what runs, and what it prints."""

from __future__ import annotations

from pathlib import Path

from tests.doc_pages import read_page


def test_what_the_page_shows_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    (shown, *_) = read_page("docs/how-to/keep-records.md")
    shown.save(tmp_path)
    assert shown.prints is not None
    assert shown.run(tmp_path) == shown.prints
