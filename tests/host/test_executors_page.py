"""The page on names of executors: what it shows is run, and what it announces is what a factory asks for."""

from __future__ import annotations

from pathlib import Path

from tests.doc_pages import read_page

from agentsession.host._registry import ENTRY_POINT_GROUP

PAGE = "docs/how-to/name-executors.md"


def test_what_the_page_shows_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    (shown,) = [item for item in read_page(PAGE) if item.name]
    shown.save(tmp_path)
    assert shown.run(tmp_path) == shown.prints


def test_what_the_page_announces_is_a_function_of_its_file() -> None:
    (shown,) = [item for item in read_page(PAGE) if item.name]
    assert f'[project.entry-points."{ENTRY_POINT_GROUP}"]\ndesk = "desk:entry_point"' in Path(PAGE).read_text("utf-8")
    assert (shown.name, "def entry_point():" in shown.text) == ("desk.py", True)
