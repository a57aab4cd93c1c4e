"""Toolsets: which must be signed in before their tools are listed, and whether all could be listed.

Not for: asking (ADK does), or what is kept (``_vault.py``). May import: ``_vault``, google.adk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_toolset import BaseToolset

from agentsession.adapters.adk._vault import Vault

__all__ = ["judge_listing", "toolsets"]


def toolsets(context: CallbackContext) -> Iterator[tuple[str | None, BaseToolset]]:
    """The toolsets of the present agent that need a credential, each with its key."""
    agent = context._invocation_context.agent  # private, and the only way to the agent whose tools are listed
    for tool in getattr(agent, "tools", None) or ():
        config = tool.get_auth_config() if isinstance(tool, BaseToolset) else None
        if config is not None:
            yield config.credential_key, tool


async def judge_listing(vault: Vault, context: CallbackContext, told: set[int]) -> list[str]:
    """See which of the agent's toolsets could not be listed; what is to be told of it, once for those in ``told``.

    ADK goes on without the tools of one that cannot, and says so in its log alone. It keeps what was listed for the
    invocation, so this lists again only what failed, and what keeps nothing and brought nothing.
    """
    caller = (context.session.id, None)
    invocation = context._invocation_context  # private: as above
    keys, failed, lost = vault.in_use(caller), set[str](), list[str]()
    for toolset in _unsure(invocation):
        config = toolset.get_auth_config()
        key = config.credential_key if config is not None else None
        is_signed_in = key is not None and key in keys
        if id(toolset) in told and not is_signed_in:
            continue
        try:
            await toolset.get_tools_with_prefix(ReadonlyContext(invocation))
        except Exception as error:  # noqa: BLE001  # a toolset's own code may raise anything; it is told
            if key is not None and is_signed_in:
                failed.add(key)
            told.add(id(toolset))
            lost.append(f"the tools of {type(toolset).__name__} could not be listed: {type(error).__name__}")
    vault.used(caller, failed)
    return lost


def _unsure(invocation: InvocationContext) -> list[BaseToolset]:
    """The toolsets of the present agent, unless there is but one, and it has brought tools."""
    entries: list[Any] = list(getattr(invocation.agent, "tools", None) or ())
    found: list[BaseToolset] = [entry for entry in entries if isinstance(entry, BaseToolset)]
    brought = len(invocation.canonical_tools_cache or ()) - (len(entries) - len(found))
    if len(found) == 1 and brought > 0:
        found.clear()
    return found
