"""What the mapping remembers of a session between runs, all of it from the record: so a restart forgets nothing.

Not for: which messages of a client are new, or what its answers mean (the ``_in`` modules). Pure.
Rules carried: PER-03. May import: ``protocol``, ``_out_below``, ``_out_state``.

For each live session keep one :class:`Known`. :class:`RunMapper` folds into it what it is fed; what happens while no
run listens, such as a turn of another client, must be given to :meth:`Known.note` by whoever sees it. An event is
folded once, whoever brings it: those at or before :attr:`Known.seq` are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from agentsession.host.agui._out_below import told_below
from agentsession.host.agui._out_state import SharedState, is_hidden, visible
from agentsession.host.agui._out_wire import Wire
from agentsession.protocol import (
    AgentDescriptor,
    AgentEnd,
    AgentStart,
    ElicitationRequest,
    ElicitationResponse,
    Event,
    Initialize,
    SessionUpdate,
    ToolDecision,
    ToolDescriptor,
    ToolRequest,
    ToolResponse,
    ToolUpdate,
    rewind_point,
    without_rewound,
)

__all__ = ["Asked", "Invocations", "Known", "client_message_id", "result_display"]

Asked = ToolRequest | ElicitationRequest
"""A request that waits for the host."""

_AGUI: Final = "agui"


def result_display(message_id: str) -> dict[str, Any]:
    """The ``display`` of a ``ToolResult`` that a client sent as a tool message: its id is told to it again."""
    return {_AGUI: {"messageId": message_id}}


def client_message_id(response: ToolResponse) -> str | None:
    """The id of the client's tool message that a response came from; ``None`` where a client did not send it."""
    given = (response.display or {}).get(_AGUI)
    found = given.get("messageId") if isinstance(given, Mapping) else None
    return found if isinstance(found, str) else None


class Invocations:
    """Which invocation of a sub-agent a thread is in: ``thread#n``, counted over the whole record.

    A pause does not end one, and a handoff hands it on. Who goes on after an end is in another one.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._open: dict[str, int] = {}
        """How many agents are open on a thread."""
        self._handed: set[str] = set()
        self._paused: set[str] = set()

    def started(self, event: AgentStart) -> None:
        """An agent starts."""
        thread = event.thread_id
        if thread is None:
            return
        goes_on = thread in self._handed or (event.resumed and thread in self._paused)
        if not self._open.get(thread) and not goes_on:
            self._counts[thread] = self._counts.get(thread, 0) + 1
        self._counts.setdefault(thread, 1)
        self._handed.discard(thread)
        self._open[thread] = self._open.get(thread, 0) + 1

    def ended(self, event: AgentEnd) -> None:
        """An agent ends."""
        thread = event.thread_id
        if thread is None:
            return
        self._open[thread] = max(0, self._open.get(thread, 0) - 1)
        if self._open[thread]:
            return
        if event.reason == "handoff":
            self._handed.add(thread)
        (self._paused.add if event.reason == "input_required" else self._paused.discard)(thread)

    def run_id(self, thread: str | None) -> str | None:
        """The ``subagentRunId`` of what happens on ``thread`` now; ``None`` on the main thread."""
        number = self._counts.get(thread) if thread is not None else None
        return None if number is None else f"{thread}#{number}"

    def tag(self, thread: str | None) -> dict[str, str]:
        """That, as the field of an event, to be given as keywords."""
        found = self.run_id(thread)
        return {} if found is None else {"subagentRunId": found}


class Known:
    """See the module. ``hides``: which keys of the state no client may see."""

    def __init__(self, hides: Callable[[str], bool] = is_hidden) -> None:
        self.hides = hides
        self.seq = 0
        """The last event that is folded in."""
        self.descriptor: AgentDescriptor | None = None
        self.tools: dict[str, ToolDescriptor] = {}
        """The host's tools as the session was last told of them, by name."""
        self.state = SharedState()
        self.threads = Invocations()
        self.asked: dict[str, Asked] = {}
        """What waits for the host, by request id, oldest first."""
        self.calls: dict[str, ToolRequest] = {}
        """Every call without a response, by request id, oldest first."""
        self.below: dict[str, dict[str, Asked]] = {}
        """What sub-agents of the host ask, oldest first, by the call without a response that they work for."""
        self._calls_below: dict[str, set[str]] = {}
        """Their calls without a response, by the same."""
        self.unsent: list[ToolResponse] = []
        """Results that came while no stream ran: the next run says them, unless the client itself sent them."""
        self.is_behind = False
        """Whether something was said that no run of AG-UI has sent: the next run is to begin with the history."""
        self.is_stale = False
        """Whether the record was rewound after what is folded in here: make a new one, of the whole record."""

    @classmethod
    def of(cls, events: Iterable[Event], hides: Callable[[str], bool] = is_hidden) -> Known:
        """What a record, or the beginning of one, tells: after a restart, or to join a stream that runs already."""
        known = cls(hides)
        for event in without_rewound(events):
            known.fold(event)
            known.fold_children(event)
        return known

    def note(self, event: Event) -> None:
        """Fold in an event that no run maps. Nothing if it was folded before."""
        if event.seq and event.seq <= self.seq:
            return
        self.fold(event)
        self.fold_children(event)
        self.is_behind = self.is_behind or event.stream_id is not None

    def fold(self, event: Event) -> list[Wire]:
        """Fold an event in; return what a client must be sent for the state. Nothing if it was folded before.

        What sub-agents did in sessions of their own is not (:meth:`fold_child`): a run tells it one by one.
        """
        if event.seq and event.seq <= self.seq:
            return []
        self.seq = max(self.seq, event.seq)
        if event.stream_id is not None and self.unsent:
            self.unsent = []
        match event:
            case ToolRequest() | ElicitationRequest():
                self._ask(event)
            case ToolResponse():
                self.asked.pop(event.request_id, None)
                self.calls.pop(event.request_id, None)
                self.below.pop(event.request_id, None)
                self._calls_below.pop(event.request_id, None)
                if event.stream_id is None and client_message_id(event) is None:
                    self.unsent.append(event)
            case ElicitationResponse():
                self.asked.pop(event.request_id, None)
            case ToolDecision():
                self.asked.pop(event.request_id, None)
            case AgentStart():
                self.threads.started(event)
            case AgentEnd():
                self.threads.ended(event)
            case SessionUpdate():
                if event.tools is not None:
                    self.tools = {tool.name: tool for tool in event.tools}
                return self.state.fold(event, self.hides)
            case Initialize():
                self.descriptor = event.descriptor
            case _:
                self.is_stale = self.is_stale or rewind_point(event) is not None
        return []

    def fold_children(self, event: Event) -> None:
        """Fold in what sub-agents did, where ``event`` tells that."""
        if isinstance(event, ToolUpdate):
            for child in told_below(event):
                self.fold_child(event.request_id, child)

    def fold_child(self, call: str, event: Event) -> bool:
        """Fold in what a sub-agent that works for ``call`` did in a session of its own.

        Returns whether it is new: the response to a call may be told twice.
        """
        match event:
            case AgentStart():
                self.threads.started(event)
            case AgentEnd():
                self.threads.ended(event)
            case ToolRequest(partial=False) | ElicitationRequest():
                if isinstance(event, ToolRequest):
                    self._calls_below.setdefault(call, set()).add(event.request_id)
                if isinstance(event, ElicitationRequest) or event.needs != "none":
                    self.below.setdefault(call, {})[event.request_id] = _whole(event)
            case ToolResponse():
                self.below.get(call, {}).pop(event.request_id, None)
                calls = self._calls_below.get(call, set())
                is_new = event.request_id in calls
                calls.discard(event.request_id)
                return is_new
            case ToolDecision() | ElicitationResponse():
                self.below.get(call, {}).pop(event.request_id, None)
            case _:
                pass
        return True

    def _ask(self, event: Asked) -> None:
        if isinstance(event, ToolRequest):
            if event.partial:
                return
            self.calls[event.request_id] = event
        if isinstance(event, ElicitationRequest) or event.needs != "none":
            self.asked[event.request_id] = event

    @property
    def seen_state(self) -> Any:
        """What a client may see of the state."""
        return visible(self.state.value, self.hides)

    def description(self, agent: str) -> str | None:
        """What the descriptor says of a sub-agent."""
        return next((item.description for item in _agents(self.descriptor) if item.name == agent), None)

    def tool(self, name: str) -> ToolDescriptor | None:
        """The tool of that name: the host's, else one of the agent's or its sub-agents' own."""
        if name in self.tools:
            return self.tools[name]
        own = (tool for agent in _agents(self.descriptor) for tool in agent.own_tools)
        return next((tool for tool in own if tool.name == name), None)


def _whole(event: Asked) -> Asked:
    """A question whose schema was cut, as it was too long to be told whole, asks for anything: its host checks it."""
    if isinstance(event, ElicitationRequest) and event.requested_schema and (event.meta or {}).get("cut"):
        return event.model_copy(update={"requested_schema": {}})
    return event


def _agents(descriptor: AgentDescriptor | None) -> Iterator[AgentDescriptor]:
    """The agent and all under it."""
    waiting = [] if descriptor is None else [descriptor]
    while waiting:
        found = waiting.pop(0)
        yield found
        waiting += found.sub_agents
