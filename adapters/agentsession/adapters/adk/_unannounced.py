"""Calls that no event of ADK announces: tools that are nodes of a graph. Their requests and responses are made here.

Not for: whether they may run (``_tool_calls.py`` asks as for any other). Rules carried: TOOL-01, TOOL-05.
May import: ``agentsession.protocol``, the modules beside it, google.adk.

ADK runs a tool node with a call id of its own making, tells the plugins, and says what came of it in an event of the
node: an output, an error, or a question. So the request is made when the gate is asked, and answered by that event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.adk.agents.context import Context
from google.adk.events.event import Event as AdkEvent
from google.adk.tools.base_tool import BaseTool

from agentsession.adapters.adk._errors import safe_message
from agentsession.adapters.adk._events import code_of
from agentsession.adapters.adk._host_tools import HostTool
from agentsession.adapters.adk._requests import is_failure
from agentsession.adapters.adk._values import lossy_json
from agentsession.protocol import RequestState, ToolRequest, ToolResponse

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["Unannounced"]

ASKED: Final = {"status": "pending"}
"""The result of a tool that asked something from inside: it is run again with the answer."""


class Unannounced:
    """The calls of one run that have no event."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._requests: dict[tuple[str, str | None], str] = {}
        """By session and call id."""
        self._nodes: dict[str, str] = {}
        """By the path of the node, which has its run's number: the request of its call."""

    def known(self, context: Context) -> str | None:
        """The request for a call, if one was made here."""
        return self._requests.get((context.session.id, context.function_call_id))

    def request(self, tool: BaseTool, args: dict[str, Any], context: Context) -> str:
        """The request for a call; made at the first time."""
        key = (context.session.id, context.function_call_id)
        made = self._requests.get(key)
        if made is None:
            live = self._live
            made = self._requests[key] = live.state.new_request_id(live.ctx.new_id, "r")
            shown, _ = lossy_json(args)
            # The author of a node's events is its graph, or the node where no graph runs it.
            node = context.node.name if context.node is not None else live.ctx.agent_id
            agent = context._invocation_context.agent  # private: the public name of no agent is "unknown"
            request = ToolRequest(
                request_id=made,
                name=tool.name,
                args=shown if isinstance(shown, dict) else None,
                owner="host" if isinstance(tool, HostTool) else "agent",
                needs=live.state.needs_of(tool) or "grant",
                agent_id=context.event_author or (agent.name if agent is not None else node),
                thread_id=live.brackets.thread_at(context),
                source="agent",
            )
            live.brackets.see_agent_open(request)
            live.ctx.emit_nowait(request)
            live.state.never_began.add(made)
            if context.node_path:
                self._nodes[context.node_path] = made
        return made

    async def see(self, event: AdkEvent) -> None:
        """An event of a node: what came of its tool, if it has one that was let run."""
        path = event.node_info.path if event.node_info is not None else ""
        request_id = self._nodes.pop(path, None) if path else None
        request = self._live.ctx.open_request(request_id) if request_id is not None else None
        if request is None or request.status == "waiting":
            return
        code = code_of(event.error_code)
        if code is not None:
            await self._respond(request, {"error": safe_message(code, event.error_message)})
        else:
            await self._respond(request, ASKED if event.long_running_tool_ids else event.output)

    async def _respond(self, request: RequestState, result: Any) -> None:
        failed = is_failure(result)
        data, _ = lossy_json(result)
        await self._live.ctx.emit(
            ToolResponse(
                request_id=request.id,
                name=request.name,
                data=data,
                is_error=failed,
                status="failed" if failed else "completed",
                agent_id=request.agent_id,
                thread_id=request.thread_id,
            )
        )
