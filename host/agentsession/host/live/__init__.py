"""Sessions that stay open for clients that come and go: what the servers of HTTP and AG-UI stand on.

:class:`LiveSessions` opens, finds and closes them; a :class:`LiveSession` has the contract's calls. An agent is served
bare, where the client is the host, or with a ``Host`` that decides and runs tools here. Needs no web framework.
"""

from __future__ import annotations

from agentsession.host.live._session import LiveSession, ServedAgent, Started
from agentsession.host.live._sessions import LiveSessions, TooManySessions

__all__ = ["LiveSession", "LiveSessions", "ServedAgent", "Started", "TooManySessions"]
