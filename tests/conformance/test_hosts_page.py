"""The page for authors of hosts: its harness is saved, its command run, and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.conformance.test_authors_page import run, timeless
from tests.doc_pages import read_page

PAGE = "docs/how-to/test-your-host.md"


def test_the_page_leads_from_a_harness_to_a_host_that_is_proven(tmp_path: Path) -> None:
    commands = 0
    for shown in read_page(PAGE):
        if shown.name:
            shown.save(tmp_path)
        elif shown.prints is not None:
            commands += 1
            assert run(shlex.split(shown.text), tmp_path) == timeless(shown.prints)
    assert commands == 1
    collected = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"], tmp_path)
    assert re.search(r"31 passed, 2 skipped", collected), collected
