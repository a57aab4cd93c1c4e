"""The real ``HttpAgent`` of ``@ag-ui/client``, installed from its lock file and driven by a script.

Installed once, in the user's cache: the packages are pinned by their digests, whatever registry npm is set to.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Npm", "installed"]

_HERE = Path(__file__).parent / "npm"
_FILES = ("package.json", "package-lock.json", ".npmrc", "driver.mjs")


class Npm:
    """The installed client."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def drive(
        self, url: str, steps: Sequence[Mapping[str, Any]], thread_id: str = "t1", **more: Any
    ) -> list[Any]:
        """Run the steps of ``driver.mjs``; what they say, in order."""
        script = {"url": url, "threadId": thread_id, "steps": steps, **more}
        process = await asyncio.create_subprocess_exec(
            "node",
            "driver.mjs",
            cwd=self._folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate(json.dumps(script).encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, err.decode(errors="replace")
        return [json.loads(line) for line in out.splitlines()]


def installed() -> Npm:
    """The client, installed if it was not; skips where that cannot be."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    digest = hashlib.sha256(b"".join((_HERE / name).read_bytes() for name in _FILES)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentsession-tests"
    folder = cache / f"ag-ui-client-{digest}"
    if not folder.exists():
        making = cache / f"making-{os.getpid()}-{digest}"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        for name in _FILES:
            shutil.copy(_HERE / name, making / name)
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            done = subprocess.run(command, cwd=making, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip("@ag-ui/client could not be installed in time")
        if done.returncode:
            pytest.skip(f"@ag-ui/client could not be installed: {done.stderr.strip()[-300:]}")
        with contextlib.suppress(OSError):  # another process was first
            making.rename(folder)
        shutil.rmtree(making, ignore_errors=True)
    return Npm(folder)
