"""A server's question, put to the host's person: a form, or an address to open.

Not for: who can be asked (the host's channel), the connection. Rules carried: HITL-08, HITL-09, SEC-01.
May import: ``_toolcontext``, ``protocol``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from agentsession.host._toolcontext import ToolContext

__all__ = ["ask_person"]


async def ask_person(server: str, params: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
    """Ask what the params of ``elicitation/create`` say, and return its result. The person is told which server asks.

    An address that is not https, or http on this machine, is declined unseen.
    """
    message, title = str(params.get("message") or ""), f"the tool server {server} asks"
    if params.get("mode") == "url":
        url = str(params.get("url") or "")
        if not _may_be_opened(url):
            return {"action": "decline"}
        answer = await context.ask(message, kind="open_url", title=title, url=url)
        return {"action": answer.action}
    schema = params.get("requestedSchema")
    answer = await context.ask(message, schema=schema if isinstance(schema, dict) else None, title=title)
    if answer.action != "accept":
        return {"action": answer.action}
    return {"action": "accept", "content": answer.content if isinstance(answer.content, dict) else {}}


def _may_be_opened(url: str) -> bool:
    parts = urlsplit(url)
    if parts.username or parts.password:  # it would look like the address of somebody else
        return False
    if parts.scheme == "https":
        return bool(parts.hostname)
    return parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
