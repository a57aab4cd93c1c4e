"""The page on tools runs as it stands."""

from __future__ import annotations

from pathlib import Path

from tests.doc_pages import read_page


def test_the_page_on_tools_runs_as_it_stands(tmp_path: Path) -> None:
    ran = 0
    for shown in read_page("docs/how-to/give-an-agent-tools.md"):
        shown.save(tmp_path)
        if shown.prints is not None:
            assert shown.run(tmp_path) == shown.prints
            ran += 1
    assert ran == 1
