"""The ids of sub-agents' sessions: each is made of its caller's session and call, and tells whose it is.

Not for: running them (``_child_run.py``), or deleting them (``records/_delete.py``). May import: the standard library.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

__all__ = ["caller_mark", "mark_of", "session_id_of"]

_OF_A_CHILD: Final = re.compile(r"sub-[0-9a-f]{16}-[0-9a-f]{32}")
_MARK: Final = len("sub-") + 16


def session_id_of(caller: str, request_id: str, agent: str) -> str:
    """The id of the session of a sub-agent, by the caller's session and request."""
    return f"{mark_of(caller)}-{_digest(json.dumps([caller, request_id, agent]))[:32]}"


def mark_of(caller: str) -> str:
    """What the ids of all sub-agents that this session has called begin with."""
    return f"sub-{_digest(caller)[:16]}"


def caller_mark(session_id: str) -> str | None:
    """The mark of the session that called this one; ``None`` where it is no sub-agent's."""
    return session_id[:_MARK] if _OF_A_CHILD.fullmatch(session_id) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
