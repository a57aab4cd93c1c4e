"""A person's credential for a tool: into the state where the tool finds it, and out of what ADK stores.

Not for: asking (``_tool_questions.py``, or ADK itself), the forms of an answer (``_credential_answers.py``), or what a
tool keeps for later (``_vault.py``). Rules carried: SEC-01. May import: those beside it, google.adk, google.genai.

ADK stores the answer to a credential request in its session, in plain text. So ADK is given a message without the
secret, and the secret is put into the copy of the session that the run works on, before the agent looks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.adk.auth._auth_resume import store_auth_response  # private: ADK's own check of a credential that came back
from google.adk.auth.auth_tool import AuthConfig
from google.adk.sessions.session import Session
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from agentsession.adapters.adk._credential_answers import credential_response
from agentsession.adapters.adk._elicit import CREDENTIAL
from agentsession.adapters.adk._values import is_mapping
from agentsession.protocol import REDACTED

__all__ = [
    "calls_sharing",
    "put_back",
    "redacted_response",
    "requested_config",
    "store_credential",
]


async def store_credential(config: AuthConfig, content: Any, context: ToolContext) -> bool:
    """Put a credential where the tool finds it (ADK's temporary state, which is never stored); whether ADK took it."""
    wire = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    stored = await store_auth_response(
        requested=config,
        response=credential_response(wire, content),
        state=context.state,
        interrupt_id=context.function_call_id or "",
    )
    return stored is not None


def redacted_response(content: Any) -> dict[str, Any]:
    """What ADK stores in the place of an accepted answer: no more of it than the record has."""
    credential = content.get("credential") if is_mapping(content) else None
    if is_mapping(credential):
        return {"credential": {"type": credential.get("type"), "value": REDACTED}}
    return {"auth_response_uri": REDACTED}


def requested_config(session: Session, adk_id: str) -> Mapping[str, Any]:
    """What ADK asked with the credential request of this id, as JSON; empty if there is none."""
    for event in reversed(session.events):
        for call in event.get_function_calls():
            if call.id == adk_id and call.name == CREDENTIAL:
                args = call.args or {}
                config = args.get("authConfig", args.get("auth_config"))
                return config if isinstance(config, Mapping) else {}
    return {}


def calls_sharing(session: Session, adk_id: str) -> list[str]:
    """The calls that wait for the same credential as this one: ADK asks once for all of a step that share a key."""
    for event in reversed(session.events):
        configs = event.actions.requested_auth_configs
        if adk_id in configs:
            key = configs[adk_id].credential_key
            return [other for other, config in configs.items() if other != adk_id and config.credential_key == key]
    return []


def put_back(session: Session, credentials: Mapping[str, Any]) -> None:
    """Put the secrets into the run's copy of the session; the stored events are others and stay redacted."""
    events = session.events
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.author != "user":
            continue
        held = {response.id for response in event.get_function_responses()} & set(credentials)
        if held:
            copy = event.model_copy(deep=True)
            for part in (copy.content.parts if copy.content is not None else None) or ():
                response: types.FunctionResponse | None = part.function_response
                if response is not None and response.id is not None and response.id in held:
                    response.response = credentials[response.id]
            events[index] = copy
        return
