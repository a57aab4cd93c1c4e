"""ADK's credential service under host control: the user's, or one that keeps a session's credentials in memory.

Not for: what is kept (``_vault.py``). Rules carried: SEC-01. May import: ``_live``,
``_toolset_auth``, google.adk.

ADK asks for a credential in every turn where it has no service to keep it. ADK's own SessionStateCredentialService
keeps it in the stored session in plain text, so it is replaced too.
"""

from __future__ import annotations

from google.adk.agents.callback_context import CallbackContext
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.auth.credential_service.session_state_credential_service import SessionStateCredentialService

from agentsession.adapters.adk._live import current_run
from agentsession.adapters.adk._toolset_auth import toolsets
from agentsession.adapters.adk._vault import Caller

__all__ = ["SessionCredentials"]

_NEEDS_NONE_TO_LIST = "google.adk.tools.openapi_tool.openapi_spec_parser.openapi_toolset"
"""A toolset of this module has its tools from a document that it was given; each tool asks when it is called."""


class SessionCredentials(BaseCredentialService):
    """What ADK's Runner gets as its credential service."""

    def __init__(self, inner: BaseCredentialService | None) -> None:
        # Exactly that class: one of the user's that is made from it may keep credentials elsewhere, or sealed.
        self._inner = None if type(inner) is SessionStateCredentialService else inner

    async def load_credential(
        self, auth_config: AuthConfig, callback_context: CallbackContext
    ) -> AuthCredential | None:
        live, key = current_run(), auth_config.credential_key
        found = None
        if self._inner is not None:
            found = await self._inner.load_credential(auth_config, callback_context)
        elif live is not None and key is not None:
            found = live.state.vault.held(key, _caller(callback_context))
        if found is None and _only_to_list(key, callback_context):
            return AuthCredential(auth_type=AuthCredentialTypes.API_KEY)
        return found

    async def save_credential(self, auth_config: AuthConfig, callback_context: CallbackContext) -> None:
        live, key, credential = current_run(), auth_config.credential_key, auth_config.exchanged_auth_credential
        if self._inner is not None:
            await self._inner.save_credential(auth_config, callback_context)
        elif live is not None and key is not None and credential is not None:
            live.state.vault.hold(key, credential, _caller(callback_context))


def _caller(context: CallbackContext) -> Caller:
    return (context.session.id, context.function_call_id)


def _only_to_list(key: str | None, context: CallbackContext) -> bool:
    """Whether ADK wants the credential before it lists tools for which it needs none: it would ask at "hello"."""
    asking = [] if context.function_call_id else [toolset for found, toolset in toolsets(context) if found == key]
    return bool(asking) and all(type(toolset).get_tools.__module__ == _NEEDS_NONE_TO_LIST for toolset in asking)
