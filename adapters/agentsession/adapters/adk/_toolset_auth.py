"""Toolsets that must be signed in before their tools are listed: which they are, and whether it worked.

Not for: asking (ADK does), or what is kept (``_vault.py``). May import: ``_vault``, google.adk.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.adk.agents.callback_context import CallbackContext
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


async def judge_listing(vault: Vault, context: CallbackContext) -> list[str]:
    """See whether the agent's toolsets could be listed with the credentials that the vault keeps; what could not.

    ADK goes on without the tools of one that cannot, and says so in its log alone. It keeps what was listed for the
    invocation, so this lists again only what failed.
    """
    caller = (context.session.id, None)
    keys, failed, lost = vault.in_use(caller), set[str](), list[str]()
    for key, toolset in toolsets(context) if keys else ():
        if key is None or key not in keys:
            continue
        try:
            await toolset.get_tools_with_prefix(ReadonlyContext(context._invocation_context))  # private: as above
        except Exception as error:  # noqa: BLE001  # a toolset's own code may raise anything; it is told
            failed.add(key)
            lost.append(f"the tools of {type(toolset).__name__} could not be listed: {type(error).__name__}")
    vault.used(caller, failed)
    return lost
