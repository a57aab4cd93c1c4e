"""One prompt turn: what the agent sends, in the order of the wire, as events; until its answer has come.

Not for: what it asks (``_asking.py``), its tool calls (``_calls.py``). Rules carried: LIFE-14, TOOL-06, CTL-01.
May import: ``agentsession.protocol``, ``agentsession.adapters.base``, ``acp``, anyio, the modules beside it.

ACP has no sign that all that an agent does waits. So the stream pauses when something waits for the host and nothing
has come for ``quiet_s``: what several calls ask at once arrives together, what comes later belongs to the next stream.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import anyio
from acp import RequestError
from anyio.abc import TaskGroup

from agentsession.adapters.acp._asking import Asking
from agentsession.adapters.acp._calls import Calls
from agentsession.adapters.acp._content import prompt_blocks
from agentsession.adapters.acp._link import AgentLost, Link, custom, failed, refuse_late
from agentsession.adapters.acp._messages import Messages
from agentsession.adapters.acp._peer import AgentProcess, Incoming
from agentsession.adapters.base import RunContext, RunResult
from agentsession.protocol import AgentSessionError, RunEnded, SessionUpdate, Usage

__all__ = ["Turn"]

_REASONS: Final = {
    "end_turn": "completed",
    "max_tokens": "max_tokens",
    "max_turn_requests": "max_turns",
    "refusal": "refusal",
    "cancelled": "aborted",
}

_CALLS: Final = {"tool_call": True, "tool_call_update": False}
_CHUNKS: Final = {"agent_message_chunk": False, "agent_thought_chunk": True}


class Turn:
    """Plays one turn of an agent's."""

    def __init__(self, link: Link, ctx: RunContext, quiet_s: float) -> None:
        self._link, self._ctx, self._quiet_s = link, ctx, quiet_s
        self._messages = Messages(ctx)
        self._calls = Calls(ctx, link.begun, self._cancel)
        self._is_cancelled = False
        self._is_sent = False

    async def play(self, process: AgentProcess) -> RunResult | None:
        """The whole turn. When it is cut off after its prompt the process is ended: nobody knows what goes on in it."""
        link, outcome = self._link, None
        has_ended = False
        link.in_turn = True
        try:
            await self._left_from_before()
            async with anyio.create_task_group() as tasks:
                self._start(tasks, process)
                try:
                    outcome = await self._until_answer()
                except RunEnded:  # the turn was settled: nothing is recorded any more
                    await self._drain()
                has_ended = True
                tasks.cancel_scope.cancel()
        finally:
            link.on_lost = None
            link.turn_over()
            link.options.clear()
            link.args.clear()
            if self._is_sent and not has_ended:
                with anyio.CancelScope(shield=True):
                    await link.drop(kill=True)
        if isinstance(outcome, AgentSessionError):
            raise outcome
        return outcome

    def _start(self, tasks: TaskGroup, process: AgentProcess) -> None:
        self._tasks, self._process = tasks, process
        self._asking = Asking(self._link, self._ctx, self._calls, tasks, self._cancel)
        self._link.on_lost = self._asking.lost
        message = self._ctx.input
        assert message is not None
        assert self._link.about is not None
        blocks = prompt_blocks(message.content, self._link.about.accepts)
        self._ctx.on_abort(self._aborted)
        self._is_sent = True
        tasks.start_soon(self._prompt, {"sessionId": self._link.acp_id, "prompt": blocks})

    async def _prompt(self, params: dict[str, Any]) -> None:
        with contextlib.suppress(RequestError, ConnectionError):  # the queue has either, in its place
            await self._process.request("session/prompt", params)

    def _aborted(self) -> float:
        """How long the agent may take to stop: the rest of the grace time is for its process to be ended."""
        self._cancel()
        return self._link.executor.grace_s * 0.6

    def _cancel(self) -> None:
        if not self._is_cancelled:
            self._is_cancelled = True
            self._tasks.start_soon(self._send_cancel)

    async def _send_cancel(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._process.notify("session/cancel", {"sessionId": self._link.acp_id})

    # -- the queue ----------------------------------------------------------------------------------------------------

    async def _left_from_before(self) -> None:
        while (item := self._link.take()) is not None:
            if item.kind == "request":
                refuse_late(item)
            elif item.kind == "update":
                await self._ctx.emit(custom("acp:late_update", item.params))
            elif item.kind == "end":  # it died just now: the turn has to see it
                self._link.queue.appendleft(item)
                return

    async def _next(self) -> Incoming:
        while True:
            await self._ctx.attached()
            item = self._link.take()
            if item is not None:
                return item
            waits = bool(self._asking.waiting) and not self._ctx.aborting
            with anyio.move_on_after(self._quiet_s if waits else None) as quiet:
                await self._link.arrived.wait()
            if quiet.cancelled_caught and self._asking.waiting:
                self._ctx.pause()

    async def _until_answer(self) -> RunResult | AgentSessionError | None:
        while True:
            item = await self._next()
            if item.kind == "answer":
                return await self._answer(item.message)
            if item.kind == "end":
                return await self._lost()
            if item.kind == "request":
                if self._is_cancelled:
                    refuse_late(item)
                else:
                    await self._asking.take(item)
            else:
                await self._update(item)

    async def _drain(self) -> None:
        """Read on until the answer, as the next prompt must not begin before it."""
        while True:
            item = self._link.take()
            if item is None:
                await self._link.arrived.wait()
            elif item.kind in ("answer", "end"):
                return
            elif item.kind == "request":
                refuse_late(item)

    async def _lost(self) -> AgentSessionError:
        await self._messages.close(interrupted=True)
        with anyio.CancelScope(shield=True):
            await self._link.drop(kill=True)
        return AgentLost("the agent's process has ended in the middle of a turn")

    async def _answer(self, message: dict[str, Any]) -> RunResult | AgentSessionError | None:
        if "result" not in message:
            await self._messages.close(interrupted=True)
            error = message["error"]
            return failed(RequestError(error["code"], "error"))
        result = message["result"] if isinstance(message["result"], dict) else {}
        await self._messages.close()
        await self._calls.end()
        await self._usage(result.get("usage"))
        reason = result.get("stopReason")
        if not isinstance(reason, str) or not reason:
            return AgentLost("the agent ended its turn without a reason", id="acp-agent-error")
        ours = _REASONS.get(reason, reason)
        if ours in ("completed", "input_required"):
            return None
        who = "host" if self._is_cancelled else "agent"
        return RunResult(ours, {"cause": f"cancelled by the {who}"} if ours == "aborted" else None)

    # -- updates ------------------------------------------------------------------------------------------------------

    async def _update(self, item: Incoming) -> None:
        update = item.params.get("update")
        if item.method != "session/update" or not isinstance(update, dict):
            await self._keep("acp:" + item.method, item.params)
            return
        if item.params.get("sessionId") != self._link.acp_id:
            await self._keep("acp:other_session", item.params)
            return
        kind = update.get("sessionUpdate")
        if kind in _CHUNKS:
            await self._messages.chunk(update, is_thought=_CHUNKS[kind])
        elif kind in _CALLS:
            await self._messages.before_call()
            if not await self._calls.update(update, is_new=_CALLS[kind]):
                await self._keep(f"acp:{kind}", update)
        elif kind == "plan":
            await self._keep("plan", update)
        elif kind == "current_mode_update" and isinstance(update.get("currentModeId"), str):
            await self._ctx.emit(SessionUpdate(config={"mode": update["currentModeId"]}))
        elif kind == "session_info_update" and isinstance(update.get("title"), str):
            await self._ctx.emit(SessionUpdate(title=update["title"]))
        elif kind == "usage_update":
            await self._window(update)
        else:
            await self._keep(f"acp:{kind}" if isinstance(kind, str) and kind else "acp:unknown", update)

    async def _keep(self, kind: str, data: Any) -> None:
        await self._ctx.emit(custom(kind[:128], data))

    async def _window(self, update: dict[str, Any]) -> None:
        """How full the context is, and what the session has cost: the event has what was added."""
        size, cost = update.get("size"), update.get("cost")
        counts: dict[str, Any] = {}
        if _is_count(size):
            counts["context_window"] = size
        amount = cost.get("amount") if isinstance(cost, dict) and cost.get("currency") == "USD" else None
        # Bounded: an integer of JSON may be too large for a float.
        if isinstance(amount, int | float) and not isinstance(amount, bool) and self._link.cost <= amount < 1e12:
            counts["cost"] = float(amount) - self._link.cost
            self._link.cost = float(amount)
        if counts:
            await self._ctx.emit(Usage(**counts))
        await self._keep("acp:usage_update", update)

    async def _usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        names = {
            "input_tokens": "inputTokens",
            "output_tokens": "outputTokens",
            "cached_tokens": "cachedReadTokens",
            "reasoning_tokens": "thoughtTokens",
            "total_tokens": "totalTokens",
        }
        counts = {ours: usage[theirs] for ours, theirs in names.items() if _is_count(usage.get(theirs))}
        if counts:
            await self._ctx.emit(Usage(**counts))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
