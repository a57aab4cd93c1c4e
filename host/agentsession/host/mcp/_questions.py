"""A server's question, put to the host's person: a form, or an address to open.

Not for: who can be asked (the host's channel), the connection. Rules carried: HITL-08, HITL-09, SEC-01.
May import: ``_toolcontext``, ``_urls``, ``protocol``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from agentsession.host._toolcontext import ToolContext
from agentsession.host._urls import unsafe_url
from agentsession.protocol import ConfigurationError

__all__ = ["ask_person"]

logger = logging.getLogger("agentsession.host")


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
    try:
        answer = await context.ask(message, schema=schema if isinstance(schema, dict) else None, title=title)
    except ConfigurationError as error:  # a schema that is none: nothing that a person said could fit it
        logger.warning("%s asks for what cannot be answered, so it was declined: %s", server, error.got)
        return {"action": "decline"}
    if answer.action != "accept":
        return {"action": answer.action}
    return {"action": "accept", "content": answer.content if isinstance(answer.content, dict) else {}}
