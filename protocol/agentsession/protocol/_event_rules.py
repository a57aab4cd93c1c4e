"""The rules about each event: may it stand where it stands, and what is known after it.

Not for: the host's calls, snapshots, feeding (``_lifecycle.py`` builds ``SessionMachine`` on this).
Rules carried: those of ``_rules.RULES`` that are marked ``machine`` and concern events.
May import: the models, ``_answers``, ``_errors``, ``_event_ids``, ``_rules``, ``_transitions``.

One handler a type. A handler checks and raises, or returns the change that accepting the event makes; nothing is
changed before every check has passed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, cast

from agentsession.protocol._answers import CONFIRMATIONS, RequestState, contradicts_yes
from agentsession.protocol._content import ContentPart, Text, Thought, text_by_type
from agentsession.protocol._errors import Blame, ProtocolViolation
from agentsession.protocol._event_ids import EventIds
from agentsession.protocol._events import (
    AgentEnd,
    AgentStart,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    Message,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
)
from agentsession.protocol._json import args_digest, check_json
from agentsession.protocol._rules import RULES
from agentsession.protocol._session import SessionState
from agentsession.protocol._snapshot import OpenAgent
from agentsession.protocol._transitions import TRANSITIONS

__all__ = ["CLOSINGS", "HANDLERS", "NEEDS_AGENT", "EventRules", "Talk", "collect", "joined"]

_OUTSIDE: Final = frozenset(
    {"initialize", "session_update", "tool_decision", "tool_update", "tool_response", "elicitation_response", "custom"}
)
"""Types that may appear without a stream_id: LIFE-15."""

NEEDS_AGENT: Final = frozenset({"message", "tool_request", "elicitation_request", "usage", "custom", "session_update"})
"""Types that need an open agent on their thread when the agent is their source: LIFE-04. Responses do not: in a
settlement the old run answers after its agents were closed."""

_FINAL_REASONS: Final = frozenset(
    {
        *("completed", "failed", "aborted", "refusal"),
        *("max_tokens", "max_turns", "max_llm_calls", "max_budget", "max_time", "deadline"),
    }
)
"""The known reasons of a turn's end. With a reason that is not known, the state follows ``pending``: LIFE-17."""

_DID_NOT_RUN: Final = frozenset({"denied", "cancelled", "unknown"})
"""Statuses that do not claim that the tool ran to its end; a status that is not known counts as a run: TOOL-05."""

_TEXTUAL: Final = (Text, Thought)

CLOSINGS: Final = frozenset({"message", "tool_response", "elicitation_response", "agent_end", "stream_end"})
"""What may follow a fatal error: LIFE-10."""

Fork = Callable[[], None]
"""The mutation of an accepted event, run after all its checks."""


@dataclasses.dataclass(slots=True)
class Talk:
    """A message with deltas and no closing event yet, and the pieces of its text by part type."""

    thread_id: str | None
    agent_id: str | None
    role: str
    texts: dict[str, list[str]]


class EventRules:
    """What is known of a session from its events, and the check of each event against it; see the module's text."""

    def __init__(self, *, blame: Blame = "executor", host_kinds: Iterable[str] | None = None) -> None:
        self.blame: Blame = blame
        self.host_kinds: frozenset[str] | None = None if host_kinds is None else frozenset(host_kinds)
        self.state: SessionState = "new"
        self.seq: int = 0
        """The last seq that was accepted."""
        self.session_id: str | None = None
        self.stream_id: str | None = None
        """The running stream."""
        self.turn_id: str | None = None
        """The turn that runs or waits."""
        self.requests: dict[str, RequestState] = {}
        """Requests without a response, by id, oldest first."""
        self.agents: dict[str | None, list[str]] = {}
        """Open agents by thread, outermost first."""
        self.parents: dict[str | None, str | None] = {}
        """The parent thread of each open thread but the main one."""
        self.paused: list[OpenAgent] = []
        """Agents that the last pause closed and that were not resumed yet, in the order to resume them."""
        self.steers: dict[str, None] = {}
        """Steers that wait to be injected, oldest first: live state that no event carries."""
        self.fatal = False
        self._initialized = False
        self._talks: dict[str, Talk] = {}
        self._partial_requests: dict[str, None] = {}
        self._abandoned: set[str] = set()
        self._ids = EventIds()
        # Ids that are used up only become more. Dicts keep their order, so that a snapshot can tell the newest alone.
        self._closed_messages: dict[str, None] = {}
        self._known_steers: set[str] = set()
        self._resolved: dict[str, None] = {}
        self._ended_streams: dict[str, None] = {}
        self._ended_turns: dict[str, None] = {}
        self._just_paused: list[OpenAgent] = []
        self._must_cancel: str | None = None

    @property
    def pending(self) -> list[str]:
        """The ids of the requests that wait for the host, oldest first."""
        return [request.id for request in self.requests.values() if request.status == "waiting"]

    def _place(self, event: Event, kind: str) -> bool:
        """Check that the event may stand where it stands; whether it opens a stream."""
        stream_id = event.stream_id
        if stream_id == self.stream_id:
            if stream_id is None:
                if kind not in _OUTSIDE:
                    self._refuse("LIFE-15", f"{kind} without a stream", event)
                if event.turn_id is not None and event.turn_id != self.turn_id:
                    self._refuse("TURN-01", f"{kind} of turn {event.turn_id}, which does not wait", event)
            elif event.turn_id != self.turn_id:
                self._refuse("TURN-01", f"turn {event.turn_id} in a stream of turn {self.turn_id}", event)
            return False
        if stream_id is None:
            self._refuse("LIFE-15", f"{kind} without a stream_id while stream {self.stream_id} runs", event)
        if kind == "initialize":
            self._refuse("LIFE-15", "initialize inside a stream", event)
        if stream_id in self._ended_streams:
            if self.stream_id is not None:
                self._refuse("ORD-09", f"{kind} under the ended stream {stream_id}", event)
            self._refuse("LIFE-05", f"{kind} after stream_end", event)
        if self.stream_id is not None:
            self._refuse("LIFE-07", f"stream {stream_id} while stream {self.stream_id} runs", event)
        if event.turn_id is None:
            self._refuse("TURN-01", "a stream without a turn", event)
        if self.state == "input_required":
            if event.turn_id != self.turn_id:
                self._refuse("TURN-01", f"turn {event.turn_id} while turn {self.turn_id} waits", event)
        elif event.turn_id in self._ended_turns:
            self._refuse("TURN-01", f"a stream of turn {event.turn_id}, which ended", event)
        return True

    def _check_cancelled(self, event: Event, kind: str) -> None:
        settles = isinstance(event, ElicitationResponse) and event.request_id == self._must_cancel
        if not settles or cast(ElicitationResponse, event).action != "cancel":
            self._refuse(
                "HITL-07", f"{kind} where the unsupported question {self._must_cancel} must be cancelled", event
            )

    # One handler a type: it checks, raises or returns the mutation. -----------------------------------------------

    def _initialize(self, event: Event) -> Fork:
        def apply() -> None:
            self._initialized = True
            self.session_id = event.session_id

        return apply

    def _agent_start(self, event: AgentStart) -> Fork:
        thread, parent = event.thread_id, event.parent_thread_id
        if thread is not None and thread not in self.agents and not self.agents.get(parent):
            self._refuse("LIFE-04", f"agent_start on thread {thread}, whose parent thread has no open agent", event)

        def apply() -> None:
            self.agents.setdefault(thread, []).append(event.agent_id)
            if thread is not None:
                self.parents.setdefault(thread, parent)
            if event.resumed:
                resumed = next((a for a in self.paused if (a.thread_id, a.agent_id) == (thread, event.agent_id)), None)
                self.paused = [agent for agent in self.paused if agent is not resumed]

        return apply

    def _agent_end(self, event: AgentEnd) -> Fork:
        thread, agent = event.thread_id, event.agent_id
        stack = self.agents.get(thread)
        if not stack or stack[-1] != agent:
            self._refuse("LIFE-16", f"agent_end of {agent}, which is not the innermost open agent of its thread", event)
        if len(stack) == 1:
            child = next((t for t, p in self.parents.items() if p == thread and t != thread and t in self.agents), None)
            if child is not None:
                self._refuse("LIFE-16", f"agent_end of {agent} while its child thread {child} is open", event)
        for message_id, talk in self._talks.items():
            if talk.thread_id == thread and (talk.agent_id in (None, agent) or len(stack) == 1):
                self._refuse("LIFE-16", f"agent_end of {agent} before its message {message_id} is closed", event)

        def apply() -> None:
            stack.pop()
            parent = self.parents.get(thread)
            if not stack:
                del self.agents[thread]
                self.parents.pop(thread, None)
            if event.reason == "input_required":
                self._just_paused.append(OpenAgent(agent_id=agent, thread_id=thread, parent_thread_id=parent))

        return apply

    def _message(self, event: Message) -> Fork:
        message_id = event.message_id
        if message_id in self._closed_messages:
            if message_id in self._known_steers:
                self._refuse("CTL-06", f"steer {message_id} was injected before", event)
            self._refuse("LIFE-14", f"message {message_id} was closed before", event)
        talk = self._talks.get(message_id)
        if talk is not None and (talk.thread_id, talk.role) != (event.thread_id, event.role):
            self._refuse("LIFE-14", f"message {message_id} began on another thread or in another role", event)
        if event.partial:
            if self.fatal:
                self._refuse("LIFE-10", "a delta after a fatal error", event)

            def extend() -> None:
                nonlocal talk
                if talk is None:
                    talk = self._talks[message_id] = Talk(event.thread_id, event.agent_id, event.role, {})
                collect(talk.texts, event.content)

            return extend
        if self.fatal and event.source == "agent" and not event.interrupted:
            # In a stored record, which holds no deltas, a cut message can only be told from a new one by this mark.
            self._refuse("LIFE-10", "a message after a fatal error that is not marked interrupted", event)
        if talk is not None and not event.revised and text_by_type(event.content) != joined(talk.texts):
            self._refuse("LIFE-14", f"message {message_id} does not agree with its deltas", event)

        def close() -> None:
            self._talks.pop(message_id, None)
            self._closed_messages[message_id] = None
            self.steers.pop(message_id, None)

        return close

    def _tool_request(self, event: ToolRequest) -> Fork:
        request_id = event.request_id
        self._check_new_request(request_id, event)
        if event.partial:  # of which the whole request may follow under the same id
            return lambda: self._partial_requests.setdefault(request_id)

        def apply() -> None:
            self._partial_requests.pop(request_id, None)
            self.requests[request_id] = RequestState(
                id=request_id,
                kind="tool",
                name=event.name,
                needs=event.needs,
                status="in_flight" if event.needs == "none" else "waiting",
                thread_id=event.thread_id,
                agent_id=event.agent_id,
                # A copy: who reads the event may change it in place; what is decided on must stay what was asked.
                args=check_json(event.args),
            )

        return apply

    def _elicitation_request(self, event: ElicitationRequest) -> Fork:
        request_id = event.request_id
        self._check_new_request(request_id, event)
        if request_id in self._partial_requests:
            self._refuse("TOOL-03", f"request id {request_id} belongs to a tool request that is being streamed", event)
        linked = event.tool_request_id
        if linked is not None and (linked not in self.requests or self.requests[linked].kind != "tool"):
            self._refuse("TOOL-02", f"a question about {linked}, which is not an open tool request", event)

        def apply() -> None:
            self.requests[request_id] = RequestState(
                id=request_id,
                kind="elicitation",
                name=event.kind,
                needs="answer",
                status="waiting",
                thread_id=event.thread_id,
                agent_id=event.agent_id,
                requested_schema=check_json(event.requested_schema),
                tool_request_id=linked,
            )
            if linked is not None and event.kind == "tool_confirmation":
                self.requests[linked].confirmation = "waiting"
            if self.host_kinds is not None and event.kind not in self.host_kinds:
                self._must_cancel = request_id

        return apply

    def _check_new_request(self, request_id: str, event: Event) -> None:
        if request_id in self.requests or request_id in self._resolved or request_id in self._abandoned:
            self._refuse("TOOL-03", f"request id {request_id} was used before", event)

    def _open_request(self, request_id: str, event: Event, after: str = "TOOL-01") -> RequestState:
        request = self.requests.get(request_id)
        if request is None:
            if request_id in self._resolved:
                self._refuse(after, f"request {request_id} has had its response", event)
            self._refuse("TOOL-02", f"there is no request {request_id}", event)
        return request

    def _tool_decision(self, event: ToolDecision) -> Fork:
        request = self._open_request(event.request_id, event, after="TOOL-15")
        if request.kind != "tool":
            self._refuse("TOOL-02", f"{request.id} is a question, not a tool request", event)
        if request.status != "waiting":
            self._refuse("TOOL-15", f"request {request.id} is {request.status}: it cannot be decided", event)
        decided = request.args if event.args is None else event.args
        if event.args_digest != args_digest(decided or {}):
            which = "requested" if event.args is None else "edited"
            self._refuse(
                "HITL-04", f"the digest of the decision on {request.id} is not that of the {which} arguments", event
            )

        def apply() -> None:
            request.status = "granted" if event.decision == "granted" else "denied"

        return apply

    def _tool_update(self, event: ToolUpdate) -> Fork | None:
        request = self._open_request(event.request_id, event, after="TOOL-12")
        if request.kind != "tool":
            self._refuse("TOOL-02", f"{event.request_id} is a question, not a tool request", event)
        if not event.started:
            return None
        if request.needs in ("grant", "none") or request.status != "waiting":
            self._refuse("TOOL-16", f"{request.name} is no tool that waits for the host to run it", event)
        if request.started:
            self._refuse("TOOL-16", f"{request.name} was started before", event)

        def apply() -> None:
            request.started = True

        return apply

    def _tool_response(self, event: ToolResponse) -> Fork:
        request = self._open_request(event.request_id, event)
        if request.kind != "tool":
            self._refuse("TOOL-02", f"{request.id} is a question, not a tool request", event)
        ran = event.status not in _DID_NOT_RUN and event.source == "agent"
        done = event.status not in _DID_NOT_RUN and event.status != "failed"
        if ran and request.needs == "grant" and request.status != "granted":
            self._refuse("TOOL-05", f"tool {request.name} ran without a grant", event)
        if ran and request.needs not in ("grant", "none"):
            self._refuse("TOOL-05", f"the executor ran {request.name}, which the host runs", event)
        if request.started and event.status in ("cancelled", "denied"):
            self._refuse("TOOL-16", f"{request.name} had started, so it cannot be {event.status}", event)
        if done and request.status == "denied":
            self._refuse("TOOL-05", f"tool {request.name} completed although it was denied", event)
        if ran and done and request.confirmation is not None:
            if request.confirmation == "waiting":
                self._refuse("HITL-01", f"tool {request.name} completed before its confirmation was answered", event)
            if request.confirmation != "accept":
                self._refuse("HITL-02", f"tool {request.name} completed although it was not confirmed", event)
        return lambda: self._resolve(request.id)

    def _elicitation_response(self, event: ElicitationResponse) -> Fork:
        request = self._open_request(event.request_id, event)
        if request.kind != "elicitation":
            self._refuse("TOOL-02", f"{request.id} is a tool request, not a question", event)
        if event.action != "accept" and event.content is not None:
            self._refuse("HITL-09", f"{event.action} with content", event)
        if event.action == "accept" and request.name in CONFIRMATIONS and contradicts_yes(event.content):
            self._refuse("HITL-08", f"the content of the acceptance of {request.id} contradicts it", event)

        def apply() -> None:
            self._must_cancel = None
            self._resolve(request.id)
            linked = self.requests.get(request.tool_request_id or "")
            if linked is not None and request.name == "tool_confirmation":
                self._confirm(linked, event.action)

        return apply

    def _confirm(self, tool: RequestState, action: str) -> None:
        """Of several questions about one tool, each must be accepted: a no stays, a yes waits for the others."""
        asks = (r for r in self.requests.values() if r.tool_request_id == tool.id and r.name == "tool_confirmation")
        if action != "accept" or (tool.confirmation == "waiting" and next(asks, None) is None):
            tool.confirmation = action

    def _resolve(self, request_id: str) -> None:
        del self.requests[request_id]
        self._resolved[request_id] = None

    def _error(self, event: Error) -> Fork | None:
        if not event.fatal or event.stream_id is None:
            return None

        def apply() -> None:
            self.fatal = True

        return apply

    def _stream_end(self, event: StreamEnd) -> Fork:
        if event.stream_id is None:
            self._refuse("LIFE-15", "stream_end without a stream_id", event)
        if self._talks:
            self._refuse("LIFE-14", f"stream_end with the open message {next(iter(self._talks))}", event)
        if self.agents:
            names = ", ".join(agent for stack in self.agents.values() for agent in stack)
            self._refuse("LIFE-16", f"stream_end with open agents: {names}", event)
        waits = bool(event.pending)
        waits_by = event.reason == "input_required" or (waits and event.reason not in _FINAL_REASONS)
        if self.fatal and (event.reason == "completed" or waits_by):
            self._refuse("LIFE-18", f"stream_end {event.reason} after a fatal error", event)
        if set(event.pending) != set(self.pending) or len(set(event.pending)) != len(event.pending):
            self._refuse("LIFE-17", f"pending lists {event.pending}, what waits is {self.pending}", event)
        if waits != waits_by:
            self._refuse("LIFE-17", f"stream_end {event.reason} with pending {event.pending}", event)
        if not waits and self.requests:
            self._refuse("TOOL-01", f"a final end with open requests: {', '.join(self.requests)}", event)
        undelivered = self._undelivered(event) if not waits else []
        stream_id, turn_id = event.stream_id, cast(str, event.turn_id)

        def apply() -> None:
            self._ended_streams[stream_id] = None
            self.stream_id = None
            self.fatal = False
            self._abandoned.update(self._partial_requests)
            self._partial_requests.clear()
            self.parents.clear()
            if waits:
                self.state = TRANSITIONS["running"]["end_waiting"]
                self.paused += reversed(self._just_paused)
            else:
                self.state = TRANSITIONS["running"]["end_final"]
                self._ended_turns[turn_id] = None
                self.turn_id = None
                self.paused = []
                self.steers.clear()
                self._closed_messages.update(dict.fromkeys(undelivered))  # so that none of them is injected later
            self._just_paused = []

        return apply

    def _undelivered(self, event: StreamEnd) -> list[str]:
        """The steers that this final end lists as undelivered: all that are queued, and none that was injected."""
        found = (event.data or {}).get("undelivered")
        listed = [steer for steer in found if isinstance(steer, str)] if isinstance(found, list) else []
        missing = next((steer for steer in self.steers if event.reason == "completed" or steer not in listed), None)
        if missing is not None:
            self._refuse("CTL-06", f"the turn ends {event.reason} and leaves out the steer {missing}", event)
        twice = next((steer for steer in listed if steer in self._closed_messages), None)
        if twice is not None:
            self._refuse("CTL-06", f"steer {twice} is listed as undelivered and was injected", event)
        return listed

    def _refuse(self, rule: str, what: str, event: Event | None) -> NoReturn:
        where = f"session {self.session_id or (event.session_id if event else '')}"
        if event is not None:
            where += f", stream {event.stream_id}" if event.stream_id else ""
            where += f", event #{event.seq}" + (f" (id {event.id})" if event.id else "")
        raise ProtocolViolation(
            rule,
            what,
            blame=self.blame,
            where=where,
            expected=RULES[rule].sentence,
            got=event.type if event is not None else None,
            fix=RULES[rule].fix or None,
        )


def collect(texts: dict[str, list[str]], parts: Sequence[ContentPart]) -> None:
    for part in parts:
        if isinstance(part, _TEXTUAL):
            pieces = texts.get(part.type)
            if pieces is None:
                texts[part.type] = [part.text]
            else:
                pieces.append(part.text)


def joined(texts: Mapping[str, list[str]]) -> dict[str, str]:
    return {kind: text for kind, pieces in texts.items() if (text := "".join(pieces))}


HANDLERS: Final[Mapping[str, Callable[[EventRules, Any], Fork | None]]] = {
    "initialize": EventRules._initialize,
    "agent_start": EventRules._agent_start,
    "agent_end": EventRules._agent_end,
    "message": EventRules._message,
    "tool_request": EventRules._tool_request,
    "tool_decision": EventRules._tool_decision,
    "tool_update": EventRules._tool_update,
    "tool_response": EventRules._tool_response,
    "elicitation_request": EventRules._elicitation_request,
    "elicitation_response": EventRules._elicitation_response,
    "error": EventRules._error,
    "stream_end": EventRules._stream_end,
    "usage": lambda machine, event: None,
    "custom": lambda machine, event: None,
    "session_update": lambda machine, event: None,
}
