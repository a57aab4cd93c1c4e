"""One AG-UI run: the events of a session go in, AG-UI events come out.

Not for: I/O, clocks, reading inputs (the ``_in`` and ``_app`` modules). Rules carried: none of its own.
May import: ``protocol``, the ``_out`` modules.

::

    known = Known.of(record)                    # once for each live session; kept, and fed by the runs
    run = RunMapper(thread_id=..., run_id=..., known=known, input_message_ids={"m-7"})
    out = run.start(client_state=run_input.state)
    async for event in stream: out += run.feed(event)     # of every stream that the run covers, in order
    history = record if run.needs_history else ()
    out += run.finish(history=history, client_messages=run_input.messages)

What of a turn was streamed before is never sent again: a client would append it. To join a stream that runs already,
make the run with ``Known.of(record before the stream)``, call ``start(history=record before the stream)``, and feed it
the stream from its beginning: the snapshot makes the client forget what it has of it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from agentsession.host.agui._out_agents import AgentsOut
from agentsession.host.agui._out_below import told_below
from agentsession.host.agui._out_known import Known, client_message_id
from agentsession.host.agui._out_outcome import Outcome, Spending, outcome_of
from agentsession.host.agui._out_places import CallPlaces
from agentsession.host.agui._out_snapshots import message_ids, messages_snapshot
from agentsession.host.agui._out_state import state_snapshot
from agentsession.host.agui._out_text import ROLES, TextOut, call_signature
from agentsession.host.agui._out_tools import ToolsOut
from agentsession.host.agui._out_wire import (
    Wire,
    activity,
    custom,
    messages_snapshot_event,
    raw,
    run_error,
    run_finished,
    run_started,
    stamped,
)
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    Custom,
    ElicitationRequest,
    ElicitationResponse,
    Error,
    Event,
    FunctionCall,
    Initialize,
    Message,
    SessionUpdate,
    StreamEnd,
    ToolDecision,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    Usage,
)

__all__ = ["OutOptions", "RunMapper"]

_UNTOLD: Final[Any] = object()
_ACTIVITIES: Final = frozenset({"plan", "ui_widget"})
"""Kinds of custom events that a client shows among the messages."""
_TOLD: Final = ("title", "model", "permissionMode")
"""What a client is told of an update of the session, beside the state. The open config may hold anything."""


@dataclasses.dataclass(frozen=True, slots=True)
class OutOptions:
    """``raw``: events of types that have no form here are sent as ``RAW`` rather than left out."""

    raw: bool = False


class RunMapper:
    """One run; see the module.

    ``known`` is shared by the runs of a session, one after another. ``input_message_ids``: messages of this run's own
    input, which its client has already. ``answered``: ids of the client's tool messages in this input by request id,
    for results that do not carry them (``result_display``). ``client_tools``: the tools that the client runs; ``None``:
    all that need a result (the client is the host).
    """

    def __init__(
        self,
        *,
        thread_id: str,
        run_id: str,
        known: Known,
        parent_run_id: str | None = None,
        input_message_ids: Collection[str] = (),
        answered: Mapping[str, str] | None = None,
        client_tools: Collection[str] | None = None,
        options: OutOptions | None = None,
    ) -> None:
        self.thread_id, self.run_id, self.parent_run_id = thread_id, run_id, parent_run_id
        self.known = known
        self.options = options or OutOptions()
        self.client_tools = client_tools
        self.is_over = False
        """Whether the terminal event was made: nothing may follow it."""
        self.end: StreamEnd | None = None
        """The end of the last stream that was fed."""
        self._is_state_told = False
        """Whether the client's state is known to be ours, so that a delta of it can be applied."""
        self._mine = frozenset(input_message_ids)
        self._answered = dict(answered or {})
        self._text = TextOut()
        self._tools = ToolsOut(self._answered)
        self._agents = AgentsOut(known.threads)
        self._places = CallPlaces()
        self._spending = Spending()
        self._fatal: Error | None = None
        self._result: list[Any] = []
        self._handlers: dict[type[Event], Callable[[Any], list[Wire]]] = {
            Initialize: _nothing,
            SessionUpdate: self._update,
            AgentStart: self._agent_start,
            AgentEnd: self._agent_end,
            Message: self._message,
            ToolRequest: self._request,
            ToolDecision: self._tools.decision,
            ToolUpdate: self._progress,
            ToolResponse: self._response,
            ElicitationRequest: _nothing,
            ElicitationResponse: _answered,
            Usage: self._usage,
            Error: self._error,
            StreamEnd: self._stream_end,
            Custom: self._custom,
        }

    # -- the beginning ------------------------------------------------------------------------------------------------

    def start(
        self,
        *,
        session_id: str | None = None,
        turn_id: str | None = None,
        client_state: Any = _UNTOLD,
        history: Iterable[Event] | None = None,
        client_messages: Sequence[Mapping[str, Any]] = (),
        blank_reasoning: Iterable[str] = (),
    ) -> list[Wire]:
        """``RUN_STARTED``, and what the client must have first.

        ``client_state``: what the client says that the state is, once what it changed is applied; where the state is
        another, it gets a ``STATE_SNAPSHOT``. Not given: it gets one before the first delta.
        ``history``: the record, where the client is to be told the whole conversation, as if ``known.is_behind``.
        ``client_messages``: what the client has, as it came, without what is about to be streamed again.
        ``blank_reasoning``: ids of the reasoning of that.
        """
        out = [
            run_started(self.thread_id, self.run_id, self.parent_run_id, sessionId=session_id, turnId=turn_id),
        ]
        if client_state is not _UNTOLD:
            self._is_state_told = True
            if not _same(client_state, self.known.seen_state):
                out.append(state_snapshot(self.known.state.value, self.known.hides))
        unsent, self.known.unsent = self.known.unsent, []
        if history is None:
            for event in unsent:
                out += stamped(self._response(event), event)
        else:
            self.known.is_behind = False
            messages = messages_snapshot(
                history, client_messages=client_messages, answered=self._answered, blank_reasoning=blank_reasoning
            )
            out.append(messages_snapshot_event(messages))
        return out

    # -- events -------------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> list[Wire]:
        """The AG-UI events of one event of the session; the SSE id of each is the event's ``seq``."""
        if type(event) is Message and event.partial:  # by far the most: nothing is remembered of one
            return stamped(self._message(event), event)
        self._state = self.known.fold(event)
        self._places.note(event)
        handler = self._handlers.get(type(event), self._unknown)
        return stamped(handler(event), event)

    _state: list[Wire] = []  # noqa: RUF012  # set before each use

    def _tag(self, event: Event) -> dict[str, str]:
        return {} if event.thread_id is None else self.known.threads.tag(event.thread_id)

    def _update(self, event: SessionUpdate) -> list[Wire]:
        out = self._state
        if out and not self._is_state_told:
            self._is_state_told = True
            out = [state_snapshot(self.known.state.value, self.known.hides)]
        wire = event.to_wire()
        told: Wire = {name: wire[name] for name in _TOLD if name in wire}
        if event.tools is not None:
            told["tools"] = [tool.name for tool in event.tools]
        return [*out, *([custom("session_update", told)] if told else [])]

    def _agent_start(self, event: AgentStart, parent_call: str | None = None) -> list[Wire]:
        if event.thread_id is None:
            return self._agents.start(event)
        return self._agents.start(event, parent_call or self._call_of(event), self.known.description(event.agent_id))

    def _call_of(self, event: AgentStart) -> str | None:
        """The call that a sub-agent works for: one of the thread above it, for a tool of the agent's name."""
        above = event.parent_thread_id or (event.thread_id or "").rpartition(".")[0] or None
        taken = set(self._agents.parent_calls)
        for request_id, call in self.known.calls.items():
            if call.name == event.agent_id and call.thread_id == above and request_id not in taken:
                return request_id
        return None

    def _agent_end(self, event: AgentEnd) -> list[Wire]:
        if event.thread_id is None and "result" in event.model_fields_set:
            self._result = [event.result]
        return self._agents.end(event)

    def _message(self, event: Message) -> list[Wire]:
        if event.role in ROLES and not self._mine.isdisjoint(message_ids(event)):
            return []
        out = self._text.feed(event, self._tag(event))
        if not event.partial:
            for part in event.content:
                if isinstance(part, FunctionCall) and part.id is not None and (signature := call_signature(part)):
                    out += self._tools.sign(part.id, signature, self._tag(event))
        return out

    def _request(self, event: ToolRequest) -> list[Wire]:
        if self._tools.has_begun(event.request_id):
            return self._tools.request(event, self._tag(event))
        tag, message_id = self._tag(event), self._places.of(event)
        owner = self._text.owner(message_id) if message_id is not None else None
        if owner is not None and owner != tag:
            message_id = None  # a call is its message's agent's
        self._places.placed(event, message_id)
        return self._tools.request(event, tag, message_id)

    def _progress(self, event: ToolUpdate) -> list[Wire]:
        children = told_below(event)
        if not children:
            return self._tools.update(event, self._tag(event))
        return [item for child in children for item in self._child(event, child)]

    def _response(self, event: ToolResponse) -> list[Wire]:
        ends = self._agents.end_call(event.request_id, event.is_error)
        return [*ends, *self._tools.response(event, client_message_id(event), self._tag(event))]

    def _child(self, update: ToolUpdate, event: Event) -> list[Wire]:
        """What a sub-agent in a session of its own does, whose events come as progress of a call."""
        self._places.note(event)
        is_new = self.known.fold_child(update.request_id, event)
        match event:
            case AgentStart():
                return self._agent_start(event, update.request_id)
            case AgentEnd():
                return self._agents.end(event)
            case Message() if event.role not in ROLES and not self._text.is_said(event.message_id):
                return self._message(event)
            case ToolRequest() if not self._tools.has_begun(event.request_id):
                return self._request(event)
            case ToolResponse() if is_new:
                return self._response(event)
            case ToolDecision() | Usage() | Custom():
                return self._handlers[type(event)](event)
            case Error():
                return self._error(event.model_copy(update={"fatal": False}))
            case _:
                return []

    def _usage(self, event: Usage) -> list[Wire]:
        self._spending.add(event)
        return []

    def _error(self, event: Error) -> list[Wire]:
        if event.fatal:
            self._fatal = event  # of this stream: it ends at once
            return []
        value = {"status": event.status, "message": event.message}
        return [custom("error", value if event.code is None else {**value, "code": event.code})]

    def _custom(self, event: Custom) -> list[Wire]:
        if event.kind not in _ACTIVITIES:
            return [custom(event.kind, event.data)]
        place = [event.turn_id or event.session_id, *([event.thread_id] if event.thread_id else [])]
        message_id = f"{'.'.join(place)}.plan" if event.kind == "plan" else f"{event.id}.w"
        return [activity(message_id, event.kind, event.data, **self._tag(event))]

    def _unknown(self, event: Event) -> list[Wire]:
        return [raw(event.to_wire())] if self.options.raw else []

    def _stream_end(self, event: StreamEnd) -> list[Wire]:
        self.end = event
        if self._fatal is not None and self._fatal.stream_id != event.stream_id:
            self._fatal = None
        return [*self._text.close_all(), *self._tools.close_all(), *self._agents.end_stream(event.reason)]

    # -- the end ------------------------------------------------------------------------------------------------------

    @property
    def needs_history(self) -> bool:
        """Whether :meth:`finish` needs the record: the client must be told the whole conversation."""
        return self._text.needs_snapshot or self._tools.needs_snapshot or self._outcome().needs_snapshots

    def finish(
        self,
        end: StreamEnd | None = None,
        *,
        history: Iterable[Event] = (),
        client_messages: Sequence[Mapping[str, Any]] = (),
        interrupts: Sequence[Wire] = (),
    ) -> list[Wire]:
        """The last events: closings, snapshots, ``RUN_FINISHED`` or ``RUN_ERROR``.

        ``end``: the last stream's, where it was not fed, such as in a run in which nothing was new. ``interrupts``:
        what the host itself asks a person. ``history``: the record, if :attr:`needs_history`.
        """
        self.end = end or self.end
        outcome = self._outcome(interrupts)
        out = self._closings(outcome)
        if outcome.needs_snapshots:
            out.append(state_snapshot(self.known.state.value, self.known.hides))
        if outcome.needs_snapshots or self._text.needs_snapshot or self._tools.needs_snapshot:
            messages = messages_snapshot(history, client_messages=client_messages, answered=self._answered)
            out.append(messages_snapshot_event(messages))
            self.known.is_behind = False
        self.is_over = True
        about = {**outcome.about, "cost": self._spending.cost}
        usage = self._spending.rows()
        if outcome.outcome is None:
            out.append(run_error(outcome.message, outcome.code, usage, **about))
        else:
            result = self._result if self.end is not None and self.end.reason == "completed" else []
            out.append(run_finished(self.thread_id, self.run_id, outcome.outcome, usage, result, **about))
        return out if self.end is None else stamped(out, self.end)

    def fail(self, code: str, message: str) -> list[Wire]:
        """End the run with an error that is not the agent's; what is open is closed first."""
        self.is_over = True
        return [*self._closings(None), run_error(message, code, self._spending.rows())]

    def _outcome(self, interrupts: Sequence[Wire] = ()) -> Outcome:
        if self.end is None:
            return Outcome({"type": "success"})
        return outcome_of(self.end, self.known, self._fatal, self.client_tools, interrupts)

    def _closings(self, outcome: Outcome | None) -> list[Wire]:
        """What is still open. A sub-agent is suspended where the run's interrupts let it go on."""
        told = outcome.outcome.get("interrupts", ()) if outcome is not None and outcome.outcome is not None else ()
        interrupts = {item["id"] for item in told}

        def waiting(thread: str) -> list[str]:
            below = (item for asked in self.known.below.values() for item in asked.values())
            asked = [item for item in (*self.known.asked.values(), *below) if item.request_id in interrupts]
            return [item.request_id for item in asked if _is_under(item.thread_id, thread)]

        reason = "failed" if outcome is None else self.end.reason if self.end is not None else "input_required"
        return [*self._text.close_all(), *self._tools.close_all(), *self._agents.end_run(waiting, reason)]


def _is_under(thread: str | None, above: str) -> bool:
    return thread is not None and (thread == above or thread.startswith(f"{above}."))


def _nothing(event: Event) -> list[Wire]:
    return []


def _answered(event: ElicitationResponse) -> list[Wire]:
    """How a question was answered; what was said may be a secret."""
    return [custom("elicitation_response", {"requestId": event.request_id, "action": event.action})]


def _same(first: Any, second: Any) -> bool:
    """Whether two states are the same to JSON; an absent one is an empty object."""
    given = {} if first is None else first
    return given is second or json.dumps(given, sort_keys=True) == json.dumps(second, sort_keys=True)
