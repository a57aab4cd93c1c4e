"""The page on sub-agents: what it shows runs, and prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.doc_pages import Shown, read_page

pytest.importorskip("google.adk")

PAGE = [shown for shown in read_page("docs/how-to/use-sub-agents.md") if shown.name]


@pytest.mark.parametrize("shown", PAGE, ids=lambda shown: shown.name)
def test_the_program_of_the_page_prints_what_the_page_says(shown: Shown, tmp_path: Path) -> None:
    shown.save(tmp_path)
    assert shown.run(tmp_path) == shown.prints
