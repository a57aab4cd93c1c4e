"""Long-running tools of the agent: what they return first, and what comes later from outside.

Not for: the host's tools (``_host_tools.py``). Rules carried: TOOL-01, TOOL-08, PER-01.
May import: ``agentsession.protocol``, the modules beside it, google.adk.

Such a tool starts something and returns a first word of it, such as a ticket; the outcome comes from elsewhere, after
minutes or days. ADK hands the first word to the model at once, and takes the outcome as a message of its own, which
starts another run: a pipeline has gone on by then, and the child of an AgentTool is gone. Here the first word is the
response to the call, and a second request, which needs a result, waits for the outcome; the model reads that alone.

ADK marks calls of long-running tools, and ends or interrupts what is around a marked call even where it was answered in
the run. So the model's tools are copies without the mark.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from agentsession.adapters.adk._calls import Call
from agentsession.adapters.adk._elicit import INPUT
from agentsession.adapters.adk._host_tools import HostTool
from agentsession.adapters.adk._replies import tool_result
from agentsession.adapters.adk._requests import is_failure
from agentsession.adapters.adk._values import is_mapping, lossy_json
from agentsession.protocol import ToolRequest, ToolResponse

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["PENDING", "is_first_word", "keep_open", "outcome", "waits_inside"]

PENDING: Final = {"status": "pending"}
"""The first word of a tool that returned nothing, and of one whose result may not be shown."""

_MARK: Final = "_agentsession_long_running"

_OUTCOMES: Final = frozenset(
    {
        *("accepted", "approved", "complete", "completed", "done", "finished", "ok", "succeeded", "success"),
        *("aborted", "canceled", "cancelled", "declined", "denied", "error", "expired", "failed", "rejected"),
    }
)
"""Words for the status of something that is over, whichever way."""


def keep_open(tools: dict[str, BaseTool]) -> None:
    """Put copies that ADK does not end its run on in the place of long-running tools, in the tools of one model call.

    A parked session ends its run on purpose: for the host's tools, and for questions to the person.
    """
    for name, tool in tools.items():
        if tool.is_long_running and not isinstance(tool, HostTool) and tool.name != INPUT:
            kept = copy.copy(tool)
            kept.is_long_running = False
            setattr(kept, _MARK, True)
            tools[name] = kept


def waits_inside(tool: BaseTool | None) -> bool:
    """Whether this is a long-running tool of the agent, or the copy of one."""
    if tool is None or isinstance(tool, HostTool) or tool.name == INPUT:
        return False
    return tool.is_long_running or hasattr(tool, _MARK)


def is_first_word(result: Any) -> bool:
    """Whether what a long-running tool returned is not its outcome: neither an error, nor a status that says so."""
    if is_failure(result):
        return False
    status = result.get("status", result.get("state")) if is_mapping(result) else None
    return not (isinstance(status, str) and status.strip().lower() in _OUTCOMES)


async def outcome(
    live: LiveRun, tool: BaseTool, args: dict[str, Any], context: ToolContext, first: Any, request_id: str
) -> dict[str, Any]:
    """Answer the call with its first word, and wait for the outcome, which the host gets from wherever it comes."""
    request = live.ctx.open_request(request_id)
    thread, agent = (request.thread_id, request.agent_id) if request is not None else (None, context.agent_name)
    where: dict[str, Any] = {"agent_id": agent, "thread_id": thread}
    shown, _ = lossy_json(first)
    call_id, invocation_id = context.function_call_id or "", context.invocation_id
    made = live.state.new_request_id(live.ctx.new_id, "r")
    sent, _ = lossy_json(args)
    live.ctx.emit_nowait(ToolResponse(request_id=request_id, name=tool.name, data=shown, **where))
    live.state.translator.resolve(request_id)
    live.state.translator.book.add(
        Call(made, call_id, tool.name, needs="result", invocation_id=invocation_id, agent_id=agent, thread_id=thread)
    )
    if request_id in live.state.of_children:
        live.state.of_children.add(made)
    live.ctx.emit_nowait(
        ToolRequest(
            request_id=made,
            name=tool.name,
            args=sent if isinstance(sent, dict) else None,
            owner="agent",
            needs="result",
            long_running=True,
            # The session's book of calls is read from these after a restart.
            meta={"adk": {"callId": call_id, "invocationId": invocation_id, "continues": request_id}},
            **where,
        )
    )
    answer = await live.wait(made)
    told = tool_result(answer) if answer is not None else None
    return told or {"error": "blocked: this call was answered before"}
