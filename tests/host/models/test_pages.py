"""What the two pages about models show runs as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.doc_pages import read_page


@pytest.mark.parametrize("page", ["fall-back-between-models", "keep-long-outputs-short"])
def test_each_program_of_the_page_prints_what_stands_below_it(page: str, tmp_path: Path) -> None:
    programs = [shown for shown in read_page(f"docs/how-to/{page}.md") if shown.name]
    assert programs
    for shown in programs:
        shown.save(tmp_path)
        assert shown.run(tmp_path) == shown.prints
