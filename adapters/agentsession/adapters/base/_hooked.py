"""The host's hooks around what a run hears, calls and returns: for every executor that does not ask them itself.

Not for: asking the interceptor safely (``_hooks.py``). Rules carried: TOOL-04, HITL-02, HITL-04, SEC-01.
May import: ``agentsession.protocol``, the modules beside it.

A call is shown to the hooks when it is about to be recorded: what they change is what the host is asked about, and what
a grant's digest is of. One that they block is recorded as a request that they have denied. When the host grants a call
with arguments of its own they see those as well, and can then only block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agentsession.adapters.base._arguments import wrong_args
from agentsession.adapters.base._hooks import PROCEED, Hooked, Hooks, hook_events
from agentsession.adapters.base._steering import Steer
from agentsession.protocol import (
    AgentSessionError,
    AgentStart,
    Answer,
    ContentChange,
    ContentPart,
    Decision,
    HookPayload,
    ToolArgsChange,
    ToolCallHook,
    ToolDenial,
    ToolGrant,
    ToolRequest,
    ToolResponse,
    ToolResult,
    ToolResultChange,
    ToolResultHook,
    UserMessageHook,
    args_digest,
    find_problem,
)

if TYPE_CHECKING:
    from agentsession.adapters.base._context import RunContext
    from agentsession.adapters.base._run import Run

__all__ = ["BLOCKED", "HookBlocked", "RunHooked", "hear"]

BLOCKED: Final = "blocked by the host"
"""What is told where a hook blocks and gives no message."""

_MARK: Final = "hook"
"""In the ``_meta`` of a request whose arguments a hook has changed."""


class HookBlocked(AgentSessionError):
    """A hook of the host blocks a call that needs nobody's grant: it is recorded as denied, and must not run.

    Raised by ``ctx.emit`` for a request with ``needs`` none. The turn of an executor that does not catch it has failed.
    """

    default_id = "hook-blocked"

    def __init__(self, what: str, denial: ToolDenial) -> None:
        super().__init__(what, fix="tell the model of the denial, and do not run the tool")
        self.denial = denial


class RunHooked:
    """What the hooks say in one context of a run."""

    def __init__(self, ctx: RunContext, hooks: Hooks) -> None:
        self._ctx = ctx
        self._hooks = hooks

    # -- what is said -------------------------------------------------------------------------------------------------

    async def heard(self, content: Sequence[ContentPart], *, steer: bool = False) -> tuple[list[ContentPart], Hooked]:
        """What the agent shall hear of what somebody said; nothing of what is blocked."""
        if not self._hooks.wants("on_user_message"):
            return list(content), PROCEED
        payload = UserMessageHook(**self._place(), content=list(content), steer=steer)
        hooked = await self._ask("on_user_message", payload)
        if hooked.blocked:
            return [], hooked
        change = hooked.change
        return (change.content if isinstance(change, ContentChange) else list(content)), hooked

    async def steers(self, taken: Sequence[Steer]) -> list[Steer]:
        """The steers that the agent shall hear; what was said is in the record whatever becomes of it."""
        out: list[Steer] = []
        for steer in taken:
            content, hooked = await self.heard(steer.content, steer=True)
            if not hooked.blocked:
                out.append(Steer(steer.message_id, content))
        return out

    # -- calls --------------------------------------------------------------------------------------------------------

    def wants(self, event: ToolRequest | ToolResponse) -> bool:
        """Whether a hook wants to see this event before it is recorded."""
        if isinstance(event, ToolRequest):
            return not event.partial and self._hooks.wants("before_tool")
        return self._hooks.wants("after_tool")

    async def request(self, request: ToolRequest) -> ToolRequest:
        """Record a whole request with what hooks make of it; one that is blocked is denied in the same step.

        Raises :class:`HookBlocked` where nobody would have been asked, and so nobody waits for the denial.
        """
        ctx = self._ctx
        given = request.args or {}
        payload = ToolCallHook(
            **self._place(request.agent_id, request.thread_id),
            request_id=request.request_id,
            name=request.name,
            args=given,
            owner=request.owner,
        )
        hooked = await self._fire("before_tool", payload)
        changed = hooked.change.args if isinstance(hooked.change, ToolArgsChange) else None
        if changed is not None and self._wrong(request, changed) is not None:
            whose = f"hook {hooked.by}" if hooked.by else "a hook"
            failure = f"{whose} at before_tool gave arguments that do not fit {request.name}"
            hooked, changed = Hooks.failed("before_tool", failure, hooked.by), None
        self._tell("before_tool", hooked, payload, requestId=request.request_id)
        await self._ready()
        if not hooked.blocked:
            if changed is not None:
                meta = {**(request.meta or {}), _MARK: {"by": hooked.who, "changed": ["args"]}}
                request = request.model_copy(update={"args": changed, "meta": meta})
            return ctx.emit_nowait(request)
        message = hooked.message or BLOCKED
        denial = ToolDenial(
            request_id=request.request_id,
            reason=message,
            decision=Decision(by=hooked.who, reason=hooked.reason or message),
        )
        # Shown as one that waits for the host, which its hook has answered.
        waits = request.needs != "none"
        made = ctx.emit_nowait(request if waits else request.model_copy(update={"needs": "grant"}))
        ctx.settle(denial)
        if not waits:
            raise HookBlocked(message, denial)
        return made

    async def response(self, response: ToolResponse) -> ToolResponse:
        """Record what a tool of the executor returned, as hooks leave it: the model must be told that."""
        request = self._ctx.open_request(response.request_id)
        given = {"data": response.data} if "data" in response.model_fields_set else {}
        hooked = await self._after(
            response.request_id,
            response.name,
            request.args if request is not None else None,
            response.agent_id,
            response.thread_id,
            content=response.content,
            is_error=response.is_error,
            **given,
        )
        await self._ready()
        instead = _instead(hooked, response.is_error)
        if hooked.blocked:
            instead["status"] = "failed"
        return self._ctx.emit_nowait(response.model_copy(update=instead))

    async def answered(self, requests: Mapping[str, ToolRequest], answers: Mapping[str, Answer]) -> dict[str, Answer]:
        """The answers that an executor shall have, by request id, of those that the host gave and the record has."""
        out = dict(answers)
        for request_id, answer in answers.items():
            request = requests.get(request_id)
            if request is None:
                continue
            if isinstance(answer, ToolGrant):
                out[request_id] = await self._granted(request, answer)
            elif isinstance(answer, ToolResult):
                given = {"data": answer.data} if "data" in answer.model_fields_set else {}
                args = answer.args if answer.args is not None else request.args
                hooked = await self._after_of(request, args, content=answer.content, is_error=answer.is_error, **given)
                if instead := _instead(hooked, answer.is_error):
                    out[request_id] = answer.model_copy(update=instead)
            elif isinstance(answer, ToolDenial):
                told = answer.reason or (answer.decision.reason if answer.decision is not None else None)
                hooked = await self._after_of(
                    request, request.args, data={"error": told, "denied": True}, is_error=True
                )
                if hooked.blocked:
                    out[request_id] = answer.model_copy(update={"reason": hooked.message or BLOCKED})
        return out

    async def _granted(self, request: ToolRequest, answer: ToolGrant) -> Answer:
        """A grant with arguments of the host's own: a denial in its place where a hook blocks them."""
        ctx = self._ctx
        if answer.args is None or not self._hooks.wants("before_tool"):
            return answer
        payload = ToolCallHook(
            **self._place(request.agent_id, request.thread_id),
            request_id=request.request_id,
            name=request.name,
            args=answer.args,
            owner=request.owner,
            granted=True,
        )
        hooked = await self._fire("before_tool", payload)
        change = hooked.change
        if isinstance(change, ToolArgsChange) and args_digest(change.args) != args_digest(answer.args):
            hooked = Hooks.failed("before_tool", "a hook changed arguments that were approved already")
        await self._ready()
        self._tell("before_tool", hooked, payload, requestId=request.request_id)
        if not hooked.blocked:
            return answer
        message = hooked.message or BLOCKED
        if ctx.is_open_request(request.request_id):
            ctx.emit_nowait(
                ToolResponse(
                    request_id=request.request_id,
                    name=request.name,
                    status="denied",
                    is_error=True,
                    data={"error": message, "denied": True},
                    agent_id=request.agent_id,
                    thread_id=request.thread_id,
                )
            )
        return ToolDenial(
            request_id=request.request_id, reason=message, decision=Decision(by=hooked.who, reason=message)
        )

    # -- helpers ------------------------------------------------------------------------------------------------------

    async def _after_of(self, request: ToolRequest, args: Mapping[str, Any] | None, **given: Any) -> Hooked:
        return await self._after(request.request_id, request.name, args, request.agent_id, request.thread_id, **given)

    async def _after(
        self,
        request_id: str,
        name: str,
        args: Mapping[str, Any] | None,
        agent_id: str | None,
        thread_id: str | None,
        **given: Any,
    ) -> Hooked:
        if not self._hooks.wants("after_tool") or self._hooks.has_seen("after_tool", self._ctx.session_id, request_id):
            return PROCEED
        payload = ToolResultHook(
            **self._place(agent_id, thread_id), request_id=request_id, name=name, args=dict(args or {}), **given
        )
        return await self._ask("after_tool", payload, requestId=request_id)

    async def _ask(self, point: str, payload: HookPayload, **data: Any) -> Hooked:
        """Fire a point and record what came of it."""
        hooked = await self._fire(point, payload)
        await self._ready()
        self._tell(point, hooked, payload, **data)
        return hooked

    async def _ready(self) -> None:
        if not self._ctx.is_ready():  # a turn of the loop for each call would cost more than the hooks
            await self._ctx.ready()

    async def _fire(self, point: str, payload: HookPayload) -> Hooked:
        return await self._hooks.fire(point, payload)

    def _tell(self, point: str, hooked: Hooked, payload: HookPayload, **data: Any) -> None:
        for event in hook_events(point, hooked, thread_id=payload.thread_id):
            if event.type == "custom":
                event = event.model_copy(update={"data": {**event.data, **data}})
            self._ctx.emit_nowait(event)

    def _place(self, agent_id: str | None = None, thread_id: str | None = None) -> dict[str, Any]:
        ctx = self._ctx
        return {
            "session_id": ctx.session_id,
            "user_id": ctx.user_id,
            "turn_id": ctx.turn_id,
            "agent_id": agent_id or ctx.agent_id,
            "thread_id": thread_id or ctx.thread_id,
            "permission_mode": ctx.permission_mode,
        }

    def _wrong(self, request: ToolRequest, args: Mapping[str, Any]) -> str | None:
        if request.owner == "host":
            declared = {tool.name: tool for tool in self._ctx.options.tools or ()}
            schema = declared[request.name].parameters_schema if request.name in declared else None
            problem = find_problem(schema, dict(args)) if schema is not None else None
            return problem.message if problem is not None else None
        return wrong_args(self._ctx.descriptor, request.name, dict(args))


async def hear(ctx: RunContext, hooked: RunHooked, run: Run, *, starts: bool) -> str | None:
    """Before a run works: what it hears of the message, or of the answers that it goes on with.

    ``starts``: no agent is open yet. The hook that blocked the message, whose word is said then; the turn is over.
    """
    if run.message is None:
        asked = {
            event.request_id: event
            for event in ctx.record
            if isinstance(event, ToolRequest) and event.request_id in run.answers and not event.partial
        }
        run.answers = await hooked.answered(asked, run.answers)
        return None
    content, said = await hooked.heard(run.message.content)
    if not said.blocked:
        run.message = run.message.model_copy(update={"content": content})
        return None
    if starts:
        await ctx.emit(AgentStart(agent_id=ctx.agent_id))
    await ctx.say(said.message or BLOCKED)
    return said.who


def _instead(hooked: Hooked, is_error: bool) -> dict[str, Any]:
    """What stands in the place of a result."""
    if hooked.blocked:
        return {
            "data": {"error": hooked.message or BLOCKED},
            "content": [],
            "display": None,
            "is_error": True,
        }
    if not isinstance(hooked.change, ToolResultChange):
        return {}
    return {"data": hooked.change.data, "content": [], "display": None, "is_error": is_error}
