"""What a person reads of hooks that changed or blocked something.

Not for: hooks around model calls that say why (``_model_lines.py``). May import: ``protocol``.
"""

from __future__ import annotations

from agentsession.protocol import Custom

__all__ = ["hook_note"]


def hook_note(event: Custom) -> str | None:
    """A sentence for what a hook did; ``None``: the event is about something else, or has another shape."""
    data = event.data if event.kind == "hook" and isinstance(event.data, dict) else {}
    point, action, changed = data.get("point"), data.get("action"), data.get("changed")
    if not isinstance(point, str) or action not in ("block", "modify"):
        return None
    who = f"hook {data['by']}" if isinstance(data.get("by"), str) else "a hook"
    did = "blocked"
    if action == "modify":
        did = f"changed {', '.join(map(str, changed))}" if isinstance(changed, list) and changed else "changed nothing"
    why = f": {data['reason']}" if isinstance(data.get("reason"), str) else ""
    return " ".join(f"{who} {did} at {point}{why}".split("\n"))
