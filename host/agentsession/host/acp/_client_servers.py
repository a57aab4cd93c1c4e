"""The MCP servers that a client hands in, as providers of a session's host.

Not for: their connections (``agentsession.host.mcp``). Rules carried: none of the contract.
May import: ``acp``, ``agentsession.host.mcp`` when there is a server, ``protocol``.

They are not trusted: what they claim of their tools loosens nothing, and every call passes the policy.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from typing import Any

from acp import RequestError
from acp.schema import HttpMcpServer, McpServerStdio

from agentsession.host._toolbox import ToolProvider

__all__ = ["client_servers", "has_mcp"]


def has_mcp() -> bool:
    """Whether the extra for MCP servers is there."""
    return importlib.util.find_spec("mcp") is not None


def client_servers(servers: Sequence[Any], cwd: str) -> list[ToolProvider]:
    """A provider for each. Raises :class:`RequestError` (-32602) for a transport that is not declared."""
    if not servers:
        return []
    if not has_mcp():
        raise RequestError(-32602, "this agent takes no MCP servers", {"code": "mcp_unsupported"})
    from agentsession.host.mcp import McpTools

    made: list[ToolProvider] = []
    names: set[str] = set()
    for server in servers:
        if isinstance(server, McpServerStdio):
            name = _name(server.name, names)
            env = {variable.name: variable.value for variable in server.env}
            made.append(McpTools.stdio(name, [server.command, *server.args], env=env, cwd=cwd))
        elif isinstance(server, HttpMcpServer):
            headers = {header.name: header.value for header in server.headers}
            made.append(McpTools.http(_name(server.name, names), server.url, headers=headers))
        else:
            raise RequestError(
                -32602, f"this agent takes no MCP servers over {server.type}", {"code": "mcp_unsupported"}
            )
    return made


def _name(given: str, taken: set[str]) -> str:
    """A provider's legal name that no other has; not one that policies know by another meaning."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", given)[:28] or "server"
    if not re.match(r"[A-Za-z_]", name) or name in ("agent", "host", "editor"):
        name = f"mcp_{name}"[:28]
    base, number = name, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name
