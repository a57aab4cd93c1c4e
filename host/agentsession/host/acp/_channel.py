"""The editor's person: approvals as ``session/request_permission``, questions as elicitation.

Not for: deciding whether to ask (the host's policy). Rules carried: HITL-01, HITL-02, HITL-08, HITL-09.
May import: ``acp``, ``_tool_calls``, the host's channel, ``protocol``.

Only the option that was offered and means yes is a yes. What fails, is unknown or unreadable is a no.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from acp import RequestError
from acp.agent import AgentSideConnection
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeclineElicitationResponse,
    DeniedOutcome,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationUrlSessionMode,
    PermissionOption,
    ToolCallUpdate,
)
from pydantic import ValidationError

from agentsession.host._elicitation import Approval, Position
from agentsession.host._policy import PolicyDecision
from agentsession.host.acp._tool_calls import Lookup, kind_of, locations_of, tool_meta
from agentsession.protocol import Decision, ElicitationAnswer, ElicitationRequest, ToolRequest, marks_secret

__all__ = ["AcpChannel"]

logger = logging.getLogger("agentsession.host")

_ALLOW_ONCE: Final = PermissionOption(option_id="allow_once", name="Allow", kind="allow_once")
_ALLOW_ALWAYS: Final = PermissionOption(option_id="allow_always", name="Allow for this session", kind="allow_always")
_REJECT_ONCE: Final = PermissionOption(option_id="reject_once", name="Reject", kind="reject_once")
_REJECT_ALWAYS: Final = PermissionOption(
    option_id="reject_always", name="Reject for this session", kind="reject_always"
)
_CONFIRMATIONS: Final = ("tool_confirmation", "user_approval")
_FLAT: Final = ("string", "number", "integer", "boolean")


class AcpChannel:
    """Asks the client of one session. Several questions may be open at once."""

    concurrent = True

    def __init__(
        self, connection: AgentSideConnection, client: ClientCapabilities, cwd: str | None, lookup: Lookup
    ) -> None:
        self.session_id = ""
        """Known once the session is open."""
        self._connection = connection
        self._client = client
        self._cwd = cwd
        self._lookup = lookup
        self._rejected: set[str] = set()
        """The tools that were rejected for the session."""

    async def approve(self, request: ToolRequest, decision: PolicyDecision, position: Position) -> Approval:
        """The option that was chosen: a yes, a no, or with ``cancelled`` the end of the turn."""
        if request.name in self._rejected:
            return Approval.no("rejected for this session")
        options = [_ALLOW_ONCE, _REJECT_ONCE, _REJECT_ALWAYS]
        if decision.remember != "never":
            options.insert(1, _ALLOW_ALWAYS)
        found = self._lookup(request.name)
        call = ToolCallUpdate(
            tool_call_id=request.request_id,
            title=(found.display_name if found is not None else None) or request.name or "tool",
            kind=kind_of(found),
            status="pending",
            raw_input=request.args or {},
            locations=locations_of(request.args, self._cwd),
            field_meta=tool_meta(request.name),
        )
        chosen = await self._choose(call, options, _reason(decision, position))
        if chosen == "allow_once":
            return Approval.yes()
        if chosen == "allow_always":
            return Approval.yes(remember="session")
        if chosen == "cancelled":
            return Approval.cancel("cancelled")
        if chosen == "reject_always":
            self._rejected.add(request.name)
        return Approval.no("the user rejected it") if chosen else Approval.no("unclear_answer", by="host")

    async def ask(self, request: ElicitationRequest, position: Position) -> ElicitationAnswer | None:
        """The person's answer; what this client cannot show is cancelled."""
        if request.kind in _CONFIRMATIONS:
            return await self._confirm(request)
        mode = self._mode(request)
        if mode is None:
            return _answer(request, "cancel", "host", "the client cannot show it")
        try:
            answer = await self._connection.create_elicitation(request.message, mode)
        except (RequestError, ConnectionError, ValidationError) as error:
            logger.info("a question was not answered: %s", type(error).__name__)
            return _answer(request, "cancel", "host", "the client gave no answer")
        if isinstance(answer, AcceptElicitationResponse):
            content: Any = None if request.kind == "auth_required" else answer.content
            return _answer(request, "accept", "user", None, content)
        action = "decline" if isinstance(answer, DeclineElicitationResponse) else "cancel"
        return _answer(request, action, "user", None)

    async def _confirm(self, request: ElicitationRequest) -> ElicitationAnswer:
        call = ToolCallUpdate(
            tool_call_id=request.tool_request_id or request.request_id,
            title=request.title or request.message,
            status="pending",
        )
        chosen = await self._choose(call, [_ALLOW_ONCE, _REJECT_ONCE], request.message)
        if chosen == "allow_once":
            return _answer(request, "accept", "user", None)
        if chosen == "cancelled":
            return _answer(request, "cancel", "user", None)
        return _answer(request, "decline", "user" if chosen else "host", None if chosen else "unclear_answer")

    async def _choose(self, call: ToolCallUpdate, options: list[PermissionOption], message: str | None) -> str | None:
        """The id of an offered option, ``cancelled``, or ``None`` for no clear answer."""
        meta: dict[str, Any] = {} if message is None else {"agentsession": {"message": message}}
        try:
            response = await self._connection.request_permission(self.session_id, call, options, **meta)
        except (RequestError, ConnectionError, ValidationError) as error:
            logger.info("a permission was not answered: %s", type(error).__name__)
            return None
        outcome = response.outcome
        if isinstance(outcome, DeniedOutcome):
            return "cancelled"
        offered = {option.option_id for option in options}
        if isinstance(outcome, AllowedOutcome) and outcome.option_id in offered:
            return outcome.option_id
        return None

    def _mode(self, request: ElicitationRequest) -> ElicitationFormSessionMode | ElicitationUrlSessionMode | None:
        offered = self._client.elicitation
        if offered is None:
            return None
        scope: dict[str, Any] = {"session_id": self.session_id, "tool_call_id": request.tool_request_id}
        try:
            if request.url is not None:
                if offered.url is None:
                    return None
                return ElicitationUrlSessionMode.model_validate(
                    {**scope, "elicitation_id": request.request_id, "url": request.url}, by_name=True
                )
            schema = request.requested_schema or {"type": "object", "properties": {}}
            if offered.form is None or request.kind == "auth_required" or not _is_flat(schema):
                return None
            return ElicitationFormSessionMode(**scope, requested_schema=ElicitationSchema.model_validate(schema))
        except ValidationError:
            return None


def _reason(decision: PolicyDecision, position: Position) -> str | None:
    return position.problem or decision.reason


def _is_flat(schema: dict[str, Any]) -> bool:
    """Whether a form of single fields can be made of it, none of which is secret."""
    fields = schema.get("properties", {})
    if schema.get("type", "object") != "object" or not isinstance(fields, dict) or marks_secret(schema):
        return False
    return all(isinstance(field, dict) and field.get("type") in _FLAT for field in fields.values())


def _answer(
    request: ElicitationRequest, action: str, by: str, reason: str | None, content: Any = None
) -> ElicitationAnswer:
    given: dict[str, Any] = {} if content is None else {"content": content}
    decision = Decision(by=by, reason=reason)
    return ElicitationAnswer(request_id=request.request_id, action=action, decision=decision, **given)
