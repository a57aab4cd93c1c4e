"""A real browser, where there is one: Debian's chromium, without a head and without a network.

A page is looked at from a frame of a given size, by a script that is run inside that frame's window; what the script
returns is what :meth:`Browser.look` gives back. Everything that the page wrote to the console is kept.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["Browser", "find_browser"]

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
LIMIT_S: Final = 90
"""Bounds a hang."""
_FLAGS: Final = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--allow-file-access-from-files",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
)
_FRAME: Final = """<!doctype html><meta charset="utf-8"><pre id="result"></pre>
<iframe id="frame" style="border:0;width:{width}px;height:{height}px"></iframe><script>
const frame = document.getElementById("frame"), result = document.getElementById("result");
frame.addEventListener("load", async () => {{
  try {{
    const look = async (window, document, tick) => {{ {script} }};
    const tick = () => new Promise((done) => setTimeout(done, 50));
    result.textContent = JSON.stringify({{ value: await look(frame.contentWindow, frame.contentDocument, tick) }});
  }} catch (error) {{ result.textContent = JSON.stringify({{ error: String(error) }}); }}
}});
frame.src = "page.html";
</script>"""


def find_browser() -> str:
    """The program. Skips the test, or with ``AGENTSESSION_BROWSER=required`` fails it, where there is none."""
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    told = "no chromium here: apt-get install chromium"
    if os.environ.get("AGENTSESSION_BROWSER") == "required":
        pytest.fail(told)
    pytest.skip(told)


class Browser:
    """Starts a new browser, with a profile of its own, for each look."""

    def __init__(self, program: str, place: Path) -> None:
        self._program = program
        self._place = place
        self.console: list[str] = []

    def look(self, page: str, script: str = "return null", *, width: int = 1280, height: int = 900) -> Any:
        """What ``script`` returns; it has the page's ``window`` and ``document``, and ``await tick()``."""
        (self._place / "page.html").write_text(page, encoding="utf-8")
        frame = self._place / "frame.html"
        frame.write_text(_FRAME.format(width=width, height=height, script=script), encoding="utf-8")
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
            flags = [*_FLAGS, *root, f"--user-data-dir={profile}", f"--window-size={max(width, 500)},{height}"]
            done = subprocess.run(
                [self._program, *flags, "--dump-dom", frame.as_uri()],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        self.console = re.findall(r":CONSOLE[:(]\d+\)?\] (.*)", done.stderr)
        found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
        assert found is not None, done.stderr[-2000:]
        assert found.group(1), f"the page did not load: {done.stderr[-2000:]}"
        told = json.loads(html.unescape(found.group(1)))
        assert "error" not in told, told["error"]
        return told["value"]
