"""Drives any ACP v1 agent over its standard input and output: ``AcpExecutor(["my-agent", "--acp"])``.

Not for: serving agents to ACP clients (``agentsession acp`` does). May import: the modules of this package.
"""

from __future__ import annotations

try:
    import acp as _acp
except ImportError as error:
    raise ImportError(
        'the ACP executor needs agent-client-protocol: pip install "agent-session-protocol[acp]"'
    ) from error

from agentsession.adapters.acp._executor import AcpExecutor, entry_point
from agentsession.adapters.acp._link import AgentFailed, AgentLost

del _acp

__all__ = ["AcpExecutor", "AgentFailed", "AgentLost", "entry_point"]
