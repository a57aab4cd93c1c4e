"""What sub-agents did in sessions of their own, as far as it can be theirs.

Not for: mapping it (``_out.py``). Pure. Rules carried: SEC-01. May import: the host's ``_child_events``, ``protocol``.

It comes as progress of a call, and others tell progress, too: a client of its tool, a foreign agent of its call. What
they say must not end what is open in the stream, or pass for the agent's own words. So an event counts only where it
was placed as the host places a sub-agent's: on a thread of its own, with ids that begin with it.
"""

from __future__ import annotations

import re
from typing import Final

from agentsession.host._child_events import child_events
from agentsession.protocol import Event, ToolUpdate

__all__ = ["told_below"]

_IDS: Final = ("request_id", "tool_request_id", "message_id")
_THREAD: Final = re.compile(r".+?-[0-9a-f]{8}(?=\.|$)")
"""The sub-agent's own, before those that are below it."""
_HASHED: Final = re.compile(r"[0-9a-f]{64}")
"""An id that was too long to stand behind its thread's."""


def told_below(event: Event) -> list[Event]:
    """What sub-agents did, of an update of the call that they work for; empty for every other event."""
    if type(event) is not ToolUpdate:
        return []
    above = f"{event.thread_id}." if event.thread_id else ""
    return [child for child in child_events(event) if _is_placed(child, above)]


def _is_placed(child: Event, above: str) -> bool:
    thread = child.thread_id or ""
    own = _THREAD.match(thread.removeprefix(above)) if thread.startswith(above) else None
    if own is None:
        return False
    ids = (getattr(child, name, None) for name in _IDS)
    first = f"{above}{own[0]}:"
    return all(given.startswith(first) or _HASHED.fullmatch(given) for given in ids if isinstance(given, str))
