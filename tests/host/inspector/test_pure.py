"""The modules of the page that need no browser, by the tests beside this file, where there is node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["fold", "schema", "text", "sse"])
def test_the_pure_modules_do_what_their_tests_in_node_say(name: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here: apt-get install nodejs")
    told = subprocess.run(
        [node, "--no-warnings", "--test", str(HERE / "node" / f"{name}.test.mjs")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert told.returncode == 0, told.stdout[-4000:] + told.stderr[-2000:]
