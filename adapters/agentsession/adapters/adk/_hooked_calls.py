"""The host's hooks around tool calls of an ADK run: asked before the question, told of the result before the model.

Not for: other points (``_hooks.py``), or grants and results (``_tool_calls.py``).
Rules carried: TOOL-04, TOOL-05, HITL-01, HITL-04.
May import: ``agentsession.protocol``, the modules beside it, google.adk.

A hook is asked when a call is about to be recorded, so that what it changes is what the host is asked about, and what a
grant's digest is of. When the host grants a call with arguments of its own, hooks see those as well, and can then only
block: a change after the approval would run what nobody has approved.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from agentsession.adapters.adk._hooks import BLOCKED, RunHooks
from agentsession.adapters.adk._requests import is_failure
from agentsession.adapters.adk._tools_schema import wrong_args
from agentsession.adapters.adk._values import lossy_json
from agentsession.adapters.base import Hooked
from agentsession.protocol import (
    Decision,
    InvalidInput,
    ToolArgsChange,
    ToolCallHook,
    ToolDenial,
    ToolErrorHook,
    ToolRequest,
    ToolResultChange,
    ToolResultHook,
    args_digest,
    repair_text,
)

if TYPE_CHECKING:
    from agentsession.adapters.adk._live import LiveRun

__all__ = ["HookedCalls", "args_of_hook"]

_MARK: Final = "hook"
"""In the ``_meta`` of a request whose arguments a hook has changed."""

_CHANGED_AFTER: Final = "a hook changed arguments that were approved already"


class HookedCalls:
    """What the host's hooks said of the tool calls of one run."""

    def __init__(self, live: LiveRun, hooks: RunHooks) -> None:
        self._live = live
        self._hooks = hooks
        self._said: dict[object, tuple[str | None, dict[str, Any] | None]] = {}
        """By request id, or session and call id where no event announced it: why it is blocked, and its arguments."""

    # -- before -------------------------------------------------------------------------------------------------------

    async def record(self, request: ToolRequest) -> None:
        """Record a whole request with what a hook makes of it; one that is blocked is denied in the same step."""
        live = self._live
        call = live.state.translator.book.get(request.request_id)
        hooked = await self._ask(
            request.request_id,
            request.request_id,
            request.name,
            request.args,
            owner=request.owner,
            agent_id=request.agent_id,
            thread_id=request.thread_id,
            tool=live.state.tool_of(request.name),
        )
        if hooked.blocked:
            # Shown as one that waits for the host, which its hook has answered.
            request = request.model_copy(update={"needs": "grant" if request.needs == "none" else request.needs})
            if call is not None:
                call.needs = request.needs
            await live.ctx.ready()
            live.ctx.emit_nowait(request)
            message = hooked.message or BLOCKED
            decision = Decision(by=hooked.who, reason=hooked.reason or message)
            live.ctx.settle(ToolDenial(request_id=request.request_id, reason=message, decision=decision))
            return
        if isinstance(hooked.change, ToolArgsChange):
            meta = {**(request.meta or {}), _MARK: {"by": hooked.who, "changed": ["args"]}}
            request = request.model_copy(update={"args": hooked.change.args, "meta": meta})
        await live.emit_request(request)

    async def enter(
        self, tool: BaseTool, args: dict[str, Any], context: ToolContext, request_id: str | None
    ) -> dict[str, Any] | None:
        """ADK is about to make a call: put the hook's arguments in place; a result instead of the call blocks it."""
        if request_id is not None and request_id not in self._said and _recorded(self._live, request_id) is not None:
            return None  # a run that is over has recorded it, and hooks were asked then
        key = request_id if request_id in self._said else (context.session.id, context.function_call_id)
        if key not in self._said:
            # No event has announced it: a node of a graph, a delegation.
            await self._ask(
                key,
                request_id or context.function_call_id or tool.name,
                tool.name,
                lossy_json(args)[0],
                owner="agent",
                agent_id=context.agent_name,
                thread_id=self._live.brackets.current_thread(),
                tool=tool,
            )
        message, changed = self._said[key]
        if message is not None:
            return {"error": f"denied: {message}"}
        if changed is not None:
            _put(args, changed)
        return None

    async def granted(self, tool: BaseTool, request_id: str, args: dict[str, Any], context: ToolContext) -> str | None:
        """The host granted a call with arguments of its own; why it is blocked all the same, or ``None``."""
        payload = self._hooks.payload(
            ToolCallHook,
            context.agent_name,
            self._live.brackets.current_thread(),
            request_id=request_id,
            name=repair_text(tool.name),
            args=args,
            granted=True,
        )
        hooked = await self._hooks.ask("before_tool", payload, requestId=request_id)
        change = hooked.change
        if isinstance(change, ToolArgsChange) and args_digest(change.args) != args_digest(args):
            hooked = self._hooks.misused("before_tool", payload, InvalidInput(_CHANGED_AFTER))
        return (hooked.message or BLOCKED) if hooked.blocked else None

    async def _ask(
        self,
        key: object,
        request_id: str,
        name: str,
        args: Any,
        *,
        owner: str,
        agent_id: str | None,
        thread_id: str | None,
        tool: BaseTool | None,
    ) -> Hooked:
        payload = self._hooks.payload(
            ToolCallHook,
            agent_id,
            thread_id,
            request_id=request_id,
            name=repair_text(name),
            args=args if isinstance(args, dict) else {},
            owner=owner,
        )
        hooked = await self._hooks.ask("before_tool", payload, requestId=request_id)
        changed = hooked.change.args if isinstance(hooked.change, ToolArgsChange) else None
        if changed is not None:
            wrong = wrong_args(tool, changed) if tool is not None else None
            if wrong is not None or not isinstance(args, dict):
                whose = f"hook {hooked.by}" if hooked.by else "a hook"
                what = (
                    f"{whose} gave arguments to a call that has none"
                    if wrong is None
                    else f"{whose} at before_tool gave arguments that do not fit {payload.name}"
                )
                hooked = self._hooks.misused("before_tool", payload, InvalidInput(what), hooked.by)
                changed = None
        self._said[key] = ((hooked.message or BLOCKED) if hooked.blocked else None, changed)
        return hooked

    # -- after --------------------------------------------------------------------------------------------------------

    async def result(
        self, tool: BaseTool, args: Any, context: ToolContext, result: Any, request_id: str | None
    ) -> dict[str, Any] | None:
        """What a call returned: another result for the model and the record, or ``None``."""
        if not self._hooks.wants("after_tool"):
            return None
        data = lossy_json(result)[0]
        payload = self._hooks.payload(
            ToolResultHook,
            context.agent_name,
            self._live.brackets.current_thread(),
            request_id=request_id,
            name=repair_text(tool.name),
            args=_object(args),
            data=data["result"] if isinstance(data, dict) and set(data) == {"result"} else data,
            is_error=is_failure(result),
        )
        hooked = await self._hooks.ask("after_tool", payload, requestId=request_id)
        change = hooked.change
        if not hooked.blocked and isinstance(change, ToolResultChange) and _same(change.data, payload.data):
            return None  # a host that has changed its own result says so for the record
        return self._instead(hooked)

    async def error(
        self, tool: BaseTool, args: Any, context: ToolContext, error: BaseException, request_id: str | None
    ) -> dict[str, Any] | None:
        """A tool raised: a result in its place, or ``None``."""
        if not self._hooks.wants("on_tool_error"):
            return None
        payload = self._hooks.payload(
            ToolErrorHook,
            context.agent_name,
            self._live.brackets.current_thread(),
            request_id=request_id,
            name=repair_text(tool.name),
            args=_object(args),
            error_type=type(error).__name__,
        )
        return self._instead(await self._hooks.ask("on_tool_error", payload, requestId=request_id))

    @staticmethod
    def _instead(hooked: Hooked) -> dict[str, Any] | None:
        if hooked.blocked:
            return {"error": hooked.message or BLOCKED}
        if not isinstance(hooked.change, ToolResultChange):
            return None
        data = hooked.change.data
        return data if isinstance(data, dict) else {"result": data}


def args_of_hook(live: LiveRun, request_id: str, args: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments that a hook gave a call which ADK is about to make with others, also in a run that is over; these
    are what the host was asked about, whether or not this run has hooks."""
    request = live.ctx.open_request(request_id)
    if request is None or request.args is None or request.args == lossy_json(args)[0]:
        return None
    recorded = _recorded(live, request_id)
    return recorded.args if recorded is not None and _MARK in (recorded.meta or {}) else None


def _recorded(live: LiveRun, request_id: str) -> ToolRequest | None:
    for event in reversed(live.ctx.record):
        if isinstance(event, ToolRequest) and event.request_id == request_id and not event.partial:
            return event
    return None


def _put(args: dict[str, Any], other: dict[str, Any]) -> None:
    args.clear()
    args.update(other)


def _object(args: Any) -> dict[str, Any]:
    shown = lossy_json(args)[0]
    return shown if isinstance(shown, dict) else {}


def _same(one: Any, other: Any) -> bool:
    """Python takes 1 and True for equal; JSON does not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
