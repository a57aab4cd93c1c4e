"""docs/how-to/simulate-record-replay-the-model.md: what it shows runs from top to bottom, and prints what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "simulate-record-replay-the-model.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_runs_from_top_to_bottom_and_prints_what_it_says(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )

    assert done.returncode == 0, done.stderr
    there_are = ["There are 3.", "completed"]
    assert done.stdout.splitlines() == [
        *there_are,  # played
        *there_are,  # recorded
        *there_are,  # replayed
        "/systemInstruction/parts/0/text",
        *there_are,  # answered by the host from the recording
        "There are none.",
        "completed",
        *there_are,  # over HTTP
        "failed",
        "failed",
    ]
    assert len((tmp_path / "stock.ndjson").read_text(encoding="utf-8").splitlines()) == 2
