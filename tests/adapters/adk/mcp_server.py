"""A small MCP server for the tests, run as a process: over stdio, or over HTTP on a free port that it prints.

``python mcp_server.py LOG [http]``. LOG gets its process id when it starts, and a line for each call that it receives.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    BlobResourceContents,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

__all__ = ["PIXEL", "server"]

PIXEL = base64.b64encode(b"not really a picture").decode()
"""The image that the tool ``picture`` returns."""

server = MCPServer("for_tests", log_level="CRITICAL")


def _log(line: str) -> None:
    with Path(sys.argv[1]).open("a") as file:
        file.write(line + "\n")


@server.tool(annotations=ToolAnnotations(destructive_hint=True, read_only_hint=False))
def write(path: str, times: int = 1) -> str:
    """Write a file."""
    _log(f"write {path} {times}")
    return f"wrote {path}"


@server.tool()
def refuse(path: str = "") -> str:
    """Refuse to do anything."""
    _log("refuse")
    raise ToolError("the disk is full")


@server.tool(structured_output=False)
def picture() -> list[Any]:
    """Make a picture."""
    _log("picture")
    return ["here it is", Image(data=base64.b64decode(PIXEL), format="png")]


@server.tool(structured_output=False)
def files() -> list[Any]:
    """Give files in each way that MCP has."""
    _log("files")
    note = TextResourceContents(uri="note:1", mime_type="text/plain", text="a note")
    blob = BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob=PIXEL)
    return [
        TextContent(type="text", text="three"),
        EmbeddedResource(type="resource", resource=note),
        EmbeddedResource(type="resource", resource=blob),
        ResourceLink(type="resource_link", name="page", uri="https://example.com/page", mime_type="text/html"),
    ]


@server.tool()
async def hang(ctx: Context) -> str:
    """Say that it has begun, and never end."""
    _log("hang")
    await ctx.report_progress(1)
    try:
        await anyio.sleep_forever()
    finally:
        _log("hang cancelled")
    return "never"


@server.tool()
async def die() -> str:
    """End the server in the middle of the call."""
    _log("die")
    os._exit(3)


async def _over_http() -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical", timeout_graceful_shutdown=1)
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    _log(f"pid {os.getpid()}")
    if sys.argv[2:] == ["http"]:
        anyio.run(_over_http)
    else:
        server.run("stdio")
