"""The session state machine: every rule about the order of events and calls lives here, and only here.

Theory of operation
-------------------
:class:`SessionMachine` does no I/O, knows no clock and makes no ids. It is fed events, one at a time, by whoever has
them: the executor base class before it appends one to the record, a host or a remote client when it receives one, the
conformance suite when it reads a record. It *accepts* an event (checks first, then changes itself) or raises
:class:`ProtocolViolation` with the id of the rule and is unchanged. What it knows is a function of the events it was
fed, so folding a record gives the live state (PER-03); the queue of steers is the one thing that no event carries.

The state follows one table, :data:`TRANSITIONS`; docs/reference/lifecycle.md is drawn from it.

Rules carried: those of ``_rules.RULES`` that are marked ``machine``. What an answer must look like is in
``_answers.py``. May import: the models, ``_errors``, ``_rules``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn, Self, cast

from agentsession.protocol._answers import CONFIRMATIONS, AnswerCheck, RequestState, check_answer, contradicts_yes
from agentsession.protocol._content import ContentPart, Text, Thought, text_by_type
from agentsession.protocol._errors import Blame, NothingToContinue, ProtocolViolation, SessionClosed, StreamActive
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
from agentsession.protocol._inputs import Answer, Receipt
from agentsession.protocol._json import args_digest
from agentsession.protocol._rules import RULES
from agentsession.protocol._session import SessionState
from agentsession.protocol._snapshot import MachineSnapshot, OpenAgent, OpenMessage, OpenRequest

__all__ = ["STATES", "TRANSITIONS", "SessionMachine", "Trigger"]

STATES: Final[tuple[SessionState, ...]] = ("new", "idle", "running", "input_required", "closed")

Trigger = Literal[
    "message", "continue", "answer", "steer", "update", "abort", "open", "end_waiting", "end_final", "close", "abandon"
]
"""What can happen: host calls (``message`` and ``continue`` are ``stream()``), a stream that opens or ends, closing.

``abandon`` closes a session whose stream never ended: AbortTimeout, or a peer that broke a rule.
"""

TRANSITIONS: Final[Mapping[SessionState, Mapping[Trigger, SessionState]]] = MappingProxyType(
    {
        "new": MappingProxyType(
            {
                "message": "running",
                "open": "running",
                "answer": "new",
                "update": "new",
                "abort": "new",
                "close": "closed",
                "abandon": "closed",
            }
        ),
        "idle": MappingProxyType(
            {
                "message": "running",
                "open": "running",
                "answer": "idle",
                "update": "idle",
                "abort": "idle",
                "close": "closed",
                "abandon": "closed",
            }
        ),
        "running": MappingProxyType(
            {
                "answer": "running",
                "steer": "running",
                "update": "running",
                "abort": "running",
                "end_waiting": "input_required",
                "end_final": "idle",
                "abandon": "closed",
            }
        ),
        "input_required": MappingProxyType(
            {
                "message": "running",
                "continue": "running",
                "open": "running",
                "answer": "input_required",
                "steer": "input_required",
                "update": "input_required",
                "abort": "idle",
                "close": "closed",
                "abandon": "closed",
            }
        ),
        "closed": MappingProxyType({}),
    }
)
"""Where each trigger leads; a trigger that is not in a state's row is refused there. One lookup, one place that raises.

``abort`` of a running turn and ``message`` over pending requests take the way through a settlement stream.
"""

_OUTSIDE: Final = frozenset(
    {"initialize", "session_update", "tool_decision", "tool_update", "tool_response", "elicitation_response", "custom"}
)
"""Types that may appear without a stream_id: LIFE-15."""

_NEEDS_AGENT: Final = frozenset({"message", "tool_request", "elicitation_request", "usage", "custom", "session_update"})
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

_CLOSINGS: Final = frozenset({"message", "tool_response", "elicitation_response", "agent_end", "stream_end"})
"""What may follow a fatal error: LIFE-10."""

Fork = Callable[[], None]
"""The mutation of an accepted event, run after all its checks."""


@dataclasses.dataclass(slots=True)
class _Talk:
    """A message with deltas and no closing event yet, and the pieces of its text by part type."""

    thread_id: str | None
    agent_id: str | None
    role: str
    texts: dict[str, list[str]]


class SessionMachine:
    """The rules of one session's record and calls; see the module's docstring.

    ``blame`` is who fed the events: ``executor`` in this process, ``peer`` behind a connection.
    ``host_kinds`` are the elicitation kinds that the host can show, ``None`` for all (HITL-07).
    """

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
        self._talks: dict[str, _Talk] = {}
        self._partial_requests: dict[str, None] = {}
        self._abandoned: set[str] = set()
        self._ids: set[str] = set()
        self._closed_messages: set[str] = set()
        self._known_steers: set[str] = set()
        self._resolved: set[str] = set()
        self._ended_streams: set[str] = set()
        self._ended_turns: set[str] = set()
        self._just_paused: list[OpenAgent] = []
        self._must_cancel: str | None = None

    # -- what can be asked ------------------------------------------------------------------------------------------

    @property
    def pending(self) -> list[str]:
        """The ids of the requests that wait for the host, oldest first."""
        return [request.id for request in self.requests.values() if request.status == "waiting"]

    @property
    def open_messages(self) -> Mapping[str, _Talk]:
        """Messages with deltas and no closing event."""
        return MappingProxyType(self._talks)

    def is_ended(self, stream_id: str) -> bool:
        """Whether that stream has had its stream_end."""
        return stream_id in self._ended_streams

    @property
    def ended_streams(self) -> Set[str]:
        """The ids of the streams that have had their stream_end."""
        return self._ended_streams

    def is_closed_message(self, message_id: str) -> bool:
        """Whether that message_id is used up."""
        return message_id in self._closed_messages

    def is_resolved(self, request_id: str) -> bool:
        """Whether that request has had its response."""
        return request_id in self._resolved

    # -- host calls -------------------------------------------------------------------------------------------------

    def check_call(self, trigger: Trigger) -> SessionState:
        """The state that ``trigger`` leads to; raises what the call raises if the table has none. Changes nothing."""
        row = TRANSITIONS[self.state]
        if trigger in row:
            return row[trigger]
        if self.state == "closed":
            raise SessionClosed(
                "the session is closed", where=f"session {self.session_id}", fix="load it, or open another one"
            )
        if self.state == "running" and trigger in ("message", "continue"):
            raise StreamActive(
                "a stream runs already",
                where=f"session {self.session_id}, stream {self.stream_id}",
                expected="one stream at a time (LIFE-07)",
                fix="read it to its end, or abort() it; answer with respond(), intervene with steer()",
            )
        if trigger in ("continue", "steer"):
            raise NothingToContinue(
                "no turn is waiting",
                where=f"session {self.session_id}, state {self.state}",
                fix="start a turn with a message",
            )
        raise ProtocolViolation(
            "LIFE-13", f"{trigger} while {self.state}", blame="host", fix="abort() the running stream before closing"
        )

    def check_answer(self, answer: Answer, check: AnswerCheck | None = None) -> Receipt:
        """The receipt that ``answer`` gets; changes nothing. The events that record it come through :meth:`feed`."""
        self.check_call("answer")
        return check_answer(self.requests, self._resolved, answer, check)

    def queue_steer(self, steer_id: str) -> None:
        """A steer was accepted under ``steer_id``, the message_id of its injection. Rule: CTL-06."""
        self.check_call("steer")
        if steer_id in self._known_steers or steer_id in self._closed_messages:
            self._refuse("CTL-06", f"steer {steer_id} was queued before", None)
        self._known_steers.add(steer_id)
        self.steers[steer_id] = None

    def close(self) -> None:
        """The session is closed. Raises ``LIFE-13`` while a stream runs, unless ``blame`` is ``peer``."""
        if self.state == "running" and self.blame == "peer":
            self.abandon()
        elif self.state != "closed":
            self.state = self.check_call("close")

    def abandon(self) -> None:
        """The session is closed with a stream that never ended: AbortTimeout, or a violation by a peer."""
        if self.state != "closed":
            self.state = self.check_call("abandon")

    # -- events -----------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Accept the next event of the record, or raise :class:`ProtocolViolation` and change nothing."""
        kind: str = event.type
        if kind == "message" and self._extend(event):
            return
        if self.state == "closed":
            self._refuse("LIFE-13", f"{kind} on a closed session", event)
        if event.seq <= self.seq:
            self._refuse("ORD-01", f"seq {event.seq} after {self.seq}", event)
        if event.id in self._ids:
            self._refuse("ORD-02", f"event id {event.id} was used before", event)
        if self._initialized:
            if kind == "initialize":
                self._refuse("LIFE-03", "a second initialize", event)
        elif kind != "initialize":
            self._refuse("LIFE-02", f"the record begins with {kind}", event)
        opens = self._place(event, kind)
        source = event.source
        if source == "agent":
            if self.fatal and not opens and kind not in _CLOSINGS and kind in _HANDLERS:
                self._refuse("LIFE-10", f"{kind} after a fatal error", event)
            if kind in _NEEDS_AGENT and event.stream_id is not None and not self.agents.get(event.thread_id):
                self._refuse("LIFE-04", f"{kind} without an open agent on its thread", event)
        if self._must_cancel is not None:
            self._check_cancelled(event, kind)
        handler = _HANDLERS.get(kind)
        apply = handler(self, event) if handler is not None else None
        # Nothing below may raise: the event is accepted.
        self.seq = event.seq
        self._ids.add(event.id)
        if opens:
            self.state = TRANSITIONS[self.state]["open"]
            self.stream_id = event.stream_id
            self.turn_id = event.turn_id
            self._just_paused = []
        if apply is not None:
            apply()

    def _extend(self, event: Event) -> bool:
        """Accept a further delta of an open message, by far the most frequent event, with all its checks in one breath.

        False when one of them fails or it is not a delta: the long way knows why, and refuses.
        """
        fields = event.__dict__
        talk = self._talks.get(fields["message_id"])
        thread_id = fields["thread_id"]
        if (
            talk is None
            or not fields["partial"]
            or fields["seq"] <= self.seq
            or fields["id"] in self._ids
            or fields["stream_id"] != self.stream_id
            or fields["turn_id"] != self.turn_id
            or thread_id != talk.thread_id
            or fields["role"] != talk.role
            or self.fatal
            or self._must_cancel is not None
            or self.state != "running"
            or (fields["source"] == "agent" and thread_id not in self.agents)
        ):
            return False
        self.seq = fields["seq"]
        self._ids.add(fields["id"])
        _collect(talk.texts, fields["content"])
        return True

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
                    talk = self._talks[message_id] = _Talk(event.thread_id, event.agent_id, event.role, {})
                _collect(talk.texts, event.content)

            return extend
        if self.fatal and event.source == "agent" and not event.interrupted:
            # In a stored record, which holds no deltas, a cut message can only be told from a new one by this mark.
            self._refuse("LIFE-10", "a message after a fatal error that is not marked interrupted", event)
        if talk is not None and not event.revised and text_by_type(event.content) != _joined(talk.texts):
            self._refuse("LIFE-14", f"message {message_id} does not agree with its deltas", event)

        def close() -> None:
            self._talks.pop(message_id, None)
            self._closed_messages.add(message_id)
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
                args=event.args,
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
                requested_schema=event.requested_schema,
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
            self._refuse("HITL-04", f"the digest of the decision on {request.id} is not that of its arguments", event)

        def apply() -> None:
            request.status = "granted" if event.decision == "granted" else "denied"

        return apply

    def _tool_update(self, event: ToolUpdate) -> None:
        if self._open_request(event.request_id, event, after="TOOL-12").kind != "tool":
            self._refuse("TOOL-02", f"{event.request_id} is a question, not a tool request", event)

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
        self._resolved.add(request_id)

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
            self._ended_streams.add(stream_id)
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
                self._ended_turns.add(turn_id)
                self.turn_id = None
                self.paused = []
                self.steers.clear()
                self._closed_messages.update(undelivered)  # so that none of them is injected later
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

    # -- starting in the middle -------------------------------------------------------------------------------------

    def snapshot(self, *, ephemeral: bool = True) -> MachineSnapshot:
        """All that is known, as data. ``ephemeral=False`` leaves out what only deltas and steers tell: what folding a
        stored record gives. Event ids are not in it: after :meth:`restore`, ORD-02 sees new ids only."""
        return MachineSnapshot(
            state=self.state,
            seq=self.seq if ephemeral else 0,
            session_id=self.session_id,
            stream_id=self.stream_id,
            turn_id=self.turn_id,
            initialized=self._initialized,
            fatal=self.fatal,
            requests=[OpenRequest(**dataclasses.asdict(request)) for request in self.requests.values()],
            agents=[
                OpenAgent(agent_id=agent, thread_id=thread, parent_thread_id=self.parents.get(thread))
                for thread, stack in self.agents.items()
                for agent in stack
            ],
            paused=list(self.paused),
            just_paused=list(self._just_paused),
            messages=[
                OpenMessage(
                    message_id=message_id,
                    thread_id=talk.thread_id,
                    agent_id=talk.agent_id,
                    role=talk.role,
                    texts=_joined(talk.texts),
                )
                for message_id, talk in self._talks.items()
            ]
            if ephemeral
            else [],
            partial_requests=list(self._partial_requests) if ephemeral else [],
            steers=list(self.steers) if ephemeral else [],
            known_steers=sorted(self._known_steers) if ephemeral else [],
            must_cancel=self._must_cancel,
            resolved=sorted(self._resolved),
            abandoned=sorted(self._abandoned) if ephemeral else [],
            ended_streams=sorted(self._ended_streams),
            ended_turns=sorted(self._ended_turns),
            closed_messages=sorted(self._closed_messages),
        )

    @classmethod
    def restore(
        cls, snapshot: MachineSnapshot, *, blame: Blame = "peer", host_kinds: Iterable[str] | None = None
    ) -> Self:
        """A machine that goes on where ``snapshot`` was taken."""
        machine = cls(blame=blame, host_kinds=host_kinds)
        machine.state = snapshot.state
        machine.seq = snapshot.seq
        machine.session_id = snapshot.session_id
        machine.stream_id = snapshot.stream_id
        machine.turn_id = snapshot.turn_id
        machine.fatal = snapshot.fatal
        machine._initialized = snapshot.initialized
        names = [field.name for field in dataclasses.fields(RequestState)]
        machine.requests = {
            request.id: RequestState(**{name: getattr(request, name) for name in names})
            for request in snapshot.requests
        }
        for agent in snapshot.agents:
            machine.agents.setdefault(agent.thread_id, []).append(agent.agent_id)
            if agent.thread_id is not None:
                machine.parents[agent.thread_id] = agent.parent_thread_id
        machine.paused = list(snapshot.paused)
        machine._just_paused = list(snapshot.just_paused)
        machine._talks = {
            talk.message_id: _Talk(talk.thread_id, talk.agent_id, talk.role, {k: [v] for k, v in talk.texts.items()})
            for talk in snapshot.messages
        }
        machine._partial_requests = dict.fromkeys(snapshot.partial_requests)
        machine.steers = dict.fromkeys(snapshot.steers)
        machine._known_steers = set(snapshot.known_steers)
        machine._must_cancel = snapshot.must_cancel
        machine._resolved = set(snapshot.resolved)
        machine._abandoned = set(snapshot.abandoned)
        machine._ended_streams = set(snapshot.ended_streams)
        machine._ended_turns = set(snapshot.ended_turns)
        machine._closed_messages = set(snapshot.closed_messages)
        return machine

    @classmethod
    def fold(
        cls, events: Iterable[Event], *, blame: Blame = "executor", host_kinds: Iterable[str] | None = None
    ) -> Self:
        """The machine after a whole record. Raises :class:`ProtocolViolation` at the first event that breaks a rule."""
        machine = cls(blame=blame, host_kinds=host_kinds)
        for event in events:
            machine.feed(event)
        return machine


def _collect(texts: dict[str, list[str]], parts: Sequence[ContentPart]) -> None:
    for part in parts:
        if isinstance(part, _TEXTUAL):
            texts.setdefault(part.type, []).append(part.text)


def _joined(texts: Mapping[str, list[str]]) -> dict[str, str]:
    return {kind: text for kind, pieces in texts.items() if (text := "".join(pieces))}


_HANDLERS: Final[Mapping[str, Callable[[SessionMachine, Any], Fork | None]]] = {
    "initialize": SessionMachine._initialize,
    "agent_start": SessionMachine._agent_start,
    "agent_end": SessionMachine._agent_end,
    "message": SessionMachine._message,
    "tool_request": SessionMachine._tool_request,
    "tool_decision": SessionMachine._tool_decision,
    "tool_update": SessionMachine._tool_update,
    "tool_response": SessionMachine._tool_response,
    "elicitation_request": SessionMachine._elicitation_request,
    "elicitation_response": SessionMachine._elicitation_response,
    "error": SessionMachine._error,
    "stream_end": SessionMachine._stream_end,
    "usage": lambda machine, event: None,
    "custom": lambda machine, event: None,
    "session_update": lambda machine, event: None,
}
