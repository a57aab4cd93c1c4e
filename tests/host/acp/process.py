"""``agentsession acp`` as an editor starts it: a process, and the protocol on its stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from acp.client import ClientSideConnection
from acp.schema import ClientCapabilities
from tests.host.acp.editor import Lines

__all__ = ["command", "editing_process"]

_LIMIT = 64 * 1024 * 1024


@contextlib.asynccontextmanager
async def command(folder: Path, module: str, *words: str) -> AsyncGenerator[tuple[Lines, asyncio.subprocess.Process]]:
    """The command in ``folder``, where ``my_module`` holds ``module``; there is kept what a person agreed to."""
    (folder / "my_module.py").write_text(module)
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentsession.host.cli", "acp", *words),
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LIMIT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield Lines(process.stdout, process.stdin), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def editing_process(
    folder: Path, module: str, *words: str, editor: Any, capabilities: ClientCapabilities | None = None
) -> AsyncGenerator[tuple[ClientSideConnection, asyncio.subprocess.Process]]:
    """The SDK's own client on the pipes of the command, after its ``initialize``."""
    async with command(folder, module, *words) as (lines, process):
        connection = ClientSideConnection(editor, lines.writer, lines.reader, use_unstable_protocol=True)
        await connection.initialize(1, capabilities or ClientCapabilities())
        try:
            yield connection, process
        finally:
            await connection.close()
