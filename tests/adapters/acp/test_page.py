"""The page on driving an ACP agent: what it shows is run."""

from __future__ import annotations

from pathlib import Path

from tests.doc_pages import read_page


def test_what_the_page_shows_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    shown = [item for item in read_page("docs/how-to/drive-an-acp-agent.md") if item.name]
    for item in shown:
        item.save(tmp_path)
    assert shown[-1].run(tmp_path) == shown[-1].prints
