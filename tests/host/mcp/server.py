"""An MCP server for the tests, made with the SDK: over stdio as a process, over HTTP in a thread or as a process.

``python server.py LOG [http]``. LOG gets its process id when it starts, and a line for each call that it receives.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
    EmbeddedResource,
    InputRequiredResult,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

__all__ = ["PIXEL", "make_server"]

PIXEL = base64.b64encode(b"not really a picture").decode()
URL = "https://login.example/start"


class Name(BaseModel):
    name: str


class Weather(BaseModel):
    degrees: float
    sky: str | None = None


def ask_name() -> Elicit[Name]:
    return Elicit("What are you called?", Name)


def sample() -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Say something."))
    return Sample([message], max_tokens=10)


def make_server(log: Callable[[str], None]) -> MCPServer:
    """A server that tells ``log`` of every call."""
    server = MCPServer("for_tests", log_level="CRITICAL")
    opened: list[str] = []

    @server.tool(annotations=ToolAnnotations(destructive_hint=True, read_only_hint=False, title="Write a file"))
    def write(path: str, times: int = 1) -> str:
        """Write a file."""
        log(f"write {path} {times}")
        return f"wrote {path}"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def weather(city: str) -> Weather:
        """The weather."""
        log(f"weather {city}")
        return Weather(degrees=21.5)

    @server.tool(structured_output=False)
    def say(text: str) -> list[Any]:
        """Say it in two parts."""
        return [text, text.upper()]

    @server.tool()
    def refuse() -> str:
        """Refuse to do anything."""
        raise ToolError("the disk is full")

    @server.tool(structured_output=False)
    def files() -> list[Any]:
        """Give files in each way that MCP has."""
        note = TextResourceContents(uri="note:1", mime_type="text/plain", text="a note")
        blob = BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob=PIXEL)
        return [
            TextContent(type="text", text="five"),
            Image(data=base64.b64decode(PIXEL), format="png"),
            AudioContent(type="audio", data=PIXEL, mime_type="audio/wav"),
            EmbeddedResource(type="resource", resource=note),
            EmbeddedResource(type="resource", resource=blob),
            ResourceLink(type="resource_link", name="page", uri="https://example.com/page", mime_type="text/html"),
        ]

    @server.tool(structured_output=False)
    def photograph(size: int) -> list[Any]:
        """A large picture."""
        return [Image(data=b"x" * size, format="png")]

    @server.tool()
    async def count(ctx: Context) -> str:
        """Count to two, and say so on the way."""
        await ctx.report_progress(1, 2, "one")
        await ctx.report_progress(2, 2, "two")
        return "counted"

    @server.tool()
    async def hang(ctx: Context) -> str:
        """Say that it has begun, and never end."""
        log("hang")
        try:  # around the progress, too: whoever has seen the line may cancel meanwhile
            await ctx.report_progress(1)
            await anyio.sleep_forever()
        finally:
            log("hang cancelled")
        return "never"

    @server.tool()
    def greet(name: Annotated[Name, Resolve(ask_name)]) -> str:
        """Greet whoever is there."""
        log(f"greet {name.name}")
        return f"hello {name.name}"

    @server.tool(structured_output=False)
    async def log_in(ctx: Context) -> Any:
        """Ask to open a page."""
        answered = ctx.input_responses
        if answered is None:
            asked = ElicitRequest(params=ElicitRequestURLParams(message="Log in", url=URL, elicitation_id="e1"))
            return InputRequiredResult(input_requests={"page": asked}, request_state="s")
        answer = answered["page"]
        assert isinstance(answer, ElicitResult)
        return f"page: {answer.action}"

    @server.tool()
    async def log_in_before_2026(ctx: Context) -> str:
        """Ask to open a page, as servers did before 2026."""
        answer = await ctx.elicit_url("Log in", URL, "e1")
        return f"page: {answer.action}"

    @server.tool()
    def log_in_first() -> str:
        """Do nothing before a page was opened, once."""
        log("log_in_first")
        if not opened:
            opened.append(URL)
            asked = ElicitRequestURLParams(message="Log in", url=URL, elicitation_id="e1")
            raise UrlElicitationRequiredError([asked])
        return "in"

    @server.tool()
    def think(said: Annotated[CreateMessageResult, Resolve(sample)]) -> str:
        """Ask the client's model."""
        return "thought"

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Get another tool."""
        server.add_tool(lambda: "new", name="new", description="It was not there before.")
        await ctx.notify_tools_changed()
        return "grown"

    @server.tool(structured_output=False)
    def environment() -> str:
        """The names of the server's variables."""
        print("the key is", os.environ.get("SHOP_KEY"), file=sys.stderr, flush=True)
        return " ".join(sorted(os.environ))

    @server.tool()
    async def die() -> str:
        """End the server in the middle of the call."""
        log("die")
        os._exit(3)

    return server


def _log(line: str) -> None:
    with Path(sys.argv[1]).open("a") as file:
        file.write(line + "\n")


async def _over_http(server: MCPServer) -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical", timeout_graceful_shutdown=1)
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    _log(f"pid {os.getpid()}")
    if sys.argv[2:] == ["http"]:
        anyio.run(_over_http, make_server(_log))
    else:
        make_server(_log).run("stdio")
