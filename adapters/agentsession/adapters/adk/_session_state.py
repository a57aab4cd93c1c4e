"""What an ADK session knows between its runs: ids, the host's tools, the translator, what was changed.

Not for: one run (``_live.py``). Rules carried: TOOL-03, TOOL-05 (which call needs what).
May import: ``agentsession.protocol``, the pure modules beside it, google.adk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_confirmation import ToolConfirmation

from agentsession.adapters.adk._calls import Call
from agentsession.adapters.adk._catch_up import Heard
from agentsession.adapters.adk._elicit import CONFIRMATION, CREDENTIAL, INLINE_INPUT, INPUT
from agentsession.adapters.adk._history import unapplied_state
from agentsession.adapters.adk._host_tools import HostTool
from agentsession.adapters.adk._long_running import waits_inside
from agentsession.adapters.adk._reentry import is_gate
from agentsession.adapters.adk._requests import CONTROL_TOOLS
from agentsession.adapters.adk._routed_model import ModelTable
from agentsession.adapters.adk._translate import Translator
from agentsession.adapters.adk._vault import Vault
from agentsession.protocol import (
    AgentEnd,
    AgentStart,
    ElicitationRequest,
    Event,
    ExecutionOptions,
    RequestState,
    SessionMachine,
    SessionUpdate,
    StreamEnd,
    ToolDecision,
    ToolDescriptor,
    ToolGrant,
    ToolRequest,
    without_rewound,
)

__all__ = ["STEERING_NAMES", "AdkSessionState", "is_agent_tool", "steers_adk"]

STEERING_NAMES: Final = CONTROL_TOOLS | {CONFIRMATION, CREDENTIAL, INPUT, INLINE_INPUT}
"""Names of calls that steer ADK itself; nobody is asked about them."""

_STEERING_CLASSES: Final = frozenset({"FinishTaskTool", "SetModelResponseTool"})


def steers_adk(tool: BaseTool) -> bool:
    """Whether a tool is ADK's own and only steers ADK. A name is not enough: anybody may name a function so."""
    if tool.name not in STEERING_NAMES:
        return False
    if isinstance(tool, FunctionTool):
        return str(getattr(tool.func, "__module__", "")).startswith("google.adk.")
    kind = type(tool)
    return kind.__name__ in _STEERING_CLASSES and kind.__module__.startswith("google.adk.")


def is_agent_tool(tool: BaseTool) -> bool:
    """Whether a tool only runs an agent, whose own calls are asked about. A subclass that runs more is a plain tool."""
    return isinstance(tool, AgentTool) and type(tool).run_async.__module__.startswith("google.adk.")


class AdkSessionState:
    """The adapter's side of one session."""

    def __init__(
        self,
        *,
        user_id: str,
        adk_session_id: str,
        options: ExecutionOptions,
        parked: bool,
        exposes_errors: bool,
        is_resumable: bool,
        allows_uncontrolled: bool,
        delegated: Collection[str] = (),
        models: ModelTable | None = None,
    ) -> None:
        self.user_id = user_id
        self.adk_session_id = adk_session_id
        self.options = options
        """Those of the session; a turn may have others."""
        self.parked = parked
        """Host tools end ADK's run instead of keeping it open."""
        self.exposes_errors = exposes_errors
        self.is_resumable = is_resumable
        """ADK finds its way back into a run that has ended: there is no pipeline, or one that keeps its place."""
        self.allows_uncontrolled = allows_uncontrolled
        self.delegated = delegated
        """The names of agents to which tasks are delegated: a call of one stays open in ADK until the task is done."""
        self.host_tools: dict[str, ToolDescriptor] = {tool.name: tool for tool in options.tools or ()}
        self.gates_tools = options.host_tool_execution is not False
        """The agent's own tools wait for the host's grant."""
        self.model = options.model
        self.models = models or ModelTable()
        self.called: dict[str, str] = {}
        """By agent: the model that its calls went to last, where a hook chose another than the agent's or session's."""
        self.heard = Heard()
        self.place: int | None = None
        """The place in the record of what is stored in ADK's session just now, where it is not the record's end."""
        self.state_changes: dict[str, Any] = {}
        """State that the host changed, to be written before the next model call."""
        self.call_ids: set[str] = set()
        """ADK's ids of all calls so far, which a model may repeat."""
        self.needs_sealing = False
        """ADK's session may hold calls without a response: a run was killed, gave up, or was parked."""
        self.parked_calls: set[str] = set()
        """Requests on which ADK's run ends, to be entered again with their answers."""
        self.resumed: set[str] = set()
        """Tool requests whose credential, which ADK asked for, has come: their tool runs again."""
        self.refused: set[str] = set()
        """Tool requests whose credential was refused; ADK would ask for ever."""
        self.granted: dict[str, ToolGrant] = {}
        """By tool request: grants whose run is gone; ADK enters the call again, and the gate takes them from here."""
        self.confirmed: dict[str, ToolConfirmation] = {}
        """By tool request: what was said yes to about such a call."""
        self.never_began: set[str] = set()
        """Tool requests that no tool was let in for, neither here nor in the process that they come from."""
        self.begun: set[str] = set()
        """Tool requests of this turn whose tool was let run in this process."""
        self.credential_keys: dict[str, str | None] = {}
        """By tool request: the key of the credential that its tool asked ADK for."""
        self.vault = Vault()
        self.of_children: set[str] = set()
        """Requests of agents that an AgentTool runs, in sessions that nothing survives."""
        self.llm_calls = 0
        """Model calls of this turn, over all its runs and children."""
        self.steps = 0
        """Those of the session's own agents."""
        self.said_last_word = False
        """The one model call that a turn may make after its limit has been made."""
        self.transfers: dict[str | None, tuple[str, str]] = {}
        """By thread: the agent that hands over, and the one that it called for, which has not begun; a run may end
        between."""
        self.escalated: set[tuple[str | None, str]] = set()
        """Agents at work that told whoever runs them to stop, by thread and name: ADK's ``escalate``."""
        self.speaker = ""
        """The author of the event that is being translated: agents may have tools of the same name."""
        self._tools: dict[tuple[str, str], BaseTool] = {}
        self.translator = Translator(
            needs=self.needs, owner=self.owner, is_gate=is_gate, long_running=self.is_long_running
        )

    def begin_turn(self, options: ExecutionOptions) -> None:
        """A new turn: count anew, with what the host wants for it."""
        self.translator.begin_turn()
        for call in self.translator.book:
            if call.open and not call.adk_id and call.kind != "tool":
                call.open = False  # a question of the adapter's own, which was settled with its turn
        self.llm_calls = self.steps = 0
        self.parked_calls.clear()
        self.resumed.clear()
        self.refused.clear()
        self.granted.clear()
        self.confirmed.clear()
        self.never_began.clear()
        self.begun.clear()
        self.transfers.clear()
        self.escalated.clear()
        self.credential_keys.clear()
        self.go_on(options)

    def go_on(self, options: ExecutionOptions) -> None:
        """A run of the turn begins, or a model call of it: the options may be those of a later stream."""
        self.gates_tools = options.host_tool_execution is not False

    def has_open_calls(self) -> bool:
        """Whether ADK's session may hold calls without a response: such a session must be sealed before a new turn."""
        return any(call.open and call.name not in self.delegated for call in self.translator.book)

    # -- what the host wants ------------------------------------------------------------------------------------------

    def tools_of(self, options: ExecutionOptions) -> Mapping[str, ToolDescriptor]:
        """The host's tools: those of the turn if it has its own, else the session's as they were last changed."""
        if options.tools is not None and options.tools is not self.options.tools:
            return {tool.name: tool for tool in options.tools}
        return self.host_tools

    def model_of(self, options: ExecutionOptions) -> str | None:
        """The model to use instead of the agent's."""
        if options.model is not None and options.model != self.options.model:
            return options.model
        return self.model

    # -- what a call needs --------------------------------------------------------------------------------------------

    def know_tools(self, agent: str, tools: Iterable[BaseTool]) -> None:
        """The tools that an agent's next model call may use; a tool that the host took back is none any more.

        The agents' own stay: there may be another agent of this name.
        """
        for key in [key for key, tool in self._tools.items() if key[0] == agent and isinstance(tool, HostTool)]:
            del self._tools[key]
        for tool in tools:
            self._tools[(agent, tool.name)] = tool

    def offers(self, agent: str, name: str) -> bool:
        """Whether the agent's last model call had a tool of this name."""
        return (agent, name) in self._tools

    def needs(self, name: str, long_running: bool) -> str | None:
        """What a call of the present speaker needs. A name that no tool has needs nothing: ADK answers it."""
        tool = self._tools.get((self.speaker, name))
        return self.needs_of(tool) if tool is not None else "none"

    def needs_of(self, tool: BaseTool) -> str | None:
        """What a call of a tool needs from the host; ``None``: it is a delegation, shown as agents at work."""
        if getattr(tool, "_defers_response", False) and type(tool).__module__.startswith("google.adk."):
            return None
        if isinstance(tool, HostTool):
            return "result"
        if is_agent_tool(tool) or not self.gates_tools or self.confirms_itself(tool):
            return "none"
        return "grant"

    def tool_of(self, name: str) -> BaseTool | None:
        """The present speaker's tool of a name."""
        return self._tools.get((self.speaker, name))

    def is_long_running(self, name: str) -> bool:
        """Whether a call of the present speaker is of a long-running tool, which ADK is not shown as one."""
        return waits_inside(self._tools.get((self.speaker, name)))

    def owner(self, name: str) -> str:
        """Who runs a tool: the host what it declared, the agent everything else."""
        return "host" if isinstance(self._tools.get((self.speaker, name)), HostTool) else "agent"

    def confirms_itself(self, tool: BaseTool) -> bool:
        """Whether the tool declares that it always asks for confirmation: then that is the one question about it."""
        # Private, and the only sign: check_require_confirmation needs the arguments and a context.
        return getattr(tool, "_require_confirmation", False) is True

    def new_request_id(self, new_id: Callable[[str], str], prefix: str) -> str:
        """An id for a request that the adapter itself makes: a model may give the same to a call before or later."""
        made = new_id(prefix)
        while not self.translator.book.reserve(made):
            made = new_id(prefix)
        return made

    def new_call_id(self, new_id: Callable[[str], str], prefix: str) -> str:
        """An id for a call in ADK's session, unlike those that models have given theirs."""
        made = new_id(prefix)
        while made in self.call_ids:
            made = new_id(prefix)
        self.call_ids.add(made)
        return made

    def asked(self, question: ElicitationRequest) -> None:
        """The adapter itself asks this; there is no call for it in ADK's session."""
        book = self.translator.book
        book.add(
            Call(
                request_id=question.request_id,
                adk_id="",
                name=_CALL_NAMES.get(question.kind, question.kind),
                kind="tool_confirmation" if question.kind == "tool_confirmation" else "auth_required",
                needs="answer",
                thread_id=question.thread_id,
                tool_request_id=question.tool_request_id,
            )
        )

    def has_begun(self, request: RequestState) -> bool:
        """Whether the tool of a request that was allowed may have begun."""
        was_asked = request.status == "granted" or request.confirmation == "accept"
        return not was_asked or request.id not in self.never_began

    def declined(self, request_id: str) -> None:
        """The tool's own confirmation was declined: its response is a denial."""
        call = self.translator.book.get(request_id)
        if call is not None:
            call.declined = True

    # -- after a restart ----------------------------------------------------------------------------------------------

    def remember(self, record: Sequence[Event], machine: SessionMachine) -> None:
        """Fill the book of calls from a loaded record, so that answers find ADK's ids again."""
        book = self.translator.book
        self.follow(record)
        self.never_began = _never_begun(record, machine)
        if machine.turn_id is not None:
            self._count_on(record)
        for event in record:
            self._see_escalation(event)
            if isinstance(event, ToolRequest) and event.partial:
                continue
            if isinstance(event, (ToolRequest, ElicitationRequest)):
                marks = _adk_marks(event)
                # What the adapter itself asked has no marks, and no call in ADK's session.
                adk_id = str(marks.get("callId") or event.request_id) if marks else ""
                self.call_ids.add(adk_id)
                kind = "tool" if isinstance(event, ToolRequest) else event.kind
                book.add(
                    Call(
                        request_id=book.fresh_id(event.request_id, event.request_id),
                        adk_id=adk_id,
                        name=event.name if isinstance(event, ToolRequest) else _CALL_NAMES.get(event.kind, event.kind),
                        kind=kind if kind in _KINDS else "tool",  # type: ignore[arg-type]  # narrowed by the test
                        needs=event.needs if isinstance(event, ToolRequest) else "answer",
                        invocation_id=str(marks.get("invocationId") or ""),
                        event_id=str(marks.get("eventId") or ""),
                        agent_id=event.agent_id,
                        thread_id=event.thread_id,
                        tool_request_id=event.tool_request_id if isinstance(event, ElicitationRequest) else None,
                        open=event.request_id in machine.requests,
                    )
                )

    def _see_escalation(self, event: Event) -> None:
        """An agent that escalated and waits, of a record that is read, says so when it ends."""
        if isinstance(event, StreamEnd) and event.reason != "input_required":
            self.escalated.clear()
        elif event.agent_id is None:
            return
        elif isinstance(event, AgentEnd) and event.reason != "input_required":
            self.escalated.discard((event.thread_id, event.agent_id))
        elif _adk_marks(event).get("escalate"):
            self.escalated.add((event.thread_id, event.agent_id))

    def follow(self, record: Sequence[Event]) -> None:
        """What the host has set, as the events of a record tell that still count: after a load, a fork, a rewind."""
        updates = [item for item in without_rewound(record) if isinstance(item, SessionUpdate) and item.model]
        models = [event.model for event in updates if event.agent_id is None]
        if self.options.model is None:
            self.model = models[-1] if models else None
        elif self.model not in models:
            self.model = self.options.model
        self.called.clear()
        for event in updates:
            if event.agent_id is None:
                self.called.clear()
            elif event.model is not None:
                self.called[event.agent_id] = event.model
        self.state_changes = unapplied_state(record)

    def forget_rewound(self, record: Sequence[Event]) -> None:
        """The session was rewound: no call of what was taken back is open, and what the host set there is gone."""
        counting = {event.request_id for event in without_rewound(record) if isinstance(event, _REQUESTS)}
        for call in self.translator.book:
            if call.request_id not in counting:
                self.translator.resolve(call.request_id)
        self.begin_turn(self.options)
        self.of_children.clear()
        self.follow(record)
        self.needs_sealing = True

    def _count_on(self, record: Sequence[Event]) -> None:
        """The model calls of the turn that waits, as its last pause told them."""
        ends = (event.data or {} for event in reversed(record) if isinstance(event, StreamEnd))
        told = next((data for data in ends if "modelCalls" in data), {})
        calls, steps = told.get("modelCalls"), told.get("modelSteps")
        self.llm_calls = calls if isinstance(calls, int) else 0
        self.steps = steps if isinstance(steps, int) else 0

    def is_volatile(self, request: RequestState) -> bool:
        """Whether a waiting request lives only in a run that is kept open, and ADK cannot be led into it again."""
        call = self.translator.book.get(request.id)
        if call is None or not self.is_resumable or call.thread_id is not None or request.id in self.of_children:
            return True  # no event announced it, or it is of an agent that ADK does not find again
        if call.kind == "tool_confirmation":
            tool = self.translator.book.get(call.tool_request_id or "")
            return tool is None or not tool.adk_id
        if call.kind != "tool":
            return not call.adk_id  # asked by this adapter, in a run that alone knows of it
        if not call.adk_id:
            return True
        if request.status == "waiting" or call.needs == "result":
            return False
        if request.id not in self.begun and (request.status == "granted" or request.confirmation is not None):
            return False  # what was said of it is in the record, and no run has taken it
        # It was let run, so it waits for the answer to a question about it, or it does not wait at all.
        about = [other for other in self.translator.book if other.open and other.tool_request_id == request.id]
        if any(other.kind == "tool_confirmation" or other.adk_id for other in about):
            return False
        # ADK asks once for all calls of a step whose credential has the same key.
        key = self.credential_keys.get(request.id)
        asking = {
            other.tool_request_id
            for other in self.translator.book
            if other.open and other.kind == "auth_required" and other.adk_id
        }
        return key is None or not any(self.credential_keys.get(other or "") == key for other in asking)


_REQUESTS = (ToolRequest, ElicitationRequest)
_KINDS = frozenset({"tool", "tool_confirmation", "auth_required", "clarification"})
_CALL_NAMES: Mapping[str, str] = {
    "tool_confirmation": CONFIRMATION,
    "auth_required": CREDENTIAL,
    "clarification": INPUT,
}


def _never_begun(record: Sequence[Event], machine: SessionMachine) -> set[str]:
    """The open tool requests of a loaded record whose tool no process has let in.

    A tool is let in by a run, and a stream in which a run works brackets agents. So a call has not begun that waits for
    its grant, or was granted after the last such stream.
    """
    worked = {event.stream_id for event in record if isinstance(event, AgentStart)}
    late: set[str] = set()
    for event in reversed(record):
        if event.stream_id in worked:
            break
        if isinstance(event, ToolDecision):
            late.add(event.request_id)
    return {request.id for request in machine.requests.values() if request.status == "waiting" or request.id in late}


def _adk_marks(event: Event) -> Mapping[str, Any]:
    marks = (event.meta or {}).get("adk")
    return marks if isinstance(marks, Mapping) else {}
