"""The page for authors of hosts: its harness is saved, its command run, and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.test_authors_page import follow, run

PAGE = "docs/how-to/test-your-host.md"


def test_the_page_leads_from_a_harness_to_a_host_that_is_proven(tmp_path: Path) -> None:
    assert follow(PAGE, tmp_path) == 1
    collected = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"], tmp_path)
    assert re.search(r"32 passed, 2 skipped", collected), collected
