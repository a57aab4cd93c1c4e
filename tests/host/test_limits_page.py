"""The page on limits: what it shows is run, and prints what it says."""

from __future__ import annotations

from pathlib import Path

from tests.doc_pages import read_page


def test_what_the_page_shows_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    shown = [item for item in read_page("docs/how-to/set-limits.md") if item.name]
    assert [item.name for item in shown] == ["limits.py", "many.py", "batch.py"]
    for item in shown:
        item.save(tmp_path)
        assert item.run(tmp_path) == item.prints
