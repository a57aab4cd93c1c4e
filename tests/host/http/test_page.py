"""The page about serving over HTTP: what it shows runs, and prints what it says."""

from __future__ import annotations

from pathlib import Path

from tests.doc_pages import read_page


def test_the_server_of_the_page_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    (shown,) = [one for one in read_page("docs/how-to/serve-sessions-over-http.md") if one.name]
    shown.save(tmp_path)
    assert shown.run(tmp_path) == shown.prints
