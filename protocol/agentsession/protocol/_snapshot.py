"""The state machine's knowledge as data, so that a client can start in the middle of a session.

Not for: the rules (``_lifecycle.py``). Rules carried: PER-03. May import: ``_base``.
"""

from pydantic import Field

from agentsession.protocol._base import Bool, Int, JsonObject, Model, optional
from agentsession.protocol._session import SessionState

__all__ = ["MachineSnapshot", "OpenAgent", "OpenMessage", "OpenRequest"]


class OpenAgent(Model):
    """An agent that is open, or was closed by a pause, on a thread."""

    agent_id: str
    thread_id: str | None = optional()
    parent_thread_id: str | None = optional()


class OpenMessage(Model):
    """A message with deltas and no closing event: the text so far of each part type."""

    message_id: str
    thread_id: str | None = optional()
    agent_id: str | None = optional()
    role: str
    texts: dict[str, str] = Field(default_factory=dict)


class OpenRequest(Model):
    """A request without a response; the fields of ``RequestState``."""

    id: str
    kind: str
    name: str
    needs: str
    status: str
    thread_id: str | None = optional()
    agent_id: str | None = optional()
    args: JsonObject | None = optional()
    requested_schema: JsonObject | None = optional()
    tool_request_id: str | None = optional()
    confirmation: str | None = optional()
    started: Bool = False


class MachineSnapshot(Model):
    """What a ``SessionMachine`` knows; made by ``snapshot()``, taken by ``restore()``."""

    state: SessionState
    seq: Int
    session_id: str | None = optional()
    stream_id: str | None = optional()
    turn_id: str | None = optional()
    initialized: Bool = False
    fatal: Bool = False
    requests: list[OpenRequest] = Field(default_factory=list)
    agents: list[OpenAgent] = Field(default_factory=list)
    paused: list[OpenAgent] = Field(default_factory=list)
    just_paused: list[OpenAgent] = Field(default_factory=list)
    messages: list[OpenMessage] = Field(default_factory=list)
    partial_requests: list[str] = Field(default_factory=list)
    steers: list[str] = Field(default_factory=list)
    known_steers: list[str] = Field(default_factory=list)
    must_cancel: str | None = optional()
    resolved: list[str] = Field(default_factory=list)
    abandoned: list[str] = Field(default_factory=list)
    """Request ids that were streamed in part and never became a whole request."""
    ended_streams: list[str] = Field(default_factory=list)
    ended_turns: list[str] = Field(default_factory=list)
    closed_messages: list[str] = Field(default_factory=list)
