"""What an ADK session knows between its runs: ids, the host's tools, the translator, what was changed.

Not for: one run (``_live.py``). Rules carried: TOOL-03, TOOL-05 (which call needs what).
May import: ``agentsession.protocol``, the pure modules beside it, google.adk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool

from agentsession.adapters.adk._calls import Call
from agentsession.adapters.adk._host_tools import HostTool
from agentsession.adapters.adk._translate import Translator
from agentsession.protocol import (
    ElicitationRequest,
    Event,
    ExecutionOptions,
    SessionMachine,
    ToolDescriptor,
    ToolRequest,
)

__all__ = ["AdkSessionState"]


class AdkSessionState:
    """The adapter's side of one session."""

    def __init__(
        self, *, user_id: str, adk_session_id: str, options: ExecutionOptions, parked: bool, exposes_errors: bool
    ) -> None:
        self.user_id = user_id
        self.adk_session_id = adk_session_id
        self.parked = parked
        """Host tools end ADK's run instead of keeping it open."""
        self.exposes_errors = exposes_errors
        self.host_tools: dict[str, ToolDescriptor] = {tool.name: tool for tool in options.tools or ()}
        self.gates_tools = options.host_tool_execution is not False
        """The agent's own tools wait for the host's grant."""
        self.model = options.model
        self.state_changes: dict[str, Any] = {}
        """State that the host changed, to be written before the next model call."""
        self.child_threads: dict[str, str] = {}
        self.child_requests: dict[tuple[str, str | None], str] = {}
        self.call_ids: set[str] = set()
        """ADK's ids of all calls so far, which a model may repeat."""
        self.needs_sealing = False
        """ADK's session may hold calls without a response: a run was killed or gave up."""
        self._tools: dict[str, BaseTool] = {}
        self.translator = Translator(needs=self.needs, owner=self.owner)

    def know_tools(self, tools: Iterable[BaseTool]) -> None:
        """The tools that the next model call may use."""
        for tool in tools:
            self._tools[tool.name] = tool

    def needs(self, name: str, long_running: bool) -> str:
        """What a call needs from the host. A name that no tool has needs nothing: ADK answers it with an error."""
        tool = self._tools.get(name)
        if tool is None:
            return "none"
        if isinstance(tool, HostTool):
            return "result"
        if isinstance(tool, AgentTool) or not self.gates_tools or self.confirms_itself(tool):
            return "none"
        return "grant"

    def owner(self, name: str) -> str:
        """Who runs a tool: the host what it declared, the agent everything else."""
        return "host" if isinstance(self._tools.get(name), HostTool) else "agent"

    def confirms_itself(self, tool: BaseTool) -> bool:
        """Whether the tool declares that it always asks for confirmation: then that is the one question about it."""
        # Private, and the only sign: check_require_confirmation needs the arguments and a context.
        return getattr(tool, "_require_confirmation", False) is True

    def declined(self, request_id: str) -> None:
        """The tool's own confirmation was declined: its response is a denial."""
        call = self.translator.book.get(request_id)
        if call is not None:
            call.declined = True

    def remember(self, record: Sequence[Event], machine: SessionMachine) -> None:
        """Fill the book of calls from a loaded record, so that answers find ADK's ids again."""
        book = self.translator.book
        for event in record:
            if isinstance(event, ToolRequest) and event.partial:
                continue
            if isinstance(event, (ToolRequest, ElicitationRequest)):
                marks = _adk_marks(event)
                self.call_ids.add(str(marks.get("callId") or event.request_id))
                kind = "tool" if isinstance(event, ToolRequest) else event.kind
                book.add(
                    Call(
                        request_id=book.fresh_id(event.request_id, event.request_id),
                        adk_id=str(marks.get("callId") or event.request_id),
                        name=event.name if isinstance(event, ToolRequest) else _CALL_NAMES.get(event.kind, event.kind),
                        kind=kind if kind in _KINDS else "tool",  # type: ignore[arg-type]  # narrowed by the test
                        needs=event.needs if isinstance(event, ToolRequest) else "answer",
                        invocation_id=str(marks.get("invocationId") or ""),
                        agent_id=event.agent_id,
                        thread_id=event.thread_id,
                        open=event.request_id in machine.requests,
                    )
                )

    def is_volatile(self, request_id: str) -> bool:
        """Whether a waiting request lives only in a run that is kept open and cannot be asked again by ADK's session."""
        call = self.translator.book.get(request_id)
        if call is None:
            return True  # asked by this adapter inside a run: a confirmation, or a call of a child
        return call.kind == "tool" and call.needs != "result"


_KINDS = frozenset({"tool", "tool_confirmation", "auth_required", "clarification"})
_CALL_NAMES: Mapping[str, str] = {
    "tool_confirmation": "adk_request_confirmation",
    "auth_required": "adk_request_credential",
    "clarification": "adk_request_input",
}


def _adk_marks(event: Event) -> Mapping[str, Any]:
    marks = (event.meta or {}).get("adk")
    return marks if isinstance(marks, Mapping) else {}
