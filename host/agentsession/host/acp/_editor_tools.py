"""The editor's own files and terminals as tools that the host offers to the agent.

Not for: deciding whether a call may run (policy: they are tools like any other). Rules carried: TOOL-04, TOOL-13.
May import: ``acp``, anyio, the host's tools, ``protocol``.

Only what the client declares is offered, and only paths under the session's folders.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Protocol

import anyio
from acp import RequestError
from acp.agent import AgentSideConnection
from acp.schema import ClientCapabilities, CreateTerminalResponse

from agentsession.host._outcome import ToolError, ToolOutcome
from agentsession.host._toolbox import Namespaced, ToolBox
from agentsession.host._toolcontext import ToolContext
from agentsession.host._tools import Tool
from agentsession.protocol import Diff, Terminal, ToolAnnotations, ToolDescriptor

__all__ = ["EditorTools", "Place"]

logger = logging.getLogger("agentsession.host")

_OUTPUT_LIMIT: Final = 64 * 1024
_RELEASE_S: Final = 2.0


class Place(Protocol):
    """What the tools know of their session once it is open."""

    session_id: str


class EditorTools:
    """The tools of one session's client."""

    def __init__(
        self,
        connection: AgentSideConnection,
        client: ClientCapabilities,
        place: Place,
        roots: Sequence[str],
        on_terminal: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._client = client
        self._place = place
        self._roots = tuple(os.path.realpath(root) for root in roots)
        self._cwd = roots[0]
        self._on_terminal = on_terminal

    def provider(self) -> Namespaced | None:
        """``editor_read_text_file`` and the others that the client declares; ``None`` without any."""
        box = ToolBox()
        if self._client.fs is not None and self._client.fs.read_text_file:
            box.add(Tool(_READ, self.read))
        if self._client.fs is not None and self._client.fs.write_text_file:
            box.add(Tool(_WRITE, self.write))
        if self._client.terminal:
            box.add(Tool(_RUN, self.run))
        return Namespaced("editor", box, trusted=True) if len(box) else None

    async def read(self, args: dict[str, Any]) -> str:
        """The text of a file, with the editor's unsaved changes."""
        path = self._path(args["path"])
        with _told():
            read = await self._connection.read_text_file(
                self._place.session_id, path, args.get("line"), args.get("limit")
            )
        return read.content

    async def write(self, args: dict[str, Any]) -> ToolOutcome:
        """Write a file through the editor; the difference is shown where the editor lets the old text be read."""
        path = self._path(args["path"])
        old: str | None = None
        if self._client.fs is not None and self._client.fs.read_text_file:
            with contextlib.suppress(RequestError):  # a new file
                old = (await self._connection.read_text_file(self._place.session_id, path)).content
        with _told():
            await self._connection.write_text_file(self._place.session_id, path, args["content"])
        return ToolOutcome(data={"written": path}, content=[Diff(path=path, old_text=old, new_text=args["content"])])

    async def run(self, args: dict[str, Any], context: ToolContext) -> ToolOutcome:
        """Run a command in a terminal of the editor, and wait for its end."""
        session_id = self._place.session_id
        cwd = self._path(args.get("cwd") or self._cwd)
        making = asyncio.ensure_future(
            self._connection.create_terminal(
                session_id, args["command"], args.get("args") or [], None, cwd, _OUTPUT_LIMIT
            )
        )
        is_done = False
        try:
            with _told():
                terminal = (await asyncio.shield(making)).terminal_id
                self._on_terminal(terminal)
                context.progress(content=[Terminal(terminal_id=terminal, command=args["command"])])
                ended = await self._connection.wait_for_terminal_exit(session_id, terminal)
                output = await self._connection.terminal_output(session_id, terminal)
            is_done = True
        finally:
            with anyio.CancelScope(shield=True):  # a cancelled turn ends after its commands
                await self._release(session_id, making, is_done)
        data = {"exit_code": ended.exit_code, "signal": ended.signal, "output": output.output}
        shown = Terminal(terminal_id=terminal, command=args["command"], output=output.output, exit_code=ended.exit_code)
        return ToolOutcome(data=data, content=[shown], is_error=ended.exit_code != 0)

    async def _release(self, session_id: str, making: asyncio.Future[CreateTerminalResponse], is_done: bool) -> None:
        """Also of a terminal that the client is about to make: what runs in it must not outlive the call."""
        if making.done() and making.exception() is not None:
            return
        try:
            with anyio.fail_after(_RELEASE_S):
                terminal = (await making).terminal_id
                if not is_done:
                    await self._connection.kill_terminal(session_id, terminal)
                await self._connection.release_terminal(session_id, terminal)
        except Exception as error:  # noqa: BLE001 - logged; the call's own end counts more
            logger.info("a terminal was not released: %s", type(error).__name__)

    def _path(self, given: str) -> str:
        path = os.path.normpath(os.path.join(self._cwd, given))
        real = os.path.realpath(path)
        if not any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in self._roots):
            raise ToolError("the path is outside the session's folders", code="outside_workspace", path=given)
        return path


@contextlib.contextmanager
def _told() -> Generator[None]:
    """What the client refuses is an error that the model can read."""
    try:
        yield
    except RequestError as error:
        raise ToolError(f"the editor refused it: {error}", code="editor_refused") from error
    except ConnectionError as error:
        raise ToolError("the editor is gone", code="editor_gone") from error


def _schema(required: list[str], **fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


_READ: Final = ToolDescriptor(
    name="read_text_file",
    display_name="Read a file in the editor",
    description="Read a text file, with changes that are not saved yet.",
    parameters_schema=_schema(
        ["path"],
        path={"type": "string"},
        line={"type": "integer", "minimum": 1, "description": "The first line, from 1."},
        limit={"type": "integer", "minimum": 1, "description": "How many lines."},
    ),
    annotations=ToolAnnotations(read_only=True, category="read"),
)
_WRITE: Final = ToolDescriptor(
    name="write_text_file",
    display_name="Write a file in the editor",
    description="Write the whole text of a file.",
    parameters_schema=_schema(["path", "content"], path={"type": "string"}, content={"type": "string"}),
    annotations=ToolAnnotations(read_only=False, destructive=True, category="edit"),
)
_RUN: Final = ToolDescriptor(
    name="run_in_terminal",
    display_name="Run a command in the editor's terminal",
    description="Run a program and wait for its end. No shell reads the words.",
    parameters_schema=_schema(
        ["command"],
        command={"type": "string", "description": "The program."},
        args={"type": "array", "items": {"type": "string"}},
        cwd={"type": "string"},
    ),
    annotations=ToolAnnotations(read_only=False, destructive=True, open_world=True, category="execute"),
)
