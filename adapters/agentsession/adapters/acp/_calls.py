"""The agent's tool calls of one turn as requests, updates and responses.

Not for: asking the host (``_asking.py``). Rules carried: TOOL-01, TOOL-02, TOOL-03, TOOL-12.
May import: ``agentsession.protocol``, ``agentsession.adapters.base``, the module for content beside it.

A call is *held* as a partial request until it is known whether it asks: a permission request of its id makes it whole
with ``needs`` grant, progress without one makes it whole with ``needs`` none. Ids are ours: agents repeat theirs.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from agentsession.adapters.acp._content import tool_parts
from agentsession.adapters.base import HookBlocked, RunContext
from agentsession.protocol import ToolRequest, ToolResponse, ToolUpdate, check_json

__all__ = ["Call", "Calls", "args_of"]

_FIELDS: Final = ("title", "kind", "rawInput", "content", "locations", "rawOutput", "_meta")
_CHANGED: Final = "a hook changed the arguments, and an ACP agent cannot be told others"
_NAMES: Final = (("agentsession", "name"), ("claudeCode", "toolName"))


@dataclasses.dataclass(eq=False)
class Call:
    """One tool call of the agent's."""

    key: str
    request_id: str
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What the agent has said of it, the latest of each."""
    request: ToolRequest | None = None
    """The whole request."""
    decided_on: tuple[str, dict[str, Any]] | None = None
    """The name and arguments in it. Who reads an event may change it in place, which changes nothing here (HITL-04)."""
    is_over: bool = False

    def take(self, update: Mapping[str, Any]) -> None:
        """Take what an update says; what is null or absent stays, also in ``_meta``: a rule goes by the name in it."""
        known = self.fields.get("_meta")
        self.fields.update({name: update[name] for name in _FIELDS if update.get(name) is not None})
        if isinstance(known, dict):
            said = update.get("_meta")
            self.fields["_meta"] = {**known, **said} if isinstance(said, dict) else known

    @property
    def name(self) -> str:
        """The tool's name, where the agent gives one away, else the kind of tool that it is."""
        meta = self.fields.get("_meta")
        for outer, inner in _NAMES:
            found = meta.get(outer) if isinstance(meta, dict) else None
            if isinstance(found, dict) and isinstance(found.get(inner), str) and found[inner]:
                return str(found[inner])
        kind = self.fields.get("kind")
        return kind if isinstance(kind, str) and kind else "other"

    @property
    def display(self) -> dict[str, Any]:
        """What a person may be shown of it."""
        shown = {"title": self.fields.get("title"), "kind": self.fields.get("kind")}
        return {"toolCallId": self.key, **{name: value for name, value in shown.items() if isinstance(value, str)}}

    def differs(self, update: Mapping[str, Any]) -> bool:
        """Whether with this update it is not the call any more that its whole request tells of."""
        after = Call(self.key, self.request_id, dict(self.fields))
        after.take(update)
        return self.request is not None and (after.name, args_of(after.fields)) != self.decided_on

    def event(self, needs: str, *, partial: bool = False) -> ToolRequest:
        """The request for it."""
        return ToolRequest(
            request_id=self.request_id,
            name=self.name,
            args=None if partial else copy.deepcopy(args_of(self.fields)),
            owner="agent",
            needs=needs,
            display=self.display,
            partial=partial,
        )


def args_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call: its raw input, else all that a policy could decide by."""
    given = fields.get("rawInput")
    if isinstance(given, dict):
        return given
    told = {name: fields[name] for name in ("title", "locations") if fields.get(name) is not None}
    return told if given is None else {"rawInput": given, **told}


class Calls:
    """The calls of one turn, by the agent's ids. ``begun`` is told the ids of requests that may have begun. ``cancel``
    ends the prompt: it is called where a hook does not want a call that runs without asking."""

    def __init__(self, ctx: RunContext, begun: set[str], cancel: Callable[[], None]) -> None:
        self._ctx = ctx
        self._begun, self._cancel = begun, cancel
        self._calls: dict[str, Call] = {}
        self._replaced: list[Call] = []

    def of(self, key: str) -> Call:
        """The call of that id; a new one where there was none."""
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = Call(key, self._ctx.new_id("r"))
        return call

    def replace(self, call: Call) -> Call:
        """Another call of the same id, which begins with what is known of this one; this one ends as unknown."""
        self._replaced.append(self._calls.pop(call.key))
        made = self.of(call.key)
        made.take(call.fields)
        return made

    async def update(self, update: dict[str, Any], *, is_new: bool) -> bool:
        """A ``tool_call`` or ``tool_call_update``; whether it could be read."""
        key, status = update.get("toolCallId"), update.get("status")
        if not isinstance(key, str) or not isinstance(status, str | None):
            return False
        known = self._calls.get(key)
        if known is not None and known.is_over:
            if not is_new:
                return True  # after its response: too late
            del self._calls[key]  # the agent uses the id again: another call
        call = self.of(key)
        call.take(update)
        if status in ("in_progress", "completed", "failed"):
            if call.request is None and not await self.whole(call, "none", has_begun=True):
                self._cancel()  # the agent did not ask: this is all that can hold it back
                return True
            self._begun.add(call.request_id)
        elif call.request is None:
            await self._ctx.emit(call.event("grant", partial=True))
            return True
        if not self._ctx.is_open_request(call.request_id):
            call.is_over = True  # denied, or settled
        elif status in ("completed", "failed"):
            await self._respond(call, status)
        elif not is_new:
            await self._progress(call, update)
        return True

    async def whole(self, call: Call, needs: str, *, has_begun: bool = False) -> bool:
        """Make the request whole; whether it may go on.

        A hook of the host's may block it, or give it other arguments, with which the agent cannot be told to run it.
        """
        try:
            call.request = await self._ctx.emit(call.event(needs))
        except HookBlocked:  # recorded as denied
            call.is_over = True
            return False
        if call.request.args == args_of(call.fields):
            call.decided_on = (call.request.name, copy.deepcopy(args_of(call.fields)))
            return True
        call.is_over = True
        if self._ctx.is_open_request(call.request_id):
            status = "unknown" if has_begun else "denied"
            await self._ctx.respond(call.request, {"error": _CHANGED}, status=status, is_error=True)
        return False

    async def end(self) -> None:
        """The answer has come: what has begun is unknown, what has not is cancelled."""
        for call in (*self._replaced, *self._calls.values()):
            if call.is_over:
                continue
            if call.request is None and not await self.whole(call, "none"):
                continue
            call.is_over = True
            if call.request is not None and self._ctx.is_open_request(call.request_id):
                status = "unknown" if call.request_id in self._begun else "cancelled"
                await self._ctx.respond(call.request, status=status, is_error=True)

    async def _progress(self, call: Call, update: Mapping[str, Any]) -> None:
        data = {name: update[name] for name in ("status", "title", "rawOutput") if update.get(name) is not None}
        await self._ctx.emit(
            ToolUpdate(request_id=call.request_id, content=tool_parts(update.get("content")), data=check_json(data))
        )

    async def _respond(self, call: Call, status: str) -> None:
        assert call.request is not None
        call.is_over = True
        output: dict[str, Any] = {}
        if "rawOutput" in call.fields:
            output["data"] = call.fields["rawOutput"]
        await self._ctx.emit(
            ToolResponse(
                request_id=call.request_id,
                name=call.request.name,
                content=tool_parts(call.fields.get("content")),
                is_error=status == "failed",
                status=status,
                **output,
            )
        )
