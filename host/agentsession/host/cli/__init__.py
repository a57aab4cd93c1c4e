"""The command ``agentsession``. Needs the ``cli`` extra: ``pip install "agent-session-protocol[cli]"``.

Read ``_main.py`` first: from arguments to an exit code. ``_app.py`` declares the commands; each is a module beside it.
"""

from __future__ import annotations

from agentsession.host.cli._main import main

__all__ = ["main"]
