"""What a person reads of models that failed, were called again, or were changed for others.

Not for: deciding any of that (``agentsession.host.models``). May import: ``_text``, ``protocol``.
"""

from __future__ import annotations

from typing import Any

from agentsession.host.cli._text import seconds
from agentsession.protocol import Custom, SessionUpdate

__all__ = ["model_change", "model_note"]


def model_note(event: Custom) -> tuple[str, str] | None:
    """A sentence and its style for what a hook did around a model call; an empty sentence shows nothing.

    ``None``: the event is about something else.
    """
    data = event.data if event.kind == "hook" and isinstance(event.data, dict) else {}
    point, changed = data.get("point"), data.get("changed")
    if point == "before_model" and changed == ["contents"] and _says_why(data):
        return str(data["reason"]), "dim"
    if point == "before_model" and changed == ["model"]:
        return "", "dim"  # the record tells when it is another model than before
    if point != "on_model_error" or not isinstance(changed, list) or not _says_why(data):
        return None
    if "next_model" in changed:
        return f"{data['reason']}: now {data.get('to', 'another model')}", "warn"
    if "after_s" in changed:
        wait = data.get("afterS")
        soon = f" in {seconds(wait)}" if isinstance(wait, (int, float)) else ""
        return f"{data['reason']}: again{soon}", "warn"
    return ("", "dim") if "ask" in changed or "fail_as" in changed else None


def model_change(event: SessionUpdate) -> str | None:
    """Which model an agent calls from now on, where a hook or the session's model changed that."""
    if event.agent_id is None or event.model is None:
        return None
    return f"{event.agent_id} now calls {event.model}"


def _says_why(data: dict[str, Any]) -> bool:
    return isinstance(data.get("reason"), str)
