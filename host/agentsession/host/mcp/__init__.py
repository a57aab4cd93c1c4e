"""Tools of MCP servers, over stdio and HTTP, as a provider of a host.

``from agentsession.host.mcp import McpTools``. Needs the MCP Python SDK: ``pip install "agent-session-protocol[mcp]"``.
"""

from __future__ import annotations

from agentsession.host.mcp._provider import McpTools

__all__ = ["McpTools"]
