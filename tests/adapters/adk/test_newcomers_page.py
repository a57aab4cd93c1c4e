"""Pages for newcomers to the adapter: each file that they show runs, each command too, and prints what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.doc_pages import Shown, read_page

PAGE = list(read_page("docs/tutorial/put-your-adk-agent-under-host-control.md"))
RUN = [shown for shown in PAGE if shown.prints is not None or not shown.name]


def test_the_page_shows_files_and_commands() -> None:
    assert len([shown for shown in PAGE if shown.prints is not None]) >= 8
    assert all(shown.name or shown.prints is None or "run" in shown.text or "restart" in shown.text for shown in PAGE)


@pytest.mark.parametrize("shown", RUN, ids=lambda shown: shown.name or shown.text.split("\n")[0])
def test_what_the_page_shows_runs_and_prints_what_it_says(shown: Shown, tmp_path: Path) -> None:
    for other in PAGE:
        if other.name:
            other.save(tmp_path)
    printed = shown.run(tmp_path)
    if shown.prints is not None:
        assert printed == shown.prints


def test_each_kind_of_question_is_answered_as_the_page_says(tmp_path: Path) -> None:
    (shown,) = read_page("docs/how-to/answer-questions.md")
    shown.save(tmp_path)
    assert shown.run(tmp_path) == shown.prints
