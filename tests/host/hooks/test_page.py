"""The page about hooks: what it shows is run as its reader would."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.doc_pages import ROOT, read_page


@pytest.mark.skipif(sys.platform == "win32", reason="the page calls python3")
def test_what_the_page_shows_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    page = "docs/how-to/use-hooks.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    toml = text.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "hooks.toml").write_text(toml, encoding="utf-8")
    shown = list(read_page(page))
    for one in shown:
        if one.name:
            one.save(tmp_path)
    printed = [(one.run(tmp_path), one.prints) for one in shown if one.prints is not None]
    assert [told for told, _ in printed] == [said for _, said in printed]
    assert len(printed) == 2
