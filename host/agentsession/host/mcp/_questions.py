"""A server's question, put to the host's person: a form, or an address to open.

Not for: who can be asked (the host's channel), the connection. Rules carried: HITL-08, HITL-09, SEC-01.
May import: ``_toolcontext``, ``_urls``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsession.host._toolcontext import ToolContext
from agentsession.host._urls import unsafe_url

__all__ = ["ask_person"]


async def ask_person(server: str, params: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
    """Ask what the params of ``elicitation/create`` say, and return its result. The person is told which server asks.

    An address that is not https, or http on this machine, is declined unseen.
    """
    message, title = str(params.get("message") or ""), f"the tool server {server} asks"
    if params.get("mode") == "url":
        url = str(params.get("url") or "")
        if unsafe_url(url) is not None:
            return {"action": "decline"}
        answer = await context.ask(message, kind="open_url", title=title, url=url)
        return {"action": answer.action}
    schema = params.get("requestedSchema")
    answer = await context.ask(message, schema=schema if isinstance(schema, dict) else None, title=title)
    if answer.action != "accept":
        return {"action": answer.action}
    return {"action": "accept", "content": answer.content if isinstance(answer.content, dict) else {}}
