"""The terminals of a turn: each is one tool of the host's, run under its policy.

Not for: running commands (the host does). Rules carried: TOOL-05. May import: ``agentsession.protocol``, ``acp``, the
module for the process beside it.

``terminal/create`` asks the host to run its tool ``terminal`` and gives the agent an id at once; output, exit, kill
and release are answered from what the host has given. A terminal that was denied fails each of them. The contract has
no way to stop a tool that the host runs, so a kill leaves the command to the host and only forgets it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from acp import RequestError
from acp.schema import CreateTerminalRequest

from agentsession.adapters.acp._peer import Incoming
from agentsession.protocol import ToolResult, plain_text

__all__ = ["Terminals"]

HostTool = Callable[[Incoming, str, dict[str, Any], Callable[[ToolResult], Any]], Awaitable[str | None]]


class Terminals:
    """The terminals of one turn. Their ids are ours and are of no use elsewhere."""

    def __init__(self, host_tool: HostTool) -> None:
        self._host_tool = host_tool
        self._ids = itertools.count(1)
        self._results: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._limits: dict[str, int | None] = {}

    async def create(self, item: Incoming, root: str, real: Callable[[str], str]) -> None:
        """``terminal/create``."""
        asked = CreateTerminalRequest.model_validate({**item.params, "_meta": None})
        args: dict[str, Any] = {"command": asked.command, "args": asked.args or [], "cwd": real(asked.cwd or root)}
        if asked.env:
            args["env"] = {variable.name: variable.value for variable in asked.env}
        terminal_id = f"terminal-{next(self._ids)}"
        inner = Incoming("request", item.method)
        inner.reply = asyncio.get_running_loop().create_future()
        self._results[terminal_id] = inner.reply
        self._limits[terminal_id] = asked.output_byte_limit
        await self._host_tool(inner, "terminal", args, _ended)
        item.answer({"terminalId": terminal_id})

    async def take(self, item: Incoming) -> None:
        """Any other request about a terminal."""
        try:
            item.answer(await self._answer(item))
        except RequestError as error:
            item.refuse(error)

    async def _answer(self, item: Incoming) -> dict[str, Any]:
        terminal_id = item.params.get("terminalId")
        result = self._results.get(terminal_id) if isinstance(terminal_id, str) else None
        if result is None or not isinstance(terminal_id, str):
            raise RequestError(-32602, "Invalid params", {"terminalId": "no terminal of this turn"})
        match item.method:
            case "terminal/release":
                del self._results[terminal_id]
                return {}
            case "terminal/kill":
                if not result.done():
                    result.set_result({"output": "", "exit": {"exitCode": None, "signal": "SIGKILL"}})
                return {}
            case "terminal/output" if not result.done():
                return {"output": "", "truncated": False}
            case "terminal/output":
                ended = result.result()
                output, is_cut = _cut(ended["output"], self._limits[terminal_id])
                return {"output": output, "truncated": is_cut, "exitStatus": ended["exit"]}
            case _:
                exit_status: dict[str, Any] = (await asyncio.shield(result))["exit"]
                return exit_status


def _ended(result: ToolResult) -> dict[str, Any]:
    data = result.data if isinstance(result.data, dict) else {}
    output, code = data.get("output"), data.get("exit_code", data.get("exitCode"))
    known = code if isinstance(code, int) and code >= 0 else None
    return {
        "output": output if isinstance(output, str) else plain_text(result.content),
        "exit": {"exitCode": known, "signal": None},
    }


def _cut(text: str, limit: int | None) -> tuple[str, bool]:
    """The end of a text within so many bytes: ACP keeps what came last."""
    raw = text.encode()
    if limit is None or len(raw) <= limit:
        return text, False
    return raw[len(raw) - limit :].decode(errors="ignore"), True
