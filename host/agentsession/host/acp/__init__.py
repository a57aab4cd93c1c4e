"""ACP v1: any agent in an editor that speaks the Agent Client Protocol, over stdio or any pair of byte streams.

Not for: driving an ACP agent (``agentsession.adapters.acp``). Needs the extra ``acp``.
May import: ``acp``, the modules beside it.
"""

from agentsession.protocol import ConfigurationError

try:
    import acp as _acp
except ImportError as error:
    raise ConfigurationError(
        "agent-client-protocol is not installed",
        id="extra-missing",
        where="agentsession.host.acp",
        fix='pip install "agent-session-protocol[acp]"',
    ) from error

from agentsession.host.acp._agent import AcpAgent
from agentsession.host.acp._serve import serve_acp, serve_streams
from agentsession.host.acp._sessions import HostOptions

del _acp

__all__ = ["AcpAgent", "HostOptions", "serve_acp", "serve_streams"]
